//! Following the configuration's files: agents, providers and bindings change while a node runs.
//! Plugins and hooks do not: they are loaded once.

use std::{
    sync::{Arc, RwLock},
    time::{Duration, SystemTime},
};

use clawnode_actors::{agent::Agents, hook::Hooks, session::route::Routes, tool::mcp::Pins};
use clawnode_cluster::{Clock, PeekSeen, SystemClock};
use clawnode_proto::ErrorChain;
use tokio::sync::watch;
use tracing::{info, warn};

use super::{
    models::{CurrentModels, answering},
    plugins::Plugins,
};
use crate::config::Loaded;

/// How often the configuration's files are looked at for changes.
const RELOAD_EVERY: Duration = Duration::from_secs(2);

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
    pub plugins: Plugins,
    /// The hooks that this node has.
    pub hooks: Hooks,
}

impl Reloaded {
    /// Reads the configuration again when one of its files has changed, or something was approved.
    /// What does not read is reported, and the old settings stay.
    pub async fn follow(self, loaded: Loaded) {
        follow(self, loaded).await;
    }
}

async fn follow(reloaded: Reloaded, loaded: Loaded) {
    let Reloaded { agents, routes, models, mut pins, plugins, hooks } = reloaded;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut current = loaded;
    let mut seen = changed_at(&current);
    loop {
        let approved = tokio::select! {
            Ok(()) = pins.changed() => true,
            () = tokio::time::sleep(RELOAD_EVERY) => false,
        };
        let now = changed_at(&current);
        if now == seen && !approved {
            continue;
        }
        seen = now;
        let again = match current.reload() {
            Ok(again) => again,
            Err(error) => {
                warn!(error = %ErrorChain(&error), "the configuration does not read; the old one stays");
                continue;
            }
        };
        match answering(&again.config, again.env(), &clock, (plugins.clone(), hooks.clone())).await
        {
            Ok(answering) => {
                // Before the agents that name them.
                let agents_now = pins.peek_seen(|pins| answering.agents(&again.config, pins));
                models.replace(answering.models);
                if let Err(error) = agents.reload(agents_now).await {
                    warn!(%error, "an agent cannot be started");
                }
                *routes.write().unwrap_or_else(std::sync::PoisonError::into_inner) =
                    answering.routes;
                current = again;
                info!("agents, providers and bindings were read again");
            }
            Err(failure) => {
                warn!(%failure, "the configuration is not valid; the old one stays");
            }
        }
    }
}

fn changed_at(loaded: &Loaded) -> Vec<Option<SystemTime>> {
    let souls = loaded.config.agents.values().filter_map(|agent| agent.soul.as_ref());
    // A file that is not there yet may come.
    let file = loaded.own_file();
    let files = file.iter().chain(souls);
    files.map(|path| std::fs::metadata(path).and_then(|about| about.modified()).ok()).collect()
}

#[cfg(test)]
mod tests {
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
}
