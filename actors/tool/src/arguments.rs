//! A call's arguments as what a tool takes.

use clawnode_proto::tool::{ToolFailure, ToolOutcome};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::ToolRun;

/// The arguments as `T`. They were judged against the schema before; what is still wrong here
/// (a schema is a weaker language than a type) is the model's to mend as well.
pub fn read<T: DeserializeOwned>(run: &mut ToolRun) -> Result<T, ToolOutcome> {
    let arguments = Value::Object(std::mem::take(&mut run.arguments));
    serde_json::from_value(arguments).map_err(|error| {
        let why = format!("`{}` does not accept these arguments: {error}", run.tool);
        ToolOutcome::failed(ToolFailure::Invalid, why)
    })
}
