//! `cluster`: the operator's commands. They need the directory with the keys, and no node.

mod command;
mod init;
mod join_token;
mod keep;
mod revoke;
mod shared;

pub(super) use command::{ClusterCommand, run};
