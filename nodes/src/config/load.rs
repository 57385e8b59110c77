//! The layers, lowest first: defaults, file, environment, flags.

use std::path::{Path, PathBuf};

use super::{
    decode,
    env::{self, Env},
    error::ConfigError,
    file,
    options::Config,
    paths,
    schema_source::SchemaSource,
    tree::{ConfigNode, Value, ValueOrigin},
    validate,
};
use crate::secret::Secret;

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
    pub value: String,
}

/// A configuration that was read, and where it came from.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    /// The settings.
    pub config: Config,
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
    /// The token that the environment gives, if any; it goes before the data directory's own.
    pub token: Option<Secret>,
    pub(super) tree: ConfigNode,
    sources: Sources,
}

/// Reads a configuration.
pub fn load(sources: &Sources) -> Result<LoadedConfig, ConfigError> {
    let file = chosen_file(sources);
    let layer = file.as_deref().map(file::read).transpose()?;
    compose(sources, file, layer, environment(&sources.env))
}

/// The settings that say where a node is.
const NODE_LOCATION: [&[&str]; 3] =
    [&["node", "data_dir"], &["gateway", "tls_cert"], &["gateway", "tls_key"]];

/// Reads of the file and the environment only where the node is: commands that ask a node have to work while another
/// setting is wrong. Fails like [`load`] if the file cannot be parsed, because then nothing says which node is meant.
pub fn load_node_location(sources: &Sources) -> Result<LoadedConfig, ConfigError> {
    let file = chosen_file(sources);
    let layer = file.as_deref().map(file::read).transpose()?;
    let located = |tree: &ConfigNode| {
        let mut layer = ConfigNode::empty();
        for path in NODE_LOCATION {
            if let Some(ConfigNode { origin, value }) = tree.find(path) {
                layer.set(path, origin, value.clone());
            }
        }
        layer
    };
    let of_file = layer.as_ref().map(located);
    compose(sources, file, of_file, located(&environment(&sources.env)))
}

/// Puts the layers together, with what the file and the environment have.
fn compose(
    sources: &Sources,
    file: Option<PathBuf>,
    layer: Option<ConfigNode>,
    environment: ConfigNode,
) -> Result<LoadedConfig, ConfigError> {
    let env = &sources.env;
    let mut tree = defaults(env);
    if let Some(layer) = layer {
        tree.merge(layer);
    }
    tree.merge(environment);
    for flag in &sources.flags {
        tree.set(flag.path, &ValueOrigin::Flag(flag.name), Value::Raw(flag.value.clone()));
    }
    let mut config: Config = decode::read(&tree)?;
    resolve_paths(&mut config, &tree, file.as_deref(), env);
    validate::check(&config, &tree)?;
    let token = env.get(env::TOKEN).map(|token| Secret::new(token.to_owned()));
    Ok(LoadedConfig { config, file, token, tree, sources: sources.clone() })
}

/// The file to read: the one that is named, else the usual one if it exists.
fn chosen_file(sources: &Sources) -> Option<PathBuf> {
    let named = || sources.env.get(env::CONFIG).map(PathBuf::from);
    let usual = || paths::config_file(&sources.env).filter(|path| path.exists());
    sources.file.clone().or_else(named).or_else(usual)
}

/// The path as seen from the current folder, if that is known.
pub fn absolute(path: &Path) -> PathBuf {
    // An empty path is the folder of a file that is named without one.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    std::path::absolute(path).unwrap_or_else(|_unknown| path.to_owned())
}

/// Defaults that depend on where the program runs; all others are in the types.
fn defaults(env: &Env) -> ConfigNode {
    let mut tree = ConfigNode::empty();
    let name = paths::node_name(Some(env)).to_string();
    tree.set(&["node", "name"], &ValueOrigin::Default, Value::Text(name));
    if let Some(dir) = paths::data_dir(env) {
        let dir = Value::Text(dir.to_string_lossy().into_owned());
        tree.set(&["node", "data_dir"], &ValueOrigin::Default, dir);
    }
    tree
}

/// The layer of the environment; `RUST_LOG` is an older name of one setting.
fn environment(env: &Env) -> ConfigNode {
    const LOG: &str = "RUST_LOG";
    let mut tree = ConfigNode::empty();
    if let Some(filter) = env.get(LOG) {
        let origin = ValueOrigin::Env(LOG.to_owned());
        tree.set(&["telemetry", "log"], &origin, Value::Raw(filter.to_owned()));
    }
    tree.merge(env.layer());
    tree
}

/// Makes paths of the file absolute: they are relative to the file. Programs start in folders of their own,
/// where a relative path would mean another file.
fn resolve_paths(config: &mut Config, tree: &ConfigNode, file: Option<&Path>, env: &Env) {
    let folder = file.and_then(Path::parent).map(absolute);
    let fix = |path: &mut PathBuf, key: &[&str]| {
        let of_file = matches!(tree.origin_of(key), ValueOrigin::File { .. });
        *path = paths::resolve(path, folder.as_deref().filter(|_| of_file), env);
    };
    fix(&mut config.node.data_dir, &["node", "data_dir"]);
    fix(&mut config.sandbox.docker.socket, &["sandbox", "docker", "socket"]);
    for (path, key) in [
        (&mut config.gateway.tls_cert, ["gateway", "tls_cert"]),
        (&mut config.gateway.tls_key, ["gateway", "tls_key"]),
        (&mut config.cluster.credentials, ["cluster", "credentials"]),
        (&mut config.cluster.ca, ["cluster", "ca"]),
        (&mut config.hooks.dir, ["hooks", "dir"]),
        (&mut config.memory.embeddings_dir, ["memory", "embeddings_dir"]),
    ] {
        if let Some(path) = path {
            fix(path, &key);
        }
    }
    if let Some(workspace) = &mut config.workspace {
        fix(&mut workspace.root, &["workspace", "root"]);
    }
    for plugin in &mut config.plugins {
        fix(&mut plugin.path, &["plugins"]);
    }
    for folder in &mut config.skills.folders {
        fix(folder, &["skills", "folders"]);
    }
    if let Some(qdrant) = &mut config.memory.qdrant {
        for (name, path) in [("ca", &mut qdrant.ca), ("api_key_file", &mut qdrant.api_key_file)] {
            if let Some(path) = path {
                fix(path, &["memory", "qdrant", name]);
            }
        }
    }
    for (name, provider) in &mut config.providers {
        let key_file = ("api_key_file", &mut provider.api_key_file);
        for (setting, path) in [key_file, ("credentials_file", &mut provider.credentials_file)] {
            if let Some(path) = path {
                fix(path, &["providers", name, setting]);
            }
        }
    }
    for (at, server) in config.mcp_servers.iter_mut().enumerate() {
        let at = at.to_string();
        if let Some(path) = &mut server.cwd {
            fix(path, &["mcp_servers", &at, "cwd"]);
        }
        for (name, path) in &mut server.env_files {
            fix(path, &["mcp_servers", &at, "env_files", name]);
        }
        for (name, path) in &mut server.header_files {
            fix(path, &["mcp_servers", &at, "header_files", name]);
        }
    }
    for (at, host) in config.ssh_hosts.iter_mut().enumerate() {
        let at = at.to_string();
        fix(&mut host.key, &["ssh_hosts", &at, "key"]);
        if let Some(path) = &mut host.known_hosts {
            fix(path, &["ssh_hosts", &at, "known_hosts"]);
        }
    }
    for (name, agent) in &mut config.agents {
        if let Some(path) = &mut agent.soul {
            fix(path, &["agents", name.as_str(), "soul"]);
        }
        if let Some(SchemaSource::File(path)) = &mut agent.response_schema {
            fix(path, &["agents", name.as_str(), "response_schema"]);
        }
    }
}

impl LoadedConfig {
    /// Where the setting at `path` was made.
    pub fn origin_of(&self, path: &[&str]) -> ValueOrigin {
        self.tree.origin_of(path)
    }

    /// Reads everything again: the file may have changed, environment and flags have not.
    pub fn reload(&self) -> Result<Self, ConfigError> {
        load(&self.sources)
    }

    /// The same as if the configuration file were `file`, with this text.
    pub fn with_text(&self, file: &Path, text: &str) -> Result<Self, ConfigError> {
        let layer = file::parse(file, text)?;
        let environment = environment(&self.sources.env);
        compose(&self.sources, Some(file.to_owned()), Some(layer), environment)
    }

    /// The file that settings are written to: the one that was read, else the usual one, which need not
    /// exist yet.
    pub fn own_file(&self) -> Option<PathBuf> {
        self.file.clone().or_else(|| paths::config_file(self.env()))
    }

    /// The environment it was read in.
    pub fn env(&self) -> &Env {
        &self.sources.env
    }
}

/// Reads the text of a configuration file, without an environment.
#[cfg(test)]
pub(super) fn read_text(text: &str) -> Result<LoadedConfig, ConfigError> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    std::fs::write(&file, text).unwrap();
    let env = Env::from([("HOME", dir.path().to_str().unwrap())]);
    load(&Sources { env, file: Some(file), flags: Vec::new() })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::{agents::AgentSection, show};

    const HOME: (&str, &str) = ("HOME", "/home/ada");

    /// Reads `text` as a file of this name, below this environment.
    fn read(name: &str, text: &str, env: Env) -> Result<LoadedConfig, ConfigError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        load(&Sources { env, file: Some(path), flags: Vec::new() })
    }

    fn flag(name: &'static str, path: &'static [&'static str], value: &str) -> Flag {
        Flag { name, path, value: value.to_owned() }
    }

    #[test]
    fn the_place_of_a_node_is_read_also_if_another_setting_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        let file = Some(path.clone());
        let sources = Sources { env: Env::from([HOME]), file, flags: Vec::new() };
        let wrong = "[node]\ndata_dir = \"data\"\n[agents.default]\nmodle = \"a/b\"\n";
        fs::write(&path, wrong).unwrap();
        assert!(load(&sources).is_err());
        let loaded = load_node_location(&sources).unwrap();
        assert_eq!(loaded.config.node.data_dir, dir.path().join("data"));
        // The same for a container that is configured by its environment.
        let set =
            [("CLAWNODE_NODE__DATA_DIR", "/data"), ("CLAWNODE_AGENTS__DEFAULT__MODLE", "a/b")];
        let env = Env::from([HOME, set[0], set[1]]);
        fs::write(&path, "").unwrap();
        let by_env = Sources { env, ..sources.clone() };
        assert!(load(&by_env).is_err());
        let loaded = load_node_location(&by_env).unwrap();
        assert_eq!(loaded.config.node.data_dir, Path::new("/data"));
        fs::write(&path, "[node]\ndata_dir = \n").unwrap();
        assert_eq!(load_node_location(&sources).unwrap_err(), load(&sources).unwrap_err());
    }

    #[test]
    fn flags_stand_above_the_environment_and_that_above_the_file() {
        let text = "[gateway]\nlisten = \"127.0.0.1:1\"\nhosts = [\"one\"]\n\n[session]\nsnapshot_every = 7\n";
        let env = Env::from([
            HOME,
            ("CLAWNODE_GATEWAY__LISTEN", "127.0.0.1:2"),
            ("CLAWNODE_GATEWAY__HOSTS", "two, three"),
            ("CLAWNODE_GATEWAY__NO_AUTH", "true"),
            ("CLAWNODE_PROVIDERS__LAB__WIRE", "openai"),
            ("CLAWNODE_SERVICE_HOST", "10.0.0.1"),
            ("CLAWNODE_SESSION__SNAPSHOT_EVERY", ""),
        ]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        fs::write(&path, text).unwrap();
        let flags = vec![flag("--listen", &["gateway", "listen"], "127.0.0.1:3")];
        let loaded = load(&Sources { env, file: Some(path.clone()), flags }).unwrap();
        let gateway = &loaded.config.gateway;
        assert_eq!(gateway.listen.port(), 3);
        assert_eq!(gateway.hosts, ["two", "three"]);
        assert!(gateway.no_auth);
        assert!(loaded.config.providers.contains_key("lab"));
        assert_eq!(loaded.config.session.snapshot_every, 7, "set to nothing is not set");
        let origin = |path: &[&str]| loaded.origin_of(path).to_string();
        assert_eq!(origin(&["gateway", "listen"]), "flag `--listen`");
        assert_eq!(origin(&["gateway", "hosts"]), "environment variable `CLAWNODE_GATEWAY__HOSTS`");
        assert_eq!(origin(&["session", "snapshot_every"]), format!("{}:6:18", path.display()));
        assert_eq!(origin(&["cluster", "prefix"]), "default");
    }

    #[test]
    fn paths_of_a_file_are_relative_to_it() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("soul.md"), "Be brief.").unwrap();
        let env = Env::from([("HOME", home.path().to_str().unwrap())]);
        let text = "[node]\ndata_dir = \"data\"\n[workspace]\nroot = \"files\"\n[agents.ops]\nsoul = \"~/soul.md\"\n";
        let loaded = read("config.toml", text, env).unwrap();
        let folder = loaded.file.as_deref().and_then(Path::parent).unwrap();
        assert_eq!(loaded.config.node.data_dir, folder.join("data"));
        assert_eq!(loaded.config.workspace.unwrap().root, folder.join("files"));
        let agent: &AgentSection = loaded.config.agents.values().next().unwrap();
        assert_eq!(agent.soul.as_deref(), Some(&*home.path().join("soul.md")));
        assert_eq!(agent.prompt().unwrap(), "Be brief.");
        let flags = vec![flag("--data-dir", &["node", "data_dir"], "here")];
        let loaded = load(&Sources { env: Env::from([HOME]), file: None, flags }).unwrap();
        assert_eq!(loaded.config.node.data_dir, Path::new("here"), "of a flag: to where we are");
    }

    #[test]
    fn where_things_are_follows_the_base_directories() {
        let dir = |env: Env| load(&Sources { env, ..Sources::default() }).unwrap();
        let of_home = dir(Env::from([HOME])).config.node.data_dir;
        assert_eq!(of_home, Path::new("/home/ada/.local/share/clawnode"));
        let of_xdg = dir(Env::from([HOME, ("XDG_DATA_HOME", "/data")])).config.node.data_dir;
        assert_eq!(of_xdg, Path::new("/data/clawnode"));
        let error = load(&Sources::default()).unwrap_err();
        assert_eq!(error.key, "node.data_dir");
    }

    #[test]
    fn a_file_that_is_named_must_be_there_and_the_usual_one_need_not() {
        let named = Env::from([HOME, ("CLAWNODE_CONFIG", "/nowhere/config.toml")]);
        let error = load(&Sources { env: named, ..Sources::default() }).unwrap_err();
        assert!(error.what.contains("/nowhere/config.toml"), "{error}");
        let usual = Env::from([HOME, ("XDG_CONFIG_HOME", "/nowhere")]);
        assert!(load(&Sources { env: usual, ..Sources::default() }).unwrap().file.is_none());
    }

    #[test]
    fn json_errors_have_places_too() {
        let cases = [
            ("{\n  \"gateway\": {\n    \"lissten\": 1\n  }\n}", ":3:5", "lissten"),
            ("{\n  \"gateway\": {\"no_auth\":\n    \"perhaps\"}}", ":3:5", "perhaps"),
            ("{\n  \"gateway\": {,}}", ":2:15", "not valid JSON"),
            ("{\"node\": {}, \"node\": {}}", ":1:14", "appears twice"),
            ("{\"node\": null}", ":1:10", "null"),
        ];
        for (text, place, what) in cases {
            let error = read("config.json", text, Env::from([HOME])).unwrap_err();
            let shown = error.to_string();
            assert!(shown.ends_with(&format!("config.json{place}")), "{text}: {shown}");
            assert!(shown.contains(what), "{text}: {shown}");
        }
        let text = r#"{"gateway": {"hosts": ["a", "b"], "listen": "127.0.0.1:9"}, "bindings":
            [{"agent": "default", "peer": "\u00e9\"x"}]}"#;
        let loaded = read("config.json", text, Env::from([HOME])).unwrap();
        assert_eq!(loaded.config.gateway.hosts, ["a", "b"]);
        assert_eq!(loaded.config.bindings[0].peer.as_deref(), Some("\u{e9}\"x"));
    }

    #[test]
    fn mcp_servers_are_read_as_others_write_them_and_their_secrets_are_not_shown() {
        let text = r#"{"mcp_servers": [{"name": "fs", "command": "npx",
            "args": ["-y", "server", "/srv"], "env": {"TOKEN": "hunter2"}}]}"#;
        let loaded = read("config.json", text, Env::from([HOME])).unwrap();
        let server = &loaded.config.mcp_servers[0];
        assert_eq!(server.command.as_deref(), Some("npx"));
        assert_eq!(server.env["TOKEN"].expose(), "hunter2");
        let shown = format!("{:?} {:?}", show::settings(&loaded).unwrap(), loaded.config);
        assert!(shown.contains("mcp_servers.0.env.TOKEN") && !shown.contains("hunter2"), "{shown}");
        let wrong = text.replace(r#""hunter2""#, "8675309");
        let error = read("config.json", &wrong, Env::from([HOME])).unwrap_err();
        assert!(!format!("{error} {}", error.hint).contains("8675309"), "{error}");
    }

    #[test]
    fn a_secret_of_the_wrong_type_is_not_quoted() {
        let text = "[providers.anthropic]\napi_key = 8675309\n";
        let error = read("config.toml", text, Env::from([HOME])).unwrap_err();
        let shown = format!("{error} {}", error.hint);
        assert!(!shown.contains("8675309"), "{shown}");
        assert_eq!(error.key, "providers.anthropic.api_key");
    }

    #[test]
    fn a_reload_sees_the_file_as_it_is_now() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        fs::write(&path, "[session]\nsnapshot_every = 7\n").unwrap();
        let sources =
            Sources { env: Env::from([HOME]), file: Some(path.clone()), flags: Vec::new() };
        let loaded = load(&sources).unwrap();
        fs::write(&path, "[session]\nsnapshot_every = 8\n").unwrap();
        assert_eq!(loaded.reload().unwrap().config.session.snapshot_every, 8);
        fs::write(&path, "[session]\nsnapshot_every = 0\n").unwrap();
        assert!(loaded.reload().is_err());
    }

    /// `tests/reference` checks that it has every setting, and what it says of each.
    #[test]
    fn the_example_changes_nothing() {
        let text = include_str!("../../config.example.toml");
        let loaded = read("config.toml", text, Env::from([HOME])).unwrap();
        let plain = load(&Sources { env: Env::from([HOME]), ..Sources::default() }).unwrap();
        let values = |loaded: &LoadedConfig| serde_json::to_value(&loaded.config).unwrap();
        assert_eq!(values(&loaded), values(&plain));
    }
}
