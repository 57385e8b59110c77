//! Work queues: what comes again, and when.

use std::time::Duration;

use async_nats::{HeaderMap, jetstream::AckKind};
use serde_json::json;

use crate::peer::{PATIENCE, Peer, Result, WRONG_LAST_SEQUENCE, delivered, expecting, one, text};

async fn work_queue(peer: &Peer, ack_wait: Duration) -> Result {
    peer.stream("Q", &["q.>"], json!({ "retention": "workqueue" })).await?;
    let nanos = u64::try_from(ack_wait.as_nanos())?;
    let config = json!({
        "ack_wait": nanos, "max_deliver": -1, "max_ack_pending": -1, "filter_subject": "q.0.*",
    });
    peer.consumer("Q", "c", config).await
}

#[tokio::test]
async fn what_is_not_acknowledged_comes_again_unless_progress_is_told() -> Result {
    let (_server, peer) = one().await?;
    // Longer than a busy machine holds this test up.
    work_queue(&peer, Duration::from_secs(3)).await?;
    let mut pulled = peer.pull("Q", "c", json!({})).await?;
    peer.store("q.0.held", HeaderMap::new(), "held").await?;
    peer.store("q.0.left", HeaderMap::new(), "left").await?;
    let (held, left) = (pulled.next().await?, pulled.next().await?);
    assert_eq!((text(&held), text(&left)), ("held".to_owned(), "left".to_owned()));
    let mut beat = tokio::time::interval(Duration::from_millis(100));
    // Thrice the one that is left alone comes again, and never the one in hand.
    for expected in 2..=4 {
        let again = loop {
            tokio::select! {
                _ = beat.tick() => held.ack_with(AckKind::Progress).await?,
                again = pulled.next() => break again?,
            }
        };
        assert_eq!((text(&again), delivered(&again)?), ("left".to_owned(), expected));
    }
    held.double_ack().await?;
    assert_eq!(peer.count("Q").await?, 1, "an acknowledgement removes");
    // Also a late one, by the first holder: acknowledgements are not fenced.
    left.double_ack().await?;
    assert_eq!(peer.count("Q").await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_nak_brings_a_message_back_after_its_delay_and_at_once_without() -> Result {
    let (_server, peer) = one().await?;
    work_queue(&peer, PATIENCE).await?;
    let mut pulled = peer.pull("Q", "c", json!({})).await?;
    peer.store("q.0.a", HeaderMap::new(), "late").await?;
    peer.store("q.0.b", HeaderMap::new(), "soon").await?;
    let (late, soon) = (pulled.next().await?, pulled.next().await?);
    late.ack_with(AckKind::Nak(Some(Duration::from_secs(4)))).await?;
    soon.ack_with(AckKind::Nak(Some(Duration::ZERO))).await?;
    let first = pulled.next().await?;
    let second = pulled.next().await?;
    assert_eq!((text(&first), text(&second)), ("soon".to_owned(), "late".to_owned()));
    assert_eq!(delivered(&second)?, 2);
    Ok(())
}

#[tokio::test]
async fn a_subject_of_a_work_queue_is_empty_again_once_its_message_is_acknowledged() -> Result {
    let (_server, peer) = one().await?;
    work_queue(&peer, PATIENCE).await?;
    let mut pulled = peer.pull("Q", "c", json!({})).await?;
    for round in ["one", "two"] {
        peer.store("q.0.a", expecting(0), round).await?;
        let message = pulled.next().await?;
        assert_eq!((text(&message), delivered(&message)?), (round.to_owned(), 1));
        let again = peer.publish("q.0.a", expecting(0), "again").await?;
        assert_eq!(again["error"]["err_code"], WRONG_LAST_SEQUENCE, "in hand: {again}");
        message.double_ack().await?;
        assert_eq!(peer.count("Q").await?, 0);
    }
    Ok(())
}

#[tokio::test]
async fn a_pull_whose_answers_nobody_hears_takes_nothing() -> Result {
    let (_server, peer) = one().await?;
    work_queue(&peer, PATIENCE).await?;
    let gone = peer.pull("Q", "c", json!({ "batch": 1 })).await?;
    drop(gone);
    peer.settle().await?;
    let mut pulled = peer.pull("Q", "c", json!({ "batch": 1 })).await?;
    peer.store("q.0.a", HeaderMap::new(), "one").await?;
    let message = pulled.next().await?;
    assert_eq!((text(&message), delivered(&message)?), ("one".to_owned(), 1));
    Ok(())
}

#[tokio::test]
async fn a_pull_of_one_takes_one() -> Result {
    let (_server, peer) = one().await?;
    work_queue(&peer, PATIENCE).await?;
    let (mut first, mut second) =
        (peer.pull("Q", "c", json!({ "batch": 1 })).await?, peer.pull("Q", "c", json!({})).await?);
    for name in ["one", "two", "three"] {
        peer.store(&format!("q.0.{name}"), HeaderMap::new(), name).await?;
    }
    assert_eq!(text(&first.next().await?), "one");
    for name in ["two", "three"] {
        assert_eq!(text(&second.next().await?), name);
    }
    Ok(())
}

#[tokio::test]
async fn a_consumer_is_made_where_its_filter_is_seen_and_not_with_another() -> Result {
    let (_server, peer) = one().await?;
    peer.stream("Q", &["q.>"], json!({ "retention": "workqueue" })).await?;
    let make = |name: &'static str, told: &'static str, filter: &'static str| {
        let peer = &peer;
        let config = json!({
            "durable_name": name, "ack_policy": "explicit", "filter_subject": filter,
        });
        let question = json!({ "stream_name": "Q", "config": config, "action": "create" });
        async move { peer.api(&format!("CONSUMER.CREATE.Q.{name}.{told}"), &question).await }
    };
    let lie = make("one", "q.1.*", "q.>").await?;
    assert!(!lie["error"].is_null(), "{lie}");
    for _ in 0..2 {
        let answer = make("one", "q.1.*", "q.1.*").await?;
        assert!(answer["error"].is_null(), "made, and made again: {answer}");
    }
    let shared = make("two", "q.1.*", "q.1.*").await?;
    assert!(!shared["error"].is_null(), "a message of a work queue has one consumer: {shared}");
    let other = make("a:b=c-_D", "q.2.*", "q.2.*").await?;
    assert!(other["error"].is_null(), "{other}");
    Ok(())
}
