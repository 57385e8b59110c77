//! For crash tests: the process kills itself at a named point of its work.
//!
//! Each point is a place at a store's handle, so the node's own code is the same with and without.
//! `CLAWNODE_TEST_KILL=after-accepted` kills at the first time, `after-accepted:3` at the third;
//! `poison:TEXT` at every append to a session whose journal has TEXT, as if folding it killed.
//! `poison-panic:TEXT` makes the actor that folds it panic. `panics:PER_MILLION:SEED` makes a caller
//! of a handle of sessions or jobs panic by chance, or one that asks a session's actor for the time.
//! `memory-write:N` kills before the N-th write that follows from inputs of memories.
//! `blocks:SECONDS` blocks all workers of the runtime once a message is stored.

mod arm;
mod blobs;
mod chance;
mod jobs;
mod memory_writes;
mod point;
mod stores;
mod timers;

pub use self::{arm::arm, chance::clock};
