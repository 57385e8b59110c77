//! Where files are, by the XDG base directories; and what this host is called.

use std::path::{Path, PathBuf};

use clawnode_proto::NodeName;

use super::env::Env;

/// The folder of this program within the base directories.
const FOLDER: &str = "clawnode";

/// The base directory that `variable` names, or `fallback` in the home directory.
fn base(env: &Env, variable: &str, fallback: &str) -> Option<PathBuf> {
    // The XDG specification: a relative path there is invalid and is ignored.
    match env.get(variable).map(Path::new).filter(|path| path.is_absolute()) {
        Some(base) => Some(base.join(FOLDER)),
        None => Some(Path::new(env.get("HOME")?).join(fallback).join(FOLDER)),
    }
}

/// The configuration file that is read if it exists.
pub fn config_file(env: &Env) -> Option<PathBuf> {
    base(env, "XDG_CONFIG_HOME", ".config").map(|base| base.join("config.toml"))
}

/// The data directory unless one is named.
pub fn data_dir(env: &Env) -> Option<PathBuf> {
    base(env, "XDG_DATA_HOME", ".local/share")
}

/// Where what commands remember for a person is kept.
pub fn state_dir(env: &Env) -> Option<PathBuf> {
    base(env, "XDG_STATE_HOME", ".local/state")
}

/// `path` as it is meant: `~/` is the home directory, and what is relative belongs to `folder`.
pub fn resolve(path: &Path, folder: Option<&Path>, env: &Env) -> PathBuf {
    match (path.strip_prefix("~"), env.get("HOME"), folder) {
        (Ok(rest), Some(home), _) => Path::new(home).join(rest),
        (_, _, Some(folder)) => folder.join(path),
        _ => path.to_owned(),
    }
}

/// A path as people write it: `~` is the home directory.
pub fn shown(path: &Path, env: &Env) -> String {
    let in_home = env.get("HOME").and_then(|home| path.strip_prefix(home).ok());
    match in_home {
        Some(rest) => format!("~/{}", rest.display()),
        None => path.display().to_string(),
    }
}

/// What this host is called, as far as that is a node name: `/etc/hostname`, else `HOSTNAME`.
pub fn node_name(env: Option<&Env>) -> NodeName {
    let of_file = std::fs::read_to_string("/etc/hostname").ok();
    let of_env = env.and_then(|env| env.get("HOSTNAME")).map(str::to_owned);
    [of_file, of_env, Some("node".to_owned())]
        .into_iter()
        .flatten()
        .find_map(|name| name.trim().parse().ok())
        .unwrap_or_else(fallback_name)
}

#[expect(clippy::expect_used, reason = "a constant that is a node name")]
fn fallback_name() -> NodeName {
    "node".parse().expect("`node` is a node name")
}
