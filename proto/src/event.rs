//! What every journal event wears, and how a record of events is written down.
//!
//! A record is one append: a list of sealed events. An event's bytes are sealed by
//! `hash = BLAKE3(previous hash ‖ bytes)`, so a journal is a chain that anyone can verify. The
//! head (number, epoch, incarnation, kind, `progress`) is readable without knowing the kind: that
//! is what admission, quarantine and `journal verify` read.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::{
    codec::{CodecError, decode, encode},
    id::{Digest, EntityId, Epoch, EventId, Incarnation, Seq},
    timestamp::Timestamp,
};

/// The version of the head's layout.
pub const VERSION: u16 = 1;
/// The wire name of the event that takes ownership.
pub const CLAIM: &str = "claim";

/// What is known of an event without knowing its kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Head {
    /// The entity, so that an event found anywhere says whose it is.
    pub entity: EntityId,
    /// Its number, dense from 1 (I1).
    pub n: Seq,
    /// The version of this head's layout.
    pub v: u16,
    /// Made by the writer; how an append knows its own.
    pub eid: EventId,
    /// The writer's epoch (I2).
    pub epoch: Epoch,
    /// The writer's activation (I2).
    pub incarnation: Incarnation,
    /// When, by the writer's clock.
    pub ts: Timestamp,
    /// The kind's name, for example `turn_done`.
    pub kind: String,
    /// Whether a reader that does not know the kind must stand back.
    pub required: bool,
    /// Whether it shows that the entity gets on (C16).
    pub progress: bool,
}

/// A head and the kind's own bytes: what is hashed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Unsealed {
    head: Head,
    body: ByteBuf,
}

/// One event as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// What is known without the kind.
    pub head: Head,
    /// The kind's own bytes.
    pub body: Vec<u8>,
    /// `BLAKE3(previous hash ‖ exact bytes of head and body)`.
    pub hash: Digest,
    bytes: Vec<u8>,
}

/// The last event of a journal, as far as the next one needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tail {
    /// Its number.
    pub n: Seq,
    /// Its hash.
    pub hash: Digest,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its time.
    pub ts: Timestamp,
}

/// A journal's events: names and encodings, declared once per entity kind.
pub trait Grammar: Sized {
    /// The wire names of all its kinds; only ever grows.
    const KINDS: &'static [&'static str];
    /// The wire name of this event's kind.
    fn kind(&self) -> &'static str;
    /// Whether a reader that does not know the kind must stand back.
    fn required(&self) -> bool;
    /// Whether it shows that the entity gets on (C16).
    fn progress(&self) -> bool;
    /// The kind's own bytes.
    fn encode_body(&self) -> Result<Vec<u8>, CodecError>;
    /// What it says, for people: ids and digests as text.
    fn view(&self) -> serde_json::Value;
    /// The event of this name, or `None` if the name is not known here.
    fn decode_body(kind: &str, body: &[u8]) -> Result<Option<Self>, CodecError>;
    /// Whether a kind of this name is known here.
    fn knows(kind: &str) -> bool {
        Self::KINDS.contains(&kind)
    }
}

/// Why a record is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Not readable at all.
    #[error("record is not readable")]
    Codec(#[from] CodecError),
    /// A number is missing or repeated (I1).
    #[error("event `{found}` follows event `{after}`")]
    Gap {
        /// The number before.
        after: Seq,
        /// The number found.
        found: Seq,
    },
    /// The bytes are not those that were sealed (I1).
    #[error("event `{n}` does not have the hash it was sealed with")]
    Hash {
        /// The event's number.
        n: Seq,
    },
    /// An epoch went back, or changed without a claim (I2).
    #[error("event `{n}` has epoch `{found}` after `{after}` without a claim")]
    Epoch {
        /// The event's number.
        n: Seq,
        /// The epoch before.
        after: Epoch,
        /// The epoch found.
        found: Epoch,
    },
    /// Another entity's event.
    #[error("event `{n}` belongs to `{found}`")]
    Foreign {
        /// The event's number.
        n: Seq,
        /// Whose it is.
        found: EntityId,
    },
    /// A record without events.
    #[error("record holds no event")]
    Empty,
}

// === impl Tail ===

impl Tail {
    /// Before the first event.
    pub const START: Self =
        Self { n: Seq(0), hash: Digest::ZERO, epoch: Epoch(0), ts: Timestamp(0) };

    /// The tail after `event`, if `event` follows this one: dense, chained, in epoch (I1, I2).
    ///
    /// The kind named `claim` may raise the epoch; the reader handles a snapshot's replacement of
    /// earlier events (see [`crate::kernel::Snapshot`]).
    pub fn follow(&self, event: &Sealed) -> Result<Self, RecordError> {
        let head = &event.head;
        if head.n != self.n.next() {
            return Err(RecordError::Gap { after: self.n, found: head.n });
        }
        if event.hash != Digest::chain(self.hash, &event.bytes) {
            return Err(RecordError::Hash { n: head.n });
        }
        let claims = head.kind == CLAIM;
        let fits = if claims { head.epoch > self.epoch } else { head.epoch == self.epoch };
        if !fits {
            return Err(RecordError::Epoch { n: head.n, after: self.epoch, found: head.epoch });
        }
        Ok(self.skip(event))
    }

    /// The tail after `event` without asking whether it follows.
    #[must_use]
    pub fn skip(&self, event: &Sealed) -> Self {
        Self { n: event.head.n, hash: event.hash, epoch: event.head.epoch, ts: event.head.ts }
    }
}

// === impl Sealed ===

impl Sealed {
    /// Seals an event behind `previous`.
    pub fn seal<G: Grammar>(head: Head, event: &G, previous: Digest) -> Result<Self, CodecError> {
        let body = event.encode_body()?;
        let unsealed = Unsealed { head, body: ByteBuf::from(body) };
        let bytes = encode(&unsealed)?;
        let hash = Digest::chain(previous, &bytes);
        Ok(Self { head: unsealed.head, body: unsealed.body.into_vec(), hash, bytes })
    }

    /// How many bytes it takes in a record, nearly.
    pub fn len(&self) -> usize {
        self.bytes.len() + 40
    }

    /// Never: an event has a head.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The event itself, or `None` if its kind is unknown here.
    pub fn event<G: Grammar>(&self) -> Result<Option<G>, CodecError> {
        G::decode_body(&self.head.kind, &self.body)
    }
}

/// Writes one append down.
pub fn encode_record(events: &[Sealed]) -> Result<Vec<u8>, CodecError> {
    let list: Vec<(&serde_bytes::Bytes, Digest)> =
        events.iter().map(|event| (serde_bytes::Bytes::new(&event.bytes), event.hash)).collect();
    encode(&list)
}

/// Reads one append; says nothing yet of whether it follows what came before.
pub fn decode_record(bytes: &[u8]) -> Result<Vec<Sealed>, RecordError> {
    let list: Vec<(ByteBuf, Digest)> = decode(bytes)?;
    if list.is_empty() {
        return Err(RecordError::Empty);
    }
    list.into_iter()
        .map(|(bytes, hash)| {
            let Unsealed { head, body } = decode(&bytes)?;
            Ok(Sealed { head, body: body.into_vec(), hash, bytes: bytes.into_vec() })
        })
        .collect()
}

/// Declares a grammar: variants, their wire names and their two flags, in one table.
///
/// Each variant holds one serializable type of its own. A name is never used again for something
/// else.
#[macro_export]
macro_rules! grammar {
    (
        $(#[$doc:meta])*
        pub enum $name:ident {
            $( $(#[$vdoc:meta])* $variant:ident($body:ty) = $wire:literal $(, $flag:ident)* ; )*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub enum $name {
            $( $(#[$vdoc])* $variant($body), )*
        }

        impl $crate::event::Grammar for $name {
            const KINDS: &'static [&'static str] = &[ $( $wire, )* ];

            fn kind(&self) -> &'static str {
                match self { $( Self::$variant(_) => $wire, )* }
            }

            fn required(&self) -> bool {
                match self { $( Self::$variant(_) => $crate::grammar!(@has required $($flag)*), )* }
            }

            fn progress(&self) -> bool {
                match self { $( Self::$variant(_) => $crate::grammar!(@has progress $($flag)*), )* }
            }

            fn encode_body(&self) -> Result<Vec<u8>, $crate::codec::CodecError> {
                match self { $( Self::$variant(body) => $crate::codec::encode(body), )* }
            }

            fn view(&self) -> ::serde_json::Value {
                match self {
                    // Plain data; what cannot be shown is shown as nothing.
                    $( Self::$variant(body) => {
                        ::serde_json::to_value(body).unwrap_or(::serde_json::Value::Null)
                    } )*
                }
            }

            fn decode_body(
                kind: &str,
                body: &[u8],
            ) -> Result<Option<Self>, $crate::codec::CodecError> {
                match kind {
                    $( $wire => $crate::codec::decode(body).map(Self::$variant).map(Some), )*
                    _ => Ok(None),
                }
            }
        }

        $(
            impl From<$body> for $name {
                fn from(body: $body) -> Self {
                    Self::$variant(body)
                }
            }
        )*
    };
    (@has required required $($rest:ident)*) => { true };
    (@has progress progress $($rest:ident)*) => { true };
    (@has $wanted:ident $other:ident $($rest:ident)*) => { $crate::grammar!(@has $wanted $($rest)*) };
    (@has $wanted:ident) => { false };
}
