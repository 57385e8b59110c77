//! The environment as a value, and the layer that it makes: `CLAWNODE_SECTION__KEY`.

use std::{collections::BTreeMap, ffi::OsString};

use super::tree::{ConfigNode, Value, ValueOrigin};

/// What the variables of this program begin with.
const PREFIX: &str = "CLAWNODE_";
/// The text between a section and a key.
const SEPARATOR: &str = "__";
/// The token, for clients and for the node.
pub const TOKEN: &str = "CLAWNODE_TOKEN";
/// The configuration file.
pub const CONFIG: &str = "CLAWNODE_CONFIG";
/// A join token, where it stays out of lists of processes.
pub const JOIN: &str = "CLAWNODE_JOIN";
/// The address of a running node.
pub const URL: &str = "CLAWNODE_URL";

/// The process's environment, read once in `main` and handed down.
#[derive(Clone, Default)]
pub struct Env(BTreeMap<String, String>);

impl Env {
    /// From pairs as `std::env::vars_os` gives them; what is not UTF-8 cannot be meant for us.
    pub fn new(vars: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let text = |(name, value): (OsString, OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self(vars.into_iter().filter_map(text).collect())
    }

    /// A variable; one that is set to nothing counts as not set.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The settings among the variables. Names without `__` are left alone: container platforms
    /// put such variables there on their own (`CLAWNODE_SERVICE_HOST`).
    pub fn layer(&self) -> ConfigNode {
        let mut tree = ConfigNode::empty();
        for (name, value) in &self.0 {
            let Some(path) = name.strip_prefix(PREFIX).filter(|rest| rest.contains(SEPARATOR))
            else {
                continue;
            };
            if value.is_empty() {
                continue;
            }
            let path = path.to_ascii_lowercase();
            let keys: Vec<&str> = path.split(SEPARATOR).collect();
            tree.set(&keys, &ValueOrigin::Env(name.clone()), Value::Raw(value.clone()));
        }
        tree
    }
}

impl std::fmt::Debug for Env {
    // Values may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Env {
    fn from(pairs: [(&str, &str); N]) -> Self {
        Self(pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}
