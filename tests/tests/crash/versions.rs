//! Nodes of two versions side by side. The older one is the same build, made to know less.

mod nats {
    use clawnode_budget::Budget;
    use clawnode_nats::{NatsOptions, connect};
    use clawnode_proto::{
        Timestamp,
        budget::{
            AccountKey, AccountView, BudgetInput, BudgetLimit, BudgetUnit, LimitSource,
            WindowLength,
        },
        view::{EventView, StatusView},
    };
    use clawnode_tests::{
        model::{Act, Script},
        process::{Message, Node, ProcessError, Start, TestBackend, sound},
    };
    use serde_json::{Value, json};

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
        lacks(status, "model_failed")
    }

    /// Whether the status says that no node can read this kind of events.
    fn lacks(status: &StatusView, kind: &str) -> bool {
        let lacking = |warning: &clawnode_proto::view::WarningView| {
            warning.name == "nodes.too_old" && warning.message.contains(kind)
        };
        status.warnings.iter().any(lacking)
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

    /// A limit in money, which each call reserves from.
    const LIMITED: &str = "[prices.\"anthropic/*\"]\ninput = \"1\"\noutput = \"1\"\n\
                           [budgets.cluster]\nusd_per_month = \"1.00\"\n";

    /// Sessions that begin at most, until one of them is on the older worker.
    const FRESH_MOST: usize = 400;

    /// An input for the account that only readers of the newest version may take: it sets another limit.
    async fn newer_input_for_the_account(scene: &Scene, usd: u64) {
        let TestBackend::Nats { url, prefix } = &scene.backend else {
            unreachable!("on NATS only")
        };
        let prefix = prefix.parse().unwrap();
        let storage = connect(NatsOptions { prefix, ..NatsOptions::new([url]) }).await.unwrap();
        let limit = BudgetLimit::new(BudgetUnit::Usd, WindowLength::Month, usd);
        let source = LimitSource::Person { name: "ada".to_owned() };
        let body = BudgetInput::Set { source, limits: Some(vec![limit]) };
        let name = "newer".parse().unwrap();
        let mut input = Budget::input(&AccountKey::Cluster, name, Timestamp(1), &body).unwrap();
        (input.v, input.v_min) = (4, 4);
        storage.inbox.put(&input).await.unwrap();
        storage.health.close().await;
    }

    #[tokio::test]
    async fn budgets_that_an_older_worker_cannot_read_are_left_to_a_newer_one() -> Outcome {
        let scene = Scene::on(Under::Nats, Script::default()).await;
        // The second process is first for some of so many; of 8, for none in one run of 256.
        let scene = scene.with_var("CLAWNODE_CLUSTER__PARTITIONS", "32");
        scene.configure(LIMITED);
        let mut fleet = Fleet::new(&scene).await?;
        fleet.add(&scene, "new").await?;
        let newer = fleet.workers["new"].process().unwrap();
        for n in 0..NEWER {
            fleet.client.chat(&to(n, &format!("before {n}"))).await?;
        }
        // It knows reservations of another form, no grants of accounts, and no inputs of the newest version.
        let vars = [older("budget_held/body,budget_granted"), speaks("1-3")].concat();
        fleet.add_with(&scene, "old", vars).await?;
        newer_input_for_the_account(&scene, 2_000_000).await;
        let is_set = |view: &AccountView| view.limits[0].limit == 2_000_000;
        let shown = json!({ "account": "cluster" });
        let view: AccountView = fleet.client.call_when("budget.show", shown, is_set).await?;
        assert_eq!(view.set_by.as_deref(), Some("ada"));
        let fresh = |n: usize| Message::new(&format!("fresh{n}"), &format!("fresh {n}"));
        for n in 0..2 * NEWER {
            fleet.client.chat(&to(n % NEWER, &format!("both {n}"))).await?;
        }
        for n in 0..NEWER {
            let claims = fleet.claims(&to(n, "")).await?;
            assert!(claims.iter().all(|one| *one == newer), "{claims:?}");
        }
        // It may take some turns until it has partitions of its own.
        let (mut is_served, mut begun) = (false, 0);
        for n in 0..FRESH_MOST {
            begun += 1;
            fleet.client.chat(&fresh(n)).await?;
            is_served = fleet.owner(&fresh(n)).await? == "old";
            if is_served {
                break;
            }
        }
        assert!(is_served, "the older worker makes calls under the limit too");
        let account: Vec<EventView> =
            fleet.client.journal(&AccountKey::Cluster.entity().to_string()).await?;
        let mut claims = account.iter().filter(|event| event.kind == "claim");
        assert!(claims.all(|event| event.incarnation.process == newer), "{account:?}");

        // Alone, the older one leaves them in the inbox, until a newer one comes back.
        fleet.take("new").stop().await?;
        let mut turn = fleet.client.send(&to(0, "later")).await?;
        fleet.status_when(|status| lacks(status, "budget_held")).await?;
        fleet.add(&scene, "new").await?;
        assert!(turn.completed().await?.ends_with("later"));

        for (method, field) in [("quarantine.list", "sessions"), ("parked.list", "parked")] {
            let list: Value = fleet.client.call(method, json!({})).await?;
            assert_eq!(list[field].as_array().map(Vec::len), Some(0), "{method}: {list}");
        }
        assert!(sound(&scene.home).await? > NEWER + begun);
        fleet.stop().await
    }
}
