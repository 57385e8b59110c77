//! From one process to a cluster: sessions are moved with what is unfinished in them, however often
//! the import is cut off, and no two copies go on.

mod nats {
    use std::{collections::BTreeMap, sync::Arc};

    use bytes::Bytes;
    use clawnode_cluster::SystemClock;
    use clawnode_local as local;
    use clawnode_local::LocalOptions;
    use clawnode_nats::{NatsOptions, connect};
    use clawnode_proto::{
        CallId, Digest, EventId, JobId, Position, TurnId,
        budget::{AccountView, LimitOrigin},
        job::{Job, JobState},
        session::TurnOutcome,
        subject::{Prefix, job_key},
        tool::EffectClass,
        view::VerifyView,
    };
    use clawnode_tests::{
        model::{Reply, Script, Step},
        nats::{NatsServer, ServerOptions},
        process::{
            Client, Ended, Home, Message, Node, ProcessError, Start, TestBackend, judge, sound,
        },
    };
    use serde_json::json;

    use crate::support::{Outcome, Scene};

    /// A data directory with three sessions, one of them in the middle of a call, and a cluster.
    struct Move {
        scene: Scene,
        cluster: Home,
        messages: Vec<Message>,
        _nats: NatsServer,
    }

    impl Move {
        async fn prepare() -> Result<Self, ProcessError> {
            let text = |text: &str| Step::Text { text: text.to_owned() };
            let stuck = vec![text("reply to: slow"), Step::Gate { name: "never".to_owned() }];
            // Over the size limit of an event: it goes to a blob.
            let long = Reply::text([format!("reply to: long {}", "x".repeat(300 << 10))]);
            let texts = [("slow", Reply::steps(stuck)), ("long", long)];
            let replies =
                texts.map(|(name, reply)| (name.to_owned(), [reply.into()].into())).into();
            let scene = Scene::new(Script { on: replies, ..Script::default() }).await;
            // So that one journal has an archive.
            let scene = scene.with_var("CLAWNODE_SESSION__SNAPSHOT_EVERY", "10");
            let mut messages = vec![Message::new("bob", "long")];
            messages.extend((0..4).map(|n| Message::new("eve", &format!("eve {n}"))));
            let node = Node::up(&scene.home).await?;
            let client = node.client()?;
            for message in &messages {
                client.chat(message).await?;
            }
            let pause = json!({ "agent": "default" });
            let slow = Message::new("ada", "slow");
            let mut turn = client.send(&slow).await?;
            turn.begun().await?;
            client.call::<serde_json::Value>("agents.pause", pause).await?;
            // Accepted and stored, and not begun: the agent is paused.
            let late = Message::new("ada", "late");
            drop(client.send(&late).await?);
            client.history_when(&late.session(), |history| history.turns.len() == 2).await?;
            node.kill().await?;
            messages.extend([slow, late]);

            let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
            let backend = TestBackend::Nats { url: nats.url(), prefix: "moved".to_owned() };
            let cluster = Home::new(backend)?.anthropic(&scene.server);
            let cluster = cluster.var("CLAWNODE_CLUSTER__PARTITIONS", "12");
            Ok(Self { scene, cluster, messages, _nats: nats })
        }

        async fn import(&self) -> Result<Ended, ProcessError> {
            let from = self.scene.home.data();
            self.cluster.run(&["import", "--json", "--from", &from.to_string_lossy()]).await
        }

        /// The same, killing itself at a point.
        async fn import_killed(&self, point: &str) -> Outcome {
            let from = self.scene.home.data();
            let mut command = self.cluster.command(&["import", "--from", &from.to_string_lossy()]);
            let ended = command.env("CLAWNODE_TEST_KILL", point).output().await.unwrap();
            assert_eq!(ended.status.code(), None, "{ended:?}");
            Ok(())
        }

        /// The last hash of each session in the directory.
        async fn heads(&self) -> Result<BTreeMap<String, Digest>, ProcessError> {
            let ended = self.scene.home.run(&["journal", "verify", "--json"]).await?;
            Ok(heads(&serde_json::from_value(ended.json()?).unwrap()))
        }
    }

    fn heads(verdict: &VerifyView) -> BTreeMap<String, Digest> {
        assert!(verdict.is_sound(), "{verdict:?}");
        let head =
            |row: &clawnode_proto::view::VerifyRow| (row.key.clone().unwrap(), row.head.unwrap());
        verdict.journals.iter().map(head).collect()
    }

    async fn heads_of(client: &Client) -> Result<BTreeMap<String, Digest>, ProcessError> {
        Ok(heads(&client.call("journal.verify", json!({})).await?))
    }

    /// The cluster finishes what was begun, and nothing that was recorded is asked for again.
    async fn finish(moved: &Move) -> Outcome {
        let worker = Node::start(&moved.cluster, Start::role("gateway,worker")).await?;
        let client = worker.client()?;
        let paused: serde_json::Value =
            client.call("agents.show", json!({ "agent": "default" })).await?;
        assert_eq!(paused["paused"], true, "the pause has moved");
        client.call::<serde_json::Value>("agents.resume", json!({ "agent": "default" })).await?;
        for message in &moved.messages {
            client.chat(message).await?;
        }
        let found = judge(&client, &moved.messages, &moved.scene.asked(), 1).await?;
        assert_eq!((found.turns, found.lost), (7, 1), "one call was under way");
        assert_eq!(found.requests, 8, "and it alone was made again");
        assert_eq!(sound(&moved.cluster).await?, 3);
        worker.stop().await
    }

    #[tokio::test]
    async fn sessions_move_with_their_chains_and_finish_in_the_cluster() -> Outcome {
        let moved = Move::prepare().await?;
        let before = moved.heads().await?;
        assert_eq!(before.len(), 3);

        // A gateway alone begins nothing: what is there is what was moved.
        let done = moved.import().await?;
        assert_eq!(done.code, 0, "{done:?}");
        let done = done.json()?;
        assert_eq!((&done["sessions"], &done["moved"]), (&json!(3), &json!(3)), "{done}");
        // The last one of a session that is not at rest; those before it may have been acknowledged.
        assert!(done["inputs"].as_u64().unwrap() >= 1, "{done}");
        assert!(done["blobs"].as_u64().unwrap() >= 2, "the long reply and an archive: {done}");
        let gateway = Node::start(&moved.cluster, Start::role("gateway")).await?;
        assert_eq!(heads_of(&gateway.client()?).await?, before, "the same chains on both sides");

        // Again: nothing to do.
        let again = moved.import().await?;
        assert_eq!((again.code, &again.json()?["moved"]), (0, &json!(0)), "{again:?}");
        assert_eq!(again.json()?["inputs"], 0, "{again:?}");
        assert_eq!(heads_of(&gateway.client()?).await?, before);
        gateway.stop().await?;
        finish(&moved).await?;

        // Further on there, and still the same session.
        let later = moved.import().await?;
        assert_eq!((later.code, &later.json()?["moved"]), (0, &json!(0)), "{later:?}");
        assert_eq!(later.json()?["inputs"], 0, "what is answered is not asked again: {later:?}");
        assert_eq!(moved.heads().await?, before, "the directory is as it was");
        Ok(())
    }

    #[tokio::test]
    async fn an_import_that_is_cut_off_is_run_again() -> Outcome {
        let moved = Move::prepare().await?;
        let before = moved.heads().await?;
        // In the middle of a journal (of the one with the inputs, if it comes first: it has two
        // messages); before and after an input. There may be one input only.
        for point in ["after-accepted:2", "before-put", "after-put"] {
            moved.import_killed(point).await?;
            // Half there, it goes on nowhere else.
            let up = moved.scene.home.run(&["up", "--listen", "127.0.0.1:0"]).await?;
            assert_eq!(up.code, 1, "{up:?}");
            assert!(up.err.contains("are being moved") && up.err.contains("import"), "{up:?}");
        }
        let done = moved.import().await?;
        assert_eq!(done.code, 0, "{done:?}");
        let gateway = Node::start(&moved.cluster, Start::role("gateway")).await?;
        assert_eq!(heads_of(&gateway.client()?).await?, before);
        gateway.stop().await?;
        finish(&moved).await
    }

    /// A data directory whose cluster may make two calls, one of which is made; a NATS server, and a home of its
    /// cluster.
    async fn limited() -> Result<(Scene, AccountView, NatsServer, Home), ProcessError> {
        let scene = Scene::new(Script::default()).await;
        let node = Node::up(&scene.home).await?;
        let client = node.client()?;
        let limit = json!({ "unit": "loops", "window": "forever", "amount": "2", "ask_at": 100 });
        let set = json!({ "account": "cluster", "limits": [limit] });
        client.call::<serde_json::Value>("budget.set", set).await?;
        client.chat(&Message::new("ada", "one")).await?;
        let shown = json!({ "account": "cluster" });
        let spent = |view: &AccountView| view.limits[0].spent == 1;
        let before: AccountView = client.call_when("budget.show", shown, spent).await?;
        node.stop().await?;
        let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
        let backend = TestBackend::Nats { url: nats.url(), prefix: "moved".to_owned() };
        let cluster = Home::new(backend)?.anthropic(&scene.server);
        Ok((scene, before, nats, cluster))
    }

    #[tokio::test]
    async fn limits_move_with_what_is_spent_of_them() -> Outcome {
        let (scene, before, _nats, cluster) = limited().await?;
        let from = scene.home.data();
        let done = cluster.run(&["import", "--json", "--from", &from.to_string_lossy()]).await?;
        assert_eq!(done.code, 0, "{done:?}");
        let done = done.json()?;
        assert_eq!((&done["sessions"], &done["others"]), (&json!(1), &json!(1)), "{done}");
        assert!(done["kept"].as_u64().unwrap_or_default() == 0, "{done}");

        let worker = Node::start(&cluster, Start::role("gateway,worker")).await?;
        let client = worker.client()?;
        let spent = |view: &AccountView| view.limits[0].spent == 1;
        let shown = json!({ "account": "cluster" });
        let there: AccountView = client.call_when("budget.show", shown, spent).await?;
        let parts = |view: &AccountView| (view.limits[0].limit, view.limits[0].spent);
        assert_eq!((there.origin, parts(&there)), (LimitOrigin::Person, parts(&before)));
        assert_eq!(there.set_by, before.set_by, "who set it is known");
        // It holds from the first call on, and the one that the directory made counts.
        client.chat(&Message::new("ada", "two")).await?;
        let third = Message::new("bob", "three");
        drop(client.send(&third).await?);
        let ended = client.finished(&third.session(), 1).await?;
        let outcome = ended.turns[0].outcome.as_ref();
        assert!(
            matches!(outcome, Some(TurnOutcome::Bankrupt { used: 2, limit: 2, .. })),
            "{outcome:?}"
        );
        assert_eq!(scene.asked().len(), 2);
        assert_eq!(sound(&cluster).await?, 3, "two sessions and the account");
        worker.stop().await
    }

    #[tokio::test]
    async fn a_cluster_keeps_its_own_limits() -> Outcome {
        let (scene, _, _nats, cluster) = limited().await?;
        let worker = Node::start(&cluster, Start::role("gateway,worker")).await?;
        let client = worker.client()?;
        let limit = json!({ "unit": "loops", "window": "day", "amount": "3", "ask_at": 100 });
        let set = json!({ "account": "cluster", "limits": [limit] });
        let own: AccountView = client.call("budget.set", set).await?;
        let from = scene.home.data();
        let done = cluster.run(&["import", "--json", "--from", &from.to_string_lossy()]).await?;
        assert_eq!(done.code, 0, "two accounts of one name are no conflict: {done:?}");
        let done = done.json()?;
        assert_eq!((&done["sessions"], &done["kept"]), (&json!(1), &json!(1)), "{done}");
        assert_eq!(done["refused"].as_array().map_or(0, Vec::len), 0, "{done}");

        // What was moved spends of them.
        client.chat(&Message::new("ada", "two")).await?;
        let spent = |view: &AccountView| view.limits[0].spent == 1;
        let shown = json!({ "account": "cluster" });
        let view: AccountView = client.call_when("budget.show", shown, spent).await?;
        let limits = |view: &AccountView| {
            view.limits
                .iter()
                .map(|limit| (limit.unit, limit.window, limit.limit))
                .collect::<Vec<_>>()
        };
        assert_eq!((limits(&view), &view.set_by), (limits(&own), &own.set_by));
        assert_eq!(client.history(&Message::new("ada", "").session()).await?.turns.len(), 2);
        worker.stop().await
    }

    fn job(number: u128, peer: &str) -> Job {
        Job {
            id: JobId::from_u128(number),
            capability: "mcp:files.v1".parse().unwrap(),
            session: format!("default:cli:local:{peer}").parse().unwrap(),
            turn: TurnId::from_u128(1),
            call: CallId::from_u128(number),
            nonce: EventId::from_u128(1),
            tool: "tool".parse().unwrap(),
            arguments: "{}".to_owned(),
            class: EffectClass::Once,
            timeout_ms: 1_000,
            limit: None,
            action: None,
            callbacks: None,
            traceparent: None,
            not_after: None,
        }
    }

    #[tokio::test]
    async fn jobs_move_with_what_is_known_of_them() -> Outcome {
        let moved = Move::prepare().await?;
        let mut options = LocalOptions::new(Prefix::default(), Arc::new(SystemClock));
        options.head_room = 0;
        let (store, _control) = local::open(&moved.scene.home.data(), options).unwrap();
        let states = [JobState::Revoked, JobState::Closed]
            .map(|state| Bytes::from(state.to_bytes().unwrap()));
        for (number, state) in (1..).zip(&states) {
            store.jobs.put(&job(number, "absent")).await.unwrap();
            let key = job_key(JobId::from_u128(number));
            store.bucket.put(&key, Position(0), state.clone(), None).await.unwrap();
        }
        store.health.close().await;
        drop(store);

        let done = moved.import().await?;
        assert_eq!((done.code, &done.json()?["jobs"]), (0, &json!(2)), "{done:?}");
        let TestBackend::Nats { url, prefix } = moved.cluster.backend() else { unreachable!() };
        let options = NatsOptions { prefix: prefix.parse().unwrap(), ..NatsOptions::new([url]) };
        let cluster = connect(options).await.unwrap();
        let found = cluster.jobs.list().await.unwrap();
        let expected = [1, 2].map(|number| job(number, "absent").to_bytes().unwrap());
        assert_eq!(found, expected);
        for (number, state) in (1..).zip(&states) {
            let entry = cluster.bucket.get(&job_key(JobId::from_u128(number))).await.unwrap();
            assert_eq!(entry.unwrap().value, state);
        }
        cluster.health.close().await;
        finish(&moved).await
    }

    #[tokio::test]
    async fn nothing_is_overwritten_and_no_directory_goes_two_ways() -> Outcome {
        let moved = Move::prepare().await?;
        let from = moved.scene.home.data();

        // Beside a node: refused, and nothing is marked.
        let node = Node::up(&moved.scene.home).await?;
        let held = moved.import().await?;
        assert_eq!(held.code, 1, "{held:?}");
        assert!(held.err.contains("in use by") && held.err.contains("stop"), "{held:?}");
        node.kill().await?;

        // The cluster has a session of the same name that is another one.
        let worker = Node::start(&moved.cluster, Start::role("gateway,worker")).await?;
        let other = Message::new("bob", "another");
        worker.client()?.chat(&other).await?;
        worker.stop().await?;
        let done = moved.import().await?;
        assert_eq!(done.code, 1, "{done:?}");
        let view = done.json()?;
        assert_eq!(view["sessions"], 2, "{view}");
        let refused = view["refused"][0]["what"].as_str().unwrap();
        assert!(refused.contains(&other.session()), "{view}");
        let worker = Node::start(&moved.cluster, Start::role("gateway,worker")).await?;
        let history = worker.client()?.history(&other.session()).await?;
        assert_eq!(history.turns.len(), 1, "as it was");
        worker.kill().await?;

        // To another cluster: refused. Taken back: it goes on here.
        let args = ["import", "--from", &from.to_string_lossy(), "--prefix", "elsewhere"];
        let mut command = moved.scene.home.command(&args);
        let TestBackend::Nats { url, .. } = moved.cluster.backend() else { unreachable!() };
        let elsewhere = command.args(["--nats", url]).output().await.unwrap();
        let talk = String::from_utf8_lossy(&elsewhere.stderr).into_owned();
        assert_eq!(elsewhere.status.code(), Some(1), "{talk}");
        assert!(talk.contains("were moved to") && talk.contains("--take-back"), "{talk}");
        let up = moved.scene.home.run(&["up", "--listen", "127.0.0.1:0"]).await?;
        assert!(up.err.contains("--take-back"), "{up:?}");
        let node = Node::start(&moved.scene.home, Start::taking_back()).await?;
        assert_eq!(node.client()?.history(&other.session()).await?.turns.len(), 1);
        node.stop().await?;
        Node::up(&moved.scene.home).await?.stop().await
    }
}
