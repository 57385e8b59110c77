//! Work that can wait, beside people who do not: all of it ends, and people come first.

use std::fs;

use clawnode_proto::{
    budget::BudgetExplainView, frame::Notice, session::TurnOutcome, view::EventView,
};
use clawnode_tests::{
    model::{Reply, Script, Step},
    process::{Client, Home, Message, Node, ProcessError, Turn},
};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{Outcome, scene};

const BACKGROUND: usize = 40;
const INTERACTIVE: usize = 10;
/// Few calls at a time, so that turns of both lanes wait.
const CONFIG: &str = "[providers.anthropic]\nmax_calls = 3\n";

/// A home with this configuration.
fn configure(home: &Home, text: &str) {
    let file = home.path().join(".config/clawnode/config.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

/// Waits until people who follow the turn read why it waits.
async fn hears(turn: &mut Turn, name: &str) -> Outcome {
    loop {
        let frame = turn.next().await?;
        assert!(!["done", "error"].contains(&frame.event.as_str()), "no `{name}`: {frame:?}");
        if frame.event == "notice" && frame.data["name"] == name {
            return Ok(());
        }
    }
}

/// How often the call of a turn that ended with its reply was ended for a more urgent one.
async fn gave_way(client: &Client, message: &Message) -> Result<usize, ProcessError> {
    let session = message.session();
    let history = client.finished(&session, 1).await?;
    let outcome = history.turns[0].outcome.as_ref();
    assert!(matches!(outcome, Some(TurnOutcome::Completed { .. })), "{session}: {outcome:?}");
    let events: Vec<EventView> = client.journal(&session).await?;
    Ok(events.iter().filter(|event| event.kind == "model_gave_way").count())
}

#[tokio::test]
async fn lane_1_people_come_first_and_every_background_turn_ends() -> Outcome {
    let says = |text: &str| Step::Text { text: text.to_owned() };
    let waits = Step::Gate { name: "go".to_owned() };
    let work = Reply::steps([waits, says("worked.")]);
    let ask = Reply::steps([says("answered.")]);
    let script = Script::default().turn("work", [work.into()]).turn("ask", [ask.into()]);
    let (server, home) = scene(script).await;
    configure(&home, CONFIG);
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let message = |text: &str, number: usize| {
        let peer = format!("{text}{number}");
        Message { key: peer.clone(), ..Message::new(&peer, text) }
    };
    let work: Vec<Message> =
        (0..BACKGROUND).map(|number| message("work", number).in_background()).collect();
    let asks: Vec<Message> = (0..INTERACTIVE).map(|number| message("ask", number)).collect();
    for message in &work {
        client.send(message).await?;
    }
    server.asked(3).await;
    // None of the calls that run would end by itself.
    for reply in join_all(asks.iter().map(|message| client.chat(message))).await {
        assert_eq!(reply?, "answered.");
    }
    server.open("go");
    let mut again = 0;
    for message in &work {
        again += gave_way(&client, message).await?;
    }
    for message in &asks {
        assert_eq!(gave_way(&client, message).await?, 0, "a person's call gives way to none");
    }
    assert!(again > 0, "LANE-1: people had to come first");
    // What gave way was made again, and nothing else was.
    let (calls, turns) = (usize::try_from(server.count()).unwrap(), BACKGROUND + INTERACTIVE);
    assert!(
        (turns..=turns + again).contains(&calls),
        "{calls} calls of {turns} turns, {again} again"
    );
    node.stop().await?;
    server.stop().await.unwrap();
    Ok(())
}

/// A call of the background that waits for money has its agent's place only as long as no person's call needs it.
#[tokio::test]
async fn lane_1_work_that_waits_for_money_holds_no_person_up() -> Outcome {
    let (server, home) = scene(Script::default()).await;
    configure(&home, "[agents.default]\nmax_turns = 1\ntools = []\n");
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let work = |key: &str| Message { key: key.to_owned(), ..Message::new("work", key) };
    client.chat(&work("first")).await?;

    // Of this user, nothing more goes before a person allows it.
    let account = "user:test:a:work";
    let limit =
        json!({ "unit": "tokens", "window": "day", "amount": "100000", "warn_at": 1, "ask_at": 1 });
    let limits = json!({ "account": account, "limits": [limit] });
    client.call::<Value>("budget.set", limits).await?;
    let session = json!({ "session": work("").session() });
    let is_limited = |view: &BudgetExplainView| !view.limits.is_empty();
    client.call_when("budget.explain", session, is_limited).await?;
    let mut waiting = client.send(&work("later").in_background()).await?;
    hears(&mut waiting, Notice::BUDGET_ASKS).await?;

    // It has the only place.
    for number in 0..2 {
        let peer = format!("ada{number}");
        assert_eq!(client.chat(&Message::new(&peer, "now")).await?, "reply to: now");
    }
    assert_eq!(server.count(), 3, "the first one, and those of people");
    client.call::<Value>("budget.allow", json!({ "account": account })).await?;
    assert_eq!(waiting.completed().await?, "reply to: later");
    assert_eq!(server.count(), 4, "it was made once");
    node.stop().await?;
    server.stop().await.unwrap();
    Ok(())
}

/// People read that a call waits because others have reserved what is left, and it goes on as soon as those end.
#[tokio::test]
async fn a_call_that_waits_for_what_others_have_reserved_says_so() -> Outcome {
    let slow = Reply::steps([
        Step::Gate { name: "go".to_owned() },
        Step::Text { text: "slow.".to_owned() },
    ]);
    let (server, home) = scene(Script::default().turn("slow", [slow.into()])).await;
    // Enough for one call at its most, and for both at what they use.
    configure(
        &home,
        "[agents.default]\ntools = []\nsystem = \"Be brief.\"\n\
         [agents.default.sampling]\nmax_tokens = 400\n\
         [budgets.cluster]\ntokens_per_month = 2500\nask_at = 100\n",
    );
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let mut slow = client.send(&Message::new("ada", "slow")).await?;
    server.asked(1).await;
    let mut next = client.send(&Message::new("bob", "next")).await?;
    hears(&mut next, "budget_waiting").await?;
    assert_eq!(server.count(), 1, "it waits");
    server.open("go");
    assert_eq!(slow.completed().await?, "slow.");
    assert_eq!(next.completed().await?, "reply to: next");
    node.stop().await?;
    server.stop().await.unwrap();
    Ok(())
}
