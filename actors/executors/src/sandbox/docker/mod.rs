//! Commands in containers of a Docker engine.
//!
//! A container is made for one policy (image, limits, network, files), idles, is given one command,
//! and is removed: whatever a command leaves behind goes with it, so nothing passes from one call to
//! another. Making one takes most of the time of a short call, so a few idle ones of each policy
//! that was used lately are kept ready ([`DockerOptions::warm`]).
//!
//! Supervised by: the node, as a task (`Docker::keep`) that fills up what is ready and removes
//! what is done with. Each container says by labels whose it is; those of processes that are dead,
//! and those that this process does not know any more, are removed too. On crash: the containers of
//! the process stay, until another process of the cluster that uses the same engine, or the next one
//! of the same directory, removes them.
//!
//! Not here: pulling images on its own account (only on a call, and only if it is allowed), and
//! anything about how a container is set up that [`Policy`](super::spec::Policy) does not say.

mod container_config;
mod container_pool;
mod container_run;
mod container_upkeep;
mod engine;
mod labels;
mod options;
mod service;

pub use labels::ContainerOwner;
pub use options::DockerOptions;
pub use service::{Docker, IsDead};
