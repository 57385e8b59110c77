//! The store of memories on a Qdrant server, in a build that has it and in one that has not.

use std::sync::Arc;

#[cfg(feature = "qdrant")]
use clawnode_memory::store::FilledStore as _;
use clawnode_memory::store::VectorStore;

use crate::{config::LoadedConfig, start_error::StartError};

/// The store at the server of the configuration, with vectors of this model with so many numbers, 0 if that is not known
/// yet. Nothing is asked of the server yet: a node also starts while it is away.
#[cfg(feature = "qdrant")]
pub(super) fn open(
    loaded: &LoadedConfig,
    model: Option<(&str, usize)>,
) -> Result<Arc<dyn VectorStore>, StartError> {
    Ok(Arc::new(built::store(loaded, model)?))
}

/// The configuration is refused before this.
#[cfg(not(feature = "qdrant"))]
pub(super) fn open(
    _loaded: &LoadedConfig,
    _model: Option<(&str, usize)>,
) -> Result<Arc<dyn VectorStore>, StartError> {
    let what = "this build has no store `qdrant`: build it with `--features full`";
    Err(StartError::config("config_invalid", what))
}

/// Asks the server of the configuration whether it can be used: its address, or what is wrong and what to do.
#[cfg(feature = "qdrant")]
pub async fn check(loaded: &LoadedConfig) -> Result<String, (String, String)> {
    let fix = "correct `[memory.qdrant]`".to_owned();
    let store = built::store(loaded, None).map_err(|failure| (failure.to_string(), fix.clone()))?;
    let checked = store.check().await;
    checked.map_err(|failure| match store.away() {
        Some(away) => (away.what, away.hint),
        None => (failure.to_string(), fix),
    })?;
    Ok(store.url().to_owned())
}

/// No server can be asked.
#[cfg(not(feature = "qdrant"))]
pub async fn check(loaded: &LoadedConfig) -> Result<String, (String, String)> {
    let fix = "build clawnode with `--features full`".to_owned();
    Err((open(loaded, None).map_or_else(|failure| failure.to_string(), |_| String::new()), fix))
}

#[cfg(feature = "qdrant")]
mod built {
    use std::{fs, path::Path};

    use clawnode_proto::ErrorChain;
    use clawnode_qdrant::{QdrantOptions, QdrantStore};
    use secrecy::SecretString;

    use crate::{
        config::{Env, LoadedConfig, ServerUrl, qdrant::QdrantSection},
        start_error::StartError,
    };

    pub(super) fn store(
        loaded: &LoadedConfig,
        model: Option<(&str, usize)>,
    ) -> Result<QdrantStore, StartError> {
        let section = loaded.config.memory.qdrant.clone().unwrap_or_default();
        let url = section.url.as_ref().map(ServerUrl::expose).unwrap_or_default().to_owned();
        let options = QdrantOptions {
            url,
            api_key: key(&section, loaded.env())?,
            ca: section.ca.as_deref().map(|path| read(path, "ca")).transpose()?,
            prefix: section.prefix,
        };
        QdrantStore::new(&options, model).map_err(|failure| invalid(&ErrorChain(&failure)))
    }

    fn key(section: &QdrantSection, env: &Env) -> Result<Option<SecretString>, StartError> {
        if let Some(key) = &section.api_key {
            return Ok(Some(SecretString::from(key.expose().to_owned())));
        }
        if let Some(name) = &section.api_key_env {
            let key = env.get(name).map(str::trim).filter(|key| !key.is_empty());
            let missing = || invalid(&format!("`api_key_env`: `{name}` is not set"));
            return Ok(Some(SecretString::from(key.ok_or_else(missing)?.to_owned())));
        }
        let Some(path) = &section.api_key_file else { return Ok(None) };
        let bytes = read(path, "api_key_file")?;
        let key = String::from_utf8_lossy(&bytes).trim().to_owned();
        if key.is_empty() {
            return Err(invalid(&format!("`api_key_file`: `{}` is empty", path.display())));
        }
        Ok(Some(SecretString::from(key)))
    }

    fn read(path: &Path, setting: &str) -> Result<Vec<u8>, StartError> {
        let unreadable =
            |failure| invalid(&format!("`{setting}`: cannot read `{}`: {failure}", path.display()));
        fs::read(path).map_err(unreadable)
    }

    fn invalid(what: &dyn std::fmt::Display) -> StartError {
        StartError::config("config_invalid", format!("`memory.qdrant`: {what}"))
    }
}
