//! What happens when: a queue in virtual time.

use std::collections::BTreeMap;

use clawnode_proto::Timestamp;

/// Events in the order of their time; those of the same time in the order in which they were
/// planned.
#[derive(Debug)]
pub struct Schedule<E> {
    now: u64,
    planned: u64,
    queue: BTreeMap<(u64, u64), E>,
}

impl<E> Schedule<E> {
    /// Nothing planned, at this time.
    pub fn new(now: Timestamp) -> Self {
        Self { now: now.0, planned: 0, queue: BTreeMap::new() }
    }

    /// The virtual time.
    pub fn now(&self) -> Timestamp {
        Timestamp(self.now)
    }

    /// Plans an event `after` milliseconds from now.
    pub fn plan(&mut self, after: u64, event: E) {
        self.plan_at(self.now + after, event);
    }

    /// Plans an event at a time, or now if that is past.
    pub fn plan_at(&mut self, at: u64, event: E) {
        self.planned += 1;
        self.queue.insert((at.max(self.now), self.planned), event);
    }

    /// The next event; the time goes on to it.
    pub fn pop(&mut self) -> Option<E> {
        self.pop_until(Timestamp(u64::MAX))
    }

    /// The next event until a time; if there is none, the time goes on to that time, unless it is
    /// the end of all time.
    pub fn pop_until(&mut self, until: Timestamp) -> Option<E> {
        match self.queue.first_entry() {
            Some(first) if first.key().0 <= until.0 => {
                let ((at, _), event) = first.remove_entry();
                self.now = at;
                Some(event)
            }
            _ => {
                if until.0 < u64::MAX {
                    self.now = self.now.max(until.0);
                }
                None
            }
        }
    }

    /// When the next event is.
    pub fn next_at(&self) -> Option<Timestamp> {
        self.queue.first_key_value().map(|((at, _), _)| Timestamp(*at))
    }
}
