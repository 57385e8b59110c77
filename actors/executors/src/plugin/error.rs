//! Why a plugin is not loaded.

use std::{io, path::PathBuf};

use clawnode_tool::schema::SchemaError;
use clawnode_wasm::LoadError;

use super::{ManifestError, PluginCapability, PluginName};

/// Why a plugin is not loaded.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// There is no such file.
    #[error("there is no file `{}`", .0.display())]
    Missing(PathBuf),
    /// The file cannot be read.
    #[error("`{}` cannot be read", .path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The manifest is none.
    #[error("the manifest `{}` is malformed", .path.display())]
    Manifest { path: PathBuf, source: ManifestError },
    /// The manifest is of another plugin.
    #[error("its manifest is that of `{0}`")]
    Name(PluginName),
    /// It asks for what it is not granted.
    #[error(
        "its manifest asks for `{0}`, which is not granted: add it to `capabilities` of this \
         plugin, if that is meant"
    )]
    Ungranted(PluginCapability),
    /// The component cannot be used.
    #[error("the component cannot be used")]
    Load(#[from] LoadError),
    /// What loads it broke.
    #[error("the plugin engine crashed while it compiled the component")]
    Broke,
    /// A tool's name, with the plugin's before it, is no name.
    #[error(
        "it has a tool `{0}`, which is not a valid name: `PLUGIN__TOOL` is 1 to 64 of a-z, A-Z, \
         0-9, `-`, `_`"
    )]
    ToolName(String),
    /// Two tools of one name.
    #[error("it has two tools `{0}`")]
    Twice(String),
    /// A probe in the configuration that cannot be used.
    #[error("`probes.{tool}` of this plugin: {why}")]
    Probe {
        /// The tool that it belongs to.
        tool: String,
        /// Why it cannot be used, and what to do.
        why: &'static str,
    },
    /// A tool that no agent can be given.
    #[error("its tool `{tool}` cannot be used")]
    Tool { tool: String, source: SchemaError },
}
