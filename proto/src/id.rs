//! Every id, a newtype with a prefix in its text.
//!
//! An opaque id is 128 bits. Its text is `prefix_` and 26 lower-case Crockford base-32 digits, so
//! it is safe in a NATS subject, a file name and a URL, and says what it names. In `MessagePack` it
//! is 16 bytes. Ids that are *derived* (a turn from its input, a call from its turn and step) make
//! decisions repeatable after a crash: the same state names the same things.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::timestamp::Timestamp;

pub use crate::kind::Kind;
pub use crate::name::{
    AgentName, Capability, HookName, IdempotencyKey, KeyPart, McpServerName, NodeName, SessionKey,
    SshHostName, ToolName,
};

/// Crockford's base-32 alphabet in lower case.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Digits that 128 bits take in base 32.
const DIGITS: usize = 26;

/// A text that is not the id it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct ParseIdError {
    text: String,
    expected: &'static str,
}

impl ParseIdError {
    pub(crate) fn new(text: &str, expected: &'static str) -> Self {
        Self { text: text.chars().take(80).collect(), expected }
    }
}

fn write_base32(f: &mut fmt::Formatter<'_>, value: u128) -> fmt::Result {
    // In one piece: a string that grows by a character at a time is moved again and again.
    let mut text = [0; DIGITS];
    for (at, digit) in text.iter_mut().rev().enumerate() {
        *digit = ALPHABET[((value >> (at * 5)) & 31) as usize];
    }
    // The alphabet is ASCII, so this cannot fail.
    f.write_str(std::str::from_utf8(&text).unwrap_or_default())
}

fn parse_base32(text: &str) -> Option<u128> {
    if text.len() != DIGITS {
        return None;
    }
    let mut value: u128 = 0;
    for (at, byte) in text.bytes().enumerate() {
        let digit = ALPHABET.iter().position(|&known| known == byte)?;
        if at == 0 && digit > 7 {
            return None;
        }
        value = (value << 5) | digit as u128;
    }
    Some(value)
}

/// Hashes length-prefixed parts under a domain, so that no two lists of parts collide.
pub(crate) fn derive(domain: &'static str, parts: &[&[u8]]) -> u128 {
    let mut hasher = blake3::Hasher::new_derive_key(domain);
    for part in parts {
        hasher.update(&(part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    let mut out = [0; 16];
    hasher.finalize_xof().fill(&mut out);
    u128::from_be_bytes(out)
}

macro_rules! opaque_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// What its text begins with.
            pub const PREFIX: &'static str = concat!($prefix, "_");

            /// The id with exactly these bits.
            pub const fn from_u128(bits: u128) -> Self {
                Self(bits)
            }

            /// Its 128 bits.
            pub const fn as_u128(self) -> u128 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(Self::PREFIX)?;
                write_base32(f, self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                text.strip_prefix(Self::PREFIX)
                    .and_then(parse_base32)
                    .map(Self)
                    .ok_or_else(|| ParseIdError::new(text, concat!("an id of `", $prefix, "_` and 26 letters or digits")))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.collect_str(self)
                } else {
                    serializer.serialize_bytes(&self.0.to_be_bytes())
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str(concat!("16 bytes, or text that begins with `", $prefix, "_`"))
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<$name, E> {
                        match <[u8; 16]>::try_from(bytes) {
                            Ok(bytes) => Ok($name(u128::from_be_bytes(bytes))),
                            Err(_) => Err(E::invalid_length(bytes.len(), &self)),
                        }
                    }
                }
                // Any, because a buffering enum reader does not say which form it buffered.
                deserializer.deserialize_any(Visitor)
            }
        }
    };
}

opaque_id!(
    /// An entity: the hash of its kind and readable key.
    EntityId, "ent"
);
opaque_id!(
    /// One process of the cluster, made at its start (a ULID); never reused.
    ProcessId, "proc"
);
opaque_id!(
    /// One journal event, made by its writer; what an append reads back to know its own.
    EventId, "ev"
);
opaque_id!(
    /// One input of an entity: the hash of the entity and the idempotency key.
    InputId, "in"
);
opaque_id!(
    /// One turn of a session: the input that began it.
    TurnId, "turn"
);
opaque_id!(
    /// One model or tool call: the hash of its turn and step.
    CallId, "call"
);
opaque_id!(
    /// One job; that of a tool call has the call's bits.
    JobId, "job"
);
opaque_id!(
    /// One execution of a plan; it has its session's bits.
    ExecutionId, "exe"
);
opaque_id!(
    /// An uploaded file of a session.
    FileId, "file"
);
opaque_id!(
    /// A point of a memory: the hash of the event that it was learned from.
    MemoryPointId, "point"
);
opaque_id!(
    /// One timer of an entity.
    TimerId, "tmr"
);
opaque_id!(
    /// One setting of a kill switch (a ULID).
    SwitchId, "latch"
);

impl EntityId {
    /// The id of the entity of this kind with this readable key.
    pub fn derive(kind: Kind, key: &str) -> Self {
        Self(derive("clawnode entity id v1", &[kind.as_str().as_bytes(), key.as_bytes()]))
    }

    /// The partition that holds it, of `count` partitions.
    pub fn partition(self, count: u16) -> Partition {
        let [.., high, low] = self.0.to_be_bytes();
        // The low bits are as good as any: the id is a hash, and `count` is far below 2^16.
        Partition(u16::from_be_bytes([high, low]) % count.max(1))
    }
}

impl InputId {
    /// The id of the input that `key` names for `entity`: the same key gives the same id.
    pub fn derive(entity: EntityId, key: &IdempotencyKey) -> Self {
        Self(derive(
            "clawnode input id v1",
            &[&entity.as_u128().to_be_bytes(), key.as_str().as_bytes()],
        ))
    }
}

impl EventId {
    /// The id of the event that this activation writes as its entity's `n`th. An activation
    /// writes each number at most once, so the id is unique without chance.
    pub fn derive(entity: EntityId, incarnation: Incarnation, n: Seq) -> Self {
        Self(derive(
            "clawnode event id v1",
            &[
                &entity.as_u128().to_be_bytes(),
                &incarnation.process.as_u128().to_be_bytes(),
                &incarnation.counter.to_be_bytes(),
                &n.0.to_be_bytes(),
            ],
        ))
    }
}

impl From<InputId> for TurnId {
    fn from(input: InputId) -> Self {
        Self(input.0)
    }
}

impl CallId {
    /// The call that a turn makes at its `step` (from 0).
    pub fn derive(turn: TurnId, step: u32) -> Self {
        Self(derive("clawnode call id v1", &[&turn.as_u128().to_be_bytes(), &step.to_be_bytes()]))
    }
}

impl CallId {
    /// The tool call that a model's reply makes at its `index` (from 0).
    pub fn derive_tool(model_call: Self, index: u32) -> Self {
        Self(derive(
            "clawnode tool call id v1",
            &[&model_call.as_u128().to_be_bytes(), &index.to_be_bytes()],
        ))
    }

    /// What the frames about the tools of a model's reply belong to: they follow the reply's own.
    pub fn derive_tools(model_call: Self) -> Self {
        Self(derive("clawnode tool frames id v1", &[&model_call.as_u128().to_be_bytes()]))
    }
}

impl TimerId {
    /// The timer that ends the wait for a person who was asked about this call.
    pub fn of_approval(call: CallId) -> Self {
        Self(derive("clawnode approval timer id v1", &[&call.as_u128().to_be_bytes()]))
    }

    /// The timer that ends the wait for a client that runs tools of this model call's reply.
    pub fn of_client(model_call: CallId) -> Self {
        Self(derive("clawnode client timer id v1", &[&model_call.as_u128().to_be_bytes()]))
    }

    /// The timer that ends a turn's wait for more steps than so many.
    pub fn of_steps(turn: TurnId, limit: u32) -> Self {
        let parts: [&[u8]; 2] = [&turn.as_u128().to_be_bytes(), &limit.to_be_bytes()];
        Self(derive("clawnode steps timer id v1", &parts))
    }

    /// The timer that ends a session of a request that names no user, once it has rested for a time
    /// after its only turn.
    pub fn of_rest(turn: TurnId) -> Self {
        Self(derive("clawnode rest timer id v1", &[&turn.as_u128().to_be_bytes()]))
    }
}

impl TimerId {
    /// The timer that ends a turn whose time is over; the next one after so many have fired.
    pub fn of_time(turn: TurnId, fired: u32) -> Self {
        let parts: [&[u8]; 2] = [&turn.as_u128().to_be_bytes(), &fired.to_be_bytes()];
        Self(derive("clawnode time timer id v1", &parts))
    }
}

impl TimerId {
    /// The timer that ends a model call's wait for its provider; the next one after so many waits.
    pub fn of_outage(call: CallId, waits: u32) -> Self {
        let parts: [&[u8]; 2] = [&call.as_u128().to_be_bytes(), &waits.to_be_bytes()];
        Self(derive("clawnode outage timer id v1", &parts))
    }
}

impl TimerId {
    /// The timer for the end of a window of an account.
    pub fn of_window(account: EntityId, due: Timestamp) -> Self {
        let parts: [&[u8]; 2] = [&account.as_u128().to_be_bytes(), &due.0.to_be_bytes()];
        Self(derive("clawnode window timer id v1", &parts))
    }
}

impl From<CallId> for TimerId {
    fn from(call: CallId) -> Self {
        Self(call.0)
    }
}

impl From<JobId> for TimerId {
    fn from(job: JobId) -> Self {
        Self(job.0)
    }
}

impl From<CallId> for JobId {
    fn from(call: CallId) -> Self {
        Self(call.0)
    }
}

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident, $repr:ty) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(transparent)]
        pub struct $name(pub $repr);

        impl $name {
            /// The one after this.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter!(
    /// How many times an entity was claimed; strictly increases (I2).
    Epoch, u64
);
counter!(
    /// An event's number in its entity's journal, dense from 1 (I1); 0 is "before the first".
    Seq, u64
);
counter!(
    /// Which try at a call this is, from 1; a crash in mid-call makes the next.
    Attempt, u32
);
counter!(
    /// A store's position of a record: a fence, and how far a follower has come; no fold depends on
    /// it. 0 is "nothing yet".
    Position, u64
);
counter!(
    /// One of the partitions that entities are spread over.
    Partition, u16
);

/// One activation of an entity: which process, and its how-many-eth activation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Incarnation {
    /// The process that runs it.
    pub process: ProcessId,
    /// Unique within the process.
    pub counter: u64,
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.process, self.counter)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A BLAKE3 hash of content: the link of a journal's chain, or the name of a blob.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// What the first event of a journal is chained to.
    pub const ZERO: Self = Self([0; 32]);

    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// The digest of `bytes` after `previous`.
    pub fn chain(previous: Self, bytes: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&previous.0);
        hasher.update(bytes);
        Self(*hasher.finalize().as_bytes())
    }

    /// Its 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The digest with exactly these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        match blake3::Hash::from_hex(text) {
            Ok(hash) => Ok(Self(*hash.as_bytes())),
            Err(_) => Err(ParseIdError::new(text, "64 hexadecimal digits")),
        }
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            serializer.serialize_bytes(&self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Digest;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("32 bytes, or 64 hexadecimal digits")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Digest, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Digest, E> {
                match <[u8; 32]>::try_from(bytes) {
                    Ok(bytes) => Ok(Digest(bytes)),
                    Err(_) => Err(E::invalid_length(bytes.len(), &self)),
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_and_bytes_round_trip(bits: u128) {
            let id = EntityId::from_u128(bits);
            prop_assert_eq!(id.to_string().parse::<EntityId>(), Ok(id));
            let bytes = crate::codec::encode(&id).unwrap();
            prop_assert_eq!(crate::codec::decode::<EntityId>(&bytes).unwrap(), id);
            let json = serde_json::to_string(&id).unwrap();
            prop_assert_eq!(serde_json::from_str::<EntityId>(&json).unwrap(), id);
        }

        #[test]
        fn parsing_never_panics(text in ".*") {
            // Any text gives a verdict; only the canonical one is accepted.
            if let Ok(id) = text.parse::<EntityId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }

    /// Also of a text that begins as one does.
    #[test]
    fn what_is_no_id_is_refused_with_what_one_is() {
        let refused = "turn_123".parse::<TurnId>().unwrap_err().to_string();
        assert_eq!(refused, "`turn_123` is not an id of `turn_` and 26 letters or digits");
    }

    #[test]
    fn parts_do_not_run_together() {
        let one = EntityId::derive(Kind::SESSION, "a:b");
        assert_ne!(one, EntityId::derive(Kind::SESSION, "a:bc"));
        let key = |text: &str| text.parse::<IdempotencyKey>().unwrap();
        assert_ne!(InputId::derive(one, &key("a")), InputId::derive(one, &key("b")));
        assert_eq!(InputId::derive(one, &key("a")), InputId::derive(one, &key("a")));
    }

    #[test]
    fn a_session_key_has_exactly_four_parts() {
        let key: SessionKey = "default:cli:local:ada".parse().unwrap();
        assert_eq!(key.to_string(), "default:cli:local:ada");
        for bad in ["", "a", "a:b:c", "a:b:c:d:e", "a::c:d", "a b:c:d:e"] {
            assert!(bad.parse::<SessionKey>().is_err(), "{bad}");
        }
    }
}
