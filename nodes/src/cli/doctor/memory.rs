//! The check of the server that has the store of memories.

use super::Check;
use crate::{
    config::{LoadedConfig, memory::MemoryStoreChoice},
    node::memories,
};

const NAME: &str = "memory.store";

/// Whether the server can be used; nothing if there is none. Agents go on without it, so it is never red.
pub(super) async fn check(loaded: &LoadedConfig) -> Option<Check> {
    if loaded.config.memory.store != MemoryStoreChoice::Qdrant {
        return None;
    }
    Some(match memories::check_qdrant(loaded).await {
        Ok(url) => Check::green(NAME, format!("Qdrant at `{url}` can be used")),
        Err((found, fix)) => Check::yellow(NAME, found, &fix),
    })
}
