//! SSH hosts: by which key one is known.

use serde::{Deserialize, Serialize};

use crate::{
    codec::{CodecError, decode, encode},
    id::NodeName,
    timestamp::Timestamp,
};

/// The key of an SSH host as a node of the cluster first met it; all go by it. A value of the bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SshPin {
    /// As OpenSSH writes it: its kind, and the key itself.
    pub key: String,
    /// Which node met it.
    pub node: NodeName,
    /// When, by that node's clock; for people only.
    pub at: Timestamp,
}

impl SshPin {
    /// Its bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CodecError> {
        encode(self)
    }

    /// Reads one.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CodecError> {
        decode(bytes)
    }
}
