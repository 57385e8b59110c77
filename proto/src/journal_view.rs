//! What the API shows of journals.

use serde::{Deserialize, Serialize};

use crate::{
    cursor::Cursor,
    id::{Digest, EntityId, Epoch, EventId, Incarnation, Kind, Seq},
    timestamp::Timestamp,
};

/// Answer of `journal.show`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EventList {
    /// The events, in order.
    pub events: Vec<EventView>,
    /// Pass this as `cursor` for the next page. Absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
}

/// One event of `journal.show`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EventView {
    /// The number of the event.
    pub n: Seq,
    /// The name of the event.
    pub kind: String,
    /// The id of the event.
    pub eid: EventId,
    /// The epoch of the writer.
    pub epoch: Epoch,
    /// The activation that wrote it.
    pub incarnation: Incarnation,
    /// When it was written, in milliseconds since 1970.
    pub ts: Timestamp,
    /// The hash of the chain up to here.
    pub hash: Digest,
    /// The fields of the event, if this build knows it.
    pub body: serde_json::Value,
}

/// Verdict on one journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VerifyRow {
    /// The id of the entity.
    pub id: EntityId,
    /// The readable key, if it can be read.
    pub key: Option<String>,
    /// The kind of entity, if it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// How many events were verified.
    pub events: u64,
    /// The hash of the last event. Two copies of a journal with the same hash are the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Digest>,
    /// The first problem, with its event. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The node does not know the kind: it checked the hash chain and the kernel's own events only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// Answer of `journal.verify`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VerifyView {
    /// One row for each journal.
    pub journals: Vec<VerifyRow>,
}

impl VerifyView {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.journals.iter().all(|row| row.problem.is_none())
    }
}
