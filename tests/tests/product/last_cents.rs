//! The end of the money: many turns at once, and too little for all of them.

use std::fs;

use clawnode_proto::{
    budget::AccountView,
    session::TurnOutcome,
    view::{EventView, HistoryView},
};
use clawnode_tests::{
    model::{Reply, Script, Step},
    process::{Client, Message, Node, ProcessError},
};
use futures_util::future::join_all;
use serde_json::json;

use super::{Outcome, scene};

/// Micro-dollars that all calls together may cost.
const MONEY: u64 = 100_000;
const TURNS: usize = 64;
/// How long each call takes, in milliseconds.
const CALL_MS: u64 = 150;
/// An account takes at most five inputs a second from a process, so the report of the last settling waits for a second
/// at most, and for the next time that the holder looks.
const REPORTED_WITHIN_MS: u64 = 1_000 + 250;
/// What the account needs for its answer, and the node for the ends of all turns that wait, on a machine with much else
/// to do. `last_cents_tests.rs` of `clawnode-budget` has no such part: its time is virtual.
const ANSWERED_WITHIN_MS: u64 = 8_000;
/// In which the last turn has to end, after the last one that was paid. More is a wait for a time limit: a call that
/// waits keeps its place for 10 s, and ends after a minute.
const ENDS_WITHIN_MS: u64 = CALL_MS + REPORTED_WITHIN_MS + ANSWERED_WITHIN_MS;
/// A token that is read costs 10 micro-dollars, one that is written 1.
const CONFIG: &str = "[agents.default]\ntools = []\nsystem = \"Be brief.\"\n\
                      [agents.default.sampling]\nmax_tokens = 400\n\
                      [prices.\"anthropic/*\"]\ninput = \"10\"\noutput = \"1\"\n\
                      [budgets.cluster]\nusd_per_month = \"0.10\"\nask_at = 100\n";

/// How a turn ended, what it cost, and when: its reply is paid, or it ends for want of money.
struct EndedTurn {
    is_paid: bool,
    cost: u64,
    at: u64,
}

async fn ended(client: &Client, session: &str) -> Result<EndedTurn, ProcessError> {
    let history: HistoryView = client.finished(session, 1).await?;
    let is_paid = match &history.turns[0].outcome {
        Some(TurnOutcome::Completed { .. }) => true,
        Some(TurnOutcome::Bankrupt { account, limit: MONEY, .. }) if account == "cluster" => false,
        other => unreachable!("{session}: {other:?}"),
    };
    let events: Vec<EventView> = client.journal(session).await?;
    let of_kind = |kind: &str| events.iter().find(|event| event.kind == kind).unwrap();
    let cost = of_kind("settled").body["cost"].as_u64().unwrap_or_default();
    let at = of_kind("turn_done").ts.0;
    let usage = history.turns[0].usage;
    assert_eq!(cost, 10 * usage.input_tokens + usage.output_tokens, "{session}: PRICE-1");
    assert_eq!(is_paid, cost > 0, "{session}");
    Ok(EndedTurn { is_paid, cost, at })
}

#[tokio::test]
async fn i6_the_last_ten_cents_end_64_turns_and_are_not_passed() -> Outcome {
    let text = "word ".repeat(200);
    let says = Step::Text { text: "done.".to_owned() };
    let reply = Reply::steps([Step::Delay { ms: CALL_MS }, says]);
    let (server, home) = scene(Script::default().turn(&text, [reply.into()])).await;
    let file = home.path().join(".config/clawnode/config.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, CONFIG).unwrap();
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let message = |number: usize| {
        let key = format!("k{number}");
        Message { key, ..Message::new(&format!("peer{number}"), &text) }
    };
    let messages: Vec<Message> = (0..TURNS).map(message).collect();
    let heard = join_all(messages.iter().map(|message| client.chat(message))).await;

    let mut all = Vec::new();
    for message in &messages {
        all.push(ended(&client, &message.session()).await?);
    }
    for (turn, heard) in all.iter().zip(&heard) {
        match heard {
            Ok(reply) => assert!(turn.is_paid && reply == "done.", "{reply}"),
            Err(error) => assert!(!turn.is_paid, "{error}"),
        }
    }
    let (paid, bankrupt): (Vec<&EndedTurn>, Vec<&EndedTurn>) =
        all.iter().partition(|turn| turn.is_paid);
    // Each request that the provider got is a turn that was paid.
    assert_eq!(server.count(), u64::try_from(paid.len()).unwrap());
    let billed: u64 = paid.iter().map(|turn| turn.cost).sum();
    assert!(billed <= MONEY, "I6: {billed}");
    assert!(billed > MONEY / 2, "most of it was of use: {billed}");
    assert!(!bankrupt.is_empty(), "{billed} for {} turns", paid.len());
    let last = |turns: &[&EndedTurn]| turns.iter().map(|turn| turn.at).max().unwrap_or_default();
    let waited = last(&bankrupt).saturating_sub(last(&paid));
    assert!(waited < ENDS_WITHIN_MS, "the last one waited {waited} ms for nothing");

    // The account knows it to the micro-dollar.
    let settled = |view: &AccountView| view.limits[0].spent == billed;
    let _view: AccountView =
        client.call_when("budget.show", json!({ "account": "cluster" }), settled).await?;
    node.stop().await?;
    server.stop().await.unwrap();
    Ok(())
}
