//! The index: where the log has what. Rebuildable from the log, never the only copy of anything.
//!
//! One key space, told apart by a first byte, so that one atomic batch changes all of it. sled's
//! `flush` does not reach the disk on Linux, and sled may panic on a damaged file: every call is
//! guarded, and [`super::open()`] trusts the folder only if the machine has not restarted since.

use std::{
    collections::BTreeMap,
    fmt,
    ops::Bound,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use clawnode_proto::{EntityId, Position, TimerId};

use super::record::{u32_at, u64_at, u128_at};

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Loc {
    pub(super) segment: u32,
    pub(super) offset: u32,
    /// Bytes of its body.
    pub(super) len: u32,
}

/// The index cannot answer; it is set aside and built anew when the directory is next opened.
#[derive(Debug, thiserror::Error)]
#[error("index failed: {0}")]
pub(super) struct IndexError(String);

/// Up to where the log is in the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) segment: u32,
    pub(super) offset: u32,
    /// The highest position in it.
    pub(super) position: u64,
}

/// Ordered bytes under bytes.
pub(super) enum Index {
    /// On disk.
    Sled(sled::Db),
    /// For readers that must not write.
    Memory(BTreeMap<Vec<u8>, Vec<u8>>),
}

/// A key and its value.
pub(super) type Pair = (Vec<u8>, Vec<u8>);

/// Changes to make in one step; `None` removes.
pub(super) type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sled(_) => "Sled",
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
            // The log is synced, the index need not be; it is flushed when it is let go.
            .flush_every_ms(None)
            .segment_size(256 << 10);
        guarded(|| config.open()).map(Self::Sled)
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
        match self {
            Self::Sled(db) => guarded(|| Ok(db.get(key)?.map(|value| value.to_vec()))),
            Self::Memory(map) => Ok(map.get(key).cloned()),
        }
    }

    /// Visits what begins with `prefix`, from `from` on, until `visit` says stop (`false`).
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
            Self::Sled(db) => guarded(|| {
                for pair in db.range::<&[u8], _>((from, Bound::Unbounded)) {
                    let (key, value) = pair?;
                    if !key.starts_with(prefix) || !visit(&key, &value) {
                        break;
                    }
                }
                Ok(())
            }),
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
    pub(super) fn last(&self, prefix: &[u8]) -> Result<Option<Pair>, IndexError> {
        match self {
            Self::Sled(db) => guarded(|| {
                let last = db.scan_prefix(prefix).next_back().transpose()?;
                Ok(last.map(|(key, value)| (key.to_vec(), value.to_vec())))
            }),
            Self::Memory(map) => Ok(map
                .range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded))
                .take_while(|(key, _)| key.starts_with(prefix))
                .last()
                .map(|(key, value)| (key.clone(), value.clone()))),
        }
    }

    /// Makes all changes or none.
    pub(super) fn commit(&mut self, changes: Changes) -> Result<(), IndexError> {
        match self {
            Self::Sled(db) => {
                let mut batch = sled::Batch::default();
                for (key, value) in changes {
                    match value {
                        Some(value) => batch.insert(key, value),
                        None => batch.remove(key),
                    }
                }
                guarded(|| db.apply_batch(batch))
            }
            Self::Memory(map) => {
                for (key, value) in changes {
                    match value {
                        Some(value) => drop(map.insert(key, value)),
                        None => drop(map.remove(&key)),
                    }
                }
                Ok(())
            }
        }
    }

    /// Hands everything to the operating system.
    pub(super) fn flush(&self) -> Result<(), IndexError> {
        match self {
            Self::Sled(db) => guarded(|| db.flush().map(drop)),
            Self::Memory(_) => Ok(()),
        }
    }

    pub(super) fn applied(&self) -> Result<Option<Applied>, IndexError> {
        Ok(self.get(&keys::applied())?.as_deref().and_then(Applied::decode))
    }
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

/// A waiting input: whose it is and where.
pub(super) fn encode_waiting(entity: EntityId, loc: Loc) -> Vec<u8> {
    let mut out = entity.as_u128().to_be_bytes().to_vec();
    out.extend(loc.encode());
    out
}

pub(super) fn decode_waiting(bytes: &[u8]) -> Option<(EntityId, Loc)> {
    Some((EntityId::from_u128(u128_at(bytes, 0)?), Loc::decode(bytes.get(16..)?)?))
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
    use super::{EntityId, Position, TimerId, u64_at, u128_at};

    pub(in super::super) const JOURNALS: &[u8] = b"j";
    pub(in super::super) const INPUTS: &[u8] = b"i";
    pub(in super::super) const VALUES: &[u8] = b"b";
    pub(in super::super) const EXPIRIES: &[u8] = b"x";
    pub(in super::super) const TIMERS: &[u8] = b"t";
    pub(in super::super) const DUE: &[u8] = b"d";
    pub(in super::super) const LIVE: &[u8] = b"l";

    pub(in super::super) fn applied() -> Vec<u8> {
        b"m applied".to_vec()
    }

    /// The directory that the index was made for.
    pub(in super::super) fn store() -> Vec<u8> {
        b"m store".to_vec()
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

    pub(in super::super) fn input(position: Position) -> Vec<u8> {
        join(&[INPUTS, &position.0.to_be_bytes()])
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
