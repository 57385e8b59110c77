//! Whether this process takes work, which signals, operators and other nodes may change.

use std::{
    fs::{self, File},
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use clawnode_actors::runner::JobRunner;
use clawnode_budget::holder::HolderHandle;
use clawnode_cluster::{Bucket, Peek};
use clawnode_guard::kill_switch::{self, SwitchGate};
use clawnode_kernel::driver::TakeOrders;
use clawnode_memory::serve::ServedStore;
use clawnode_proto::{
    Digest, ErrorBody, ErrorCode, JobId, Position,
    archive::{CleanJobs, CleanView, LogPart},
    budget::ProcessStanding,
    embed::{EmbedTexts, Embedded},
    kill_switch::SwitchScope,
    node::FileState,
    recall::{StoreFound, StoreSearch},
};
use clawnode_tool::Archive;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::embedder::Embedder;
use crate::{config::NodeOptions, start_error::StartError};

/// The state of a process that its heartbeats carry, shared by all its parts.
#[derive(Debug)]
pub struct NodeStatus {
    draining: AtomicBool,
    cordoned: Arc<AtomicBool>,
    /// The file that tells the next process of this node that it is cordoned.
    mark: PathBuf,
    /// The others should hear of a change before the next heartbeat is due.
    changed: Notify,
    stop: CancellationToken,
    misfit: Mutex<Option<StartError>>,
    file: Mutex<FileState>,
    /// The digest of its settings of budgets and prices.
    spending: Mutex<Option<Digest>>,
    /// Runs tool calls here, if anything does.
    jobs: watch::Sender<Option<JobRunner>>,
    /// Asks providers for embeddings, once they are known.
    embedder: OnceLock<Embedder>,
    /// The store of memories of this process, once other processes may search it.
    memory: OnceLock<ServedStore>,
    /// The kill switches.
    switch_gate: SwitchGate,
    /// Hears what accounts say.
    budgets: HolderHandle,
    bucket: Arc<dyn Bucket>,
}

impl NodeStatus {
    /// A process that takes work until `stop`; none, if the node was cordoned before.
    pub fn new(
        stop: CancellationToken,
        node: &NodeOptions,
        switch_gate: SwitchGate,
        budgets: HolderHandle,
        bucket: Arc<dyn Bucket>,
    ) -> Arc<Self> {
        let mark = node.data_dir.join(format!("cordoned-{}", node.name));
        let cordoned = mark.exists();
        if cordoned {
            warn!("this node was cordoned before it stopped; `clawnode node uncordon` ends that");
        }
        Arc::new(Self {
            draining: AtomicBool::new(false),
            cordoned: Arc::new(AtomicBool::new(cordoned)),
            mark,
            changed: Notify::new(),
            stop,
            misfit: Mutex::new(None),
            file: Mutex::default(),
            spending: Mutex::default(),
            jobs: watch::Sender::new(None),
            embedder: OnceLock::new(),
            memory: OnceLock::new(),
            switch_gate,
            budgets,
            bucket,
        })
    }

    /// Whether it hands everything over and ends.
    pub fn draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Whether it takes no more entities.
    pub const fn cordoned(&self) -> &Arc<AtomicBool> {
        &self.cordoned
    }

    /// Where the job runner of this process registers.
    pub const fn jobs(&self) -> &watch::Sender<Option<JobRunner>> {
        &self.jobs
    }

    /// Other processes may have this one ask providers for embeddings.
    pub fn embeds(&self, embedder: Embedder) {
        self.embedder.get_or_init(|| embedder);
    }

    /// Other processes may search this store.
    pub fn searches(&self, memory: ServedStore) {
        self.memory.get_or_init(|| memory);
    }

    /// The archive of the jobs that run here, if any do.
    fn archive(&self) -> Option<Archive> {
        self.jobs.peek(|jobs| jobs.as_ref().map(|runner| runner.archive().clone()))
    }

    /// The gate that all stoppable work has to pass.
    pub const fn switch_gate(&self) -> &SwitchGate {
        &self.switch_gate
    }

    /// From here on it drains.
    pub fn drains(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// How the configuration file differs from the one that this process uses.
    pub fn file(&self) -> FileState {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The file was read again.
    pub fn read_again(&self, file: FileState) {
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = file;
        self.changed.notify_one();
    }

    /// The digest of its settings of budgets and prices, if they were read.
    pub fn spending(&self) -> Option<Digest> {
        *self.spending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Settings of budgets and prices with this digest are in use.
    pub fn spends_by(&self, digest: Digest) {
        *self.spending.lock().unwrap_or_else(PoisonError::into_inner) = Some(digest);
        self.changed.notify_one();
    }

    /// Waits until there is something to say.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// It must not be here: it drains, and ends with this.
    pub fn refuse(&self, failure: StartError) {
        *self.misfit.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
        self.stop.cancel();
    }

    fn remember(&self, cordoned: bool) -> io::Result<()> {
        if cordoned {
            let parent = self.mark.parent().map_or(Ok(()), fs::create_dir_all);
            return parent.and_then(|()| File::create(&self.mark)).map(drop);
        }
        match fs::remove_file(&self.mark) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Why it must not be here, if that is so.
    pub fn misfit(&self) -> Option<StartError> {
        self.misfit.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl TakeOrders for NodeStatus {
    async fn read_switch(&self, scope: SwitchScope, wait: Duration) -> Option<(Position, u32)> {
        let position =
            match kill_switch::look(&self.switch_gate, self.bucket.as_ref(), &scope).await {
                Ok(position) => position,
                Err(failure) => {
                    warn!(%scope, %failure, "cannot read what an operator has stopped");
                    return None;
                }
            };
        // What still runs then is counted.
        tokio::time::timeout(wait, self.switch_gate.idle(&scope)).await.ok();
        Some((position, self.switch_gate.running(&scope)))
    }

    async fn job_log(&self, job: JobId, after: u64, wait: Duration) -> Option<LogPart> {
        self.archive()?.said(job, after, wait).await
    }

    async fn clean_jobs(&self, which: CleanJobs) -> Option<CleanView> {
        self.archive()?.clean(&which).await
    }

    fn budget_standing(&self, standing: ProcessStanding) {
        self.budgets.tells(standing);
    }

    async fn embed(&self, request: EmbedTexts) -> Result<Embedded, ErrorBody> {
        let Some(embedder) = self.embedder.get() else {
            return Err(ErrorBody::new(ErrorCode::Unavailable, "this process is still starting"));
        };
        embedder.embed(request).await
    }

    async fn search_store(&self, search: StoreSearch) -> Option<StoreFound> {
        self.memory.get()?.answer_search(search).await
    }

    fn cordon(&self, is_cordoned: bool) {
        info!(is_cordoned, "cordoned by an operator");
        self.cordoned.store(is_cordoned, Ordering::Relaxed);
        self.changed.notify_one();
        if let Err(error) = self.remember(is_cordoned) {
            let path = self.mark.display();
            warn!(
                %path, %error, is_cordoned,
                "cannot save whether this node is cordoned; a restart may change it"
            );
        }
    }

    fn cancel_job(&self, job: JobId) {
        if let Some(runner) = self.jobs.peek(Clone::clone) {
            runner.cancel(job);
        }
    }

    fn drain(&self) {
        info!("drained by an operator");
        self.stop.cancel();
    }
}
