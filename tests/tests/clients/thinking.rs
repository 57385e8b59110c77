//! Anthropic's own example of extended thinking with tools, unchanged but for its model: what a provider has
//! signed goes back to it from the journal, which a strict server judges.

use clawnode_tests::{
    model::{Act, ModelServer, Reply, Script, Step},
    process::{Ground, Home, Node, ProcessError},
};
use serde_json::{Value, json};

use super::python;

#[tokio::test]
async fn anthropics_client_thinks_between_tools() -> Result<(), ProcessError> {
    let thinks = |text: &str| Step::Thinking { text: text.to_owned() };
    let place = json!({"location": "Paris"});
    let calls = Step::tools([("weather", place.clone()), ("time", place)]);
    let acts: [Act; 2] = [
        Reply::steps([thinks("I have "), thinks("to look."), calls]).into(),
        Reply::steps([thinks("Good."), Step::Text { text: "It is sunny.".to_owned() }]).into(),
    ];
    let server = ModelServer::start(Script::default().turn("What is the weather in Paris?", acts));
    let server = server.await.unwrap();
    let home = Home::new(Ground::Local)?.anthropic(&server);
    let node = Node::up(&home).await?;
    let client = node.client()?;

    let said: Value = python(&["think_with_tools.py"], home.path(), &client).await;

    let expected = json!({
        "kinds": [["thinking", "tool_use", "tool_use"], ["thinking", "text"]],
        "thoughts": "I have to look.Good.",
        "text": "It is sunny.",
        "stop": "end_turn",
    });
    assert_eq!(said, expected);
    assert_eq!(server.take_violations(), Vec::<String>::new(), "signatures and results pair");
    assert_eq!(server.count(), 2, "one turn of two calls");
    node.stop().await
}
