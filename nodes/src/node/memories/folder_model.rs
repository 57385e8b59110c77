//! The models of `embeddings_dir`, in the process of the node.

use std::{path::Path, sync::Arc};

use clawnode_memory::embed::{StaticModel, TextEmbedder};
use clawnode_proto::ErrorChain;

use crate::{
    config::{
        Config, LoadedConfig,
        memory::{EmbeddingsChoice, LOCAL_FILES, STATIC_FILES},
    },
    start_error::StartError,
};

/// A model that was read from a folder.
#[derive(Clone, Debug)]
pub struct FolderModel {
    /// What makes vectors.
    pub embedder: Arc<dyn TextEmbedder>,
    /// Numbers of a vector.
    pub dimensions: usize,
    /// How many tokens it knows.
    pub tokens: usize,
}

/// Why a folder has no model that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderModelFault {
    /// Which file, and what is wrong with it.
    pub what: String,
    /// What to do.
    pub fix: String,
}

// === impl FolderModel ===

impl FolderModel {
    /// Reads the model of the configuration; blocks. Nothing if the configuration has no model in a folder.
    pub fn open(config: &Config) -> Option<Result<Self, FolderModelFault>> {
        let folder = config.memory.embeddings_dir.clone().unwrap_or_default();
        let (opened, files) = match config.memory.embeddings {
            EmbeddingsChoice::None | EmbeddingsChoice::Model(_) => return None,
            EmbeddingsChoice::Static => (of_static(&folder), STATIC_FILES),
            EmbeddingsChoice::Local => (of_local(&folder), LOCAL_FILES),
        };
        Some(opened.map_err(|what| FolderModelFault {
            what: format!("`memory.embeddings_dir`: {what}"),
            fix: format!(
                "copy {files} of one model into `{}`, correct `embeddings_dir`, or set `embeddings = \"none\"`",
                folder.display()
            ),
        }))
    }
}

fn of_static(folder: &Path) -> Result<FolderModel, String> {
    let model = StaticModel::open(folder).map_err(|failure| ErrorChain(&failure).to_string())?;
    let (dimensions, tokens) = (model.dimensions(), model.tokens());
    Ok(FolderModel { embedder: Arc::new(model), dimensions, tokens })
}

#[cfg(feature = "embed-local")]
fn of_local(folder: &Path) -> Result<FolderModel, String> {
    use clawnode_memory::embed::LocalModel;

    let model = LocalModel::open(folder).map_err(|failure| ErrorChain(&failure).to_string())?;
    let (dimensions, tokens) = (model.dimensions(), model.tokens());
    Ok(FolderModel { embedder: Arc::new(model), dimensions, tokens })
}

/// The configuration is refused before this.
#[cfg(not(feature = "embed-local"))]
fn of_local(_folder: &Path) -> Result<FolderModel, String> {
    Err("this build has no model `local`: build it with `--features embed-local`".to_owned())
}

/// Refuses a folder with which no node starts; blocks.
pub fn check(loaded: &LoadedConfig) -> Result<(), StartError> {
    FolderModel::open(&loaded.config).transpose().map(drop).map_err(refusal)
}

/// A node without its model would find less than the configuration promises, so it does not start.
pub(super) fn refusal(fault: FolderModelFault) -> StartError {
    StartError::config("config_invalid", fault.what).hint(fault.fix)
}
