//! The composition root: from settings to a running node. The only module that knows every part.
//!
//! A node goes through three phases, each of which consumes the one before:
//!
//! 1. `Opened`: settings, plugins and hooks are read, the storage backend is open, the node has its
//!    name. Nothing runs yet.
//! 2. `Wired`: every part is made and knows the others; the cluster was asked whether the node fits.
//!    Nothing is served yet.
//! 3. `Running`: clients are served, then sessions are claimed. `Running` is what a stop must reach.

mod args;
mod gateway;
mod open;
mod run;
mod serve_and_drain;
mod wire;
mod worker_role;

pub use args::{NodeArgs, Ready};
pub use run::run;
