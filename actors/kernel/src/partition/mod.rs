//! The partition dispatcher machine: who gets which input, sans I/O.
//!
//! A delivery only rings: the machine reads the entity's exact inbox in stream order and hands on
//! everything unseen in that order. One that carries the proof that nothing is before it is handed on
//! as it is to an entity that is active. It holds the acknowledgement handles; the entity's actor only
//! says which input is complete. It admits an entity before activating it: an owner that is alive
//! and has the entity keeps it.

mod aside;
mod dispatch;
mod forward;
mod hand_over;
mod io;
mod owners;
mod slot;
#[cfg(test)]
mod tests;

pub use dispatch::Partition;
pub use io::{
    Arrived, AskId, Forwarded, Gone, HandleId, LastWriter, PartitionInput, PartitionOutput,
};
