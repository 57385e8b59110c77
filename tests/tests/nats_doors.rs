//! What only the NATS substrate does: being born, refusing, and living through a lost server. What
//! all substrates do alike is in the conformance suite.

use std::time::Duration;

use bytes::Bytes;
use clawnode_cluster::{
    AppendAnswer, BucketError, BusEvent, RequestError, StoreError, Substrate, Timer, Write,
    nats::{ConnectError, NatsOptions, connect},
};
use clawnode_proto::{
    EntityId, IdempotencyKey, Input, Kind, Position, TimerId, Timestamp, Traceparent,
};
use clawnode_tests::nats::{NatsServer, ServerOptions};
use futures_util::StreamExt;

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

fn options(server: &NatsServer) -> NatsOptions {
    NatsOptions { partitions: Some(4), ..NatsOptions::new([server.url()]) }
}

async fn substrate() -> Result<(NatsServer, Substrate)> {
    let server = NatsServer::start(ServerOptions::default()).await?;
    let substrate = connect(options(&server)).await?;
    Ok((server, substrate))
}

fn input(peer: &str, number: u32) -> Result<Input> {
    let key: IdempotencyKey = format!("key-{number}").parse()?;
    Ok(Input::new(Kind::Session, &format!("a:cli:local:{peer}"), key, Timestamp(1), &number)?)
}

fn write(text: &'static str) -> Write {
    Write { bytes: Bytes::from_static(text.as_bytes()), rollup: false }
}

fn stored(answer: AppendAnswer) -> Result<Position> {
    match answer {
        AppendAnswer::Stored(position) => Ok(position),
        other => Err(format!("not stored: {other:?}").into()),
    }
}

#[tokio::test]
async fn all_doors_open() -> Result {
    let (_server, ground) = substrate().await?;
    let entity = EntityId::derive(Kind::Session, "a:cli:local:p");

    let first = stored(ground.journal.append(entity, Position(0), write("one")).await)?;
    let second = stored(ground.journal.append(entity, first, write("two")).await)?;
    let stale = ground.journal.append(entity, first, write("three")).await;
    assert!(matches!(stale, AppendAnswer::Refused), "{stale:?}");
    let records = ground.journal.read(entity, Position(0)).await?;
    assert_eq!(records.iter().map(|r| r.position).collect::<Vec<_>>(), [first, second]);
    let rollup = Write { bytes: Bytes::from_static(b"all"), rollup: true };
    let third = stored(ground.journal.append(entity, second, rollup).await)?;
    let records = ground.journal.read(entity, first).await?;
    assert_eq!(records.len(), 1);
    assert_eq!((records[0].position, &records[0].bytes[..]), (third, &b"all"[..]));
    assert_eq!(ground.journal.entities(None, 10).await?, [entity]);

    let sent = input("p", 1)?;
    let position = ground.inbox.put(&sent).await?;
    let partition = sent.entity.partition(ground.partitions);
    assert_eq!(ground.inbox.pending(sent.entity).await?, 1);
    assert_eq!(ground.inbox.scan(partition).await?, [sent.entity]);
    let mut consumer = ground.inbox.consume(partition, 0).await?;
    let delivery = consumer.next().await?;
    assert_eq!((delivery.entity, delivery.position), (sent.entity, position));
    delivery.handle.ack().await?;

    let mut listener = ground.bus.subscribe("cn.test.*".to_owned()).await?;
    let trace = Traceparent("00-1-2-01".to_owned());
    ground.bus.publish("cn.test.a".to_owned(), Some(trace.clone()), Bytes::from("hi")).await?;
    match listener.next().await {
        Some(BusEvent::Message(message)) => {
            assert_eq!((&message.payload[..], message.traceparent), (&b"hi"[..], Some(trace)));
        }
        other => return Err(format!("{other:?}").into()),
    }
    let nobody =
        ground.bus.request("cn.nobody".to_owned(), Bytes::new(), Duration::from_secs(5)).await;
    assert!(matches!(nobody, Err(RequestError::NoResponders { .. })), "{nobody:?}");

    let mut changes = ground.bucket.watch("agent.").await?;
    let position = ground.bucket.put("agent.a", Position(0), Bytes::from("x"), None).await?;
    let change = changes.next().await.ok_or("watch ended")?;
    assert_eq!((change.key.as_str(), change.entry.is_some()), ("agent.a", true));
    let taken = ground.bucket.put("agent.a", Position(0), Bytes::from("y"), None).await;
    assert!(matches!(taken, Err(BucketError::Conflict { .. })), "{taken:?}");
    ground.bucket.delete("agent.a", position).await?;
    assert_eq!(changes.next().await.ok_or("watch ended")?.entry, None);
    let again = ground
        .bucket
        .put("agent.a", Position(0), Bytes::from("z"), Some(Duration::from_secs(1)))
        .await?;
    assert_eq!(changes.next().await.ok_or("watch ended")?.entry.map(|e| e.position), Some(again));
    assert_eq!(changes.next().await.ok_or("watch ended")?.entry, None, "its time is over");
    assert_eq!(ground.bucket.get("agent.a").await?, None);

    let content = Bytes::from(vec![7_u8; (1 << 20) + 5]);
    let digest = ground.blobs.put(content.clone()).await?;
    assert_eq!(ground.blobs.put(content.clone()).await?, digest);
    assert_eq!(ground.blobs.get(digest).await?, Some(content));
    assert_eq!(ground.blobs.list().await?, [digest]);
    ground.blobs.delete(digest).await?;
    assert_eq!(ground.blobs.get(digest).await?, None);

    let late = input("p", 2)?;
    let far =
        Timer { id: TimerId::from_u128(1), due: Timestamp(4_000_000_000_000), input: late.clone() };
    ground.timers.set(&far).await?;
    assert_eq!(ground.timers.pending(partition).await?, std::slice::from_ref(&far));
    ground.timers.set(&Timer { due: Timestamp(1), ..far }).await?;
    let delivery = consumer.next().await?;
    assert_eq!(Input::from_bytes(&delivery.bytes)?, late);
    assert_eq!(ground.timers.pending(partition).await?, []);

    ground.health.ready().await?;
    ground.health.close().await;
    ground.health.close().await;
    let closed = ground.journal.tail(entity).await;
    assert!(matches!(closed, Err(StoreError::Closed { .. })), "{closed:?}");
    Ok(())
}

#[tokio::test]
async fn partitions_are_fixed_at_birth() -> Result {
    let (server, first) = substrate().await?;
    let other = NatsOptions { partitions: Some(8), ..options(&server) };
    let refused = connect(other).await.err().ok_or("connected with other partitions")?;
    assert!(matches!(refused, ConnectError::Partitions { born: 4, configured: 8 }), "{refused}");
    let open = NatsOptions { partitions: None, ..options(&server) };
    assert_eq!(connect(open).await?.partitions, first.partitions);
    Ok(())
}

#[tokio::test]
async fn errors_at_start_say_what_to_do() -> Result {
    let nobody = NatsOptions {
        connect_timeout: Duration::from_secs(1),
        ..NatsOptions::new(["nats://me:secret@127.0.0.1:1"])
    };
    let error = connect(nobody).await.err().ok_or("connected to nobody")?.to_string();
    assert!(error.contains("cannot reach NATS at `nats://127.0.0.1:1`"), "{error}");
    assert!(error.contains("nats-server -js") && !error.contains("secret"), "{error}");

    let plain = ServerOptions { jetstream: false, ..ServerOptions::default() };
    let server = NatsServer::start(plain).await?;
    let error = connect(options(&server)).await.err().ok_or("connected without streams")?;
    assert!(matches!(error, ConnectError::NoJetStream { .. }), "{error}");
    Ok(())
}
