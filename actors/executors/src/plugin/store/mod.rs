//! What plugins keep: small values of the cluster's bucket, below keys that no name leads out of.
//!
//! A store is a plugin's own (`store:notes`), or is shared by all plugins that are granted it
//! (`store:shared/notes`). No plugin sees another's store. The calling agent does not matter: a
//! plugin always has the same stores. Names and keys are single tokens of a safe alphabet. The
//! store is looked up among the granted ones, and never built from what a plugin says.
//!
//! Beside the values, one value lists their keys. It bounds how many there are, and makes a list
//! one read. A key is added before its value, and removed after it: a crash in between leaves a key
//! without a value, which `delete` removes. A writer of a value writes the keys again after it, so
//! that a removal of the key at the same time does not go unseen.

mod name;
mod values;

pub use name::{ParseStoreNameError, StoreName};
pub use values::{PluginStores, StoreFailure, StoredValue};
