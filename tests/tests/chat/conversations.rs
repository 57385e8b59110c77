//! Which conversation a chat is, and that nothing of it is lost to the person's sight.

use clawnode_tests::model::{Act, ModelServer, Reply, Script, Step};
use rustix::process::Signal;

use super::{Outcome, asked, chat, chat_with, scene};

/// A script in which the answer to `text` begins, and stays in its middle until a gate opens.
pub(super) fn stuck(text: &str) -> Script {
    let steps = vec![
        Step::Text { text: "the beginning of it ".to_owned() },
        Step::Gate { name: "gate".to_owned() },
        Step::Text { text: "and its end".to_owned() },
    ];
    Script::default().turn(text, [Act::from(Reply::steps(steps))])
}

fn messages(server: &ModelServer, at: usize) -> usize {
    let body: serde_json::Value = serde_json::from_slice(&server.calls()[at].body).unwrap();
    body["messages"].as_array().unwrap().len()
}

#[tokio::test]
async fn a_chat_begins_anew_and_goes_on_if_asked() -> Outcome {
    let (server, home) = scene(Script::default()).await;
    let mut terminal = chat(&home).await?;
    terminal.types("my name is ada\r").await?;
    terminal.shows("reply to: my name is ada").await?;
    terminal.prompts().await?;
    terminal.types("/new\r").await?;
    terminal.shows("a new conversation").await?;
    terminal.prompts().await?;
    terminal.types("second\r").await?;
    terminal.shows("reply to: second").await?;
    terminal.prompts().await?;
    assert_eq!(messages(&server, 1), 1, "it knows nothing of the first");
    terminal.types("/sessions\r").await?;
    terminal.shows("/resume N continues one").await?;
    terminal.prompts().await?;
    terminal.types("/resume 2\r").await?;
    terminal.shows("continuing: my name is ada").await?;
    terminal.prompts().await?;
    terminal.types("who am I?\r").await?;
    terminal.shows("reply to: who am I?").await?;
    terminal.prompts().await?;
    assert_eq!(messages(&server, 2), 3);
    terminal.types("\x04").await?;
    assert!(terminal.ended().await?.success());

    let mut terminal = chat_with(&home, &["--continue"]).await?;
    terminal.shows("continuing: my name is ada").await?;
    terminal.shows("reply to: who am I?").await?;
    terminal.prompts().await?;
    terminal.types("still there?\r").await?;
    terminal.shows("reply to: still there?").await?;
    assert_eq!(messages(&server, 3), 5);
    Ok(())
}

#[tokio::test]
async fn after_a_kill_the_next_chat_shows_the_answer_going_on() -> Outcome {
    let (server, home) = scene(stuck("first question")).await;
    let mut terminal = chat(&home).await?;
    terminal.types("first question\r").await?;
    terminal.shows("the beginning of").await?;
    terminal.signal(Signal::KILL)?;
    terminal.ended().await?;

    let mut terminal = chat_with(&home, &[]).await?;
    terminal.shows("continuing: first question").await?;
    terminal.shows("the beginning of").await?;
    server.open("gate");
    terminal.shows("the beginning of it and its end").await?;
    terminal.prompts().await?;
    terminal.types("and now?\r").await?;
    terminal.shows("reply to: and now?").await?;
    assert_eq!(messages(&server, 2), 3, "the conversation is the same");
    Ok(())
}

#[tokio::test]
async fn ctrl_c_cancels_a_turn_and_what_was_typed_meanwhile_is_kept() -> Outcome {
    let (server, home) = scene(stuck("long")).await;
    let mut terminal = chat(&home).await?;
    terminal.types("long\r").await?;
    terminal.shows("the beginning of").await?;
    terminal.types("next").await?;
    terminal.types("\x03").await?;
    terminal.shows("cancelled").await?;
    let screen = terminal.shows("> next").await?;
    assert!(!screen.contains("error"), "{screen}");
    terminal.types("\r").await?;
    terminal.shows("reply to: next").await?;
    assert_eq!(asked(&server), ["long", "next"]);
    // A second one leaves the turn to itself, and says so.
    terminal.prompts().await?;
    terminal.types("long\r").await?;
    terminal.until("it again", |screen| screen.matches("the beginning of").count() == 2).await?;
    terminal.types("\x03\x03").await?;
    terminal.shows("clawnode chat --continue").await?;
    Ok(())
}
