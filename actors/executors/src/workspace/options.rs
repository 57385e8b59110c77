//! Where agents' files are: what a person may set, and why it is what it is by default.

use std::{path::PathBuf, time::Duration};

use clawnode_proto::units::duration;
use serde::{Deserialize, Serialize};

/// Agents' files, `[workspace]` in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceOptions {
    /// The directory in which each agent has its own, named after it. There is no default: a node
    /// without it has no workspace. A node makes it if it is not there; what is in it belongs to the
    /// agents.
    pub root: PathBuf,
    /// Whether files with several names (hard links) may be read. Default false: where the other
    /// names are is not known, and one may be outside. Set it if a package manager links what it
    /// installs and only agents can make links.
    #[serde(default)]
    pub hard_links: bool,
    /// How long one search may take. Default 20 s; what was found until then is the result.
    #[serde(default = "search_time", with = "duration")]
    pub search_time: Duration,
}

const fn search_time() -> Duration {
    Duration::from_secs(20)
}

impl WorkspaceOptions {
    /// The defaults, at `root`.
    pub const fn new(root: PathBuf) -> Self {
        Self { root, hard_links: false, search_time: search_time() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_root_must_be_named() {
        let options: WorkspaceOptions = serde_json::from_str(r#"{"root":"/srv/agents"}"#).unwrap();
        assert_eq!(options, WorkspaceOptions::new("/srv/agents".into()));
        for bad in ["{}", r#"{"root":"/a","rot":1}"#, r#"{"root":"/a","search_time":1}"#] {
            assert!(serde_json::from_str::<WorkspaceOptions>(bad).is_err(), "{bad}");
        }
    }
}
