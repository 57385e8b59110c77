//! How many live points a memory may have, as the configuration of this process says.
//!
//! Only what an owner decides depends on it, and what it decides is in the journal. A fold compares with the most that
//! any configuration may say, so a journal gives the same state in each process, whatever its configuration is.

use std::sync::atomic::{AtomicUsize, Ordering};

use clawnode_proto::limits::{MEMORY_BYTES, MEMORY_POINTS, MEMORY_POINTS_MOST};

use super::consolidate::PointsSize;

/// Of the process, because a kind is a type and has no settings: its decisions are functions of a state.
static POINTS: AtomicUsize = AtomicUsize::new(MEMORY_POINTS);

/// How many live points memories have at most, by what this process decides.
pub fn points_most() -> usize {
    POINTS.load(Ordering::Relaxed)
}

/// Sets that, within what a memory may have at all. A process does so before it serves memories.
pub fn set_points_most(points: usize) {
    POINTS.store(points.clamp(1, MEMORY_POINTS_MOST), Ordering::Relaxed);
}

/// The most that live points take, by what this process decides.
pub(super) fn most() -> PointsSize {
    PointsSize { points: points_most(), bytes: MEMORY_BYTES }
}
