//! Loading the configured plugins. A plugin that cannot be used is left out with a warning, and the
//! node continues without it.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    sync::Arc,
    time::Instant,
};

use clawnode_cluster::Bucket;
use clawnode_guard::kill_switch::SwitchGate;
use clawnode_proto::{Digest, ErrorChain};
use clawnode_tool::Egress;
use clawnode_wasm::{Cache, Plugin, PluginGrants, WasmEngine, limits};
use tokio::{sync::Semaphore, task::spawn_blocking};
use tracing::{error, info, warn};

use super::{
    Manifest, ManifestError, PluginCapability, PluginError, PluginExecutor, PluginName,
    PluginOptions, manifest::MANIFEST_BYTES,
};

/// The plugins of a node. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Plugins {
    loaded: Vec<Arc<PluginExecutor>>,
    /// Those that cannot be used, and why.
    refused: Vec<(PluginName, String)>,
    engine: Option<WasmEngine>,
}

impl Plugins {
    /// Loads these plugins. What is compiled is kept in `cache`; plugins reach out by `egress`.
    /// Without plugins nothing is started.
    pub async fn load(options: &[PluginOptions], egress: &Egress, cache: &Path) -> Self {
        if options.is_empty() {
            return Self::default();
        }
        let cache = Cache::open(cache).inspect_err(|error| {
            let dir = cache.display();
            warn!(%dir, %error, "no directory for compiled plugins; they compile at each start");
        });
        let engine = match WasmEngine::new(cache.ok()) {
            Ok(engine) => engine,
            Err(error) => {
                let error = ErrorChain(&error).to_string();
                error!(error, "no plugin could be loaded");
                let refused = options.iter().map(|plugin| (plugin.name.clone(), error.clone()));
                return Self { refused: refused.collect(), ..Self::default() };
            }
        };
        let room = Arc::new(Semaphore::new(limits::CALLS as usize));
        let (mut loaded, mut refused) = (Vec::new(), Vec::new());
        for options in options {
            match load(&engine, options, egress.clone(), Arc::clone(&room)).await {
                Ok(plugin) => loaded.push(Arc::new(plugin)),
                Err(error) => {
                    let why = ErrorChain(&error).to_string();
                    if matches!(error, PluginError::Missing(_)) {
                        warn!(plugin = %options.name, why, "a plugin is not loaded");
                    } else {
                        error!(plugin = %options.name, why, "a plugin is not loaded");
                    }
                    refused.push((options.name.clone(), why));
                }
            }
        }
        Self { loaded, refused, engine: Some(engine) }
    }

    /// The same, whose requests need a permit of `switch_gate`.
    #[must_use]
    pub fn behind(&self, switch_gate: &SwitchGate) -> Self {
        let loaded = self.loaded.iter().map(|plugin| Arc::new(plugin.behind(switch_gate)));
        Self { loaded: loaded.collect(), ..self.clone() }
    }

    /// The same, whose stores are in `bucket`.
    #[must_use]
    pub fn keeping(&self, bucket: &Arc<dyn Bucket>) -> Self {
        let loaded = self.loaded.iter().map(|plugin| Arc::new(plugin.keeping(bucket)));
        Self { loaded: loaded.collect(), ..self.clone() }
    }

    /// Those that cannot be used, and why.
    pub fn refused(&self) -> &[(PluginName, String)] {
        &self.refused
    }

    /// What runs their tools.
    pub fn executors(&self) -> impl Iterator<Item = Arc<PluginExecutor>> {
        self.loaded.iter().map(Arc::clone)
    }

    /// Removes compiled code that no plugin uses any more. For who alone has the data directory.
    pub fn sweep(&self) {
        let cache = self.engine.as_ref().and_then(WasmEngine::cache);
        if let Some(Err(error)) = cache.map(Cache::sweep) {
            warn!(%error, "cannot remove old compiled plugins");
        }
    }
}

/// Loads one.
pub(super) async fn load(
    engine: &WasmEngine,
    options: &PluginOptions,
    egress: Egress,
    room: Arc<Semaphore>,
) -> Result<PluginExecutor, PluginError> {
    let begun = Instant::now();
    let (its, engine) = (options.clone(), engine.clone());
    let read = spawn_blocking(move || read(&engine, &its)).await;
    let (plugin, manifest, pin) = read.map_err(|error| {
        error!(plugin = %options.name, %error, "the plugin engine panicked");
        PluginError::Broke
    })??;
    let version = manifest.version.clone();
    let capabilities: Vec<String> = manifest.capabilities.iter().map(ToString::to_string).collect();
    let executor = PluginExecutor::new(plugin, options, manifest, pin, egress, room)?;
    let tools = executor.names();
    let ms = begun.elapsed().as_millis();
    info!(plugin = %options.name, version, ?tools, ?capabilities, ms, "plugin loaded");
    Ok(executor)
}

/// Reads the manifest, judges what it asks for, then compiles and tries the component. The digest
/// covers its code and the hosts and stores that it may reach.
fn read(
    engine: &WasmEngine,
    options: &PluginOptions,
) -> Result<(Plugin, Manifest, Digest), PluginError> {
    let path = options.path.with_extension("toml");
    if !options.path.exists() {
        return Err(PluginError::Missing(options.path.clone()));
    }
    let manifest = |source| PluginError::Manifest { path: path.clone(), source };
    let text = String::from_utf8(bytes(&path, MANIFEST_BYTES)?)
        .map_err(|error| manifest(ManifestError::Malformed(error.utf8_error().to_string())))?;
    let manifest = Manifest::parse(&text).map_err(manifest)?;
    if manifest.name != options.name {
        return Err(PluginError::Name(manifest.name));
    }
    for asked in &manifest.capabilities {
        if !options.capabilities.iter().any(|granted| granted.covers(asked)) {
            return Err(PluginError::Ungranted(asked.clone()));
        }
    }
    let http = manifest
        .capabilities
        .iter()
        .any(|capability| matches!(capability, PluginCapability::Http(_)));
    let store = manifest
        .capabilities
        .iter()
        .any(|capability| matches!(capability, PluginCapability::Store(_)));
    let wasm = bytes(&options.path, limits::COMPONENT_BYTES)?;
    let pin = format!("{} {:?}", Digest::of(&wasm), manifest.capabilities);
    Ok((
        Plugin::load(engine, &wasm, PluginGrants { http, store })?,
        manifest,
        Digest::of(pin.as_bytes()),
    ))
}

/// A file's bytes, one more than `most` at most: enough to be refused by its size.
fn bytes(path: &Path, most: usize) -> Result<Vec<u8>, PluginError> {
    let failed = |source: io::Error| PluginError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}
