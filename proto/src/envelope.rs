//! The envelope of an input: all that a receiver must know to take it.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::{
    codec::{CodecError, decode, encode},
    id::{Digest, EntityId, IdempotencyKey, InputId, Kind},
    node::VersionRange,
    timestamp::Timestamp,
};

/// The oldest and newest version of the envelope that this build speaks. In version 4 a client may offer
/// tools, and a message may have a schema for its reply or a choice that its session keeps, in version 3 a message may have attachments, in
/// version 2 an input may be for any kind of entity; version 1 has sessions only.
pub const VERSIONS: std::ops::RangeInclusive<u16> = 1..=4;

/// The oldest reader of a client's tools, their results, and the settings that came with them: an older
/// one would lose them unseen.
pub const CLIENT_TOOLS: u16 = 4;

/// The oldest reader of a message with a schema for its reply: an older one would not judge the reply.
pub const RESPONSE_SCHEMA: u16 = 4;

/// The oldest reader of a choice that the session keeps: an older one would forget it.
pub const KEPT_CHOICES: u16 = 4;

/// The oldest reader of a message with metadata: an older one would lose it unseen.
pub const METADATA: u16 = 4;
/// The oldest reader of a message with a lane of its own: an older one would serve it as any other.
pub const LANES: u16 = 4;

/// The oldest reader of feedback: an older one would take it for an input of a newer build.
pub const FEEDBACK: u16 = 4;

/// The oldest reader of a request for a reflection: an older one would take it for an input of a newer build.
pub const REFLECT: u16 = 4;

/// The oldest reader of an import of points: an older one would set it aside as an input that no memory takes. So does a build
/// from before the first release that speaks this version and has no imports yet.
pub const IMPORT: u16 = 4;

/// The oldest reader of a message with attachments: an older one would lose them unseen.
pub const ATTACHMENTS: u16 = 3;

/// The oldest reader of attachments that have a place in the text: an older one would show them before all of it.
pub const ATTACHMENT_PLACES: u16 = 4;

/// The version of all other inputs: their layout uses nothing newer.
pub const PLAIN: u16 = 2;

/// The oldest reader of inputs for this kind: one of version 1 would take an unknown kind for damage.
fn oldest_reader(kind: Kind) -> u16 {
    if kind == Kind::SESSION { 1 } else { 2 }
}

/// A W3C trace context's `traceparent`, carried as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Traceparent(pub String);

/// An operator's order about an entity that is out of service. The kernel carries it out and the kind never
/// sees it, so it works on journals that cannot be folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Puts a quarantined entity back in service; its parked inputs are served.
    Restore,
    /// Replaces its journal by a tombstone. Its parked and waiting inputs are deleted with it.
    Bury,
}

impl Order {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Restore => "restore",
            Self::Bury => "bury",
        }
    }
}

/// A message for an entity. It waits in the entity's inbox until the journal has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Input {
    /// The version of this layout that the sender wrote.
    pub v: u16,
    /// The oldest reader that may take it.
    pub v_min: u16,
    /// Derived from the entity and `idempotency_key`: an input that is sent again has the same id.
    pub id: InputId,
    /// The receiver.
    pub entity: EntityId,
    /// The kind of the receiver, for its birth.
    pub kind: Kind,
    /// The receiver's readable key, for its birth; its hash is `entity`.
    pub key: String,
    /// The sender's name for this request.
    pub idempotency_key: IdempotencyKey,
    /// When it was sent, by the sender's clock; for people only.
    pub sent: Timestamp,
    /// The trace that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<Traceparent>,
    /// An order for the kernel; `body` is empty then. It has no effect on an entity in service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// The kind's own input, encoded.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<u8>"))]
    pub body: ByteBuf,
}

/// What every version of the layout says.
#[derive(Deserialize)]
struct Readers {
    v_min: u16,
    id: InputId,
}

/// Why an input was not taken.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// Not readable.
    #[error("input is not readable")]
    Codec(#[from] CodecError),
    /// Written for newer readers only.
    #[error("input needs a reader of version `{needs}`, this one reads up to `{reads}`")]
    TooNew {
        /// The input that cannot be read here. A worker of a newer build can read it.
        input: InputId,
        /// The oldest reader that may take it.
        needs: u16,
        /// The newest that this one reads.
        reads: u16,
    },
    /// Its entity id is not the hash of its kind and key.
    #[error("input names entity `{found}`, but its key `{key}` is entity `{expected}`")]
    KeyMismatch {
        /// The id it names.
        found: EntityId,
        /// The id of its key.
        expected: EntityId,
        /// Its key.
        key: String,
    },
}

impl Input {
    /// An input of `kind` for the entity with `key`.
    pub fn new<B: Serialize>(
        kind: Kind,
        key: &str,
        idempotency_key: IdempotencyKey,
        sent: Timestamp,
        body: &B,
    ) -> Result<Self, CodecError> {
        let entity = EntityId::derive(kind, key);
        Ok(Self {
            v: PLAIN,
            v_min: oldest_reader(kind),
            id: InputId::derive(entity, &idempotency_key),
            entity,
            kind,
            key: key.to_owned(),
            idempotency_key,
            sent,
            traceparent: None,
            order: None,
            body: ByteBuf::from(encode(body)?),
        })
    }

    /// An order about `entity`, by its id alone: a damaged journal may not tell its key. The same
    /// order about the same state, whose digest is `about`, is the same input.
    pub fn order(
        kind: Kind,
        entity: EntityId,
        about: Digest,
        sent: Timestamp,
        order: Order,
    ) -> Self {
        let idempotency_key = IdempotencyKey::of_order(order.as_str(), about);
        Self {
            v: PLAIN,
            v_min: oldest_reader(kind),
            id: InputId::derive(entity, &idempotency_key),
            entity,
            kind,
            key: String::new(),
            idempotency_key,
            sent,
            traceparent: None,
            order: Some(order),
            body: ByteBuf::new(),
        }
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CodecError> {
        encode(self)
    }

    /// Reads an input and refuses one that is not meant for this build or contradicts itself.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InputError> {
        Self::read(bytes, VersionRange::from(VERSIONS))
    }

    /// Reads an input also if only newer readers may take it: for those who keep it or show it. It may lack what this
    /// build does not know.
    pub fn of_any_version(bytes: &[u8]) -> Result<Self, InputError> {
        Self::read(bytes, VersionRange { oldest: *VERSIONS.start(), newest: u16::MAX })
    }

    /// Reads an input as a process does that speaks these versions.
    pub fn read(bytes: &[u8], speaks: VersionRange) -> Result<Self, InputError> {
        let reads = speaks.newest;
        let too_new = |input, needs| InputError::TooNew { input, needs, reads };
        let input: Self = match decode(bytes) {
            Ok(input) => input,
            // A layout of later may not be readable, but it says for whom it is.
            Err(unreadable) => match decode::<Readers>(bytes) {
                Ok(Readers { v_min, id }) if v_min > reads => return Err(too_new(id, v_min)),
                _ => return Err(unreadable.into()),
            },
        };
        if input.v_min > reads {
            return Err(too_new(input.id, input.v_min));
        }
        let expected = EntityId::derive(input.kind, &input.key);
        if expected != input.entity && input.order.is_none() {
            return Err(InputError::KeyMismatch { found: input.entity, expected, key: input.key });
        }
        Ok(input)
    }
}
