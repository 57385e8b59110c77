//! What streams keep and refuse.

use async_nats::{HeaderMap, header::NATS_ROLLUP};
use serde_json::json;

use crate::peer::{Result, WRONG_LAST_SEQUENCE, expecting, one};

#[tokio::test]
async fn a_literal_subject_fences_and_a_stale_append_is_10071() -> Result {
    let (_server, peer) = one().await?;
    peer.stream("J", &["j.>"], json!({ "deny_delete": true, "allow_rollup_hdrs": true })).await?;
    let first = peer.store("j.a", expecting(0), "one").await?;
    peer.store("j.b", expecting(0), "other subjects do not count").await?;
    let second = peer.store("j.a", expecting(first), "two").await?;
    for stale in [0, first, second + 1] {
        let answer = peer.publish("j.a", expecting(stale), "stale").await?;
        assert_eq!(answer["error"]["err_code"], WRONG_LAST_SEQUENCE, "{answer}");
    }
    assert_eq!(peer.count("J").await?, 3);
    Ok(())
}

#[tokio::test]
async fn a_rollup_replaces_its_subject_only_if_the_expectation_holds() -> Result {
    let (_server, peer) = one().await?;
    peer.stream("J", &["j.>"], json!({ "deny_delete": true, "allow_rollup_hdrs": true })).await?;
    let first = peer.store("j.a", expecting(0), "one").await?;
    let second = peer.store("j.a", expecting(first), "two").await?;
    peer.store("j.b", expecting(0), "other").await?;
    let mut stale = expecting(first);
    stale.insert(NATS_ROLLUP, "sub");
    let answer = peer.publish("j.a", stale, "stale").await?;
    assert_eq!(answer["error"]["err_code"], WRONG_LAST_SEQUENCE, "{answer}");
    assert_eq!(peer.count("J").await?, 3);
    let mut rollup = expecting(second);
    rollup.insert(NATS_ROLLUP, "sub");
    let third = peer.store("j.a", rollup, "all").await?;
    assert_eq!(peer.count("J").await?, 2, "what it replaced, and nothing else, is gone");
    peer.store("j.a", expecting(third), "four").await?;
    Ok(())
}

#[tokio::test]
async fn the_next_message_of_a_subject_is_read_at_the_leader() -> Result {
    let (_server, peer) = one().await?;
    peer.stream("J", &["j.>"], json!({})).await?;
    for subject in ["j.a", "j.b", "j.a"] {
        peer.store(subject, HeaderMap::new(), "x").await?;
    }
    let next = peer.get("J", json!({ "seq": 2, "next_by_subj": "j.a" })).await?;
    assert_eq!(next["message"]["seq"], 3, "{next}");
    let any = peer.get("J", json!({ "seq": 2, "next_by_subj": "j.*" })).await?;
    assert_eq!(any["message"]["seq"], 2, "{any}");
    let none = peer.get("J", json!({ "seq": 4, "next_by_subj": "j.a" })).await?;
    assert_eq!(none["error"]["err_code"], 10_037, "{none}");
    Ok(())
}
