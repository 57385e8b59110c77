//! Agents that run away: each limit pauses them, their turns end and say why, and a resume lets them go on.

use clawnode_proto::{
    ErrorCode,
    agents::{AgentLimit, AgentView},
    feed::EventBody,
    overview::{FeedView, NodeList},
    session::TurnOutcome,
    view::StatusView,
};
use clawnode_tests::{
    model::{Act, ModelServer, Script, Setup},
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Message, Node, ProcessError, Start, TestBackend},
    wait::until,
};
use serde_json::json;

use super::Outcome;

/// A model with this script, and a home whose agent has these limits.
async fn scene(script: Script, limits: &str) -> (ModelServer, Home) {
    scene_on(TestBackend::Local, script, limits).await
}

async fn scene_on(backend: TestBackend, script: Script, limits: &str) -> (ModelServer, Home) {
    let setup = Setup { api_key: Some(Home::key().to_owned()), ..Setup::from(script) };
    let server = ModelServer::start(setup).await.unwrap();
    let home = Home::new(backend).unwrap().anthropic(&server);
    let config = home.path().join("config.toml");
    let text = format!(
        "[agents.default]\ntools = [\"calculate\"]\n[agents.default.limits]\n{limits}\n\
         [agents.other]\n"
    );
    std::fs::write(&config, text).unwrap();
    let home = home.var("CLAWNODE_CONFIG", config.to_str().unwrap());
    (server, home)
}

async fn agent(client: &Client) -> Result<AgentView, ProcessError> {
    client.call("agents.show", json!({ "agent": "default" })).await
}

async fn resume(client: &Client) -> Result<AgentView, ProcessError> {
    client.call("agents.resume", json!({ "agent": "default" })).await
}

async fn warning(client: &Client) -> Result<Option<(String, String)>, ProcessError> {
    let status: StatusView = client.call("status", json!({})).await?;
    let found = status.warnings.into_iter().find(|warning| warning.name == "agent.paused");
    Ok(found.map(|warning| (warning.message, warning.hint)))
}

#[tokio::test]
async fn a_model_that_calls_tools_over_and_over_is_stopped_until_a_person_resumes_its_agent()
-> Outcome {
    let sum = |n: u32| Act::tools([("calculate", json!({ "expression": format!("{n}+1") }))]);
    let (server, home) = scene(Script::queue((0..4).map(sum)), "tool_calls_per_minute = 3").await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let message = Message::new("ada", "count for ever");
    drop(client.send(&message).await?);
    let history = client.finished(&message.session(), 1).await?;
    let Some(TurnOutcome::Stopped { detail }) = &history.turns[0].outcome else {
        panic!("{:?}", history.turns[0].outcome)
    };
    assert_eq!(
        detail,
        "agent `default` was stopped by its limit `tool_calls_per_minute`: more than 3 tool calls \
         in a minute; `clawnode agents resume default` lets it go on"
    );
    assert_eq!(
        server.count(),
        4,
        "the fourth call of a tool was refused, and no model was asked again"
    );
    // The record follows.
    let is_paused = |agent: &AgentView| agent.paused;
    let params = json!({ "agent": "default" });
    let paused: AgentView = client.call_when("agents.show", params, is_paused).await?;
    let pause = paused.pause.unwrap();
    assert_eq!(pause.limit, Some(AgentLimit::ToolCallsPerMinute));
    assert_eq!(paused.stopped, None, "no operator has stopped it");
    let (message, hint) = warning(&client).await?.unwrap();
    let wanted =
        format!("agent `default` is paused by {}: more than 3 tool calls in a minute", pause.by);
    assert_eq!(message, wanted);
    assert_eq!(hint, "`clawnode agents resume default` lets it go on");
    let listed = home.run(&["agents", "list"]).await?;
    assert!(listed.out.contains("clawnode agents resume default"), "{}", listed.out);
    let told = |feed: &FeedView| {
        feed.events.iter().any(|row| {
            matches!(&row.event.what, EventBody::AgentPaused { pause, .. } if pause.limit.is_some())
        })
    };
    let _: FeedView = client.call_when("events.list", json!({}), told).await?;
    let metrics = reqwest::Client::new()
        .get(format!("{}/metrics", node.url()))
        .bearer_auth(client.token())
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    let counted =
        "clawnode_agent_paused_total{agent=\"default\",reason=\"tool_calls_per_minute\"} 1\n";
    assert!(metrics.contains(counted), "{metrics}");
    // Another message waits, and goes on with counts that start from 0 again.
    let next = client.send(&Message::new("bob", "hello")).await?;
    assert!(!resume(&client).await?.paused);
    let history = client.finished(&next.session, 1).await?;
    assert_eq!(super::said(&history.turns[0]), ["hello", "reply to: hello"]);
    assert_eq!((agent(&client).await?.pause, warning(&client).await?), (None, None));
    node.stop().await
}

#[tokio::test]
async fn turns_over_their_limit_wait_until_the_agent_is_resumed_and_a_restart_keeps_the_pause()
-> Outcome {
    let (server, home) = scene(Script::default(), "turns_per_hour = 1").await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    client.chat(&Message::new("ada", "one")).await?;
    let second = client.send(&Message::new("bob", "two")).await?;
    let is_paused = |agent: &AgentView| agent.pause.is_some();
    let params = json!({ "agent": "default" });
    let _: AgentView = client.call_when("agents.show", params, is_paused).await?;
    assert_eq!(server.count(), 1, "the second turn did not begin");
    let other = json!({ "model": "other", "messages": [{ "role": "user", "content": "hi" }] });
    let answer = reqwest::Client::new()
        .post(format!("{}/v1/chat/completions", node.url()))
        .bearer_auth(client.token())
        .json(&other)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200, "another agent has no part in it");
    node.kill().await?;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let still = agent(&client).await?;
    assert_eq!(still.pause.and_then(|pause| pause.limit), Some(AgentLimit::TurnsPerHour));
    assert_eq!(server.count(), 2);
    resume(&client).await?;
    let history = client.finished(&second.session, 1).await?;
    assert_eq!(super::said(&history.turns[0]), ["two", "reply to: two"]);
    node.stop().await
}

/// Workers may not store a pause: they say in their heartbeats what they stopped, and a gateway stores it.
#[tokio::test]
async fn workers_count_together_and_a_gateway_pauses_the_agent_for_all_of_them() -> Outcome {
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    let backend = TestBackend::Nats { url: nats.url(), prefix: "run".to_owned() };
    let (server, home) = scene_on(backend, Script::default(), "turns_per_hour = 3").await;
    let home = home.var("CLAWNODE_CLUSTER__PARTITIONS", "8");
    let mut nodes = Vec::new();
    for (role, name) in [("gateway", "front"), ("worker", "worker-1"), ("worker", "worker-2")] {
        let vars = vec![("CLAWNODE_NODE__NAME", name.to_owned())];
        let start = Start { role: Some(role), vars, ..Start::default() };
        nodes.push(Node::start(&home, start).await?);
    }
    let client = nodes[0].client()?;
    let all = |list: &NodeList| list.nodes.len() == 3;
    let _: NodeList = client.call_when("nodes.list", json!({}), all).await?;
    let mut turns = Vec::new();
    for n in 0..12 {
        turns.push(client.send(&Message::new(&format!("peer-{n}"), "go")).await?);
    }
    // However they are spread: one worker exceeds the limit, or both together do.
    let is_paused = |agent: &AgentView| agent.pause.is_some();
    let params = json!({ "agent": "default" });
    let paused: AgentView = client.call_when("agents.show", params, is_paused).await?;
    let pause = paused.pause.unwrap();
    assert_eq!((pause.limit, pause.by.as_str()), (Some(AgentLimit::TurnsPerHour), "node `front`"));
    let begun = server.count();
    assert!(begun <= 6, "{begun} began: more than three on one worker");
    // What others counted just before may pause it once more.
    for turn in &turns {
        until("the end of a turn", async || {
            resume(&client).await?;
            let history = match client.history(&turn.session).await {
                Ok(history) => history,
                // Its message is accepted, and no worker has taken it up yet.
                Err(ProcessError::Refused(body)) if body.code == ErrorCode::NotFound => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            let ended = history.turns.iter().all(|turn| turn.outcome.is_some());
            Ok((ended && !history.turns.is_empty()).then_some(()))
        })
        .await?;
    }
    for node in nodes {
        node.stop().await?;
    }
    Ok(())
}
