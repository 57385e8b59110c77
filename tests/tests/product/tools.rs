//! Turns with tools, on both wires: what runs, what never does, and what clients and models see.

use clawnode_proto::session::TurnOutcome;
use clawnode_tests::{
    effects::EffectCounter,
    model::{Act, ModelServer, Reply, Script, Setup, ToolCall},
    process::{Home, Message, Node, ProcessError, TestBackend},
    wait::until,
};
use serde_json::{Value, json};

use super::Outcome;

const TOOLS: &str = r#"["calculate", "time_now", "file_write", "file_read"]"#;

/// A server with this script, and a home whose agent has tools; behind one wire or the other.
async fn scene(script: Script, openai: bool) -> (ModelServer, Home) {
    let setup = Setup { api_key: Some(Home::key().to_owned()), ..Setup::from(script) };
    let server = ModelServer::start(setup).await.unwrap();
    let home = Home::new(TestBackend::Local).unwrap();
    let home = if openai { home.openai(&server) } else { home.anthropic(&server) };
    let (settings, files) = (home.path().join(".config/clawnode"), home.path().join("files"));
    std::fs::create_dir_all(&settings).unwrap();
    std::fs::create_dir_all(&files).unwrap();
    let root = files.display();
    let config = format!(
        "[agents.default]\ntools = {TOOLS}\nstep_limit = 6\nstep_wait = \"0s\"\n\
         [[agents.default.rules]]\nverdict = \"allow\"\n[workspace]\nroot = \"{root}\"\n"
    );
    std::fs::write(settings.join("config.toml"), config).unwrap();
    (server, home)
}

/// The frames of a turn that are not text, to its end, by name with what they say.
async fn frames(node: &Node, message: &Message) -> Result<Vec<(String, Value)>, ProcessError> {
    let mut turn = node.client()?.send(message).await?;
    let mut seen = Vec::new();
    loop {
        let frame = turn.next().await?;
        let over = frame.event == "done";
        if frame.event != "text" && frame.event != "usage" {
            seen.push((frame.event, frame.data));
        }
        if over {
            return Ok(seen);
        }
    }
}

fn named<'a>(frames: &'a [(String, Value)], name: &str) -> Vec<&'a Value> {
    frames.iter().filter(|(event, _)| event == name).map(|(_, data)| data).collect()
}

#[tokio::test]
async fn a_turn_runs_the_tools_that_its_model_asks_for() -> Outcome {
    for openai in [false, true] {
        let calls = [
            ("calculate", json!({ "expression": "6*7" })),
            ("file_write", json!({ "path": "a.txt", "content": "forty-two" })),
            ("nope", json!({})),
        ];
        let read = [("file_read", json!({ "path": "a.txt" }))];
        let acts = [Act::tools(calls), Act::tools(read), Act::say("all done")];
        let (server, home) = scene(Script::queue(acts), openai).await;
        let node = Node::up(&home).await?;
        let frames = frames(&node, &Message::new("ada", "go")).await?;
        let names = |frames: Vec<&Value>| -> Vec<String> {
            frames
                .iter()
                .map(|frame| frame["name"].as_str().unwrap_or_default().to_owned())
                .collect()
        };
        let wanted = ["calculate", "file_write", "nope", "file_read"];
        assert_eq!(names(named(&frames, "tool_use")), wanted);
        let results = named(&frames, "tool_result");
        assert_eq!(names(results.clone()), wanted);
        assert_eq!(results[0]["content"], "42");
        assert_eq!(results[2]["failure"], "invalid");
        assert!(results[2]["content"].as_str().unwrap().contains("there is no tool `nope`"));
        assert_eq!(results[3]["content"], "forty-two");
        // The results that the model got, as it got them: the server holds us to the wire.
        assert_eq!(server.count(), 3);
        let history = node.client()?.history(&Message::new("ada", "go").session()).await?;
        assert_eq!(history.turns[0].outcome, Some(completed()));
        node.stop().await?;
    }
    Ok(())
}

fn completed() -> TurnOutcome {
    TurnOutcome::Completed { stop: clawnode_proto::llm::StopReason::EndTurn }
}

/// F-24: a broken call is never run, and the model learns what is wrong, twice at most.
#[tokio::test]
async fn f_24_broken_calls_are_never_run_and_end_the_turn() -> Outcome {
    let path = r#"{"path":"b.txt","content":"#;
    let broken = [
        ("cut off", vec![ToolCall::new("file_write", path)]),
        ("empty", vec![ToolCall::new("file_write", "")]),
        ("no object", vec![ToolCall::new("file_write", "[\"b.txt\",\"x\"]")]),
        ("wrong type", vec![ToolCall::new("file_write", r#"{"path":"b.txt","content":7}"#)]),
        ("too much", vec![ToolCall::new("file_write", r#"{"path":"b.txt","content":"x","z":1}"#)]),
    ];
    for openai in [false, true] {
        for (name, calls) in &broken {
            let act = Act::from(Reply::tools(calls.clone()));
            let acts = [act.clone(), act.clone(), act];
            let (server, home) = scene(Script::queue(acts), openai).await;
            let node = Node::up(&home).await?;
            let frames = frames(&node, &Message::new("ada", "go")).await?;
            assert_eq!(server.count(), 3, "{name}: told twice, then no more");
            let errors = named(&frames, "error");
            assert_eq!(errors.len(), 1, "{name}: {frames:?}");
            assert_eq!(errors[0]["code"], "bad_calls", "{name}");
            let results = named(&frames, "tool_result");
            assert!(
                results.iter().all(|result| result["failure"] == "invalid"),
                "{name}: {results:?}"
            );
            assert!(!home.path().join("files/default/b.txt").exists(), "{name}");
            node.stop().await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_model_that_goes_round_in_circles_is_warned_and_then_refused() -> Outcome {
    let again = || Act::tools([("calculate", json!({ "expression": "1+1" }))]);
    let acts = [again(), again(), again(), again(), again(), Act::say("I stop")];
    let (server, home) = scene(Script::queue(acts), false).await;
    let node = Node::up(&home).await?;
    let frames = frames(&node, &Message::new("ada", "go")).await?;
    let failures: Vec<&Value> =
        named(&frames, "tool_result").into_iter().map(|result| &result["failure"]).collect();
    assert_eq!(failures[..4], [&Value::Null; 4]);
    assert_eq!(failures[4], "refused");
    assert_eq!(server.count(), 6);
    let session = Message::new("ada", "go").session();
    let told = serde_json::to_string(&node.client()?.history(&session).await?).unwrap();
    assert_eq!(told.matches("You have now made the same call").count(), 3, "{told}");
    node.stop().await
}

/// The calls of one reply run at the same time, and never more of them than the agent may have.
#[tokio::test]
async fn the_calls_of_a_reply_run_at_once_up_to_the_agents_cap() -> Outcome {
    for cap in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let counter = EffectCounter::start(dir.path()).await.unwrap();
        let server = ModelServer::start(Script::default()).await.unwrap();
        let home = Home::new(TestBackend::Local).unwrap().anthropic(&server);
        let home = home.var("CLAWNODE_TEST_EFFECTS", &counter.url());
        let settings = home.path().join(".config/clawnode");
        std::fs::create_dir_all(&settings).unwrap();
        let config =
            format!("[agents.default]\ntools = [\"effect_safe\"]\nmax_parallel_tools = {cap}\n");
        std::fs::write(settings.join("config.toml"), config).unwrap();
        let node = Node::up(&home).await?;
        let client = node.client()?;
        // Effects happen, and are not answered: a call that has begun goes on.
        counter.hold(true);
        let calls: Vec<String> =
            (0..6).map(|n| format!("/tool effect_safe {{\"n\":{n}}}")).collect();
        let message = Message { key: "calls".to_owned(), ..Message::new("ada", &calls.join("\n")) };
        let mut turn = client.send(&message).await?;
        until("the first calls", async || Ok((counter.total().unwrap() >= cap).then_some(())))
            .await?;
        // Whatever else would begin has had the time of a whole turn.
        client.chat(&Message::new("bob", "hello")).await?;
        assert_eq!(counter.total().unwrap(), cap, "no call beyond the cap begins");
        counter.hold(false);
        turn.completed().await?;
        assert_eq!((counter.total().unwrap(), counter.most_at_once()), (6, cap));
        node.stop().await?;
    }
    Ok(())
}

/// No node has files: the call waits its time in the queue, also while its session is not in memory,
/// and the turn goes on without it.
#[tokio::test]
async fn a_call_that_no_node_can_run_is_told_to_the_model() -> Outcome {
    let asks = Act::tools([("file_read", json!({ "path": "a.txt" }))]);
    let setup = Setup {
        api_key: Some(Home::key().to_owned()),
        ..Setup::from(Script::queue([asks, Act::say("so be it")]))
    };
    let server = ModelServer::start(setup).await.unwrap();
    let home = Home::new(TestBackend::Local).unwrap().anthropic(&server);
    let home = home.var("CLAWNODE_TOOLS__JOB_WAIT", "3s");
    let home = home.var("CLAWNODE_SESSION__PASSIVATE_AFTER", "1s");
    let settings = home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    let config = "[agents.default]\ntools = [\"file_read\"]\n";
    std::fs::write(settings.join("config.toml"), config).unwrap();
    let node = Node::up(&home).await?;
    let frames = frames(&node, &Message::new("ada", "go")).await?;
    let results = named(&frames, "tool_result");
    assert_eq!(results.len(), 1, "{frames:?}");
    assert_eq!(results[0]["failure"], "unavailable");
    assert!(results[0]["content"].as_str().unwrap().contains("`workspace`"), "{results:?}");
    assert_eq!(server.count(), 2);
    node.stop().await
}

/// The limit of steps ends a turn whose tools are done, and what was found is kept.
#[tokio::test]
async fn a_turn_that_uses_up_its_steps_ends_with_what_it_has() -> Outcome {
    let step = |n: u32| Act::tools([("calculate", json!({ "expression": format!("{n}+1") }))]);
    let (server, home) = scene(Script::queue((0..7).map(step)), false).await;
    let node = Node::up(&home).await?;
    let frames = frames(&node, &Message::new("ada", "go")).await?;
    assert_eq!(server.count(), 6);
    assert_eq!(named(&frames, "error")[0]["code"], "step_limit");
    assert_eq!(named(&frames, "tool_result").len(), 6);
    node.stop().await
}
