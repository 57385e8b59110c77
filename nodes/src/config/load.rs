//! The layers, lowest first: defaults, file, environment, flags.

use std::path::{Path, PathBuf};

use super::{
    de,
    env::{self, Env},
    error::ConfigError,
    file,
    options::Config,
    paths,
    secret::Secret,
    tree::{Node, Origin, Value},
    validate,
};

/// Where a configuration comes from; kept, so that it can be read again.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The environment.
    pub env: Env,
    /// The file that `--config` names.
    pub file: Option<PathBuf>,
    /// Settings made on the command line.
    pub flags: Vec<Flag>,
}

/// One setting made on the command line.
#[derive(Clone, Debug)]
pub struct Flag {
    /// As it is typed: `--listen`.
    pub name: &'static str,
    /// Which setting it is.
    pub path: &'static [&'static str],
    /// What it says.
    pub value: String,
}

/// A configuration that was read, and where it came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
    /// The token that the environment gives, if any; it goes before the data directory's own.
    pub token: Option<Secret>,
    pub(super) tree: Node,
    sources: Sources,
}

/// Reads a configuration.
pub fn load(sources: &Sources) -> Result<Loaded, ConfigError> {
    let env = &sources.env;
    let file = chosen_file(sources);
    let mut tree = defaults(env);
    if let Some(path) = &file {
        tree.merge(file::read(path)?);
    }
    tree.merge(environment(env));
    for flag in &sources.flags {
        tree.set(flag.path, &Origin::Flag(flag.name), Value::Raw(flag.value.clone()));
    }
    let mut config: Config = de::read(&tree)?;
    resolve_paths(&mut config, &tree, file.as_deref(), env);
    validate::check(&config, &tree)?;
    let token = env.get(env::TOKEN).map(|token| Secret::new(token.to_owned()));
    Ok(Loaded { config, file, token, tree, sources: sources.clone() })
}

/// The file to read: the one that is named, else the usual one if it exists.
fn chosen_file(sources: &Sources) -> Option<PathBuf> {
    let named = || sources.env.get(env::CONFIG).map(PathBuf::from);
    let usual = || paths::config_file(&sources.env).filter(|path| path.exists());
    sources.file.clone().or_else(named).or_else(usual)
}

/// Defaults that depend on where the program runs; all others are in the types.
fn defaults(env: &Env) -> Node {
    let mut tree = Node::empty();
    let name = paths::node_name(Some(env)).to_string();
    tree.set(&["node", "name"], &Origin::Default, Value::Text(name));
    if let Some(dir) = paths::data_dir(env) {
        let dir = Value::Text(dir.to_string_lossy().into_owned());
        tree.set(&["node", "data_dir"], &Origin::Default, dir);
    }
    tree
}

/// The layer of the environment; `RUST_LOG` is an older name of one setting.
fn environment(env: &Env) -> Node {
    const LOG: &str = "RUST_LOG";
    let mut tree = Node::empty();
    if let Some(filter) = env.get(LOG) {
        let origin = Origin::Env(LOG.to_owned());
        tree.set(&["telemetry", "log"], &origin, Value::Raw(filter.to_owned()));
    }
    tree.merge(env.layer());
    tree
}

/// Makes paths absolute in meaning: those of the file are relative to the file.
fn resolve_paths(config: &mut Config, tree: &Node, file: Option<&Path>, env: &Env) {
    let folder = file.and_then(Path::parent);
    let fix = |path: &mut PathBuf, key: &[&str]| {
        let of_file = matches!(tree.origin_of(key), Origin::File { .. });
        *path = paths::resolve(path, folder.filter(|_| of_file), env);
    };
    fix(&mut config.node.data_dir, &["node", "data_dir"]);
    for (path, key) in [
        (&mut config.gateway.tls_cert, ["gateway", "tls_cert"]),
        (&mut config.gateway.tls_key, ["gateway", "tls_key"]),
        (&mut config.cluster.credentials, ["cluster", "credentials"]),
    ] {
        if let Some(path) = path {
            fix(path, &key);
        }
    }
    for (name, provider) in &mut config.providers {
        if let Some(path) = &mut provider.api_key_file {
            fix(path, &["providers", name, "api_key_file"]);
        }
    }
    for (name, agent) in &mut config.agents {
        if let Some(path) = &mut agent.soul {
            fix(path, &["agents", name.as_str(), "soul"]);
        }
    }
}

impl Loaded {
    /// Where the setting at `path` was made.
    pub fn origin_of(&self, path: &[&str]) -> Origin {
        self.tree.origin_of(path)
    }

    /// Reads everything again: the file may have changed, environment and flags have not.
    pub fn reload(&self) -> Result<Self, ConfigError> {
        load(&self.sources)
    }

    /// The environment it was read in.
    pub fn env(&self) -> &Env {
        &self.sources.env
    }
}
