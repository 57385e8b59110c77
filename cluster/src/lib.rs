//! Storage and cluster, as the rest of the product sees them.
//!
//! A [`Storage`] is a storage backend: seven traits ([`Journal`], [`Inbox`], [`Jobs`], [`Bus`],
//! [`Bucket`], [`Timers`], [`Blobs`]). Three crates implement it: `clawnode-local` (one directory of
//! one process), `clawnode-nats` (`JetStream`) and `clawnode-sim` (a seeded world for tests). All pass
//! one conformance suite (`tests/tests/conformance*.rs`). Only the program and tests name them.
//!
//! These modules use the traits: [`membership`] (who is alive), [`placement`] (who serves what),
//! [`outcome`] (the result of an append with a lost answer), [`shed`] (when to leave work to others)
//! and [`feed`].
#![forbid(unsafe_code)]

pub mod blobs;
pub mod bucket;
pub mod bus;
pub mod clock;
pub mod error;
pub mod feed;
pub mod inbox;
pub mod jobs;
pub mod journal;
pub mod membership;
pub mod outcome;
mod peek;
pub mod placement;
pub mod queue;
pub mod shed;
pub mod storage;
pub mod timers;

pub use blobs::Blobs;
pub use bucket::{Bucket, BucketChange, BucketEntry, BucketError};
pub use bus::{Bus, BusConnection, BusEvent, BusMessage, INBOX, RequestError, Subscription};
pub use clock::{Backoff, Clock, SystemClock};
pub use error::StoreError;
pub use feed::Feed;
pub use inbox::{AckHandle, Consumer, Delivery, Depth, Inbox, WaitingInput};
pub use jobs::{JOB_RANK_MAX, JobConsumer, JobDelivery, Jobs};
pub use journal::{AppendAnswer, FeedPage, Journal, PAGE_BYTES, Record, Write};
pub use peek::{Peek, PeekSeen};
pub use storage::{Health, Lost, Storage, Warning};
pub use timers::{OVERDUE_LOOKS, Overdue, Timer, Timers};
