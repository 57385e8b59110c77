//! Whether work may run at all: rules ([`policy`]), what agents may do in a given time ([`runaway`]), and what
//! operators have stopped ([`kill_switch`]).
#![forbid(unsafe_code)]

pub mod kill_switch;
pub mod policy;
pub mod runaway;
