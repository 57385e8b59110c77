//! How far a store is filled from journals.

use clawnode_proto::{Position, Timestamp};

/// How far a store is filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FillProgress {
    /// The feed was followed up to here.
    pub upto: Position,
    /// Where it ended when it was last looked at.
    pub end: Position,
    /// When the process began to fill it.
    pub began_at: Timestamp,
    /// When the store last had all that the feed had. 0: not since the process began.
    pub whole_at: Timestamp,
    /// Whether it is filled from the beginning of the feed. Searches may lack things until that is over.
    pub is_rebuilding: bool,
}

/// How far one scope is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScopeFill {
    /// The event up to which the store has it.
    pub upto: u64,
    /// The last event of its journal; 0 if there is none.
    pub end: u64,
}
