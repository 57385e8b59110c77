//! Copying one entity from one storage backend to another, event for event.

use std::time::Duration;

use bytes::Bytes;
use clawnode_cluster::{
    Backoff, Record, StoreError, Write,
    outcome::{AppendVerdict, of_answer, of_read_back},
};
use clawnode_kernel::{Entities, EntityError};
use clawnode_proto::{
    EntityId, ErrorChain, Input, Kind, Position, Sealed, Seq, event::decode_record,
};
use tokio::time::Instant;

/// How long a store that is out of reach is tried again: longer than an election takes.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

/// What became of one entity.
#[derive(Debug, Default)]
pub(super) struct Copied {
    /// Its kind, as its journal or what waits for it tells.
    pub(super) kind: Option<Kind>,
    /// Records that were appended.
    pub(super) records: u64,
    /// Inputs that were put.
    pub(super) inputs: u64,
}

/// What is there of an entity already.
struct There {
    /// Records of the source that need not be copied.
    records: usize,
    /// The position to append after.
    at: Position,
    /// Whether the entity has gone on there.
    went_on: bool,
}

/// Copies what is not there yet; says why not, if something else is there.
pub(super) async fn copy(
    source: &Entities,
    target: &Entities,
    id: EntityId,
) -> Result<Copied, String> {
    let verdict = source.verify(Some(id)).await.map_err(|error| ErrorChain(&error).to_string())?;
    let row = verdict.journals.into_iter().next();
    if let Some(problem) = row.as_ref().and_then(|row| row.problem.as_ref()) {
        return Err(format!("it is damaged: {problem}"));
    }
    let kind = row.and_then(|row| row.kind);
    let records = source.storage().journal.read(id, Position(0)).await;
    let records = records.map_err(|error| said("the directory", &error.into()))?;
    let there = compare(target, id, &records).await?;
    let mut copied = Copied { kind, ..Copied::default() };
    let mut at = there.at;
    for record in records.iter().skip(there.records) {
        at = append(target, id, at, record.bytes.clone()).await?;
        copied.records += 1;
    }
    inputs(source, target, id, there.went_on, &mut copied).await?;
    Ok(copied)
}

/// How far `target` has these records. Equal hashes of one event mean that everything before it is
/// equal too.
async fn compare(target: &Entities, id: EntityId, records: &[Record]) -> Result<There, String> {
    let journal = &target.storage().journal;
    let tail = patiently(|| journal.tail(id)).await;
    let Some(tail) = tail.map_err(|error| said("the cluster", &error.into()))? else {
        return Ok(There { records: 0, at: Position(0), went_on: false });
    };
    let last = last_event(&tail).map_err(|why| format!("its journal in the cluster {why}"))?;
    let mut ours: Option<Sealed> = None;
    for (number, record) in records.iter().enumerate() {
        let event = last_event(record)?;
        if event.head.n == last.head.n && event.hash == last.hash {
            return Ok(There { records: number + 1, at: tail.position, went_on: false });
        }
        ours = Some(event);
    }
    let Some(ours) = ours else {
        // Only inputs are to be moved, to an entity that the cluster has.
        return Ok(There { records: 0, at: tail.position, went_on: true });
    };
    if last.head.n > ours.head.n {
        let events = target.journal(id, Seq(ours.head.n.0.saturating_sub(1)), 1).await;
        let events = events.map_err(|error| said("the cluster", &error))?;
        if events.first().is_some_and(|event| event.n == ours.head.n && event.hash == ours.hash) {
            return Ok(There { records: records.len(), at: tail.position, went_on: true });
        }
    }
    Err(format!(
        "the cluster has a different journal of it (event {} there, {} here); nothing \
         was overwritten",
        last.head.n, ours.head.n
    ))
}

fn last_event(record: &Record) -> Result<Sealed, String> {
    let unreadable = |why: &dyn std::fmt::Display| format!("is not readable: {why}");
    let events = decode_record(&record.bytes).map_err(|error| unreadable(&ErrorChain(&error)))?;
    events.into_iter().next_back().ok_or_else(|| unreadable(&"a record without events"))
}

/// Appends one record, as often as it takes to know that it is there.
async fn append(
    target: &Entities,
    id: EntityId,
    expected: Position,
    bytes: Bytes,
) -> Result<Position, String> {
    let journal = &target.storage().journal;
    let events = decode_record(&bytes).map_err(|error| ErrorChain(&error).to_string())?;
    let own = events.first().map(|event| event.head.eid).ok_or("a record without events")?;
    let deadline = Instant::now() + PATIENCE;
    let pause = std::time::Duration::from_millis(50);
    let mut backoff = Backoff::new(pause, pause * 20);
    loop {
        let write = Write { bytes: bytes.clone(), rollup: false };
        let answer = journal.append(id, expected, write).await;
        let verdict = match of_answer(&answer) {
            AppendVerdict::ReadBack => {
                let after = patiently(|| journal.read(id, expected)).await;
                of_read_back(own, &after.map_err(|error| said("the cluster", &error.into()))?)
            }
            verdict => verdict,
        };
        match verdict {
            AppendVerdict::Stored(position) => return Ok(position),
            AppendVerdict::Fenced => {
                return Err("a client uses it in the cluster during the move; import \
                            again when no client uses it"
                    .to_owned());
            }
            AppendVerdict::Defect(why) => return Err(format!("the cluster refuses it: {why}")),
            AppendVerdict::ReadBack | AppendVerdict::Resend if Instant::now() >= deadline => {
                return Err("cannot reach the cluster; import again".to_owned());
            }
            AppendVerdict::ReadBack | AppendVerdict::Resend => {
                tokio::time::sleep(backoff.next(&mut rand::rng())).await;
            }
        }
    }
}

/// Puts what waits for the entity, in order, unless it waits there already or the entity has
/// gone on and knows it.
async fn inputs(
    source: &Entities,
    target: &Entities,
    id: EntityId,
    went_on: bool,
    copied: &mut Copied,
) -> Result<(), String> {
    let waiting = source.storage().inbox.read(id, Position(0)).await;
    let waiting = waiting.map_err(|error| said("the directory", &error.into()))?;
    if waiting.is_empty() {
        return Ok(());
    }
    let inbox = &target.storage().inbox;
    let there = patiently(|| inbox.read(id, Position(0))).await;
    let there = there.map_err(|error| said("the cluster", &error.into()))?;
    let known = if went_on {
        Some(target.core(id).await.map_err(|error| said("the cluster", &error))?)
    } else {
        None
    };
    for one in waiting {
        let input = input(&one.bytes)?;
        copied.kind = copied.kind.or(Some(input.kind));
        let waits = there.iter().any(|there| there.bytes == one.bytes);
        let is_known = known.as_ref().is_some_and(|core| core.has(input.id));
        if waits || is_known {
            continue;
        }
        let stored = patiently(|| inbox.put(&input)).await;
        stored.map_err(|error| said("the cluster", &error.into()))?;
        copied.inputs += 1;
    }
    Ok(())
}

/// Calls a store that may be out of reach for a while.
pub(super) async fn patiently<T, F>(mut call: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));
    loop {
        match call().await {
            Err(error) if error.is_transient() && tokio::time::Instant::now() < deadline => {
                tracing::debug!(%error, "cannot reach a store");
                let wait = backoff.next(&mut rand::rng());
                tokio::time::sleep(wait).await;
            }
            done => return done,
        }
    }
}

/// An input that can be read, or why not.
pub(super) fn input(bytes: &[u8]) -> Result<Input, String> {
    Input::from_bytes(bytes).map_err(|error| {
        format!("an input that waits for it cannot be moved: {}", ErrorChain(&error))
    })
}

/// For people: why a side cannot be read or written.
pub(super) fn said(side: &str, error: &EntityError) -> String {
    format!("{side}: {}", ErrorChain(error))
}
