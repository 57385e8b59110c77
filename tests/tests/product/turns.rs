//! Queueing, steering, cancelling, repeating, failing, forgetting.

use clawnode_proto::session::TurnOutcome;
use clawnode_tests::{
    model::{Act, Reply, Script, Step},
    process::{Message, Node},
};
use serde_json::json;

use super::{Outcome, said, scene};

/// A reply that waits for its gate after its first word.
fn gated(first: &str, gate: &str, rest: &str) -> Act {
    Act::Reply(Reply::steps([
        Step::Text { text: first.to_owned() },
        Step::Gate { name: gate.to_owned() },
        Step::Text { text: rest.to_owned() },
    ]))
}

/// SES-2.
#[tokio::test]
async fn messages_during_a_turn_are_answered_in_order() -> Outcome {
    let script = Script::queue([gated("one", "go", "."), Act::say("two."), Act::say("three.")]);
    let (server, home) = scene(script).await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let mut first = client.send(&Message::new("ada", "first")).await?;
    first.begun().await?;
    let mut second = client.send(&Message::new("ada", "second")).await?;
    let mut third = client.send(&Message::new("ada", "third")).await?;
    assert_eq!(server.count(), 1, "a queued message calls no model");
    server.open("go");
    assert_eq!(first.completed().await?, "one.");
    assert_eq!(second.completed().await?, "two.");
    assert_eq!(third.completed().await?, "three.");
    let history = client.finished(&first.session, 3).await?;
    let all: Vec<_> = history.turns.iter().map(said).collect();
    assert_eq!(all, [["first", "one."], ["second", "two."], ["third", "three."]]);
    node.stop().await
}

/// LANE-1 and GIVE-1 in a process: a person comes first, and what was ended for them is made again.
#[tokio::test]
async fn lane_1_a_turn_of_the_background_gives_way_to_another_and_goes_on_after_it() -> Outcome {
    let acts = [gated("I be", "never", "gin."), Act::say("hello."), Act::say("all done.")];
    let (server, home) = scene(Script::queue(acts)).await;
    let home = home.var("CLAWNODE_AGENTS__DEFAULT__MAX_TURNS", "1");
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let mut work = client.send(&Message::new("ada", "work").in_background()).await?;
    work.begun().await?;
    assert_eq!(client.chat(&Message::new("bob", "hi")).await?, "hello.");
    assert_eq!(work.completed().await?, "all done.");
    assert!(work.resets > 0, "what it had said is void");
    assert_eq!(server.count(), 3);
    let history = client.finished(&work.session, 1).await?;
    assert_eq!(said(&history.turns[0]), ["work", "all done."]);
    assert_eq!(history.turns[0].lost_attempts, 0, "what became of the first is known");
    let events: Vec<serde_json::Value> = client.journal(&work.session).await?;
    let gave_way = events.iter().filter(|event| event["kind"] == "model_gave_way").count();
    assert_eq!(gave_way, 1, "GIVE-1");
    node.stop().await
}

#[tokio::test]
async fn a_steer_joins_the_running_turn() -> Outcome {
    let script = Script::queue([gated("I plan", "go", " A."), Act::say("Then B.")]);
    let (server, home) = scene(script).await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let mut turn = client.send(&Message::new("ada", "plan")).await?;
    turn.begun().await?;
    let steer = client.send(&Message::new("ada", "rather B").steering()).await?;
    assert_eq!(steer.turn, turn.turn, "it joined what runs");
    server.open("go");
    assert_eq!(turn.completed().await?, "I plan A.\n\nThen B.");
    let history = client.finished(&turn.session, 1).await?;
    assert_eq!(history.turns.len(), 1);
    assert_eq!(said(&history.turns[0]), ["plan", "I plan A.", "rather B", "Then B."]);
    node.stop().await
}

#[tokio::test]
async fn a_steer_with_nothing_running_is_a_turn_of_its_own() -> Outcome {
    let (_server, home) = scene(Script::queue([Act::say("hello.")])).await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    assert_eq!(client.chat(&Message::new("ada", "hi").steering()).await?, "hello.");
    node.stop().await
}

#[tokio::test]
async fn a_cancelled_turn_keeps_what_was_said_and_the_next_one_runs() -> Outcome {
    let script = Script::queue([gated("half a", "never", " word"), Act::say("whole.")]);
    let (_server, home) = scene(script).await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let mut turn = client.send(&Message::new("ada", "go on")).await?;
    turn.begun().await?;
    let params = json!({ "session": turn.session, "turn": turn.turn });
    let _: serde_json::Value = client.call("chat.cancel", params.clone()).await?;
    let history = client.finished(&turn.session, 1).await?;
    assert_eq!(history.turns[0].outcome, Some(TurnOutcome::Cancelled));
    assert_eq!(said(&history.turns[0]), ["go on", "half a"]);
    // A finished turn is not changed by another cancel.
    let _: serde_json::Value = client.call("chat.cancel", params).await?;
    assert_eq!(client.chat(&Message::new("ada", "again")).await?, "whole.");
    let history = client.finished(&turn.session, 2).await?;
    assert_eq!(history.turns[0].outcome, Some(TurnOutcome::Cancelled));
    node.stop().await
}

#[tokio::test]
async fn the_same_key_is_the_same_turn() -> Outcome {
    let (server, home) = scene(Script::queue([Act::say("once.")])).await;
    let node = Node::up(&home).await?;
    let message = Message::new("ada", "only once");
    let mut first = node.client()?.send(&message).await?;
    assert_eq!(first.completed().await?, "once.");
    let mut again = node.client()?.send(&message).await?;
    assert_eq!(again.turn, first.turn);
    assert_eq!(again.completed().await?, "once.");
    node.stop().await?;
    // Also by the next process.
    let node = Node::up(&home).await?;
    assert_eq!(node.client()?.chat(&message).await?, "once.");
    assert_eq!(server.count(), 1, "one key, one call");
    node.stop().await
}

#[tokio::test]
async fn a_refusing_provider_ends_the_turn_with_its_own_words() -> Outcome {
    let script = Script::queue([Act::status(400, "prompt is too odd"), Act::say("fine.")]);
    let (_server, home) = scene(script).await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let error = client.chat(&Message::new("ada", "odd")).await.unwrap_err();
    let refusal = error.refusal().unwrap_or_else(|| panic!("{error}"));
    assert!(refusal.message.contains("prompt is too odd"), "{refusal:?}");
    assert_eq!(refusal.code, clawnode_proto::ErrorCode::ProviderRejected);
    assert_eq!(client.chat(&Message::new("ada", "even")).await?, "fine.");
    node.stop().await
}

#[tokio::test]
async fn a_provider_that_breaks_off_is_asked_again_in_the_same_turn() -> Outcome {
    let begun = Step::Text { text: "I am beg".to_owned() };
    let cut = Reply::steps([begun, Step::Flush, Step::Cut]);
    let (server, home) = scene(Script::queue([Act::Reply(cut), Act::say("whole.")])).await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let mut turn = client.send(&Message::new("ada", "hi")).await?;
    let mut told = Vec::new();
    loop {
        let frame = turn.next().await?;
        match frame.event.as_str() {
            "text" => told.push(frame.data.as_str().unwrap().to_owned()),
            "done" => break,
            other => told.push(format!("[{other}]")),
        }
    }
    assert_eq!(told.concat(), "I am beg[reset][notice]whole.[usage]");
    let history = client.finished(&turn.session, 1).await?;
    assert_eq!(said(&history.turns[0]), ["hi", "whole."]);
    assert_eq!(server.count(), 2);
    let calls = server.calls();
    assert_eq!(calls[0].key, calls[1].key, "a provider that knows the key bills it once");
    node.stop().await
}

#[tokio::test]
async fn a_full_window_drops_the_oldest_turns_and_says_so() -> Outcome {
    let (server, home) = scene(Script::default()).await;
    let config = home.path().join("config.toml");
    std::fs::write(&config, "[agents.default]\nwindow_tokens = 200\ncontext = \"window\"\n")
        .unwrap();
    let home = home.var("CLAWNODE_CONFIG", config.to_str().unwrap());
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let long = "remember this well ".repeat(12);
    for n in 0..4 {
        client.chat(&Message::new("ada", &format!("{n} {long}"))).await?;
    }
    let mut turn = client.send(&Message::new("ada", "what was first?")).await?;
    let mut notices = Vec::new();
    loop {
        let frame = turn.next().await?;
        match frame.event.as_str() {
            "notice" => notices.push(frame.data["name"].as_str().unwrap().to_owned()),
            "done" => break,
            _ => {}
        }
    }
    assert_eq!(notices, ["history_dropped"]);
    let last = server.calls().pop().unwrap();
    let body = String::from_utf8_lossy(&last.body).into_owned();
    assert!(!body.contains("0 remember"), "the oldest turn is still there");
    assert!(body.contains("3 remember"), "the newest turn is gone");
    node.stop().await
}

/// Also after a restart: what is sent comes from the journal.
#[tokio::test]
async fn a_chat_of_short_messages_is_sent_whole_by_default() -> Outcome {
    let (server, home) = scene(Script::default()).await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    for n in 0..25 {
        client.chat(&Message::new("ada", &format!("short {n}."))).await?;
    }
    node.stop().await?;
    let node = Node::up(&home).await?;
    node.client()?.chat(&Message::new("ada", "what was first?")).await?;
    let last = server.calls().pop().unwrap();
    let body = String::from_utf8_lossy(&last.body).into_owned();
    let missing: Vec<u32> = (0..25).filter(|n| !body.contains(&format!("short {n}."))).collect();
    assert!(missing.is_empty(), "{missing:?}");
    node.stop().await
}
