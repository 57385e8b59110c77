//! What waits to be written to one client, a WebSocket or a stream of server-sent events: bounded, and
//! never waited for by a turn.
//!
//! The bounds (`gateway.max_unread`, and a number of frames) hold for what waits here. As much may be
//! on its way to the client's socket, because its writer takes all that waits at once.

use std::{
    num::NonZeroUsize,
    sync::{Mutex, MutexGuard, PoisonError},
};

use axum::extract::ws::{CloseFrame, Message};
use tokio::sync::Notify;

/// The queue between the streams of a client and its one writer.
#[derive(Debug)]
pub(super) struct Outbox {
    state: Mutex<OutboxState>,
    /// Rung when there is something to write.
    filled: Notify,
    /// Rung when there is room, or never will be.
    moved: Notify,
    most_frames: usize,
    most_bytes: usize,
}

#[derive(Debug, Default)]
struct OutboxState {
    frames: Vec<Message>,
    bytes: usize,
    /// What to say last; nothing is taken after it.
    close: Option<CloseFrame>,
    /// The writer has ended.
    dead: bool,
}

/// What the writer takes at once.
#[derive(Debug)]
pub(super) struct Batch {
    /// In order.
    pub(super) frames: Vec<Message>,
    /// Close after them.
    pub(super) close: Option<CloseFrame>,
}

/// Why a frame was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// There is no room now.
    Full,
    /// There will be no room again.
    Closed,
}

/// The client's connection is closed or closing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Closed;

// === impl Outbox ===

impl Outbox {
    pub(super) fn new(most_frames: NonZeroUsize, most_bytes: NonZeroUsize) -> Self {
        Self {
            state: Mutex::default(),
            filled: Notify::new(),
            moved: Notify::new(),
            most_frames: most_frames.get(),
            most_bytes: most_bytes.get(),
        }
    }

    /// Takes a frame if there is room. An empty queue has room for any one frame.
    pub(super) fn push(&self, frame: String) -> Result<(), Refused> {
        self.try_push(Message::Text(frame.into())).map_err(|(_, refused)| refused)
    }

    /// Takes a frame once there is room.
    pub(super) async fn push_wait(&self, frame: String) -> Result<(), Closed> {
        let mut frame = Message::Text(frame.into());
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            match self.try_push(frame) {
                Ok(()) => return Ok(()),
                Err((_, Refused::Closed)) => return Err(Closed),
                Err((back, Refused::Full)) => frame = back,
            }
            moved.await;
        }
    }

    /// Asks the other side for a sign of life.
    pub(super) fn ping(&self) -> Result<(), Refused> {
        self.try_push(Message::Ping(Vec::new().into())).map_err(|(_, refused)| refused)
    }

    /// Returns when everything was taken by the writer, or nothing will be.
    pub(super) async fn emptied(&self) -> Result<(), Closed> {
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            {
                let state = self.state();
                if state.is_closed() {
                    return Err(Closed);
                }
                if state.frames.is_empty() {
                    return Ok(());
                }
            }
            moved.await;
        }
    }

    /// Says goodbye after what waits; what comes later is refused.
    pub(super) fn close(&self, close: CloseFrame) {
        self.state().close.get_or_insert(close);
        self.filled.notify_one();
        self.moved.notify_waiters();
    }

    /// Says that the writer has ended.
    pub(super) fn die(&self) {
        let mut state = self.state();
        state.dead = true;
        state.frames = Vec::new();
        drop(state);
        self.filled.notify_one();
        self.moved.notify_waiters();
    }

    /// Returns when the socket is closed or closing.
    pub(super) async fn closed(&self) {
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if self.state().is_closed() {
                return;
            }
            moved.await;
        }
    }

    /// Everything that waits, once something does; the writer's side, of which there is one.
    pub(super) async fn take(&self) -> Option<Batch> {
        loop {
            {
                let mut state = self.state();
                if state.dead {
                    return None;
                }
                if !state.frames.is_empty() || state.close.is_some() {
                    let frames = std::mem::take(&mut state.frames);
                    state.bytes = 0;
                    let close = state.close.clone();
                    drop(state);
                    self.moved.notify_waiters();
                    return Some(Batch { frames, close });
                }
            }
            self.filled.notified().await;
        }
    }

    fn try_push(&self, frame: Message) -> Result<(), (Message, Refused)> {
        let size = match &frame {
            Message::Text(text) => text.len(),
            _ => 0,
        };
        let mut state = self.state();
        if state.is_closed() {
            return Err((frame, Refused::Closed));
        }
        let fits = state.frames.len() < self.most_frames && state.bytes + size <= self.most_bytes;
        if !fits && !state.frames.is_empty() {
            return Err((frame, Refused::Full));
        }
        state.bytes += size;
        state.frames.push(frame);
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl OutboxState ===

impl OutboxState {
    fn is_closed(&self) -> bool {
        self.dead || self.close.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbox(frames: usize, bytes: usize) -> Outbox {
        Outbox::new(NonZeroUsize::new(frames).unwrap(), NonZeroUsize::new(bytes).unwrap())
    }

    #[tokio::test]
    async fn both_bounds_hold_and_one_frame_always_fits() {
        let few = outbox(2, 100);
        few.push("a".to_owned()).unwrap();
        few.push("b".to_owned()).unwrap();
        assert_eq!(few.push("c".to_owned()), Err(Refused::Full));
        let small = outbox(100, 4);
        small.push("abcdefgh".to_owned()).unwrap();
        assert_eq!(small.push("a".to_owned()), Err(Refused::Full));
        assert_eq!(small.take().await.unwrap().frames.len(), 1);
        small.push("a".to_owned()).unwrap();
    }

    #[tokio::test]
    async fn who_waits_for_room_gets_it_when_the_writer_takes() {
        let outbox = outbox(1, 100);
        outbox.push("a".to_owned()).unwrap();
        let (pushed, taken) = tokio::join!(outbox.push_wait("b".to_owned()), outbox.take());
        assert_eq!(pushed, Ok(()));
        assert_eq!(taken.unwrap().frames.len(), 1);
        assert_eq!(outbox.take().await.unwrap().frames.len(), 1);
    }

    #[tokio::test]
    async fn after_the_goodbye_nothing_is_taken_and_nobody_waits() {
        let outbox = outbox(1, 100);
        outbox.push("a".to_owned()).unwrap();
        let close = CloseFrame { code: 1001, reason: "".into() };
        let (waited, ()) =
            tokio::join!(outbox.push_wait("b".to_owned()), async { outbox.close(close) });
        assert_eq!(waited, Err(Closed));
        outbox.closed().await;
        let last = outbox.take().await.unwrap();
        assert_eq!((last.frames.len(), last.close.unwrap().code), (1, 1001));
        outbox.die();
        assert!(outbox.take().await.is_none());
        assert_eq!(outbox.push("c".to_owned()), Err(Refused::Closed));
    }
}
