//! FOREIGN-1 and KILL-4: a user that may send any request to the servers can have them write their
//! words anywhere. None of that is taken for a record, and none blocks one. What it could stop is
//! shown, and can be started again.

use bytes::Bytes;
use clawnode_cluster::{AppendAnswer, Storage, StoreError, Write};
use clawnode_nats::{
    auth::{BusRole, JoinToken},
    connect,
};
use clawnode_proto::{
    CallId, EntityId, EventId, IdempotencyKey, Input, JobId, Kind, Position, Timestamp, TurnId,
    job::Job, subject::Prefix, tool::EffectClass,
};
use clawnode_tests::process::{Client, Message, Node};
use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::support::{Operator, PATIENCE, Result, User, host, now, refused};

/// A cluster, the handles of a worker, and a thief with a stolen worker's credential.
async fn scene() -> Result<(Operator, Storage, User)> {
    let operator = Operator::new(1).await?;
    // Gives birth.
    operator.token("worker").await?;
    let authority = operator.authority()?;
    let worker = authority.brief(BusRole::Worker, None, now(), 3_600)?;
    let stolen = authority.brief(BusRole::Worker, None, now(), 3_600)?;
    let storage = connect(operator.options(&worker)).await?;
    let thief = operator.user(&stolen).await?;
    Ok((operator, storage, thief))
}

/// Has the server write under a subject that `stream` keeps, and waits until it did.
async fn have_written(thief: &User, stream: &str, subject: &str) -> Result {
    let state = async || {
        let asked = json!({ "subjects_filter": subject }).to_string();
        let info = format!("$JS.API.STREAM.INFO.{stream}");
        let answer = thief.client.request(info, asked.into()).await?;
        let answer: Value = serde_json::from_slice(&answer.payload)?;
        Ok::<_, Box<dyn std::error::Error>>(answer["state"]["last_seq"].as_u64())
    };
    let before = state().await?;
    thief.client.publish_with_reply("$JS.API.INFO", subject.to_owned(), "".into()).await?;
    tokio::time::timeout(PATIENCE, async {
        while state().await? == before {}
        Ok(())
    })
    .await?
}

fn entity() -> EntityId {
    EntityId::derive(Kind::SESSION, "a:cli:local:p")
}

async fn append(storage: &Storage, expected: Position, text: &str, rollup: bool) -> AppendAnswer {
    let write = Write { bytes: Bytes::from(text.to_owned()), rollup };
    storage.journal.append(entity(), expected, write).await
}

async fn stored(
    storage: &Storage,
    expected: Position,
    text: &str,
    rollup: bool,
) -> Result<Position> {
    match append(storage, expected, text, rollup).await {
        AppendAnswer::Stored(position) => Ok(position),
        other => Err(format!("{text}: {other:?}").into()),
    }
}

async fn texts(storage: &Storage) -> Result<Vec<String>> {
    let records = storage.journal.read(entity(), Position(0)).await?;
    let text =
        |record: clawnode_cluster::Record| String::from_utf8_lossy(&record.bytes).into_owned();
    Ok(records.into_iter().map(text).collect())
}

#[tokio::test]
async fn foreign_1_a_journal_of_nats_skips_the_servers_words_and_its_fence_holds() -> Result {
    let (_operator, storage, thief) = scene().await?;
    let partition = entity().partition(storage.partitions);
    let subject = Prefix::default().journal(partition, entity());
    let spoil = async || have_written(&thief, "CN_JOURNAL", &subject).await;
    // Before anything, between records, and at the end.
    spoil().await?;
    assert_eq!((texts(&storage).await?.len(), storage.journal.tail(entity()).await?), (0, None));
    let one = stored(&storage, Position(0), "one", false).await?;
    spoil().await?;
    spoil().await?;
    let tail = storage.journal.tail(entity()).await?.map(|record| record.position);
    assert_eq!(tail, Some(one));
    let two = stored(&storage, one, "two", false).await?;
    spoil().await?;
    assert_eq!(texts(&storage).await?, ["one", "two"]);
    // Who was overtaken is fenced, whatever else is there.
    for stale in [Position(0), one] {
        let refused = append(&storage, stale, "stale", false).await;
        assert!(matches!(refused, AppendAnswer::Refused), "FOREIGN-1: {refused:?}");
    }
    let snapshot = stored(&storage, two, "snapshot", true).await?;
    spoil().await?;
    assert_eq!(texts(&storage).await?, ["snapshot"]);
    let refused = append(&storage, two, "stale", true).await;
    assert!(matches!(refused, AppendAnswer::Refused), "FOREIGN-1: {refused:?}");
    stored(&storage, snapshot, "three", false).await?;
    assert_eq!(texts(&storage).await?, ["snapshot", "three"]);
    // An operator sees a warning.
    let warnings = storage.health.warnings().await;
    assert!(warnings.iter().any(|warning| warning.name == "bus.foreign"), "{warnings:?}");
    Ok(())
}

fn job() -> Result<Job> {
    Ok(Job {
        id: JobId::from_u128(1),
        capability: "mcp:files.v1".parse()?,
        session: "a:cli:local:p".parse()?,
        turn: TurnId::from_u128(1),
        call: CallId::from_u128(1),
        nonce: EventId::from_u128(1),
        tool: "tool".parse()?,
        arguments: "{}".to_owned(),
        class: EffectClass::Safe,
        timeout_ms: 1_000,
        limit: None,
        action: None,
        callbacks: None,
        traceparent: None,
        not_after: None,
    })
}

#[tokio::test]
async fn foreign_1_inboxes_and_queues_of_nats_let_go_of_the_servers_words() -> Result {
    let (_operator, storage, thief) = scene().await?;
    let partition = entity().partition(storage.partitions);
    let subject = Prefix::default().input(partition, entity());
    have_written(&thief, "CN_INBOX", &subject).await?;
    let key: IdempotencyKey = "one".parse()?;
    let input = Input::new(Kind::SESSION, "a:cli:local:p", key, Timestamp(1), &1)?;
    let position = storage.inbox.put(&input).await?;
    let waiting = storage.inbox.read(entity(), Position(0)).await?;
    assert_eq!(waiting.iter().map(|waiting| waiting.position).collect::<Vec<_>>(), [position]);
    let mut consumer = storage.inbox.consume(partition, 0).await?;
    let delivery = tokio::time::timeout(PATIENCE, consumer.next()).await??;
    assert_eq!(delivery.position, position, "FOREIGN-1");
    delivery.handle.ack().await?;
    tokio::time::timeout(PATIENCE, async {
        while !storage.inbox.scan(partition).await?.is_empty() {}
        Ok::<_, StoreError>(())
    })
    .await??;

    let job = job()?;
    let other = Prefix::default().job(&job.capability, JobId::from_u128(2));
    have_written(&thief, "CN_JOBS", &other).await?;
    storage.jobs.put(&job).await?;
    let mut consumer = storage.jobs.consume(&job.capability).await?;
    let taken = tokio::time::timeout(PATIENCE, consumer.next()).await??;
    assert_eq!(taken.job_id, job.id, "FOREIGN-1");
    taken.handle.ack().await?;
    tokio::time::timeout(PATIENCE, async {
        while storage.jobs.pending(&job.capability).await? > 0 {}
        Ok::<_, StoreError>(())
    })
    .await??;
    Ok(())
}

/// What is stopped, once it is so many.
async fn stops(client: &Client, wanted: usize) -> Result<Vec<Value>> {
    tokio::time::timeout(PATIENCE, async {
        loop {
            let list: Value = client.call("panic.list", json!({})).await?;
            match list["latches"].as_array() {
                Some(switches) if switches.len() == wanted => return Ok(switches.clone()),
                _ => {}
            }
        }
    })
    .await?
}

#[tokio::test]
async fn kill_4_a_record_that_a_stolen_credential_of_nats_spoils_is_seen_and_cleared() -> Result {
    let operator = Operator::new(1).await?;
    let token = operator.token("gateway,worker").await?;
    let home = host(token["token"].as_str().unwrap())?;
    let node = Node::up(&home).await?;
    let authority = operator.authority()?;
    let stolen = authority.brief(BusRole::Worker, None, now(), 3_600)?;
    let thief = operator.user(&stolen).await?;
    let client = node.client()?;
    assert_eq!(stops(&client, 0).await?.len(), 0);
    for key in ["latch.all", "latch.zz"] {
        have_written(&thief, "CN_BUCKET", &Prefix::default().bucket(key)).await?;
        let shown = stops(&client, 1).await?;
        assert_eq!(shown[0]["scope"], "all", "{shown:?}");
        assert!(shown[0].to_string().contains(key), "{shown:?}");
        let cleared = json!({ "latch": shown[0]["id"] });
        let _: Value = client.call("panic.clear", cleared).await?;
        assert_eq!(stops(&client, 0).await?.len(), 0);
        let reply = client.chat(&Message::new("ada", "hello")).await?;
        assert!(reply.contains("hello"), "KILL-4: {reply}");
    }
    // It keeps no node from starting.
    for key in ["latch.all", "latch.tool.x", "latch.zz"] {
        have_written(&thief, "CN_BUCKET", &Prefix::default().bucket(key)).await?;
    }
    node.stop().await?;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    for left in (1..=3).rev() {
        let shown = stops(&client, left).await?;
        let _: Value = client.call("panic.clear", json!({ "latch": shown[0]["id"] })).await?;
    }
    let reply = client.chat(&Message::new("ada", "again")).await?;
    assert!(reply.contains("again"), "{reply}");
    node.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_join_token_of_nats_that_was_used_is_worth_nothing() -> Result {
    let operator = Operator::new(1).await?;
    let made = operator.token("gateway,worker").await?;
    let text = made["token"].as_str().unwrap();
    let home = host(text)?;
    let node = Node::up(&home).await?;
    let token = JoinToken::from_text(text)?;
    let mut thief = operator.user(&token.admission).await?;
    // It waits for its offer, and hears that it is gone.
    let subject = Prefix::default().joining(token.admission.user());
    let mut offers = thief.client.queue_subscribe(subject, "takers".to_owned()).await?;
    let word = tokio::time::timeout(PATIENCE, offers.next()).await?.ok_or("nothing")?;
    assert_eq!(word.status, Some(async_nats::StatusCode::IDLE_HEARTBEAT), "{word:?}");
    assert!(word.payload.is_empty(), "{word:?}");
    // What the node hears, which has the same user, is not for it; nor may it say anything.
    for subject in [format!("_INBOX.{}.>", token.admission.user()), ">".to_owned()] {
        drop(thief.client.subscribe(subject.clone()).await?);
        crate::support::told(&mut thief, |event| {
            event.to_string().contains(&format!("\"{subject}\"")).then_some(())
        })
        .await?;
    }
    for subject in ["$JS.API.INFO", "cn.kv.latch.all", "cn.offer.x", "cn.birth"] {
        thief.client.publish_with_reply(subject, "cn.kv.latch.all", "{}".into()).await?;
        crate::support::told(&mut thief, |event| {
            event
                .to_string()
                .to_lowercase()
                .contains("permissions violation for publish")
                .then_some(())
        })
        .await?;
    }
    let client = node.client()?;
    assert_eq!(stops(&client, 0).await?.len(), 0);
    let reply = client.chat(&Message::new("ada", "hello")).await?;
    assert!(reply.contains("hello"), "{reply}");
    node.stop().await?;
    let again = refused(&host(text)?, "worker").await?;
    assert!(again.code == 77 && again.err.contains("used already"), "{again:?}");
    Ok(())
}
