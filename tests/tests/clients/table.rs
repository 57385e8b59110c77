//! What each client does with each feature: what works stays, and what is refused is refused by name.

use std::collections::BTreeMap;

use clawnode_tests::{
    model::{Act, ModelServer, Reply, Script},
    process::{Ground, Home, Node, ProcessError},
};

use serde_json::json;

use super::{javascript, python};

/// The features, in the order of the table.
const FEATURES: [&str; 14] = [
    "models",
    "chat",
    "stream with usage",
    "top_p",
    "session by `user`",
    "conversation",
    "tools",
    "structured output",
    "picture",
    "Responses",
    "embeddings",
    "unknown model",
    "wrong key",
    "provider is busy",
];
/// The names under which they ask the model while it is busy.
const CLIENTS: [&str; 6] = ["openai", "openai-js", "langchain", "litellm", "vercel", "llm"];

/// From the feature to how it ended.
type Column = BTreeMap<String, String>;

#[tokio::test]
async fn what_works_works_and_what_is_refused_is_named() -> Result<(), ProcessError> {
    let mut turns = vec![("hello there".to_owned(), vec![Reply::text(["Hel", "lo", "!"]).into()])];
    turns.push(("who is it?".to_owned(), vec![Reply::text([r#"{"name": "#, r#""Ada"}"#]).into()]));
    let busy = || Act::status_with(503, "overloaded", "x-should-retry", "false");
    let looks = [Act::tools([("look", json!({"name": "it"}))]), Act::say("I saw it.")];
    turns.push(("look please".to_owned(), looks.into()));
    turns.extend(CLIENTS.map(|client| (format!("busy {client}"), vec![busy()])));
    let script = Script { turns: turns.into_iter().collect(), ..Script::default() };
    let server = ModelServer::start(script).await.unwrap();
    let home = Home::new(Ground::Local)?.openai(&server);
    // The client hears of a busy provider at once.
    let home = home.var("CLAWNODE_AGENTS__DEFAULT__OUTAGE", "0s");
    let home = home.var("CLAWNODE_EMBEDDINGS__MODELS", "openai/embedder");
    let node = Node::up(&home).await?;
    let client = node.client()?;

    let at = (home.path(), &client);
    let columns: [Column; 6] = [
        python(&["clients.py", "openai"], at.0, at.1).await,
        javascript(&["clients.mjs", "openai"], at.0, at.1).await,
        python(&["clients.py", "langchain"], at.0, at.1).await,
        python(&["clients.py", "litellm"], at.0, at.1).await,
        javascript(&["clients.mjs", "vercel"], at.0, at.1).await,
        python(&["clients.py", "llm"], at.0, at.1).await,
    ];
    insta::assert_snapshot!(table(&columns));

    // Who names a conversation has one, and whose client tries again has not asked twice.
    for user in ["openai", "openai-js", "litellm", "vercel"] {
        let history = client.finished(&format!("default:openai:default:{user}"), 2).await?;
        assert_eq!(history.turns.len(), 2, "{user}: {history:?}");
    }
    let calls = server.calls();
    let asked = |client| {
        let text = format!("busy {client}");
        (client, calls.iter().filter(|call| call.last_user == text).count())
    };
    let expected = CLIENTS.map(|client| (client, if client == "vercel" { 3 } else { 1 }));
    assert_eq!(CLIENTS.map(asked), expected, "only one does not read `x-should-retry`");
    node.stop().await
}

/// One line a feature, one column a client.
fn table(columns: &[Column; 6]) -> String {
    let heads = ["openai 3", "openai 6 (npm)", "langchain", "litellm", "vercel ai 6", "llm"];
    let known = |column: &Column| column.keys().all(|it| FEATURES.contains(&it.as_str()));
    assert!(columns.iter().all(known), "each feature is in the table: {columns:?}");
    let line = |first: &str, cells: [&str; 6]| {
        let wide = |line: String, cell: &&str| format!("{line}{cell:<28}");
        cells.iter().fold(format!("{first:<20}"), wide).trim_end().to_owned()
    };
    let mut lines = vec![line("", heads)];
    for feature in FEATURES {
        let cell = |column: &'_ Column| column.get(feature).cloned().unwrap_or("-".to_owned());
        let cells = columns.each_ref().map(cell);
        let cells = cells.each_ref().map(String::as_str);
        lines.push(line(feature, cells));
    }
    lines.join("\n")
}
