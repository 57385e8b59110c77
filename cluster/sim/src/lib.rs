//! The world for tests: stores, a network and several processes as one synchronous, seeded state
//! machine with virtual time.
//!
//! [`World`] takes requests and gives back what happens next, in virtual time. All chance comes
//! from one seeded generator, so the same seed gives the same history. It can do what the real
//! stores were seen to do: lose an answer, store an append long after its writer gave up, answer
//! busy or refuse without a cause, serve stale reads, deliver twice and out of order, accept late
//! acknowledgements, be out of reach for a while, and lose in a power cut what was not synced.
//!
//! [`storage`] makes a world usable as a [`Storage`](clawnode_cluster::Storage), in the runtime's
//! time.
//!
//! Not here: what the processes do (see `clawnode_simulator`).
#![forbid(unsafe_code)]

mod faults;
mod inboxes;
mod jobs;
mod journals;
mod key_values;
mod lanes;
mod reads;
mod request;
mod schedule;
pub mod storage;
mod storage_inbox;
mod storage_jobs;
mod sync;
mod world;
mod world_driver;

/// How old a stale read is at most, in milliseconds.
const STALE_MOST: u64 = 5_000;

pub use faults::{Bugs, Faults};
pub use inboxes::Token;
pub use reads::WorldReads;
pub use request::{
    Delivered, Happening, JobDelivered, JobToken, RequestTicket, StoreChange, StoreReply,
    StoreRequest,
};
pub use schedule::Schedule;
pub use world::World;
