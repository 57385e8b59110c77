//! A node, the owner of a session or a gateway is lost while a person looks at it: nothing that
//! they were shown is lost, and nothing is there twice.

use rustix::process::Signal;

use clawnode_tests::process::{Node, Terminal};

use super::{
    Outcome, WINDOW,
    approvals::{WRITE, writer},
    asked, chat, chat_with,
    conversations::stuck,
    scene,
};

#[tokio::test]
async fn a_node_killed_in_mid_answer_is_gone_on_with() -> Outcome {
    let (server, home) = scene(stuck("first question")).await;
    let mut terminal = chat(&home).await?;
    terminal.types("first question\r").await?;
    terminal.shows("the beginning of").await?;
    terminal.signal(Signal::KILL)?;
    terminal.ended().await?;

    let mut terminal = chat_with(&home, &["--continue"]).await?;
    terminal.shows("continuing: first question").await?;
    server.open("gate");
    terminal.shows("the beginning of it and its end").await?;
    let screen = terminal.prompts().await?;
    assert_eq!(screen.matches("and its end").count(), 1, "{screen}");
    assert_eq!(asked(&server), ["first question"; 2], "the second is the call made again");
    Ok(())
}

#[tokio::test]
async fn a_node_killed_at_a_question_asks_it_again() -> Outcome {
    let (server, home, file) = writer().await;
    let mut terminal = chat(&home).await?;
    terminal.types(&format!(" {WRITE}\r")).await?;
    terminal.shows("run it?").await?;
    terminal.signal(Signal::KILL)?;
    terminal.ended().await?;

    let mut terminal = chat_with(&home, &["--continue"]).await?;
    terminal.shows("continuing: /tool file_write").await?;
    terminal.shows("run it?").await?;
    assert!(!file.exists());
    terminal.types("y\r").await?;
    terminal.shows("reply to:").await?;
    let screen = terminal.prompts().await?;
    assert_eq!(std::fs::read_to_string(file).unwrap(), "one\ntwo\nthree\n");
    assert_eq!(screen.matches("run it?").count(), 1, "{screen}");
    assert_eq!(asked(&server).len(), 2, "one call, and one answer to its result");
    Ok(())
}

#[tokio::test]
async fn a_frozen_node_is_waited_for() -> Outcome {
    let (server, home) = scene(stuck("long")).await;
    let node = Node::up(&home).await?;
    let mut terminal = Terminal::start(&home, &["chat"], &[], WINDOW)?;
    terminal.prompts().await?;
    terminal.types("long\r").await?;
    terminal.shows("the beginning of").await?;
    node.signal(Signal::STOP)?;
    let screen = terminal.shows("the node does not answer").await?;
    assert!(!screen.contains("error"), "{screen}");
    terminal.shows("\n  clawnode chat --session default:cli:local:ada~").await?;
    node.signal(Signal::CONT)?;
    terminal.shows("the node answers again").await?;
    server.open("gate");
    terminal.shows("and its end").await?;
    let screen = terminal.prompts().await?;
    for text in ["the beginning of it", "and its end", "the node does not answer"] {
        assert_eq!(screen.matches(text).count(), 1, "{text}\n{screen}");
    }
    assert_eq!(asked(&server), ["long"]);
    terminal.types("still there?\r").await?;
    terminal.shows("reply to: still there?").await?;
    node.stop().await
}

mod nats {
    use std::path::PathBuf;

    use clawnode_proto::{overview::NodeList, view::SessionList};
    use clawnode_tests::{
        model::{ModelServer, Script},
        nats::{NatsServer, ServerOptions, free_port},
        process::{Home, Node, ProcessError, Start, Terminal, TestBackend},
    };
    use serde_json::json;

    use super::super::{
        Outcome, WINDOW,
        approvals::{WRITE, writer_on},
        asked,
        conversations::stuck,
    };

    /// A gateway and two workers.
    struct Cluster {
        gateway: Node,
        workers: Vec<Node>,
        file: PathBuf,
        home: Home,
        server: ModelServer,
        _nats: NatsServer,
    }

    impl Cluster {
        /// One in which who dies is missed soon, and who is only slow could be, too.
        async fn start(script: Script) -> Result<Self, ProcessError> {
            let times = [("HEARTBEAT", "400ms"), ("DEAD_AFTER", "1500ms")];
            Self::start_with(script, &times).await
        }

        async fn start_with(script: Script, times: &[(&str, &str)]) -> Result<Self, ProcessError> {
            let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
            let backend = TestBackend::Nats { url: nats.url(), prefix: "losses".to_owned() };
            let (server, home, file) = writer_on(backend, script).await;
            let mut home = home.var("CLAWNODE_CLUSTER__PARTITIONS", "8");
            for (name, time) in times {
                home = home.var(&format!("CLAWNODE_CLUSTER__{name}"), time);
            }
            // Below the ports of outgoing connections, one of which could have it when the gateway comes back.
            let listen = Some(format!("127.0.0.1:{}", free_port().unwrap()));
            let start = Start { listen, ..Start::role("gateway") };
            let gateway = Node::start(&home, start).await?;
            let mut workers = Vec::new();
            for _ in 0..2 {
                workers.push(Node::start(&home, Start::role("worker")).await?);
            }
            let all = |list: &NodeList| list.nodes.len() == 3;
            let _: NodeList = gateway.client()?.call_when("nodes.list", json!({}), all).await?;
            Ok(Self { gateway, workers, file, home, server, _nats: nats })
        }

        /// A chat at the gateway, at its prompt.
        async fn chat(&self) -> Result<Terminal, ProcessError> {
            let token = self.home.data().join("token");
            let token = token.to_string_lossy();
            let args = ["chat", "--url", self.gateway.url(), "--token-file", &token];
            let mut terminal = Terminal::start(&self.home, &args, &[], WINDOW)?;
            terminal.prompts().await?;
            Ok(terminal)
        }

        /// `kill -9` of the worker that owns the only session.
        async fn kill_owner(&mut self) -> Outcome {
            let known =
                |list: &SessionList| list.sessions.iter().any(|session| session.owner.is_some());
            let client = self.gateway.client()?;
            let list: SessionList = client.call_when("sessions.list", json!({}), known).await?;
            let owner = list.sessions[0].owner;
            let at = self.workers.iter().position(|worker| worker.process() == owner).unwrap();
            self.workers.remove(at).kill().await
        }
    }

    #[tokio::test]
    async fn an_owner_killed_in_mid_answer_is_followed_by_another() -> Outcome {
        let mut cluster = Cluster::start(stuck("long")).await?;
        let mut terminal = cluster.chat().await?;
        terminal.types("long\r").await?;
        terminal.shows("the beginning of").await?;
        cluster.kill_owner().await?;
        cluster.server.asked(2).await;
        cluster.server.open("gate");
        terminal.shows("and its end").await?;
        let screen = terminal.prompts().await?;
        // The other worker asked the model again, and what it says again is not shown again.
        for text in ["the beginning of it and its end", "the beginning"] {
            assert_eq!(screen.matches(text).count(), 1, "{text}\n{screen}");
        }
        assert_eq!(asked(&cluster.server), ["long"; 2]);
        Ok(())
    }

    #[tokio::test]
    async fn a_gateway_killed_in_mid_answer_is_found_again() -> Outcome {
        let mut cluster = Cluster::start_with(stuck("long"), &[]).await?;
        let mut terminal = cluster.chat().await?;
        terminal.types("long\r").await?;
        terminal.shows("the beginning of").await?;
        let listen = cluster.gateway.url().trim_start_matches("http://").to_owned();
        cluster.gateway.signal(rustix::process::Signal::KILL)?;
        cluster.gateway.ended().await?;
        terminal.shows("lost the node").await?;
        let again = Start { listen: Some(listen), ..Start::role("gateway") };
        cluster.gateway = Node::start(&cluster.home, again).await?;
        terminal.shows("connected to").await?;
        cluster.server.open("gate");
        terminal.shows("and its end").await?;
        let screen = terminal.prompts().await?;
        for text in ["the beginning of it", "and its end"] {
            assert_eq!(screen.matches(text).count(), 1, "{text}\n{screen}");
        }
        assert_eq!(asked(&cluster.server), ["long"], "the model noticed nothing");
        Ok(())
    }

    #[tokio::test]
    async fn a_yes_to_the_question_of_a_killed_owner_counts_once() -> Outcome {
        let mut cluster = Cluster::start(Script::default()).await?;
        let mut terminal = cluster.chat().await?;
        terminal.types(&format!(" {WRITE}\r")).await?;
        terminal.shows("run it?").await?;
        cluster.kill_owner().await?;
        terminal.types("y\r").await?;
        terminal.shows("reply to:").await?;
        terminal.prompts().await?;
        assert_eq!(std::fs::read_to_string(&cluster.file).unwrap(), "one\ntwo\nthree\n");
        assert_eq!(asked(&cluster.server).len(), 2, "one call, and one answer to its result");
        Ok(())
    }
}
