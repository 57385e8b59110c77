//! The crash points of a turn, each on a process that kills itself there.

use clawnode_tests::{
    model::{Act, Reply, Script, Step},
    process::{Found, Message, Node, ProcessError, Start},
};

use serde_json::{Value, json};

use super::support::{Outcome, Scene, Under};

/// Each case on its own node's directory, and on NATS.
macro_rules! cases {
    ($($name:ident)*) => {
        mod local {
            $(#[tokio::test]
            async fn $name() -> super::Outcome {
                super::$name(super::Under::Local).await
            })*
        }
        mod nats {
            $(#[tokio::test]
            async fn $name() -> super::Outcome {
                super::$name(super::Under::Nats).await
            })*
        }
    };
}

cases! {
    c1_a_message_that_was_not_stored_is_sent_again
    c1_a_message_whose_answer_was_lost_is_stored_once
    c2_what_was_only_delivered_is_taken_by_the_next_owner
    c3_what_was_only_claimed_is_claimed_again
    c4_what_was_accepted_and_not_sent_is_sent_once
    c4_claimed_and_killed_again_it_is_still_sent_once
    c6_a_call_that_ended_unrecorded_is_made_once_more
    c7_a_recorded_outcome_is_never_asked_for_again
    c12_a_turn_that_is_done_is_told_again_until_acknowledged
    c6_a_call_cut_in_mid_stream_is_made_once_more_and_followed_on
    c17_a_second_message_waits_for_its_turn_across_kills
    c13_a_kill_during_a_snapshot_loses_nothing
    c16_a_poisoned_session_is_quarantined_and_the_others_go_on
}

/// The message of a turn that is long done, and that of the turn that is hit.
fn messages() -> [Message; 2] {
    [Message::new("ada", "first"), Message::new("ada", "second")]
}

/// One turn is done; the next is hit at `point`, then at `again` where there is such a point.
async fn hit(under: Under, point: &str, again: Option<&str>) -> Result<Found, ProcessError> {
    let mut scene = Scene::on(under, Script::default()).await;
    if again.is_some() {
        // What the dead node had is delivered again sooner than after the usual 30 s.
        scene = scene.with_var("CLAWNODE_TEST_ACK_WAIT", "3000");
    }
    let [first, second] = messages();
    scene.settle(std::slice::from_ref(&first)).await?;
    scene.die_at(point, &second).await?;
    if let Some(point) = again {
        scene.die_at_start(point).await?;
    }
    let found = scene.settle(&[first, second]).await?;
    assert_eq!((found.turns, found.calls), (2, 2));
    Ok(found)
}

async fn c1_a_message_that_was_not_stored_is_sent_again(under: Under) -> Outcome {
    assert_eq!(hit(under, "before-put", None).await?.requests, 2);
    Ok(())
}

async fn c1_a_message_whose_answer_was_lost_is_stored_once(under: Under) -> Outcome {
    assert_eq!(hit(under, "after-put", None).await?.requests, 2);
    Ok(())
}

async fn c2_what_was_only_delivered_is_taken_by_the_next_owner(under: Under) -> Outcome {
    assert_eq!(hit(under, "before-accepted", None).await?.requests, 2);
    Ok(())
}

async fn c3_what_was_only_claimed_is_claimed_again(under: Under) -> Outcome {
    let stored = match under {
        // What the bus delivers is stored, and the turn has not gone further.
        Under::Nats => "before-accepted",
        // On a local disk a message may be delivered before it is stored, and go with the process: then
        // there would be nothing to claim.
        Under::Local => "after-put",
    };
    assert_eq!(hit(under, stored, Some("after-claim")).await?.requests, 2);
    Ok(())
}

async fn c4_what_was_accepted_and_not_sent_is_sent_once(under: Under) -> Outcome {
    let found = hit(under, "after-accepted", None).await?;
    assert_eq!((found.requests, found.lost), (2, 1), "begun in the journal, never sent");
    Ok(())
}

async fn c4_claimed_and_killed_again_it_is_still_sent_once(under: Under) -> Outcome {
    assert_eq!(hit(under, "after-accepted", Some("after-claim")).await?.requests, 2);
    Ok(())
}

async fn c6_a_call_that_ended_unrecorded_is_made_once_more(under: Under) -> Outcome {
    let found = hit(under, "before-outcome", None).await?;
    assert_eq!((found.requests, found.lost), (3, 1));
    Ok(())
}

/// SES-1.
async fn c7_a_recorded_outcome_is_never_asked_for_again(under: Under) -> Outcome {
    let found = hit(under, "after-outcome", None).await?;
    assert_eq!((found.requests, found.lost), (2, 0));
    Ok(())
}

async fn c12_a_turn_that_is_done_is_told_again_until_acknowledged(under: Under) -> Outcome {
    for point in ["after-emit", "before-ack"] {
        assert_eq!(hit(under, point, None).await?.requests, 2, "{point}");
    }
    assert_eq!(hit(under, "after-outcome", Some("before-ack")).await?.requests, 2, "told again");
    Ok(())
}

/// A reply that has begun and waits for a gate that never opens, then a whole one.
fn stuck(text: &str) -> (String, Vec<Act>) {
    let steps = vec![
        Step::Text { text: format!("reply to: {text}") },
        Step::Gate { name: "never".to_owned() },
    ];
    (text.to_owned(), vec![Reply::steps(steps).into()])
}

async fn c6_a_call_cut_in_mid_stream_is_made_once_more_and_followed_on(under: Under) -> Outcome {
    let [first, second] = messages();
    let script = Script {
        on: [stuck(&second.content)].map(|(text, acts)| (text, acts.into())).into(),
        ..Script::default()
    };
    let mut scene = Scene::on(under, script).await;
    scene.settle(std::slice::from_ref(&first)).await?;

    let node = Node::up(&scene.home).await?;
    let mut turn = node.client()?.send(&second).await?;
    turn.begun().await?;
    node.kill().await?;
    scene.kills += 1;

    // The client comes back with what it knows: the session and the turn.
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let reply = client.resume(&turn.session, &turn.turn).await?.completed().await?;
    assert_eq!(reply, "reply to: second");
    let found = scene.judge(&client, &[first, second]).await?;
    assert_eq!((found.requests, found.lost), (3, 1));
    node.stop().await
}

async fn c17_a_second_message_waits_for_its_turn_across_kills(under: Under) -> Outcome {
    let [first, second] = messages();
    let third = Message::new("ada", "third");
    let script = Script {
        on: [stuck(&first.content), stuck(&second.content)]
            .map(|(text, acts)| (text, acts.into()))
            .into(),
        ..Script::default()
    };
    let mut scene = Scene::on(under, script).await;
    // The first turn runs, two more messages are journaled beside it.
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let mut running = client.send(&first).await?;
    running.begun().await?;
    client.send(&second).await?;
    client.send(&third).await?;
    let session = first.session();
    client.history_when(&session, |history| history.turns.len() == 3).await?;
    node.kill().await?;
    scene.kills += 1;

    // The first ends, the second's call is in flight: killed there.
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    client.history_when(&session, |history| history.turns[0].outcome.is_some()).await?;
    scene.server.asked(3).await;
    node.kill().await?;
    scene.kills += 1;

    // No client sends anything again: what was accepted is finished by itself.
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    client.finished(&session, 3).await?;
    let found = scene.judge(&client, &[first, second, third]).await?;
    assert_eq!((found.turns, found.requests, found.lost), (3, 5, 2));
    node.stop().await
}

async fn c13_a_kill_during_a_snapshot_loses_nothing(under: Under) -> Outcome {
    for point in ["before-snapshot", "after-snapshot"] {
        let mut scene = Scene::on(under, Script::default()).await;
        scene.home = scene.home.var("CLAWNODE_SESSION__SNAPSHOT_EVERY", "10");
        // Each turn writes five events and more: one of these dies in a snapshot.
        let messages: Vec<Message> =
            (1..=4).map(|n| Message::new("ada", &format!("message {n}"))).collect();
        let mut node = Node::start(&scene.home, Start::killed(point)).await?;
        let client = node.client()?;
        for message in &messages {
            match client.chat(message).await {
                Ok(_) => {}
                Err(error) if error.is_lost() => break,
                Err(error) => return Err(error),
            }
        }
        scene.died(&mut node).await?;
        let found = scene.settle(&messages).await?;
        assert_eq!((found.turns, found.calls, found.requests), (4, 4, 4), "{point}");
    }
    Ok(())
}

async fn c16_a_poisoned_session_is_quarantined_and_the_others_go_on(under: Under) -> Outcome {
    let mut scene = Scene::on(under, Script::default()).await;
    let healthy = [Message::new("bob", "before"), Message::new("bob", "after")];
    let poisoned = Message::new("eve", "something xyzzy something");
    scene.settle(&healthy[..1]).await?;
    scene.die_at("poison:xyzzy", &poisoned).await?;
    // Five claims in all; each of them kills its process.
    for _ in 0..4 {
        scene.die_at_start("poison:xyzzy").await?;
    }
    let start = Start::killed("poison:xyzzy");
    let node = Node::start(&scene.home, start).await?;
    let client = node.client()?;
    // A further message to it is refused, and parked whole.
    let more = Message::new("eve", "are you there?");
    let refused = client.chat(&more).await.err().unwrap();
    assert_eq!(refused.refusal().map(|body| body.code.as_str()), Some("quarantined"), "{refused}");
    let status: Value = client.call("status", json!({})).await?;
    assert_eq!(status["quarantined"].as_array().map(Vec::len), Some(1), "{status}");

    // Its inputs are in the journal, whole: the first accepted, the second parked.
    let journal: Vec<Value> = client.journal(&poisoned.session()).await?;
    let kinds: Vec<&str> = journal.iter().map(|event| event["kind"].as_str().unwrap()).collect();
    let body_of =
        |kind: &str| &journal[kinds.iter().position(|other| *other == kind).unwrap()]["body"];
    let end = kinds.iter().position(|kind| *kind == "quarantined").unwrap();
    let claims = kinds[..end].iter().filter(|kind| **kind == "claim").count();
    assert_eq!(claims, 6, "five that died, and one to take it out of service: {kinds:?}");
    assert!(body_of("accepted").to_string().contains("xyzzy"), "{journal:?}");
    assert_eq!(body_of("parked")["input"]["idempotency_key"], more.key.as_str(), "{journal:?}");
    let body: Vec<u8> = serde_json::from_value(body_of("parked")["input"]["body"].clone()).unwrap();
    assert!(String::from_utf8_lossy(&body).contains(&more.content), "{journal:?}");

    // Everybody else is served by the same process.
    client.chat(&healthy[1]).await?;
    scene.judge(&client, &healthy).await?;
    node.stop().await?;

    // Where nothing kills it any more it is put back in service, and what was parked is served.
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let session = json!({ "session": poisoned.session() });
    let shown: Value = client.call("quarantine.show", session.clone()).await?;
    assert_eq!(shown["session"]["state"], "quarantined", "{shown}");
    let inputs = shown["inputs"].as_array().unwrap();
    assert_eq!(inputs.len(), 1, "{shown}");
    assert_eq!(inputs[0]["idempotency_key"], more.key.as_str(), "{shown}");
    let parked: Value = client.call("parked.list", json!({})).await?;
    assert_eq!(parked["parked"].as_array().map(Vec::len), Some(1), "{parked}");
    let done: Value = client.call("quarantine.replay", session.clone()).await?;
    assert_eq!(done["inputs"], 1, "{done}");
    client.finished(&poisoned.session(), 2).await?;
    let refused = client.call::<Value>("quarantine.replay", session).await.err().unwrap();
    assert_eq!(refused.refusal().map(|body| body.code.as_str()), Some("conflict"), "{refused}");
    let parked: Value = client.call("parked.list", json!({})).await?;
    assert_eq!(parked["parked"].as_array().map(Vec::len), Some(0), "{parked}");
    scene.judge(&client, &[&healthy[..], &[poisoned, more]].concat()).await?;
    node.stop().await
}
