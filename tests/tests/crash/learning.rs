//! Facts and points of a turn reach a memory once, wherever the process dies that sends them (C23, MEM-3).

use clawnode_proto::memory_view::{MemoryPointView, MemoryPoints};
use clawnode_tests::{
    model::{Act, Script},
    process::{Client, Message, Node, ProcessError, sound},
    wait::until,
};
use serde_json::{Value, json};

use super::support::{Outcome, Scene, Under};

const CONFIG: &str = "[agents.default]\ntools = [\"remember\"]\n\
                      rules = [{ tool = \"*\", verdict = \"allow\" }]\n\
                      [agents.default.memory]\n";
const OF_ADA: &str = "default/peer/test:a:ada";
const SAID: &str = "My name is Ada.";
const CONCLUDED: &str = "Ada likes tea.";

async fn scene(under: Under) -> Scene {
    let scene = Scene::on(under, Script::default()).await;
    scene.configure(CONFIG);
    // What the dead node had is delivered again sooner than after the usual 30 s.
    scene.with_var("CLAWNODE_TEST_ACK_WAIT", "3000")
}

async fn points(client: &Client) -> Result<Vec<MemoryPointView>, ProcessError> {
    let params = json!({ "memory": OF_ADA, "all": true });
    let shown = client.call::<MemoryPoints>("memory.show", params).await;
    Ok(shown.map(|shown| shown.points).unwrap_or_default())
}

/// The points of Ada's memory once this text is there and every message is acknowledged.
async fn learned(
    client: &Client,
    message: &Message,
    text: &str,
) -> Result<Vec<String>, ProcessError> {
    client.chat(message).await?;
    until("it is learned", async || {
        let points = points(client).await?;
        Ok(points.iter().any(|point| point.text == text).then_some(()))
    })
    .await?;
    until("nothing is left to send", async || {
        let journal: Vec<Value> = client.journal(&message.session()).await?;
        // A turn after it takes along that its end was sent.
        let sent = journal.iter().any(|event| event["kind"] == "emitted");
        if !sent {
            let more = format!("{} turns", journal.len());
            client.chat(&Message::new("ada", &more)).await?;
        }
        Ok(sent.then_some(()))
    })
    .await?;
    Ok(points(client).await?.into_iter().map(|point| point.text).collect())
}

/// A process dies at each of these points of a turn.
async fn dies(under: Under, kills: &[&str], acts: fn(&Scene), text: &str) -> Outcome {
    for point in kills {
        let mut scene = scene(under).await;
        acts(&scene);
        let message = Message::new("ada", SAID);
        scene.die_at(point, &message).await?;
        let node = Node::up(&scene.home).await?;
        let client = node.client()?;
        let learned = learned(&client, &message, text).await?;
        let times = learned.iter().filter(|one| *one == text).count();
        assert_eq!(times, 1, "MEM-3: {point}: {learned:?}");
        assert_eq!(learned.iter().filter(|one| *one == SAID).count(), 1, "{point}: {learned:?}");
        assert!(sound(&scene.home).await? > 0);
        node.stop().await?;
    }
    Ok(())
}

/// The turn is done, and the memory does not have its facts, or the session does not know that it has.
const C23: [&str; 4] = ["after-outcome", "after-emit", "before-learned", "after-learned"];

#[tokio::test]
async fn c23_the_facts_of_a_turn_are_sent_until_the_memory_has_them() -> Outcome {
    dies(Under::Local, &C23, |_| {}, SAID).await
}

#[tokio::test]
async fn c23_the_facts_of_a_turn_are_sent_until_the_memory_has_them_on_nats() -> Outcome {
    dies(Under::Nats, &["before-learned", "after-learned"], |_| {}, SAID).await
}

#[tokio::test]
async fn a_kill_during_the_tool_remember_adds_its_point_once() -> Outcome {
    let calls = |scene: &Scene| {
        scene.server.push(Act::tools([("remember", json!({ "text": CONCLUDED }))]));
    };
    dies(Under::Local, &["before-learned", "after-learned"], calls, CONCLUDED).await
}
