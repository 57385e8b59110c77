//! Nodes of two versions side by side. The older one is the same build, made to know less.

mod nats {
    use clawnode_proto::view::StatusView;
    use clawnode_tests::{
        model::{Act, Script},
        process::{Message, Node, ProcessError, Start},
    };

    use crate::{
        fleet::{Fleet, Var},
        support::{Outcome, Scene, Under},
    };

    /// Sessions whose journals the older worker cannot read: some of any worker's partitions.
    const NEWER: usize = 6;

    /// What an older node does not know, and its version.
    fn older(hides: &str) -> Vec<Var> {
        vec![
            ("CLAWNODE_TEST_HIDES", hides.to_owned()),
            ("CLAWNODE_TEST_VERSION", "0.0.1".to_owned()),
        ]
    }

    fn speaks(range: &str) -> Vec<Var> {
        vec![("CLAWNODE_TEST_SPEAKS", range.to_owned())]
    }

    fn warns(status: &StatusView) -> bool {
        let lacking = |it: &&clawnode_proto::view::WarningView| it.name == "nodes.too_old";
        status.warnings.iter().find(lacking).is_some_and(|it| it.message.contains("model_failed"))
    }

    fn to(n: usize, text: &str) -> Message {
        Message::new(&format!("newer{n}"), text)
    }

    #[tokio::test]
    async fn an_event_of_an_unknown_kind_reaches_a_newer_worker() -> Outcome {
        what_an_older_worker_cannot_read_reaches_a_newer_one("model_failed").await
    }

    #[tokio::test]
    async fn a_known_event_with_an_unknown_body_reaches_a_newer_worker() -> Outcome {
        what_an_older_worker_cannot_read_reaches_a_newer_one("model_failed/body").await
    }

    async fn what_an_older_worker_cannot_read_reaches_a_newer_one(hides: &str) -> Outcome {
        let fails = (0..NEWER).map(|_| Act::status(400, "no")).collect();
        let script = Script { on: [("fail".to_owned(), fails)].into(), ..Script::default() };
        let scene = Scene::on(Under::Nats, script).await;
        let mut fleet = Fleet::new(&scene).await?;
        fleet.add(&scene, "new").await?;
        let mut newer = vec![fleet.workers["new"].process().unwrap()];
        for n in 0..NEWER {
            let mut turn = fleet.client.send(&to(n, "fail")).await?;
            assert!(turn.completed().await.is_err(), "the model refuses");
        }
        // Side by side: an input may go to any worker, and reaches the one that can take it.
        fleet.add_with(&scene, "old", older(hides)).await?;
        for n in 0..NEWER {
            let message = to(n, &format!("both {n}"));
            assert!(fleet.client.chat(&message).await?.ends_with(&format!("both {n}")));
        }
        // Alone, the older one leaves them in the inbox, says so, and serves the others.
        fleet.take("new").stop().await?;
        let mut waiting = Vec::new();
        for n in 0..NEWER {
            waiting.push(fleet.client.send(&to(n, &format!("later {n}"))).await?);
        }
        fleet.status_when(warns).await?;
        let plain = Message::new("plain", "hello");
        fleet.client.chat(&plain).await?;
        assert_eq!(fleet.owner(&plain).await?, "old");
        // A newer one comes back, and what waited goes on.
        fleet.add(&scene, "new").await?;
        newer.push(fleet.workers["new"].process().unwrap());
        for (n, turn) in waiting.iter_mut().enumerate() {
            assert!(turn.completed().await?.ends_with(&format!("later {n}")));
        }
        for n in 0..NEWER {
            let claims = fleet.claims(&to(n, "")).await?;
            assert!(claims.iter().all(|one| newer.contains(one)), "{claims:?} of {newer:?}");
        }
        assert_eq!(scene.asked().len(), 3 * NEWER + 1, "each call was made once");
        fleet.status_when(|status| !warns(status)).await?;
        fleet.stop().await
    }

    #[tokio::test]
    async fn nodes_without_a_common_version_refuse_to_join() -> Outcome {
        let scene = Scene::on(Under::Nats, Script::default()).await;
        let mut fleet = Fleet::new(&scene).await?;
        fleet.add(&scene, "w1").await?;
        for role in ["worker", "gateway"] {
            let start = Start { vars: speaks("90-91"), ..Start::role(role) };
            match Node::start(&scene.home, start).await {
                Err(ProcessError::NotReady { status, log }) => {
                    assert!(status.contains("78"), "{status}");
                    assert!(log.contains("versions_unfit") && log.contains("90-91"), "{log}");
                }
                other => panic!("it joined: {other:?}"),
            }
        }
        let message = Message::new("ada", "hello");
        fleet.client.chat(&message).await?;
        assert_eq!(fleet.owner(&message).await?, "w1");
        fleet.stop().await
    }

    #[tokio::test]
    async fn inputs_are_written_as_the_version_that_all_nodes_speak() -> Outcome {
        let scene = Scene::on(Under::Nats, Script::default()).await;
        let mut fleet = Fleet::with(&scene, speaks("1-3")).await?;
        fleet.add_with(&scene, "w3", speaks("1-3")).await?;
        let written = async |fleet: &Fleet, text: &str| -> Result<u64, ProcessError> {
            let message = Message::new(text, text);
            fleet.client.chat(&message).await?;
            let journal = fleet.journal(&message).await?;
            let accepted = journal.iter().find(|event| event.kind == "accepted").unwrap();
            Ok(accepted.body["v"].as_u64().unwrap())
        };
        // Newer versions are for inputs with attachments, or with a schema, alone.
        assert_eq!(written(&fleet, "alone").await?, 2);
        fleet.add_with(&scene, "w2", speaks("1-1")).await?;
        assert_eq!(written(&fleet, "mixed").await?, 1);
        fleet.take("w2").stop().await?;
        fleet.status_when(|status| status.nodes.len() == 2).await?;
        assert_eq!(written(&fleet, "again").await?, 2);
        fleet.stop().await
    }
}
