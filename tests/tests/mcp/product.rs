//! A node whose agent has tools of the reference servers.

use std::path::Path;

use clawnode_proto::{
    agents::AgentDetail,
    kill_switch::PanicView,
    mcp::{McpList, McpServerView},
    provider::ProviderStatus,
    session::TurnOutcome,
    view::StatusView,
};
use clawnode_tests::{
    mcp::{MARK, hostile, marked, reference},
    model::{Act, Call, ModelServer, Script, Setup},
    process::{Home, Message, Node, TestBackend},
    wait::until,
};
use serde_json::{Value, json};

use super::Outcome;

/// No call of these tests waits for a person.
pub(crate) const ALLOW: &str = "[[agents.default.rules]]\nverdict = \"allow\"\n";

/// The section of a server that is a program.
pub(crate) fn section(name: &str, command: &str, args: &[&str], mark: &str) -> String {
    format!(
        "[[mcp_servers]]\nname = \"{name}\"\ncommand = \"{command}\"\nargs = {}\nenv = {{ {MARK} = \
         \"{mark}\" }}\nrestart_first = \"100ms\"\n",
        json!(args)
    )
}

pub(crate) fn configure(home: &Home, text: &str) {
    let settings = home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    std::fs::write(settings.join("config.toml"), text).unwrap();
}

/// Once the server has so many approved tools, and a node takes its calls.
pub(crate) async fn runs(
    node: &Node,
    server: &str,
) -> Result<McpServerView, clawnode_tests::process::ProcessError> {
    let up = |view: &McpServerView| view.running.is_some() && !view.tools.is_empty();
    node.client()?.call_when("mcp.show", json!({ "server": server }), up).await
}

/// Once the agent has this tool. It gets what is approved a moment after the server is seen to run, and a turn that
/// begins before that has its tools without it, however often its message is sent again.
pub(crate) async fn has(
    node: &Node,
    tool: &str,
) -> Result<(), clawnode_tests::process::ProcessError> {
    let has = |agent: &AgentDetail| agent.tools.iter().any(|known| known.name.as_str() == tool);
    let agent = json!({ "agent": "default" });
    node.client()?.call_when::<AgentDetail>("agents.show", agent, has).await.map(drop)
}

async fn scene(acts: Vec<Act>) -> (ModelServer, Home) {
    let setup = Setup { api_key: Some(Home::key().to_owned()), ..Setup::from(Script::queue(acts)) };
    let server = ModelServer::start(setup).await.unwrap();
    let home = Home::new(TestBackend::Local).unwrap().anthropic(&server);
    (server, home)
}

fn files(home: &Home) -> String {
    let files = home.path().join("shared");
    std::fs::create_dir_all(&files).unwrap();
    std::fs::write(files.join("a.txt"), "forty-two").unwrap();
    files.display().to_string()
}

/// What the tools of a turn answered, in order: content and failure.
async fn results(
    node: &Node,
    message: &Message,
) -> Result<Vec<(String, Value)>, clawnode_tests::process::ProcessError> {
    let mut turn = node.client()?.send(message).await?;
    let mut seen = Vec::new();
    loop {
        let frame = turn.next().await?;
        if frame.event == "tool_result" {
            let content = frame.data["content"].as_str().unwrap_or_default().to_owned();
            seen.push((content, frame.data["failure"].clone()));
        }
        if frame.event == "done" {
            return Ok(seen);
        }
    }
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

/// The picture, in base64, that the result of a tool at the end of a request shows to the model.
fn picture(call: &Call) -> String {
    let body: Value = serde_json::from_slice(&call.body).unwrap();
    let result = &body["messages"].as_array().unwrap().last().unwrap()["content"][0];
    assert_eq!(result["type"], "tool_result", "{body}");
    let mut blocks = result["content"].as_array().unwrap().iter();
    let source = &blocks.find(|block| block["type"] == "image").unwrap()["source"];
    assert_eq!((&source["type"], &source["media_type"]), (&json!("base64"), &json!("image/png")));
    source["data"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_turn_uses_the_tools_of_real_servers() -> Outcome {
    let (server, home) = scene(vec![
        Act::tools([("everything__echo", json!({ "message": "hi" }))]),
        Act::tools([("everything__get-tiny-image", json!({}))]),
        Act::say("done"),
    ])
    .await;
    let mark = path(home.path());
    let (everything, filesystem) =
        (path(&reference("everything")?), path(&reference("filesystem")?));
    let files = files(&home);
    let text = format!(
        "[agents.default]\ntools = [\"everything__echo\", \"everything__get-tiny-image\", \
         \"fs__*\", \"calculate\", \"nowhere__*\"]\n{ALLOW}{}{}",
        section("everything", "node", &[&everything], &mark),
        section("fs", "node", &[&filesystem, &files], &mark),
    );
    configure(&home, &text);
    // Nothing of it is known yet: the node starts all the same.
    let node = Node::up(&home).await?;
    runs(&node, "everything").await?;
    let fs = runs(&node, "fs").await?;
    assert!(fs.tools.iter().any(|tool| tool.name.as_str() == "fs__read_text_file"), "{fs:?}");
    has(&node, "everything__echo").await?;
    let seen = results(&node, &Message::new("ada", "go")).await?;
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert_eq!(seen[0], ("Echo: hi".to_owned(), Value::Null));
    // The model is shown the very picture, which is a text in the program of the tool.
    let shown = picture(&server.calls()[2]);
    let bytes = shown.len() / 4 * 3 - shown.matches('=').count();
    let told = format!("[an image, image/png, {bytes} bytes, shown]");
    assert!(seen[1].0.contains(&told), "{told}: {seen:?}");
    let program = reference("everything")?.with_file_name("tools").join("get-tiny-image.js");
    assert!(std::fs::read_to_string(program).unwrap().contains(&format!("\"{shown}\"")));
    let listed = home.run(&["mcp", "list", "--json"]).await?.json()?;
    assert_eq!(listed["servers"].as_array().unwrap().len(), 2, "{listed}");
    node.stop().await?;
    assert_eq!(marked(&mark), Vec::<i32>::new(), "MCP-1");
    Ok(())
}

/// What is approved by a person is offered at once, and not before.
#[tokio::test]
async fn what_a_person_approves_an_agent_gets_while_the_node_runs() -> Outcome {
    let ask = || Act::tools([("bad__act", json!({}))]);
    let (server, home) = scene(vec![ask(), Act::say("no"), ask(), Act::say("yes")]).await;
    let mark = path(home.path());
    let text = format!(
        "[agents.default]\ntools = [\"calculate\", \"bad__*\"]\n{ALLOW}{}pin = \"ask\"\n",
        section("bad", "python3", &[&path(&hostile()), "obeys"], &mark),
    );
    configure(&home, &text);
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let known = |view: &McpServerView| !view.tools.is_empty();
    let view: McpServerView =
        client.call_when("mcp.show", json!({ "server": "bad" }), known).await?;
    assert_eq!(view.tools[0].state.as_str(), "new");
    let seen = results(&node, &Message::new("ada", "go")).await?;
    assert_eq!(seen[0].1, "invalid", "it is not offered: {seen:?}");
    assert_eq!(server.count(), 2);

    let digest = view.tools[0].listed.as_ref().unwrap().digest.to_string();
    let wrong = home.run(&["mcp", "approve", "bad", "--tool", "act", "--digest", "00"]).await?;
    assert_eq!(wrong.code, 1, "{wrong:?}");
    let args = ["mcp", "approve", "bad", "--tool", "act", "--digest", &digest];
    let approved = home.run(&args).await?;
    assert_eq!(approved.code, 0, "{approved:?}");
    runs(&node, "bad").await?;
    let log = || std::fs::read_to_string(home.log()).unwrap_or_default();
    until("the agent has it", async || Ok(log().contains("agent reloaded").then_some(()))).await?;
    let seen = results(&node, &Message::new("bob", "go")).await?;
    assert_eq!(seen[0], ("acted".to_owned(), Value::Null));
    node.stop().await?;
    assert_eq!(marked(&mark), Vec::<i32>::new(), "MCP-1");
    // Finding 34: a node that leaves has no trouble with its servers.
    let is_trouble = |line: &str| line.contains("WARN") && !line.contains("[budgets.cluster]");
    assert!(!log().lines().any(is_trouble), "{}", log());
    Ok(())
}

/// What a person approves has its effect while a broken file keeps everything else as it was.
#[tokio::test]
async fn what_is_approved_an_agent_gets_while_the_configuration_is_invalid() -> Outcome {
    let ask = Act::tools([("bad__act", json!({}))]);
    let (_server, home) = scene(vec![ask, Act::say("yes")]).await;
    let mark = path(home.path());
    let text = format!(
        "[agents.default]\ntools = [\"calculate\", \"bad__*\"]\n{ALLOW}{}pin = \"ask\"\n",
        section("bad", "python3", &[&path(&hostile()), "obeys"], &mark),
    );
    configure(&home, &text);
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let known = |view: &McpServerView| !view.tools.is_empty();
    let view: McpServerView =
        client.call_when("mcp.show", json!({ "server": "bad" }), known).await?;
    configure(&home, "[agents");
    let refused = |status: &StatusView| {
        status.warnings.iter().any(|warning| warning.name == "config.refused")
    };
    let _: StatusView = client.call_when("status", json!({}), refused).await?;

    let digest = view.tools[0].listed.as_ref().unwrap().digest.to_string();
    let params = json!({ "server": "bad", "tool": "act", "digest": digest });
    let _: McpServerView = client.call("mcp.approve", params).await?;
    runs(&node, "bad").await?;
    let log = || std::fs::read_to_string(home.log()).unwrap_or_default();
    until("the agent has it", async || Ok(log().contains("agent reloaded").then_some(()))).await?;
    let seen = results(&node, &Message::new("bob", "go")).await?;
    assert_eq!(seen[0], ("acted".to_owned(), Value::Null));
    node.stop().await?;
    assert_eq!(marked(&mark), Vec::<i32>::new(), "MCP-1");
    Ok(())
}

/// KILL-2: a program may ignore a cancellation. When all is reported dead, it is.
#[tokio::test]
async fn kill_2_a_stop_ends_a_server_that_does_not_listen() -> Outcome {
    let (server, home) = scene(vec![Act::tools([("bad__act", json!({}))])]).await;
    let mark = path(home.path());
    let text = format!(
        "[agents.default]\ntools = [\"bad__act\"]\n{ALLOW}{}",
        section("bad", "python3", &[&path(&hostile()), "hangs"], &mark),
    );
    configure(&home, &text);
    let node = Node::up(&home).await?;
    runs(&node, "bad").await?;
    let log = || std::fs::read_to_string(home.log()).unwrap_or_default();
    until("the agent has it", async || Ok(log().contains("agent reloaded").then_some(()))).await?;
    let idle = marked(&mark).len();
    let message = Message::new("ada", "go");
    let turn = node.client()?.send(&message).await?;
    // The call has begun: something of it has left its group.
    until("the call", async || Ok((marked(&mark).len() > idle).then_some(()))).await?;
    let stopped: PanicView = node.client()?.call("panic", json!({ "wait_ms": 10_000 })).await?;
    assert!(stopped.nodes[0].dead_ms.is_some(), "{stopped:?}");
    assert_eq!(marked(&mark), Vec::<i32>::new(), "{stopped:?}");
    drop(turn);
    // Its turn has heard of it before anything may go on.
    let history = node.client()?.finished(&message.session(), 1).await?;
    let outcome = history.turns[0].outcome.as_ref().map(TurnOutcome::name);
    assert_eq!(outcome, Some("stopped"), "{history:?}");
    let clear = json!({ "latch": stopped.switch.id });
    let _: PanicView = node.client()?.call("panic.clear", clear).await?;
    until("it runs again", async || Ok((marked(&mark).len() == idle).then_some(()))).await?;
    assert_eq!(server.count(), 1, "no model is asked after the stop");
    node.stop().await?;
    assert_eq!(marked(&mark), Vec::<i32>::new(), "MCP-1");
    Ok(())
}

/// Findings 16, 18 and 19: nothing of it was to be seen, and there was no way to see an agent's tools.
#[tokio::test]
async fn a_server_that_cannot_start_is_named_wherever_people_look() -> Outcome {
    let (_server, home) = scene(Vec::new()).await;
    let agent = "[agents.default]\ntools = [\"calculate\", \"nope__*\"]\n";
    let rule = "[[agents.default.rules]]\ntool = \"calculate\"\nverdict = \"deny\"\n";
    let broken = section("nope", "no-such-command", &[], "x");
    configure(&home, &format!("{agent}{rule}{broken}"));
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let warns =
        |status: &StatusView| status.warnings.iter().any(|warning| warning.name == "mcp.down");
    let status: StatusView = client.call_when("status", json!({}), warns).await?;
    let told = &status.warnings.iter().find(|warning| warning.name == "mcp.down").unwrap().message;
    assert!(
        told.starts_with("MCP server `nope` on ")
            && told.contains("cannot start `no-such-command`"),
        "{told}"
    );
    let list: McpList = client.call("mcp.list", json!({})).await?;
    assert_eq!(list.servers[0].status, Some(ProviderStatus::Unhealthy), "{list:?}");

    for (arguments, parts) in [
        (&["mcp", "list"][..], &["nope", "unhealthy", "cannot start `no-such-command`"][..]),
        (&["mcp", "show", "nope"], &["cannot start"]),
        (&["providers"], &["mcp.nope", "mcp server", "unhealthy"]),
        (
            &["tools", "list"],
            &["calculate", "healthy", "any worker", "nope__*", "missing", "cannot start"],
        ),
        (
            &["agents", "show", "default"],
            &["anthropic/", "deny: calculate", "calculate", "step 15m", "nope__*", "cannot start"],
        ),
        (&["doctor"], &["agents.served", "MCP server `nope`"]),
    ] {
        let ended = home.run(arguments).await?;
        for part in parts {
            assert!(ended.out.contains(part), "{arguments:?} lacks `{part}`: {ended:?}");
        }
    }
    // Mended, it is up, and nothing warns of it any more.
    node.stop().await?;
    let server = reference("everything")?.display().to_string();
    configure(&home, &format!("{agent}{}", section("nope", "node", &[&server], "x")));
    let node = Node::up(&home).await?;
    runs(&node, "nope").await?;
    let client = node.client()?;
    let healed = |status: &StatusView| !warns(status);
    let _: StatusView = client.call_when("status", json!({}), healed).await?;
    let has =
        |agent: &AgentDetail| agent.tools.iter().any(|tool| tool.name.as_str() == "nope__echo");
    let agent = json!({ "agent": "default" });
    let view: AgentDetail = client.call_when("agents.show", agent, has).await?;
    assert!(view.tools.iter().all(|tool| tool.status == ProviderStatus::Healthy), "{view:?}");
    assert_eq!(view.missing, [], "its tools are there");
    Ok(())
}
