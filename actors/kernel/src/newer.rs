//! For tests: events of a newer build.

use bytes::Bytes;
use clawnode_proto::{
    CodecError, EntityId, EventId, Grammar, Head, Sealed,
    event::{VERSION, encode_record},
    kernel::CLAIM,
};

use crate::Core;

/// An event of a known kind, with a body that no build has written yet.
#[derive(Debug)]
pub struct Future(pub &'static str, pub Vec<u8>);

impl Grammar for Future {
    const KINDS: &'static [&'static str] = &[];

    fn kind(&self) -> &'static str {
        self.0
    }

    fn required(&self) -> bool {
        false
    }

    fn progress(&self) -> bool {
        false
    }

    fn encode_body(&self) -> Result<Vec<u8>, CodecError> {
        Ok(self.1.clone())
    }

    fn view(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    fn decode_body(_: &str, _: &[u8]) -> Result<Option<Self>, CodecError> {
        Ok(None)
    }
}

/// The record with which the last writer of `entity` adds this event; `None` before the first
/// claim.
pub fn record(entity: EntityId, core: &Core, event: &impl Grammar) -> Option<Bytes> {
    let (tail, incarnation, n) = (core.tail, core.incarnation?, core.tail.n.next());
    let head = Head {
        entity,
        n,
        v: VERSION,
        eid: EventId::derive(entity, incarnation, n),
        epoch: if event.kind() == CLAIM { tail.epoch.next() } else { tail.epoch },
        incarnation,
        ts: tail.ts,
        kind: event.kind().to_owned(),
        required: event.required(),
        progress: event.progress(),
    };
    let sealed = Sealed::seal(head, event, tail.hash).ok()?;
    encode_record(&[sealed]).ok().map(Bytes::from)
}
