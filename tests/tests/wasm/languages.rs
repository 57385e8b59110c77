//! Plugins in other languages than Rust (`tests/plugins`), as the tools of those languages make them:
//! with an interpreter in each.

use std::{path::PathBuf, sync::Arc};

use clawnode_executors::plugin::{PluginOptions, Plugins};
use clawnode_proto::tool::ToolFailure;
use clawnode_tool::{Egress, Executor, Toolbox};
use serde_json::json;

use super::{Folder, http, plugins, rust::call, said, stores::on_disk};

async fn does_what_its_author_wrote(language: &str) {
    let port = http::serve().await;
    let folder = Folder::new();
    let built = std::fs::read(plugins().join(format!("{language}.wasm"))).unwrap();
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let manifest = manifest.join(format!("plugins/{language}/plugin.toml"));
    folder.file(&format!("{language}.toml"), &std::fs::read(manifest).unwrap());
    let path = folder.file(&format!("{language}.wasm"), &built);
    let mut options = PluginOptions::new(language.parse().unwrap(), path);
    options.capabilities =
        ["http:127.0.0.1", "store:notes"].map(|text| text.parse().unwrap()).into();
    let egress = Egress::new(http::options(port));
    let compiled = folder.path().join("compiled");
    let storage = on_disk(&folder.path().join("data"));
    let loaded = Plugins::load(&[options], &egress, &compiled).await.keeping(&storage.bucket);
    let toolbox =
        Toolbox::new(loaded.executors().map(|executor| executor as Arc<dyn Executor>)).unwrap();

    let tool = |name: &str| format!("{language}__{name}");
    let does = async |name: &str, arguments| {
        let outcome = call(&toolbox, &tool(name), arguments).await;
        assert_eq!(outcome.failure, None, "{outcome:?}");
        said(&outcome).to_owned()
    };
    assert_eq!(does("say", json!({ "text": "größer" })).await, "größer");
    for _ in 0..3 {
        assert_eq!(does("count", json!({})).await, "1", "each call has an instance of its own");
    }
    let here = json!({ "url": format!("http://127.0.0.1:{port}/") });
    assert_eq!(does("fetch", here).await, "200 hello");
    assert_eq!(does("keep", json!({ "text": "one" })).await, "nothing");
    assert_eq!(does("keep", json!({ "text": "two" })).await, "one");
    let refused = call(&toolbox, &tool("refuse"), json!({})).await;
    assert_eq!((refused.failure, said(&refused)), (Some(ToolFailure::Failed), "not today"));
    let broken = call(&toolbox, &tool("panic"), json!({})).await;
    assert_eq!(broken.failure, Some(ToolFailure::Crashed), "{broken:?}");
    assert_eq!(does("count", json!({})).await, "1", "and the next call knows nothing of it");
}

#[tokio::test]
#[ignore = "soak: its interpreter is compiled for half a minute"]
async fn a_plugin_in_python_does_what_its_author_wrote_soak() {
    does_what_its_author_wrote("python").await;
}

#[tokio::test]
#[ignore = "soak: its interpreter is compiled for half a minute"]
async fn a_plugin_in_javascript_does_what_its_author_wrote_soak() {
    does_what_its_author_wrote("javascript").await;
}
