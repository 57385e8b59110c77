//! A stolen worker's credential destroys every journal, and the mirror brings them back as they were.

use bytes::Bytes;
use clawnode_cluster::{AppendAnswer, Record, Storage, Write};
use clawnode_nats::{auth::BusRole, connect};
use clawnode_proto::{EntityId, Kind, Position, subject::Prefix};
use serde_json::{Value, json};

use crate::support::{Operator, PATIENCE, Result, User, now};

/// What is mirrored.
const STREAMS: [&str; 2] = ["CN_JOURNAL", "CN_BLOBS"];

fn entity(name: &str) -> EntityId {
    EntityId::derive(Kind::SESSION, &format!("a:cli:local:{name}"))
}

async fn append(
    storage: &Storage,
    (entity, expected): (EntityId, Position),
    text: &str,
    rollup: bool,
) -> AppendAnswer {
    let write = Write { bytes: Bytes::from(text.to_owned()), rollup };
    storage.journal.append(entity, expected, write).await
}

/// Appends one after the other; the one called `snapshot` replaces those before it.
async fn fill(storage: &Storage, entity: EntityId, texts: &[&str]) -> Result<Position> {
    let mut at = Position(0);
    for text in texts {
        match append(storage, (entity, at), text, *text == "snapshot").await {
            AppendAnswer::Stored(position) => at = position,
            other => return Err(format!("{text}: {other:?}").into()),
        }
    }
    Ok(at)
}

async fn records(storage: &Storage, entity: EntityId) -> Result<Vec<Record>> {
    Ok(storage.journal.read(entity, Position(0)).await?)
}

/// Waits until the mirrors have all that their streams have.
async fn mirrored(keeper: &User, streams: &[&str]) -> Result {
    let last = async |stream: &str| {
        let info = format!("$JS.API.STREAM.INFO.{stream}");
        let answer = keeper.client.request(info, "{}".into()).await?;
        let answer: Value = serde_json::from_slice(&answer.payload)?;
        Ok::<_, Box<dyn std::error::Error>>(answer["state"]["last_seq"].clone())
    };
    for stream in streams {
        let kept = format!("{stream}_KEPT");
        let same = async {
            while last(stream).await? != last(&kept).await? {}
            Ok::<_, Box<dyn std::error::Error>>(())
        };
        tokio::time::timeout(PATIENCE, same).await??;
    }
    Ok(())
}

#[tokio::test]
async fn what_a_stolen_credential_of_nats_destroyed_comes_back_from_the_mirror() -> Result {
    let operator = Operator::new(1).await?;
    operator.token("worker").await?;
    let authority = operator.authority()?;
    let worker = authority.brief(BusRole::Worker, None, now(), 3_600)?;
    let storage = connect(operator.options(&worker)).await?;
    let keeper = operator.user(&authority.keeper(now(), 3_600)?).await?;
    let (one, two, three) = (entity("one"), entity("two"), entity("three"));
    // Some before there is a mirror, and some after.
    fill(&storage, one, &["a", "b"]).await?;
    let digest = storage.blobs.put(Bytes::from_static(b"content")).await?;
    for _ in 0..2 {
        operator.run(&["cluster", "mirror", "--keep", "30d"]).await?;
    }
    let tail = fill(&storage, two, &["c", "d", "snapshot", "e"]).await?;
    let before = (records(&storage, one).await?, records(&storage, two).await?);
    assert_eq!((before.0.len(), before.1.len()), (2, 2));
    mirrored(&keeper, &STREAMS).await?;

    let thief = operator.user(&authority.brief(BusRole::Worker, None, now(), 3_600)?).await?;
    let (prefix, partition) = (Prefix::default(), three.partition(storage.partitions));
    let mut all = async_nats::HeaderMap::new();
    all.insert("Nats-Rollup", "all");
    let wiped = prefix.journal(partition, three);
    thief.client.request_with_headers(wiped, all, "nothing".into()).await?;
    thief.client.request(prefix.blob(digest, "0"), "garbage".into()).await?;
    assert_eq!((records(&storage, one).await?, records(&storage, two).await?), (vec![], vec![]));
    assert!(storage.blobs.get(digest).await.is_err(), "nothing false is taken");
    mirrored(&keeper, &STREAMS).await?;

    let restored = operator.run(&["cluster", "restore", "--json"]).await?.json()?;
    assert_eq!(restored["streams"][0]["left_out"], json!(1), "{restored}");
    let storage = connect(operator.options(&worker)).await?;
    let after = (records(&storage, one).await?, records(&storage, two).await?);
    assert_eq!(after, before, "each record where it was");
    assert_eq!(records(&storage, three).await?, vec![]);
    assert_eq!(storage.blobs.get(digest).await?.as_deref(), Some(&b"content"[..]));
    // Fences hold, snapshots replace what was before them, and the mirror goes on.
    let stale = append(&storage, (two, Position(0)), "stale", false).await;
    assert!(matches!(stale, AppendAnswer::Refused), "{stale:?}");
    let next = append(&storage, (two, tail), "f", false).await;
    assert!(matches!(next, AppendAnswer::Stored(_)), "{next:?}");
    assert_eq!(records(&storage, two).await?.len(), 3);
    mirrored(&keeper, &STREAMS[..1]).await
}
