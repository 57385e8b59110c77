//! Tools that a client runs: a node is killed while its turn waits for the results, and the next one goes on
//! with the same turn when they come.

use clawnode_proto::{llm::Role, session::TurnOutcome};
use clawnode_tests::{
    model::{Act, ModelServer, Reply, Script, Step},
    process::{Client, Home, Node, ProcessError, TestBackend},
};
use serde_json::{Value, json};

use super::support::Outcome;

/// A round of tools, the client's and the agent's own together, and the answer.
fn script() -> Script {
    let calls = [("look", json!({"at": 1})), ("time_now", json!({})), ("look", json!({"at": 2}))];
    let first = [Step::Text { text: "I look.".to_owned() }, Step::tools(calls)];
    let acts: [Act; 2] = [Reply::steps(first).into(), Act::say("There.")];
    Script::default().turn("go", acts)
}

fn body(messages: &Value) -> Value {
    let parameters = json!({"type": "object", "properties": {"at": {"type": "integer"}}});
    let look = json!({"name": "look", "parameters": parameters});
    let tools = json!([{"type": "function", "function": look}]);
    json!({"model": "default", "messages": messages, "tools": tools, "seed": 7})
}

async fn complete(client: &Client, messages: &Value) -> Result<(u16, Value), ProcessError> {
    let url = format!("{}/v1/chat/completions", client.url());
    let request = reqwest::Client::new().post(url).bearer_auth(client.token());
    let response = request.json(&body(messages)).send().await.unwrap();
    Ok((response.status().as_u16(), response.json().await.unwrap()))
}

/// Asks as a client of Anthropic's API does that has the model think.
async fn messages(client: &Client, messages: &Value) -> Value {
    let properties = json!({"at": {"type": "integer"}});
    let look =
        json!({"name": "look", "input_schema": {"type": "object", "properties": properties}});
    let body = json!({"model": "default", "max_tokens": 4096, "tools": [look], "messages": messages,
        "thinking": {"type": "enabled", "budget_tokens": 1024}});
    let url = format!("{}/v1/messages", client.url());
    let request = reqwest::Client::new().post(url).header("x-api-key", client.token());
    let response = request.json(&body).send().await.unwrap();
    assert_eq!(response.status().as_u16(), 200);
    response.json().await.unwrap()
}

/// What the provider has signed is in the journal: the strict server takes it from the next process.
#[tokio::test]
async fn an_anthropic_client_goes_on_with_its_thoughts_after_a_kill() -> Outcome {
    let think = |text: &str| Step::Thinking { text: text.to_owned() };
    let say = |text: &str| Step::Text { text: text.to_owned() };
    let look = |at: u8| Step::tools([("look", json!({"at": at}))]);
    let acts: [Act; 3] = [
        Reply::steps([think("Where?"), say("I look."), look(1)]).into(),
        Reply::steps([think("Not there."), look(2)]).into(),
        Reply::steps([think("So."), say("There.")]).into(),
    ];
    let server = ModelServer::start(Script::default().turn("go", acts)).await.unwrap();
    let home = Home::new(TestBackend::Local)?.anthropic(&server);
    let mut node = Node::up(&home).await?;
    let mut said = json!([{"role": "user", "content": "go"}]);
    let mut kinds: Vec<Vec<String>> = Vec::new();
    // The picture of the first result is in the journal too, and goes again with each later request.
    let picture = "iVBORw0KGgo=";
    let source = json!({"type": "base64", "media_type": "image/png", "data": picture});
    let shown = json!([{"type": "text", "text": "nothing"}, {"type": "image", "source": source}]);
    for result in [shown, json!("it")] {
        let reply = messages(&node.client()?, &said).await;
        assert_eq!(reply["stop_reason"], "tool_use", "{reply}");
        let blocks = reply["content"].as_array().unwrap();
        kinds.push(blocks.iter().map(|block| block["type"].as_str().unwrap().to_owned()).collect());
        let id = &blocks.iter().find(|block| block["type"] == "tool_use").unwrap()["id"];
        let found = json!({"type": "tool_result", "tool_use_id": id, "content": result});
        let all = said.as_array_mut().unwrap();
        all.push(json!({"role": "assistant", "content": blocks}));
        all.push(json!({"role": "user", "content": [found]}));
        node.kill().await?;
        node = Node::up(&home).await?;
    }
    let reply = messages(&node.client()?, &said).await;
    assert_eq!(reply["stop_reason"], "end_turn", "{reply}");
    let (thought, text) = (&reply["content"][0]["thinking"], &reply["content"][1]["text"]);
    assert_eq!((thought, text), (&json!("So."), &json!("There.")), "{reply}");
    let expected = [vec!["thinking", "text", "tool_use"], vec!["thinking", "tool_use"]];
    assert_eq!(kinds, expected);
    assert_eq!(server.count(), 3, "nothing was asked again");
    assert_eq!(server.take_violations(), Vec::<String>::new(), "signatures and results pair");
    for asked in &server.calls()[1..] {
        let asked: Value = serde_json::from_slice(&asked.body).unwrap();
        let messages = asked["messages"].as_array().unwrap();
        let blocks = messages.iter().filter_map(|message| message["content"].as_array()).flatten();
        let results: Vec<&Value> = blocks.filter(|block| block["type"] == "tool_result").collect();
        let [text, image] = &results[0]["content"].as_array().unwrap()[..] else {
            panic!("{asked}")
        };
        assert_eq!((&text["text"], &image["source"]["data"]), (&json!("nothing"), &json!(picture)));
    }
    node.stop().await
}

#[tokio::test]
async fn results_reach_the_turn_of_a_node_that_was_killed() -> Outcome {
    let server = ModelServer::start(script()).await.unwrap();
    let home = Home::new(TestBackend::Local)?.openai(&server);
    let settings = home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    std::fs::write(settings.join("config.toml"), "[agents.default]\ntools = [\"time_now\"]\n")
        .unwrap();
    let node = Node::up(&home).await?;
    let mut messages = json!([{"role": "user", "content": "go"}]);
    let (status, first) = complete(&node.client()?, &messages).await?;
    assert_eq!(status, 200, "{first}");
    let (choice, turn) = (&first["choices"][0], &first["id"]);
    assert_eq!(choice["finish_reason"], "tool_calls", "{first}");
    let message = &choice["message"];
    assert_eq!(message["content"], "I look.");
    let calls = message["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 2, "the agent runs its own: {message}");

    node.kill().await?;
    let node = Node::up(&home).await?;
    let client = node.client()?;

    let all = messages.as_array_mut().unwrap();
    all.push(message.clone());
    for (nth, call) in calls.iter().enumerate() {
        let result = format!("seen {nth}");
        all.push(json!({"role": "tool", "tool_call_id": call["id"], "content": result}));
    }
    let mut less = messages.clone();
    less.as_array_mut().unwrap().pop();
    let (status, refused) = complete(&client, &less).await?;
    assert_eq!((status, &refused["error"]["param"]), (400, &json!("messages[1].tool_calls")));
    // A repeat finds what followed; other results do not count any more.
    for _ in 0..2 {
        let (status, second) = complete(&client, &messages).await?;
        assert_eq!(status, 200, "{second}");
        assert_eq!(second["choices"][0]["message"]["content"], "There.");
        // An id is that of the turn, and of the call after which it goes on.
        let (id, before) = (second["id"].as_str().unwrap(), turn.as_str().unwrap());
        assert!(id.starts_with(before) && id != before, "the same turn: {id}, after {before}");
    }
    messages[3]["content"] = json!("seen otherwise");
    let (status, late) = complete(&client, &messages).await?;
    assert_eq!((status, &late["error"]["code"]), (409, &json!("conflict")), "{late}");

    assert_eq!(server.count(), 2, "nothing was asked again");
    let asked: Value = serde_json::from_slice(&server.calls()[1].body).unwrap();
    assert_eq!(asked["seed"], 7, "{asked}");
    let told: Vec<&Value> = asked["messages"].as_array().unwrap().iter().collect();
    let told = told.iter().filter(|one| one["role"] == "tool").map(|one| &one["content"]);
    let told: Vec<&Value> = told.collect();
    assert_eq!((told.len(), told[0], told[2]), (3, &json!("seen 0"), &json!("seen 1")));
    let sessions: Value = client.call("sessions.list", json!({"stateless": true})).await?;
    let session = sessions["sessions"][0]["key"].as_str().unwrap().to_owned();
    let history = client.history(&session).await?;
    let [turn] = &history.turns[..] else { panic!("{history:?}") };
    assert!(matches!(turn.outcome, Some(TurnOutcome::Completed { .. })), "{turn:?}");
    let roles: Vec<Role> = turn.messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::User, Role::Assistant]);
    assert_eq!(server.take_violations(), Vec::<String>::new());
    node.stop().await
}
