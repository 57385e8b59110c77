//! What a plugin reaches: the hosts that it was granted, and those alone.

use std::sync::Arc;

use axum::{Router, response::Redirect, routing::get};
use clawnode_tool::{
    Egress, EgressOptions, Toolbox,
    egress::{EgressBug, SystemResolver},
};
use clawnode_wasm::text::PluginText;

use super::{Folder, call, said};

/// Fetches the URL at 8192, and answers with the body or the error.
const FETCH: &str = "
    (call $fetch (i32.const 0) (i32.const 8192) (global.get $url_len) (i32.const 0) (i32.const 0)
      (i32.const 600))
    (if (result i32) (i32.load8_u (i32.const 600))
      (then (call $err (i32.load (i32.const 604)) (i32.load (i32.const 608))))
      (else (call $ok (i32.load (i32.const 616)) (i32.load (i32.const 620)))))";

/// A server on this machine, by its port.
pub(crate) async fn serve() -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let away = move || async move { Redirect::temporary(&format!("http://localhost:{port}/")) };
    let near = || async { Redirect::temporary("/") };
    let router = Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/away", get(away))
        .route("/near", get(near));
    tokio::spawn(async move { axum::serve(listener, router).await });
    port
}

pub(crate) fn options(port: u16) -> EgressOptions {
    let text = format!(r#"{{"ports":[{port}],"allow_private":["127.0.0.0/8","::1/128"]}}"#);
    serde_json::from_str(&text).unwrap()
}

/// A plugin that may reach 127.0.0.1 and fetches this URL.
async fn fetching(folder: &Folder, url: &str, egress: &Egress) -> Toolbox {
    let more = format!(
        "(data (i32.const 8192) \"{url}\") (global $url_len i32 (i32.const {}))",
        url.len()
    );
    let text = PluginText { call: FETCH, more: &more, http: true, ..PluginText::default() };
    let plugin = folder.add("web", text, &["http:127.0.0.1"]);
    folder.toolbox(&[plugin], egress).await
}

#[tokio::test]
async fn s_16_a_plugin_reaches_what_it_was_granted_and_no_more() {
    let port = serve().await;
    let sound = Egress::new(options(port));
    for (url, told) in [
        ("http://127.0.0.1:PORT/", "hello"),
        ("http://127.0.0.1:PORT/near", "hello"),
        ("http://0x7f.1:PORT/", "hello"),
        ("http://localhost:PORT/", "`localhost` is not among the hosts that were granted"),
        ("http://127.0.0.1:PORT/away", "`localhost` is not among the hosts that were granted"),
        ("http://127.0.0.2:PORT/", "`127.0.0.2` is not among the hosts that were granted"),
        ("http://127.0.0.1@localhost:PORT/", "it has a user or a password in it"),
        ("http://127.0.0.1:22/", "port 22 is not allowed"),
        ("file:///etc/passwd", "it is not `http://` or `https://`"),
    ] {
        let url = url.replace("PORT", &port.to_string());
        let folder = Folder::new();
        let toolbox = fetching(&folder, &url, &sound).await;
        let outcome = call(&toolbox, "web__run").await;
        assert!(said(&outcome).contains(told), "{url}: {outcome:?}");
        assert_eq!(outcome.failure.is_none(), told == "hello", "{url}: {outcome:?}");
    }
}

/// What an agent may reach is narrower than what a plugin was granted: both hold.
#[tokio::test]
async fn a_plugin_is_no_way_round_what_its_agent_may_reach() {
    let port = serve().await;
    let mut options = options(port);
    options.hosts.insert("main".parse().unwrap(), Vec::new());
    let folder = Folder::new();
    let url = format!("http://127.0.0.1:{port}/");
    let toolbox = fetching(&folder, &url, &Egress::new(options)).await;
    let outcome = call(&toolbox, "web__run").await;
    assert!(
        said(&outcome).contains("not among the hosts that this agent may reach"),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn s_16_a_grant_that_nobody_looks_at_is_found() {
    let port = serve().await;
    let planted = Egress::with_bug(options(port), Arc::new(SystemResolver), EgressBug::NoGrants);
    for path in ["http://localhost:PORT/", "http://127.0.0.1:PORT/away"] {
        let folder = Folder::new();
        let url = path.replace("PORT", &port.to_string());
        let toolbox = fetching(&folder, &url, &planted).await;
        let outcome = call(&toolbox, "web__run").await;
        assert_eq!(said(&outcome), "hello", "the planted bug is found: {outcome:?}");
    }
}
