//! One process, one directory: a write-ahead log as truth, sled as a rebuildable index.
//!
//! ```text
//! handles -> queue -> engine thread -> log (write, fdatasync) -> answers -> index, inbox, watchers
//!             reads <- index (where) + segments (what)
//! ```
//! One thread, the [`engine`], decides every change. It takes all operations that wait, checks
//! them against the index, writes their records in one piece, syncs, answers, and only then puts
//! them into the index. Readers wait for that last step, so an answer is always visible.
//!
//! Files of a data directory: `lock` (who holds it), `format` (version, partitions), `log/*.seg`
//! (truth), `blobs/*` (content by digest), `index/` (sled; may be deleted at any time while no
//! process runs), `index.state` (whether `index/` may be trusted), `clock` (how far the clock may be
//! believed), `moved.json` (where its sessions went, if they did), `cleaning` (removed records are to
//! leave the log).
//!
//! Invariants: LOC-1 nothing is answered before it is synced. LOC-2 the index holds nothing that
//! is not in the synced log. LOC-3 a segment goes only after every live record in it has a synced
//! copy, oldest segment first, so that no removal outlives what it removed. LOC-4 what follows from
//! an input, which may be delivered before it is written, is never in the log without it.
//!
//! Fate of errors: a failed write that can be taken back is an answer (`Full`, `Unavailable`); a
//! failed sync, or a failed take-back, ends the store: every handle answers `Closed` and
//! [`LocalControl::fatal`] resolves, upon which the process should exit and start again.
//!
//! Not here: transactions over several handles; other processes (see `clawnode-nats`).
#![forbid(unsafe_code)]

mod blobs;
mod bucket;
mod bus;
mod bytes_at;
mod checkpoint;
mod commit;
mod deletion_cleaning;
mod deliveries;
mod directory;
mod disk;
mod engine;
mod in_flight;
mod inbox;
mod index;
mod jobs;
mod journal;
mod lifetime;
mod lock;
mod log;
mod moved_data_mark;
mod open;
mod options;
#[cfg(feature = "test-util")]
mod power_cut;
mod queue;
mod read_threads;
mod reader;
mod record;
mod recovery;
mod repair;
mod reply;
mod shared;
mod staged;
mod timers;
mod watch;

pub use bus::LocalBus;
pub use directory::keep_private;
pub use moved_data_mark::{Moved, identity, moved, set_moved, take_back};
pub use open::{open, open_read_only};
#[cfg(feature = "test-util")]
pub use options::LocalBug;
pub use options::{LocalOptions, OpenError};
#[cfg(feature = "test-util")]
pub use power_cut::{DiskFault, PowerCutDisk};
pub use repair::{DamagedSpan, RepairReport, inspect, repair};
pub use shared::LocalControl;
pub use watch::{Watch, Watchers};
