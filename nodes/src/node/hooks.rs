//! The hooks of this node: where they are, and which of them may be asked.

use std::{collections::BTreeSet, fs, io, path::PathBuf, time::SystemTime};

use clawnode_actors::hook::{self, HookFile, HookKeeper, Hooks, Program};
use clawnode_proto::{ErrorChain, hook::HookPoint};
use tracing::{info, warn};

use super::mcp_servers::{KEEPER, OWN};
use crate::{
    config::{Config, LoadedConfig, agents::DEFAULT_AGENT, load::absolute, paths},
    files,
    start_error::StartError,
};

/// The folder beside the configuration file, unless another is named.
const FOLDER: &str = "hooks";

/// The file in the data directory with the names of all hooks that were ever here.
const SEEN: &str = "hooks.seen";
/// Its first line.
const ABOUT: &str = "# Hooks that were here when a node started. `doctor` and the node warn about \
                     each that is gone.\n# If you removed a hook, delete its line.\n";

/// Files of one folder of hooks whose changes are noticed.
const FILES_MAX: usize = 256;

/// A file in the folder of hooks, and whether it may be asked.
#[derive(Debug)]
pub struct HookStatus {
    pub entry: HookFile,
    /// Why it may not, for people.
    pub refused: Option<String>,
}

/// Where this node looks for hooks; nowhere if the place of its configuration is unknown.
pub fn folder(loaded: &LoadedConfig) -> Option<PathBuf> {
    if let Some(dir) = &loaded.config.hooks.dir {
        return Some(absolute(dir));
    }
    let file = loaded.file.clone().or_else(|| paths::config_file(loaded.env()))?;
    // Hooks are started in `/`.
    Some(absolute(file.parent()?).join(FOLDER))
}

/// All that is in the folder.
pub fn found(loaded: &LoadedConfig) -> Vec<HookStatus> {
    let Some(folder) = folder(loaded) else { return Vec::new() };
    let judged = |entry: HookFile| {
        let refused = match &entry.hook {
            Ok(program) => stranger(&loaded.config, program),
            Err(refusal) => Some(ErrorChain(refusal).to_string()),
        };
        HookStatus { entry, refused }
    };
    hook::find(&folder).into_iter().map(judged).collect()
}

/// Where the hooks are written down that were seen.
pub fn seen_file(loaded: &LoadedConfig) -> PathBuf {
    loaded.config.node.data_dir.join(SEEN)
}

/// The hooks that a node here once began with and that are missing now, as `POINT/NAME`. A user who
/// could not change a hook may have removed it.
pub fn gone(loaded: &LoadedConfig) -> io::Result<Vec<String>> {
    let there = names(loaded);
    Ok(seen(loaded)?.into_iter().filter(|name| !there.contains(name)).collect())
}

/// Stores which hooks are here, and warns of those that are gone.
pub fn remember(loaded: &LoadedConfig) {
    let remembered = gone(loaded).and_then(|gone| {
        for hook in &gone {
            let file = seen_file(loaded);
            let file = file.display();
            warn!(hook, %file, "a hook that was here is gone; if you removed it, delete its line");
        }
        let there = names(loaded);
        let seen = seen(loaded)?;
        if there.is_subset(&seen) { Ok(()) } else { write(loaded, &(&there | &seen)) }
    });
    if let Err(error) = remembered {
        let file = seen_file(loaded);
        warn!(%error, file = %file.display(), "cannot record which hooks are here");
    }
}

/// All that is in the folder, as `POINT/NAME`, whether it may be asked or not.
fn names(loaded: &LoadedConfig) -> BTreeSet<String> {
    let named = |status: HookStatus| {
        let name = status.entry.path.file_name()?.to_str()?.to_owned();
        Some(format!("{}/{name}", status.entry.point.as_str()))
    };
    found(loaded).into_iter().filter_map(named).collect()
}

fn seen(loaded: &LoadedConfig) -> io::Result<BTreeSet<String>> {
    let text = match fs::read_to_string(seen_file(loaded)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}

fn write(loaded: &LoadedConfig, seen: &BTreeSet<String>) -> io::Result<()> {
    let dir = &loaded.config.node.data_dir;
    files::directory(dir)?;
    let lines: String = seen.iter().flat_map(|name| [name.as_str(), "\n"]).collect();
    // In one step: a file that is cut off would forget.
    files::replace(&seen_file(loaded), &format!("{ABOUT}{lines}"), files::PRIVATE)
}

/// A hook that guards an agent that does not exist has no effect: its name may be misspelt.
fn stranger(config: &Config, program: &Program) -> Option<String> {
    let is_there = |name: &str| {
        name == DEFAULT_AGENT || config.agents.keys().any(|agent| agent.as_str() == name)
    };
    let agent = program.agents.iter().find(|agent| !is_there(agent.as_str()))?;
    Some(format!("its marks name agent `{agent}`, which is not configured"))
}

/// When the folder of hooks and what is in it were changed: before that, a look at them finds nothing new.
pub fn changed_at(loaded: &LoadedConfig) -> Vec<Option<SystemTime>> {
    let Some(folder) = folder(loaded) else { return Vec::new() };
    let points = HookPoint::ALL.iter().map(|point| folder.join(point.as_str()));
    let paths = points.flat_map(|point| {
        let entries = fs::read_dir(&point).into_iter().flatten().take(FILES_MAX);
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths.push(point);
        paths
    });
    paths.map(|path| fs::metadata(path).and_then(|about| about.modified()).ok()).collect()
}

/// Whether a node that started now would have other hooks than these, or would not start because of one.
/// What a hook does is not compared: its file is run as it is at that time.
pub fn differ(loaded: &LoadedConfig, hooks: &Hooks) -> bool {
    let mut programs = Vec::new();
    for HookStatus { entry, refused } in found(loaded) {
        match (refused, entry.hook) {
            (None, Ok(program)) => programs.push(program),
            (Some(_), _) | (_, Err(_)) => return true,
        }
    }
    !hooks.are(&programs)
}

/// The hooks of this node. It does not start with a file among them that may not be asked: who put
/// it there relies on it.
pub fn open(loaded: &LoadedConfig) -> Result<Hooks, StartError> {
    let mut programs = Vec::new();
    for HookStatus { entry, refused } in found(loaded) {
        let path = entry.path.display();
        if let Some(why) = refused {
            let what = format!("`{path}` cannot be used as a hook: {why}");
            return Err(StartError::config("config_invalid", what)
                .hint("correct it, or move it elsewhere; `clawnode hooks list` shows all hooks"));
        }
        if let Ok(program) = entry.hook {
            let (point, required) = (program.spec.point, program.spec.required);
            info!(hook = %program.spec.name, %point, required, "a hook is in use");
            programs.push(program);
        }
    }
    let keeper = HookKeeper { binary: OWN.into(), command: KEEPER.into() };
    Ok(Hooks::new(programs, Some(keeper)))
}
