//! A plugin as its author writes it: `tests/plugins/echo`, in Rust with `wit-bindgen`, built by
//! `cargo xtest` to a core module and made a component of here.

use std::path::PathBuf;

use clawnode_executors::plugin::PluginOptions;
use clawnode_proto::tool::{ToolFailure, ToolOutcome};
use clawnode_tool::{Egress, Toolbox};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Folder, http, plugins, run, said};

/// The core module among the plugins that `cargo xtest` builds.
const MODULE: &str = "wasm32-unknown-unknown/release/echo.wasm";

/// A toolbox with the plugin, which may reach this machine.
async fn toolbox(folder: &Folder, port: u16) -> Toolbox {
    let options = built(folder);
    folder.toolbox(&[options], &Egress::new(http::options(port))).await
}

/// The plugin, with all that it asks for.
pub(crate) fn built(folder: &Folder) -> PluginOptions {
    let module = std::fs::read(plugins().join(MODULE)).unwrap();
    let encoder = wit_component::ComponentEncoder::default().validate(true).module(&module);
    let component = encoder.and_then(|mut encoder| encoder.encode()).unwrap();
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("plugins/echo/echo.toml");
    folder.file("echo.toml", &std::fs::read(source).unwrap());
    let path = folder.file("echo.wasm", &component);
    let mut options = PluginOptions::new("echo".parse().unwrap(), path);
    let granted = ["http:127.0.0.1", "store:notes", "store:shared/board"];
    options.capabilities = granted.map(|text| text.parse().unwrap()).into();
    options
}

pub(crate) async fn call(toolbox: &Toolbox, tool: &str, arguments: Value) -> ToolOutcome {
    let mut run = run(tool);
    run.arguments = arguments.as_object().cloned().unwrap();
    toolbox.execute(run, CancellationToken::new()).await
}

#[tokio::test]
async fn a_plugin_in_rust_does_what_its_author_wrote() {
    let port = http::serve().await;
    let folder = Folder::new();
    let toolbox = toolbox(&folder, port).await;
    let names: Vec<&str> = toolbox.specs().map(|spec| spec.name.as_str()).collect();
    let wanted = ["count", "eat", "fetch", "forget", "hoard", "keys", "panic", "recall"];
    let wanted = wanted.iter().chain(&["remember", "say"]).map(|tool| format!("echo__{tool}"));
    assert_eq!(names, wanted.collect::<Vec<_>>());
    let outcome = call(&toolbox, "echo__say", json!({ "text": "größer" })).await;
    assert_eq!((said(&outcome), outcome.failure), ("größer", None));
    // Each call has an instance of its own.
    for _ in 0..3 {
        assert_eq!(said(&call(&toolbox, "echo__count", json!({})).await), "1");
    }
    let here = json!({ "url": format!("http://127.0.0.1:{port}/") });
    assert_eq!(said(&call(&toolbox, "echo__fetch", here).await), "200 hello");
    let there = json!({ "url": format!("http://localhost:{port}/") });
    let outcome = call(&toolbox, "echo__fetch", there).await;
    assert_eq!(outcome.failure, Some(ToolFailure::Failed));
    assert!(said(&outcome).contains("not among the hosts that were granted"), "{outcome:?}");
    let outcome = call(&toolbox, "echo__panic", json!({})).await;
    assert_eq!(outcome.failure, Some(ToolFailure::Crashed));
    let outcome = call(&toolbox, "echo__eat", json!({})).await;
    assert_eq!(outcome.failure, Some(ToolFailure::Crashed));
    assert!(said(&outcome).contains("refused more memory"), "{outcome:?}");
    assert_eq!(said(&call(&toolbox, "echo__count", json!({})).await), "1");
}
