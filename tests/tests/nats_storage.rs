//! What only the NATS storage backend does: it is created, refuses logins and settings, and survives a lost or frozen
//! server. What all storage backends do alike is in the conformance suite.

use std::{path::Path, process::Command, sync::Arc, time::Duration};

use bytes::Bytes;
use clawnode_cluster::{
    AppendAnswer, Clock as _, Consumer, JobConsumer, Overdue, Storage, StoreError, SystemClock,
    Timer, Write,
};
use clawnode_nats::{Birth, ConnectError, NatsOptions, Replicas, connect};
use clawnode_proto::{
    CallId, EntityId, EventId, IdempotencyKey, Input, InputId, JobId, Kind, Partition, Position,
    TimerId, Timestamp, TurnId, codec, job::Job, limits, subject::Prefix, tool::EffectClass,
};
use clawnode_tests::{
    nats::{NatsCluster, NatsServer, ServerOptions, binary},
    wait::until,
};
use serde_json::{Value, json};

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Long enough that reaching it means a bug, not a slow machine.
const PATIENCE: Duration = Duration::from_mins(1);
const NONE: Position = Position(0);

fn options(server: &NatsServer) -> NatsOptions {
    NatsOptions { partitions: Some(4), ..NatsOptions::new([server.url()]) }
}

async fn storage() -> Result<(NatsServer, Storage)> {
    let server = NatsServer::start(ServerOptions::default()).await?;
    let storage = connect(options(&server)).await?;
    Ok((server, storage))
}

async fn refused(options: NatsOptions) -> Result<ConnectError> {
    Ok(connect(options).await.err().ok_or("connected")?)
}

/// Asks the server's API directly, past our stores.
async fn api(server: &NatsServer, subject: &str, question: &Value) -> Result<Value> {
    let client = async_nats::connect(server.url()).await?;
    let answer = client.request(format!("$JS.API.{subject}"), question.to_string().into()).await?;
    let answer: Value = serde_json::from_slice(&answer.payload)?;
    if answer["error"].is_null() { Ok(answer) } else { Err(answer.to_string().into()) }
}

fn entity() -> EntityId {
    EntityId::derive(Kind::SESSION, "a:cli:local:p")
}

fn input(number: u32) -> Result<Input> {
    let key: IdempotencyKey = format!("key-{number}").parse()?;
    Ok(Input::new(Kind::SESSION, "a:cli:local:p", key, Timestamp(1), &number)?)
}

fn job(number: u128) -> Result<Job> {
    Ok(Job {
        id: JobId::from_u128(number),
        capability: "mcp:files.v1".parse()?,
        session: "a:cli:local:p".parse()?,
        turn: TurnId::from_u128(1),
        call: CallId::from_u128(number),
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

/// Takes the next job, past errors that time heals, and acknowledges it.
async fn done(consumer: &mut Box<dyn JobConsumer>) -> Result<JobId> {
    let delivery = tokio::time::timeout(PATIENCE, async {
        loop {
            match consumer.next().await {
                Err(error) if error.is_transient() => {}
                delivery => return delivery,
            }
        }
    });
    let delivery = delivery.await??;
    delivery.handle.ack().await?;
    Ok(delivery.job_id)
}

fn write(text: &'static str) -> Write {
    Write { bytes: Bytes::from_static(text.as_bytes()), rollup: false }
}

/// The next delivery, past errors that time heals.
async fn next(consumer: &mut Box<dyn Consumer>) -> Result<clawnode_cluster::Delivery> {
    tokio::time::timeout(PATIENCE, async {
        loop {
            match consumer.next().await {
                Err(error) if error.is_transient() => {}
                delivery => return delivery,
            }
        }
    })
    .await?
    .map_err(Into::into)
}

/// Appends as a caller must: the same again until the answer is conclusive.
async fn settled(storage: &Storage, expected: Position, text: &'static str) -> Result<Position> {
    tokio::time::timeout(PATIENCE, async {
        loop {
            match storage.journal.append(entity(), expected, write(text)).await {
                AppendAnswer::Stored(position) => return Ok(position),
                // An earlier try was stored, if the record there is ours.
                AppendAnswer::Refused => match storage.journal.read(entity(), expected).await {
                    Ok(records) => match records.first() {
                        Some(record) if record.bytes == text => return Ok(record.position),
                        Some(_) => return Err("fenced".into()),
                        None => {}
                    },
                    Err(error) if error.is_transient() => {}
                    Err(error) => return Err(error.into()),
                },
                AppendAnswer::Unknown(_) => {}
                AppendAnswer::Defect(error) => return Err(error.into()),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await?
}

#[tokio::test]
async fn partitions_are_fixed_at_birth() -> Result {
    let (server, first) = storage().await?;
    let error = refused(NatsOptions { partitions: Some(8), ..options(&server) }).await?;
    assert!(matches!(error, ConnectError::Partitions { born: 4, configured: 8 }), "{error}");
    let open = NatsOptions { partitions: None, ..options(&server) };
    assert_eq!(connect(open).await?.partitions, first.partitions);
    // Another prefix is another cluster.
    let prefix: Prefix = "other".parse()?;
    let other = connect(NatsOptions { prefix, partitions: Some(2), ..options(&server) }).await?;
    assert_eq!(other.partitions, 2);
    assert_eq!(other.journal.tail(entity()).await?, None);
    Ok(())
}

#[tokio::test]
async fn nodes_that_start_together_are_of_one_cluster() -> Result {
    let server = Arc::new(NatsServer::start(ServerOptions::default()).await?);
    let mut nodes = tokio::task::JoinSet::new();
    for _ in 0..8 {
        nodes.spawn(connect(options(&server)));
    }
    let mut storages = Vec::new();
    while let Some(node) = nodes.join_next().await {
        storages.push(node??);
    }
    storages[0].inbox.put(&input(1)?).await?;
    let partition = entity().partition(4);
    let mut consumer = storages[7].inbox.consume(partition, 0).await?;
    assert_eq!(next(&mut consumer).await?.entity, entity());
    Ok(())
}

#[tokio::test]
async fn errors_at_start_say_what_to_do() -> Result {
    let patience = Duration::from_secs(1);
    let nobody = NatsOptions {
        connect_timeout: patience,
        ..NatsOptions::new(["nats://me:secret@127.0.0.1:1"])
    };
    let error = refused(nobody).await?.to_string();
    assert!(error.contains("cannot reach NATS at `nats://127.0.0.1:1`"), "{error}");
    assert!(error.contains("nats-server -js") && !error.contains("secret"), "{error}");

    let plain = ServerOptions { jetstream: false, ..ServerOptions::default() };
    let server = NatsServer::start(plain).await?;
    let error = refused(options(&server)).await?;
    assert!(matches!(error, ConnectError::NoJetStream { .. }), "{error}");

    let guarded = ServerOptions {
        extra: "authorization { token: right }".to_owned(),
        ..ServerOptions::default()
    };
    let server = NatsServer::start(guarded).await?;
    let error = refused(options(&server)).await?;
    assert!(matches!(error, ConnectError::Login { .. }), "{error}");

    let server = NatsServer::start(ServerOptions::default()).await?;
    let three = NatsOptions { replicas: Replicas::Three, ..options(&server) };
    let error = refused(NatsOptions { ready_timeout: patience, ..three }).await?;
    assert!(matches!(error, ConnectError::Replicas { .. }), "{error}");
    let missing = NatsOptions { credentials: Some("/no/such.creds".into()), ..options(&server) };
    let error = refused(missing).await?.to_string();
    assert!(error.contains("`/no/such.creds`"), "{error}");
    Ok(())
}

#[tokio::test]
async fn servers_that_have_no_quorum_yet_are_waited_for() -> Result {
    let mut cluster = NatsCluster::start(3, ServerOptions::default()).await?;
    for late in [1, 2] {
        cluster.server(late)?.kill()?;
    }
    let brief = Duration::from_millis(500);
    let options = NatsOptions {
        partitions: Some(4),
        request_timeout: brief * 4,
        ready_timeout: PATIENCE,
        ..NatsOptions::new([cluster.server(0)?.url()])
    };
    let hasty = NatsOptions { request_timeout: brief, ready_timeout: brief, ..options.clone() };
    let error = refused(hasty).await?;
    assert!(matches!(error, ConnectError::NotReady { .. }), "{error}");
    let mut connecting = Box::pin(connect(options));
    let waits = tokio::time::timeout(brief * 6, &mut connecting).await;
    assert!(waits.is_err(), "connected or gave up: {:?}", waits.map(Result::err));
    for late in [1, 2] {
        cluster.server(late)?.restart().await?;
    }
    let storage = connecting.await?;
    settled(&storage, NONE, "a").await.map(drop)
}

#[tokio::test]
async fn a_changed_or_lost_stream_is_named_and_not_made_again() -> Result {
    let (server, _storage) = storage().await?;
    let info = api(&server, "STREAM.INFO.CN_JOURNAL", &json!({})).await?;
    let mut config = info["config"].clone();
    config["allow_direct"] = json!(true);
    api(&server, "STREAM.UPDATE.CN_JOURNAL", &config).await?;
    let error = refused(options(&server)).await?.to_string();
    assert!(error.contains("`allow_direct` in `CN_JOURNAL` is true"), "{error}");

    config["allow_direct"] = json!(false);
    api(&server, "STREAM.UPDATE.CN_JOURNAL", &config).await?;
    connect(options(&server)).await?;
    api(&server, "STREAM.DELETE.CN_BUCKET", &json!({})).await?;
    let error = refused(options(&server)).await?.to_string();
    assert!(error.contains("`CN_BUCKET`") && error.contains("is missing"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_removed_consumer_is_made_again_and_delivers_what_waits() -> Result {
    let (server, storage) = storage().await?;
    let sent = storage.inbox.put(&input(1)?).await?;
    let Partition(partition) = entity().partition(storage.partitions);
    api(&server, &format!("CONSUMER.DELETE.CN_INBOX.p{partition}"), &json!({})).await?;
    let mut consumer = storage.inbox.consume(Partition(partition), 0).await?;
    assert_eq!(next(&mut consumer).await?.position, sent);
    Ok(())
}

#[tokio::test]
async fn a_forbidden_append_is_a_defect_and_not_repeated_for_ever() -> Result {
    let users = r#"authorization { users: [
        { user: all, password: a }
        { user: some, password: s, permissions: { publish: { deny: ["cn.j.>"] } } }
    ] }"#;
    let guarded = ServerOptions { extra: users.to_owned(), ..ServerOptions::default() };
    let server = NatsServer::start(guarded).await?;
    let url = |user: &str| server.url().replace("nats://", &format!("nats://{user}@"));
    connect(NatsOptions { urls: vec![url("all:a")], ..options(&server) }).await?;
    let short = Duration::from_secs(2);
    let some =
        NatsOptions { urls: vec![url("some:s")], request_timeout: short, ..options(&server) };
    let storage = connect(some).await?;
    let append = async || storage.journal.append(entity(), NONE, write("x")).await;
    let mut answer = append().await;
    if matches!(answer, AppendAnswer::Unknown(_)) {
        // The refusal is no answer, and may come after the time of the append. A server takes what one connection sends in
        // order: before it answers a later question, it has sent the refusal. So no second append is unknown.
        until("an answer", async || Ok(storage.journal.tail(entity()).await.ok())).await?;
        answer = append().await;
    }
    assert!(matches!(answer, AppendAnswer::Defect(StoreError::Refused { .. })), "{answer:?}");
    Ok(())
}

#[tokio::test]
async fn a_frozen_server_makes_appends_unknown_and_loses_nothing() -> Result {
    let server = NatsServer::start(ServerOptions::default()).await?;
    let short = Duration::from_secs(2);
    let storage = connect(NatsOptions { request_timeout: short, ..options(&server) }).await?;
    let first = settled(&storage, NONE, "one").await?;
    server.freeze()?;
    let answer = storage.journal.append(entity(), first, write("two")).await;
    assert!(matches!(answer, AppendAnswer::Unknown(_)), "{answer:?}");
    assert!(storage.health.ready().await.is_err());
    server.thaw()?;
    settled(&storage, first, "two").await?;
    let records = storage.journal.read(entity(), NONE).await?;
    let texts: Vec<_> = records.iter().map(|record| &record.bytes[..]).collect();
    assert_eq!(texts, [b"one", b"two"], "stored once, although it was sent twice");
    Ok(())
}

#[tokio::test]
async fn a_killed_server_is_found_again() -> Result {
    let (mut server, storage) = storage().await?;
    let first = settled(&storage, NONE, "one").await?;
    let mut consumer = storage.inbox.consume(entity().partition(storage.partitions), 0).await?;
    let mut heard = storage.bus.subscribe("cn.test".to_owned()).await?;
    server.kill()?;
    let answer = storage.journal.append(entity(), first, write("two")).await;
    assert!(matches!(answer, AppendAnswer::Unknown(_)), "{answer:?}");
    server.restart().await?;
    settled(&storage, first, "two").await?;
    let put = storage.inbox.put(&input(1)?).await?;
    assert_eq!(next(&mut consumer).await?.position, put, "the pull was sent again");
    storage.bus.publish("cn.test".to_owned(), None, Bytes::from_static(b"x")).await?;
    let event = tokio::time::timeout(PATIENCE, futures_util::StreamExt::next(&mut heard)).await?;
    assert!(event.is_some());
    Ok(())
}

#[tokio::test]
async fn a_closed_storage_says_so() -> Result {
    let (_server, storage) = storage().await?;
    let mut consumer = storage.inbox.consume(Partition(0), 0).await?;
    let mut changes = storage.bucket.watch("").await?;
    storage.health.close().await;
    storage.health.close().await;
    let closed = storage.journal.tail(entity()).await;
    assert!(matches!(closed, Err(StoreError::Closed { .. })), "{closed:?}");
    assert!(matches!(consumer.next().await, Err(StoreError::Closed { .. })));
    assert_eq!(futures_util::StreamExt::next(&mut changes).await, None);
    Ok(())
}

#[tokio::test]
async fn journals_and_inboxes_survive_the_loss_of_each_leader() -> Result {
    let mut cluster = NatsCluster::start(3, ServerOptions::default()).await?;
    let options = NatsOptions { partitions: Some(2), ..NatsOptions::new(cluster.urls()) };
    let storage = connect(options).await?;
    let partition = entity().partition(storage.partitions);
    let mut consumer = storage.inbox.consume(partition, 0).await?;
    let mut last = settled(&storage, NONE, "begin").await?;
    for (number, text) in [(1, "one"), (2, "two")] {
        let leader = if number == 1 {
            cluster.leader_of("CN_JOURNAL").await?
        } else {
            cluster.consumer_leader_of("CN_INBOX", &format!("p{partition}")).await?
        };
        cluster.server(leader)?.kill()?;
        last = settled(&storage, last, text).await?;
        let put = tokio::time::timeout(PATIENCE, async {
            loop {
                match storage.inbox.put(&input(number)?).await {
                    Err(error) if error.is_transient() => {}
                    put => return Result::<_>::Ok(put?),
                }
            }
        })
        .await??;
        // An earlier try may be stored too; all of them arrive.
        loop {
            let delivery = next(&mut consumer).await?;
            delivery.handle.ack().await?;
            if delivery.position == put {
                break;
            }
        }
        cluster.server(leader)?.restart().await?;
        cluster.settled().await?;
    }
    let records = storage.journal.read(entity(), NONE).await?;
    let texts: Vec<_> = records.iter().map(|record| &record.bytes[..]).collect();
    assert_eq!(texts, [&b"begin"[..], b"one", b"two"]);
    Ok(())
}

#[tokio::test]
async fn jobs_live_through_the_loss_of_each_leader() -> Result {
    let mut cluster = NatsCluster::start(3, ServerOptions::default()).await?;
    let options = NatsOptions { partitions: Some(2), ..NatsOptions::new(cluster.urls()) };
    let storage = connect(options).await?;
    let mut consumer = storage.jobs.consume(&job(0)?.capability).await?;
    for number in [1, 2] {
        let leader = if number == 1 {
            cluster.leader_of("CN_JOBS").await?
        } else {
            cluster.consumer_leader_of("CN_JOBS", "mcp:files=v1").await?
        };
        // A pull waits at the one that goes.
        let look = tokio::time::timeout(Duration::from_millis(50), consumer.next()).await;
        assert!(look.is_err(), "{look:?}");
        cluster.server(leader)?.kill()?;
        let put = job(number)?;
        tokio::time::timeout(PATIENCE, async {
            loop {
                match storage.jobs.put(&put).await {
                    Err(error) if error.is_transient() => {}
                    put => return put,
                }
            }
        })
        .await??;
        assert_eq!(done(&mut consumer).await?, put.id);
        cluster.server(leader)?.restart().await?;
        cluster.settled().await?;
    }
    Ok(())
}

/// A server that lost track of a timer: it has a schedule that says another time.
async fn lose(server: &NatsServer, storage: &Storage, due: u64, input: Bytes) -> Result {
    let (prefix, lost): (Prefix, _) = ("cn".parse()?, TimerId::from_u128(1));
    let partition = entity().partition(storage.partitions);
    let mut headers = async_nats::HeaderMap::new();
    for (name, value) in [
        ("Nats-Schedule", "@at 2099-01-01T00:00:00Z".to_owned()),
        ("Nats-Schedule-Target", prefix.due(partition, entity(), lost)),
        ("Nats-Schedule-TTL", "168h".to_owned()),
        ("Nats-Rollup", "sub".to_owned()),
        ("Clawnode-Due", due.to_string()),
    ] {
        headers.insert(name, value);
    }
    let subject = prefix.timer(partition, entity(), lost);
    let stream = async_nats::jetstream::new(async_nats::connect(server.url()).await?);
    stream.publish_with_headers(subject, headers, input).await?.await?;
    Ok(())
}

#[tokio::test]
async fn a_timer_that_the_server_does_not_fire_is_set_again() -> Result {
    let (server, storage) = storage().await?;
    let partition = entity().partition(storage.partitions);
    let mut consumer = storage.inbox.consume(partition, 0).await?;
    let now = SystemClock.now();
    let far = Timestamp(now.0 + 3_600_000);
    let far = Timer { id: TimerId::from_u128(2), due: far, input: input(2)? };
    storage.timers.set(&far).await?;
    let due = now.0 - 60_000;
    lose(&server, &storage, due, input(1)?.to_bytes()?.into()).await?;
    assert_eq!(storage.timers.pending(partition).await?.len(), 2);

    let look = async |before: u64| {
        storage.timers.restore_overdue(partition, Timestamp(before), NONE).await
    };
    assert_eq!(look(due).await?, Overdue::default(), "it is not overdue yet");
    assert_eq!(look(due + 1).await?, Overdue { restored: 1, next: None });
    let delivery = next(&mut consumer).await?;
    assert_eq!(delivery.bytes, input(1)?.to_bytes()?);
    delivery.handle.ack().await?;
    assert_eq!(storage.timers.pending(partition).await?, [far]);
    assert_eq!(look(now.0).await?, Overdue::default());
    Ok(())
}

/// What a later layout of inputs is sure to have; this build cannot read the rest.
#[derive(serde::Serialize)]
struct LaterInput {
    v_min: u16,
    id: InputId,
    invented: bool,
}

/// The worker that looks for overdue timers may be of an older build than those who set and take them.
#[tokio::test]
async fn a_lost_timer_for_a_newer_build_is_set_again_as_it_was() -> Result {
    let (server, storage) = storage().await?;
    let partition = entity().partition(storage.partitions);
    let mut consumer = storage.inbox.consume(partition, 0).await?;
    let due = SystemClock.now().0 - 60_000;
    let newer = Input { v: 99, v_min: 99, ..input(1)? };
    let later = LaterInput { v_min: 99, id: newer.id, invented: true };
    for (stored, is_shown) in [(newer.to_bytes()?, true), (codec::encode(&later)?, false)] {
        lose(&server, &storage, due, stored.clone().into()).await?;
        let pending = storage.timers.pending(partition).await?;
        assert_eq!(pending.iter().any(|timer| timer.input == newer), is_shown, "{pending:?}");
        let look = storage.timers.restore_overdue(partition, Timestamp(due + 1), NONE).await?;
        assert_eq!(look, Overdue { restored: 1, next: None });
        let delivery = next(&mut consumer).await?;
        assert_eq!(delivery.bytes, stored);
        delivery.handle.ack().await?;
    }
    // What is no input at all stays where it is.
    lose(&server, &storage, due, Bytes::from_static(b"invented")).await?;
    let look = storage.timers.restore_overdue(partition, Timestamp(due + 1), NONE).await?;
    assert_eq!(look, Overdue::default());
    Ok(())
}

/// Both leaders die while timers are on their way, then all servers start again. What a server does not
/// fire is overdue, and the look that workers do each minute sets it again.
#[tokio::test]
async fn a_thousand_timers_arrive_whatever_becomes_of_the_servers() -> Result {
    const TIMERS: u32 = 1_000;
    let mut cluster = NatsCluster::start(3, ServerOptions::default()).await?;
    let options = NatsOptions { partitions: Some(2), ..NatsOptions::new(cluster.urls()) };
    let storage = connect(options).await?;
    let partition = entity().partition(storage.partitions);
    let mut consumer = storage.inbox.consume(partition, 0).await?;
    let due = Timestamp(SystemClock.now().0 + 5_000);
    let set = async |number: u32| -> Result {
        let timer = Timer { id: TimerId::from_u128(number.into()), due, input: input(number)? };
        loop {
            match storage.timers.set(&timer).await {
                Err(error) if error.is_transient() => {}
                set => return Ok(set?),
            }
        }
    };
    for number in 0..TIMERS {
        tokio::time::timeout(PATIENCE, set(number)).await??;
    }
    let (mut arrived, mut faults) = (std::collections::BTreeSet::new(), 0_usize);
    let all = tokio::time::timeout(3 * PATIENCE, async {
        while arrived.len() < TIMERS as usize {
            match tokio::time::timeout(Duration::from_secs(2), consumer.next()).await {
                Ok(Ok(delivery)) => {
                    // If the answer is lost, it comes again.
                    drop(delivery.handle.ack().await);
                    arrived.insert(Input::from_bytes(&delivery.bytes)?.id);
                }
                Ok(Err(error)) if error.is_transient() => {}
                Ok(Err(error)) => return Err(error.into()),
                // Nothing comes by itself any more.
                Err(_elapsed) => {
                    let now = SystemClock.now();
                    match storage.timers.restore_overdue(partition, now, NONE).await {
                        Err(error) if error.is_transient() => {}
                        found => drop(found?),
                    }
                }
            }
            if arrived.len() > 200 * (faults + 1) {
                match faults {
                    0 | 1 => {
                        let stream = ["CN_TIMERS", "CN_INBOX"][faults];
                        let leader = cluster.leader_of(stream).await?;
                        cluster.server(leader)?.restart().await?;
                        cluster.settled().await?;
                    }
                    2 => cluster.restart_all().await?,
                    _ => {}
                }
                faults += 1;
            }
        }
        Result::<()>::Ok(())
    });
    if let Ok(all) = all.await {
        all?;
    }
    assert_eq!(arrived.len(), TIMERS as usize, "after {faults} faults");
    assert!(faults >= 3, "both leaders died and all servers started again meanwhile: {faults}");
    Ok(())
}

#[tokio::test]
async fn a_removed_consumer_of_jobs_is_made_again() -> Result {
    let (server, storage) = storage().await?;
    let mut consumer = storage.jobs.consume(&job(1)?.capability).await?;
    storage.jobs.put(&job(1)?).await?;
    assert_eq!(done(&mut consumer).await?, job(1)?.id);
    api(&server, "CONSUMER.DELETE.CN_JOBS.mcp:files=v1", &json!({})).await?;
    storage.jobs.put(&job(2)?).await?;
    assert_eq!(done(&mut consumer).await?, job(2)?.id);
    Ok(())
}

/// The best worker that waits is given the job, in whatever order they asked. A consumer that an older
/// build made has no ranks, and is given them; what waits there stays.
#[tokio::test]
async fn a_job_goes_to_the_best_worker_that_waits() -> Result {
    let (server, storage) = storage().await?;
    let filter = Prefix::default().jobs_of(&job(1)?.capability);
    let older = json!({
        "stream_name": "CN_JOBS", "action": "create",
        "config": {
            "durable_name": "mcp:files=v1", "deliver_policy": "all",
            "filter_subject": filter, "ack_policy": "explicit",
            "ack_wait": 10_000_000_000_u64, "max_deliver": -1, "max_ack_pending": -1,
            "max_waiting": 512, "inactive_threshold": 604_800_000_000_000_u64,
        },
    });
    let name = format!("CONSUMER.CREATE.CN_JOBS.mcp:files=v1.{filter}");
    api(&server, &name, &older).await?;
    storage.jobs.put(&job(2)?).await?;
    let mut found = storage.jobs.consume(&job(2)?.capability).await?;
    assert_eq!(done(&mut found).await?, job(2)?.id);
    drop(found);
    pulls(&server, "mcp:files=v1", 0).await?;
    for best in 0..3_usize {
        let wanted = Job { capability: format!("mcp:files.v{}", best + 1).parse()?, ..job(1)? };
        let mut waiting = Vec::new();
        for at in 0..3_usize {
            let mut consumer = storage.jobs.consume(&wanted.capability).await?;
            // The best asks first, second or last.
            consumer.set_rank(if at == best { 2 } else { 7 });
            waiting.push(tokio::spawn(async move {
                let delivery = tokio::time::timeout(PATIENCE, consumer.next()).await;
                (at, delivery, consumer)
            }));
            pulls(&server, &format!("mcp:files=v{}", best + 1), at + 1).await?;
        }
        storage.jobs.put(&wanted).await?;
        let (first, _, rest) = futures_util::future::select_all(waiting).await;
        let (at, delivery, _consumer) = first?;
        assert_eq!(at, best, "the best is given the job");
        delivery??.handle.ack().await?;
        for task in rest {
            task.abort();
        }
    }
    Ok(())
}

/// A worker that hangs while it waits is given one job, however good it is. What comes after goes to
/// others at once, and the one job is delivered again.
#[tokio::test]
async fn a_worker_that_hangs_keeps_one_job_from_others() -> Result {
    let (server, storage) = storage().await?;
    let mut hangs = storage.jobs.consume(&job(1)?.capability).await?;
    hangs.set_rank(0);
    let look = tokio::time::timeout(Duration::from_millis(50), hangs.next()).await;
    assert!(look.is_err(), "{look:?}");
    pulls(&server, "mcp:files=v1", 1).await?;
    for number in 1..=4 {
        storage.jobs.put(&job(number)?).await?;
    }
    let mut other = storage.jobs.consume(&job(1)?.capability).await?;
    other.set_rank(9);
    for number in [2, 3, 4, 1] {
        assert_eq!(done(&mut other).await?, job(number)?.id);
    }
    Ok(())
}

/// A consumer at a new rank has one pull there, and none at the old one.
#[tokio::test]
async fn a_changed_rank_leaves_one_pull() -> Result {
    let (server, storage) = storage().await?;
    let mut consumer = storage.jobs.consume(&job(1)?.capability).await?;
    for rank in [3, 0, 9] {
        consumer.set_rank(rank);
        let look = tokio::time::timeout(Duration::from_millis(50), consumer.next()).await;
        assert!(look.is_err(), "{look:?}");
        pulls(&server, "mcp:files=v1", 1).await?;
        consumer.rest().await;
    }
    pulls(&server, "mcp:files=v1", 0).await?;
    storage.jobs.put(&job(1)?).await?;
    assert_eq!(done(&mut consumer).await?, job(1)?.id);
    Ok(())
}

/// Waits until so many pulls wait at a consumer of jobs.
async fn pulls(server: &NatsServer, consumer: &str, wanted: usize) -> Result {
    let subject = format!("CONSUMER.INFO.CN_JOBS.{consumer}");
    let waits = async {
        loop {
            let info = api(server, &subject, &json!({})).await?;
            if info["num_waiting"] == json!(wanted) {
                return Ok(());
            }
        }
    };
    tokio::time::timeout(PATIENCE, waits).await?
}

#[tokio::test]
async fn a_cluster_of_an_older_build_gets_its_stream_for_jobs() -> Result {
    let (server, storage) = storage().await?;
    storage.health.close().await;
    // As it was born before there were jobs, and with its birth in the bucket.
    api(&server, "STREAM.DELETE.CN_JOBS", &json!({})).await?;
    api(&server, "STREAM.DELETE.CN_BIRTH", &json!({})).await?;
    let bucket = json!({
        "name": "CN_BUCKET", "subjects": ["cn.kv.>", "cn.birth"], "retention": "limits",
        "discard": "new", "max_msgs_per_subject": 1, "allow_msg_ttl": true,
        "subject_delete_marker_ttl": 60_000_000_000_u64, "allow_rollup_hdrs": true,
        "max_consumers": 1_024, "storage": "file", "num_replicas": 1, "allow_direct": false,
        // A person's own choice.
        "description": "ours", "max_bytes": 1 << 30,
    });
    api(&server, "STREAM.UPDATE.CN_BUCKET", &bucket).await?;
    let client = async_nats::connect(server.url()).await?;
    let kept = client.request("cn.kv.agent.kept", "kept".into()).await?;
    assert!(String::from_utf8_lossy(&kept.payload).contains("\"seq\""), "{kept:?}");
    let older = json!({
        "format": 1, "partitions": 4, "complete": true, "cluster": "01OLD",
    });
    let older = older.to_string();
    let stored = client.request("cn.birth", older.into()).await?;
    assert!(String::from_utf8_lossy(&stored.payload).contains("\"seq\""), "{stored:?}");

    let joined = NatsOptions { birth: Birth::Never, ..options(&server) };
    let error = refused(joined.clone()).await?;
    assert!(matches!(error, ConnectError::Outdated { .. }), "{error}");
    assert!(error.to_string().contains("clawnode cluster push"), "{error}");

    let storage = connect(options(&server)).await?;
    storage.jobs.put(&job(1)?).await?;
    // Nothing is lost or changed on the way, and no message may replace everything any more.
    assert_eq!(storage.health.cluster().as_deref(), Some("01OLD"));
    let kept = storage.bucket.get("agent.kept").await?.map(|entry| entry.value);
    assert_eq!(kept.as_deref(), Some(&b"kept"[..]));
    let mut all = async_nats::HeaderMap::new();
    all.insert("Nats-Rollup", "all");
    let wiped = client.request_with_headers("cn.kv.agent.x", all, "x".into()).await?;
    assert!(String::from_utf8_lossy(&wiped.payload).contains("rollup not permitted"), "{wiped:?}");
    let info = api(&server, "STREAM.INFO.CN_BUCKET", &json!({})).await?;
    assert_eq!(
        (&info["config"]["description"], &info["config"]["max_bytes"]),
        (&json!("ours"), &json!(1 << 30))
    );
    let storage = connect(joined).await?;
    let mut consumer = storage.jobs.consume(&job(1)?.capability).await?;
    assert_eq!(done(&mut consumer).await?, job(1)?.id);

    // Lost later, it is not made again.
    api(&server, "STREAM.DELETE.CN_JOBS", &json!({})).await?;
    let hasty = NatsOptions { ready_timeout: Duration::from_millis(500), ..options(&server) };
    let error = refused(hasty).await?.to_string();
    assert!(error.contains("CN_JOBS"), "{error}");
    Ok(())
}

#[tokio::test]
async fn the_queue_of_an_older_build_learns_to_forget_old_jobs() -> Result {
    let (server, storage) = storage().await?;
    let config = |info: serde_json::Value| info["config"].clone();
    let born = config(api(&server, "STREAM.INFO.CN_JOBS", &json!({})).await?);
    let days = u64::try_from(limits::JOB_AGE_MAX.as_nanos())?;
    assert_eq!(born["max_age"], json!(days));
    assert!(limits::JOB_AGE_MAX * 2 < limits::JOB_CLOSED_TTL, "JOB-5: closed for longer");
    // As the stream was before, with a job that waits.
    storage.jobs.put(&job(1)?).await?;
    storage.health.close().await;
    let mut older = born.clone();
    older["max_age"] = json!(0);
    api(&server, "STREAM.UPDATE.CN_JOBS", &older).await?;
    // Who may not change it works with it.
    let joined = NatsOptions { birth: Birth::Never, ..options(&server) };
    connect(joined).await?.health.close().await;
    let found = config(api(&server, "STREAM.INFO.CN_JOBS", &json!({})).await?);
    assert_eq!(found["max_age"], json!(0));
    let storage = connect(options(&server)).await?;
    let found = config(api(&server, "STREAM.INFO.CN_JOBS", &json!({})).await?);
    assert_eq!(found["max_age"], json!(days));
    let mut consumer = storage.jobs.consume(&job(1)?.capability).await?;
    assert_eq!(done(&mut consumer).await?, job(1)?.id);
    Ok(())
}

#[test]
fn the_shipped_configurations_are_valid_and_durable() -> Result {
    let docker = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docker");
    for name in ["nats.conf", "nats-cluster.conf"] {
        let path = docker.join(name);
        let checked = Command::new(binary()?)
            .arg("-t")
            .arg("-c")
            .arg(&path)
            .env("NATS_NAME", "one")
            .env("NATS_ROUTES", r#"["nats://one:6222", "nats://two:6222"]"#)
            .output()?;
        assert!(checked.status.success(), "{name}: {}", String::from_utf8_lossy(&checked.stderr));
        assert!(std::fs::read_to_string(&path)?.contains("\n  sync_interval: always\n"), "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn a_change_of_rank_moves_what_comes_and_leaves_nothing_behind() -> Result {
    let (server, mine) = storage().await?;
    let theirs = connect(options(&server)).await?;
    let partition = entity().partition(mine.partitions);
    let mut own = mine.inbox.consume(partition, 0).await?;
    let mut other = theirs.inbox.consume(partition, 1).await?;
    for number in 0..40 {
        let rank = if number / 4 % 2 == 0 { 0 } else { 3 };
        own.set_rank(rank).await?;
        let position = mine.inbox.put(&input(number)?).await?;
        let (at_own, delivery) = tokio::select! {
            delivery = next(&mut own) => (true, delivery?),
            delivery = next(&mut other) => (false, delivery?),
        };
        assert!(delivery.position == position && !delivery.redelivered, "{number}: {delivery:?}");
        // The server takes a pull aside before it counts; the first ones may come before it does.
        let counts = number % 4 >= 2;
        assert!(!counts || at_own == (rank == 0), "{number} went to the wrong one");
        delivery.handle.ack().await?;
        // Its pull is at the server before the next one comes.
        theirs.inbox.pending(entity()).await?;
    }
    mine.health.close().await;
    theirs.health.close().await;
    Ok(())
}
