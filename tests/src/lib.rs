//! The harness as a library: real servers and processes, scripted models, the conformance suite,
//! the house rules.

pub mod chaos;
pub mod conformance;
pub mod docker;
pub mod effects;
pub mod fuzz;
pub mod journals;
pub mod mcp;
pub mod model;
pub mod nats;
pub mod process;
pub mod readme;
pub mod static_model;
pub mod tidy;
pub mod wait;
