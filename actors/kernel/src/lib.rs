//! The kernel: what an entity is, and the machines that own, fold, decide and recover it.
//!
//! An **entity** is a durable virtual actor: an id, an inbox, a journal, and at most one useful
//! owner. Its journal is the only truth, and the append is the lock: ownership is a `Claim` event
//! in the journal itself. Safety needs no lease, no clock and no leader.
//!
//! Supervised by: the partition dispatcher that activated it. Messages come from: its dispatcher,
//! and its own effects. Phases: unread, headers (claimed before folding), whole, stopped.
//! On crash: what was appended stays; what was staged or provisional is lost and decided again.
//! Not here: what a session is (see `clawnode_actors::session`), what a store is (`clawnode_cluster`).
//!
//! Invariants
//! - I1 `n` is dense and the hash chain holds.
//! - I2 epochs strictly increase; all events between two claims carry the first one's incarnation.
//! - I3 at most one outcome per call id, no begin after the outcome.
//! - I4 an input is acknowledged only when the journal has it and the entity is at rest, or a
//!   later-journaled input of it is unacknowledged, or it is parked whole, or the tombstone that it went with knows it.
//! - I5 nothing visible precedes the append that decided it.
//! - I7 frames are never folded.
//! - I8 no append, no new paid work.

#![forbid(unsafe_code)]

pub mod archive;
pub mod core;
#[cfg(any(test, feature = "test-util"))]
pub mod counter;
pub mod dead_letters;
pub mod driver;
pub mod entities;
mod entity;
#[cfg(feature = "test-util")]
pub mod fewer_kept_turns;
mod fold_error;
mod idempotency;
mod job_io;
pub mod job_machine;
pub mod journal_reader;
pub mod kind;
pub mod machine;
mod missing_capability;
#[cfg(feature = "test-util")]
pub mod newer;
pub mod partition;
#[cfg(feature = "test-util")]
mod planted;
pub mod recent;
mod shrink;
pub mod supervise;
#[cfg(feature = "test-util")]
pub mod written;

pub use core::{Core, LoadedJournal, Service};
pub use entities::{Entities, EntityError, EntityName, KnownKinds};
pub use entity::Entity;
pub use fold_error::FoldError;
pub use idempotency::InputMemory;
pub use kind::{Begun, EffectKind, EntityKind, Violation};
pub use machine::{
    Activation, ActivationEnd, Machine, MachineInput, MachineOptions, MachineOutput, Now,
    OwnerSays, PreviousOwner,
};
pub use missing_capability::MissingCapability;
#[cfg(feature = "test-util")]
pub use planted::KernelBug;
pub use shrink::ShrinkToFit;
