//! What the API shows of entities out of service, and of the inputs that are set aside.

use serde::{Deserialize, Serialize};

use crate::{
    cursor::Cursor,
    id::{EntityId, IdempotencyKey, InputId, Kind},
    timestamp::Timestamp,
};

/// One row of `quarantine.list`: an entity out of service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QuarantineRow {
    /// The id of the entity.
    pub id: EntityId,
    /// The readable key, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The kind of entity, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// `quarantined` (it can be replayed or dropped), `corrupt` or `too_new` (it can only be dropped).
    pub state: String,
    /// Why it is out of service.
    pub reason: String,
    /// When the last readable event was written. Absent if none can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Events that can be read.
    pub events: u64,
    /// Inputs that its journal has set aside.
    pub parked: u64,
    /// Inputs that wait in its inbox.
    pub waiting: u64,
}

/// Answer of `quarantine.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QuarantineList {
    /// Those out of service, in the order of the store. A page looks at `limit` entities, so it may be empty and
    /// still have a `next`.
    pub sessions: Vec<QuarantineRow>,
    /// Pass this as `cursor` for the next page. Absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
}

/// Answer of `quarantine.show`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QuarantineView {
    /// The entity, as `quarantine.list` shows it.
    pub session: QuarantineRow,
    /// Parked inputs, then waiting ones, each oldest first, with their bodies.
    pub inputs: Vec<ParkedRow>,
}

/// Answer of `quarantine.replay` and `quarantine.drop`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QuarantineDone {
    /// The id of the session.
    pub id: EntityId,
    /// The readable key, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How many parked and waiting inputs are now served, or deleted.
    pub inputs: u64,
}

/// Where an input that was put aside is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ParkedWhere {
    /// In the journal of a quarantined session.
    Journal,
    /// In the inbox of a session that is out of service.
    Inbox,
    /// Among the dead letters, which no node can read.
    DeadLetter,
}

/// One input that is set aside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ParkedRow {
    /// The session that it was sent to.
    pub session: EntityId,
    /// The readable key of the receiver, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The kind of the receiver, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Where the input is.
    pub at: ParkedWhere,
    /// Why it is not served.
    pub reason: String,
    /// When it was sent; for a dead letter, when it was set aside.
    pub ts: Timestamp,
    /// The size of the input.
    pub bytes: u64,
    /// The id of the input, if it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<InputId>,
    /// The idempotency key, if it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
    /// The name of the dead letter, for `parked.drop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub letter: Option<String>,
    /// The content, in `quarantine.show` only and if it can be read.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub body: serde_json::Value,
}

/// Answer of `parked.list`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ParkedList {
    /// Dead letters first, then by session. A page may be empty and still have a `next`.
    pub parked: Vec<ParkedRow>,
    /// Pass this as `cursor` for the next page. Absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
}
