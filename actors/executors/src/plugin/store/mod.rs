//! What plugins keep: small values of the cluster's bucket, below keys that no name leads out of.
//!
//! A store is a plugin's own (`store:notes`), or is shared by all plugins that are granted it
//! (`store:shared/notes`); nothing of one is seen in another, and agents have no say in it: whoever
//! calls the plugin, its stores are the same. Names and keys are single tokens of a safe alphabet,
//! and which store is meant is looked up among those that were granted, never made of what a plugin says.
//!
//! Beside the values is one with their keys, which bounds how many there are and makes a list one
//! read. A key is in it before its value is, and goes after it: a crash in between leaves a key
//! without a value, which `delete` removes. Whoever makes a value writes the keys again after it, so
//! that nobody who takes the key away at the same time does so unseen.

mod name;
mod values;

pub use name::{ParseStoreNameError, StoreName};
pub use values::{PluginStores, StoreFailure, StoredValue};
