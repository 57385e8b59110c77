//! Following the configuration's files: agents, skills, providers, models, prices, budgets and bindings change while a
//! node runs.
//! All else is read once: what changes in the file waits for a restart, and `status` says so.

use std::{
    sync::{Arc, RwLock},
    time::{Duration, SystemTime},
};

use clawnode_actors::{
    agent::{AgentOptions, Agents},
    hook::Hooks,
    session::clients::bindings::Routes,
};
use clawnode_budget::holder::HolderHandle;
use clawnode_cluster::{Clock, PeekSeen, SystemClock};
use clawnode_executors::mcp::Pins;
use clawnode_proto::{
    ErrorChain,
    limits::FILE_PROBLEM_CHARS,
    node::{FileState, Heartbeat},
    view::WarningView,
};
use clawnode_tool::skill::SkillShelf;
use tokio::sync::watch;
use tracing::{info, warn};

use super::{
    agents_and_models::{AnsweringParts, ConfiguredAgents, answering},
    budget_holder,
    current_models::CurrentModels,
    hooks,
    plugins::{self, NodePlugins},
    process_state::NodeStatus,
    skills,
};
use crate::config::{
    AgentSection, Config, LoadedConfig, needs_restart, schema_source::SchemaSource,
};

/// How often the configuration's files are looked at for changes.
const RELOAD_EVERY: Duration = Duration::from_secs(2);
/// The section that waits if hooks were added, removed or marked otherwise.
const HOOKS: &str = "hooks";
/// The section that waits if the file of a plugin was replaced.
const PLUGINS: &str = "plugins";
/// Nodes that are named in warnings.
const NODES_TOLD: usize = 8;

/// What changes while a node runs.
#[derive(Clone, Debug)]
pub struct Reloaded {
    /// Who answers.
    pub agents: Agents,
    /// Who answers where.
    pub routes: Arc<RwLock<Routes>>,
    /// The providers.
    pub models: CurrentModels,
    /// What is approved of MCP servers, which agents have tools of.
    pub pins: watch::Receiver<Pins>,
    /// The plugins that this node has.
    pub plugins: NodePlugins,
    /// The hooks that this node has.
    pub hooks: Hooks,
    /// The skills of its agents.
    pub skills: SkillShelf,
    /// Which limits are configured.
    pub budgets: HolderHandle,
    /// The agents as they were read last.
    pub known: ConfiguredAgents,
}

/// What a node began with and does not read again.
struct StartedWith {
    config: Config,
    /// When the files of its plugins were changed.
    plugin_files: Vec<Option<SystemTime>>,
}

impl Reloaded {
    /// Reads the configuration again when one of its files has changed. If it cannot read a file, it reports that and
    /// keeps the old settings; `node_status` tells others the state of the file. What is approved of MCP servers reaches
    /// the agents in either case.
    pub async fn follow(self, loaded: LoadedConfig, node_status: Arc<NodeStatus>) {
        follow(self, loaded, &node_status).await;
    }
}

async fn follow(reloaded: Reloaded, loaded: LoadedConfig, node_status: &NodeStatus) {
    let Reloaded { agents, routes, models, mut pins, plugins, hooks, skills, budgets, mut known } =
        reloaded;
    let shelf = skills;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let started = StartedWith::now(&loaded);
    let mut current = loaded;
    let mut seen = changed_at(&current);
    loop {
        let approved = tokio::select! {
            Ok(()) = pins.changed() => true,
            () = tokio::time::sleep(RELOAD_EVERY) => false,
        };
        if approved {
            take(&agents, pins.peek_seen(|pins| known.with_mcp(&current.config, pins))).await;
        }
        let now = changed_at(&current);
        if now == seen {
            continue;
        }
        seen = now;
        let again = match current.reload() {
            Ok(again) => again,
            Err(error) => {
                let problem = ErrorChain(&error).to_string();
                warn!(error = problem, "cannot read the configuration; the old one stays in use");
                node_status
                    .read_again(FileState { problem: Some(cut(&problem)), ..node_status.file() });
                continue;
            }
        };
        let waits = started.waiting(&again, &hooks);
        let written = shelf.written();
        let (plugins, hooks, circuits) = (plugins.clone(), hooks.clone(), models.circuits());
        let parts = AnsweringParts { plugins, hooks, skills: skills::read(&again) };
        match answering(&again.config, again.env(), &clock, parts, &circuits).await {
            // A call has written a skill meanwhile, which this reading may lack: all is read once more.
            Ok(_) if shelf.written() != written => seen.clear(),
            Ok(answering) => {
                // Before the agents that name them.
                let agents_now =
                    pins.peek_seen(|pins| answering.agents.with_mcp(&again.config, pins));
                answering.shelve(&shelf);
                shelf.keep_in(skills::places(&again));
                models.replace(answering.models, answering.embeddings);
                if again.config.budgets != current.config.budgets {
                    budget_holder::configure(&budgets, &again.config.budgets);
                }
                take(&agents, agents_now).await;
                *routes.write().unwrap_or_else(std::sync::PoisonError::into_inner) =
                    answering.routes;
                if !waits.is_empty() && waits != node_status.file().waits {
                    info!(sections = waits.join(", "), "changes wait for a restart of this node");
                }
                node_status.spends_by(budget_holder::digest(&again.config));
                node_status.read_again(FileState { waits, problem: None });
                (current, known) = (again, answering.agents);
                info!("agents, providers and bindings were read again");
            }
            Err(failure) => {
                warn!(%failure, "the configuration is not valid; the old one stays in use");
                let problem = Some(cut(&failure.to_string()));
                node_status.read_again(FileState { problem, ..node_status.file() });
            }
        }
    }
}

async fn take(agents: &Agents, now: Vec<AgentOptions>) {
    if let Err(error) = agents.reload(now).await {
        warn!(%error, "an agent cannot be started");
    }
}

fn cut(text: &str) -> String {
    text.chars().take(FILE_PROBLEM_CHARS).collect()
}

// === impl StartedWith ===

impl StartedWith {
    fn now(loaded: &LoadedConfig) -> Self {
        let plugin_files = plugins::changed_at(&loaded.config);
        Self { config: loaded.config.clone(), plugin_files }
    }

    /// The sections whose changes wait for a restart, in order of their names.
    fn waiting(&self, again: &LoadedConfig, hooks: &Hooks) -> Vec<String> {
        let mut waits = needs_restart::waiting(&self.config, &again.config);
        if hooks::differ(again, hooks) {
            waits.push(HOOKS.to_owned());
        }
        if plugins::changed_at(&again.config) != self.plugin_files {
            waits.push(PLUGINS.to_owned());
        }
        waits.sort();
        waits.dedup();
        waits
    }
}

/// What is said of nodes that do not work with all that their configuration files say.
pub fn warnings(alive: &[Heartbeat]) -> Vec<WarningView> {
    let told = alive.iter().filter_map(|node| {
        let FileState { waits, problem } = &node.file;
        let warning = |name: &str, message: String, hint: &str| {
            Some(WarningView { name: name.to_owned(), message, hint: hint.to_owned() })
        };
        if let Some(problem) = problem {
            let message = format!("{} still uses its old configuration: {problem}", node.node);
            let hint = "correct the file; `clawnode config check` shows all problems";
            return warning("config.refused", message, hint);
        }
        let sections: Vec<String> = waits.iter().map(|section| format!("`{section}`")).collect();
        let sections = (!sections.is_empty()).then(|| sections.join(", "))?;
        let message = format!("changes of {sections} on {} wait for a restart", node.node);
        warning("config.waits", message, "restart that node when it suits you")
    });
    told.take(NODES_TOLD).collect()
}

fn changed_at(loaded: &LoadedConfig) -> Vec<Option<SystemTime>> {
    let agents = loaded.config.agents.values();
    let souls = agents.clone().flat_map(AgentSection::prompt_files);
    let schemas = agents.filter_map(|agent| match &agent.response_schema {
        Some(SchemaSource::File(path)) => Some(path.clone()),
        Some(SchemaSource::Inline(_)) | None => None,
    });
    // A file that is not there yet may come.
    let file = loaded.own_file();
    let files = file.into_iter().chain(souls).chain(schemas).chain(skills::files(loaded));
    let changed = |path| std::fs::metadata(path).and_then(|about| about.modified()).ok();
    let of_plugins = plugins::changed_at(&loaded.config);
    files.map(changed).chain(hooks::changed_at(loaded)).chain(of_plugins).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::config::{Env, Sources, load};

    #[test]
    fn a_file_that_comes_after_the_start_is_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let env = Env::from([("HOME", dir.path().to_str().unwrap())]);
        let loaded = load(&Sources { env, ..Sources::default() }).unwrap();
        let before = changed_at(&loaded);
        let file = dir.path().join(".config/clawnode/config.toml");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "").unwrap();
        assert_ne!(changed_at(&loaded), before);
    }

    #[test]
    fn a_skill_that_comes_changes_or_goes_is_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let env = Env::from([("HOME", dir.path().to_str().unwrap())]);
        let loaded = load(&Sources { env, ..Sources::default() }).unwrap();
        let skill = dir.path().join(".config/clawnode/skills/pdf");
        let mut seen = vec![changed_at(&loaded)];
        std::fs::create_dir_all(&skill).unwrap();
        seen.push(changed_at(&loaded));
        let file = std::fs::File::create(skill.join("SKILL.md")).unwrap();
        seen.push(changed_at(&loaded));
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        seen.push(changed_at(&loaded));
        std::fs::remove_dir_all(skill).unwrap();
        seen.push(changed_at(&loaded));
        for (at, one) in seen.iter().enumerate() {
            assert!(seen.iter().skip(at + 1).all(|other| other != one), "{at}: {seen:?}");
        }
    }

    #[test]
    fn a_replaced_file_of_a_plugin_waits_for_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let env = Env::from([("HOME", dir.path().to_str().unwrap())]);
        let config = dir.path().join("config.toml");
        std::fs::write(&config, "[[plugins]]\nname = \"p\"\npath = \"p.wasm\"\n").unwrap();
        let loaded = load(&Sources { env, file: Some(config), flags: Vec::new() }).unwrap();
        let hooks = hooks::open(&loaded).unwrap();
        for file in ["p.wasm", "p.toml"] {
            let (started, before) = (StartedWith::now(&loaded), changed_at(&loaded));
            assert_eq!(started.waiting(&loaded, &hooks), [""; 0], "{file}");
            std::fs::write(dir.path().join(file), "").unwrap();
            assert_ne!(changed_at(&loaded), before, "{file}");
            assert_eq!(started.waiting(&loaded, &hooks), ["plugins"], "{file}");
        }
    }

    #[test]
    fn hooks_that_a_node_does_not_have_yet_are_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let env = Env::from([("HOME", dir.path().to_str().unwrap())]);
        let folder = dir.path().join("hooks/before_tool_call");
        std::fs::create_dir_all(&folder).unwrap();
        let config = dir.path().join("config.toml");
        std::fs::write(&config, "").unwrap();
        let loaded = load(&Sources { env, file: Some(config), flags: Vec::new() }).unwrap();
        let (before, none) = (changed_at(&loaded), hooks::open(&loaded).unwrap());
        assert!(!hooks::differ(&loaded, &none));
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
        };
        write("10-one", "#!/bin/sh\n");
        assert_ne!(changed_at(&loaded), before);
        assert!(hooks::differ(&loaded, &none), "one was added");
        let one = hooks::open(&loaded).unwrap();
        assert!(!hooks::differ(&loaded, &one));
        write("10-one", "#!/bin/sh\nexit 1\n");
        assert!(!hooks::differ(&loaded, &one), "what it does is read each time it runs");
        write("10-one.toml", "required = true\n");
        assert!(hooks::differ(&loaded, &one), "it has other marks");
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(hooks::differ(&loaded, &one), "it was removed");
    }
}
