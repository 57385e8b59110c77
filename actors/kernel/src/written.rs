//! For tests: a journal that a test writes itself, event by event.

use std::error::Error;

use clawnode_cluster::{AppendAnswer, Storage, Write};
use clawnode_proto::{
    EntityId, Epoch, EventId, Grammar, Head, Incarnation, Kind, Position, ProcessId, Sealed, Tail,
    Timestamp,
    event::encode_record,
    kernel::{Born, Claim, KernelEvent},
};

/// A journal of one owner.
#[derive(Debug)]
pub struct Written {
    pub storage: Storage,
    pub id: EntityId,
    /// The entity's kind.
    pub kind: Kind,
    /// The entity's key.
    pub key: String,
    /// Its last event.
    pub tail: Tail,
    position: Position,
}

type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

impl Written {
    /// An entity born at this time, without inputs.
    pub async fn born(storage: &Storage, kind: Kind, key: &str, at: u64) -> Result<Self> {
        let mut written = Self {
            storage: storage.clone(),
            id: EntityId::derive(kind, key),
            kind,
            key: key.to_owned(),
            tail: Tail::START,
            position: Position(0),
        };
        let born = Born { kind, key: key.to_owned() };
        let claim = Claim { excused: false };
        written.append::<KernelEvent>(at, &[claim.into(), born.into()]).await?;
        Ok(written)
    }

    /// Adds these events in one record.
    pub async fn append<E: Grammar>(&mut self, at: u64, events: &[E]) -> Result {
        self.write(at, events, false).await
    }

    /// A record with this event takes the place of all others.
    pub async fn replace<E: Grammar>(&mut self, at: u64, event: E) -> Result {
        self.write(at, &[event], true).await
    }

    async fn write<E: Grammar>(&mut self, at: u64, events: &[E], rollup: bool) -> Result {
        let mut sealed = Vec::new();
        for event in events {
            let n = self.tail.n.next();
            let head = Head {
                entity: self.id,
                n,
                v: 1,
                eid: EventId::from_u128(u128::from(n.0)),
                epoch: Epoch(1),
                incarnation: Incarnation { process: ProcessId::from_u128(1), counter: 1 },
                ts: Timestamp(at),
                kind: event.kind().to_owned(),
                required: event.required(),
                progress: event.progress(),
            };
            let event = Sealed::seal(head, event, self.tail.hash)?;
            self.tail = self.tail.follow(&event)?;
            sealed.push(event);
        }
        let write = Write { bytes: encode_record(&sealed)?.into(), rollup };
        match self.storage.journal.append(self.id, self.position, write).await {
            AppendAnswer::Stored(position) => self.position = position,
            other => return Err(format!("not stored: {other:?}").into()),
        }
        Ok(())
    }
}
