//! Giving back room that only work under way needs.
//!
//! An entity at rest stays in memory until it is passivated, and most resident ones are at rest. A
//! list that once held one large element keeps room for four, and a map that is empty again keeps a
//! whole node: together that was 9 of the 22 KiB of a resident session.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Something that may keep more room than it needs.
pub trait ShrinkToFit {
    /// Gives back room that is not used, if that is more than half of it.
    fn slim(&mut self);
}

impl<T> ShrinkToFit for Vec<T> {
    fn slim(&mut self) {
        if self.capacity() > 2 * self.len() {
            self.shrink_to_fit();
        }
    }
}

impl<T> ShrinkToFit for VecDeque<T> {
    fn slim(&mut self) {
        if self.capacity() > 2 * self.len() {
            self.shrink_to_fit();
        }
    }
}

impl<K, V> ShrinkToFit for BTreeMap<K, V> {
    fn slim(&mut self) {
        if self.is_empty() {
            *self = Self::new();
        }
    }
}

impl<T> ShrinkToFit for BTreeSet<T> {
    fn slim(&mut self) {
        if self.is_empty() {
            *self = Self::new();
        }
    }
}
