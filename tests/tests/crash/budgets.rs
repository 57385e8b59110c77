//! One cap over several workers, while they and their bus are killed (I6, S-30): what the provider bills never passes it.

mod nats {
    use clawnode_proto::{
        ProcessId,
        budget::{AccountKey, AccountView, ReconcileView},
        session::TurnOutcome,
        view::{EventView, HistoryView},
    };
    use clawnode_tests::{
        model::{DefaultReply, Script},
        process::{Client, Message, ProcessError},
        wait::until,
    };
    use futures_util::future::join_all;
    use serde_json::json;

    use crate::{
        fleet::{Fleet, cli},
        support::{Outcome, Scene, Under},
    };

    /// Micro-dollars that all calls together may cost. By the prices below each token costs one.
    const CAP: u64 = 20_000;
    /// More turns than the cap pays for.
    const TURNS: usize = 70;
    const CONFIG: &str = "[agents.default.sampling]\nmax_tokens = 400\n\
                          [prices.\"anthropic/*\"]\ninput = \"1\"\noutput = \"1\"\n\
                          [budgets.cluster]\nusd_per_month = \"0.02\"\nask_at = 100\n";

    fn tokens(history: &HistoryView) -> u64 {
        history.turns.iter().map(|turn| turn.usage.input_tokens + turn.usage.output_tokens).sum()
    }

    #[tokio::test]
    async fn i6_three_workers_hold_one_cap_while_one_is_killed() -> Outcome {
        let default = DefaultReply { delay_ms: 2, ..DefaultReply::default() };
        let scene = Scene::on(Under::Nats, Script { default, ..Script::default() }).await;
        scene.configure(CONFIG);
        let mut fleet = Fleet::new(&scene).await?;
        for name in ["a", "b", "c"] {
            fleet.add(&scene, name).await?;
        }
        // Each session asks the same, so each call costs the same.
        let text = "word ".repeat(200);
        let message = |number: usize| {
            let key = format!("k{number}");
            Message { key, ..Message::new(&format!("peer{number}"), &text) }
        };
        let messages: Vec<Message> = (0..TURNS).map(message).collect();
        for message in &messages {
            fleet.client.send(message).await?;
        }
        scene.server.asked(10).await;
        fleet.take("b").kill().await?;
        // What the dead worker had is out until its window ends, or until an operator says that it is gone.
        let stranded = |view: &serde_json::Value| {
            view["limits"][0]["stranded"].as_u64().is_some_and(|stranded| stranded > 0)
        };
        let _named: serde_json::Value = fleet
            .client
            .call_when("budget.show", json!({ "account": "cluster" }), stranded)
            .await?;
        cli(&scene, &["budget", "reconcile", "cluster", "--node", "b", "--gone"], 0).await?;

        let (mut paid, mut bankrupt, mut cost) = (0, Vec::new(), 0);
        for message in &messages {
            let history = fleet.client.finished(&message.session(), 1).await?;
            match &history.turns[0].outcome {
                Some(TurnOutcome::Completed { .. }) => {
                    paid += 1;
                    cost = cost.max(tokens(&history));
                }
                Some(TurnOutcome::Bankrupt { account, .. }) if account == "cluster" => {
                    bankrupt.push(message);
                }
                other => panic!("{}: {other:?}", message.session()),
            }
        }
        let billed = u64::try_from(scene.asked().len()).unwrap() * cost;
        assert!(billed <= CAP, "I6: {billed} for {paid} turns");
        assert!(billed > CAP / 2, "most of it was of use: {billed} for {paid} turns");
        assert!(!bankrupt.is_empty(), "{paid} turns were paid");

        // What was counted is what journals say, to the micro-dollar.
        let usage = cli(&scene, &["usage", "--by", "day"], 0).await?;
        let day = usage["rows"][0]["name"].as_str().unwrap().to_owned();
        cli(&scene, &["usage", "audit", &day], 0).await?;

        // A person raises it, and a session that was bankrupt goes on.
        cli(&scene, &["budget", "set", "cluster", "--usd-per-month", "1.00"], 0).await?;
        let again = Message { key: "again".to_owned(), ..bankrupt[0].clone() };
        fleet.client.chat(&again).await?;
        fleet.stop().await
    }

    /// The dollar of the storm, in micro-dollars.
    const DOLLAR: u64 = 1_000_000;
    /// Turns of the storm: more than it pays for.
    const STORM: usize = 200;
    /// Micro-dollars of a token.
    const TOKEN: u64 = 20;
    const STORM_CONFIG: &str = "[agents.default]\ntools = []\nsystem = \"Be brief.\"\n\
                                [agents.default.sampling]\nmax_tokens = 400\n\
                                [prices.\"anthropic/*\"]\ninput = \"20\"\noutput = \"20\"\n\
                                [budgets.cluster]\nusd_per_month = \"1.00\"\nask_at = 100\n";

    /// Sends a message until it is accepted, whatever dies meanwhile.
    async fn accepted(client: &Client, message: &Message) -> Result<(), ProcessError> {
        until("a message is accepted", async || match client.send(message).await {
            Ok(_) => Ok(Some(())),
            Err(error) if error.is_lost() || error.refusal().is_some() => Ok(None),
            Err(error) => Err(error),
        })
        .await
    }

    /// The account's owner, another worker and the bus are killed with calls under way. Returns the processes that
    /// are gone.
    async fn harm(scene: &mut Scene, fleet: &mut Fleet) -> Result<Vec<ProcessId>, ProcessError> {
        scene.server.asked(10).await;
        let account = AccountKey::Cluster.entity().to_string();
        let events: Vec<EventView> = fleet.client.journal(&account).await?;
        let claim = events.iter().rev().find(|event| event.kind == "claim").unwrap();
        let owner = fleet.name_of(claim.incarnation.process).unwrap();
        let mut gone = vec![claim.incarnation.process];
        fleet.take(owner).kill().await?;
        fleet.add(scene, "d").await?;

        scene.server.asked(30).await;
        let nats = scene.nats.as_mut().unwrap();
        nats.kill().unwrap();
        nats.restart().await.unwrap();

        scene.server.asked(50).await;
        let worker = fleet.take(fleet.other("d"));
        gone.push(worker.process().unwrap());
        worker.kill().await?;
        fleet.add(scene, "e").await?;
        Ok(gone)
    }

    /// C20: what a dead process had is named: at most one slice beyond what its calls have reserved. It comes back
    /// once an operator says that the process is gone.
    async fn gives_back(client: &Client, process: ProcessId) -> Result<(), ProcessError> {
        let shown = json!({ "account": "cluster" });
        let of = |view: &AccountView| {
            view.limits[0].holders.iter().find(|it| it.process == process && it.dead).cloned()
        };
        let view: AccountView =
            client.call_when("budget.show", shown, |view| of(view).is_some()).await?;
        let holder = of(&view).unwrap();
        let events: Vec<EventView> =
            client.journal(&AccountKey::Cluster.entity().to_string()).await?;
        let its = |event: &&EventView| {
            event.kind == "budget_granted" && event.body["process"] == process.to_string()
        };
        let slices = events.iter().filter(its).filter_map(|event| event.body["amount"].as_u64());
        let largest = slices.max().unwrap();
        let beyond = holder.held.saturating_sub(holder.running);
        assert!(beyond <= largest, "C20: {holder:?}, and its largest slice was {largest}");
        let gone = json!({ "account": "cluster", "node": process.to_string(), "gone": true });
        let done: ReconcileView = client.call("budget.reconcile", gone).await?;
        assert_eq!(done.unread, 0, "{done:?}");
        assert!(done.closed.iter().all(|it| it.spent <= it.counted), "{done:?}");
        Ok(())
    }

    /// S-30: 200 turns at once, three workers, one dollar.
    #[tokio::test]
    async fn i6_a_dollar_is_held_while_its_owner_workers_and_the_bus_are_killed() -> Outcome {
        let default = DefaultReply { tokens: 20, delay_ms: 30, flush: false };
        let mut scene = Scene::on(Under::Nats, Script { default, ..Script::default() }).await;
        scene.configure(STORM_CONFIG);
        let mut fleet = Fleet::new(&scene).await?;
        for name in ["a", "b", "c"] {
            fleet.add(&scene, name).await?;
        }
        let client = fleet.client.clone();
        let text = "word ".repeat(300);
        let message = |number: usize| {
            let key = format!("k{number}");
            Message { key, ..Message::new(&format!("peer{number}"), &text) }
        };
        let messages: Vec<Message> = (0..STORM).map(message).collect();
        let sent = join_all(messages.iter().map(|message| accepted(&client, message)));
        let (sent, gone) = tokio::join!(sent, harm(&mut scene, &mut fleet));
        sent.into_iter().collect::<Result<Vec<()>, ProcessError>>()?;
        for process in gone? {
            gives_back(&client, process).await?;
        }

        let (mut used, mut most, mut paid) = (0, 0, 0);
        for message in &messages {
            let history = client.finished(&message.session(), 1).await?;
            let tokens = tokens(&history);
            (used, most) = (used + tokens, most.max(tokens));
            match &history.turns[0].outcome {
                Some(TurnOutcome::Completed { .. }) => paid += 1,
                Some(TurnOutcome::Bankrupt { account, .. }) if account == "cluster" => {}
                other => panic!("{}: {other:?}", message.session()),
            }
        }
        // Every request that the provider got, also those whose process died.
        let billed = u64::try_from(scene.asked().len()).unwrap() * most * TOKEN;
        assert!(billed <= DOLLAR, "I6: {billed} for {paid} turns");
        assert!(billed > DOLLAR / 2, "most of it was of use: {billed} for {paid} turns");
        assert!(paid < STORM, "it was not enough for all");
        let knows = |view: &AccountView| {
            let limit = &view.limits[0];
            limit.stranded == 0 && limit.spent >= used * TOKEN
        };
        let shown = json!({ "account": "cluster" });
        let view: AccountView = client.call_when("budget.show", shown, knows).await?;
        assert!(view.limits[0].spent <= DOLLAR, "I6: {view:?}");

        let usage = cli(&scene, &["usage", "--by", "day"], 0).await?;
        let day = usage["rows"][0]["name"].as_str().unwrap().to_owned();
        cli(&scene, &["usage", "audit", &day], 0).await?;
        fleet.stop().await
    }
}
