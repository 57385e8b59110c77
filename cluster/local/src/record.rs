//! The log's record: a header with its own checksum, and a body with another.
//!
//! A header itself names its entity and its length, so a damaged body costs one entity, not the
//! log. Its checksum covers its place (segment, offset): bytes from another place, or from a
//! message that quotes a log, are no record. `batch_back` says how far back its group commit began.
//! A group is written only after the one before it is synced, so a readable record of a *later*
//! group proves that what precedes it was durable.

use clawnode_proto::{Capability, EntityId, Position, TimerId};

use super::{
    bytes_at::{u32_at, u64_at, u128_at},
    index::Loc,
};

/// Bytes of a header.
pub(super) const HEADER: usize = 56;
/// The first bytes of every record.
pub(super) const MAGIC: [u8; 4] = *b"CLR1";
/// The largest body (64 MiB): far above every limit at the handles, it only bounds what a reader
/// accepts.
pub(super) const BODY_MAX: u32 = 64 << 20;

/// What a record does. Numbers are on disk: never reuse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordKind {
    /// Adds to a journal.
    Append = 1,
    /// Replaces a journal.
    Rollup = 2,
    /// Adds an input.
    Put = 3,
    /// Removes the input or the job at `target`.
    Ack = 4,
    /// A timer has fired: removes it, adds its input. Body: timer id, input.
    Fired = 5,
    /// Sets a timer. Body: timer id, due, input.
    TimerSet = 6,
    /// Removes a timer. Body: timer id.
    TimerCancel = 7,
    /// Sets a bucket value. Body: expiry, length of key, key, value.
    BucketPut = 8,
    /// Removes a bucket value. Body: key.
    BucketDelete = 9,
    /// A damaged stretch that a repair closed off.
    Hole = 10,
    /// Adds a job. Body: length of capability, capability, job. Format 2.
    JobPut = 11,
}

impl RecordKind {
    fn of(byte: u8) -> Option<Self> {
        [
            Self::Append,
            Self::Rollup,
            Self::Put,
            Self::Ack,
            Self::Fired,
            Self::TimerSet,
            Self::TimerCancel,
            Self::BucketPut,
            Self::BucketDelete,
            Self::Hole,
            Self::JobPut,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }
}

/// A record's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: RecordKind,
    /// Its entity; zero for bucket records, the job's own bits for a job.
    pub(super) entity: EntityId,
    pub(super) position: Position,
    /// The position that an `Ack` removes; zero otherwise.
    pub(super) target: Position,
    /// Bytes between the beginning of its group and this record.
    pub(super) batch_back: u32,
    pub(super) body_len: u32,
    pub(super) body_crc: u32,
}

impl Header {
    /// Its bytes at this place.
    pub(super) fn encode(&self, segment: u32, offset: u64) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[0..4].copy_from_slice(&MAGIC);
        out[4] = self.kind as u8;
        out[8..24].copy_from_slice(&self.entity.as_u128().to_be_bytes());
        out[24..32].copy_from_slice(&self.position.0.to_be_bytes());
        out[32..40].copy_from_slice(&self.target.0.to_be_bytes());
        out[40..44].copy_from_slice(&self.batch_back.to_be_bytes());
        out[44..48].copy_from_slice(&self.body_len.to_be_bytes());
        out[48..52].copy_from_slice(&self.body_crc.to_be_bytes());
        let crc = header_crc(&out, segment, offset);
        out[52..56].copy_from_slice(&crc.to_be_bytes());
        out
    }

    /// The header at this place, if there is one.
    pub(super) fn decode(bytes: &[u8], segment: u32, offset: u64) -> Option<Self> {
        let bytes: &[u8; HEADER] = bytes.get(..HEADER)?.try_into().ok()?;
        if bytes[0..4] != MAGIC || u32_at(bytes, 52)? != header_crc(bytes, segment, offset) {
            return None;
        }
        let header = Self {
            kind: RecordKind::of(bytes[4])?,
            entity: EntityId::from_u128(u128_at(bytes, 8)?),
            position: Position(u64_at(bytes, 24)?),
            target: Position(u64_at(bytes, 32)?),
            batch_back: u32_at(bytes, 40)?,
            body_len: u32_at(bytes, 44)?,
            body_crc: u32_at(bytes, 48)?,
        };
        (header.body_len <= BODY_MAX).then_some(header)
    }

    /// Bytes of the whole record.
    pub(super) fn record_len(&self) -> u64 {
        HEADER as u64 + u64::from(self.body_len)
    }

    /// Where its body is, given the place of its header.
    pub(super) fn loc(&self, segment: u32, offset: u32) -> Loc {
        Loc { segment, offset, len: self.body_len }
    }

    /// Whether `body` matches the checksum.
    pub(super) fn fits(&self, body: &[u8]) -> bool {
        self.kind != RecordKind::Hole && crc32fast::hash(body) == self.body_crc
    }
}

fn header_crc(bytes: &[u8; HEADER], segment: u32, offset: u64) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..52]);
    hasher.update(&segment.to_be_bytes());
    hasher.update(&offset.to_be_bytes());
    hasher.finalize()
}

/// The timer that a `Fired`, `TimerSet` or `TimerCancel` body names, and the rest of the body.
pub(super) fn split_timer(body: &[u8]) -> Option<(TimerId, &[u8])> {
    Some((TimerId::from_u128(u128_at(body, 0)?), body.get(16..)?))
}

/// The due time of a `TimerSet` body, and the input.
pub(super) fn split_due(rest: &[u8]) -> Option<(u64, &[u8])> {
    Some((u64_at(rest, 0)?, rest.get(8..)?))
}

/// A `BucketPut` body's expiry (0: never), key and value.
pub(super) fn split_bucket(body: &[u8]) -> Option<(u64, &str, &[u8])> {
    let expires = u64_at(body, 0)?;
    let key_len = usize::from(u16::from_be_bytes(body.get(8..10)?.try_into().ok()?));
    let key = std::str::from_utf8(body.get(10..10 + key_len)?).ok()?;
    Some((expires, key, body.get(10 + key_len..)?))
}

/// A `JobPut` body's capability and job.
pub(super) fn split_job(body: &[u8]) -> Option<(Capability, &[u8])> {
    let len = usize::from(*body.first()?);
    let capability = std::str::from_utf8(body.get(1..=len)?).ok()?.parse().ok()?;
    Some((capability, body.get(1 + len..)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> Header {
        Header {
            kind: RecordKind::Put,
            entity: EntityId::from_u128(7),
            position: Position(3),
            target: Position(0),
            batch_back: 9,
            body_len: 4,
            body_crc: crc32fast::hash(b"body"),
        }
    }

    #[test]
    fn a_header_is_valid_only_where_it_was_written() {
        let bytes = header().encode(2, 100);
        assert_eq!(Header::decode(&bytes, 2, 100), Some(header()));
        assert_eq!(Header::decode(&bytes, 2, 101), None);
        assert_eq!(Header::decode(&bytes, 3, 100), None);
        assert!(header().fits(b"body"));
        assert!(!header().fits(b"bodY"));
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_seen(bit in 0..HEADER * 8) {
            let mut bytes = header().encode(1, 0);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Header::decode(&bytes, 1, 0), None);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            prop_assert_eq!(Header::decode(&bytes, 1, 0), None);
            // The checksum of a body is checked first, but a bad body must not cause a panic
            // either.
            prop_assert!(split_timer(&bytes).is_some() == (bytes.len() >= 16));
            if let Some((capability, job)) = split_job(&bytes) {
                prop_assert_eq!(1 + capability.as_str().len() + job.len(), bytes.len());
            }
            if let Some((_, key, value)) = split_bucket(&bytes) {
                prop_assert_eq!(10 + key.len() + value.len(), bytes.len());
            }
        }
    }
}
