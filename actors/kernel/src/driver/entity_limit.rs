//! How many entities a process has in hand: beyond it, its inboxes are not pulled.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How many entities the dispatchers of a process have in hand, active or about to be.
///
/// The bound holds nearly: what was pulled already is still taken, at most 256 deliveries for each
/// partition.
#[derive(Debug)]
pub struct ActiveEntities {
    taken: AtomicUsize,
    most: usize,
}

impl ActiveEntities {
    /// Room for so many.
    pub fn new(most: u32) -> Self {
        Self { taken: AtomicUsize::new(0), most: usize::try_from(most).unwrap_or(usize::MAX) }
    }

    /// For how many more there is room.
    pub(super) fn left(&self) -> usize {
        self.most.saturating_sub(self.taken.load(Ordering::Relaxed))
    }

    /// A dispatcher has `now` of them, and had `before`.
    pub(super) fn moved(&self, before: usize, now: usize) {
        if now > before {
            self.taken.fetch_add(now - before, Ordering::Relaxed);
        } else {
            self.taken.fetch_sub(before - now, Ordering::Relaxed);
        }
    }
}
