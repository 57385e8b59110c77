//! Processes die again and again: only a session that kills them is taken out of service.

use clawnode_tests::{
    model::{DefaultReply, Script},
    process::{Client, Message, Node, ProcessError, Start},
};
use serde_json::{Value, json};

use super::support::{Outcome, Scene, Under};

const POISON: &str = "poison:xyzzy";

/// Messages of as many sessions.
fn crowd(many: usize) -> Vec<Message> {
    (0..many).map(|n| Message::new(&format!("h{n}"), &format!("harmless {n}"))).collect()
}

/// The keys of the sessions that are out of service.
async fn quarantined(client: &Client) -> Result<Vec<String>, ProcessError> {
    let list: Value = client.call("quarantine.list", json!({ "limit": 1_000 })).await?;
    let sessions = list["sessions"].as_array().unwrap().iter();
    Ok(sessions.map(|one| one["key"].as_str().unwrap_or_default().to_owned()).collect())
}

/// How often a session was claimed.
async fn claims(client: &Client, session: &str) -> Result<usize, ProcessError> {
    let journal: Vec<Value> = client.journal(session).await?;
    Ok(journal.iter().filter(|event| event["kind"] == "claim").count())
}

async fn one_that_kills(under: Under, many: usize) -> Outcome {
    let default = DefaultReply { tokens: 3, delay_ms: 500, flush: true };
    let mut scene = Scene::on(under, Script { default, ..Script::default() }).await;
    let crowd = crowd(many);
    let poisoned = Message::new("eve", "something xyzzy something");
    let mut node = Node::start(&scene.home, Start::killed(POISON)).await?;
    let client = node.client()?;
    for message in &crowd {
        client.send(message).await?;
    }
    match client.send(&poisoned).await {
        Ok(_) => {}
        Err(error) if error.is_lost() => {}
        Err(error) => return Err(error),
    }
    scene.died(&mut node).await?;
    for _ in 0..4 {
        scene.die_at_start(POISON).await?;
    }
    // Five processes have died of it: the sixth does not.
    let node = Node::start(&scene.home, Start::killed(POISON)).await?;
    let client = node.client()?;
    client
        .until::<Value>("status", |status| {
            status["quarantined"].as_array().is_some_and(|all| !all.is_empty())
        })
        .await?;
    for message in &crowd {
        client.finished(&message.session(), 1).await?;
    }
    assert_eq!(quarantined(&client).await?, ["default:test:a:eve"]);
    node.stop().await?;
    // A session that no longer kills is put back in service.
    let node = Node::up(&scene.home).await?;
    let replayed = scene.home.run(&["quarantine", "replay", "--all", "--why", "progress"]).await?;
    assert_eq!(replayed.code, 0, "{}{}", replayed.out, replayed.err);
    assert!(replayed.out.contains("default:test:a:eve is back in service"), "{}", replayed.out);
    let client = node.client()?;
    client.finished(&poisoned.session(), 1).await?;
    assert!(quarantined(&client).await?.is_empty());
    scene.judge(&client, &[&crowd[..], &[poisoned]].concat()).await?;
    node.stop().await
}

#[tokio::test]
async fn two_hundred_harmless_sessions_stay_in_service_beside_one_that_kills() -> Outcome {
    one_that_kills(Under::Local, 200).await
}

#[tokio::test]
async fn harmless_sessions_stay_in_service_beside_one_that_kills_on_nats() -> Outcome {
    one_that_kills(Under::Nats, 40).await
}

#[tokio::test]
async fn sessions_of_a_paused_agent_outlive_any_number_of_processes() -> Outcome {
    let mut scene = Scene::new(Script::default()).await;
    let crowd = crowd(50);
    let mut node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let _: Value = client.call("agents.pause", json!({ "agent": "default" })).await?;
    for message in &crowd {
        client.send(message).await?;
    }
    for _ in 0..7 {
        node.kill().await?;
        scene.kills += 1;
        node = Node::up(&scene.home).await?;
        let client = node.client()?;
        // All of them are in hand again.
        client
            .until::<Value>("status", |status| status["nodes"][0]["entities"].as_u64() >= Some(50))
            .await?;
    }
    let client = node.client()?;
    assert!(quarantined(&client).await?.is_empty());
    let mut claimed = 0;
    for message in &crowd {
        claimed += claims(&client, &message.session()).await?;
    }
    // Three for each; one more for each kill that found one in hand.
    assert!(claimed <= 3 * crowd.len() + 7, "{claimed} claims to do nothing");
    let _: Value = client.call("agents.resume", json!({ "agent": "default" })).await?;
    for message in &crowd {
        client.finished(&message.session(), 1).await?;
    }
    scene.judge(&client, &crowd).await?;
    node.stop().await
}

#[tokio::test]
async fn sessions_in_mid_call_outlive_any_number_of_processes() -> Outcome {
    // The first word comes so late that no session is on probation any more.
    let default = DefaultReply { tokens: 4, delay_ms: 800, flush: true };
    let mut scene = Scene::new(Script { default, ..Script::default() }).await;
    let crowd = crowd(3);
    let mut node = Node::up(&scene.home).await?;
    for life in 0..7 {
        let client = node.client()?;
        for message in &crowd {
            // Sent again under its key: the same turn.
            client.send(message).await?.begun().await?;
        }
        assert!(quarantined(&client).await?.is_empty(), "life {life}");
        node.kill().await?;
        scene.kills += 1;
        node = Node::up(&scene.home).await?;
    }
    let client = node.client()?;
    for message in &crowd {
        client.finished(&message.session(), 1).await?;
    }
    assert!(quarantined(&client).await?.is_empty());
    scene.judge(&client, &crowd).await?;
    node.stop().await
}

#[tokio::test]
async fn a_worker_takes_no_more_sessions_than_it_has_room_for() -> Outcome {
    let scene = Scene::new(Script::default()).await.with_var("CLAWNODE_SESSION__MAX_ACTIVE", "64");
    let config = "[agents.default]\n\n[agents.other]\n\n[[bindings]]\nagent = \"other\"\nchannel = \"aside\"\n";
    let settings = scene.home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    std::fs::write(settings.join("config.toml"), config).unwrap();
    let crowd = crowd(300);
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let _: Value = client.call("agents.pause", json!({ "agent": "default" })).await?;
    for message in &crowd {
        client.send(message).await?;
    }
    // Those that only wait make room for one that need not.
    let aside = Message { channel: "aside".to_owned(), ..Message::new("ada", "hello") };
    assert_eq!(client.chat(&aside).await?, "reply to: hello");
    let status: Value = client.call("status", json!({})).await?;
    let active = status["nodes"][0]["entities"].as_u64().unwrap();
    assert!(active < 200, "{active} of 300 are in memory");
    let _: Value = client.call("agents.resume", json!({ "agent": "default" })).await?;
    for message in &crowd {
        client.finished(&message.session(), 1).await?;
    }
    assert_eq!(scene.asked().len(), 1 + crowd.len(), "each was asked for once");
    node.stop().await
}
