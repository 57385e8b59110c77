//! Anthropic's own example of extended thinking with tools, request by request but for its model, and a streamed
//! round: what a provider has signed goes back to it from the journal, which a strict server judges.

use clawnode_tests::{
    model::{Act, ModelServer, Reply, Script, Step},
    process::{Ground, Home, Node, ProcessError},
};
use serde_json::{Value, json};

use super::python;

fn thinks(text: &str) -> Step {
    Step::Thinking { text: text.to_owned() }
}

/// A turn that thinks, calls these tools and answers.
fn turn(text: &str, calls: &[(&str, Value)], answer: &str) -> (String, Vec<Act>) {
    let calls = Step::tools(calls.iter().cloned());
    let acts = [Reply::steps([thinks("Hm."), calls]).into(), Act::say(answer)];
    (text.to_owned(), acts.into())
}

#[tokio::test]
async fn anthropics_client_thinks_between_tools() -> Result<(), ProcessError> {
    let place = json!({"location": "Paris"});
    let calls = Step::tools([("weather", place.clone()), ("time", place)]);
    let acts: [Act; 2] = [
        Reply::steps([thinks("I have "), thinks("to look."), calls]).into(),
        Reply::steps([thinks("Good."), Step::Text { text: "It is sunny.".to_owned() }]).into(),
    ];
    let weather = |place: &str| ("weather", json!({"location": place}));
    let london = [weather("London"), ("news", json!({"topic": "technology"}))];
    let both =
        "What's the weather in London, and can you also tell me the latest news about technology?";
    let berlin = "What's the weather like in Berlin right now?";
    let turns = [
        turn("What's the weather like in Paris today?", &[weather("Paris")], "It rains."),
        turn(both, &london, "It rains, and there is news."),
        turn(berlin, &[weather("Berlin")], "It rains there."),
        ("What is the weather in Paris?".to_owned(), acts.into()),
    ];
    let script = Script { turns: turns.into(), ..Script::default() };
    let server = ModelServer::start(script).await.unwrap();
    let home = Home::new(Ground::Local)?.anthropic(&server);
    let settings = home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    std::fs::write(settings.join("config.toml"), "[agents.claude-sonnet-4-5]\n").unwrap();
    let node = Node::up(&home).await?;
    let client = node.client()?;

    let said: Value = python(&["think_with_tools.py"], home.path(), &client).await;

    let example = json!({
        "one": [["thinking", "tool_use"], ["It rains."]],
        "many": [["thinking", "tool_use", "tool_use"], ["It rains, and there is news."]],
        "left_out": [["It rains there."], ["It rains there."]],
    });
    let expected = json!({
        "kinds": [["thinking", "tool_use", "tool_use"], ["thinking", "text"]],
        "thoughts": "I have to look.Good.",
        "text": "It is sunny.",
        "stop": "end_turn",
        "example": example,
    });
    assert_eq!(said, expected);
    assert_eq!(server.take_violations(), Vec::<String>::new(), "signatures and results pair");
    assert_eq!(server.count(), 8, "four turns of two calls, and none for results that came twice");
    node.stop().await
}
