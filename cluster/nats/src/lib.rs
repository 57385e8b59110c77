//! The storage backend on NATS: the seven traits on `JetStream` and core NATS.
//!
//! [`connect()`] opens them. What must be known to read this folder:
//!
//! - The journal fences with an expected last sequence on the **one literal subject** of an entity;
//!   a fence on a wildcard lets two writers through on replicated streams.
//! - All reads go to the stream's leader (`STREAM.MSG.GET`); direct gets are off, because they are
//!   stale. Even a leader's read may be stale, so no code decides on a read alone.
//! - "No responders" and `StreamNotFound` mean that a leader is being elected. Streams are created
//!   at birth ([`connect()`]) and never again.
//! - The client knows only *that* a publish was not answered, never that it was not stored.
//!
//! | file | what |
//! |---|---|
//! | `options` | what a person may choose |
//! | `connect` | from options to a storage backend, with errors that say what to do |
//! | `cluster_creation` | how a cluster is created, and found again |
//! | `topology` | every stream and consumer, in one table |
//! | `spec` | one of them: made, checked, brought up to date |
//! | `mirror`, `restore_from_mirror` | a mirror that keeps every record; the way back from it |
//! | `auth` | keys, credentials and permissions |
//! | `api` | one request, one publish, and what their failures mean |
//! | `stream` | reads from a stream's leader |
//! | `signals` | what the connection and the servers tell by themselves |
//! | `ack` | the answer to a delivery |
//! | `foreign_messages` | what is in a stream and clawnode did not write |
//! | `journal` `inbox` `pull` `jobs` `bus` `bucket` `watch` `timers` `blobs` `health` | the handles |
//!
//! Not here: retries of an append (`clawnode_cluster::outcome` and its callers), timers' sweeps (the kernel).
#![forbid(unsafe_code)]

mod ack;
mod api;
pub mod auth;
mod blobs;
mod bucket;
mod bus;
mod cluster_creation;
mod connect;
mod connect_error;
mod disconnects;
mod foreign_messages;
mod health;
mod inbox;
mod jobs;
mod journal;
mod mirror;
mod options;
mod pull;
mod restore_from_mirror;
mod rfc3339;
mod signals;
mod spec;
mod stream;
mod timers;
mod topology;
mod watch;

pub use connect::connect;
pub use connect_error::ConnectError;
pub use mirror::mirror;
pub use options::{Birth, KnownCluster, NatsOptions, Replicas};
pub use restore_from_mirror::{RestoredStream, restore};
