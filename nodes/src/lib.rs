//! The process: the composition root, the gateway and the command line.

pub mod gateway;
