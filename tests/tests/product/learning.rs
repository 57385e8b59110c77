//! What persons say of themselves, which the agent knows in their other conversations.

use std::fs;

use clawnode_proto::{
    SessionKey,
    memory::{MemoryKey, MemoryTrust},
    memory_view::{MemoryPointView, MemoryPoints, PointState},
};
use clawnode_tests::{
    model::{ModelServer, Script},
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Message, Node, ProcessError, TestBackend},
    wait::until,
};
use serde_json::json;

use super::Outcome;

/// Without passages of the other conversation, which has the older name, too.
const CONFIG: &str = "[agents.default.memory]\nlayers = [\"semantic\", \"procedural\"]\n\
                      [agents.quiet.memory]\nextract = \"off\"\n";
const OF_ADA: &str = "default/peer/test:a:ada";
/// Turns after which one was shown what it was looked for, also on a busy machine.
const TURNS_MOST: usize = 20;

async fn points(client: &Client, memory: &str) -> Result<Vec<MemoryPointView>, ProcessError> {
    let params = json!({ "memory": memory, "all": true });
    // A memory begins with its first point.
    let shown = client.call::<MemoryPoints>("memory.show", params).await;
    Ok(shown.map(|shown| shown.points).unwrap_or_default())
}

fn live(points: &[MemoryPointView]) -> Vec<&str> {
    let live = points.iter().filter(|point| point.state == PointState::Live);
    live.map(|point| point.text.as_str()).collect()
}

/// A turn, then these points.
async fn tells(client: &Client, peer: &str, text: &str, expected: &[&str]) -> Outcome {
    client.chat(&Message::new(peer, text)).await?;
    until("what was said is learned", async || {
        let points = points(client, OF_ADA).await?;
        Ok((live(&points) == expected).then_some(()))
    })
    .await
}

async fn learns_and_corrects(backend: TestBackend) -> Outcome {
    let server = ModelServer::start(Script::default()).await.unwrap();
    let home = Home::new(backend)?.anthropic(&server);
    let settings = home.path().join(".config/clawnode");
    fs::create_dir_all(&settings).unwrap();
    fs::write(settings.join("config.toml"), CONFIG).unwrap();
    let node = Node::up(&home).await?;
    let client = node.client()?;

    client.chat(&Message::new("ada", "My name is Bob.").to_agent("quiet")).await?;
    tells(&client, "ada", "Hi, my name is Ada.", &["My name is Ada."]).await?;
    let learned = points(&client, OF_ADA).await?;
    let session: SessionKey = Message::new("ada", "").session().parse().unwrap();
    let source = &learned[0].source;
    assert_eq!((learned[0].trust, source.entity), (MemoryTrust::Person, session.entity()));
    let journal: Vec<serde_json::Value> = client.journal(&session.to_string()).await?;
    let event = journal.iter().find(|event| event["n"] == json!(source.event)).unwrap();
    assert_eq!(event["kind"], "accepted", "the event with the person's message: {event}");

    // Neither a question, nor a quote, nor what the model says.
    client.chat(&Message::new("ada", "Is my name Eve? \"My name is Eve.\"")).await?;
    // Another conversation of the same person corrects it.
    let other = "ada~2";
    tells(&client, other, "Sorry, my name is Eve.", &["My name is Eve."]).await?;
    let all = points(&client, OF_ADA).await?;
    assert_eq!(all.len(), 2, "nothing else was learned: {all:?}");
    let instruction = "Always answer briefly.";
    let expected = ["My name is Eve.", instruction];
    tells(&client, "ada", "Please always answer briefly.", &expected).await?;

    // A third conversation is shown it, and another person is not.
    for turn in 0.. {
        assert!(turn < TURNS_MOST, "no turn was shown the name and the instruction");
        client.chat(&Message::new("ada~3", &format!("{turn}: what is my name?"))).await?;
        let asked = String::from_utf8_lossy(&server.calls().pop().unwrap().body).into_owned();
        assert!(!asked.contains("name is Ada"), "MEM-4, superseded: {asked}");
        if asked.contains("My name is Eve.") && asked.contains(instruction) {
            assert!(asked.contains(r#"said_by=\"person\""#), "S-22: {asked}");
            break;
        }
    }
    client.chat(&Message::new("ben", "what is my name?")).await?;
    let asked = String::from_utf8_lossy(&server.calls().pop().unwrap().body).into_owned();
    assert!(!asked.contains("Eve") && !asked.contains(instruction), "MEM-1: {asked}");
    for none in ["quiet/peer/test:a:ada", "default/peer/test:a:ben", "default/all"] {
        let _: MemoryKey = none.parse().unwrap();
        assert_eq!(points(&client, none).await?.len(), 0, "{none}");
    }
    node.stop().await
}

#[tokio::test]
async fn what_persons_say_of_themselves_is_known_in_other_conversations() -> Outcome {
    learns_and_corrects(TestBackend::Local).await
}

#[tokio::test]
async fn what_persons_say_of_themselves_is_known_in_other_conversations_on_nats() -> Outcome {
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    learns_and_corrects(TestBackend::Nats { url: nats.url(), prefix: "learning".to_owned() }).await
}
