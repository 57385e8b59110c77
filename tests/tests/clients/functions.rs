//! OpenAI's own examples of function calling, request by request and compared line by line with what is published:
//! their models are agents of those names, and a strict server judges what it is sent of the calls and their results.

use clawnode_tests::{
    model::{Act, ModelServer, Script},
    process::{Home, Node, ProcessError, TestBackend},
};
use serde_json::{Value, json};

use super::python;

#[tokio::test]
async fn openais_examples_of_function_calling_run_unchanged() -> Result<(), ProcessError> {
    let place = json!({"latitude": 48.85, "longitude": 2.35});
    let sign = json!({"sign": "Aquarius"});
    let city = |name: &str| ("get_weather", json!({"city": name}));
    let weeks = ("calculate", json!({"expression": "7 * 7 * 24 * 3600"}));
    let turns: [(&str, [Act; 2]); 3] = [
        (
            "What's the weather like in Paris today?",
            [Act::tools([("get_weather", place)]), Act::say("It is 14 degrees.")],
        ),
        (
            "What is my horoscope? I am an Aquarius.",
            [Act::tools([("get_horoscope", sign)]), Act::say("A baby otter awaits you.")],
        ),
        (
            "What's the weather like in Tokyo and London? Also, how many seconds are in 7 weeks?",
            [Act::tools([city("Tokyo"), city("London"), weeks]), Act::say("Clear, and many.")],
        ),
    ];
    let turns = turns.map(|(text, acts)| (text.to_owned(), acts.into())).into();
    let server = ModelServer::start(Script { turns, ..Script::default() }).await.unwrap();
    let home = Home::new(TestBackend::Local)?.openai(&server);
    let settings = home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    let agents = ["gpt-4o", "gpt-4o-mini", "gpt-5", "gpt-6-astra"];
    let agents = agents.map(|name| format!("[agents.{name}]\n")).concat();
    std::fs::write(settings.join("config.toml"), agents).unwrap();
    let node = Node::up(&home).await?;
    let client = node.client()?;

    let said: Value = python(&["call_functions.py"], home.path(), &client).await;

    let expected = json!({
        "chat": "It is 14 degrees.",
        "responses": ["completed", "A baby otter awaits you."],
        "newer": ["completed", "A baby otter awaits you."],
        "loop": "Clear, and many.",
        "stored": [true, {"topic": "demo"}],
    });
    assert_eq!(said, expected);
    assert_eq!(server.take_violations(), Vec::<String>::new(), "calls and results pair");
    let calls = server.calls();
    let results: Vec<&str> =
        calls.iter().flat_map(|call| &call.results).map(String::as_str).collect();
    let expected = [
        "14.2",
        r#"{"horoscope": "{'sign': 'Aquarius'}: Next Tuesday you will befriend a baby otter."}"#,
        "Aquarius: Next Tuesday you will befriend a baby otter.",
        r#"{"city": "Tokyo", "temperature": "18\u00b0C", "condition": "clear"}"#,
        r#"{"city": "London", "temperature": "12\u00b0C", "condition": "overcast"}"#,
        "4233600",
    ];
    assert_eq!(results, expected);
    assert_eq!(server.count(), 9, "four turns of two calls, and one of one");
    // What the examples say of their tools reaches the model, word for word.
    let asked = String::from_utf8_lossy(&calls[7].body);
    assert!(asked.contains("A Python arithmetic expression, e.g. '7 * 24 * 3600'."), "{asked}");
    node.stop().await
}
