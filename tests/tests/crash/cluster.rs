//! Several processes on NATS: one gateway, two workers; who owns a turn dies, freezes, or loses
//! its server.

mod nats {
    use clawnode_proto::ProcessId;
    use clawnode_tests::{
        model::{DefaultReply, Script},
        nats::{NatsCluster, ServerOptions},
        process::{Client, Ground, Message, Node, ProcessError, Start},
    };
    use rustix::process::Signal;
    use serde_json::{Value, json};

    use crate::{
        streams::stuck_script,
        support::{Outcome, Scene, Under},
    };

    /// A gateway and two workers.
    struct Cluster {
        gateway: Node,
        client: Client,
        workers: Vec<Node>,
    }

    impl Cluster {
        async fn start(scene: &Scene) -> Result<Self, ProcessError> {
            let gateway = Node::start(&scene.home, Start::role("gateway")).await?;
            let client = gateway.client()?;
            let mut workers = Vec::new();
            for _ in 0..2 {
                workers.push(Node::start(&scene.home, Start::role("worker")).await?);
            }
            Ok(Self { gateway, client, workers })
        }

        /// The worker that owns the session, taken out of the others.
        async fn owner(&mut self, session: &str) -> Result<Node, ProcessError> {
            let params = json!({ "session": session });
            let journal: Vec<Value> = self.client.call("journal.show", params).await?;
            let claim = journal.iter().rev().find(|event| event["kind"] == "claim").unwrap();
            let owner: ProcessId =
                serde_json::from_value(claim["incarnation"]["process"].clone()).unwrap();
            let at = self.workers.iter().position(|it| it.process() == Some(owner)).unwrap();
            Ok(self.workers.remove(at))
        }

        async fn stop(self) -> Outcome {
            self.gateway.stop().await?;
            for worker in self.workers {
                worker.stop().await?;
            }
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_worker_dies_in_mid_answer_and_the_other_finishes() -> Outcome {
        let mut scene = Scene::on(Under::Nats, stuck_script("never", "slow")).await;
        let mut cluster = Cluster::start(&scene).await?;
        let message = Message::new("ada", "slow");
        let mut turn = cluster.client.send(&message).await?;
        turn.begun().await?;
        cluster.owner(&message.session()).await?.kill().await?;
        scene.kills += 1;
        // The same stream goes on: the gateway did not die.
        assert_eq!(turn.completed().await?, "reply to: slow");
        let found = scene.judge(&cluster.client, &[message]).await?;
        assert_eq!((found.requests, found.lost), (2, 1));
        cluster.stop().await
    }

    #[tokio::test]
    async fn c15_a_frozen_owner_comes_back_and_its_call_is_wasted() -> Outcome {
        let mut scene = Scene::on(Under::Nats, stuck_script("thawed", "slow")).await;
        let mut cluster = Cluster::start(&scene).await?;
        let message = Message::new("ada", "slow");
        let mut turn = cluster.client.send(&message).await?;
        turn.begun().await?;
        let frozen = cluster.owner(&message.session()).await?;
        frozen.signal(Signal::STOP)?;
        scene.kills += 1;
        assert_eq!(turn.completed().await?, "reply to: slow");

        // It comes back, gets the rest of its answer, and must not write a word of it.
        frozen.signal(Signal::CONT)?;
        scene.server.open("thawed");
        scene.server.answered(2).await;
        cluster.workers.push(frozen);
        let more = Message::new("ada", "more");
        cluster.client.chat(&more).await?;
        let found = scene.judge(&cluster.client, &[message, more]).await?;
        assert_eq!((found.turns, found.requests, found.lost), (2, 3, 1));
        cluster.stop().await
    }

    #[tokio::test]
    async fn c14_a_leader_dies_and_no_call_is_made_again() -> Outcome {
        let mut servers = NatsCluster::start(3, ServerOptions::default()).await.unwrap();
        let ground = Ground::Nats { url: servers.urls().join(","), prefix: "crash".to_owned() };
        let default = DefaultReply { tokens: 40, delay_ms: 50, flush: true };
        let scene = Scene::at(ground, None, Script { default, ..Script::default() }).await;
        let node = Node::up(&scene.home).await?;
        let client = node.client()?;
        let message = Message::new("ada", "slow");
        let mut turn = client.send(&message).await?;
        turn.begun().await?;
        let leader = servers.leader_of("CRASH_JOURNAL").await.unwrap();
        servers.server(leader).unwrap().kill().unwrap();
        let reply = turn.completed().await?;
        assert!(reply.starts_with("reply to: slow 2 3 "), "{reply}");
        let found = scene.judge(&client, &[message]).await?;
        assert_eq!((found.requests, found.lost), (1, 0), "the call kept running");
        node.stop().await
    }
}
