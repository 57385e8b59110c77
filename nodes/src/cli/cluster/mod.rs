//! `cluster`: the operator's commands. They need the directory with the keys, and no node.

mod command;
mod init;
mod join_token;
mod mirror;
mod revoke;
mod shared;

pub(super) use command::{ClusterCommand, run};
