//! What plugins keep: on the log of one process and on NATS, between plugins, nodes and restarts.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use bytes::Bytes;
use clawnode_cluster::{Bucket, Storage, SystemClock};
use clawnode_executors::plugin::{PluginOptions, PluginStores, Plugins, StoreFailure, StoreName};
use clawnode_local as local;
use clawnode_nats::{NatsOptions, Replicas, connect};
use clawnode_proto::{
    Position,
    limits::{PLUGIN_KEY_BYTES, PLUGIN_STORE_KEYS, PLUGIN_VALUE_BYTES},
    plugin::StoreKeys,
};
use clawnode_tests::nats::{NatsServer, ServerOptions};
use clawnode_tool::{Egress, EgressOptions, Executor, Toolbox};
use clawnode_wasm::text::PluginText;
use futures_util::future::join_all;
use serde_json::json;

use super::{Folder, rust, said};

/// Keeps the arguments under `k` in `notes`, and says what was there.
const SWAP: &str = "
    (call $get (i32.const 8192) (i32.const 5) (i32.const 8200) (i32.const 1) (i32.const 640))
    (call $set (i32.const 8192) (i32.const 5) (i32.const 8200) (i32.const 1)
      (local.get $args) (local.get $args_len) (i32.const 0) (i64.const 0) (i32.const 600))
    (if (result i32) (i32.or (i32.load8_u (i32.const 640)) (i32.load8_u (i32.const 600)))
      (then (call $err (i32.const 8208) (i32.const 6)))
      (else (if (result i32) (i32.load8_u (i32.const 648))
        (then (call $ok (i32.load (i32.const 656)) (i32.load (i32.const 660))))
        (else (call $ok (i32.const 8216) (i32.const 7))))))";
const WORDS: &str = r#"(data (i32.const 8192) "notes") (data (i32.const 8200) "k")
    (data (i32.const 8208) "failed") (data (i32.const 8216) "nothing")"#;

/// A plugin that keeps its arguments.
pub(crate) fn swapping() -> PluginText<'static> {
    PluginText { call: SWAP, more: WORDS, store: true, ..PluginText::default() }
}

pub(crate) fn on_disk(dir: &Path) -> Storage {
    let options = local::LocalOptions::new("cn".parse().unwrap(), Arc::new(SystemClock));
    local::open(dir, options).unwrap().0
}

async fn on_nats(url: String) -> Storage {
    let options =
        NatsOptions { partitions: Some(4), replicas: Replicas::One, ..NatsOptions::new(vec![url]) };
    connect(options).await.unwrap()
}

pub(crate) fn stores(bucket: &Arc<dyn Bucket>, plugin: &str) -> PluginStores {
    let granted = ["notes", "shared/board"].map(|name| name.parse::<StoreName>().unwrap());
    PluginStores::new(Arc::clone(bucket), plugin.parse().unwrap(), granted.into())
}

pub(crate) async fn text(stores: &PluginStores, store: &str, key: &str) -> Option<String> {
    let found = stores.get(store, key).await.unwrap()?;
    Some(String::from_utf8(found.value.to_vec()).unwrap())
}

/// A value is changed by a caller that knows its revision, and by no other.
async fn revisions(bucket: &Arc<dyn Bucket>) {
    let store = stores(bucket, "one");
    let put = |value: &str, expected| store.put("notes", "k", value.into(), expected);
    assert!(store.get("notes", "k").await.unwrap().is_none());
    let first = put("a", Some(0)).await.unwrap();
    assert!(matches!(put("b", Some(0)).await, Err(StoreFailure::Conflict)));
    let second = put("b", Some(first)).await.unwrap();
    assert!(matches!(put("c", Some(first)).await, Err(StoreFailure::Conflict)));
    assert!(matches!(store.delete("notes", "k", Some(first)).await, Err(StoreFailure::Conflict)));
    assert!(matches!(store.delete("notes", "k", Some(0)).await, Err(StoreFailure::Conflict)));
    let found = store.get("notes", "k").await.unwrap().unwrap();
    assert_eq!((&found.value[..], found.revision), (&b"b"[..], second));
    let third = put("c", None).await.unwrap();
    assert!(first < second && second < third && first > 0);
    store.put("notes", "a", Vec::new(), None).await.unwrap();
    assert_eq!(store.keys("notes").await.unwrap(), ["a", "k"]);
    store.delete("notes", "k", Some(third)).await.unwrap();
    store.delete("notes", "k", None).await.unwrap();
    assert!(store.get("notes", "k").await.unwrap().is_none());
    assert_eq!(store.keys("notes").await.unwrap(), ["a"]);
    assert!(matches!(put("d", Some(third)).await, Err(StoreFailure::Conflict)));
    assert!(put("d", Some(0)).await.unwrap() > third);
    store.delete("notes", "a", None).await.unwrap();
    let large: Vec<u8> = (0..PLUGIN_VALUE_BYTES).map(|at| at.to_le_bytes()[0]).collect();
    store.put("notes", "k", large.clone(), None).await.unwrap();
    assert_eq!(store.get("notes", "k").await.unwrap().unwrap().value, large);
    let refused = store.put("notes", "k", vec![0; PLUGIN_VALUE_BYTES + 1], None).await;
    assert!(matches!(refused, Err(StoreFailure::TooLarge(65_537))), "{refused:?}");
    store.delete("notes", "k", None).await.unwrap();
}

/// A plugin has its own stores and those that are shared, and no other.
async fn kept_apart(bucket: &Arc<dyn Bucket>) {
    let (one, two) = (stores(bucket, "one"), stores(bucket, "two"));
    bucket.put("agent.default", Position(0), Bytes::from_static(b"paused"), None).await.unwrap();
    one.put("notes", "k", "mine".into(), None).await.unwrap();
    one.put("shared/board", "k", "ours".into(), None).await.unwrap();
    assert_eq!(text(&two, "notes", "k").await, None);
    assert_eq!(two.keys("notes").await.unwrap(), [""; 0]);
    assert_eq!(text(&two, "shared/board", "k").await.as_deref(), Some("ours"));
    two.put("shared/board", "k", "theirs".into(), None).await.unwrap();
    two.delete("notes", "k", None).await.unwrap();
    assert_eq!(text(&one, "shared/board", "k").await.as_deref(), Some("theirs"));
    assert_eq!(text(&one, "notes", "k").await.as_deref(), Some("mine"));
    out_of_reach(bucket, &two).await;
    for (plugin, store) in [(&one, "notes"), (&one, "shared/board")] {
        plugin.delete(store, "k", None).await.unwrap();
    }
}

/// S-16: what a plugin says is no way to what is not its own.
async fn out_of_reach(bucket: &Arc<dyn Bucket>, two: &PluginStores) {
    let before = bucket.list("").await.unwrap();
    let long = "k".repeat(PLUGIN_KEY_BYTES + 1);
    let hostile = [
        "",
        ".",
        "..",
        "*",
        ">",
        "a.b",
        "k.",
        ".k",
        "../one/notes/k",
        "one.notes.k",
        "a b",
        "a\n",
        "a\0b",
        "é",
        "$JS.API",
        "/",
        "\\",
        "%2e",
        &long,
    ];
    for bad in hostile {
        let failures = [
            two.get("notes", bad).await.unwrap_err(),
            two.put("notes", bad, b"x".to_vec(), None).await.unwrap_err(),
            two.delete("notes", bad, None).await.unwrap_err(),
        ];
        for failure in failures {
            assert!(matches!(failure, StoreFailure::Key(_)), "{bad:?}: {failure:?}");
            assert!(failure.to_string().len() < 500);
        }
    }
    let names = [
        "board",
        "shared/notes",
        "shared/",
        "one.notes",
        "one/notes",
        "../one/notes",
        "=",
        "=.board",
        "Notes",
        " notes",
        "notes ",
        "agent",
        "*",
    ];
    for bad in hostile.iter().chain(&names) {
        let failures = [
            two.get(bad, "k").await.unwrap_err(),
            two.put(bad, "k", b"x".to_vec(), None).await.unwrap_err(),
            two.delete(bad, "k", None).await.unwrap_err(),
            two.keys(bad).await.unwrap_err(),
        ];
        for failure in failures {
            assert!(matches!(failure, StoreFailure::Denied(_)), "{bad:?}: {failure:?}");
        }
    }
    assert_eq!(bucket.list("").await.unwrap(), before, "nothing of it was written anywhere");
    let own = before.iter().filter(|(key, _)| key.starts_with("store."));
    assert!(own.count() >= 4, "two stores, each with its keys and a value: {before:?}");
}

/// A store takes so many keys and no more.
async fn bounded(bucket: &Arc<dyn Bucket>) {
    let store = stores(bucket, "full");
    let known =
        StoreKeys { keys: (1..PLUGIN_STORE_KEYS).map(|at| format!("{at:0>128}")).collect() };
    let bytes = Bytes::from(known.to_bytes().unwrap());
    bucket.put("store.full.notes", Position(0), bytes, None).await.unwrap();
    store.put("notes", "last", b"x".to_vec(), None).await.unwrap();
    let refused = store.put("notes", "more", b"x".to_vec(), None).await;
    assert!(matches!(refused, Err(StoreFailure::Full)), "{refused:?}");
    assert!(store.get("notes", "more").await.unwrap().is_none());
    store.put("notes", "last", b"y".to_vec(), None).await.unwrap();
    store.put("shared/board", "more", b"x".to_vec(), None).await.unwrap();
    // A key that a crash left without a value is one that can be removed.
    store.delete("notes", &format!("{:0>128}", 1), None).await.unwrap();
    store.put("notes", "more", b"x".to_vec(), None).await.unwrap();
    assert_eq!(store.keys("notes").await.unwrap().len(), PLUGIN_STORE_KEYS);
}

/// Many change the same keys at once: the list of keys is right whenever all are done.
async fn contended(bucket: &Arc<dyn Bucket>, rounds: usize) {
    const KEYS: [&str; 3] = ["a", "b", "c"];
    let one = |number: usize| {
        let store = stores(bucket, "busy");
        async move {
            let mut done = 0;
            for round in 0..rounds {
                let key = KEYS[(number + round) % KEYS.len()];
                // Everybody makes and removes each key in turn.
                if (number * 7 + round * 5).is_multiple_of(3) {
                    store.delete("notes", key, None).await.unwrap();
                } else {
                    store.put("notes", key, vec![1], None).await.unwrap();
                }
                // And counts, each once.
                loop {
                    let found = store.get("notes", "count").await.unwrap();
                    let at = found.as_ref().map_or(0, |entry| entry.revision);
                    let count = found.map_or(0, |entry| entry.value[0]);
                    let put = store.put("notes", "count", vec![count + 1], Some(at)).await;
                    if !matches!(put, Err(StoreFailure::Conflict)) {
                        put.unwrap();
                        break;
                    }
                }
                done += 1;
            }
            done
        }
    };
    let done: usize = join_all((0..6).map(one)).await.into_iter().sum();
    let store = stores(bucket, "busy");
    let mut present = BTreeSet::from(["count".to_owned()]);
    for key in KEYS {
        if store.get("notes", key).await.unwrap().is_some() {
            present.insert(key.to_owned());
        }
    }
    assert_eq!(store.keys("notes").await.unwrap().into_iter().collect::<BTreeSet<_>>(), present);
    assert_eq!(usize::from(store.get("notes", "count").await.unwrap().unwrap().value[0]), done);
}

async fn all(bucket: &Arc<dyn Bucket>) {
    revisions(bucket).await;
    kept_apart(bucket).await;
    bounded(bucket).await;
    contended(bucket, 12).await;
}

#[tokio::test]
async fn s_16_stores_on_disk_are_kept_apart_bounded_and_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let storage = on_disk(dir.path());
    all(&storage.bucket).await;
    stores(&storage.bucket, "one").put("notes", "k", "kept".into(), None).await.unwrap();
    storage.health.close().await;
    drop(storage);
    let again = stores(&on_disk(dir.path()).bucket, "one");
    assert_eq!(text(&again, "notes", "k").await.as_deref(), Some("kept"));
    assert_eq!(again.keys("notes").await.unwrap(), ["k"]);
}

#[tokio::test]
async fn s_16_stores_on_nats_are_kept_apart_bounded_and_there_after_a_restart() {
    let mut server = NatsServer::start(ServerOptions::default()).await.unwrap();
    let (one, two) = tokio::join!(on_nats(server.url()), on_nats(server.url()));
    all(&one.bucket).await;
    let revision = stores(&one.bucket, "one").put("notes", "k", "kept".into(), None).await.unwrap();
    // Another process sees it at once, and changes it.
    let other = stores(&two.bucket, "one");
    assert_eq!(text(&other, "notes", "k").await.as_deref(), Some("kept"));
    other.put("notes", "k", "changed".into(), Some(revision)).await.unwrap();
    assert_eq!(text(&stores(&one.bucket, "one"), "notes", "k").await.as_deref(), Some("changed"));
    for storage in [one, two] {
        storage.health.close().await;
    }
    server.restart().await.unwrap();
    let again = stores(&on_nats(server.url()).await.bucket, "one");
    assert_eq!(text(&again, "notes", "k").await.as_deref(), Some("changed"));
    assert_eq!(again.keys("notes").await.unwrap(), ["k"]);
}

pub(crate) async fn keeping(
    folder: &Folder,
    plugin: &PluginOptions,
    bucket: &Arc<dyn Bucket>,
) -> Toolbox {
    let egress = Egress::new(EgressOptions::default());
    let options = std::slice::from_ref(plugin);
    let plugins = Plugins::load(options, &egress, &folder.path().join("compiled")).await;
    let plugins = plugins.keeping(bucket);
    Toolbox::new(plugins.executors().map(|executor| executor as Arc<dyn Executor>)).unwrap()
}

/// Calls of one plugin in two processes: each call has an instance of its own, and all one store.
#[tokio::test]
async fn a_plugin_in_rust_keeps_what_its_other_calls_read_on_another_node() {
    let server = NatsServer::start(ServerOptions::default()).await.unwrap();
    let (here, there) = tokio::join!(on_nats(server.url()), on_nats(server.url()));
    let folder = Folder::new();
    let plugin = rust::built(&folder);
    let here = keeping(&folder, &plugin, &here.bucket).await;
    let there = keeping(&folder, &plugin, &there.bucket).await;
    let ask = |toolbox: &Toolbox, tool: &str, arguments: serde_json::Value| {
        let (toolbox, tool) = (toolbox.clone(), format!("echo__{tool}"));
        async move {
            let outcome = rust::call(&toolbox, &tool, arguments).await;
            (outcome.failure.is_none(), said(&outcome).to_owned())
        }
    };
    let note = |key: &str| json!({ "store": "notes", "key": key });
    let put = json!({ "store": "notes", "key": "city", "value": "Bergen" });
    let (is_well, revision) = ask(&here, "remember", put).await;
    assert!(is_well, "{revision}");
    assert_eq!(ask(&there, "recall", note("city")).await, (true, format!("{revision} Bergen")));
    let newer = json!({ "store": "notes", "key": "city", "value": "Oslo", "expected": 1 });
    assert_eq!(ask(&there, "remember", newer).await, (false, "StoreError::Conflict".to_owned()));
    let board = json!({ "store": "shared/board", "key": "k", "value": "v" });
    assert!(ask(&there, "remember", board).await.0);
    assert_eq!(ask(&here, "keys", note("")).await, (true, "city".to_owned()));
    assert_eq!(ask(&here, "keys", json!({ "store": "shared/board" })).await.1, "k");
    for (arguments, why) in [
        (json!({ "store": "diary", "key": "k" }), "StoreError::Denied"),
        (json!({ "store": "notes", "key": "a.b" }), "StoreError::Invalid"),
    ] {
        let (is_well, text) = ask(&here, "recall", arguments).await;
        assert!(!is_well && text.starts_with(why), "{text}");
    }
    assert_eq!(ask(&here, "forget", note("city")).await.1, "gone");
    assert_eq!(ask(&there, "recall", note("city")).await.1, "nothing");
    // One call asks so often and no more; the next begins again.
    for _ in 0..2 {
        let asked = ask(&here, "hoard", note("city")).await;
        assert_eq!(asked, (true, "256 StoreError::Exhausted".to_owned()));
    }
}

/// What was approved of a plugin is not of one that keeps more.
#[tokio::test]
async fn s_16_a_store_must_be_asked_for_and_granted() {
    let egress = Egress::new(EgressOptions::default());
    let pin = async |capabilities: &[&str], granted: &[&str]| {
        let folder = Folder::new();
        let mut plugin = folder.add("keeps", swapping(), capabilities);
        plugin.capabilities = granted.iter().map(|text| text.parse().unwrap()).collect();
        let toolbox = folder.toolbox(&[plugin], &egress).await;
        toolbox.specs().next().map(|spec| spec.pin)
    };
    assert_eq!(pin(&[], &["store:notes"]).await, None, "it does not ask");
    assert_eq!(pin(&["store:notes"], &[]).await, None, "it is not granted");
    assert_eq!(pin(&["store:notes"], &["store:shared/notes"]).await, None);
    assert_eq!(pin(&["store:shared/notes"], &["store:notes"]).await, None);
    let own = pin(&["store:notes"], &["store:notes", "store:more"]).await;
    let shared = pin(&["store:shared/notes"], &["store:shared/notes"]).await;
    assert!(own.is_some() && shared.is_some() && own != shared);
}
