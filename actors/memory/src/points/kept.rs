//! A live point.

use clawnode_proto::{MemoryPointId, memory_point::MemoryPoint};
use serde::{Deserialize, Serialize};

/// A live point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptPoint {
    /// Its id.
    pub id: MemoryPointId,
    /// The point.
    pub point: MemoryPoint,
}
