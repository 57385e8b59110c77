//! Agents: configured, changed while they run, paused and resumed.

use std::path::Path;

use clawnode_proto::agents::AgentView;
use clawnode_proto::view::StatusView;
use clawnode_tests::{
    model::Script,
    process::{Message, Node, ProcessError},
};
use serde_json::json;

use super::{Outcome, scene};

/// Puts a file in the place of another, as editors do: the node looks at it at any moment, and sees no part of it.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

/// AGT-2.
#[tokio::test]
async fn a_paused_agent_starts_no_turn_until_it_is_resumed() -> Outcome {
    let (server, home) = scene(Script::default()).await;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let paused: AgentView = client.call("agents.pause", json!({ "agent": "default" })).await?;
    assert!(paused.paused);
    let turn = client.send(&Message::new("ada", "hello")).await?;
    let running = client.history_when(&turn.session, |history| history.state == "running").await?;
    assert_eq!(running.turns[0].outcome, None);
    assert_eq!(server.count(), 0, "a paused agent calls no model");
    // The pause is durable: the next process keeps it.
    node.kill().await?;
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let still: AgentView = client.call("agents.show", json!({ "agent": "default" })).await?;
    assert!(still.paused);
    assert_eq!(server.count(), 0);
    let _: AgentView = client.call("agents.resume", json!({ "agent": "default" })).await?;
    let history = client.finished(&turn.session, 1).await?;
    assert_eq!(super::said(&history.turns[0]), ["hello", "reply to: hello"]);
    node.stop().await
}

#[tokio::test]
async fn an_unknown_agent_is_refused_before_anything_is_stored() -> Outcome {
    let (_server, home) = scene(Script::default()).await;
    let node = Node::up(&home).await?;
    let body = json!({ "model": "absent", "messages": [{ "role": "user", "content": "hi" }] });
    let answer = reqwest::Client::new()
        .post(format!("{}/v1/chat/completions", node.url()))
        .bearer_auth(node.client()?.token())
        .json(&body)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 404);
    let sessions: serde_json::Value = node.client()?.call("sessions.list", json!({})).await?;
    assert_eq!(sessions["sessions"], json!([]));
    node.stop().await
}

#[tokio::test]
async fn status_names_the_model_of_the_default_agent() -> Outcome {
    let (_server, home) = scene(Script::default()).await;
    let config = home.path().join("config.toml");
    let agents =
        "[agents.apprentice]\nmodel = \"demo/slow\"\n[agents.default]\nmodel = \"demo/echo\"\n";
    std::fs::write(&config, agents).unwrap();
    let home = home.var("CLAWNODE_CONFIG", config.to_str().unwrap());
    let node = Node::up(&home).await?;
    let status: StatusView = node.client()?.call("status", json!({})).await?;
    assert_eq!(status.model, "demo/echo (agent `default` has it)");
    node.stop().await
}

#[tokio::test]
async fn a_changed_soul_speaks_in_the_next_turn() -> Outcome {
    let (server, home) = scene(Script::default()).await;
    let (config, soul) = (home.path().join("config.toml"), home.path().join("SOUL.md"));
    std::fs::write(&soul, "You are calm.").unwrap();
    std::fs::write(&config, format!("[agents.default]\nsoul = \"{}\"\n", soul.display())).unwrap();
    let home = home.var("CLAWNODE_CONFIG", config.to_str().unwrap());
    let node = Node::up(&home).await?;
    let client = node.client()?;
    client.chat(&Message::new("ada", "one")).await?;
    replace(&soul, "You are merry.");
    let mut n = 0;
    // The files are looked at every now and then; a turn shows when it was.
    while !body(&server).contains("You are merry.") {
        assert!(body(&server).contains("You are calm."));
        n += 1;
        client.chat(&Message::new("ada", &format!("again {n}"))).await?;
        assert!(n < 5_000, "the new soul never spoke");
    }
    // What does not read is refused, and the last good one stays.
    replace(&config, "[agents.default]\nsuol = 1\n");
    client.chat(&Message::new("ada", "after a typo")).await?;
    assert!(body(&server).contains("You are merry."));
    node.stop().await
}

#[tokio::test]
async fn a_changed_profile_of_a_model_counts_in_the_next_call() -> Outcome {
    let (server, home) = scene(Script::default()).await;
    let config = home.path().join("config.toml");
    let write = |user: &str, more: &str| {
        let body = format!("body = {{ metadata = {{ user_id = \"{user}\" }} }}");
        let models = format!("[models.\"anthropic/*\"]\n{body}\n{more}\n");
        replace(&config, &models);
    };
    write("first", "");
    let home = home.var("CLAWNODE_CONFIG", config.to_str().unwrap());
    let node = Node::up(&home).await?;
    let client = node.client()?;
    client.chat(&Message::new("ada", "one")).await?;
    assert!(body(&server).contains("\"first\"") && !body(&server).contains("\"max_tokens\":700"));
    write("second", "max_output_tokens = 700");
    let mut n = 0;
    // The file is looked at every now and then; a call shows when it was.
    while !body(&server).contains("\"second\"") {
        assert!(body(&server).contains("\"first\""));
        n += 1;
        client.chat(&Message::new("ada", &format!("again {n}"))).await?;
        assert!(n < 5_000, "the new profile never counted");
    }
    assert!(body(&server).contains("\"max_tokens\":700"), "{}", body(&server));
    node.stop().await
}

fn body(server: &clawnode_tests::model::ModelServer) -> String {
    let last = server.calls().pop().unwrap();
    String::from_utf8_lossy(&last.body).into_owned()
}

#[tokio::test]
async fn a_changed_file_that_is_not_taken_whole_is_told() -> Outcome {
    let (_server, home) = scene(Script::default()).await;
    let config = home.path().join("config.toml");
    let write = |text: &str| replace(&config, text);
    write("[agents.default]\nstep_limit = 3\n");
    let home = home.var("CLAWNODE_CONFIG", config.to_str().unwrap());
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let told = async |name: &'static str| {
        let has =
            move |status: &StatusView| status.warnings.iter().any(|warning| warning.name == name);
        let status: StatusView = client.call_when("status", json!({}), has).await?;
        let warning = status.warnings.into_iter().find(|warning| warning.name == name).unwrap();
        Result::<String, ProcessError>::Ok(warning.message)
    };
    write("[agents.default]\nstep_limit = 4\n[session]\nkeep_stateless = \"2d\"\n");
    let waits = told("config.waits").await?;
    assert!(waits.contains("changes of `session`") && waits.ends_with("restart"), "{waits}");
    // What can be taken was.
    let agent: serde_json::Value = client.call("agents.show", json!({"agent": "default"})).await?;
    assert_eq!(agent["step_limit"], 4);
    write("[agents.default]\nstep_limit = 5\nmodle = \"x\"\n");
    let refused = told("config.refused").await?;
    assert!(refused.contains("old configuration") && refused.contains("modle"), "{refused}");
    let agent: serde_json::Value = client.call("agents.show", json!({"agent": "default"})).await?;
    assert_eq!(agent["step_limit"], 4);
    // As it was at the start, but for what is taken: all is well again. A file of marks without its hook is not
    // taken.
    let marks = home.path().join("hooks/before_tool_call");
    std::fs::create_dir_all(&marks).unwrap();
    std::fs::write(marks.join("10-one.toml"), "").unwrap();
    write("[agents.default]\nstep_limit = 6\n");
    let waits = told("config.waits").await?;
    assert!(waits.contains("changes of `hooks`"), "{waits}");
    std::fs::remove_dir_all(home.path().join("hooks")).unwrap();
    let well = |status: &StatusView| {
        !status.warnings.iter().any(|warning| warning.name.starts_with("config."))
    };
    let _: StatusView = client.call_when("status", json!({}), well).await?;
    let agent: serde_json::Value = client.call("agents.show", json!({"agent": "default"})).await?;
    assert_eq!(agent["step_limit"], 6);
    node.stop().await
}
