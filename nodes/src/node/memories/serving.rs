//! The store of a worker, and what keeps it filled.

use std::sync::Arc;

use clawnode_actors::session::RecallStore;
use clawnode_cluster::{Clock, Storage};
use clawnode_memory::{
    serve::{ServedStore, follow},
    store::LocalStore,
};
use clawnode_proto::{ErrorChain, node::NodeRole};

use crate::{config::LoadedConfig, node::base::NodeBase, start_error::StartError};

/// The folder of the store, in the data folder of its node.
const FOLDER: &str = "memory";

/// The store of this node; none without a worker.
pub fn store(
    loaded: &LoadedConfig,
    roles: &[NodeRole],
    storage: &Storage,
    clock: &Arc<dyn Clock>,
) -> Result<Option<ServedStore>, StartError> {
    if !roles.contains(&NodeRole::Worker) {
        return Ok(None);
    }
    let (folder, memory) = (loaded.config.node.data_dir.join(FOLDER), &loaded.config.memory);
    let store = LocalStore::open(&folder, None).map_err(|failure| {
        let what = ErrorChain(&failure).to_string();
        StartError::failed("data_dir_unusable", what)
            .hint("the folder is a copy of journals: it may be removed while the node is stopped")
    })?;
    let conversations = memory.conversations.clone();
    Ok(Some(ServedStore::new(store, storage.clone(), Arc::clone(clock), conversations)))
}

/// Where the turns of this node look.
pub fn recall_store(base: &NodeBase) -> Option<RecallStore> {
    let store = Arc::new(base.memory.clone()?);
    Some(RecallStore { name: "local", store })
}

/// Keeps the store of a worker filled.
pub async fn begin(base: &NodeBase) -> Result<(), ractor::SpawnErr> {
    let Some(served) = base.memory.clone() else { return Ok(()) };
    let fill = move || follow::run(served.clone());
    base.supervisor.adopt_task("worker.memory", fill).await
}
