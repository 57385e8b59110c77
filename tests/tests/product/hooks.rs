//! Hooks on real nodes: small programs that allow, change and block, and some that do harm.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use clawnode_tests::{
    model::{Act, ModelServer, Script},
    process::{Frame, Home, Message, Node, ProcessError, TestBackend, sound},
    wait,
};
use serde_json::{Value, json};

use super::Outcome;

/// The tools of the agent, which run without asking anybody.
const CONFIG: &str = "[agents.default]\ntools = [\"calculate\", \"time_now\"]\n";
const ALLOW: &str = "cat >/dev/null\necho '{\"decision\":\"allow\"}'";

struct Scene {
    server: ModelServer,
    home: Home,
}

impl Scene {
    async fn new(acts: impl IntoIterator<Item = Act>) -> Self {
        let server = ModelServer::start(Script::queue(acts)).await.unwrap();
        let home = Home::new(TestBackend::Local).unwrap().anthropic(&server);
        let settings = home.path().join(".config/clawnode");
        fs::create_dir_all(&settings).unwrap();
        fs::write(settings.join("config.toml"), CONFIG).unwrap();
        Self { server, home }
    }

    fn folder(&self) -> PathBuf {
        self.home.path().join(".config/clawnode/hooks")
    }

    /// A hook with this body, and how it is marked.
    fn hook(&self, point: &str, name: &str, (body, marks): (&str, &str)) -> PathBuf {
        let path = self.folder().join(point).join(name);
        folders(&path);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        mode(&path, 0o700);
        let marked = path.with_file_name(format!("{name}.toml"));
        fs::write(&marked, marks).unwrap();
        mode(&marked, 0o600);
        path
    }

    /// All frames of one turn.
    async fn turn(&self, node: &Node, text: &str) -> Result<Vec<Frame>, ProcessError> {
        let mut turn = node.client()?.send(&Message::new("ada", text)).await?;
        let mut frames = Vec::new();
        loop {
            let frame = turn.next().await?;
            let over = frame.event == "done";
            frames.push(frame);
            if over {
                return Ok(frames);
            }
        }
    }

    /// The kinds of all events of the session, and what hooks did.
    async fn events(&self, node: &Node) -> Result<Vec<Value>, ProcessError> {
        let session = Message::new("ada", "").session();
        node.client()?.journal(&session).await
    }

    /// What the model was shown in its `n`th call.
    fn shown(&self, n: usize) -> String {
        String::from_utf8_lossy(&self.server.calls()[n].body).into_owned()
    }

    /// The journal is sound, and a replay shows the model the same, without any hook.
    async fn replays(&self) -> Outcome {
        fs::remove_dir_all(self.folder()).unwrap();
        sound(&self.home).await?;
        let session = Message::new("ada", "").session();
        let replayed = self.home.run(&["journal", "replay", &session, "--json"]).await?;
        assert_eq!(replayed.code, 0, "{replayed:?}");
        Ok(())
    }
}

fn folders(path: &Path) {
    let folder = path.parent().unwrap();
    fs::create_dir_all(folder).unwrap();
    mode(folder, 0o700);
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn named<'a>(frames: &'a [Frame], name: &str) -> Vec<&'a Value> {
    frames.iter().filter(|frame| frame.event == name).map(|frame| &frame.data).collect()
}

fn count(events: &[Value], kind: &str) -> usize {
    events.iter().filter(|event| event["kind"] == kind).count()
}

fn calculates(what: &str) -> Act {
    Act::tools([("calculate", json!({ "expression": what }))])
}

/// HOOK-1, HOOK-2: what hooks change is what the model is shown and what runs, and the journal alone
/// says so.
#[tokio::test]
async fn hook_1_hook_2_changes_take_effect_and_are_in_the_journal() -> Outcome {
    let scene = Scene::new([calculates("1+1"), Act::say("done")]).await;
    let modify = |patch: &str| {
        format!("cat >/dev/null\necho '{{\"decision\":\"modify\",\"patch\":{patch}}}'")
    };
    let marks = "modifies = true\n";
    // The second sees what the first made of it: it changes that alone.
    let first = modify(r#"{"messages":[{"index":0,"content":"[one]"}],"system":"be brief"}"#);
    let second = "grep -q '\\[one\\]' && echo '{\"decision\":\"modify\",\"patch\":\
                  {\"messages\":[{\"index\":0,\"content\":\"[two]\"}],\"append\":\"in English\"}}'";
    scene.hook("before_llm_call", "10-one.sh", (&first, marks));
    scene.hook("before_llm_call", "20-two.sh", (second, "modifies = true\nrequired = true\n"));
    scene.hook("before_llm_call", "30-three", (ALLOW, ""));
    let arguments = modify(r#"{"arguments":{"expression":"6*7"}}"#);
    scene.hook(
        "before_tool_call",
        "arguments",
        (&arguments, "modifies = true\ntools = [\"calc*\"]\n"),
    );
    let result = "grep -q '\"content\":\"42\"' && echo '{\"decision\":\"modify\",\"patch\":\
                  {\"content\":\"forty-two\"}}'";
    scene.hook("after_tool_call", "result", (result, "modifies = true\nrequired = true\n"));

    let node = Node::up(&scene.home).await?;
    let frames = scene.turn(&node, "a secret").await?;
    assert_eq!(named(&frames, "tool_result")[0]["content"], "forty-two", "{frames:?}");
    for n in 0..2 {
        let shown = scene.shown(n);
        assert!(!shown.contains("a secret") && shown.contains("[two]"), "{shown}");
        assert!(shown.contains("be brief") && shown.contains("in English"), "{shown}");
    }
    assert_eq!(scene.server.calls()[1].results, ["forty-two"]);
    let events = scene.events(&node).await?;
    assert_eq!((count(&events, "model_hooked"), count(&events, "tool_hooked")), (2, 1));
    let done = events.iter().find(|event| event["kind"] == "tool_done").unwrap();
    assert_eq!(done["body"]["hooks"]["changed_by"], json!(["result"]), "{done}");
    node.stop().await?;
    scene.replays().await
}

/// A hook's no ends a turn with a name, or goes back to the model as the tool's error.
#[tokio::test]
async fn what_a_hook_blocks_is_not_done_and_everybody_is_told() -> Outcome {
    let acts = [
        Act::tools([("calculate", json!({ "expression": "1+1" })), ("time_now", json!({}))]),
        Act::say("done"),
    ];
    let scene = Scene::new(acts).await;
    let block = |what: &str, why: &str| {
        format!(
            "if grep -q '{what}'; then echo '{{\"decision\":\"block\",\"reason\":\"{why}\"}}'; \
             else echo '{{\"decision\":\"allow\"}}'; fi"
        )
    };
    scene.hook("before_llm_call", "a", (&block("forbidden", "not this"), ""));
    scene.hook("before_tool_call", "b", (&block("time_now", "no clocks"), ""));
    scene.hook("after_tool_call", "c", (&block("calculate", "no sums"), ""));
    let node = Node::up(&scene.home).await?;

    let frames = scene.turn(&node, "go").await?;
    let results = named(&frames, "tool_result");
    let result_of = |tool: &str| results.iter().find(|result| result["name"] == tool).unwrap();
    assert_eq!(result_of("time_now")["failure"], "refused", "{results:?}");
    assert!(
        result_of("time_now")["content"].as_str().unwrap().contains("no clocks"),
        "{results:?}"
    );
    let held = result_of("calculate")["content"].as_str().unwrap();
    assert!(held.contains("no sums") && held.contains("was made"), "{held}");
    let told = scene.server.calls()[1].results.join("\n");
    assert!(told.contains("no sums") && told.contains("no clocks"), "{told}");
    let events = scene.events(&node).await?;
    assert_eq!(count(&events, "tool_asked"), 1, "what is blocked is not begun: {events:?}");

    let frames = scene.turn(&node, "forbidden").await?;
    let errors = named(&frames, "error");
    assert_eq!(errors.first().map(|error| &error["code"]), Some(&json!("blocked")), "{frames:?}");
    let message = errors[0]["message"].as_str().unwrap();
    assert!(message.contains("hook `a`") && message.contains("not this"), "{message}");
    assert_eq!(scene.server.count(), 2, "the model was not asked");
    let last = scene.events(&node).await?;
    let ended = last.iter().rfind(|event| event["kind"] == "turn_done").unwrap();
    assert_eq!(ended["body"]["outcome"]["type"], "blocked", "{ended}");
    node.stop().await?;
    scene.replays().await
}

/// A hook that gives no answer that counts blocks if it is required, and is passed over by name if it
/// is not; what it was shown and what it said is in no log.
#[tokio::test]
async fn hooks_that_fail_are_closed_or_passed_over_as_they_are_marked() -> Outcome {
    let faults = [
        ("hangs", "exec sleep 1000", "timed_out"),
        ("says", "echo 'shown-on-stdout'; echo 'shown-on-stderr' >&2", "garbage"),
        ("dies", "kill -9 $$", "failed"),
        ("exits", "echo '{\"decision\":\"allow\"}'; exit 3", "failed"),
        ("floods", "exec cat /dev/zero", "too_much"),
        ("meddles", "echo '{\"decision\":\"modify\",\"patch\":{}}'", "unfit"),
    ];
    let acts = [
        Act::tools([("calculate", json!({ "expression": "1+1" })), ("time_now", json!({}))]),
        Act::say("done"),
    ];
    let scene = Scene::new(acts).await;
    // One that hangs is the only one whose time matters.
    let time =
        |name: &str| if name == "hangs" { "timeout_ms = 300\n" } else { "timeout_ms = 60000\n" };
    for (name, body, _) in faults {
        let marks = format!("{}tools = [\"calculate\"]\n", time(name));
        scene.hook("before_tool_call", name, (body, &marks));
    }
    let node = Node::up(&scene.home).await?;
    let frames = scene.turn(&node, "shown-to-hooks").await?;
    let results = named(&frames, "tool_result");
    assert_eq!((&results[0]["content"], &results[0]["failure"]), (&json!("2"), &Value::Null));
    let events = scene.events(&node).await?;
    let hooked = events.iter().find(|event| event["kind"] == "tool_hooked").unwrap();
    let passed: Vec<(&str, &str)> = hooked["body"]["trail"]["passed_over"]
        .as_array()
        .unwrap()
        .iter()
        .map(|passed| (passed["hook"].as_str().unwrap(), passed["fault"].as_str().unwrap()))
        .collect();
    let mut wanted: Vec<(&str, &str)> = faults.map(|(name, _, fault)| (name, fault)).into();
    wanted.sort_unstable();
    assert_eq!(passed, wanted);
    node.stop().await?;
    let log = fs::read_to_string(scene.home.log()).unwrap();
    assert!(!log.contains("shown-"), "{log}");
    for (name, ..) in faults {
        assert!(log.contains(name), "a warning names `{name}`: {log}");
    }

    for (name, body, _) in faults {
        let scene = Scene::new([calculates("1+1"), Act::say("done")]).await;
        let marks = format!("{}required = true\n", time(name));
        scene.hook("before_tool_call", name, (body, &marks));
        let node = Node::up(&scene.home).await?;
        let frames = scene.turn(&node, "go").await?;
        let result = named(&frames, "tool_result")[0].clone();
        assert_eq!(result["failure"], "refused", "{name}: {result}");
        let told = result["content"].as_str().unwrap();
        assert!(told.contains(name) && told.contains("required"), "{told}");
        assert_eq!(count(&scene.events(&node).await?, "tool_asked"), 0, "{name}");
        node.stop().await?;
    }
    Ok(())
}

/// Hooks start in `/`.
#[tokio::test]
async fn hooks_beside_a_file_that_is_named_relatively_are_asked() -> Outcome {
    let block = "cat >/dev/null\necho '{\"decision\":\"block\",\"reason\":\"not today\"}'";
    let scene = Scene::new([]).await;
    scene.hook("before_llm_call", "10-no", (block, "required = true\n"));
    let Scene { server: _server, home } = scene;
    // Nodes of tests start in their home directory.
    let home = home.var("CLAWNODE_CONFIG", ".config/clawnode/config.toml");
    let node = Node::up(&home).await?;
    let error = node.client()?.chat(&Message::new("ada", "hi")).await.unwrap_err();
    assert!(error.to_string().contains("not today"), "{error}");
    node.stop().await
}

/// The node is killed while a hook runs: nothing of the hook goes on, nothing it might have decided
/// took effect, and it is asked again with the same key.
#[tokio::test]
async fn a_hook_whose_node_is_killed_is_asked_again() -> Outcome {
    for (point, kinds) in [("before_llm_call", "model_begun"), ("before_tool_call", "tool_asked")] {
        let scene = Scene::new([calculates("1+1"), Act::say("done")]).await;
        let (asked, gate) = (scene.home.path().join("asked"), scene.home.path().join("gate"));
        let body = format!(
            "echo \"$$ $HOOK_KEY\" >> {}\n\
             while [ ! -e {} ]; do sleep 0.05; done\n{ALLOW}",
            asked.display(),
            gate.display()
        );
        scene.hook(point, "waits", (&body, "required = true\ntimeout_ms = 60000\n"));
        let node = Node::up(&scene.home).await?;
        let message = Message::new("ada", "go");
        let turn = node.client()?.send(&message).await?;
        let first = wait::until("the hook", async || Ok(lines(&asked).pop())).await?;
        node.kill().await?;
        drop(turn);
        let pid = first.split(' ').next().unwrap().to_owned();
        wait::until("the end of the hook", async || {
            Ok((!Path::new("/proc").join(&pid).exists()).then_some(()))
        })
        .await?;
        fs::write(&gate, "").unwrap();
        let node = Node::up(&scene.home).await?;
        node.client()?.finished(&message.session(), 1).await?;
        let key = |line: &String| line.split(' ').next_back().unwrap().to_owned();
        let keys: Vec<String> = lines(&asked).iter().map(key).collect();
        assert_eq!(keys[0], keys[1], "{point}: {keys:?}");
        let events = scene.events(&node).await?;
        assert_eq!(count(&events, "tool_asked"), 1, "{kinds}: {events:?}");
        assert_eq!(scene.server.count(), 2, "no model call was made that a hook had not let");
        node.stop().await?;
        scene.replays().await?;
    }
    Ok(())
}

fn lines(path: &Path) -> Vec<String> {
    // A line is there once its end is.
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'))
        .map(str::to_owned)
        .collect()
}

/// If a guard is removed, each start and `doctor` report it, until a person says that it is all
/// right.
#[tokio::test]
async fn a_hook_that_is_gone_is_missed() -> Outcome {
    let scene = Scene::new([Act::say("done")]).await;
    let stays = scene.hook("before_llm_call", "stays", (ALLOW, ""));
    let taken = scene.hook("before_tool_call", "taken", (ALLOW, ""));
    let doctor = async || {
        let doctor = scene.home.run(&["doctor", "--json"]).await?.json()?;
        let checks = doctor["checks"].as_array().unwrap().clone();
        let hooks = checks.into_iter().filter(|check| check["name"] == "hooks");
        Ok::<Vec<Value>, ProcessError>(hooks.collect())
    };
    Node::up(&scene.home).await?.stop().await?;
    let found = doctor().await?;
    assert_eq!((found.len(), &found[0]["verdict"]), (1, &json!("green")), "{found:?}");
    // By its folder, as a user could who may write the one above.
    let folder = taken.parent().unwrap();
    fs::rename(folder, folder.with_file_name("away")).unwrap();
    for _ in 0..2 {
        Node::up(&scene.home).await?.stop().await?;
        let found = doctor().await?;
        assert_eq!((found.len(), &found[0]["verdict"]), (1, &json!("yellow")), "{found:?}");
        let text = found[0]["found"].as_str().unwrap();
        assert!(text.contains("before_tool_call/taken") && !text.contains("stays"), "{text}");
    }
    let log = fs::read_to_string(scene.home.log()).unwrap();
    let missed =
        log.lines().filter(|line| line.contains("is gone") && line.contains("taken")).count();
    assert_eq!(missed, 2, "{log}");
    // A person says that it is all right.
    let seen = scene.home.data().join("hooks.seen");
    let lines = fs::read_to_string(&seen).unwrap();
    let lines: Vec<&str> = lines.lines().filter(|line| !line.contains("taken")).collect();
    fs::write(&seen, lines.join("\n")).unwrap();
    let found = doctor().await?;
    assert_eq!((found.len(), &found[0]["verdict"]), (1, &json!("green")), "{found:?}");
    assert!(stays.exists());
    Ok(())
}

/// A file that others can write, or that is not executable, is refused by name, and no node starts.
#[tokio::test]
async fn a_file_that_may_not_be_asked_is_refused_by_name() -> Outcome {
    let scene = Scene::new([Act::say("done")]).await;
    let fine = scene.hook("before_llm_call", "fine", (ALLOW, "agents = [\"default\"]\n"));
    let path = scene.hook("before_tool_call", "open", (ALLOW, ""));
    for (bits, why) in [(0o722, "others can write"), (0o600, "not executable")] {
        mode(&path, bits);
        let ended = scene.home.run(&["up"]).await?;
        assert_eq!(ended.code, 78, "{ended:?}");
        assert!(
            ended.err.contains("before_tool_call/open") && ended.err.contains(why),
            "{ended:?}"
        );
        let list = scene.home.run(&["hooks", "list", "--json"]).await?.json()?;
        let hooks = list["hooks"].as_array().unwrap();
        assert_eq!(hooks[0]["path"], json!(fine), "{list}");
        assert_eq!(
            (&hooks[0]["refused"], &hooks[0]["marks"]["required"]),
            (&Value::Null, &json!(false))
        );
        assert!(hooks[1]["refused"].as_str().unwrap().contains(why), "{list}");
        let doctor = scene.home.run(&["doctor", "--json"]).await?.json()?;
        let check =
            doctor["checks"].as_array().unwrap().iter().find(|check| check["name"] == "hooks");
        assert_eq!(check.unwrap()["verdict"], "red", "{doctor}");
    }
    mode(&path, 0o700);
    let marks = fine.with_file_name("fine.toml");
    for (text, why) in [
        ("agents = [\"absent\"]", "not configured"),
        ("require = true", "fine.toml"),
        ("timeout_ms = 60001", "60000"),
        ("tools = [\"calculate\"]", "`tools`"),
    ] {
        fs::write(&marks, text).unwrap();
        let ended = scene.home.run(&["up"]).await?;
        assert_eq!(ended.code, 78, "{ended:?}");
        assert!(ended.err.contains(why), "{text}: {ended:?}");
    }
    fs::remove_file(&marks).unwrap();
    let node = Node::up(&scene.home).await?;
    node.client()?.chat(&Message::new("ada", "hello")).await?;
    node.stop().await
}
