//! The options of a local storage backend, and why it does not open.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use clawnode_cluster::Clock;
use clawnode_proto::{limits, subject::Prefix};

/// How a local storage backend behaves.
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// The first part of subjects.
    pub prefix: Prefix,
    /// The time of day, for timers and the life of bucket values.
    pub clock: Arc<dyn Clock>,
    /// Partitions of a new directory (16); an existing one keeps its number. More lets more
    /// dispatchers run side by side.
    pub partitions: u16,
    /// How long a delivery may stay unanswered (30 s). Less delivers again sooner after a hang,
    /// and more often for nothing.
    pub ack_wait: Duration,
    /// Bytes after which a log segment is closed and the next begun (32 MiB). Less gives space
    /// back in smaller steps, with more files.
    pub segment_bytes: u32,
    /// Free bytes on the disk below which new input is refused (256 MiB), so that what was
    /// accepted can still be finished.
    pub head_room: u64,
    /// Bytes the index may keep in memory (4 MiB): it holds places, not records, and the
    /// operating system caches its file. More makes cold look-ups rarer.
    pub index_cache: u64,
    /// A disk that can lose power, instead of the machine's.
    #[cfg(feature = "test-util")]
    pub disk: Option<Arc<super::PowerCutDisk>>,
    /// A bug to plant, so that a test can show that it would find it.
    #[cfg(feature = "test-util")]
    pub planted: Option<LocalBug>,
}

/// A planted bug.
#[cfg(feature = "test-util")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalBug {
    /// Answers once written, and leaves the sync to the next commit.
    AnswerBeforeSync,
}

impl LocalOptions {
    /// The defaults.
    pub fn new(prefix: Prefix, clock: Arc<dyn Clock>) -> Self {
        Self {
            prefix,
            clock,
            partitions: limits::PARTITIONS_LOCAL,
            ack_wait: limits::ACK_WAIT,
            segment_bytes: 32 << 20,
            head_room: 256 << 20,
            index_cache: 4 << 20,
            #[cfg(feature = "test-util")]
            disk: None,
            #[cfg(feature = "test-util")]
            planted: None,
        }
    }
}

/// Why a data directory was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error(
        "data directory `{}` is in use by {holder}; stop it first, or talk to it",
        .dir.display()
    )]
    Held {
        dir: PathBuf,
        /// The holder: `process 4711`.
        holder: String,
    },
    /// Its sessions were moved elsewhere.
    #[error(
        "the sessions of data directory `{}` {} to {to}",
        .dir.display(),
        if *complete { "were moved" } else { "are being moved" }
    )]
    Moved {
        dir: PathBuf,
        to: String,
        /// Whether all of them are there.
        complete: bool,
    },
    /// A newer program wrote it.
    #[error(
        "data directory `{}` has format {found}, this program knows up to {supported}; \
         use the program that wrote it, or a newer one",
        .dir.display()
    )]
    TooNew {
        dir: PathBuf,
        /// The format it has.
        found: u32,
        /// The newest format known here.
        supported: u32,
    },
    /// It is not a data directory.
    #[error("`{}` is not a data directory: {detail}", .dir.display())]
    NotADataDirectory {
        dir: PathBuf,
        /// What is missing or wrong.
        detail: String,
    },
    /// The log is damaged at a place after which no record can be trusted.
    #[error(
        "log `{}` is damaged at offset {offset}: {detail}; \
         keep a copy of the directory, then run `clawnode journal repair`",
        .file.display()
    )]
    Damaged { file: PathBuf, offset: u64, detail: String },
    /// The bytes of the last process could not be made durable, so none of them may be served.
    #[error(
        "cannot make `{}` durable: {source}; the store serves nothing that is not on the disk; \
         check the disk and the kernel's log, then start again",
        .path.display()
    )]
    Unsynced {
        /// Which segment or directory.
        path: PathBuf,
        /// The error of the disk.
        source: io::Error,
    },
    /// The index failed twice, the second time when it was new.
    #[error("index `{}` cannot be built: {detail}; delete that folder and try again", .dir.display())]
    Index { dir: PathBuf, detail: String },
    /// The file system refused.
    #[error("cannot {action} `{}`: {source}", .path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

impl OpenError {
    /// For `map_err`: the path that could not be synced.
    pub(super) fn unsynced(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Unsynced { path, source }
    }

    /// For `map_err`: the failed action and its path.
    pub(super) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}
