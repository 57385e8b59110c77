//! F-19 and F-20: an actor that panics is started again, and one that always does is set aside;
//! neither harms others.

use std::time::Duration;

use clawnode_proto::view::{ParkedList, QuarantineView};
use clawnode_tests::{
    model::Script,
    process::{Message, Node, ProcessError, Start},
    wait::until,
};
use serde_json::{Value, json};

use super::{
    support::{Outcome, Scene, Under},
    tool_kills::{Kills, seed},
};

/// Panics of a million calls of a store: some in each turn, and few enough that turns end.
const PER_MILLION: u32 = 5_000;

/// How long an entity waits at least whose actor died for the first time.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// How often something was made to panic.
fn stumbles(scene: &Scene) -> usize {
    std::fs::read_to_string(scene.home.log()).unwrap_or_default().matches("a planted panic").count()
}

/// A node whose actors, and their tasks, panic at random so many times; then one where none does.
async fn panics(under: Under, wanted: usize, seed: u64) -> Result<String, ProcessError> {
    let mut kills = Kills::new(under, seed).await;
    let node =
        Node::start(&kills.scene.home, Start::killed(&format!("panics:{PER_MILLION}:{seed}")))
            .await?;
    kills.serves.send_replace(Some(node.client()?));
    let mut known = 0;
    while known < wanted {
        kills.calm().await?;
        // Each wait is for some more, so that the last word on a node that hangs is not the first.
        known = until("more panics", async || {
            let now = stumbles(&kills.scene);
            Ok((now > known).then_some(now))
        })
        .await?;
    }
    // The same process all along; it dies only now.
    node.kill().await?;
    kills.serves.send_replace(None);
    kills.scene.kills += 1;
    let node = Node::up(&kills.scene.home).await?;
    kills.serves.send_replace(Some(node.client()?));
    let tally = kills.judge(&node.client()?).await?;
    node.stop().await?;
    Ok(format!("{} panics: {tally:?}", stumbles(&kills.scene)))
}

#[tokio::test]
async fn f_19_panics_in_actors_and_their_tasks_lose_nothing() -> Outcome {
    let seed = seed();
    eprintln!("CLAWNODE_SEED={seed}");
    eprintln!("{}", panics(Under::Local, 25, seed).await?);
    Ok(())
}

#[tokio::test]
async fn f_19_panics_in_actors_and_their_tasks_lose_nothing_soak() -> Outcome {
    let wanted = std::env::var("CLAWNODE_PANICS").map_or(10_000, |text| text.parse().unwrap());
    let seed = seed();
    eprintln!("CLAWNODE_SEED={seed}");
    eprintln!("{}", panics(Under::Local, wanted, seed).await?);
    Ok(())
}

/// The actor that folds the message panics, every time: five tries, with growing waits between
/// them, then its session is set aside, and no other; the process lives on.
async fn set_aside(under: Under) -> Outcome {
    let scene = Scene::on(under, Script::default()).await;
    let node = Node::start(&scene.home, Start::killed("poison-panic:xyzzy")).await?;
    let client = node.client()?;
    let healthy: Vec<Message> =
        (0..8).map(|n| Message::new(&format!("bob{n}"), &format!("hello {n}"))).collect();
    let poisoned = Message::new("eve", "something xyzzy something");
    // Everybody else is answered while it is tried again and again.
    let (refused, others) = tokio::join!(client.chat(&poisoned), async {
        for message in &healthy {
            client.chat(message).await?;
        }
        Ok::<_, ProcessError>(())
    });
    others?;
    let refused = refused.unwrap_err();
    assert_eq!(refused.refusal().map(|body| body.code.as_str()), Some("quarantined"), "{refused}");

    let journal: Vec<Value> = client.journal(&poisoned.session()).await?;
    let kinds: Vec<&str> = journal.iter().map(|event| event["kind"].as_str().unwrap()).collect();
    let end = kinds.iter().position(|kind| *kind == "quarantined").unwrap();
    let claims: Vec<u64> = journal[..end]
        .iter()
        .filter(|event| event["kind"] == "claim")
        .map(|event| event["ts"].as_u64().unwrap())
        .collect();
    assert_eq!(claims.len(), 6, "five tries, and one to set it aside: {kinds:?}");
    let waits: Vec<Duration> =
        claims.windows(2).map(|two| Duration::from_millis(two[1] - two[0])).collect();
    // Each is twice the one before; a busy machine may make any of them longer.
    let least = (0..5).map(|n| FIRST_WAIT * 2_u32.pow(n));
    assert!(waits.iter().zip(least).all(|(wait, least)| *wait >= least), "{waits:?}");

    // Why is said; and it is kept whole, until a person has it served or drops it.
    let session = json!({ "session": poisoned.session() });
    let shown: QuarantineView = client.call("quarantine.show", session.clone()).await?;
    assert!(!shown.session.reason.is_empty(), "{shown:?}");
    let listed = scene.home.run(&["quarantine", "list"]).await?;
    assert!(listed.out.contains("eve"), "{listed:?}");
    let more = client.chat(&Message::new("eve", "are you there?")).await.unwrap_err();
    assert_eq!(more.refusal().map(|body| body.code.as_str()), Some("quarantined"), "{more}");
    client.call_when("parked.list", json!({}), |list: &ParkedList| list.parked.len() == 1).await?;
    node.stop().await?;

    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let done: Value = client.call("quarantine.replay", session).await?;
    assert_eq!(done["inputs"], 1, "{done}");
    let history = client.finished(&poisoned.session(), 2).await?;
    assert_eq!(history.turns.len(), 2, "{history:?}");
    node.stop().await
}

#[tokio::test]
async fn f_20_a_message_that_always_panics_is_set_aside_and_the_others_go_on() -> Outcome {
    set_aside(Under::Local).await
}

#[tokio::test]
async fn f_20_a_message_that_always_panics_is_set_aside_on_nats() -> Outcome {
    set_aside(Under::Nats).await
}
