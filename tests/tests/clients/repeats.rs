//! The official `OpenAI` client for Python: its stream, its errors and what it sends again.

use clawnode_tests::{
    model::{Act, ModelServer, Reply, Script, Step},
    process::{Home, Node, ProcessError, TestBackend, sound},
};
use serde_json::{Value, json};

use super::python;

/// The client sends a request again twice if it fails or takes too long.
#[tokio::test]
async fn what_the_official_client_sends_again_is_one_turn() -> Result<(), ProcessError> {
    let busy = Act::status_with(503, "busy", "x-should-retry", "false");
    let gate = Reply::steps([
        Step::Gate { name: "go".to_owned() },
        Step::Text { text: "done".to_owned() },
    ]);
    let replies = [("fails", busy), ("waits", gate.into())];
    let replies = replies.map(|(text, act)| (text.to_owned(), vec![act].into()));
    let server =
        ModelServer::start(Script { on: replies.into(), ..Script::default() }).await.unwrap();
    let home = Home::new(TestBackend::Local)?.openai(&server);
    // The client hears of a busy provider at once.
    let home = home.var("CLAWNODE_AGENTS__DEFAULT__OUTAGE", "0s");
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let ended: Value = python(&["send_again.py"], home.path(), &client).await;
    let expected = json!({ "fails": "InternalServerError", "waits": "APITimeoutError" });
    assert_eq!(ended, expected);
    server.open("go");
    let sessions = ["fails", "waits"].map(|user| format!("default:openai:default:{user}"));
    for session in &sessions {
        let history = client.finished(session, 1).await?;
        assert_eq!(history.turns.len(), 1, "{history:?}");
    }
    node.stop().await?;

    // Another gateway, which has seen none of it, finds the turn in the session.
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let body = json!({ "model": "default", "user": "waits",
        "messages": [{ "role": "user", "content": "waits" }] });
    let again = reqwest::Client::new()
        .post(format!("{}/v1/chat/completions", client.url()))
        .bearer_auth(client.token())
        .header("x-stainless-retry-count", "1")
        .json(&body);
    let answer: Value = again.send().await.unwrap().json().await.unwrap();
    assert_eq!(answer["choices"][0]["message"]["content"], "done", "{answer}");
    let history = client.finished(&sessions[1], 1).await?;
    assert_eq!(history.turns.len(), 1, "{history:?}");
    assert_eq!(server.count(), 2, "each was asked for once");
    node.stop().await
}

#[tokio::test]
async fn the_official_client_lists_models_and_streams_a_chat() -> Result<(), ProcessError> {
    let replies = [("hello there".to_owned(), [Reply::text(["Hel", "lo", "!"]).into()].into())];
    let script = Script { on: replies.into(), ..Script::default() };
    let server = ModelServer::start(script).await.unwrap();
    let home = Home::new(TestBackend::Local)?.openai(&server);
    let node = Node::up(&home).await?;
    let client = node.client()?;

    let mut said: Value = python(&["stream_chat.py"], home.path(), &client).await;

    // How tokens are grouped into chunks is not promised.
    let pieces: Vec<String> = serde_json::from_value(said["pieces"].take()).unwrap();
    assert_eq!(pieces.concat(), "Hello!");
    assert!(said["usage"].take().as_u64().is_some_and(|tokens| tokens > 0));
    let expected = json!({
        "models": ["default"],
        "model": "default",
        "roles": ["assistant"],
        "pieces": null,
        "finish": "stop",
        "usage": null,
        "whole": "reply to: two",
        "whole_finish": "stop",
        "sessions": ["reply to: remember", "reply to: what?"],
        "errors": {
            "model": { "status": 404, "class": "NotFoundError" },
            "n": { "status": 400, "class": "BadRequestError" },
            "key": { "status": 401, "class": "AuthenticationError" },
        },
    });
    assert_eq!(said, expected);
    // Two fresh sessions, and one that `user` names.
    assert_eq!(sound(&home).await?, 3);
    node.stop().await
}
