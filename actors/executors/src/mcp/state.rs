//! What one server on one node has, and what it needs of its node.

use std::{fmt, sync::Arc};

use clawnode_cluster::{Bucket, Clock, Peek, membership::Members};
use clawnode_guard::kill_switch::SwitchGate;
use clawnode_proto::{NodeName, ProcessId};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{options::McpOptions, phase::ServerPhase, pins::Pins};

/// What a server needs of its node.
#[derive(Clone)]
pub struct McpContext {
    /// Where what is approved is kept.
    pub bucket: Arc<dyn Bucket>,
    /// For what is written down.
    pub clock: Arc<dyn Clock>,
    /// What people call this node.
    pub node: NodeName,
    pub process: ProcessId,
    /// Whether others may run the server as well.
    pub shared: bool,
    /// The members of the cluster.
    pub peers: watch::Receiver<Members>,
    /// What is approved.
    pub pins: watch::Receiver<Pins>,
    /// What operators have stopped.
    pub switch_gate: SwitchGate,
}

pub(super) struct Inner {
    pub(super) options: McpOptions,
    pub(super) context: McpContext,
    pub(super) phase: watch::Sender<ServerPhase>,
    /// Notified whenever the phase or the approved descriptions have changed.
    pub(super) changed: Notify,
    /// Notified when a call was given up: the server may hang.
    pub(super) suspected: Notify,
    /// Calls that are under way.
    pub(super) calls: watch::Sender<usize>,
    pub(super) stop: CancellationToken,
    #[cfg(feature = "test-util")]
    pub(super) planted: super::McpBug,
}

/// One call under way; dropping it ends the count.
#[derive(Debug)]
pub(super) struct UnderWay<'a>(&'a watch::Sender<usize>);

// === impl Inner ===

impl Inner {
    pub(super) fn phase(&self) -> watch::Receiver<ServerPhase> {
        self.phase.subscribe()
    }

    /// Counts a call until the answer is dropped.
    pub(super) fn begin(&self) -> UnderWay<'_> {
        self.calls.send_modify(|calls| *calls += 1);
        UnderWay(&self.calls)
    }

    pub(super) fn is_down(&self) -> bool {
        self.phase.peek(|phase| matches!(phase, ServerPhase::Down(_)))
    }

    pub(super) fn enter(&self, phase: ServerPhase) {
        self.phase.send_replace(phase);
        self.changed.notify_one();
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServer")
            .field("name", &self.options.name)
            .field("phase", &self.phase.peek(Clone::clone))
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for McpContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpContext").field("process", &self.process).finish_non_exhaustive()
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|calls| *calls = calls.saturating_sub(1));
    }
}
