//! The archive of jobs: what a run says and makes, for people.
//!
//! An executor writes into the [`RunSink`] of its run, which never makes it wait. While the run goes
//! on, [`Archive`] answers others who ask what it has said; when it has ended, the log and the files
//! go to the blob store, and a record in the bucket says so. Records and blobs are removed when they
//! are [`ArchiveOptions::keep`] old, when a person says so ([`clean()`]), and with their session.
//!
//! No decision depends on it, a run's result does not wait for it, and what cannot be kept is
//! reported and dropped. Every blob of a run contains its owner, so none is shared with another
//! run, a session or a snapshot, and removing it takes nothing from them. A long result belongs to
//! its session: the record names it and never removes it.
//!
//! On crash: what a run had said is lost with its process; its record stays, and says that it runs
//! on a process that is gone. The next attempt is a run of its own in the same record.
//!
//! Bounds: [`limits`](clawnode_proto::limits) has those of a run; [`recorder`] how many are
//! recorded at a time.

mod archive_cleaning;
pub mod artifacts;
mod kept_output;
mod recorder;
mod sink;
mod store;

pub use archive_cleaning::{clean, forget};
pub use recorder::{Archive, ArchiveContext, ArchiveOptions};
pub use sink::Collecting;
pub use sink::RunSink;
pub use store::{content_of, list, load_log, record};
