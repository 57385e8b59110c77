//! Takes the output and the files of a run from its executor.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use clawnode_cluster::{Clock, Peek};
use clawnode_proto::archive::{LogPart, LogStream};
use tokio::sync::watch;

use super::{artifacts::ArchivedFiles, kept_output::RunLines};

/// Takes the output of one run. It never waits and never fails; without a reader it drops the
/// output. Cheap to clone.
#[derive(Clone, Default)]
pub struct RunSink(Option<Arc<SharedSink>>);

pub(super) struct SharedSink {
    clock: Arc<dyn Clock>,
    lines: Mutex<RunLines>,
    made: Mutex<ArchivedFiles>,
    /// The tasks that still collect its files.
    collecting: watch::Sender<usize>,
    told: watch::Sender<RunProgress>,
}

/// Collects the files that a run made; done when it is dropped.
pub struct Collecting(Arc<SharedSink>);

impl fmt::Debug for Collecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collecting")
    }
}

/// How far a run is, for those who wait.
#[derive(Clone, Copy, Debug, Default)]
struct RunProgress {
    last: u64,
    over: bool,
    /// Which run it is, once that is known.
    run: u32,
}

// === impl RunSink ===

impl RunSink {
    /// A sink whose content is read.
    pub(super) fn new(clock: Arc<dyn Clock>) -> (Self, Arc<SharedSink>) {
        let told = watch::Sender::new(RunProgress::default());
        let (lines, made, collecting) = (Mutex::default(), Mutex::default(), watch::Sender::new(0));
        let shared = Arc::new(SharedSink { clock, lines, made, collecting, told });
        (Self(Some(Arc::clone(&shared))), shared)
    }

    /// The run said this: a piece of a line, or several lines.
    pub fn said(&self, stream: LogStream, bytes: &[u8]) {
        let Some(shared) = &self.0 else { return };
        let last = {
            let mut lines = shared.lines();
            lines.add(shared.clock.now(), stream, bytes);
            lines.last()
        };
        shared.tell(|told| told.last = last);
    }

    /// Whether anybody reads it.
    pub const fn is_read(&self) -> bool {
        self.0.is_some()
    }

    /// For collecting the files of the run, also after its end; `None` if they are not wanted.
    /// Storing the run waits for it, for a while.
    pub fn collect(&self) -> Option<Collecting> {
        let shared = Arc::clone(self.0.as_ref()?);
        shared.collecting.send_modify(|count| *count += 1);
        Some(Collecting(shared))
    }
}

// === impl Collecting ===

impl Collecting {
    /// This was made, and this was left out of it.
    pub fn made(&self, files: ArchivedFiles) {
        let mut made = self.0.made();
        made.files.extend(files.files);
        made.left_out.extend(files.left_out);
    }
}

impl Drop for Collecting {
    fn drop(&mut self) {
        self.0.collecting.send_modify(|count| *count -= 1);
    }
}

impl fmt::Debug for RunSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What a run says is content of a conversation.
        write!(f, "RunSink({})", if self.0.is_some() { "read" } else { "unread" })
    }
}

impl PartialEq for RunSink {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

impl Eq for RunSink {}

// === impl SharedSink ===

impl SharedSink {
    pub(super) fn lines(&self) -> MutexGuard<'_, RunLines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn made(&self) -> MutexGuard<'_, ArchivedFiles> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that was made, once it is collected; what is not collected by then is reported as lost.
    pub(super) async fn collected(&self, most: Duration) -> ArchivedFiles {
        let mut collecting = self.collecting.subscribe();
        let done = tokio::time::timeout(most, collecting.wait_for(|count| *count == 0)).await;
        let mut files = std::mem::take(&mut *self.made());
        if done.is_err() {
            files.left_out.push("what could not be collected in time".to_owned());
        }
        files
    }

    fn tell(&self, change: impl FnOnce(&mut RunProgress)) {
        self.told.send_modify(change);
    }

    /// It is known which run it is.
    pub(super) fn is_run(&self, run: u32) {
        self.tell(|told| told.run = run);
    }

    /// No more output comes.
    pub(super) fn end(&self) {
        let last = {
            let mut lines = self.lines();
            lines.end();
            lines.last()
        };
        self.tell(|told| (told.last, told.over) = (last, true));
    }

    /// The lines after `after`; if there are none yet, waits for one.
    pub(super) async fn part(&self, after: u64, wait: Duration) -> LogPart {
        let mut told = self.told.subscribe();
        let more = told.wait_for(|told| told.last > after || told.over);
        // Its sender is this very value, and the time is up or it is not: the part says which.
        drop(tokio::time::timeout(wait, more).await);
        let run = self.told.peek(|told| told.run);
        let lines = self.lines();
        let cut = lines.cut();
        let (lines, more) = lines.part_after(after);
        LogPart { run, lines, cut, more }
    }
}
