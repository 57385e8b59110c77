//! Real `clawnode` processes: started, spoken to, killed and started again on the same data.
//!
//! The environment variable `CLAWNODE_BIN` names the binary, or it is beside the test executables,
//! where `cargo build -p clawnode --features test-util` puts it. A [`Home`] is a data directory
//! with an environment of its own. A [`Node`] runs on it, alone or on a NATS server,
//! and is killed when it is dropped. Every crash test ends with [`judge()`]: it compares
//! transcripts, journals and the model server's log.

mod client;
mod error;
mod home;
mod judge;
mod node;
mod slow;
mod terminal;

pub use client::{Client, Events, Frame, Message, Turn};
pub use error::ProcessError;
pub use home::{Ended, Home, TestBackend, binary};
pub use judge::{Found, judge, sound};
pub use node::{Node, Start};
pub use slow::{Slow, Told};
pub use terminal::Terminal;
