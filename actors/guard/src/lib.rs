//! Whether work may run at all: rules ([`policy`]), and what operators have stopped ([`latch`]).
#![forbid(unsafe_code)]

pub mod latch;
pub mod policy;
