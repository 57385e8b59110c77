//! Plugins as WebAssembly components: compiled once, bounded in everything, a fresh instance for
//! each call.
//!
//! The world they live in is [`wit/plugin.wit`](../wit/plugin.wit), and nothing is beside it: no
//! WASI, no files, no sockets, no environment, no clock. What a plugin imports is what its host
//! grants it, or it does not load.
//!
//! - [`WasmEngine`] compiles and holds the room that instances live in ([`limits`] has every bound);
//! - [`Plugin`] is one component, checked and tried; [`Plugin::call`] makes an instance, calls it
//!   and forgets it;
//! - [`PluginHostCalls`] is what a plugin can ask for, created for each call;
//! - [`Cache`] keeps compiled code on disk, and believes only what it wrote itself.
//!
//! A call blocks its thread: it belongs on a thread that may be blocked. It ends at its deadline or
//! when its host says so, whatever the plugin does, at most [`limits::TICK`] later.
//!
//! Without the feature `engine` the crate is empty: the engine takes minutes to compile.
//!
//! Not here: manifests, what configuration grants, names of tools and the access that the host gives
//! (`clawnode_executors::plugin`).

#[cfg(feature = "engine")]
mod bindings;
#[cfg(feature = "engine")]
mod cache;
#[cfg(feature = "engine")]
mod call;
#[cfg(feature = "engine")]
mod engine;
#[cfg(feature = "engine")]
mod error;
#[cfg(feature = "engine")]
mod host;
#[cfg(feature = "engine")]
pub mod limits;
#[cfg(feature = "engine")]
mod planted;
#[cfg(feature = "engine")]
mod plugin;
#[cfg(feature = "wasm")]
pub mod text;
#[cfg(feature = "engine")]
mod ticker;

#[cfg(feature = "engine")]
pub use crate::{
    bindings::clawnode::plugin::{
        http::{Method, Request, Response},
        store::{Entry, StoreError},
        types::{Call, EffectClass, Risk, ToolSpec},
    },
    cache::Cache,
    engine::WasmEngine,
    error::{CallError, LoadError},
    host::{PluginHostCalls, StoreAnswer, StoreAsk, StoreCall},
    plugin::{Plugin, PluginGrants},
};
#[cfg(all(feature = "engine", feature = "test-util"))]
pub use planted::WasmBug;
