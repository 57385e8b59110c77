//! A Docker engine for the workers of one stage, and the files that their containers write.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{ChaosError, daemon::tool, wait::eventually};
use crate::docker::Engine;

/// The user of commands in containers: the owner of the files that they may write.
const NOBODY: u32 = 65_534;
/// The file with a line for each effect, in the agent's directory.
const EFFECTS: &str = "effects";
/// How long containers may outlive the nodes that made them.
const GONE_IN: Duration = Duration::from_secs(30);

/// An engine, and the directory of agents' files.
#[derive(Debug)]
pub struct Containers {
    engine: Engine,
    files: PathBuf,
}

/// Why there can be no engine here; `None` if there can.
pub(super) fn no_engine() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("a Docker engine of its own needs root".to_owned());
    }
    for (name, package) in [("dockerd", "docker.io"), ("busybox", "busybox-static")] {
        if tool(name).is_none() {
            return Some(format!("`{name}` is missing: apt-get install {package}"));
        }
    }
    None
}

// === impl Containers ===

impl Containers {
    /// Starts an engine with an image for commands.
    pub async fn start(dir: &Path) -> Result<Self, ChaosError> {
        let files = dir.join("files");
        fs::create_dir_all(&files)
            .and_then(|()| chown(&files, Some(NOBODY), Some(NOBODY)))
            .map_err(ChaosError::io("make a directory for agents' files"))?;
        let engine = Engine::start().await?;
        engine.import_busybox().await?;
        Ok(Self { engine, files })
    }

    /// The nodes' configuration for it; commands need no approval.
    pub fn settings(&self) -> String {
        format!(
            "[[agents.default.rules]]\ntool = \"run_command\"\nverdict = \"allow\"\n\
             [workspace]\nroot = \"{}\"\n\
             [sandbox]\nrun_in = \"docker\"\nworkspace = \"read_write\"\n\
             [sandbox.docker]\nsocket = \"{}\"\nimage = \"busybox:test\"\n",
            self.files.display(),
            self.engine.socket().display()
        )
    }

    /// How often each effect happened, by its job.
    pub fn effects(&self) -> Result<BTreeMap<String, usize>, ChaosError> {
        let mut counts = BTreeMap::new();
        let agents = fs::read_dir(&self.files).map_err(ChaosError::io("list agents' files"))?;
        for agent in agents.flatten() {
            let text = fs::read_to_string(agent.path().join(EFFECTS)).unwrap_or_default();
            for job in text.lines() {
                *counts.entry(job.to_owned()).or_default() += 1;
            }
        }
        Ok(counts)
    }

    /// Waits until a container runs, and kills all that do; how many.
    pub async fn kill_all(&self) -> Result<usize, ChaosError> {
        let running = eventually("a container that runs", super::wait::PATIENCE, async || {
            let listed = self.engine.docker(&["ps", "-q"]).await;
            let listed = listed.map_err(|error| error.to_string())?;
            let ids: Vec<String> = listed.split_whitespace().map(str::to_owned).collect();
            if ids.is_empty() { Err("none".to_owned()) } else { Ok(ids) }
        })
        .await?;
        for id in &running {
            // It may have ended by itself meanwhile.
            if let Err(error) = self.engine.docker(&["kill", id]).await {
                tracing::debug!(%error, id, "a container was gone");
            }
        }
        Ok(running.len())
    }

    /// `kill -9` of the engine.
    pub async fn kill(&mut self) -> Result<(), ChaosError> {
        Ok(self.engine.kill().await?)
    }

    /// Ends what the engine left running, and starts it again.
    pub async fn restart(&mut self) -> Result<(), ChaosError> {
        Ok(self.engine.start_again().await?)
    }

    /// Containers that nodes left behind.
    pub async fn left(&self) -> Option<String> {
        let gone = eventually("the end of all containers", GONE_IN, async || {
            match self.engine.containers().await {
                Ok(left) if left.is_empty() => Ok(()),
                Ok(left) => Err(left.join(", ")),
                Err(error) => Err(error.to_string()),
            }
        });
        gone.await.err().map(|error| error.to_string())
    }

    /// Ends the engine.
    pub async fn stop(self) -> Result<(), ChaosError> {
        Ok(self.engine.stop().await?)
    }
}
