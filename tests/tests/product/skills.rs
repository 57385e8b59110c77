//! Skills on real nodes: a folder that a person drops, and models that read what is in it.

use std::{fs, path::Path};

use clawnode_tests::{
    model::{Act, Call, ModelServer, Script},
    process::{Home, Message, Node, sound},
};
use serde_json::{Value, json};

use super::{Outcome, scene};

fn write(folder: &Path, name: &str, frontmatter: &str, text: &str) {
    fs::create_dir_all(folder.join(name)).unwrap();
    let text = format!("---\nname: {name}\n{frontmatter}\n---\n{text}\n");
    fs::write(folder.join(name).join("SKILL.md"), text).unwrap();
}

fn body(call: &Call) -> String {
    String::from_utf8_lossy(&call.body).into_owned()
}

fn activate(name: &str) -> Act {
    Act::tools([("activate_skill", json!({ "name": name }))])
}

/// The journal is sound, and gives the requests that were sent.
async fn replays(home: &Home) -> Outcome {
    sound(home).await?;
    let session = Message::new("ada", "").session();
    let replayed = home.run(&["journal", "replay", &session, "--json"]).await?;
    assert_eq!(replayed.code, 0, "{replayed:?}");
    Ok(())
}

/// A home whose node has no skills yet, and where they are looked for.
async fn home(acts: impl IntoIterator<Item = Act>) -> (ModelServer, Home, std::path::PathBuf) {
    let (server, home) = scene(Script::queue(acts)).await;
    let folder = home.path().join(".config/clawnode/skills");
    (server, home, folder)
}

/// What a crash leaves is what the journal has: the text as it was when the model read it.
#[tokio::test]
async fn a_skill_that_is_dropped_is_read_once_and_outlives_a_crash() -> Outcome {
    let acts = [Act::say("hello"), activate("deploy"), Act::Stall, Act::say("shipped")];
    let (server, home, folder) = home(acts).await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    client.chat(&Message::new("ada", "hi")).await?;
    let before = body(&server.calls()[0]);
    assert!(!before.contains("skill"), "without skills nothing of them is sent: {before}");
    write(&folder, "deploy", "description: Ships a release.", "Run the tests first.");
    write(&folder, "broken", "description: Use: this", "x");
    let has = |tools: &Value| tools.to_string().contains("activate_skill");
    let _: Value = client.call_when("agents.show", json!({ "agent": "default" }), has).await?;
    let turn = client.send(&Message::new("ada", "ship it")).await?;
    let calls = server.asked(3).await;
    assert!(body(&calls[1]).contains("- `deploy`: Ships a release."), "{}", body(&calls[1]));
    assert!(!body(&calls[1]).contains("Run the tests first."));
    assert!(!body(&calls[1]).contains("broken") && !body(&calls[1]).contains("discover_skills"));
    let read = &calls[2].results[0];
    assert!(
        read.starts_with("Skill `deploy` (digest ") && read.ends_with("Run the tests first."),
        "{read}"
    );
    node.kill().await?;
    write(&folder, "deploy", "description: Ships a release.", "Run nothing.");
    let node = Node::up(&home).await?;
    node.client()?.finished(&turn.session, 2).await?;
    let calls = server.calls();
    assert_eq!(calls.len(), 4, "the call is made again, and the tool is not run again");
    assert_eq!(&calls[3].results[0], read);
    assert!(!body(&calls[3]).contains("Run nothing."));
    node.stop().await?;
    replays(&home).await?;
    let checked = home.run(&["skills", "check", "--json"]).await?;
    assert_eq!(checked.code, 78, "{checked:?}");
    let checked = checked.json()?;
    assert_eq!(checked["skills"], json!(["deploy"]));
    assert!(checked["faults"][0]["path"].as_str().unwrap().ends_with("broken/SKILL.md"));
    let valid = home.run(&["config", "check"]).await?;
    assert_eq!(valid.code, 0, "a node starts without a skill that is broken");
    assert!(valid.out.contains("broken/SKILL.md"), "{valid:?}");
    Ok(())
}

/// The words of a message activate a skill before the model is asked. Its file may be gone by the next attempt.
#[tokio::test]
async fn a_trigger_shows_a_skill_and_a_crash_shows_the_same() -> Outcome {
    let (server, home, folder) = home([Act::Stall, Act::say("done"), Act::say("fine")]).await;
    let trigger = "description: Writes notes.\nmetadata:\n  triggers: release notes";
    write(&folder, "notes", trigger, "One line each.");
    let node = Node::up(&home).await?;
    let turn = node.client()?.send(&Message::new("ada", "Write the Release Notes, please")).await?;
    let first = body(&server.asked(1).await[0]);
    assert!(first.contains("<skill name=") && first.contains("One line each."), "{first}");
    node.kill().await?;
    fs::remove_dir_all(&folder).unwrap();
    let node = Node::up(&home).await?;
    let client = node.client()?;
    client.finished(&turn.session, 1).await?;
    assert!(body(&server.calls()[1]).contains("One line each."), "the journal has the text");
    client.chat(&Message::new("ada", "thanks")).await?;
    assert!(!body(&server.calls()[2]).contains("One line each."), "it was of its turn alone");
    let events: Vec<Value> = client.journal(&turn.session).await?;
    let activated: Vec<&Value> =
        events.iter().filter(|event| event["kind"] == "skills_activated").collect();
    assert_eq!(activated.len(), 1, "{events:?}");
    assert!(activated[0].to_string().contains("digest"));
    node.stop().await?;
    replays(&home).await
}
