//! Anthropic's own examples of extended thinking, with tools and without, request by request, and a streamed
//! round: what a provider has signed goes back to it from the journal, which a strict server judges.

use clawnode_tests::{
    model::{Act, ModelServer, Reply, Script, Step},
    process::{Home, Node, ProcessError, TestBackend},
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

/// A turn that thinks and answers.
fn haiku(text: &str) -> (String, Vec<Act>) {
    let says = Step::Text { text: "Old pond.".to_owned() };
    (text.to_owned(), vec![Reply::steps([thinks("Five, "), thinks("seven."), says]).into()])
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
    let in_san_francisco = json!({"location": "San Francisco, CA", "units": "c"});
    let in_san_francisco = Act::tools([("get_weather", in_san_francisco)]);
    let turns = [
        haiku("Create a haiku about Anthropic."),
        haiku(
            "Create a haiku about Anthropic. Think carefully about syllable counts before answering.",
        ),
        (
            "What is the weather in SF?".to_owned(),
            vec![in_san_francisco, Act::say("20, and sunny.")],
        ),
        turn("What's the weather like in Paris today?", &[weather("Paris")], "It rains."),
        turn(both, &london, "It rains, and there is news."),
        turn(berlin, &[weather("Berlin")], "It rains there."),
        ("What is the weather in Paris?".to_owned(), acts.into()),
    ];
    let script = Script { turns: turns.into(), ..Script::default() };
    let server = ModelServer::start(script).await.unwrap();
    let home = Home::new(TestBackend::Local)?.anthropic(&server);
    let settings = home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    let agents = ["claude-sonnet-4-5", "claude-sonnet-5", "claude-3-5-sonnet-latest"];
    let agents = agents.map(|name| format!("[agents.{name}]\n")).concat();
    std::fs::write(settings.join("config.toml"), agents).unwrap();
    let node = Node::up(&home).await?;
    let client = node.client()?;

    let said: Value = python(&["think_with_tools.py"], home.path(), &client).await;

    let example = json!({
        "one": [["thinking", "tool_use"], ["It rains."]],
        "many": [["thinking", "tool_use", "tool_use"], ["It rains, and there is news."]],
        "left_out": [["It rains there."], ["It rains there."]],
    });
    let sdk = json!({
        "thinking": ["Five, seven.", "Old pond."],
        "stream": ["Five, seven.", "Old pond."],
        "runner": [["tool_use"], ["20, and sunny."]],
    });
    let expected = json!({
        "sdk": sdk,
        "kinds": [["thinking", "tool_use", "tool_use"], ["thinking", "text"]],
        "thoughts": "I have to look.Good.",
        "text": "It is sunny.",
        "stop": "end_turn",
        "example": example,
    });
    assert_eq!(said, expected);
    assert_eq!(server.take_violations(), Vec::<String>::new(), "signatures and results pair");
    assert_eq!(server.count(), 12, "five turns of two calls, two of one; none for what came twice");
    let calls = server.calls();
    let sunny =
        r#"{"location": "San Francisco, CA", "temperature": "20\u00b0C", "condition": "Sunny"}"#;
    assert_eq!(calls[3].results, [sunny]);
    node.stop().await
}
