//! How commands reach a running node: its address and token from the data directory or from
//! flags, calls over `POST /v1/rpc`, streams over `/ws`.

mod error;
mod gateways;
mod rpc;
mod socket;

pub use error::ClientError;
pub use gateways::Gateways;
pub use rpc::{NodeClient, NodeTarget};
pub use socket::{ClientSocket, Incoming};
