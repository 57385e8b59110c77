//! The official `OpenAI` client for Python on the Responses API, and what a node that has seen none of it
//! knows of a response.

use clawnode_tests::{
    model::{Act, ModelServer, Reply, Script},
    process::{Home, Node, ProcessError, TestBackend},
};
use serde_json::{Value, json};

use super::python;

#[tokio::test]
async fn the_official_client_uses_the_responses_api() -> Result<(), ProcessError> {
    let looks = [Act::tools([("look", json!({"name": "it"}))]), Act::say("I saw it.")];
    let turns: [(&str, Vec<Act>); 4] = [
        ("hello there", vec![Reply::text(["Hel", "lo, ", "you!"]).into()]),
        ("who is it?", vec![Reply::text([r#"{"name": "#, r#""Ada"}"#]).into()]),
        ("look please", looks.into()),
        ("waits for ever", vec![Act::Stall]),
    ];
    let turns = turns.map(|(text, acts)| (text.to_owned(), acts)).into();
    let server = ModelServer::start(Script { turns, ..Script::default() }).await.unwrap();
    let home = Home::new(TestBackend::Local)?.openai(&server);
    let node = Node::up(&home).await?;
    let client = node.client()?;

    let mut said: Value = python(&["responses.py"], home.path(), &client).await;
    let id = said["resumed"].as_array_mut().unwrap().pop().unwrap();
    assert_eq!(
        said,
        json!({
            "create": "Hello, you!",
            "stream": ["response.created", "response.completed", "Hello, you!"],
            "tools": ["completed", 1, "I saw it.", "I saw it."],
            "conversation": ["reply to: two", true, "previous_response_id"],
            "parse": "Ada",
            "background": ["queued", "completed", "Hello, you!"],
            "cancelled": ["cancelled", "cancelled"],
            "resumed": [true, true, "Hello, you!"],
            "labelled": [true, true],
            "deleted": ["response_id", "response_id"],
            "refused": ["BadRequestError", "max_tool_calls"],
        })
    );
    node.stop().await?;

    // Another process reads the response, and numbers its events the same.
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let get = |query: &str| {
        let url = format!("{}/v1/responses/{}{query}", client.url(), id.as_str().unwrap());
        let request = reqwest::Client::new().get(url).bearer_auth(client.token());
        async move { request.send().await.unwrap().text().await.unwrap() }
    };
    let response: Value = serde_json::from_str(&get("").await).unwrap();
    assert_eq!(response["output"][0]["content"][0]["text"], "Hello, you!", "{response}");
    let events = |text: &str| -> Vec<Value> {
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).unwrap()).collect()
    };
    let all = events(&get("?stream=true").await);
    let after = &all[4]["sequence_number"];
    let rest = events(&get(&format!("?stream=true&starting_after={after}")).await);
    assert_eq!(rest, all[5..]);
    node.stop().await
}
