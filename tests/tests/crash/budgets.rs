//! One cap over several workers, while one of them is killed (I6): what the provider bills never passes it.

mod nats {
    use std::fs;

    use clawnode_proto::{session::TurnOutcome, view::HistoryView};
    use clawnode_tests::{
        model::{DefaultReply, Script},
        process::Message,
    };
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
        let file = scene.home.path().join(".config/clawnode/config.toml");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, CONFIG).unwrap();
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
}
