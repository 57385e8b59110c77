//! The hooks of this node: where they are, and which of them may be asked.

use std::path::PathBuf;

use clawnode_actors::hook::{self, Entry, Hooks, Keeper, Program};
use clawnode_proto::ErrorChain;
use tracing::info;

use super::mcp::{KEEPER, OWN};
use crate::{
    config::{Config, Loaded, agents::DEFAULT_AGENT, paths},
    failure::{Exit, Failure},
};

/// The folder beside the configuration file, unless another is named.
const FOLDER: &str = "hooks";

/// A file in the folder of hooks, and whether it may be asked.
#[derive(Debug)]
pub struct Found {
    /// What it is.
    pub entry: Entry,
    /// Why it may not, for people.
    pub refused: Option<String>,
}

/// Where this node looks for hooks; nowhere if nobody knows where its configuration would be.
pub fn folder(loaded: &Loaded) -> Option<PathBuf> {
    if let Some(dir) = &loaded.config.hooks.dir {
        return Some(dir.clone());
    }
    let file = loaded.file.clone().or_else(|| paths::config_file(loaded.env()))?;
    Some(file.parent()?.join(FOLDER))
}

/// All that is in the folder.
pub fn found(loaded: &Loaded) -> Vec<Found> {
    let Some(folder) = folder(loaded) else { return Vec::new() };
    let judged = |entry: Entry| {
        let refused = match &entry.hook {
            Ok(program) => stranger(&loaded.config, program),
            Err(refusal) => Some(ErrorChain(refusal).to_string()),
        };
        Found { entry, refused }
    };
    hook::find(&folder).into_iter().map(judged).collect()
}

/// A hook that guards an agent which is not there guards nobody: its name may be misspelt.
fn stranger(config: &Config, program: &Program) -> Option<String> {
    let is_there = |name: &str| {
        name == DEFAULT_AGENT || config.agents.keys().any(|agent| agent.as_str() == name)
    };
    let agent = program.agents.iter().find(|agent| !is_there(agent.as_str()))?;
    Some(format!("its marks name agent `{agent}`, which is not configured"))
}

/// The hooks of this node. It does not start with a file among them that may not be asked: who put
/// it there relies on it.
pub fn open(loaded: &Loaded) -> Result<Hooks, Failure> {
    let mut programs = Vec::new();
    for Found { entry, refused } in found(loaded) {
        let path = entry.path.display();
        if let Some(why) = refused {
            let what = format!("`{path}` is not a hook that may be asked: {why}");
            return Err(Failure::new(Exit::Config, "config_invalid", what).hint(
                "mend it, or move it elsewhere; `clawnode hooks list` shows all that is there",
            ));
        }
        if let Ok(program) = entry.hook {
            let (point, required) = (program.spec.point, program.spec.required);
            info!(hook = %program.spec.name, %point, required, "a hook is asked");
            programs.push(program);
        }
    }
    let keeper = Keeper { binary: OWN.into(), command: KEEPER.into() };
    Ok(Hooks::new(programs, Some(keeper)))
}
