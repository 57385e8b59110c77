//! A plugin in the configuration: what a person may set, and why it is what it is by default.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use clawnode_proto::tool::Risk;
use clawnode_proto::units::duration;
use serde::{Deserialize, Serialize};

use super::{PluginCapability, PluginName};

/// A plugin, `[[plugins]]` in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PluginOptions {
    /// What it is called here, and in its manifest. Its tools are `NAME__TOOL`.
    pub name: PluginName,
    /// The component. Its manifest is beside it, with the ending `.toml`.
    pub path: PathBuf,
    /// What it is granted: `http:HOST`, `store:NAME`. Default: nothing. A plugin that asks for more
    /// does not load; one that asks for less gets less.
    #[serde(default)]
    pub capabilities: Vec<PluginCapability>,
    /// The least risk of its tools, even if they declare less. Default: as they declare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
    /// Whether none of its calls is ever run again by itself, even if its tools allow that. Default
    /// false.
    #[serde(default)]
    pub once: bool,
    /// The probe of each tool that must not run twice, but whose effect can be found. Keys and values are
    /// names of tools of this plugin. A probe gets the arguments and the idempotency key of the call,
    /// and answers a JSON object: `happened` (a boolean) and, if it happened, the text `result`.
    /// Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub probes: BTreeMap<String, String>,
    /// How long one call may take. Default 30 s: a model waits for it.
    #[serde(default = "timeout", with = "duration")]
    pub timeout: Duration,
}

const fn timeout() -> Duration {
    Duration::from_secs(30)
}

impl PluginOptions {
    /// The defaults, for the component at `path`.
    pub const fn new(name: PluginName, path: PathBuf) -> Self {
        Self {
            name,
            path,
            capabilities: Vec::new(),
            risk: None,
            once: false,
            probes: BTreeMap::new(),
            timeout: timeout(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_and_the_path_must_be_said() {
        let text = r#"{"name":"echo","path":"/srv/echo.wasm"}"#;
        let options: PluginOptions = serde_json::from_str(text).unwrap();
        assert_eq!(options, PluginOptions::new("echo".parse().unwrap(), "/srv/echo.wasm".into()));
        let text = r#"{"name":"echo","path":"a","capabilities":["http:example.org"],
            "risk":"WRITE","once":true,"probes":{"post":"is_posted"},"timeout":"5s"}"#;
        let options: PluginOptions = serde_json::from_str(text).unwrap();
        assert_eq!(
            (options.risk, options.once, options.timeout),
            (Some(Risk::Write), true, Duration::from_secs(5))
        );
        assert_eq!(options.probes.get("post").map(String::as_str), Some("is_posted"));
        let again = serde_json::to_string(&options).unwrap();
        assert_eq!(serde_json::from_str::<PluginOptions>(&again).unwrap(), options);
        for bad in [
            r#"{"name":"echo"}"#,
            r#"{"name":"a__b","path":"a"}"#,
            r#"{"name":"echo","path":"a","capabilities":["env:HOME"]}"#,
            r#"{"name":"echo","path":"a","capability":[]}"#,
        ] {
            assert!(serde_json::from_str::<PluginOptions>(bad).is_err(), "{bad}");
        }
    }
}
