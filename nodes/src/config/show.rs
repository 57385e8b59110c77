//! `config show`: every setting, its value, and where it was made. Secrets are not among the
//! values: their types write themselves redacted.

use serde::Serialize;
use serde_json::Value;

use super::{env, load::LoadedConfig};
use crate::secret::REDACTED;

/// One setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShownSetting {
    /// Its key, with dots.
    pub key: String,
    /// Its value, as JSON.
    pub value: Value,
    /// Where it was made: `default`, `FILE:LINE:COLUMN`, a variable or a flag.
    pub origin: String,
}

/// All settings that are made, by section.
pub fn settings(loaded: &LoadedConfig) -> Result<Vec<ShownSetting>, serde_json::Error> {
    let mut found = Vec::new();
    for (section, value) in sections(loaded)? {
        walk(loaded, &mut vec![section.to_owned()], value, &mut found);
    }
    if loaded.token.is_some() {
        let origin = format!("environment variable `{}`", env::TOKEN);
        found.push(ShownSetting { key: "token".to_owned(), value: REDACTED.into(), origin });
    }
    Ok(found)
}

/// The sections by name; a JSON object would put them in the order of the alphabet.
fn sections(loaded: &LoadedConfig) -> Result<[(&'static str, Value); 21], serde_json::Error> {
    let config = &loaded.config;
    Ok([
        ("node", serde_json::to_value(&config.node)?),
        ("gateway", serde_json::to_value(&config.gateway)?),
        ("cluster", serde_json::to_value(&config.cluster)?),
        ("session", serde_json::to_value(&config.session)?),
        ("telemetry", serde_json::to_value(&config.telemetry)?),
        ("tools", serde_json::to_value(&config.tools)?),
        ("egress", serde_json::to_value(&config.egress)?),
        ("workspace", serde_json::to_value(&config.workspace)?),
        ("plugins", serde_json::to_value(&config.plugins)?),
        ("mcp_servers", serde_json::to_value(&config.mcp_servers)?),
        ("ssh_hosts", serde_json::to_value(&config.ssh_hosts)?),
        ("hooks", serde_json::to_value(&config.hooks)?),
        ("sandbox", serde_json::to_value(&config.sandbox)?),
        ("providers", serde_json::to_value(&config.providers)?),
        ("models", serde_json::to_value(&config.models)?),
        ("prices", serde_json::to_value(&config.prices)?),
        ("embeddings", serde_json::to_value(&config.embeddings)?),
        ("memory", serde_json::to_value(&config.memory)?),
        ("budgets", serde_json::to_value(&config.budgets)?),
        ("agents", serde_json::to_value(&config.agents)?),
        ("bindings", serde_json::to_value(&config.bindings)?),
    ])
}

fn walk(
    loaded: &LoadedConfig,
    path: &mut Vec<String>,
    value: Value,
    found: &mut Vec<ShownSetting>,
) {
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
            found.push(ShownSetting { key: path.join("."), value, origin });
        }
    }
}
