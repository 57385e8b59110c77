//! Work that can wait, beside people who do not: all of it ends, and people come first.

use std::fs;

use clawnode_proto::{session::TurnOutcome, view::EventView};
use clawnode_tests::{
    model::{Reply, Script, Step},
    process::{Client, Message, Node, ProcessError},
};
use futures_util::future::join_all;

use super::{Outcome, scene};

const BACKGROUND: usize = 40;
const INTERACTIVE: usize = 10;
/// Few calls at a time, so that turns of both lanes wait.
const CONFIG: &str = "[providers.anthropic]\nmax_calls = 3\n";

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
    let file = home.path().join(".config/clawnode/config.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, CONFIG).unwrap();
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
