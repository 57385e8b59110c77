//! A second kind of entities on any backend, served by the kernel that serves sessions: the counter of
//! the tests.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use clawnode_actors::session::{SendError, Session, Sessions, clients::session_list::SessionQuery};
use clawnode_cluster::{Storage, SystemClock, membership::Members};
use clawnode_kernel::{
    Entities, Entity, EntityError, EntityKind, KnownKinds, LoadedJournal, Service,
    counter::{Counted, Counter, CounterEvent, CounterInput, CounterState},
    written::Written,
};
use clawnode_proto::{
    EntityId, ErrorBody, ErrorCode, Kind, Position, ProcessId, Seq, SessionKey, TimerId, Timestamp,
    event::decode_record,
    kernel::{Accepted, KernelEvent, Quarantined, SNAPSHOT},
    node::Heartbeat,
    session::{SessionInput, TurnOutcome, UserMessage},
    view::ParkedWhere,
};
use serde_json::json;

use super::{
    BackendFixture, Result,
    process::Process,
    support::{self, eventually, holds, same},
};

/// The kinds of a newer build.
const BOTH: &[Kind] = &[Kind::SESSION, Counter::KIND];

/// What a worker says of itself that serves both kinds.
fn heartbeat(process: u128) -> Result<Heartbeat> {
    let mut capabilities = BTreeSet::new();
    for kind in BOTH {
        capabilities.insert(kind.as_str().parse()?);
    }
    Ok(Heartbeat { capabilities, ..support::heartbeat(process)? })
}

/// All entities, as a build sees them that knows these kinds.
fn entities(storage: &Storage, kinds: KnownKinds) -> Entities {
    Entities::new(storage.clone(), Arc::new(SystemClock), kinds)
}

fn both() -> KnownKinds {
    KnownKinds::default().with::<Session>().with::<Counter>()
}

fn entity(key: &str) -> EntityId {
    EntityId::derive(Counter::KIND, key)
}

async fn tell(storage: &Storage, key: &str, name: &str, input: CounterInput) -> Result {
    storage.inbox.put(&input.to(key, name.parse()?, Timestamp(1))?).await?;
    Ok(())
}

/// A counter as its journal has it now.
async fn read(storage: &Storage, key: &str) -> Result<Entity<Counter>> {
    let records = storage.journal.read(entity(key), Position(0)).await?;
    Ok(Entity::of(entity(key), &LoadedJournal { records, snapshot: None })?)
}

/// Waits until a counter says this total, and has nothing left to do.
async fn counts(storage: &Storage, key: &str, total: u64) -> Result {
    let inbox = &storage.inbox;
    eventually(&format!("`{key}` counts to {total}"), || async {
        let CounterState { said, ref later, .. } = read(storage, key).await?.state;
        let waiting = inbox.read(entity(key), Position(0)).await?;
        Ok(said == total && later.is_empty() && waiting.is_empty())
    })
    .await
}

/// Inputs, own events, timers, snapshots, a handover to another process, deletion and a new birth.
pub async fn a_second_kind_is_served(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let (key, mut total) = ("team/one", 0);
    let first = Process::start(&storage, 1, &[Counter::KIND], true).await?;
    for by in 1..=30_u64 {
        // Sent twice, it counts once.
        for _ in 0..2 {
            tell(&storage, key, &format!("add-{by}"), CounterInput::Add { by }).await?;
        }
        total += by;
    }
    counts(&storage, key, total).await?;
    let records = storage.journal.read(entity(key), Position(0)).await?;
    let head = decode_record(&records.first().ok_or("no journal")?.bytes)?;
    same("the first event", head[0].head.kind.as_str(), SNAPSHOT)?;
    first.stop().await;

    let second = Process::start(&storage, 2, &[Counter::KIND], true).await?;
    let due = fixture.now().plus(Duration::from_millis(100));
    for n in 0..3_u128 {
        let later = CounterInput::Later { timer: TimerId::from_u128(n), due, by: 1_000 };
        tell(&storage, key, &format!("later-{n}"), later).await?;
    }
    total += 3_000;
    counts(&storage, key, total).await?;
    let incarnation = read(&storage, key).await?.core.incarnation;
    same(
        "the last owner",
        incarnation.map(|incarnation| incarnation.process),
        Some(ProcessId::from_u128(2)),
    )?;

    tell(&storage, key, "forget", CounterInput::Forget).await?;
    eventually("it is deleted", || async {
        Ok(read(&storage, key).await?.core.service == Service::Deleted)
    })
    .await?;
    eventually("its archives are gone", || async { Ok(storage.blobs.list().await?.is_empty()) })
        .await?;
    tell(&storage, key, "again", CounterInput::Add { by: 7 }).await?;
    counts(&storage, key, 7).await?;
    // An input that was accepted before the deletion is remembered.
    tell(&storage, key, "add-30", CounterInput::Add { by: 30 }).await?;
    tell(&storage, key, "last", CounterInput::Add { by: 1 }).await?;
    counts(&storage, key, 8).await?;
    second.stop().await;
    Ok(())
}

/// A message to the session, and its turn, which the demo model answers.
async fn says(storage: &Storage, key: &SessionKey, text: &str) -> Result {
    let sessions = Sessions::new(storage.clone(), Arc::new(SystemClock));
    let message = SessionInput::UserMessage(UserMessage::text(text));
    let turn = sessions.send(key, message, text.parse()?, None).await?.turn;
    eventually(&format!("the session answers `{text}`"), || async {
        let history = match sessions.history(key.entity()).await {
            Ok(history) => history,
            Err(SendError::NotFound { .. }) => return Ok(false),
            Err(failure) => return Err(failure.into()),
        };
        let ended = history.turns.into_iter().find(|one| one.turn == turn);
        match ended.and_then(|turn| turn.outcome) {
            Some(TurnOutcome::Completed { .. }) => Ok(true),
            Some(other) => Err(format!("the turn of `{text}` ended otherwise: {other:?}").into()),
            None => Ok(false),
        }
    })
    .await
}

/// Who wrote last to an entity.
async fn owner(storage: &Storage, id: EntityId) -> Result<Option<ProcessId>> {
    let core = entities(storage, both()).core(id).await?;
    Ok(core.incarnation.map(|incarnation| incarnation.process))
}

/// An older process beside a newer one. An input for a kind that a process does not serve is no dead
/// letter: it goes to a process that says that it serves the kind, and waits until there is one.
/// Meanwhile the older one serves sessions.
pub async fn a_kind_that_is_not_served_waits_for_who_serves_it(
    fixture: &dyn BackendFixture,
) -> Result {
    let storage = fixture.fresh().await?;
    let (key, session): (_, SessionKey) = ("team/two", "default:cli:local:ada".parse()?);
    let (older, newer) = (ProcessId::from_u128(1), ProcessId::from_u128(2));
    let without = Process::start(&storage, 1, &[Kind::SESSION], true).await?;
    tell(&storage, key, "one", CounterInput::Add { by: 1 }).await?;
    eventually("a process misses the kind", || async {
        Ok(without.lacks.told().iter().any(|lack| lack.contains("counter")))
    })
    .await?;
    says(&storage, &session, "alone").await?;
    holds("nothing is written", read(&storage, key).await?.core.key.is_none())?;
    same("it waits", storage.inbox.pending(entity(key)).await?, 1)?;
    let letters = clawnode_kernel::dead_letters::list(&storage).await?;
    same("dead letters", letters.len(), 0)?;

    // The other never pulls: it is asked.
    let with = Process::start(&storage, 2, BOTH, false).await?;
    let alive = vec![heartbeat(2)?];
    without.view.send_replace(Members { alive, ..Members::default() });
    counts(&storage, key, 1).await?;
    tell(&storage, key, "two", CounterInput::Add { by: 2 }).await?;
    says(&storage, &session, "beside").await?;
    counts(&storage, key, 3).await?;
    same("the counter's owner", owner(&storage, entity(key)).await?, Some(newer))?;
    same("the session's owner", owner(&storage, session.entity()).await?, Some(older))?;
    eventually("the lack is over", || async { Ok(without.lacks.told().is_empty()) }).await?;
    with.stop().await;
    without.stop().await;
    Ok(())
}

/// A counter with the total 5, and a session of the same time; no process serves them.
async fn beside_each_other(storage: &Storage, key: &str) -> Result<(Written, Written)> {
    let session = Written::born(storage, Kind::SESSION, "default:cli:local:ada", 100).await?;
    let mut counter = Written::born(storage, Counter::KIND, key, 100).await?;
    let input = CounterInput::Add { by: 5 }.to(key, "five".parse()?, Timestamp(1))?;
    counter.append::<KernelEvent>(200, &[Accepted { input }.into()]).await?;
    counter.append::<CounterEvent>(200, &[Counted { total: 5 }.into()]).await?;
    Ok((session, counter))
}

/// What looks at entities sees both kinds; what looks at sessions sees sessions.
pub async fn journals_of_all_kinds_are_looked_at(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let key = "team/three";
    let (session, mut counter) = beside_each_other(&storage, key).await?;
    let (all, id) = (entities(&storage, both()), entity(key));
    same("how many", all.count().await?, 2)?;
    let mut rows = Vec::new();
    for row in all.verify(None).await?.journals {
        rows.push((row.kind, row.key, row.events, row.problem, row.partial));
    }
    rows.sort();
    let expected = vec![
        (Some(Counter::KIND), Some(key.to_owned()), 4, None, false),
        (Some(Kind::SESSION), Some(session.key.clone()), 2, None, false),
    ];
    same("verified", rows, expected)?;
    let events = all.journal(id, Seq(2), 10).await?;
    let bodies: Vec<_> = events.iter().map(|event| event.body.clone()).collect();
    same("its input", bodies[0]["body"].clone(), json!({ "type": "add", "by": 5 }))?;
    same("what it said", bodies[1].clone(), json!({ "total": 5 }))?;
    same("a replay shows nothing", all.replay(id).await, None)?;
    same("a session is replayed", all.replay(session.id).await, Some((0, None)))?;

    let sessions = Sessions::of(all.clone());
    let list = sessions.list(&SessionQuery { limit: 10, ..SessionQuery::default() }).await?;
    same("sessions", list.sessions.iter().map(|row| row.id).collect(), vec![session.id])?;
    let refusals = [
        sessions.history(id).await.err(),
        sessions.export(id).await.err(),
        sessions.delete(id, "delete".parse()?).await.err(),
        sessions.discard(id).await.err(),
        sessions.follow(id, None, None).await.err(),
    ];
    for refusal in refusals {
        let body = ErrorBody::from(refusal.ok_or("a counter is taken for a session")?);
        same("its code", body.code, ErrorCode::NotFound)?;
        holds(&body.message, body.message.contains("of the kind `counter`, not a session"))?;
    }
    same("no input was stored", storage.inbox.pending(id).await?, 0)?;

    // A build that does not know the kind checks hashes and the kernel's own events, and says so.
    let older = entities(&storage, KnownKinds::default().with::<Session>());
    let row = older.verify(Some(id)).await?.journals.remove(0);
    same("its kind", (row.kind, row.partial, row.problem), (Some(Counter::KIND), true, None))?;
    same("its head", row.head, Some(counter.tail.hash))?;
    // What contradicts the kind is found by who knows it.
    counter.append::<CounterEvent>(300, &[Counted { total: 6 }.into()]).await?;
    let list = sessions.list(&SessionQuery { limit: 10, ..SessionQuery::default() }).await?;
    let shown = list.sessions.iter().map(|row| row.id).collect();
    same("sessions, after the counter has grown", shown, vec![session.id])?;
    let problem = |row: &clawnode_proto::view::VerifyRow| row.problem.clone().unwrap_or_default();
    let row = all.verify(Some(id)).await?.journals.remove(0);
    holds(&problem(&row), problem(&row).contains("it says 6 and is 5"))?;
    same("its kind", row.kind, Some(Counter::KIND))?;
    let row = older.verify(Some(id)).await?.journals.remove(0);
    same("unknown", (row.problem, row.partial), (None, true))
}

/// A counter out of service is listed, restored and deleted as a session is.
pub async fn a_second_kind_is_quarantined_restored_and_deleted(
    fixture: &dyn BackendFixture,
) -> Result {
    let storage = fixture.fresh().await?;
    let (key, id) = ("team/four", entity("team/four"));
    let (session, mut counter) = beside_each_other(&storage, key).await?;
    let quarantined = |why: &str| Quarantined { reason: why.to_owned() };
    counter.append::<KernelEvent>(300, &[quarantined("it kills").into()]).await?;
    let all = entities(&storage, both());
    same("looked at", all.look(None, 10).await?.quarantined, vec![id])?;
    let process = Process::start(&storage, 7, BOTH, true).await?;
    tell(&storage, key, "two", CounterInput::Add { by: 2 }).await?;
    eventually("the input is parked", || async {
        let rows = all.quarantine(id).await?.inputs;
        Ok(rows.iter().any(|row| row.at == ParkedWhere::Journal))
    })
    .await?;
    let shown = all.quarantine(id).await?;
    let row = &shown.session;
    let seen = (row.kind, row.key.as_deref(), row.state.as_str(), row.parked);
    same("the row", seen, (Some(Counter::KIND), Some(key), "quarantined", 1))?;
    same("the input", shown.inputs[0].body.clone(), json!({ "type": "add", "by": 2 }))?;
    same("the list", all.quarantined(None, 10).await?.sessions, vec![shown.session.clone()])?;
    let older = entities(&storage, KnownKinds::default().with::<Session>());
    same("an older list", older.quarantined(None, 10).await?.sessions, vec![shown.session])?;
    let parked = all.parked(None, 10).await?.parked;
    let parked: Vec<_> = parked.iter().map(|row| (row.session, row.kind)).collect();
    same("parked", parked, vec![(id, Some(Counter::KIND))])?;

    same("restored", all.restore(id).await?.inputs, 1)?;
    counts(&storage, key, 7).await?;
    let refused = all.restore(id).await.err().map(|failure| failure.to_string());
    same("again", refused, Some(format!("counter `{id}` is in service")))?;

    let other = "team/five";
    let mut gone = Written::born(&storage, Counter::KIND, other, 100).await?;
    gone.append::<KernelEvent>(300, &[quarantined("it kills as well").into()]).await?;
    // What no living build can read holds up no deletion: it is kept as a dead letter.
    let mut newer = CounterInput::Add { by: 9 }.to(other, "newer".parse()?, Timestamp(1))?;
    (newer.v, newer.v_min) = (99, 99);
    storage.inbox.put(&newer).await?;
    all.discard(gone.id).await?;
    eventually("it is kept", || async {
        let letters = clawnode_kernel::dead_letters::list(&storage).await?;
        Ok(letters.iter().any(|one| one.entity == gone.id))
    })
    .await?;
    same("deleted", all.core(gone.id).await?.service, Service::Deleted)?;
    same("out of service", all.quarantined(None, 10).await?.sessions.len(), 0)?;
    let session = all.quarantine(session.id).await;
    holds("the session stays", matches!(session, Err(EntityError::InService(_))))?;
    holds("all are sound", all.verify(None).await?.is_sound())?;
    counts(&storage, key, 7).await?;
    process.stop().await;
    Ok(())
}
