//! Turns whose models ask for commands: in containers, and in isolated processes.

use std::path::Path;

use clawnode_proto::{kill_switch::PanicView, overview::NodeList, session::TurnOutcome};
use clawnode_tests::{
    docker::Engine,
    model::{Act, ModelServer, Script, Setup},
    nats::{NatsServer, ServerOptions},
    process::{Home, Message, Node, ProcessError, TestBackend},
    wait::until,
};
use serde_json::{Value, json};

use super::Outcome;

/// A home whose agent may run commands.
fn home(backend: TestBackend, server: &ModelServer, socket: &Path, run_in: &str) -> Home {
    let home = Home::new(backend).unwrap().anthropic(server);
    let settings = home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    let socket = socket.display();
    let config = format!(
        "[agents.default]\ntools = [\"run_command\", \"shout\", \"execute_code\", \"calculate\"]\n\
         [[agents.default.rules]]\nverdict = \"allow\"\n\
         [sandbox]\nrun_in = \"{run_in}\"\n\
         [sandbox.docker]\nsocket = \"{socket}\"\nimage = \"busybox:test\"\npython_image = \"python:test\"\n\
         [sandbox.tools.shout]\ndescription = \"Shouts.\"\nenv = \"{run_in}\"\n\
         command = [\"echo\", \"{{text}}\"]\n\
         input_schema = '{{\"type\":\"object\",\"properties\":{{\"text\":{{\"type\":\"string\"}}}},\
         \"required\":[\"text\"]}}'\n"
    );
    std::fs::write(settings.join("config.toml"), config).unwrap();
    home
}

async fn server(acts: Vec<Act>) -> ModelServer {
    let setup = Setup { api_key: Some(Home::key().to_owned()), ..Setup::from(Script::queue(acts)) };
    ModelServer::start(setup).await.unwrap()
}

/// What the tools of a turn said, to its end.
async fn results(node: &Node, message: &Message) -> Result<Vec<Value>, ProcessError> {
    let mut turn = node.client()?.send(message).await?;
    let mut seen = Vec::new();
    loop {
        let frame = turn.next().await?;
        match frame.event.as_str() {
            "tool_result" => seen.push(frame.data),
            "done" => return Ok(seen),
            _ => {}
        }
    }
}

async fn engine() -> Result<Engine, ProcessError> {
    let engine = Engine::start().await?;
    engine.import_busybox().await?;
    Ok(engine)
}

#[tokio::test]
async fn a_turn_runs_commands_in_docker_and_in_bubblewrap() -> Outcome {
    let engine = engine().await?;
    for place in ["docker", "process"] {
        let calls = [
            ("run_command", json!({ "command": "echo $((6*7)); id -u; exit 3" })),
            ("shout", json!({ "text": "$(id) --help" })),
            ("run_command", json!({ "command": "echo part; sleep 100", "timeout_s": 4 })),
        ];
        let server = server(vec![Act::tools(calls), Act::say("all done")]).await;
        let home = home(TestBackend::Local, &server, &engine.socket(), place);
        let node = Node::up(&home).await?;
        let mut results = results(&node, &Message::new("ada", "go")).await?;
        // They run at the same time, and end in any order.
        results.sort_by_key(|result| result["content"].to_string());
        let told: Vec<(&Value, &str)> = results
            .iter()
            .map(|result| (&result["failure"], result["content"].as_str().unwrap()))
            .collect();
        assert_eq!(told[0], (&Value::Null, "$(id) --help\n"), "{place}: {told:?}");
        assert_eq!(told[1], (&json!("failed"), "42\n65534\n[exit code 3]"), "{place}");
        let part = "part\n[timed_out: it was killed after 4 s; its output is above]\n\
                    [the command timeout of 4 s (set in `timeout_s`) was over]";
        assert_eq!(told[2], (&json!("timed_out"), part), "{place}");
        assert_eq!(server.count(), 2);
        node.stop().await?;
        assert_eq!(engine.containers().await?, [""; 0], "a node that has stopped leaves nothing");
    }
    engine.stop().await
}

/// Only the value that code returns is its result, whatever it prints and calls meanwhile.
#[tokio::test]
async fn a_turn_runs_code_that_calls_tools_in_docker_and_in_bubblewrap() -> Outcome {
    let engine = engine().await?;
    engine.import_python().await?;
    let code = "import clawnode\n\
                print('a secret')\n\
                sums = [('calculate', {'expression': f'{n} * {n}'}) for n in range(1, 5)]\n\
                try:\n    clawnode.tools.execute_code(code='1')\n\
                except clawnode.ToolError as error:\n    why = error.failure\n\
                return {'sums': clawnode.parallel(*sums), 'why': why, 'has': dir(clawnode.tools)}";
    for place in ["docker", "process"] {
        let call = Act::tools([("execute_code", json!({ "code": code }))]);
        let server = server(vec![call, Act::say("all done")]).await;
        let home = home(TestBackend::Local, &server, &engine.socket(), place);
        let node = Node::up(&home).await?;
        let results = results(&node, &Message::new("ada", "go")).await?;
        let content = results[0]["content"].as_str().unwrap();
        let value: Value = serde_json::from_str(content).unwrap();
        // What runs here: the tools of the same place, and those that need nothing.
        let has = json!(["calculate", "run_command", "shout"]);
        let wanted = json!({ "sums": ["1", "4", "9", "16"], "why": "refused", "has": has });
        assert_eq!(value, wanted, "{place}");
        assert_eq!(server.count(), 2);
        node.stop().await?;
    }
    engine.stop().await
}

/// Waits until a container runs the command of the call; of which process it is.
async fn running(engine: &Engine) -> Result<String, ProcessError> {
    until("a container at work", async || {
        let labels = "{{.Names}} {{.Label \"clawnode.process\"}}";
        let listed = engine.docker(&["ps", "--format", labels]).await?;
        for line in listed.lines() {
            let Some((name, process)) = line.split_once(' ') else { continue };
            let top = engine.docker(&["top", name]).await;
            if top.is_ok_and(|top| top.contains("sleep 1000")) {
                return Ok(Some(process.to_owned()));
            }
        }
        Ok(None)
    })
    .await
}

async fn none(engine: &Engine) -> Outcome {
    until("the containers of the dead to be removed", async || {
        Ok(engine.containers().await?.is_empty().then_some(()))
    })
    .await
}

/// Containers of calls, with what they are doing.
async fn at_work(engine: &Engine) -> Result<usize, ProcessError> {
    let listed = engine.docker(&["ps", "--format", "{{.Names}}"]).await?;
    let mut count = 0;
    for name in listed.lines().filter(|name| name.starts_with("clawnode-job_")) {
        let top = engine.docker(&["top", name]).await;
        count += usize::from(top.is_ok_and(|top| top.contains("sleep 1000")));
    }
    Ok(count)
}

/// Three nodes with so many containers at work are stopped.
async fn panic_ends(calls: usize) -> Outcome {
    let engine = engine().await?;
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    let sleeps = || Act::tools([("run_command", json!({ "command": "sleep 1000" }))]);
    let server = server((0..calls).map(|_| sleeps()).collect()).await;
    let backend = TestBackend::Nats { url: nats.url(), prefix: "six".to_owned() };
    let make = || {
        let home = home(backend.clone(), &server, &engine.socket(), "docker");
        let most = calls.to_string();
        let home = home.var("CLAWNODE_TOOLS__MAX_JOBS", &most);
        // Making many takes longer than a command may by default.
        let home = home.var("CLAWNODE_SANDBOX__MAX_TIMEOUT", "1h");
        let home = home.var("CLAWNODE_SANDBOX__DOCKER__TIMEOUT", "1h");
        home.var("CLAWNODE_CLUSTER__PARTITIONS", "8")
    };
    let homes = [make(), make(), make()];
    let mut nodes = Vec::new();
    for home in &homes {
        nodes.push(Node::up(home).await?);
    }
    let client = nodes[0].client()?;
    let all = |list: &NodeList| list.nodes.len() == homes.len();
    let _: NodeList = client.call_when("nodes.list", json!({}), all).await?;
    let messages: Vec<Message> =
        (0..calls).map(|number| Message::new(&format!("ada-{number}"), "go")).collect();
    let mut turns = Vec::new();
    for message in &messages {
        turns.push(client.send(message).await?);
    }
    // Each wait is for some more: making many takes longer than one wait may.
    let mut seen = 0;
    while seen < calls {
        seen = until("more containers at work", async || {
            let now = at_work(&engine).await?;
            Ok((now > seen).then_some(now))
        })
        .await?;
    }

    let stopped: PanicView = client.call("panic", json!({ "wait_ms": 10_000 })).await?;
    assert_eq!(stopped.nodes.len(), homes.len(), "{stopped:?}");
    for node in &stopped.nodes {
        assert!(node.acknowledged_ms.is_some() && node.dead_ms.is_some(), "{stopped:?}");
        assert_eq!(node.running, 0, "{stopped:?}");
    }
    until("no container of a call", async || {
        let listed = engine.docker(&["ps", "-a", "--format", "{{.Names}}"]).await?;
        Ok((!listed.contains("clawnode-job_")).then_some(()))
    })
    .await?;
    for message in &messages {
        let history = client.finished(&message.session(), 1).await?;
        let outcome = history.turns[0].outcome.as_ref().map(TurnOutcome::name);
        assert_eq!(outcome, Some("stopped"), "{history:?}");
        let told = serde_json::to_string(&history).unwrap();
        assert!(told.contains(" knows whether the call"), "of class once: {told}");
    }
    assert_eq!(server.count(), calls as u64, "no model is asked after the stop");
    for node in nodes {
        node.stop().await?;
    }
    assert_eq!(engine.containers().await?, [""; 0]);
    engine.stop().await
}

#[tokio::test]
async fn panic_over_three_nodes_on_nats_ends_six_containers() -> Outcome {
    panic_ends(6).await
}

#[tokio::test]
async fn panic_over_three_nodes_on_nats_ends_sixty_containers_soak() -> Outcome {
    panic_ends(60).await
}

#[tokio::test]
async fn f_03_docker_containers_of_a_killed_node_are_removed_by_the_next() -> Outcome {
    let engine = engine().await?;
    let sleeps = Act::tools([("run_command", json!({ "command": "sleep 1000" }))]);
    let server = server(vec![sleeps, Act::say("its end is unclear")]).await;
    let home = home(TestBackend::Local, &server, &engine.socket(), "docker");
    let node = Node::up(&home).await?;
    let message = Message::new("ada", "go");
    let turn = node.client()?.send(&message).await?;
    running(&engine).await?;
    node.kill().await?;
    drop(turn);
    assert!(!engine.containers().await?.is_empty(), "it goes on by itself");
    let node = Node::up(&home).await?;
    none(&engine).await?;
    // The command is never run again by itself; the model learns that.
    let history = node.client()?.finished(&message.session(), 1).await?;
    let told = serde_json::to_string(&history).unwrap();
    assert!(told.contains("its end is unclear"), "{told}");
    assert_eq!(server.count(), 2);
    node.stop().await?;
    engine.stop().await
}

#[tokio::test]
async fn f_03_on_nats_docker_containers_of_a_killed_node_are_removed_by_another() -> Outcome {
    let engine = engine().await?;
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    let sleeps = Act::tools([("run_command", json!({ "command": "sleep 1000" }))]);
    let server = server(vec![sleeps, Act::say("its end is unclear")]).await;
    let backend = TestBackend::Nats { url: nats.url(), prefix: "sbx".to_owned() };
    let make = || {
        let home = home(backend.clone(), &server, &engine.socket(), "docker");
        home.var("CLAWNODE_CLUSTER__PARTITIONS", "8")
    };
    let homes = [make(), make()];
    let mut nodes = vec![Node::up(&homes[0]).await?, Node::up(&homes[1]).await?];
    let turn = nodes[0].client()?.send(&Message::new("ada", "go")).await?;
    let process = running(&engine).await?;
    let at =
        nodes.iter().position(|node| node.process().is_some_and(|id| id.to_string() == process));
    nodes.swap_remove(at.unwrap()).kill().await?;
    drop(turn);
    none(&engine).await?;
    for node in nodes {
        node.stop().await?;
    }
    engine.stop().await
}
