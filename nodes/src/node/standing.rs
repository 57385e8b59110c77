//! Whether this process takes work, and whoever may change that: signals, operators, other nodes.

use std::{
    fs::{self, File},
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use clawnode_actors::{durable::driver::TakeOrders, tool::JobRunner};
use clawnode_proto::JobId;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{config::NodeOptions, failure::Failure};

/// What a process says of itself before it says anything else: shared by all its parts.
#[derive(Debug)]
pub struct Standing {
    draining: AtomicBool,
    cordoned: Arc<AtomicBool>,
    /// The file that says so to whoever starts next under this node's name.
    mark: PathBuf,
    /// The others should hear of a change before the next heartbeat is due.
    changed: Notify,
    stop: CancellationToken,
    misfit: Mutex<Option<Failure>>,
    /// Runs tool calls here, if anything does.
    jobs: watch::Sender<Option<JobRunner>>,
}

impl Standing {
    /// A process that takes work until `stop`; none, if the node was cordoned before.
    pub fn new(stop: CancellationToken, node: &NodeOptions) -> Arc<Self> {
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
            jobs: watch::Sender::new(None),
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

    /// Where whoever runs tool calls here makes himself known.
    pub const fn jobs(&self) -> &watch::Sender<Option<JobRunner>> {
        &self.jobs
    }

    /// From here on it drains.
    pub fn drains(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Waits until there is something to say.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// It must not be here: it drains, and ends with this.
    pub fn refuse(&self, failure: Failure) {
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
    pub fn misfit(&self) -> Option<Failure> {
        self.misfit.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl TakeOrders for Standing {
    fn cordon(&self, on: bool) {
        info!(on, "cordoned by an operator");
        self.cordoned.store(on, Ordering::Relaxed);
        self.changed.notify_one();
        if let Err(error) = self.remember(on) {
            let path = self.mark.display();
            warn!(%path, %error, on, "cannot write down whether this node is cordoned; after a restart it may not be so");
        }
    }

    fn cancel_job(&self, job: JobId) {
        if let Some(runner) = self.jobs.borrow().as_ref() {
            runner.cancel(job);
        }
    }

    fn drain(&self) {
        info!("drained by an operator");
        self.stop.cancel();
    }
}
