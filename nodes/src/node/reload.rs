//! Following the configuration's files: agents, providers and bindings change while a node runs.

use std::{
    sync::{Arc, RwLock},
    time::{Duration, SystemTime},
};

use clawnode_actors::{agent::Agents, session::route::Routes};
use clawnode_cluster::{Clock, SystemClock};
use clawnode_proto::ErrorChain;
use tracing::{info, warn};

use super::models::{CurrentModels, answering};
use crate::config::Loaded;

/// How often the configuration's files are looked at for changes.
const RELOAD_EVERY: Duration = Duration::from_secs(2);

/// Reads the configuration again when one of its files has changed. What does not read is
/// reported, and the old settings stay.
pub async fn follow_files(
    loaded: Loaded,
    (agents, routes, models): (Agents, Arc<RwLock<Routes>>, CurrentModels),
) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut current = loaded;
    let mut seen = changed_at(&current);
    loop {
        tokio::time::sleep(RELOAD_EVERY).await;
        let now = changed_at(&current);
        if now == seen {
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
        match answering(&again.config, again.env(), &clock).await {
            Ok(answering) => {
                // Before the agents that name them.
                models.replace(answering.models);
                if let Err(error) = agents.reload(answering.agents).await {
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
    let files = loaded.file.iter().chain(souls);
    files.map(|path| std::fs::metadata(path).and_then(|about| about.modified()).ok()).collect()
}
