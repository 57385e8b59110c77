//! Looking at what a watch channel holds.
//!
//! The guard that `borrow` returns keeps the channel locked until the end of its statement. A
//! thread that looks twice in one statement waits for itself as soon as a writer comes in between,
//! for writers go first; and all threads of the runtime wait with it. So no code here holds such a
//! guard: it looks by a closure, and the lock ends with it.

use tokio::sync::watch;

/// Looks at the value of a watch channel.
pub trait Peek<T> {
    /// Applies `look` to the value. The channel is locked meanwhile, so `look` reads no channel
    /// itself, and is quick.
    fn peek<R>(&self, look: impl FnOnce(&T) -> R) -> R;
}

/// Looks at the value of a watch channel, and marks it as seen.
pub trait PeekSeen<T> {
    /// As [`Peek::peek`]; `changed` waits for the value after this one.
    fn peek_seen<R>(&mut self, look: impl FnOnce(&T) -> R) -> R;
}

// === impl Peek ===

impl<T> Peek<T> for watch::Receiver<T> {
    #[expect(clippy::disallowed_methods, reason = "the guard ends here")]
    fn peek<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.borrow())
    }
}

impl<T> Peek<T> for watch::Sender<T> {
    #[expect(clippy::disallowed_methods, reason = "the guard ends here")]
    fn peek<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.borrow())
    }
}

// === impl PeekSeen ===

impl<T> PeekSeen<T> for watch::Receiver<T> {
    #[expect(clippy::disallowed_methods, reason = "the guard ends here")]
    fn peek_seen<R>(&mut self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.borrow_and_update())
    }
}
