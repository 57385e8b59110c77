//! One cap over several workers, while they and their bus are killed (I6, S-30): what the provider bills never passes it.

mod nats {
    use clawnode_proto::{
        ProcessId,
        budget::{AccountKey, AccountView, ReconcileView},
        session::TurnOutcome,
        usage::UsageView,
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

    /// What turns have come to that the cluster's limit could not pay all of.
    #[derive(Default)]
    struct Ends<'a> {
        /// Tokens of all of them.
        used: u64,
        /// The most that one of them used. Each makes one call, and all ask the same.
        most: u64,
        paid: usize,
        bankrupt: Vec<&'a Message>,
        /// What the last of those would have needed, in micro-dollars.
        needed: u64,
    }

    /// Waits until all turns have ended. Calls wait for what others have reserved: as long as the provider is asked for
    /// more, one that waits is not stuck.
    async fn ends<'a>(
        scene: &Scene,
        client: &Client,
        messages: &'a [Message],
    ) -> Result<Ends<'a>, ProcessError> {
        let mut ends = Ends::default();
        for message in messages {
            let history = loop {
                let asked = scene.server.count();
                match client.finished(&message.session(), 1).await {
                    Err(ProcessError::Late(_)) if scene.server.count() > asked => {}
                    history => break history?,
                }
            };
            let used = tokens(&history);
            (ends.used, ends.most) = (ends.used + used, ends.most.max(used));
            match &history.turns[0].outcome {
                Some(TurnOutcome::Completed { .. }) => ends.paid += 1,
                Some(TurnOutcome::Bankrupt { account, used, limit, needed, .. }) => {
                    assert_eq!(account, "cluster", "{}", message.session());
                    assert!(
                        used + needed > *limit,
                        "{used} are spent, and {needed} of {limit} fit"
                    );
                    ends.bankrupt.push(message);
                    ends.needed = *needed;
                }
                other => {
                    let said = format!("{}: {other:?}", message.session());
                    return Err(ProcessError::Protocol(said));
                }
            }
        }
        Ok(ends)
    }

    /// Only *spent* money has ended turns, and nothing is spent that no call had. A call whose process died counts
    /// whole, which may be many times what its provider billed: so how much was of use depends on when that was. Then
    /// the day is recomputed from journals.
    async fn agrees(
        (scene, client): (&Scene, &Client),
        ends: &Ends<'_>,
        (cap, token): (u64, u64),
    ) -> Outcome {
        let shown = json!({ "account": "cluster" });
        let is_out = |view: &AccountView| {
            let limit = &view.limits[0];
            let is_whole = limit.stranded == 0 && limit.spent >= ends.used * token;
            is_whole && limit.spent + ends.needed > cap
        };
        let view: AccountView = client.call_when("budget.show", shown, is_out).await?;
        let spent = view.limits[0].spent;
        assert!(spent <= cap, "I6: {view:?}");
        let by_day = json!({ "by": "day" });
        let counted = |view: &UsageView| view.behind_ms == 0;
        let usage: UsageView = client.call_when("usage.show", by_day, counted).await?;
        // A call may have ended and been reported, and its end not been recorded: then journals count it whole.
        let cost = usage.rows[0].calls.cost.0;
        assert!(spent <= cost, "{spent} are spent, and by journals all calls cost {cost}");
        cli(scene, &["usage", "audit", &usage.rows[0].name], 0).await.map(drop)
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

        let ends = ends(&scene, &fleet.client, &messages).await?;
        let billed = scene.server.count() * ends.most;
        assert!(billed <= CAP, "I6: {billed} for {} turns", ends.paid);
        assert!(!ends.bankrupt.is_empty(), "{} turns were paid", ends.paid);
        agrees((&scene, &fleet.client), &ends, (CAP, 1)).await?;

        // A person raises it, and a session that was bankrupt goes on.
        cli(&scene, &["budget", "set", "cluster", "--usd-per-month", "1.00"], 0).await?;
        let again = Message { key: "again".to_owned(), ..ends.bankrupt[0].clone() };
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

        scene.server.asked(24).await;
        let nats = scene.nats.as_mut().unwrap();
        nats.kill().unwrap();
        nats.restart().await.unwrap();

        scene.server.asked(40).await;
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
        let holder_in = |view: &AccountView| {
            view.limits[0].holders.iter().find(|holder| holder.process == process).cloned()
        };
        // It may have died when it had nothing.
        let is_dead = |view: &AccountView| holder_in(view).is_none_or(|holder| holder.dead);
        let view: AccountView = client.call_when("budget.show", shown, is_dead).await?;
        if let Some(holder) = holder_in(&view) {
            let events: Vec<EventView> =
                client.journal(&AccountKey::Cluster.entity().to_string()).await?;
            let its = |event: &&EventView| {
                event.kind == "budget_granted" && event.body["process"] == process.to_string()
            };
            let slices =
                events.iter().filter(its).filter_map(|event| event.body["amount"].as_u64());
            let largest = slices.max().unwrap();
            let beyond = holder.held.saturating_sub(holder.running);
            assert!(beyond <= largest, "C20: {holder:?}, and its largest slice was {largest}");
        }
        // Refused until membership holds it dead.
        let gone = json!({ "account": "cluster", "node": process.to_string(), "gone": true });
        let done: ReconcileView = client.call_when("budget.reconcile", gone, |_| true).await?;
        assert_eq!(done.unread, 0, "{done:?}");
        assert!(done.closed.iter().all(|slice| slice.spent <= slice.counted), "{done:?}");
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
        // Short words: a call reserves a token for each byte, and is billed one for each word. The more it reserves of
        // which it uses little, the fewer calls go at a time.
        let text = "a ".repeat(450);
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

        let ends = ends(&scene, &client, &messages).await?;
        // Every request that the provider got, also those whose process died.
        let billed = scene.server.count() * ends.most * TOKEN;
        assert!(billed <= DOLLAR, "I6: {billed} for {} turns", ends.paid);
        assert!(ends.paid < STORM, "it was not enough for all");
        agrees((&scene, &client), &ends, (DOLLAR, TOKEN)).await?;
        fleet.stop().await
    }
}
