//! Serving clients, and saying in the data directory where.

use std::{path::PathBuf, sync::Arc};

use clawnode_actors::session::Sessions;
use clawnode_gateway::Serving;
use tracing::warn;

use super::wire::Wired;
use crate::{
    api_token::ensure_token,
    config::LoadedConfig,
    failure::{Exit, Failure},
    node::{
        backend::NodeBackend,
        base::BackendSources,
        gateway_options::{advertised, gateway_options, refused},
        kinds,
        overview::NodeInfo,
        panic::PanicControl,
    },
    node_file::NodeFile,
    secret::Secret,
};

/// A gateway that serves.
pub(super) struct OpenGateway {
    pub(super) serving: Serving,
    /// The token that it asks for; `None` with `no_auth`.
    pub(super) token: Option<Secret>,
    /// What says on this machine where it is; none if the disk is full.
    pub(super) announced: Option<AnnouncedGateway>,
}

/// A file with the node's address, and where it is.
pub(super) struct AnnouncedGateway {
    file: NodeFile,
    dir: PathBuf,
}

// === impl Wired ===

impl Wired {
    /// Serves clients, and says in the data directory where.
    pub(super) async fn open_gateway(&self) -> Result<OpenGateway, Failure> {
        let (base, loaded) = (&self.base, &*self.loaded);
        let backend = Arc::new(self.backend());
        let remembering = self.operations.remember(&base.storage);
        remembering.await?;
        let token = token(loaded)?;
        let options = gateway_options(&loaded.config, token.as_ref(), Arc::clone(&base.clock));
        let stop = self.shutdown.clone();
        let serving = clawnode_gateway::serve(options, Arc::clone(&backend) as _, stop).await;
        let serving = serving.map_err(|error| refused(&error))?;
        self.operations.roots.gateway.get_or_init(|| serving.url.clone());
        // Set once, here.
        drop(advertised(&loaded.config, &serving.url).map(|url| self.reached.set(url)));
        let announced = self.announce(&serving)?;
        self.gauges.count(serving.clients());
        if base.is_worker() {
            backend.budgets().reconcile_earlier(self.shutdown.clone());
        }
        Ok(OpenGateway { serving, token, announced })
    }

    /// What answers clients.
    fn backend(&self) -> NodeBackend {
        let base = &self.base;
        let mcp = self.mcp.switch_gate(base.members.clone(), Arc::clone(&self.heartbeat_source));
        let (heartbeat_source, model) = (Arc::clone(&self.heartbeat_source), self.model.clone());
        let members = base.members.clone();
        let node = NodeInfo::new(&self.context, heartbeat_source, model, members, &self.operations);
        let entities = kinds::entities(base.storage.clone(), Arc::clone(&base.clock));
        let sessions = Sessions::of(entities).writing(Arc::clone(&self.agreed));
        let switch = PanicControl::new(&base.storage, &base.switch_gate, &self.operations.feed);
        let (agents, routes) = (self.agents.clone(), Arc::clone(&self.routes));
        let (models, memory) = (self.models.clone(), base.memory.clone());
        let sources = BackendSources { models, memory };
        NodeBackend::new(sessions, agents, routes, node, switch, mcp, sources)
            .fetching(&self.loaded.config.egress)
    }

    fn announce(&self, serving: &Serving) -> Result<Option<AnnouncedGateway>, Failure> {
        let dir = self.loaded.config.node.data_dir.clone();
        let (url, socket) = (serving.url.clone(), serving.socket.clone());
        let file = NodeFile { url, socket, pid: std::process::id(), process: self.base.process };
        match std::fs::create_dir_all(&dir).and_then(|()| file.write(&dir)) {
            Ok(()) => Ok(Some(AnnouncedGateway { file, dir })),
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                let url = &serving.url;
                warn!(url, "the disk is full: commands find this node by `--url` only");
                Ok(None)
            }
            Err(error) => {
                let message = format!("cannot write into `{}`: {error}", dir.display());
                Err(Failure::new(Exit::Failed, "data_dir_unusable", message)
                    .hint("name another directory with `--data-dir`"))
            }
        }
    }
}

// === impl AnnouncedGateway ===

impl AnnouncedGateway {
    /// Takes it back when the node stops.
    pub(super) fn remove(self) {
        if let Err(error) = self.file.remove(&self.dir) {
            warn!(%error, "cannot remove the file with the node's address");
        }
    }
}

fn token(loaded: &LoadedConfig) -> Result<Option<Secret>, Failure> {
    if loaded.config.gateway.no_auth {
        return Ok(None);
    }
    if let Some(token) = &loaded.token {
        return Ok(Some(token.clone()));
    }
    let dir = &loaded.config.node.data_dir;
    std::fs::create_dir_all(dir).map_err(|error| {
        let message = format!("cannot make `{}`: {error}", dir.display());
        Failure::new(Exit::Failed, "data_dir_unusable", message)
            .hint("name another directory with `--data-dir`")
    })?;
    Ok(Some(ensure_token(dir)?))
}
