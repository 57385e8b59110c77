//! Who is there: heartbeats in, a view of the cluster out.
//!
//! Liveness only: a wrong guess costs a forwarded input or a wasted call, never safety. There are
//! two ways to be held dead. Both count only while this process hears its *own* heartbeats come
//! back: one that is cut off or was frozen declares no process dead, nor for a while after.
//! - **Silence** for `dead_after`.
//! - **No listener** on `cn.rpc.<process>`, twice, `probe_again` apart. The server says so at once
//!   when the connection of a process is gone. It would also say so of processes whose own server
//!   died and that are about to connect to another one. So there must be proof that this server
//!   lives. It comes from this process, if it is connected to the same one; from another that is
//!   and says [`Hearsay::Gone`](clawnode_proto::node::Hearsay::Gone); or from the server itself, by
//!   a `$SYS` event. The client library does not pass on what servers say of their own comings and
//!   goings.
//!
//! Each worker asks the next few workers in the ring of ids, a few times a second. If it finds one
//! silent, it informs all others, and they ask for themselves. So all agree within one
//! `probe_again`, and no process is held dead on hearsay.
//!
//! A process that hears of another for the first time sends a heartbeat at once, so a newcomer
//! knows all others after one round trip: [`Members::settled`] says that it has listened that long.
//! Three of them also send [`Hearsay::Dead`](clawnode_proto::node::Hearsay::Dead) for each process
//! that died lately. The newcomer sends each of those two requests, as above, and holds dead those
//! without a listener. Without these messages it would first have to listen for `dead_after`, and
//! calls of dead workers would wait.

mod clocks;
mod doubt;
mod driver;
mod members;
mod options;
mod state;
#[cfg(test)]
mod state_tests;

pub use clocks::{CLOCKS_APART_MS, ClusterClock};
pub use driver::{Announcer, Membership};
pub use members::Members;
pub use options::MembershipOptions;
