//! Signals: the first asks the node to drain, the second to go at once.

use futures_util::FutureExt as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Exit, Failure};

/// The signals that end a process.
pub(super) struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopRequest {
    /// SIGTERM: the process is to end.
    Terminate,
    /// SIGINT: a person wants what runs now to end.
    Interrupt,
}

impl EndSignals {
    /// Takes the signals over; from here on they do not end the process by themselves.
    pub(super) fn take() -> Result<Self, Failure> {
        let take = |kind| {
            signal(kind).map_err(|error| {
                Failure::new(Exit::Failed, "signals", format!("cannot handle signals: {error}"))
            })
        };
        Ok(Self {
            terminate: take(SignalKind::terminate())?,
            interrupt: take(SignalKind::interrupt())?,
        })
    }

    /// Drops interrupts that were not taken yet.
    pub(super) fn forget_interrupts(&mut self) {
        while self.interrupt.recv().now_or_never().flatten().is_some() {}
    }

    /// The next one. Safe to drop in the middle.
    pub(super) async fn next(&mut self) -> StopRequest {
        tokio::select! {
            _ = self.terminate.recv() => StopRequest::Terminate,
            _ = self.interrupt.recv() => StopRequest::Interrupt,
        }
    }
}
