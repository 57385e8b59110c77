//! Plugins: tools that others wrote, as WebAssembly components.
//!
//! A plugin is a file with a manifest beside it (`echo.wasm`, `echo.toml`). The manifest asks for
//! capabilities, the configuration grants them ([`PluginOptions`]), and what is asked for beyond
//! that is a plugin that does not load. What a plugin can do at all is the published world of the
//! crate `clawnode-wasm`, which has the engine and every bound of it.
//!
//! With the feature `wasm`, `Plugins` loads them and `PluginExecutor` runs their calls, each in an
//! instance of its own. Its tools are called `plugin__tool` and need the capability
//! `wasm.PLUGIN`: a node has it that has loaded the plugin.
//!
//! What a plugin keeps between its calls is in its stores, of which the cluster's bucket has the values
//! ([`PluginStores`]).
//!
//! Not here: adapters of channels; there are none yet.

mod capability;
#[cfg(feature = "wasm")]
mod error;
#[cfg(feature = "wasm")]
mod executor;
#[cfg(feature = "wasm")]
mod host;
#[cfg(feature = "wasm")]
mod load;
mod manifest;
mod name;
mod options;
mod store;

pub use capability::{ParsePluginCapabilityError, PluginCapability};
#[cfg(feature = "wasm")]
pub use error::PluginError;
#[cfg(feature = "wasm")]
pub use executor::PluginExecutor;
#[cfg(feature = "wasm")]
pub use load::Plugins;
pub use manifest::{Manifest, ManifestError};
pub use name::{ParsePluginNameError, PluginName};
pub use options::PluginOptions;
pub use store::{ParseStoreNameError, PluginStores, StoreFailure, StoreName, StoredValue};
