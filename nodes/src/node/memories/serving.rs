//! The store of a node, and what keeps it filled.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use clawnode_actors::session::RecallStore;
use clawnode_cluster::{Clock, Storage};
use clawnode_memory::{
    points::set_points_most,
    serve::{ServedStore, fill_from_journals},
    store::{LocalStore, take_over::take_over},
};
use clawnode_proto::ErrorChain;

use super::{
    embedding_model,
    folder_model::{FolderModel, refusal},
    qdrant,
};
use crate::{
    config::{LoadedConfig, memory::MemoryStoreChoice},
    node::base::NodeBase,
    start_error::StartError,
};

/// The folder of the store, in the data folder of its node.
const FOLDER: &str = "memory";
/// Processes that share a data folder at most.
const NODES_MOST: u32 = 64;

/// The store of this node, whatever its roles are: workers recall from it, gateways answer from it. From here on memories
/// of this process have as many points as the configuration says.
pub async fn store(
    loaded: &LoadedConfig,
    storage: &Storage,
    clock: &Arc<dyn Clock>,
) -> Result<ServedStore, StartError> {
    let parent = loaded.config.node.data_dir.join(FOLDER);
    set_points_most(loaded.config.memory.points_most());
    let choice = loaded.config.memory.store;
    let folder_model = folder_model(loaded).await?;
    let named = folder_model.as_ref().map(|model| model.embedder.model().to_owned());
    let model =
        named.or_else(|| embedding_model::configured(loaded).map(|model| model.to_string()));
    let local_model = model.clone();
    let opened = tokio::task::spawn_blocking(move || {
        let unusable = |failure| format!("cannot use `{}`: {failure}", parent.display());
        let (folder, lock) = free(&parent).map_err(unusable)?;
        if choice == MemoryStoreChoice::Qdrant {
            // How far the server is filled by this node.
            let folder = folder.join("qdrant");
            fs::create_dir_all(&folder).map_err(unusable)?;
            return Ok((None, folder, lock));
        }
        // How many numbers its vectors have is known when the first one is made.
        let model = local_model.as_deref().map(|model| (model, 0));
        let store = take_over(&folder, model).and_then(|()| LocalStore::open(&folder, model));
        let store = store.map_err(|failure| ErrorChain(&failure).to_string())?;
        Ok((Some(store), folder, lock))
    });
    let opened = opened.await.unwrap_or_else(|failure| Err(failure.to_string()));
    let (store, folder, lock) = opened.map_err(|what| {
        StartError::failed("data_dir_unusable", what)
            .hint("the folder is a copy of journals: it may be removed while the node is stopped")
    })?;
    let conversations = loaded.config.kept_conversations();
    let (storage, clock) = (storage.clone(), Arc::clone(clock));
    let served = if let Some(store) = store {
        ServedStore::new(store, lock, storage, clock, conversations)
    } else {
        let dimensions = folder_model.as_ref().map_or(0, |model| model.dimensions);
        let store = qdrant::open(loaded, model.as_deref().map(|model| (model, dimensions)))?;
        ServedStore::over_vectors(store, folder, lock, storage, clock, conversations)
    };
    if let Some(model) = folder_model {
        served.finds_meaning(model.embedder);
    }
    Ok(served)
}

/// The model in the folder of the configuration.
async fn folder_model(loaded: &LoadedConfig) -> Result<Option<FolderModel>, StartError> {
    let config = loaded.config.clone();
    let opened = tokio::task::spawn_blocking(move || FolderModel::open(&config).transpose()).await;
    let ended = |failure: tokio::task::JoinError| {
        StartError::failed("internal", format!("cannot read `memory.embeddings_dir`: {failure}"))
    };
    opened.map_err(ended)?.map_err(refusal)
}

/// The first folder that no other process uses, and what holds it: nodes of one host may share a data folder.
fn free(parent: &Path) -> io::Result<(PathBuf, File)> {
    fs::create_dir_all(parent)?;
    for number in 0..NODES_MOST {
        let lock = File::create(parent.join(format!("{number}.lock")))?;
        match lock.try_lock() {
            Ok(()) => return Ok((parent.join(number.to_string()), lock)),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(failure)) => return Err(failure),
        }
    }
    Err(io::Error::other(format!("{NODES_MOST} processes use it already")))
}

/// Where the turns of this node look.
pub fn recall_store(base: &NodeBase) -> Option<RecallStore> {
    Some(RecallStore { name: base.memory.name(), store: Arc::new(base.memory.clone()) })
}

/// Keeps the store of a node filled. In a cluster without a server, the workers share the scopes of persons.
pub async fn begin(base: &NodeBase) -> Result<(), ractor::SpawnErr> {
    let served = base.memory.clone();
    if base.storage.shared {
        served.shares_scopes(base.process, base.members.clone());
    }
    let fill = move || fill_from_journals::run(served.clone());
    base.supervisor.adopt_task("node.memory", fill).await
}
