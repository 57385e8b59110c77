//! The queue of one subscriber of a bus.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use crate::{BusEvent, BusMessage, bus::SUBSCRIPTION_CAPACITY};

/// At most [`SUBSCRIPTION_CAPACITY`] messages and one `Lagged`. An empty queue takes no room: there
/// is one for each turn that is followed.
#[derive(Debug, Default)]
pub struct Queue(Mutex<QueuedMessages>);

#[derive(Debug, Default)]
struct QueuedMessages {
    events: VecDeque<BusEvent>,
    closed: bool,
    waker: Option<Waker>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueuedMessages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a message; never waits.
    pub fn push(&self, message: BusMessage) {
        let mut waiting = self.lock();
        if waiting.events.len() < SUBSCRIPTION_CAPACITY {
            waiting.events.push_back(BusEvent::Message(message));
        } else if waiting.events.back() != Some(&BusEvent::Lagged) {
            // All messages dropped from here on are reported at this place, by one event.
            waiting.events.push_back(BusEvent::Lagged);
        }
        wake(waiting);
    }

    /// No more events come.
    pub fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        wake(waiting);
    }

    /// The next event; none after it is closed and empty.
    pub fn poll(&self, cx: &Context<'_>) -> Poll<Option<BusEvent>> {
        let mut waiting = self.lock();
        if let Some(event) = waiting.events.pop_front() {
            return Poll::Ready(Some(event));
        }
        if waiting.closed {
            return Poll::Ready(None);
        }
        waiting.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

fn wake(mut waiting: MutexGuard<'_, QueuedMessages>) {
    let waker = waiting.waker.take();
    drop(waiting);
    if let Some(waker) = waker {
        waker.wake();
    }
}
