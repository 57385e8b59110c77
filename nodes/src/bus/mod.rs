//! A cluster's bus from the outside: the operator's directory with its keys, and how a host becomes
//! a node of the cluster.
//!
//! `operator` is what `cluster init` writes and only its owner reads, `certificates` the servers'
//! TLS, `files` how both are written. `cluster` has what the settings ask of a cluster, and why one
//! cannot be opened. `join` turns a join token into a credential in the data directory, and finds it
//! there at every later start; `name` sees to it that no two live nodes are called alike.

mod certificates;
pub mod cluster;
mod files;
pub mod join;
pub mod name;
pub mod operator;
