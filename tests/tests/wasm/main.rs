//! Plugins from the outside: as executors, and as a node has them.
#![expect(clippy::unwrap_used, reason = "helpers of tests: their panic is the test's failure")]

mod calls;
mod crossed;
mod http;
mod languages;
mod node;
mod rust;
mod stores;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clawnode_executors::plugin::{PluginOptions, Plugins};
use clawnode_proto::{CallId, tool::ToolOutcome};
use clawnode_tool::{Egress, Executor, ToolRun, Toolbox};
use clawnode_wasm::text::PluginText;
use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Where `cargo xtest` says that it has built plugins.
const PLUGINS: &str = "CLAWNODE_TEST_PLUGINS";

fn plugins() -> PathBuf {
    let hint = |error| format!("`{PLUGINS}`: {error}; run `cargo xtest --wasm`");
    std::env::var(PLUGINS).map_err(hint).unwrap().into()
}

/// A folder of plugins.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a plugin that does this, with a manifest that asks for these capabilities.
    fn add(&self, name: &str, text: PluginText<'_>, capabilities: &[&str]) -> PluginOptions {
        self.file(&format!("{name}.wasm"), &text.bytes().unwrap());
        let manifest =
            format!("name = \"{name}\"\nversion = \"1.0\"\ncapabilities = {capabilities:?}\n");
        let path = self.file(&format!("{name}.toml"), manifest.as_bytes());
        let mut options = PluginOptions::new(name.parse().unwrap(), path.with_extension("wasm"));
        options.capabilities = capabilities.iter().map(|text| text.parse().unwrap()).collect();
        options
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// A toolbox with these plugins.
    async fn toolbox(&self, options: &[PluginOptions], egress: &Egress) -> Toolbox {
        let plugins = Plugins::load(options, egress, &self.path().join("compiled")).await;
        Toolbox::new(plugins.executors().map(|executor| executor as std::sync::Arc<dyn Executor>))
            .unwrap()
    }
}

fn run(tool: &str) -> ToolRun {
    ToolRun {
        call: CallId::from_u128(7),
        agent: "main".parse().unwrap(),
        tool: tool.parse().unwrap(),
        arguments: json!({ "a": 1 }).as_object().cloned().unwrap(),
        idempotency_key: "job_7".to_owned(),
        timeout: Duration::from_mins(1),
        limit: None,
        sink: clawnode_tool::RunSink::default(),
        shown: clawnode_tool::ShownMedia::default(),
    }
}

async fn call(toolbox: &Toolbox, tool: &str) -> ToolOutcome {
    toolbox.execute(run(tool), CancellationToken::new()).await
}

fn said(outcome: &ToolOutcome) -> &str {
    outcome.content.inline().unwrap()
}
