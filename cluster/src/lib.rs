//! The ground: seven doors ([`Journal`], [`Inbox`], [`Jobs`], [`Bus`], [`Bucket`], [`Timers`],
//! [`Blobs`]) and what stands behind them.
//!
//! `local` keeps everything in one directory of one process, `nats` on `JetStream`, `sim` in a
//! seeded world for tests. All pass one conformance suite (`tests/tests/conformance*.rs`). Above
//! this crate nobody knows which one is there.
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
pub mod local;
pub mod membership;
#[cfg(feature = "nats")]
pub mod nats;
pub mod outcome;
mod peek;
pub mod placement;
mod queue;
pub mod shed;
#[cfg(feature = "test-util")]
pub mod sim;
pub mod substrate;
pub mod timers;

pub use blobs::Blobs;
pub use bucket::{Bucket, BucketError, Change, Entry};
pub use bus::{Attached, Bus, BusEvent, BusMessage, INBOX, RequestError, Subscription};
pub use clock::{Backoff, Clock, SystemClock};
pub use error::StoreError;
pub use feed::Feed;
pub use inbox::{AckHandle, Consumer, Delivery, Depth, Inbox, Waiting};
pub use jobs::{JOB_RANK_MAX, JobConsumer, JobDelivery, Jobs};
pub use journal::{AppendAnswer, Journal, PAGE_BYTES, Page, Record, Write};
pub use peek::{Peek, PeekSeen};
pub use substrate::{Health, Lost, Substrate, Warning};
pub use timers::{OVERDUE_LOOKS, Overdue, Timer, Timers};
