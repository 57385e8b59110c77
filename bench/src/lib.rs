//! What the benches share: processes on one core, a client that counts turns, the floor, figures.
//!
//! A bench starts the node, the scripted model and the floor as processes of their own and drives
//! them over loopback. Nothing here is faster than a real client or provider could be.

mod args;
pub mod capacity;
mod client;
mod figures;
pub mod floor;
mod process;
mod sessions;
mod speech;
pub mod units;

pub use args::{Place, Role};
pub use client::{Load, Report, TurnSocket, run as load};
pub use figures::{Row, Table, percentile};
pub use process::{
    Node, NodeSetup, Pin, Process, Storage, cpu, model, model_with, node_binary, resident_bytes,
    serve_model,
};
pub use sessions::{fill, passivated, slope};
pub use speech::Speech;

/// Any reason for a bench to end early.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
