//! The four timeouts on real nodes: which of them ends what, and what clients and models see.

use clawnode_proto::{session::TurnOutcome, timeout::TimeLevel};
use clawnode_tests::{
    effects::EffectCounter,
    model::{Act, ModelServer, Reply, Script, Setup, Step},
    process::{Home, Message, Node, ProcessError, TestBackend},
    wait::until,
};
use serde_json::{Value, json};

use super::{Outcome, said};

/// A home whose agent has these settings, and tools whose runs are counted.
struct Scene {
    server: ModelServer,
    counter: EffectCounter,
    _dir: tempfile::TempDir,
    home: Home,
}

impl Scene {
    async fn new(acts: impl IntoIterator<Item = Act>, settings: &str) -> Self {
        let setup =
            Setup { api_key: Some(Home::key().to_owned()), ..Setup::from(Script::queue(acts)) };
        let server = ModelServer::start(setup).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let counter = EffectCounter::start(dir.path()).await.unwrap();
        let home = Home::new(TestBackend::Local).unwrap().anthropic(&server);
        let home = home.var("CLAWNODE_TEST_EFFECTS", &counter.url());
        let folder = home.path().join(".config/clawnode");
        std::fs::create_dir_all(&folder).unwrap();
        let tools = r#"["effect_safe", "effect_asked", "file_read"]"#;
        let config = format!("[agents.default]\ntools = {tools}\n{settings}");
        std::fs::write(folder.join("config.toml"), config).unwrap();
        Self { server, counter, _dir: dir, home }
    }
}

fn runs() -> Act {
    Act::tools([("effect_safe", json!({}))])
}

/// The result of the first tool of a turn, which is followed to its end.
async fn result(node: &Node, message: &Message) -> Result<Value, ProcessError> {
    let mut turn = node.client()?.send(message).await?;
    let mut result = Value::Null;
    loop {
        let frame = turn.next().await?;
        match frame.event.as_str() {
            "tool_result" => result = frame.data,
            "done" => return Ok(result),
            _ => {}
        }
    }
}

/// The least wins, and a call that it ends says which it was, its figure and where it is set.
#[tokio::test]
async fn a_call_says_which_timeout_ended_it() -> Outcome {
    for (settings, said) in [
        (
            "[tools.timeouts]\neffect_safe = '1s'\n",
            "the command timeout of 1 s (set in `tools.timeouts.effect_safe`)",
        ),
        (
            "[agents.default.timeouts]\nstep = '6s'\nglobal = '2m'\n",
            "the step timeout of 6 s (set in `agents.default.timeouts.step`)",
        ),
    ] {
        let scene = Scene::new([runs(), Act::say("so be it")], settings).await;
        scene.counter.hold(true);
        let node = Node::up(&scene.home).await?;
        let message = Message::new("ada", "go");
        let result = result(&node, &message).await?;
        assert_eq!(result["failure"], "timed_out", "{result}");
        assert!(result["content"].as_str().unwrap().contains(said), "{result}");
        // The turn goes on: the model has been told.
        let history = node.client()?.finished(&message.session(), 1).await?;
        assert!(matches!(history.turns[0].outcome, Some(TurnOutcome::Completed { .. })));
        assert_eq!(scene.server.count(), 2);
        node.stop().await?;
    }
    Ok(())
}

/// A model that says this, and then nothing more.
fn hangs(text: &str) -> Act {
    Act::from(Reply::steps([Step::Text { text: text.to_owned() }, Step::Flush, Step::Stall]))
}

fn timed_out(outcome: Option<&TurnOutcome>, level: TimeLevel, set_in: &str) {
    let told = match outcome {
        Some(TurnOutcome::TimedOut { level, detail }) => Some((*level, detail.contains(set_in))),
        _ => None,
    };
    assert_eq!(told, Some((level, true)), "{outcome:?}");
}

/// A model that does not come to an end: the turn does, and keeps what was said.
#[tokio::test]
async fn a_turn_whose_time_is_over_ends_with_what_it_has() -> Outcome {
    for (settings, level, set_in) in [
        ("global = '5s'", TimeLevel::Global, "5 s (set in `agents.default.timeouts.global`)"),
        ("step = '5s'", TimeLevel::Step, "5 s (set in `agents.default.timeouts.step`)"),
    ] {
        let settings = format!("[agents.default.timeouts]\n{settings}\n");
        let scene = Scene::new([hangs("half an answer")], &settings).await;
        let node = Node::up(&scene.home).await?;
        let message = Message::new("ada", "go");
        drop(node.client()?.send(&message).await?);
        let history = node.client()?.finished(&message.session(), 1).await?;
        timed_out(history.turns[0].outcome.as_ref(), level, set_in);
        assert!(said(&history.turns[0]).contains(&"half an answer".to_owned()), "{history:?}");
        node.stop().await?;
    }
    Ok(())
}

/// A call that no runner takes, in a session that is in no memory, behind a process that is killed:
/// the deadline of its turn is as durable as the turn.
#[tokio::test]
async fn the_deadline_of_a_turn_survives_its_process() -> Outcome {
    let settings = "[agents.default.timeouts]\nglobal = '8s'\n[tools]\njob_wait = '10m'\n";
    let asks = Act::tools([("file_read", json!({ "path": "a" }))]);
    let mut scene = Scene::new([asks], settings).await;
    scene.home = scene.home.var("CLAWNODE_SESSION__PASSIVATE_AFTER", "1s");
    let node = Node::up(&scene.home).await?;
    let message = Message::new("ada", "go");
    let mut turn = node.client()?.send(&message).await?;
    while turn.next().await?.event != "tool_use" {}
    node.kill().await?;

    let node = Node::up(&scene.home).await?;
    let history = node.client()?.finished(&message.session(), 1).await?;
    let set_in = "8 s (set in `agents.default.timeouts.global`)";
    timed_out(history.turns[0].outcome.as_ref(), TimeLevel::Global, set_in);
    assert_eq!(scene.server.count(), 1, "nothing is asked after the end");
    // The session is free for the next turn.
    let message = Message::new("ada", "again");
    drop(node.client()?.send(&message).await?);
    until("the next turn", async || Ok((scene.server.count() == 2).then_some(()))).await?;
    node.stop().await
}

/// A person is waited for longer than the turn may take, and that is no time of the turn.
#[tokio::test]
async fn the_wait_for_a_person_is_no_time_of_a_turn() -> Outcome {
    let settings = "approval_wait = '7s'\n[agents.default.timeouts]\nglobal = '6s'\nstep = '6s'\n";
    let asks = Act::tools([("effect_asked", json!({}))]);
    let scene = Scene::new([asks, Act::say("well")], settings).await;
    let node = Node::up(&scene.home).await?;
    let message = Message::new("ada", "go");
    let result = result(&node, &message).await?;
    assert_eq!(result["failure"], "refused", "{result}");
    let history = node.client()?.finished(&message.session(), 1).await?;
    assert!(matches!(history.turns[0].outcome, Some(TurnOutcome::Completed { .. })), "{history:?}");
    node.stop().await
}
