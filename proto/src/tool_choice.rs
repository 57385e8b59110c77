//! Whether a model must call tools.

use serde::{Deserialize, Serialize};

use crate::ToolName;

/// Whether the model must, may or must not call tools. Absent: it may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToolChoice {
    /// It must not.
    None,
    /// It must call one. Once it has, it may.
    Required,
    /// It must call this one. Once it has, it may call any.
    Tool {
        /// The tool.
        name: ToolName,
    },
}
