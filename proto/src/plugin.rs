//! Plugins: what is kept for them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::codec::{CodecError, decode, encode};

/// The keys of a plugin's store that have a value, or are about to get or to lose one. A value of the
/// bucket, beside those of the keys themselves: so a store has no more of them than it may.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreKeys {
    /// Those of the plugin.
    pub keys: BTreeSet<String>,
}

impl StoreKeys {
    /// Its bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CodecError> {
        encode(self)
    }

    /// Reads one.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CodecError> {
        decode(bytes)
    }
}
