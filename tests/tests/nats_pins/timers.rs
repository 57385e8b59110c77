//! Messages with a time: to live, and to arrive.

use async_nats::{
    HeaderMap, HeaderValue,
    header::{
        NATS_MARKER_REASON, NATS_MESSAGE_TTL, NATS_ROLLUP, NATS_SCHEDULE, NATS_SCHEDULE_TARGET,
    },
};
use serde_json::json;

use crate::peer::{Peer, Result, WRONG_LAST_SEQUENCE, expecting, one, text};

#[tokio::test]
async fn a_message_with_a_time_to_live_leaves_a_marker() -> Result {
    let (_server, peer) = one().await?;
    let config = json!({
        "max_msgs_per_subject": 1, "allow_msg_ttl": true, "allow_rollup_hdrs": true,
        "subject_delete_marker_ttl": 60_000_000_000_u64,
    });
    peer.stream("B", &["b.>"], config).await?;
    peer.consumer("B", "w", json!({ "filter_subject": "b.>" })).await?;
    let mut watch = peer.pull("B", "w", json!({})).await?;
    let mut headers = expecting(0);
    headers.insert(NATS_MESSAGE_TTL, "1s");
    let first = peer.store("b.key", headers, "brief").await?;
    assert_eq!(text(&watch.next().await?), "brief");
    let marker = watch.next().await?;
    let reason = marker.headers.as_ref().and_then(|headers| headers.get(NATS_MARKER_REASON));
    assert_eq!(reason.map(HeaderValue::as_str), Some("MaxAge"));
    // The marker is in the way of who expects nothing, and of who expects the old one.
    for expected in [0, first] {
        let answer = peer.publish("b.key", expecting(expected), "x").await?;
        assert_eq!(answer["error"]["err_code"], WRONG_LAST_SEQUENCE, "{answer}");
    }
    // On top of it a message has its own time to live.
    let mut headers = expecting(marker.info()?.stream_sequence);
    headers.insert(NATS_MESSAGE_TTL, "1s");
    peer.store("b.key", headers, "again").await?;
    assert_eq!(text(&watch.next().await?), "again");
    assert!(watch.next().await?.payload.is_empty(), "it expires too");
    Ok(())
}

/// Streams as timers need them: schedules, moved to a work queue when due.
pub(crate) async fn schedules(peer: &Peer, replicas: u8) -> Result {
    let config = json!({
        "allow_msg_schedules": true, "allow_msg_ttl": true, "allow_rollup_hdrs": true,
        "num_replicas": replicas,
    });
    peer.stream("T", &["tmr.>", "due.>"], config).await?;
    let config = json!({
        "deliver_policy": "all", "deliver_subject": "feed", "filter_subject": "due.>",
        "ack_policy": "flow_control", "max_deliver": -1,
    });
    peer.consumer("T", "mover", config).await?;
    let config = json!({
        "retention": "workqueue", "num_replicas": replicas,
        "sources": [{
            "name": "T",
            "consumer": { "name": "mover", "deliver_subject": "feed" },
            "subject_transforms": [{ "src": "due.*", "dest": "in.{{wildcard(1)}}" }],
        }],
    });
    peer.stream("I", &["in.>"], config).await?;
    peer.consumer("I", "c", json!({ "max_ack_pending": -1 })).await
}

pub(crate) async fn schedule(peer: &Peer, name: &str, at: &str) -> Result<u64> {
    let mut headers = HeaderMap::new();
    headers.insert(NATS_SCHEDULE, format!("@at {at}"));
    headers.insert(NATS_SCHEDULE_TARGET, format!("due.{name}"));
    headers.insert(NATS_ROLLUP, "sub");
    peer.store(&format!("tmr.{name}"), headers, name).await
}

#[tokio::test]
async fn a_schedule_in_the_past_arrives_through_the_source_and_removes_itself() -> Result {
    let (_server, peer) = one().await?;
    schedules(&peer, 1).await?;
    schedule(&peer, "far", "2099-01-01T00:00:00.000Z").await?;
    schedule(&peer, "moved", "2099-01-01T00:00:00.000Z").await?;
    // A schedule under the same subject replaces the first.
    schedule(&peer, "moved", "2001-01-01T00:00:00.000Z").await?;
    let mut pulled = peer.pull("I", "c", json!({})).await?;
    let due = pulled.next().await?;
    assert_eq!((due.subject.as_str(), text(&due)), ("in.moved", "moved".to_owned()));
    let left = peer.get("T", json!({ "seq": 1, "next_by_subj": "tmr.*" })).await?;
    assert_eq!(left["message"]["subject"], "tmr.far", "{left}");
    let none = peer.get("T", json!({ "last_by_subj": "tmr.moved" })).await?;
    assert_eq!(none["error"]["err_code"], 10_037, "{none}");
    Ok(())
}
