//! The executor of one host.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use clawnode_cluster::{Bucket, Clock};
use clawnode_proto::{
    ErrorChain, NodeName, ToolName,
    session::ToolEnd,
    tool::{ToolOutcome, ToolSpec},
};
use clawnode_tool::{CallBack, Executor, ToolRun};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{SshError, SshHostOptions, command, connect, spec};

/// How long it is taken for granted that a host lets us in which has just done so: a log of logins
/// there should not be full of ours.
const WELL_FOR: Duration = Duration::from_mins(1);

/// What all hosts of a node share.
#[derive(Clone)]
pub struct SshContext {
    /// Where keys of hosts are.
    pub bucket: Arc<dyn Bucket>,
    /// This node, for people.
    pub node: NodeName,
    /// For what is written down.
    pub clock: Arc<dyn Clock>,
    /// A bug, for tests to find: any key will do.
    #[cfg(feature = "test-util")]
    pub is_credulous: bool,
}

/// Runs commands on a host.
#[derive(Debug)]
pub struct SshHost {
    options: Arc<SshHostOptions>,
    context: SshContext,
    /// When it last let us in.
    well: Mutex<Option<Instant>>,
    changed: Notify,
}

// === impl SshContext ===

impl SshContext {
    /// With the keys of hosts in this bucket.
    pub fn new(bucket: Arc<dyn Bucket>, node: NodeName, clock: Arc<dyn Clock>) -> Self {
        Self {
            bucket,
            node,
            clock,
            #[cfg(feature = "test-util")]
            is_credulous: false,
        }
    }
}

impl fmt::Debug for SshContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SshContext").field("node", &self.node).finish_non_exhaustive()
    }
}

// === impl SshHost ===

impl SshHost {
    /// By these settings.
    pub fn new(options: SshHostOptions, context: SshContext) -> Self {
        let (options, changed) = (Arc::new(options), Notify::new());
        Self { options, context, well: Mutex::new(None), changed }
    }

    /// Gets in, and remembers how that went.
    async fn enter(&self) -> Result<connect::Entered, SshError> {
        let entered = connect::enter(&self.options, &self.context).await;
        let now = entered.is_ok().then(Instant::now);
        let before = {
            let mut well = self.well.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *well, now)
        };
        if before.is_some() != now.is_some() {
            self.changed.notify_one();
        }
        entered
    }

    async fn run(
        &self,
        run: ToolRun,
        cancelled: &CancellationToken,
    ) -> Result<ToolEnd, ToolOutcome> {
        let line = command::SshCommand::of(&self.options, run)?;
        let entered = tokio::select! {
            biased;
            () = cancelled.cancelled() => return Err(command::nothing_ran()),
            entered = self.enter() => entered?,
        };
        let end = command::follow(&self.options, &entered, &line, cancelled).await;
        connect::leave(&entered).await;
        end
    }
}

#[async_trait]
impl Executor for SshHost {
    fn tools(&self) -> Vec<ToolSpec> {
        vec![spec::spec(&self.options)]
    }

    async fn execute(&self, run: ToolRun, cancelled: CancellationToken) -> ToolOutcome {
        match self.end(run, CallBack::default(), cancelled).await {
            ToolEnd::Known { outcome } => outcome,
            ToolEnd::Uncertain { detail } => command::lost(detail),
        }
    }

    async fn end(&self, run: ToolRun, _: CallBack, cancelled: CancellationToken) -> ToolEnd {
        self.run(run, &cancelled).await.unwrap_or_else(|outcome| ToolEnd::Known { outcome })
    }

    fn reaches_out(&self, _tool: &ToolName) -> bool {
        true
    }

    async fn health_check(&self) -> Result<(), String> {
        let well = *self.well.lock().unwrap_or_else(PoisonError::into_inner);
        if well.is_some_and(|since| since.elapsed() < WELL_FOR) {
            return Ok(());
        }
        let entered = self.enter().await.map_err(|error| ErrorChain(&error).to_string())?;
        connect::leave(&entered).await;
        Ok(())
    }

    async fn changed(&self) {
        self.changed.notified().await;
    }
}
