//! What outlives a leader.

use std::time::Duration;

use clawnode_tests::nats::{NatsCluster, ServerOptions};
use serde_json::json;

use crate::peer::{PATIENCE, Peer, Result, WRONG_LAST_SEQUENCE, expecting, text, until_it_works};
use crate::timers::{schedule, schedules};

#[tokio::test]
async fn an_append_outlives_its_leader_and_is_stored_once() -> Result {
    let mut cluster = NatsCluster::start(3, ServerOptions::default()).await?;
    let peer = Peer::connect(&cluster.urls()).await?;
    until_it_works(|| async {
        peer.stream("J", &["j.>"], json!({ "num_replicas": 3, "deny_delete": true })).await
    })
    .await?;
    let first = until_it_works(|| peer.store("j.a", expecting(0), "one")).await?;
    let leader = cluster.leader_of("J").await?;
    cluster.server(leader)?.kill()?;
    // Errors until there is a leader; then it is stored, or an earlier try of the same append was.
    let answer = until_it_works(|| async {
        let answer = peer.publish("j.a", expecting(first), "two").await?;
        let code = answer["error"]["err_code"].as_u64();
        if answer["error"].is_null() || code == Some(WRONG_LAST_SEQUENCE) {
            Ok(answer)
        } else {
            Err(answer.to_string().into())
        }
    })
    .await?;
    let last = until_it_works(|| async {
        let last = peer.get("J", json!({ "last_by_subj": "j.a" })).await?;
        last["message"]["seq"].as_u64().ok_or(last.to_string().into())
    })
    .await?;
    if answer["error"].is_null() {
        assert_eq!(answer["seq"], last);
    }
    assert!(last > first);
    cluster.server(leader)?.restart().await?;
    until_it_works(|| async {
        match peer.count("J").await? {
            2 => Ok(()),
            other => Err(format!("{other} messages").into()),
        }
    })
    .await
}

#[tokio::test]
async fn a_thousand_timers_arrive_although_both_leaders_die() -> Result {
    const TIMERS: usize = 1_000;
    let mut cluster = NatsCluster::start(3, ServerOptions::default()).await?;
    let peer = Peer::connect(&cluster.urls()).await?;
    until_it_works(|| schedules(&peer, 3)).await?;
    // Due while the leaders die: the clock of the server decides, so ask it for its time.
    let question = json!({});
    let info = until_it_works(|| peer.api("STREAM.INFO.T", &question)).await?;
    let now = info["ts"].as_str().ok_or("no time")?.to_owned();
    let due = later(&now, 4)?;
    for number in 0..TIMERS {
        // A stream this young may have no leader that answers yet.
        let name = format!("t{number}");
        until_it_works(|| schedule(&peer, &name, &due)).await?;
    }
    let mut arrived = std::collections::BTreeSet::new();
    let mut kills = 0;
    let all = tokio::time::timeout(3 * PATIENCE, async {
        while arrived.len() < TIMERS {
            let pull = json!({ "batch": 100, "expires": 2_000_000_000_u64 });
            let Ok(mut pulled) = peer.pull("I", "c", pull).await else { continue };
            while let Ok(Ok(message)) =
                tokio::time::timeout(Duration::from_secs(1), pulled.next()).await
            {
                // Acknowledged, so that the inbox is mostly empty when its leader dies.
                message.double_ack().await.ok();
                arrived.insert(text(&message));
            }
            // First the origin's leader, then the inbox's, each restarted.
            let stream = ["T", "I"].get(kills).filter(|_| arrived.len() > 100 * (kills + 1));
            if let Some(stream) = stream {
                let leader = cluster.leader_of(stream).await?;
                cluster.server(leader)?.restart().await?;
                kills += 1;
            }
        }
        Result::<()>::Ok(())
    })
    .await;
    match all {
        Ok(all) => all?,
        Err(_) => {
            return Err(format!("{} of {TIMERS} came, {kills} kills", arrived.len()).into());
        }
    }
    assert_eq!(kills, 2, "both leaders died while timers were on their way");
    Ok(())
}

/// The time that is `seconds` after an RFC 3339 time, within its day.
fn later(now: &str, seconds: u32) -> Result<String> {
    let (date, time) = now.split_once('T').ok_or("no time")?;
    let mut parts = time.split(['.', 'Z', ':']).map(str::parse::<u32>);
    let mut next = || parts.next().ok_or("too short");
    let total = next()?? * 3_600 + next()?? * 60 + next()?? + seconds;
    let (hour, minute, second) = (total / 3_600 % 24, total / 60 % 60, total % 60);
    // Past midnight it is in the past, which is due at once: which does not change the result.
    Ok(format!("{date}T{hour:02}:{minute:02}:{second:02}.000Z"))
}
