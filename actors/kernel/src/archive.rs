//! Archives: the records that a snapshot replaced, and what a crash may have left of one.

use bytes::Bytes;
use clawnode_cluster::Record;
use clawnode_proto::{
    CodecError, Digest, EntityId, Position, codec,
    event::decode_record,
    kernel::{CLAIM, KernelEvent, RELEASED, Snapshot},
    limits::INLINE_BYTES,
};
use serde_bytes::ByteBuf;

use super::{Entity, EntityKind, LoadedJournal};

/// At most this many deaths in one journal are looked into: each costs an encoded state.
const DEATHS_MAX: usize = 8;

/// Archives that one journal may chain; more is a loop.
pub const ARCHIVES_MAX: usize = 100_000;

/// Positions of archived records that a snapshot names: at most 90 KB.
const POSITIONS_MAX: usize = 10_000;

/// Packs records for an archive.
pub fn pack(records: &[Record]) -> Result<Bytes, CodecError> {
    let list: Vec<&serde_bytes::Bytes> =
        records.iter().map(|record| serde_bytes::Bytes::new(&record.bytes)).collect();
    codec::encode(&list).map(Bytes::from)
}

/// The positions of these records in the store; empty for more than [`POSITIONS_MAX`], whose
/// snapshot would not fit.
pub fn positions(records: &[Record]) -> Vec<Position> {
    let few = if records.len() > POSITIONS_MAX { &[] } else { records };
    few.iter().map(|record| record.position).collect()
}

/// The records of an archive, with positions of their own.
pub fn unpack(archive: &[u8]) -> Result<Vec<Record>, CodecError> {
    let list: Vec<ByteBuf> = codec::decode(archive)?;
    let records = list
        .into_iter()
        .zip(1..)
        .map(|(bytes, at)| Record { position: Position(at), bytes: Bytes::from(bytes.into_vec()) });
    Ok(records.collect())
}

/// The snapshot that a journal, or an archived part of it, begins with.
pub fn snapshot_of(records: &[Record]) -> Option<Snapshot> {
    let first = decode_record(&records.first()?.bytes).ok()?;
    match first.first()?.event::<KernelEvent>().ok()?? {
        KernelEvent::Snapshot(snapshot) => Some(snapshot),
        _ => None,
    }
}

/// The blobs of snapshots that an owner began and never stored, because it died or was fenced. It
/// had stored the archive and the state, but not the record that names them. Such an owner appended
/// nothing more, so a claim follows. Its blobs are made of the records before that claim, and have
/// the digest that those give.
///
/// The caller that removes them must have claimed the entity: then the record that names them can
/// never be stored.
pub fn leftovers<K: EntityKind>(id: EntityId, loaded: &LoadedJournal) -> Vec<Digest> {
    let deaths = deaths(&loaded.records);
    let (Some(first), Some(last)) = (loaded.records.first(), deaths.last()) else {
        return Vec::new();
    };
    let begin = LoadedJournal { records: vec![first.clone()], snapshot: loaded.snapshot.clone() };
    let mut folded = Entity::<K>::of(id, &begin).ok();
    let mut found = Vec::new();
    for at in 1..=*last {
        if deaths.contains(&at) {
            let records = loaded.records.get(..at).unwrap_or_default();
            found.extend(pack(records).ok().map(|archive| Digest::of(&archive)));
            let state = folded.as_ref().and_then(|entity| entity.snapshot().ok());
            let large = state.filter(|state| state.len() > INLINE_BYTES);
            found.extend(large.map(|state| Digest::of(&state)));
        }
        let events = loaded.records.get(at).and_then(|record| decode_record(&record.bytes).ok());
        folded = folded.zip(events).and_then(|(mut entity, events)| {
            events.iter().try_for_each(|sealed| entity.apply(sealed)).ok()?;
            Some(entity)
        });
    }
    found
}

/// Whether an owner ended without giving the entity up.
pub fn has_deaths(records: &[Record]) -> bool {
    !deaths(records).is_empty()
}

/// How many records there were each time an owner ended without giving the entity up.
fn deaths(records: &[Record]) -> Vec<usize> {
    let mut deaths = Vec::new();
    let mut released = true;
    for (at, record) in records.iter().enumerate() {
        let Ok(events) = decode_record(&record.bytes) else { continue };
        let claims = events.first().is_some_and(|first| first.head.kind == CLAIM);
        if at > 0 && claims && !released {
            deaths.push(at);
        }
        released = events.last().is_some_and(|last| last.head.kind == RELEASED);
    }
    deaths.split_off(deaths.len().saturating_sub(DEATHS_MAX))
}
