//! What a process must know to serve an entity.

use std::fmt;

use clawnode_proto::Kind;

/// What a process must know to serve an entity that this one cannot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MissingCapability {
    /// A kind of event.
    Event(String),
    /// A version of the envelope.
    Input(u16),
    /// A kind of entities.
    Kind(Kind),
    /// Events of this kind, or their part of a snapshot, as a newer build writes it.
    Newer(String),
}

// === impl MissingCapability ===

impl fmt::Display for MissingCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(kind) => f.write_str(kind),
            Self::Input(version) => write!(f, "input v{version}"),
            Self::Kind(kind) => write!(f, "entities of the kind {kind}"),
            Self::Newer(kind) => write!(f, "{kind} of a newer version"),
        }
    }
}
