//! What the API shows of journals.

use serde::{Deserialize, Serialize};

use crate::{
    cursor::Cursor,
    event::Timestamp,
    id::{Digest, EntityId, Epoch, EventId, Incarnation, Kind, Seq},
};

/// Answer of `journal.show`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EventList {
    /// In order.
    pub events: Vec<EventView>,
    /// Pass as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
}

/// One event of `journal.show`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EventView {
    /// Its number.
    pub n: Seq,
    /// Its kind.
    pub kind: String,
    /// Its id.
    pub eid: EventId,
    /// Its writer's epoch.
    pub epoch: Epoch,
    /// Its writer.
    pub incarnation: Incarnation,
    /// When.
    pub ts: Timestamp,
    /// Its link in the chain.
    pub hash: Digest,
    /// What it says, as far as this build knows the kind.
    pub body: serde_json::Value,
}

/// Verdict on one journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VerifyRow {
    /// Whose.
    pub id: EntityId,
    /// Its readable key, if it could be read.
    pub key: Option<String>,
    /// The entity's kind, if it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Events checked.
    pub events: u64,
    /// The hash of the last one: two copies of a journal with the same are the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Digest>,
    /// The first thing that is wrong, naming the event; absent if nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Answer of `journal.verify`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VerifyView {
    /// One row a journal.
    pub journals: Vec<VerifyRow>,
}

impl VerifyView {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.journals.iter().all(|row| row.problem.is_none())
    }
}
