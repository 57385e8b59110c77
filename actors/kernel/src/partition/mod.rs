//! The partition dispatcher machine: who gets which input, sans I/O.
//!
//! A delivery is only a signal: the machine reads the entity's inbox in stream order and hands on
//! everything unseen in that order. A delivery with proof that nothing is before it goes directly
//! to an active entity. The machine holds the acknowledgement handles; the entity's actor only says
//! which input is complete. It admits an entity before it activates it: a living owner keeps the
//! entity.

mod cordon_and_drain;
mod dispatch;
mod forward;
mod io;
mod owners;
mod slot;
#[cfg(test)]
mod tests;
mod unreadable_inputs;

pub use dispatch::Partition;
pub use io::{
    Arrived, AskId, Forwarded, Gone, HandleId, LastWriter, PartitionInput, PartitionOutput,
};
