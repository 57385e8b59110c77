//! Several processes on NATS: one gateway, two workers; who owns a turn dies, freezes, or loses
//! its server.

pub(crate) mod nats {
    use clawnode_proto::ProcessId;
    use clawnode_tests::{
        model::{DefaultReply, Script},
        nats::{NatsCluster, ServerOptions},
        process::{Client, Message, Node, ProcessError, Start, TestBackend},
    };
    use rustix::process::Signal;
    use serde_json::Value;

    use crate::{
        streams::stuck_script,
        support::{Outcome, Scene, Under},
    };

    /// A gateway and some workers.
    pub(crate) struct Cluster {
        pub(crate) gateway: Node,
        pub(crate) client: Client,
        pub(crate) workers: Vec<Node>,
    }

    impl Cluster {
        pub(crate) async fn start(scene: &Scene, workers: usize) -> Result<Self, ProcessError> {
            let gateway = Node::start(&scene.home, Start::role("gateway")).await?;
            let client = gateway.client()?;
            let mut cluster = Self { gateway, client, workers: Vec::new() };
            for _ in 0..workers {
                cluster.join(scene).await?;
            }
            Ok(cluster)
        }

        /// One more worker.
        pub(crate) async fn join(&mut self, scene: &Scene) -> Result<ProcessId, ProcessError> {
            let worker = Node::start(&scene.home, Start::role("worker")).await?;
            let process = worker.process().unwrap();
            self.workers.push(worker);
            Ok(process)
        }

        /// Who claimed the session, one after another.
        pub(crate) async fn claims(&self, session: &str) -> Result<Vec<ProcessId>, ProcessError> {
            let journal: Vec<Value> = self.client.journal(session).await?;
            let claims = journal.iter().filter(|event| event["kind"] == "claim");
            let process = |claim: &Value| claim["incarnation"]["process"].clone();
            Ok(claims.map(|claim| serde_json::from_value(process(claim)).unwrap()).collect())
        }

        /// The worker that owns the session, taken out of the others.
        pub(crate) async fn owner(&mut self, session: &str) -> Result<Node, ProcessError> {
            let owner = self.claims(session).await?.pop();
            let at = self.workers.iter().position(|worker| worker.process() == owner).unwrap();
            Ok(self.workers.remove(at))
        }

        pub(crate) async fn stop(self) -> Outcome {
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
        let mut cluster = Cluster::start(&scene, 2).await?;
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
        let mut cluster = Cluster::start(&scene, 2).await?;
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
        let backend =
            TestBackend::Nats { url: servers.urls().join(","), prefix: "crash".to_owned() };
        let default = DefaultReply { tokens: 40, delay_ms: 50, flush: true };
        let scene = Scene::at(backend, None, Script { default, ..Script::default() }).await;
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
