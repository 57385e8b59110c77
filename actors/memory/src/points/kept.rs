//! Points as a memory keeps them, and what became of those that it was sent.

use clawnode_proto::{
    InputId, MemoryPointId,
    memory_point::{MemoryPoint, PointRefused},
    memory_view::PointState,
};
use serde::{Deserialize, Serialize};

/// A live point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptPoint {
    /// Its id.
    pub id: MemoryPointId,
    pub point: MemoryPoint,
}

/// A point that is not live any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastPoint {
    /// Its id.
    pub id: MemoryPointId,
    pub point: MemoryPoint,
    /// Why it is not live.
    pub state: PointState,
    /// The point that took its place.
    pub superseded_by: Option<MemoryPointId>,
}

/// What became of the points of one input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutAnswer {
    pub input: InputId,
    /// Those that were added.
    pub added: Vec<MemoryPointId>,
    /// Those whose sources were known.
    pub known: Vec<MemoryPointId>,
    /// Those that were not added.
    pub refused: Vec<PointRefused>,
}
