//! What the cases share: patience, names, and readable complaints.

use std::{collections::BTreeSet, fmt::Debug, future::Future, time::Duration};

use bytes::Bytes;
use clawnode_cluster::{AppendAnswer, Consumer, Delivery, Journal, Write};
use clawnode_proto::{
    Digest, EntityId, Input, Kind, Partition, Position, ProcessId, Timestamp,
    envelope::VERSIONS,
    node::{FileState, Heartbeat, Load, NodeRole, VersionRange},
};
use tokio::time::Instant;

use super::Result;

/// Long enough that reaching it means a defect, not a slow machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Fails with both sides if they differ.
#[expect(clippy::needless_pass_by_value, reason = "a case compares what it has just been given")]
pub(super) fn same<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Result {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: found {found:?}, expected {expected:?}").into())
}

/// Fails unless it holds.
pub(super) fn holds(what: &str, is_so: bool) -> Result {
    if is_so { Ok(()) } else { Err(what.to_owned().into()) }
}

/// Waits for something that must come.
pub(super) async fn soon<T>(what: &str, coming: impl Future<Output = T>) -> Result<T> {
    match tokio::time::timeout(PATIENCE, coming).await {
        Ok(came) => Ok(came),
        Err(_elapsed) => Err(format!("{what}: did not come within {PATIENCE:?}").into()),
    }
}

/// Looks until it is so.
pub(super) async fn eventually<F>(what: &str, mut look: impl FnMut() -> F) -> Result
where
    F: Future<Output = Result<bool>>,
{
    soon(what, async {
        while !look().await? {
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    })
    .await?
}

/// What a worker with no capabilities says of itself.
pub(super) fn heartbeat(process: u128) -> Result<Heartbeat> {
    Ok(Heartbeat {
        process: ProcessId::from_u128(process),
        node: "n".parse()?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        roles: vec![NodeRole::Worker],
        started: Timestamp(0),
        draining: false,
        entities: 0,
        config: Digest::ZERO,
        cordoned: false,
        speaks: VersionRange::from(VERSIONS),
        capabilities: BTreeSet::new(),
        load: Load::default(),
        shed: 0,
        first_of: 0,
        knows: BTreeSet::new(),
        lacks: BTreeSet::new(),
        leaving: false,
        server: String::new(),
        url: None,
        providers: Vec::new(),
        time: None,
        agents: Vec::new(),
        spending: None,
        file: FileState::default(),
    })
}

/// An input for the session `key`, named `name`.
pub(super) fn input(key: &str, name: &str) -> Result<Input> {
    Ok(Input::new(Kind::SESSION, key, name.parse()?, Timestamp(1), &name)?)
}

/// The session `key`.
pub(super) fn entity(key: &str) -> EntityId {
    EntityId::derive(Kind::SESSION, key)
}

/// A session of this partition.
pub(super) fn key_in(partition: Partition, count: u16, prefix: &str) -> Result<String> {
    (0..100_000)
        .map(|n| format!("{prefix}{n}"))
        .find(|key| entity(key).partition(count) == partition)
        .ok_or_else(|| "no key falls into that partition".into())
}

/// What an input is called.
pub(super) fn name_of(bytes: &[u8]) -> Result<String> {
    Ok(Input::from_bytes(bytes)?.idempotency_key.as_str().to_owned())
}

/// Appends what must be taken.
pub(super) async fn append(
    journal: &dyn Journal,
    entity: EntityId,
    expected: Position,
    text: &str,
) -> Result<Position> {
    write(journal, entity, expected, text, false).await
}

/// Appends or rolls up what must be taken.
pub(super) async fn write(
    journal: &dyn Journal,
    entity: EntityId,
    expected: Position,
    text: &str,
    rollup: bool,
) -> Result<Position> {
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    match journal.append(entity, expected, Write { bytes, rollup }).await {
        AppendAnswer::Stored(position) => Ok(position),
        other => Err(format!("`{text}` at {expected} was not stored: {other:?}").into()),
    }
}

/// Appends what must be refused.
pub(super) async fn refused(
    journal: &dyn Journal,
    entity: EntityId,
    expected: Position,
    rollup: bool,
) -> Result {
    let bytes = Bytes::from_static(b"must not be stored");
    match journal.append(entity, expected, Write { bytes, rollup }).await {
        AppendAnswer::Refused => Ok(()),
        other => Err(format!("an append at {expected} was not refused: {other:?}").into()),
    }
}

/// What a journal says after a position.
pub(super) async fn texts(
    journal: &dyn Journal,
    entity: EntityId,
    after: Position,
) -> Result<Vec<String>> {
    let records = journal.read(entity, after).await?;
    let mut texts = Vec::new();
    for record in &records {
        texts.push(String::from_utf8(record.bytes.to_vec())?);
    }
    let ordered = records.is_sorted_by(|a, b| a.position < b.position);
    holds("positions strictly increase", ordered)?;
    Ok(texts)
}

/// Whether a case said of a delivery in good time that it is in hand: on a busy machine it may be late itself, and then
/// the delivery comes again by right.
pub(super) struct InHand {
    wait: Duration,
    said: Instant,
    was_late: bool,
}

impl InHand {
    /// For messages that are delivered from now on, and again after so long.
    pub(super) fn new(wait: Duration) -> Self {
        Self { wait, said: Instant::now(), was_late: false }
    }

    /// It has been said just now.
    pub(super) fn said(&mut self) {
        self.was_late |= self.is_overdue();
        self.said = Instant::now();
    }

    /// Whether that was late, since this was last asked.
    pub(super) fn was_late(&mut self) -> bool {
        std::mem::take(&mut self.was_late) || self.is_overdue()
    }

    /// What is said takes a part of the time to arrive.
    fn is_overdue(&self) -> bool {
        self.said.elapsed() >= self.wait / 2
    }
}

/// The next delivery and its name.
pub(super) async fn next(consumer: &mut Box<dyn Consumer>) -> Result<(String, Delivery)> {
    let delivery = soon("a delivery", consumer.next()).await??;
    Ok((name_of(&delivery.bytes)?, delivery))
}
