//! One server for the whole cluster, on one of the hosts that have it, until that host is lost.

use std::sync::atomic::{AtomicUsize, Ordering};

use clawnode_proto::mcp::McpServerView;
use clawnode_tests::{
    mcp::{marked, reference, unmarked},
    model::{ModelServer, Script, Setup},
    nats::{NatsServer, ServerOptions},
    process::{Home, Message, Node, ProcessError, Start, TestBackend},
    wait::until,
};
use serde_json::json;

use super::{
    Outcome,
    product::{ALLOW, configure, has, runs, section},
};

/// A gateway, and workers that have the server configured.
struct Cluster {
    home: Home,
    gateway: Node,
    mark: String,
    /// Messages sent so far: each has a key of its own, because a repeat under the same key is the same turn.
    sent: AtomicUsize,
    _nats: NatsServer,
    _model: ModelServer,
}

impl Cluster {
    async fn start() -> Result<Self, ProcessError> {
        let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
        let setup =
            Setup { api_key: Some(Home::key().to_owned()), ..Setup::from(Script::default()) };
        let model = ModelServer::start(setup).await.unwrap();
        let backend = TestBackend::Nats { url: nats.url(), prefix: "mcp".to_owned() };
        let home = Home::new(backend).unwrap().anthropic(&model);
        let home = home.var("CLAWNODE_CLUSTER__PARTITIONS", "8");
        let mark = home.path().display().to_string();
        let everything = reference("everything")?.display().to_string();
        let text = format!(
            "[agents.default]\ntools = [\"everything__*\"]\n{ALLOW}{}[mcp_servers.tools.echo]\nclass = \
             \"safe\"\n",
            section("everything", "node", &[&everything], &mark),
        );
        configure(&home, &text);
        let gateway = Node::start(&home, Start::role("gateway")).await?;
        let sent = AtomicUsize::new(0);
        Ok(Self { home, gateway, mark, sent, _nats: nats, _model: model })
    }

    async fn worker(&self, name: &str) -> Result<Node, ProcessError> {
        let vars = vec![("CLAWNODE_NODE__NAME", name.to_owned())];
        Node::start(&self.home, Start { vars, ..Start::role("worker") }).await
    }

    /// The node that runs the server, once one of these does.
    async fn host(&self, hosts: &[&str]) -> Result<String, ProcessError> {
        let runs = |view: &McpServerView| {
            view.running.as_ref().is_some_and(|node| hosts.contains(&node.as_str()))
        };
        let params = json!({ "server": "everything" });
        let view: McpServerView =
            self.gateway.client()?.call_when("mcp.show", params, runs).await?;
        Ok(view.running.unwrap().to_string())
    }

    /// A turn that calls a tool of the server; what it answered, once the agent has it.
    async fn echo(&self, peer: &str, text: &str) -> Result<String, ProcessError> {
        let content = format!("/tool everything__echo {}", json!({ "message": text }));
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        let message = Message { key: format!("k-{number}"), ..Message::new(peer, &content) };
        let client = self.gateway.client()?;
        client.chat(&message).await?;
        let history = client.history(&message.session()).await?;
        let turn = history.turns.last().unwrap();
        let reply =
            turn.messages.iter().flat_map(|message| &message.tool_replies).next_back().unwrap();
        Ok(reply.content.inline().unwrap_or_default().to_owned())
    }
}

#[tokio::test]
async fn a_server_is_started_on_another_host_when_its_host_is_lost() -> Outcome {
    let cluster = Cluster::start().await?;
    let (a, b) = (cluster.worker("a").await?, cluster.worker("b").await?);
    let host = cluster.host(&["a", "b"]).await?;
    // One server, however many have it: a keeper and the program.
    until("one server", async || Ok((marked(&cluster.mark).len() == 2).then_some(()))).await?;
    runs(&cluster.gateway, "everything").await?;
    until("the agent has its tools", async || {
        Ok(cluster.echo("ada", "one").await?.contains("Echo: one").then_some(()))
    })
    .await?;
    let (lost, left) = if host == "a" { (a, b) } else { (b, a) };
    lost.kill().await?;
    let other = if host == "a" { "b" } else { "a" };
    assert_eq!(cluster.host(&[other]).await?, other);
    assert_eq!(cluster.echo("bob", "two").await?, "Echo: two");
    until("nothing of the lost host's", async || {
        Ok((marked(&cluster.mark).len() == 2).then_some(()))
    })
    .await?;
    left.stop().await?;
    cluster.gateway.stop().await?;
    assert_eq!(marked(&cluster.mark), Vec::<i32>::new(), "MCP-1");
    Ok(())
}

/// Turns with tools of a server, and kills of the worker that runs it: nothing is left over.
async fn turns_and_kills(turns: usize, kills: usize) -> Outcome {
    let cluster = Cluster::start().await?;
    let names = ["a", "b"];
    let mut workers: Vec<(&str, Node)> = Vec::new();
    for name in names {
        workers.push((name, cluster.worker(name).await?));
    }
    cluster.host(&names).await?;
    until("the agent has its tools", async || {
        Ok(cluster.echo("ada", "first").await?.contains("Echo: first").then_some(()))
    })
    .await?;
    let every = turns.div_ceil(kills.max(1));
    let mut killed = 0;
    for turn in 0..turns {
        if turn % every == 0 && killed < kills {
            let host = cluster.host(&names).await?;
            let at = workers.iter().position(|(name, _)| *name == host).unwrap();
            let (name, node) = workers.remove(at);
            // In the middle of a turn: the call is made again, or the model told.
            let peer = format!("killed-{killed}");
            let (echo, kill) = tokio::join!(cluster.echo(&peer, "x"), node.kill());
            kill?;
            echo?;
            workers.push((name, cluster.worker(name).await?));
            killed += 1;
            let left: Vec<&str> = names.to_vec();
            cluster.host(&left).await?;
        }
        let text = format!("turn {turn}");
        let told = cluster.echo(&format!("peer-{}", turn % 7), &text).await?;
        assert_eq!(told, format!("Echo: {text}"));
    }
    assert_eq!(killed, kills);
    for (_, worker) in workers {
        worker.stop().await?;
    }
    cluster.gateway.stop().await?;
    unmarked(&cluster.mark).await
}

#[tokio::test]
async fn turns_with_mcp_tools_and_kills_of_their_host_leave_no_process() -> Outcome {
    turns_and_kills(60, 12).await
}

/// The same where there is one process: the next one on its directory has what is approved, and
/// starts the server again.
#[tokio::test]
async fn turns_with_mcp_tools_and_kills_of_the_only_node_leave_no_process() -> Outcome {
    let setup = Setup { api_key: Some(Home::key().to_owned()), ..Setup::from(Script::default()) };
    let model = ModelServer::start(setup).await.unwrap();
    let home = Home::new(TestBackend::Local).unwrap().anthropic(&model);
    let mark = home.path().display().to_string();
    let everything = reference("everything")?.display().to_string();
    let server = section("everything", "node", &[&everything], &mark);
    configure(&home, &format!("[agents.default]\ntools = [\"everything__*\"]\n{ALLOW}{server}"));
    for kill in 0..8 {
        let node = Node::up(&home).await?;
        runs(&node, "everything").await?;
        has(&node, "everything__echo").await?;
        for turn in 0..5 {
            let name = format!("{kill}.{turn}");
            let failed =
                |error: ProcessError| ProcessError::Broken(format!("turn {name} fails: {error}"));
            echoes(&node, &format!("peer-{turn}"), &name).await.map_err(failed)?;
        }
        node.kill().await?;
        unmarked(&mark).await?;
    }
    Ok(())
}

/// A turn that calls a tool of the server, and gets its answer.
async fn echoes(node: &Node, peer: &str, text: &str) -> Outcome {
    let content = format!("/tool everything__echo {}", json!({ "message": text }));
    let (message, client) = (Message::new(peer, &content), node.client()?);
    client.chat(&message).await?;
    let history = client.history(&message.session()).await?;
    let turn = serde_json::to_string(&history.turns.last()).unwrap_or_default();
    if turn.contains(&format!("Echo: {text}")) {
        Ok(())
    } else {
        Err(ProcessError::Broken(format!("the turn is {turn}")))
    }
}

#[tokio::test]
async fn turns_with_mcp_tools_and_kills_of_their_host_soak() -> Outcome {
    turns_and_kills(1_000, 20).await
}
