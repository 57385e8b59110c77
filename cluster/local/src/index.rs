//! The index: the places of records in the log. It can be built again from the log, and is never
//! the only copy of anything.
//!
//! There is one key space; the first byte of a key is its kind, so that one atomic batch changes
//! all of it. sled's `flush` does not reach the disk on Linux, and sled may panic on a damaged
//! file: every call is guarded, and [`super::open()`] trusts the folder only if the machine has not
//! restarted since.

use std::{
    collections::BTreeMap,
    fmt,
    ops::Bound,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use clawnode_proto::{Capability, EntityId, JobId, Position, TimerId};

use super::bytes_at::{u32_at, u64_at, u128_at};

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Loc {
    pub(super) segment: u32,
    pub(super) offset: u32,
    /// Bytes of its body.
    pub(super) len: u32,
}

/// The index cannot answer; it is set aside and built again when the directory is next opened.
#[derive(Debug, thiserror::Error)]
#[error("index failed: {0}")]
pub(super) struct IndexError(String);

/// How much of the log is in the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) segment: u32,
    pub(super) offset: u32,
    /// The highest position in it.
    pub(super) position: u64,
}

/// An ordered map of bytes to bytes.
pub(super) enum Index {
    /// On disk, with changes that are still to be written.
    Sled(sled::Db, Changes),
    /// For readers that must not write, and for a full disk.
    Memory(BTreeMap<Vec<u8>, Vec<u8>>),
}

/// A key and its value.
pub(super) type IndexPair = (Vec<u8>, Vec<u8>);

/// Changes that wait to be written at most. sled rolls its buffer twice and wakes seven threads for
/// each batch, so a batch for each commit costs more than the commit. More saves work and makes the
/// single write longer. Waiting changes are read from here, and a start after a crash takes them
/// from the log again.
const LATE_MOST: usize = 256;

/// Changes to make in one step; `None` removes.
pub(super) type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sled(..) => "Sled",
            Self::Memory(_) => "Memory",
        })
    }
}

// === impl Index ===

impl Index {
    /// Opens or makes the index in `dir`.
    pub(super) fn open(dir: &Path, cache: u64) -> Result<Self, IndexError> {
        let config = sled::Config::new()
            .path(dir)
            .cache_capacity(cache)
            // The log is synced, the index need not be; it is flushed when it is closed.
            .flush_every_ms(None)
            .segment_size(256 << 10);
        guarded(|| config.open()).map(|db| Self::Sled(db, Changes::new()))
    }

    /// Whether another process finds it again.
    pub(super) const fn is_stored(&self) -> bool {
        matches!(self, Self::Sled(..))
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
        match self {
            Self::Sled(db, late) => match late.get(key) {
                Some(value) => Ok(value.clone()),
                None => guarded(|| Ok(db.get(key)?.map(|value| value.to_vec()))),
            },
            Self::Memory(map) => Ok(map.get(key).cloned()),
        }
    }

    /// Visits the keys that begin with `prefix`, from `from` on, until `visit` returns `false`.
    pub(super) fn each(
        &self,
        prefix: &[u8],
        from: Bound<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), IndexError> {
        let from = match from {
            Bound::Unbounded => Bound::Included(prefix),
            bound => bound,
        };
        match self {
            Self::Sled(db, late) => guarded(|| each_of_both(db, late, prefix, from, visit)),
            Self::Memory(map) => {
                for (key, value) in map.range::<[u8], _>((from, Bound::Unbounded)) {
                    if !key.starts_with(prefix) || !visit(key, value) {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    /// The last pair whose key begins with `prefix`.
    pub(super) fn last(&self, prefix: &[u8]) -> Result<Option<IndexPair>, IndexError> {
        match self {
            Self::Sled(db, late) => guarded(|| last_of_both(db, late, prefix)),
            Self::Memory(map) => Ok(map
                .range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded))
                .take_while(|(key, _)| key.starts_with(prefix))
                .last()
                .map(|(key, value)| (key.clone(), value.clone()))),
        }
    }

    /// Makes all changes or none, and writes late changes if there are many.
    pub(super) fn commit(&mut self, changes: Changes) -> Result<(), IndexError> {
        self.accept(changes);
        if self.is_late() { self.write() } else { Ok(()) }
    }

    /// Makes all changes, to be written later.
    pub(super) fn accept(&mut self, changes: Changes) {
        match self {
            Self::Sled(_, late) => late.extend(changes),
            Self::Memory(map) => {
                for (key, value) in changes {
                    match value {
                        Some(value) => drop(map.insert(key, value)),
                        None => drop(map.remove(&key)),
                    }
                }
            }
        }
    }

    /// Whether there are enough late changes to write them.
    pub(super) fn is_late(&self) -> bool {
        matches!(self, Self::Sled(_, late) if late.len() >= LATE_MOST)
    }

    /// Writes late changes, in one atomic batch, with the mark of how much of the log is in here.
    /// Readers find the same before, meanwhile and after: late changes count until
    /// [`Self::forget_late`].
    pub(super) fn write_late(&self) -> Result<(), IndexError> {
        let Self::Sled(db, late) = self else { return Ok(()) };
        let mut batch = sled::Batch::default();
        for (key, value) in late {
            match value {
                Some(value) => batch.insert(key.as_slice(), value.as_slice()),
                None => batch.remove(key.as_slice()),
            }
        }
        guarded(|| db.apply_batch(batch))
    }

    /// Late changes are written.
    pub(super) fn forget_late(&mut self) {
        if let Self::Sled(_, late) = self {
            late.clear();
        }
    }

    fn write(&mut self) -> Result<(), IndexError> {
        self.write_late()?;
        self.forget_late();
        Ok(())
    }

    /// Hands everything to the operating system.
    pub(super) fn flush(&mut self) -> Result<(), IndexError> {
        if matches!(self, Self::Sled(_, late) if !late.is_empty()) {
            self.write()?;
        }
        match self {
            Self::Sled(db, _) => guarded(|| db.flush().map(drop)),
            Self::Memory(_) => Ok(()),
        }
    }

    pub(super) fn applied(&self) -> Result<Option<Applied>, IndexError> {
        Ok(self.get(&keys::applied())?.as_deref().and_then(Applied::decode))
    }
}

/// [`Index::each`] over written and late changes; a late change wins.
fn each_of_both(
    db: &sled::Db,
    late: &Changes,
    prefix: &[u8],
    from: Bound<&[u8]>,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> sled::Result<()> {
    let late = late.range::<[u8], _>((from, Bound::Unbounded));
    let mut late = late.take_while(|(key, _)| key.starts_with(prefix)).peekable();
    for pair in db.range::<&[u8], _>((from, Bound::Unbounded)) {
        let (key, value) = pair?;
        if !key.starts_with(prefix) {
            break;
        }
        while let Some((early, word)) = late.next_if(|(early, _)| early.as_slice() < &*key) {
            if word.as_ref().is_some_and(|value| !visit(early, value)) {
                return Ok(());
            }
        }
        let more = match late.next_if(|(same, _)| same.as_slice() == &*key) {
            Some((_, word)) => word.as_ref().is_none_or(|value| visit(&key, value)),
            None => visit(&key, &value),
        };
        if !more {
            return Ok(());
        }
    }
    for (key, word) in late {
        if word.as_ref().is_some_and(|value| !visit(key, value)) {
            break;
        }
    }
    Ok(())
}

/// [`Index::last`] over written and late changes; a late change wins.
fn last_of_both(db: &sled::Db, late: &Changes, prefix: &[u8]) -> sled::Result<Option<IndexPair>> {
    let mut written = None;
    for pair in db.scan_prefix(prefix).rev() {
        let (key, value) = pair?;
        if !late.contains_key(&*key) {
            written = Some((key.to_vec(), value.to_vec()));
            break;
        }
    }
    let late = late
        .range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded))
        .take_while(|(key, _)| key.starts_with(prefix))
        .filter_map(|(key, value)| Some((key.clone(), value.clone()?)))
        .last();
    // Never the same key: pairs compare by it.
    Ok(written.max(late))
}

fn guarded<T>(call: impl FnOnce() -> sled::Result<T>) -> Result<T, IndexError> {
    // After a panic the index is not used again in this process, so nothing torn is seen.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(IndexError(error.to_string())),
        Err(_panic) => Err(IndexError("it panicked; see the log".to_owned())),
    }
}

// === impl Loc, Applied ===

impl Loc {
    pub(super) const BYTES: usize = 12;

    pub(super) fn encode(self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[0..4].copy_from_slice(&self.segment.to_be_bytes());
        out[4..8].copy_from_slice(&self.offset.to_be_bytes());
        out[8..12].copy_from_slice(&self.len.to_be_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self { segment: u32_at(bytes, 0)?, offset: u32_at(bytes, 4)?, len: u32_at(bytes, 8)? })
    }
}

impl Applied {
    pub(super) fn encode(self) -> Vec<u8> {
        let mut out = self.segment.to_be_bytes().to_vec();
        out.extend(self.offset.to_be_bytes());
        out.extend(self.position.to_be_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            segment: u32_at(bytes, 0)?,
            offset: u32_at(bytes, 4)?,
            position: u64_at(bytes, 8)?,
        })
    }
}

/// A waiting input: its entity and its place.
pub(super) fn encode_waiting(entity: EntityId, loc: Loc) -> Vec<u8> {
    let mut out = entity.as_u128().to_be_bytes().to_vec();
    out.extend(loc.encode());
    out
}

pub(super) fn decode_waiting(bytes: &[u8]) -> Option<(EntityId, Loc)> {
    Some((EntityId::from_u128(u128_at(bytes, 0)?), Loc::decode(bytes.get(16..)?)?))
}

/// A waiting job: its place, its id and its capability.
pub(super) fn encode_job(loc: Loc, job: JobId, capability: &Capability) -> Vec<u8> {
    let mut out = job.as_u128().to_be_bytes().to_vec();
    out.extend(loc.encode());
    out.extend(capability.as_str().as_bytes());
    out
}

pub(super) fn decode_job(bytes: &[u8]) -> Option<(Loc, JobId, Capability)> {
    let capability = std::str::from_utf8(bytes.get(16 + Loc::BYTES..)?).ok()?.parse().ok()?;
    Some((Loc::decode(bytes.get(16..)?)?, JobId::from_u128(u128_at(bytes, 0)?), capability))
}

/// A timer, or a bucket value: a moment (due, expiry), a position and where.
pub(super) fn encode_timed(moment: u64, position: Position, loc: Loc) -> Vec<u8> {
    let mut out = moment.to_be_bytes().to_vec();
    out.extend(position.0.to_be_bytes());
    out.extend(loc.encode());
    out
}

pub(super) fn decode_timed(bytes: &[u8]) -> Option<(u64, Position, Loc)> {
    Some((u64_at(bytes, 0)?, Position(u64_at(bytes, 8)?), Loc::decode(bytes.get(16..)?)?))
}

/// The key space, spelled once.
pub(super) mod keys {
    use super::{Capability, EntityId, JobId, Position, TimerId, u64_at, u128_at};

    pub(in super::super) const JOURNALS: &[u8] = b"j";
    pub(in super::super) const FEED: &[u8] = b"f";
    pub(in super::super) const INPUTS: &[u8] = b"i";
    pub(in super::super) const JOBS: &[u8] = b"q";
    const PLACES: &[u8] = b"w";
    pub(in super::super) const VALUES: &[u8] = b"b";
    pub(in super::super) const EXPIRIES: &[u8] = b"x";
    pub(in super::super) const TIMERS: &[u8] = b"t";
    pub(in super::super) const DUE: &[u8] = b"d";
    pub(in super::super) const LIVE: &[u8] = b"l";

    pub(in super::super) fn applied() -> Vec<u8> {
        b"m applied".to_vec()
    }

    /// The directory that the index was made for. The number is that of the key space: a build
    /// that finds none under its own builds the index again.
    pub(in super::super) fn store() -> Vec<u8> {
        b"m store 2".to_vec()
    }

    fn join(parts: &[&[u8]]) -> Vec<u8> {
        parts.concat()
    }

    pub(in super::super) fn journal(entity: EntityId) -> Vec<u8> {
        join(&[JOURNALS, &entity.as_u128().to_be_bytes()])
    }

    pub(in super::super) fn append(entity: EntityId, position: Position) -> Vec<u8> {
        join(&[JOURNALS, &entity.as_u128().to_be_bytes(), &position.0.to_be_bytes()])
    }

    pub(in super::super) fn split_append(key: &[u8]) -> Option<(EntityId, Position)> {
        Some((EntityId::from_u128(u128_at(key, 1)?), Position(u64_at(key, 17)?)))
    }

    /// Which journal has the record at a position.
    pub(in super::super) fn feed(position: Position) -> Vec<u8> {
        join(&[FEED, &position.0.to_be_bytes()])
    }

    /// The position of a feed key, and the entity that its value names.
    pub(in super::super) fn split_feed(key: &[u8], value: &[u8]) -> Option<(Position, EntityId)> {
        Some((Position(u64_at(key, 1)?), EntityId::from_u128(u128_at(value, 0)?)))
    }

    pub(in super::super) fn input(position: Position) -> Vec<u8> {
        join(&[INPUTS, &position.0.to_be_bytes()])
    }

    pub(in super::super) fn job(position: Position) -> Vec<u8> {
        join(&[JOBS, &position.0.to_be_bytes()])
    }

    /// Where a job waits, if it does.
    pub(in super::super) fn place(job: JobId, capability: &Capability) -> Vec<u8> {
        join(&[PLACES, &job.as_u128().to_be_bytes(), capability.as_str().as_bytes()])
    }

    pub(in super::super) fn value(key: &str) -> Vec<u8> {
        join(&[VALUES, key.as_bytes()])
    }

    pub(in super::super) fn expiry(at: u64, key: &str) -> Vec<u8> {
        join(&[EXPIRIES, &at.to_be_bytes(), key.as_bytes()])
    }

    pub(in super::super) fn timer(entity: EntityId, timer: TimerId) -> Vec<u8> {
        let (entity, timer) = (entity.as_u128().to_be_bytes(), timer.as_u128().to_be_bytes());
        join(&[TIMERS, &entity, &timer])
    }

    pub(in super::super) fn split_timer(key: &[u8]) -> Option<(EntityId, TimerId)> {
        Some((EntityId::from_u128(u128_at(key, 1)?), TimerId::from_u128(u128_at(key, 17)?)))
    }

    pub(in super::super) fn due(at: u64, entity: EntityId, timer: TimerId) -> Vec<u8> {
        let (entity, timer) = (entity.as_u128().to_be_bytes(), timer.as_u128().to_be_bytes());
        join(&[DUE, &at.to_be_bytes(), &entity, &timer])
    }

    /// The moment, entity and timer of a due key.
    pub(in super::super) fn split_due(key: &[u8]) -> Option<(u64, EntityId, TimerId)> {
        let entity = EntityId::from_u128(u128_at(key, 9)?);
        Some((u64_at(key, 1)?, entity, TimerId::from_u128(u128_at(key, 25)?)))
    }

    /// The moment and key of an expiry key.
    pub(in super::super) fn split_expiry(key: &[u8]) -> Option<(u64, &str)> {
        Some((u64_at(key, 1)?, std::str::from_utf8(key.get(9..)?).ok()?))
    }

    pub(in super::super) fn live(segment: u32) -> Vec<u8> {
        join(&[LIVE, &segment.to_be_bytes()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(index: &Index, prefix: &[u8], from: Bound<&[u8]>, most: usize) -> Vec<IndexPair> {
        let mut seen = Vec::new();
        index
            .each(prefix, from, &mut |key, value| {
                seen.push((key.to_vec(), value.to_vec()));
                seen.len() < most
            })
            .unwrap();
        seen
    }

    /// Reading gives the same, whether changes are late or written.
    #[test]
    fn what_is_late_reads_like_what_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut late = Index::open(dir.path(), 1 << 20).unwrap();
        let mut plain = Index::Memory(BTreeMap::new());
        // A fixed walk over a few keys, so that they are set, set again and removed.
        let mut state = 7_u32;
        for round in 0..2_000_u32 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let [high, middle, low, _] = state.to_be_bytes();
            let key = vec![b'a' + (high >> 4) % 3, middle >> 4];
            let value = (low & 3 != 0).then(|| round.to_be_bytes().to_vec());
            let changes = Changes::from([(key, value)]);
            late.commit(changes.clone()).unwrap();
            plain.commit(changes).unwrap();
            if round % 37 == 0 {
                late.flush().unwrap();
            }
            if round % 13 == 0 {
                // Readers may come before it is forgotten.
                late.write_late().unwrap();
            }
            for prefix in [&b"a"[..], b"b", b"c", b"b\x03", b"d"] {
                assert_eq!(late.last(prefix).unwrap(), plain.last(prefix).unwrap());
                for most in [1, usize::MAX] {
                    let after = [prefix, &[5]].concat();
                    for from in [Bound::Unbounded, Bound::Excluded(after.as_slice())] {
                        let found = all(&late, prefix, from, most);
                        assert_eq!(found, all(&plain, prefix, from, most));
                    }
                }
            }
            assert_eq!(late.get(b"b\x03").unwrap(), plain.get(b"b\x03").unwrap());
        }
    }
}
