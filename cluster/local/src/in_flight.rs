//! Items that wait in lanes (partitions, capabilities), with the end of each one's time in hand.
//!
//! They are in memory, because they are as many as there is unfinished work. When a directory is
//! opened, they are built again from the index, and count as delivered before.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use clawnode_proto::Position;

use super::index::Loc;

/// One waiting item.
#[derive(Clone, Debug)]
pub(super) struct InFlightItem<L, T> {
    pub(super) of: T,
    pub(super) lane: L,
    pub(super) loc: Loc,
    /// Whether it was ever delivered.
    pub(super) seen: bool,
    state: ItemState,
}

/// An item that is delivered.
#[derive(Clone, Debug)]
pub(super) struct Popped<L, T> {
    pub(super) position: Position,
    pub(super) item: InFlightItem<L, T>,
    /// The engine must be woken to see its deadline.
    pub(super) wake: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemState {
    /// Can be delivered.
    Ready,
    /// Delivered or put back; due again at this time.
    Until(Instant),
    /// Its bytes are damaged; not delivered again by this process.
    Damaged,
}

/// All waiting items, in lanes `L`.
#[derive(Debug)]
pub(super) struct InFlightItems<L, T> {
    items: BTreeMap<Position, InFlightItem<L, T>>,
    ready: BTreeMap<L, BTreeSet<Position>>,
    deadlines: BTreeSet<(Instant, Position)>,
    /// The moment at which the engine will look at `deadlines` by itself.
    armed: Option<Instant>,
}

impl<L, T> Default for InFlightItems<L, T> {
    fn default() -> Self {
        Self {
            items: BTreeMap::new(),
            ready: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            armed: None,
        }
    }
}

impl<L: Ord + Clone, T: Clone> InFlightItems<L, T> {
    /// Adds an item.
    pub(super) fn add(&mut self, lane: L, content: T, position: Position, loc: Loc, seen: bool) {
        let item =
            InFlightItem { of: content, lane: lane.clone(), loc, seen, state: ItemState::Ready };
        self.items.insert(position, item);
        self.set_ready(lane, position);
    }

    /// Its bytes were moved.
    pub(super) fn relocate(&mut self, position: Position, loc: Loc) {
        if let Some(item) = self.items.get_mut(&position) {
            item.loc = loc;
        }
    }

    /// Removes an item; `None` if it is gone already.
    pub(super) fn remove(&mut self, position: Position) -> Option<InFlightItem<L, T>> {
        self.unset(position);
        self.items.remove(&position)
    }

    /// Delivers the first item of the lane.
    pub(super) fn pop(
        &mut self,
        lane: &L,
        now: Instant,
        ack_wait: Duration,
    ) -> Option<Popped<L, T>> {
        let position = *self.ready.get(lane)?.first()?;
        let item = self.items.get_mut(&position)?;
        let found = item.clone();
        item.seen = true;
        let wake = self.set_until(position, now + ack_wait);
        Some(Popped { position, item: found, wake })
    }

    /// Whether the lane has something to deliver.
    pub(super) fn has_ready(&self, lane: &L) -> bool {
        self.ready.contains_key(lane)
    }

    /// Puts off the next delivery of an item, if it is in hand (or `always`).
    pub(super) fn put_off(&mut self, position: Position, until: Instant, always: bool) -> bool {
        match self.items.get(&position).map(|item| item.state) {
            Some(ItemState::Until(_)) => self.set_until(position, until),
            Some(ItemState::Ready) if always => self.set_until(position, until),
            _ => false,
        }
    }

    /// It is not delivered again by this process.
    pub(super) fn set_damaged(&mut self, position: Position) {
        self.unset(position);
        if let Some(item) = self.items.get_mut(&position) {
            item.state = ItemState::Damaged;
        }
    }

    /// Makes items deliverable whose time in hand is over; says in which lanes.
    pub(super) fn expire(&mut self, now: Instant) -> BTreeSet<L> {
        let mut lanes = BTreeSet::new();
        while let Some(&(at, position)) = self.deadlines.first()
            && at <= now
        {
            self.deadlines.pop_first();
            if let Some(item) = self.items.get_mut(&position) {
                item.state = ItemState::Ready;
                let lane = item.lane.clone();
                lanes.insert(lane.clone());
                self.set_ready(lane, position);
            }
        }
        lanes
    }

    /// When to call [`Self::expire`] next. It keeps an earlier call that is already planned, so that
    /// the engine is not woken for every delivery.
    pub(super) fn arm(&mut self, now: Instant) -> Option<Instant> {
        let first = self.deadlines.first().map(|(at, _)| *at);
        let planned = self.armed.filter(|at| *at > now);
        self.armed = first.into_iter().chain(planned).min();
        self.armed
    }

    /// All waiting items, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Position, &InFlightItem<L, T>)> {
        self.items.iter().map(|(position, item)| (*position, item))
    }

    pub(super) fn get(&self, position: Position) -> Option<&InFlightItem<L, T>> {
        self.items.get(&position)
    }

    fn set_ready(&mut self, lane: L, position: Position) {
        self.ready.entry(lane).or_default().insert(position);
    }

    fn set_until(&mut self, position: Position, until: Instant) -> bool {
        self.unset(position);
        let Some(item) = self.items.get_mut(&position) else { return false };
        item.state = ItemState::Until(until);
        self.deadlines.insert((until, position));
        let wake = self.armed.is_none_or(|armed| until < armed);
        if wake {
            self.armed = Some(until);
        }
        wake
    }

    /// Takes it out of the set of its state.
    fn unset(&mut self, position: Position) {
        let Some(item) = self.items.get(&position) else { return };
        match item.state {
            ItemState::Ready => {
                if let Some(ready) = self.ready.get_mut(&item.lane) {
                    ready.remove(&position);
                    if ready.is_empty() {
                        self.ready.remove(&item.lane);
                    }
                }
            }
            ItemState::Until(at) => {
                self.deadlines.remove(&(at, position));
            }
            ItemState::Damaged => {}
        }
    }
}
