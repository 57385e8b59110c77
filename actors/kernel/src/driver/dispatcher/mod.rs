//! The actor of one partition: pulls its inbox, and activates and feeds its entities, whatever their kind.
//!
//! Supervised by: the process's supervisor, which starts it again; one that follows another scans its
//! inbox at once. Messages come from: the inbox (`pump`), its entities' actors, other processes
//! (through `requests`), the worker (cordon, drain) and its own tasks. Phases: it serves, is cordoned,
//! is drained.
//!
//! Invariants: those of the partition's machine ([`crate::partition`]). On crash: its entities'
//! actors end with it; inputs that it had in hand are found by the scan or delivered again. Not
//! here: decisions about an input.

mod actor;
mod handle;
mod pump;
mod state;

pub use handle::{DispatcherHandle, DispatcherView};
