//! Settings of the server that has the store of memories.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::secret::ServerUrl;
use crate::secret::Secret;

/// `[memory.qdrant]`: the Qdrant server that all nodes use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QdrantSection {
    /// Its gRPC interface: `https://` for TLS, `http://` without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<ServerUrl>,
    /// The environment variable that holds its API key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// The file that holds its API key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
    /// The API key itself; a file or a variable is a better place for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<Secret>,
    /// The authorities that its certificate is checked with, as PEM. Those of the system unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// What the names of its collections begin with (`clawnode`). Clusters that share a server have different ones.
    pub prefix: String,
}

impl Default for QdrantSection {
    fn default() -> Self {
        Self {
            url: None,
            api_key_env: None,
            api_key_file: None,
            api_key: None,
            ca: None,
            prefix: "clawnode".to_owned(),
        }
    }
}
