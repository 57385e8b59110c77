//! `config show`: every setting, its value, and where it was made. Secrets are not among the
//! values: their types write themselves redacted.

use serde::Serialize;
use serde_json::Value;

use super::{env, load::LoadedConfig};
use crate::local::REDACTED;

/// One setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// Its key, with dots.
    pub key: String,
    /// Its value, as JSON.
    pub value: Value,
    /// Where it was made: `default`, `FILE:LINE:COLUMN`, a variable or a flag.
    pub origin: String,
}

/// All settings that are made, by section.
pub fn settings(loaded: &LoadedConfig) -> Result<Vec<Setting>, serde_json::Error> {
    let mut found = Vec::new();
    for (section, value) in sections(loaded)? {
        walk(loaded, &mut vec![section.to_owned()], value, &mut found);
    }
    if loaded.token.is_some() {
        let origin = format!("environment variable `{}`", env::TOKEN);
        found.push(Setting { key: "token".to_owned(), value: REDACTED.into(), origin });
    }
    Ok(found)
}

/// The sections by name; a JSON object would put them in the order of the alphabet.
fn sections(loaded: &LoadedConfig) -> Result<[(&'static str, Value); 21], serde_json::Error> {
    let it = &loaded.config;
    Ok([
        ("node", serde_json::to_value(&it.node)?),
        ("gateway", serde_json::to_value(&it.gateway)?),
        ("cluster", serde_json::to_value(&it.cluster)?),
        ("session", serde_json::to_value(&it.session)?),
        ("telemetry", serde_json::to_value(&it.telemetry)?),
        ("tools", serde_json::to_value(&it.tools)?),
        ("egress", serde_json::to_value(&it.egress)?),
        ("workspace", serde_json::to_value(&it.workspace)?),
        ("plugins", serde_json::to_value(&it.plugins)?),
        ("mcp_servers", serde_json::to_value(&it.mcp_servers)?),
        ("ssh_hosts", serde_json::to_value(&it.ssh_hosts)?),
        ("hooks", serde_json::to_value(&it.hooks)?),
        ("sandbox", serde_json::to_value(&it.sandbox)?),
        ("providers", serde_json::to_value(&it.providers)?),
        ("models", serde_json::to_value(&it.models)?),
        ("prices", serde_json::to_value(&it.prices)?),
        ("embeddings", serde_json::to_value(&it.embeddings)?),
        ("memory", serde_json::to_value(&it.memory)?),
        ("budgets", serde_json::to_value(&it.budgets)?),
        ("agents", serde_json::to_value(&it.agents)?),
        ("bindings", serde_json::to_value(&it.bindings)?),
    ])
}

fn walk(loaded: &LoadedConfig, path: &mut Vec<String>, value: Value, found: &mut Vec<Setting>) {
    let mut inner = |key: String, value| {
        path.push(key);
        walk(loaded, path, value, found);
        path.pop();
    };
    match value {
        Value::Object(map) => map.into_iter().for_each(|(key, value)| inner(key, value)),
        Value::Array(list) if list.iter().any(Value::is_object) => {
            list.into_iter().enumerate().for_each(|(at, value)| inner(at.to_string(), value));
        }
        value => {
            let keys: Vec<&str> = path.iter().map(String::as_str).collect();
            let origin = loaded.origin_of(&keys).to_string();
            found.push(Setting { key: path.join("."), value, origin });
        }
    }
}
