//! Whether work may run at all: rules ([`policy`]), and what operators have stopped ([`latch`]).
#![forbid(unsafe_code)]

pub mod kill_switch;
pub mod policy;
