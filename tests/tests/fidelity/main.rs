//! What the real stores were seen to do, the simulated world can do.
//!
//! Seeded random sequences of operations run on the local storage backend and on NATS. What each
//! operation was seen to do is then looked for in simulated worlds: the same operations run there,
//! and at every step the world must be able to show the same, given that it showed the same before.
//! Where the world has a choice (which of two concurrent writers is first, what became of a write
//! without an answer), every choice is tried. The same code operates and observes both.
//!
//! Compared: for appends, rollups and values, stored, refused or unknown, and whether the position
//! is above all others of the journal or key; for reads, the sequence's own labels in order; for
//! inboxes, what waits, how much, and which inputs are delivered, each with whether it was
//! delivered before; for jobs the same, and that one which waits is put once; after an
//! acknowledgement, that the input or the job goes. Not compared: positions
//! themselves, time, and the order of deliveries, none of which the traits promise.
//!
//! A calm world must explain the local storage backend. On NATS a write may also stay without an answer,
//! and on three servers be refused without a cause; how often that was needed is printed.
#![expect(clippy::print_stdout, reason = "these are tests, also in their helper functions")]

mod explain;
mod operations;
mod operator;
mod stores;
mod worlds;
