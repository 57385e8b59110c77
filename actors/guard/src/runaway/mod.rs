//! Runaways: what agents do in a given time, counted against their limits. Pure.
//!
//! Each process has one [`AgentCounters`], in its [`SwitchGate`](crate::kill_switch::SwitchGate). It counts
//! what begins here at once, and what other processes counted when their heartbeats arrive. The gate pauses an
//! agent that exceeds a limit, and the node stores the pause for all others. Not here: the pause itself, and
//! who clears it.
//!
//! Bounds, which the tests check:
//! - In one process an agent does at most what its limit allows, in any 29/30 of the limit's time. Of egress
//!   the last piece that came counts whole.
//! - In a cluster it may do more by what other processes counted and this one has not heard yet: what
//!   happens in about one heartbeat.
//! - A limit that is not exceeded pauses nothing. What others counted counts from when it is heard, so it
//!   leaves the window later by at most that delay.
//! - The memory is bounded by the agents that have limits, and by the processes that are alive.

mod counters;
mod window;

pub use counters::{AgentCounters, HeardCounts};
