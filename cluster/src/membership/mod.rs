//! Who is there: heartbeats in, a view of the cluster out.
//!
//! Liveness only: a wrong guess costs a forwarded input or a wasted call, never safety. There are
//! two ways to be held dead, and both count only while this process hears its *own* heartbeats
//! come back: one that is cut off or was frozen declares nobody dead, nor for a while after.
//! - **Silence** for `dead_after`.
//! - **Nobody listens** on `cn.rpc.<process>`, twice, `probe_again` apart. The server says so at
//!   once when the connection of a process is gone. It would say so as well of processes whose own
//!   server died and who are about to connect to another one; so somebody must have seen that
//!   server live: this process, if it hangs on the same one; another that does and says
//!   [`Hearsay::Gone`](clawnode_proto::node::Hearsay::Gone); or the server itself, by a `$SYS`
//!   event. The client library keeps the servers' word on their own comings and goings to itself.
//!
//! Each worker asks the next few workers in the ring of ids, a few times a second. Whoever finds
//! one silent tells all others, who ask for themselves: so all agree within one `probe_again`, and
//! no process is held dead on hearsay.
//!
//! Whoever hears of a process for the first time speaks at once, so a newcomer knows all others
//! after one round trip: [`Members::settled`] says that it has listened that long. Three of them also
//! send [`Hearsay::Dead`](clawnode_proto::node::Hearsay::Dead) for each process that died lately. The
//! newcomer sends each of those two requests, as above, and holds dead those without a listener. Without
//! these messages it would first have to listen for `dead_after`, and calls of dead workers would wait.

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
