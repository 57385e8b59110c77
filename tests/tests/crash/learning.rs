//! Facts and points of a turn, feedback on it, lessons and facts of a model reach a memory once, wherever the process dies that
//! sends them (C23, MEM-3).

use clawnode_proto::{
    memory::MemoryTrust,
    memory_view::{MemoryPointView, MemoryPoints},
};
use clawnode_tests::{
    model::{Act, Script},
    process::{Client, Message, Node, ProcessError, Start, sound},
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

/// A turn that was shown what Ada said.
async fn reminded(client: &Client) -> Result<String, ProcessError> {
    for turn in 0..20 {
        let asks = Message::new("ada", &format!("{turn}: what is my name?"));
        client.chat(&asks).await?;
        let journal: Vec<Value> = client.journal(&asks.session()).await?;
        let mut recalled = journal.iter().filter(|event| event["kind"] == "recalled");
        let shown = recalled.find(|event| event["body"]["points"][0]["memory"] == OF_ADA);
        if let Some(shown) = shown {
            return Ok(shown["body"]["turn"].as_str().unwrap().to_owned());
        }
    }
    Err(ProcessError::Late("a turn that is shown the name".to_owned()))
}

/// Feedback is recorded, and the memory does not have it, or the session does not know that it has.
#[tokio::test]
async fn c23_feedback_is_sent_until_the_memory_has_it_and_counts_once() -> Outcome {
    for kill in ["before-learned", "after-learned"] {
        let mut scene = scene(Under::Local).await;
        let message = Message::new("ada", SAID);
        let node = Node::up(&scene.home).await?;
        let client = node.client()?;
        learned(&client, &message, SAID).await?;
        let turn = reminded(&client).await?;
        node.stop().await?;

        let given = json!({ "session": message.session(), "turn": turn, "thumb": "down", "idempotency_key": "1" });
        let mut node = Node::start(&scene.home, Start::killed(kill)).await?;
        match node.client()?.call::<Value>("feedback.give", given.clone()).await {
            Err(error) if !error.is_lost() => return Err(error),
            _ => {}
        }
        scene.died(&mut node).await?;

        let node = Node::up(&scene.home).await?;
        let client = node.client()?;
        client.call::<Value>("feedback.give", given).await?;
        until("it has moved", async || {
            Ok(points(&client).await?.iter().any(|point| point.importance < 7).then_some(()))
        })
        .await?;
        // Until the session has taken along that the memory has it.
        client.chat(&Message::new("ada", "thank you")).await?;
        let points = points(&client).await?;
        let moved = points.iter().find(|point| point.text == SAID).unwrap();
        assert_eq!((moved.importance, moved.feedback.unwrap().sum), (6, -1), "{kill}");
        assert!(sound(&scene.home).await? > 0);
        node.stop().await?;
    }
    Ok(())
}

/// Says nothing of a person, so that nothing but lessons is sent.
const WORK: &str = "Fix the build.";
const LESSON: &str = "Look for the flag first.";

/// Lessons are recorded, and the memory does not have them, or the session does not know that it has.
async fn lessons(under: Under) -> Outcome {
    for kill in ["before-learned", "after-learned"] {
        let mut scene = Scene::on(under, Script::default()).await;
        scene.configure(REFLECTS);
        scene = scene.with_var("CLAWNODE_TEST_ACK_WAIT", "3000");
        let calls = ["a", "b", "c", "d", "e"].map(|word| ("recall", json!({ "query": word })));
        scene.server.push(Act::tools(calls));
        scene.server.push(Act::say("Done."));
        let rated = json!({ "rating": 3, "lessons": [LESSON] });
        scene.server.push(Act::say(&rated.to_string()));
        let message = Message::new("ada", WORK);
        scene.die_at(kill, &message).await?;
        let node = Node::up(&scene.home).await?;
        let client = node.client()?;
        let learned = learned(&client, &message, LESSON).await?;
        assert_eq!(learned, [LESSON], "MEM-3: {kill}");
        let point = points(&client).await?.remove(0);
        assert_eq!(point.trust, MemoryTrust::Agent, "S-22");
        let journal: Vec<Value> = client.journal(&message.session()).await?;
        let count = |kind: &str| journal.iter().filter(|event| event["kind"] == kind).count();
        assert_eq!((count("reflection_begun"), count("reflected")), (1, 1), "{kill}");
        assert!(sound(&scene.home).await? > 0);
        node.stop().await?;
    }
    Ok(())
}

const REFLECTS: &str = "[agents.default]\ntools = [\"recall\"]\n\
                        rules = [{ tool = \"*\", verdict = \"allow\" }]\n\
                        [agents.default.memory]\nreflect = \"model\"\n";

#[tokio::test]
async fn c23_lessons_are_sent_until_the_memory_has_them() -> Outcome {
    lessons(Under::Local).await
}

#[tokio::test]
async fn c23_lessons_are_sent_until_the_memory_has_them_on_nats() -> Outcome {
    lessons(Under::Nats).await
}

const STATED: &str = "We sail each summer.";
const EXTRACTS: &str = "[agents.default.memory]\nlayers = [\"semantic\"]\nextract = \"model\"\n";

/// The same for what a model finds in what the person said.
async fn facts_of_a_model(under: Under) -> Outcome {
    for kill in ["before-learned", "after-learned"] {
        let mut scene = Scene::on(under, Script::default()).await;
        scene.configure(EXTRACTS);
        scene = scene.with_var("CLAWNODE_TEST_ACK_WAIT", "3000");
        scene.server.push(Act::say("Nice."));
        let (layer, fact) = ("semantic", "The person sails.");
        let fact =
            json!({ "quote": STATED, "fact": fact, "layer": layer, "predicate": "", "object": "" });
        scene.server.push(Act::say(&json!({ "facts": [fact] }).to_string()));
        let message = Message::new("ada", STATED);
        scene.die_at(kill, &message).await?;
        let node = Node::up(&scene.home).await?;
        let client = node.client()?;
        let learned = learned(&client, &message, STATED).await?;
        assert_eq!(learned, [STATED], "MEM-3: {kill}");
        let point = points(&client).await?.remove(0);
        assert_eq!(point.trust, MemoryTrust::Person, "{kill}");
        let journal: Vec<Value> = client.journal(&message.session()).await?;
        let count = |kind: &str| journal.iter().filter(|event| event["kind"] == kind).count();
        assert_eq!((count("reflection_begun"), count("reflected")), (1, 1), "{kill}");
        assert!(sound(&scene.home).await? > 0);
        node.stop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn c23_facts_of_a_model_are_sent_until_the_memory_has_them() -> Outcome {
    facts_of_a_model(Under::Local).await
}

#[tokio::test]
async fn c23_facts_of_a_model_are_sent_until_the_memory_has_them_on_nats() -> Outcome {
    facts_of_a_model(Under::Nats).await
}
