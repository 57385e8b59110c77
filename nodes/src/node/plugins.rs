//! The plugins of this node, in a build that has the engine for them and in one that has not.

use std::{fs, sync::Arc, time::SystemTime};

use clawnode_cluster::Bucket;
use clawnode_executors::plugin::PluginName;
use clawnode_guard::kill_switch::SwitchGate;
use clawnode_proto::{AgentName, ToolName, provider::PLUGIN_PREFIX};
use clawnode_tool::{Executor, Providers};
use tracing::info;
#[cfg(not(feature = "wasm"))]
use tracing::warn;

use crate::config::Config;

/// The ending of a manifest, which is beside its component.
const MANIFEST: &str = "toml";
/// Where compiled plugins are kept, in the data directory.
#[cfg(feature = "wasm")]
const COMPILED: &str = "plugins";

/// The plugins of the configuration that were loaded. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct NodePlugins {
    #[cfg(feature = "wasm")]
    loaded: clawnode_executors::plugin::Plugins,
    /// Configured.
    all: Arc<[PluginName]>,
    /// Configured, and not loaded: why.
    absent: Arc<[(PluginName, String)]>,
}

impl NodePlugins {
    /// Loads the plugins of this configuration. One that cannot be used is left out with a word
    /// about it.
    #[cfg(feature = "wasm")]
    pub async fn load(config: &Config) -> Self {
        use clawnode_executors::plugin;
        use clawnode_tool::Egress;

        let egress = Egress::new(config.egress.clone());
        let compiled = config.node.data_dir.join(COMPILED);
        let loaded = plugin::Plugins::load(&config.plugins, &egress, &compiled).await;
        let absent = loaded.refused().into();
        Self { loaded, all: names(config), absent }
    }

    /// Without an engine no plugin can be used.
    #[cfg(not(feature = "wasm"))]
    #[expect(clippy::unused_async, reason = "with the engine it takes time")]
    pub async fn load(config: &Config) -> Self {
        let why = "this build has no engine for plugins: build it with `--features full`";
        for plugin in &config.plugins {
            warn!(plugin = %plugin.name, why, "this plugin is not loaded");
        }
        Self::unloaded(config, why)
    }

    /// None of them is loaded, for this reason.
    pub fn unloaded(config: &Config, why: &str) -> Self {
        let all = names(config);
        let absent = all.iter().map(|name| (name.clone(), why.to_owned())).collect();
        Self {
            #[cfg(feature = "wasm")]
            loaded: clawnode_executors::plugin::Plugins::default(),
            all,
            absent,
        }
    }

    /// Reports to `providers` which of them can be used.
    pub fn report_to(&self, providers: &Providers) {
        for name in &*self.all {
            let absent = self.absent.iter().find(|(plugin, _)| plugin == name);
            let health = absent.map_or(Ok(()), |(_, why)| Err(why.clone()));
            providers.looked(&format!("{PLUGIN_PREFIX}{name}"), &health);
        }
    }

    /// The same, whose requests need a permit of `switch_gate`.
    #[cfg(feature = "wasm")]
    #[must_use]
    pub fn behind(&self, switch_gate: &SwitchGate) -> Self {
        Self { loaded: self.loaded.behind(switch_gate), ..self.clone() }
    }

    /// The same: there are none that make requests.
    #[cfg(not(feature = "wasm"))]
    #[must_use]
    pub fn behind(&self, _door: &SwitchGate) -> Self {
        self.clone()
    }

    /// The same, whose stores are in `bucket`.
    #[cfg(feature = "wasm")]
    #[must_use]
    pub fn keeping(&self, bucket: &Arc<dyn Bucket>) -> Self {
        Self { loaded: self.loaded.keeping(bucket), ..self.clone() }
    }

    /// The same: there are none that keep anything.
    #[cfg(not(feature = "wasm"))]
    #[must_use]
    pub fn keeping(&self, _bucket: &Arc<dyn Bucket>) -> Self {
        self.clone()
    }

    /// The executors of their tools.
    pub fn executors(&self) -> Vec<Arc<dyn Executor>> {
        #[cfg(feature = "wasm")]
        let executors =
            self.loaded.executors().map(|executor| executor as Arc<dyn Executor>).collect();
        #[cfg(not(feature = "wasm"))]
        let executors = Vec::new();
        executors
    }

    /// Whether a tool of this name is one of a plugin, here or not.
    pub fn owns(&self, tool: &ToolName) -> bool {
        self.all.iter().any(|plugin| plugin.own(tool).is_some())
    }

    /// The tools of an agent without those of plugins that are not here.
    pub fn present(&self, agent: &AgentName, names: &[ToolName]) -> Vec<ToolName> {
        let is_here = |name: &&ToolName| {
            let absent = self.absent.iter().find(|(plugin, _)| plugin.own(name).is_some());
            if let Some((plugin, _)) = absent {
                info!(%agent, tool = %name, %plugin, "an agent does not get a tool of a plugin");
            }
            absent.is_none()
        };
        names.iter().filter(is_here).cloned().collect()
    }

    /// Removes compiled code that no plugin uses any more; the data directory must be this node's.
    pub fn sweep(&self) {
        #[cfg(feature = "wasm")]
        self.loaded.sweep();
    }
}

/// When the files of the configured plugins were changed: components, and their manifests beside them.
pub fn changed_at(config: &Config) -> Vec<Option<SystemTime>> {
    let files = config.plugins.iter().flat_map(|plugin| {
        let component = plugin.path.clone();
        [component.with_extension(MANIFEST), component]
    });
    files.map(|path| fs::metadata(path).and_then(|about| about.modified()).ok()).collect()
}

fn names(config: &Config) -> Arc<[PluginName]> {
    config.plugins.iter().map(|plugin| plugin.name.clone()).collect()
}
