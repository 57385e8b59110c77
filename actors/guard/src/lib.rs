//! Whether work may run at all: rules ([`policy`]), and what operators have stopped ([`kill_switch`]).
#![forbid(unsafe_code)]

pub mod kill_switch;
pub mod policy;
