//! Sessions: conversations with an agent.

pub mod route;
