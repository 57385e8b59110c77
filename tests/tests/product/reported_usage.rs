//! Providers whose reports of tokens are absent, cannot be true, or are more than a call had reserved (C22), on
//! each wire, under a limit in money.

use std::{fmt::Write as _, fs};

use clawnode_proto::{
    budget::{AccountView, BudgetHeld, LimitState},
    feed::EventBody,
    frame::Notice,
    llm::Usage,
    overview::FeedView,
    usage::UsageView,
    view::{EventView, StatusView},
};
use clawnode_tests::{
    model::{ModelServer, Reply, Script},
    process::{Client, Home, Message, Node, ProcessError, TestBackend},
};
use serde::Deserialize as _;
use serde_json::json;

use super::Outcome;

/// Each has an agent and a provider of its name, and the path of its address.
const WIRES: [(&str, &str); 6] = [
    ("anthropic", ""),
    ("openai", "/v1"),
    ("openai_responses", "/v1"),
    ("gemini", "/v1beta"),
    ("ollama", ""),
    ("bedrock", ""),
];
/// The cap on output of each call.
const CAP: u64 = 400;
/// More than a call of this cap reserves, and not so much that it cannot be true.
const MORE: u64 = 90_000;
/// What is sent, in this order.
const TEXTS: [&str; 5] = ["negative", "absent", "no number", "huge", "more"];

fn script() -> Script {
    let silent = Reply { usage: false, ..Reply::text(["silent."]) };
    Script::default()
        .turn("negative", [Reply::reporting("below zero.", -5, -7).into()])
        .turn("absent", [silent.into()])
        .turn("no number", [Reply::reporting("words.", "many", json!([1])).into()])
        .turn("huge", [Reply::reporting("a lot.", u64::MAX, 1e30).into()])
        .turn("more", [Reply::reporting("more.", 40, MORE).into()])
}

/// By these prices each token costs a micro-dollar, so that amounts of money are numbers of tokens.
fn config(server: &ModelServer) -> String {
    let mut text = "[prices.\"*/*\"]\ninput = \"1\"\noutput = \"1\"\n".to_owned();
    for (wire, path) in WIRES {
        let url = server.url() + path;
        write!(
            text,
            "[providers.{wire}]\nwire = \"{wire}\"\nbase_url = \"{url}\"\n\
             api_key_env = \"ANTHROPIC_API_KEY\"\n\
             [agents.{wire}]\nmodel = \"{wire}/scripted\"\ntools = []\n\
             [agents.{wire}.sampling]\nmax_tokens = {CAP}\n\
             [budgets.agents.{wire}]\nusd_per_month = \"5.00\"\n"
        )
        .unwrap();
    }
    text
}

fn message(wire: &str, text: &str) -> Message {
    let key = format!("{wire} {text}");
    Message { key, ..Message::new("ada", text) }.to_agent(wire)
}

/// What the calls of a session have reserved, in order.
async fn held(client: &Client, session: &str) -> Result<Vec<BudgetHeld>, ProcessError> {
    let events: Vec<EventView> = client.journal(session).await?;
    let held = events.iter().filter(|event| event.kind == "budget_held");
    Ok(held.map(|event| BudgetHeld::deserialize(&event.body).unwrap()).collect())
}

async fn shown(
    client: &Client,
    wire: &str,
    is_so: impl Fn(&AccountView) -> bool,
) -> Result<AccountView, ProcessError> {
    client.call_when("budget.show", json!({ "account": format!("agent:{wire}") }), is_so).await
}

/// All reports of one wire: what counts instead of those that cannot be true, and what is over.
async fn counts(client: &Client, wire: &str) -> Result<u64, ProcessError> {
    for text in TEXTS {
        client.chat(&message(wire, text)).await?;
    }
    let session = message(wire, "").session();
    let held = held(client, &session).await?;
    let turns = client.history(&session).await?.turns;
    let used: Vec<Usage> = turns.iter().map(|turn| turn.usage).collect();
    assert_eq!((held.len(), used.len()), (TEXTS.len(), TEXTS.len()), "{wire}: {used:?}");
    for (at, text) in TEXTS.iter().enumerate() {
        let (asked, used) = (&held[at], used[at]);
        assert_eq!(asked.max_output, CAP, "{wire}: the cap is always sent");
        let counted = (used.input_tokens, used.output_tokens, used.estimated);
        let expected = match *text {
            // By the bytes that came.
            "absent" => (asked.input, 3, true),
            "more" => (40, MORE, false),
            _ => (asked.input, CAP, true),
        };
        assert_eq!(counted, expected, "{wire}: {text}");
    }
    let excess = 40 + MORE - held[4].most().0;
    let view = shown(client, wire, |account| account.limits[0].excess > 0).await?;
    let limit = &view.limits[0];
    assert_eq!((limit.state, limit.excess), (LimitState::Over, excess), "{wire}: C22");
    let tokens = |used: &Usage| used.input_tokens + used.output_tokens;
    assert_eq!(limit.spent, used.iter().map(tokens).sum::<u64>(), "{wire}: to the micro-dollar");
    Ok(excess)
}

/// Nothing more is granted of a limit, although little of it is spent, until a person allows it.
async fn waits_until_allowed(home: &Home, client: &Client, wire: &str) -> Outcome {
    let waiting = message(wire, "again");
    let mut turn = client.send(&waiting).await?;
    let waits = |account: &AccountView| account.limits[0].waiting == 1;
    let view = shown(client, wire, waits).await?;
    assert_eq!(view.limits[0].state, LimitState::Over, "{wire}");
    // Those who follow the turn read why it waits, and what to do.
    let notice = loop {
        let frame = turn.next().await?;
        assert!(!["done", "error"].contains(&frame.event.as_str()), "{wire}: {frame:?}");
        if frame.event == "notice" {
            break frame.data;
        }
    };
    assert_eq!(notice["name"], Notice::BUDGET_ASKS, "{wire}: {notice}");
    let said = notice["message"].as_str().unwrap();
    assert!(said.contains(&format!("clawnode budget allow agent:{wire}")), "{wire}: {said}");
    let history = client.history(&waiting.session()).await?;
    assert!(history.turns.last().unwrap().outcome.is_none(), "{wire}: it waits");
    let allow = format!("clawnode budget allow agent:{wire} --usd-per-month");
    let warned = |status: &StatusView| {
        let said = |warning: &clawnode_proto::view::WarningView| {
            warning.name == "budgets.asks" && warning.hint.contains(&allow)
        };
        status.warnings.iter().any(said)
    };
    client.call_when("status", json!({}), warned).await?;
    let words: Vec<&str> = allow.split(' ').skip(1).collect();
    let ended = home.run(&words).await?;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(turn.completed().await?, "reply to: again", "{wire}");
    let view = shown(client, wire, |account| account.limits[0].waiting == 0).await?;
    assert_eq!((view.limits[0].excess, view.limits[0].allowed), (0, true), "{wire}");
    Ok(())
}

#[tokio::test]
async fn c22_what_providers_report_is_believed_estimated_or_over_on_each_wire() -> Outcome {
    let server = ModelServer::start(script()).await.unwrap();
    let home = Home::new(TestBackend::Local)?.anthropic(&server);
    let file = home.path().join(".config/clawnode/config.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, config(&server)).unwrap();
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let mut over = Vec::new();
    for (wire, _) in WIRES {
        let excess = counts(&client, wire).await?;
        over.push((format!("agent:{wire}"), excess));
        waits_until_allowed(&home, &client, wire).await?;
    }
    over.sort();
    // Operators have heard of each.
    let heard = |feed: &FeedView| {
        let over = feed.events.iter().filter_map(|row| match &row.event.what {
            EventBody::BudgetOver { account, excess, .. } => Some((account.to_string(), *excess)),
            _ => None,
        });
        let mut over: Vec<(String, u64)> = over.collect();
        over.sort();
        over.dedup();
        over
    };
    let feed: FeedView = client
        .call_when("events.list", json!({ "limit": 1_000 }), |feed: &FeedView| {
            heard(feed).len() == over.len()
        })
        .await?;
    assert_eq!(heard(&feed), over);

    let counted = |view: &UsageView| view.behind_ms == 0;
    let view: UsageView = client.call_when("usage.show", json!({ "by": "day" }), counted).await?;
    let ended = home.run(&["usage", "audit", &view.rows[0].name]).await?;
    assert_eq!(ended.code, 0, "what is counted is what journals say: {ended:?}");
    node.stop().await?;
    server.stop().await.unwrap();
    Ok(())
}
