//! Plugins of a node: a turn with one, and a node that has bad ones.

use clawnode_tests::{
    model::{Act, ModelServer, Script, Setup},
    process::{Home, Message, Node, ProcessError, TestBackend},
};
use clawnode_wasm::text::PluginText;
use serde_json::{Value, json};

use super::{Folder, stores};

type Outcome = Result<(), ProcessError>;

async fn scene(script: Script, config: &str) -> (ModelServer, Home) {
    let setup = Setup { api_key: Some(Home::key().to_owned()), ..Setup::from(script) };
    let server = ModelServer::start(setup).await.unwrap();
    let home = Home::new(TestBackend::Local).unwrap().anthropic(&server);
    let settings = home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    std::fs::write(settings.join("config.toml"), config).unwrap();
    (server, home)
}

/// What a turn's tools said, with how they failed.
async fn results(node: &Node) -> Result<Vec<(String, Value, Value)>, ProcessError> {
    results_of(node, "go").await
}

/// The same, of a turn with this message.
async fn results_of(
    node: &Node,
    message: &str,
) -> Result<Vec<(String, Value, Value)>, ProcessError> {
    let mut turn = node.client()?.send(&Message::new("ada", message)).await?;
    let mut seen = Vec::new();
    loop {
        let frame = turn.next().await?;
        if frame.event == "tool_result" {
            let field = |key: &str| frame.data[key].clone();
            let name = field("name").as_str().unwrap_or_default().to_owned();
            seen.push((name, field("content"), field("failure")));
        }
        if frame.event == "done" {
            return Ok(seen);
        }
    }
}

/// The plugins that cannot be used are left out, each with its reason in the log; the node starts,
/// and a turn calls the one that can.
#[tokio::test]
async fn a_turn_calls_a_plugin_of_a_node_that_has_bad_ones_too() -> Outcome {
    let folder = Folder::new();
    let schema = r#"{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}"#;
    folder.add("echo", PluginText { schema, ..PluginText::default() }, &[]);
    folder.add("greedy", PluginText::default(), &["http:example.net"]);
    folder.add("secret", PluginText { http: true, ..PluginText::default() }, &[]);
    folder.add("hoards", stores::swapping(), &["store:notes"]);
    folder.add("hides", stores::swapping(), &[]);
    folder.add("odd", PluginText { schema: "{", ..PluginText::default() }, &[]);
    folder.add("renamed", PluginText::default(), &[]);
    folder.file("renamed.toml", b"name = \"echo\"\nversion = \"1\"\n");
    folder.add("unknown", PluginText::default(), &[]);
    folder.file("unknown.toml", b"name = \"unknown\"\nversion = \"1\"\ncapabilities = [\"env\"]\n");
    folder.add("noise", PluginText::default(), &[]);
    folder.file("noise.wasm", b"\0asm\x01\0\0\0 and no more");
    folder.add("bare", PluginText::default(), &[]);
    std::fs::remove_file(folder.path().join("bare.toml")).unwrap();
    let names = [
        "echo", "greedy", "secret", "hoards", "hides", "odd", "renamed", "unknown", "noise",
        "bare", "gone",
    ];
    let mut config =
        "[agents.default]\ntools = [\"echo__run\", \"gone__run\", \"greedy__run\"]\n".to_owned();
    for name in names {
        let path = folder.path().join(format!("{name}.wasm"));
        let plugin = format!("[[plugins]]\nname = \"{name}\"\npath = \"{}\"\n", path.display());
        config.push_str(&plugin);
        config += "capabilities = [\"http:example.org\"]\n";
    }
    let calls = Act::tools([("echo__run", json!({ "x": 7 })), ("echo__run", json!({ "x": "7" }))]);
    let (server, home) = scene(Script::queue([calls, Act::say("done")]), &config).await;
    let node = Node::up(&home).await?;
    let seen = results(&node).await?;
    let echo = "echo__run".to_owned();
    assert_eq!(seen[0], (echo.clone(), r#"{"x":7}"#.into(), Value::Null), "{seen:?}");
    // The plugin's own schema is held, and the plugin never sees what does not fit.
    assert_eq!((&seen[1].0, &seen[1].2), (&echo, &"invalid".into()), "{seen:?}");
    assert_eq!(server.count(), 2);
    node.stop().await?;
    let log = std::fs::read_to_string(home.log()).unwrap();
    let about = |name: &str| -> String {
        let lines = log.lines().filter(|line| {
            line.contains("::plugin::load") && line.contains(&format!("\"plugin\":\"{name}\""))
        });
        lines.collect()
    };
    for (name, why) in [
        ("echo", "plugin loaded"),
        ("greedy", "asks for `http:example.net`, which is not granted"),
        ("secret", "needs a capability `http:HOST`"),
        ("hoards", "asks for `store:notes`, which is not granted"),
        ("hides", "needs a capability `store:NAME`"),
        ("odd", "its tool `run` cannot be used"),
        ("renamed", "its manifest is that of `echo`"),
        ("unknown", "`env` is not a capability of plugins"),
        ("noise", "it is not a WebAssembly component"),
        ("bare", "bare.toml` cannot be read: No such file"),
        ("gone", "there is no file"),
    ] {
        assert!(about(name).contains(why), "{name}: {}\n{log}", about(name));
    }
    let without = log.lines().filter(|line| line.contains("does not get a tool of a plugin"));
    assert!(without.count() >= 2, "{log}");
    let compiled = std::fs::read_dir(home.data().join("plugins")).unwrap();
    let compiled = compiled.filter(|entry| {
        entry.as_ref().unwrap().path().extension().is_some_and(|ending| ending == "cwasm")
    });
    assert!(compiled.count() >= 1);
    Ok(())
}

/// What a plugin keeps in one turn is there in the next, also after the node was killed.
#[tokio::test]
async fn a_turn_finds_what_a_plugin_kept_in_an_earlier_one() -> Outcome {
    let folder = Folder::new();
    folder.add("keeps", stores::swapping(), &["store:notes"]);
    let path = folder.path().join("keeps.wasm");
    let config = format!(
        "[agents.default]\ntools = [\"keeps__run\"]\n[[plugins]]\nname = \"keeps\"\n\
         path = \"{}\"\ncapabilities = [\"store:notes\"]\n",
        path.display()
    );
    let calls = |n: u32| Act::tools([("keeps__run", json!({ "n": n }))]);
    let acts = [calls(1), Act::say("one"), calls(2), Act::say("two")];
    let (_server, home) = scene(Script::queue(acts), &config).await;
    let node = Node::up(&home).await?;
    assert_eq!(results(&node).await?[0].1, "nothing");
    let status: Value = node.client()?.call("status", json!({})).await?;
    assert_eq!(status["plugins"], json!(["keeps"]));
    node.kill().await?;
    let node = Node::up(&home).await?;
    assert_eq!(results_of(&node, "again").await?[0].1, r#"{"n":1}"#);
    node.stop().await
}

/// If a plugin traps or hangs, the model gets an error, and the turn goes on.
#[tokio::test]
async fn a_turn_goes_on_when_a_plugin_breaks() -> Outcome {
    let folder = Folder::new();
    folder.add("traps", PluginText { call: "unreachable", ..PluginText::default() }, &[]);
    let hung =
        PluginText { call: "(loop $again (br $again)) unreachable", ..PluginText::default() };
    folder.add("hung", hung, &[]);
    let mut config = "[agents.default]\ntools = [\"traps__run\", \"hung__run\"]\n".to_owned();
    for name in ["traps", "hung"] {
        let path = folder.path().join(format!("{name}.wasm"));
        let plugin = format!("[[plugins]]\nname = \"{name}\"\npath = \"{}\"\n", path.display());
        config.push_str(&plugin);
        config += "timeout = \"1s\"\n";
    }
    let calls = Act::tools([("traps__run", json!({})), ("hung__run", json!({}))]);
    let (server, home) = scene(Script::queue([calls, Act::say("so be it")]), &config).await;
    let node = Node::up(&home).await?;
    let failures: Vec<Value> = results(&node).await?.into_iter().map(|result| result.2).collect();
    assert_eq!(failures, ["crashed", "timed_out"]);
    assert_eq!(server.count(), 2);
    node.stop().await
}
