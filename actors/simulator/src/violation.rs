//! What is said of an invariant that does not hold.

use clawnode_kernel::{Entity, EntityKind, FoldError};
use clawnode_proto::event::RecordError;

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgeViolation {
    pub name: &'static str,
    pub detail: String,
}

// === impl JudgeViolation ===

impl JudgeViolation {
    pub(super) fn new(name: &'static str, detail: String) -> Self {
        Self { name, detail }
    }
}

pub(super) fn encoded<K: EntityKind>(entity: &Entity<K>) -> Result<Vec<u8>, JudgeViolation> {
    entity.snapshot().map_err(|error| JudgeViolation::new("I1", error.to_string()))
}

/// Which invariant a journal that cannot be folded breaks.
pub(super) fn of_fold(error: &FoldError) -> JudgeViolation {
    let name = match error {
        FoldError::Record { source: RecordError::Epoch { .. }, .. } => "I2",
        FoldError::Record { .. }
        | FoldError::Body { .. }
        | FoldError::Unknown { .. }
        | FoldError::Input { .. }
        | FoldError::Kind { .. } => "I1",
        FoldError::Violation { source, .. } if source.0.contains("(I2)") => "I2",
        FoldError::Violation { source, .. } if source.0.contains("(HOOK-1)") => "HOOK-1",
        FoldError::Violation { source, .. } if source.0.starts_with("I6") => "I6",
        FoldError::Violation { source, .. } if source.0.starts_with("BUD-3") => "BUD-3",
        FoldError::Violation { source, .. } if source.0.starts_with("BUD-4") => "BUD-4",
        FoldError::Violation { .. } => "I3",
    };
    JudgeViolation::new(name, clawnode_proto::ErrorChain(error).to_string())
}
