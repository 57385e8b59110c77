//! What each client does with each feature: what works stays, and what is refused is refused by name. The table
//! of `docs/guide/clients.md` is the same for people; `INSTA_UPDATE=always` writes it.

use std::{collections::BTreeMap, env, fs};

use clawnode_tests::{
    model::{Act, ModelServer, Reply, Script, Step},
    process::{Home, Node, ProcessError, TestBackend},
};

use serde_json::json;

use super::{javascript, python};

/// The features, in the order of the table.
const FEATURES: [&str; 19] = [
    "models",
    "chat",
    "stream with usage",
    "top_p",
    "session by `user`",
    "conversation",
    "tools",
    "its own tool loop",
    "thinking",
    "structured output",
    "picture",
    "files",
    "Responses",
    "in the background",
    "embeddings",
    "count tokens",
    "unknown model",
    "wrong key",
    "provider is busy",
];
/// The names under which they ask the model while it is busy.
const CLIENTS: [&str; 9] = [
    "openai",
    "openai-js",
    "anthropic",
    "anthropic-js",
    "langchain",
    "litellm",
    "pydantic",
    "vercel",
    "llm",
];
/// The same, with their versions, as the table has them.
const HEADS: [&str; 9] = [
    "openai 3",
    "openai 6 (npm)",
    "anthropic 2",
    "anthropic 1 (npm)",
    "langchain",
    "litellm",
    "pydantic-ai 2",
    "vercel ai 6",
    "llm",
];
/// The guide, and what is before and after its table.
const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide/clients.md");
const BEGIN: &str =
    "<!-- The test `clients` writes this table: INSTA_UPDATE=always cargo xtest clients -->\n\n";
const END: &str = "\n<!-- The end of the table. -->";

/// From the feature to how it ended.
type Column = BTreeMap<String, String>;

#[tokio::test]
async fn what_works_works_and_what_is_refused_is_named() -> Result<(), ProcessError> {
    let mut turns = vec![("hello there".to_owned(), vec![Reply::text(["Hel", "lo", "!"]).into()])];
    turns.push(("who is it?".to_owned(), vec![Reply::text([r#"{"name": "#, r#""Ada"}"#]).into()]));
    let busy = || Act::status_with(503, "overloaded", "x-should-retry", "false");
    let looks = [Act::tools([("look", json!({"name": "it"}))]), Act::say("I saw it.")];
    turns.push(("look please".to_owned(), looks.into()));
    let thinks = Step::Thinking { text: "Let me see.".to_owned() };
    let thinks = Reply::steps([thinks, Step::Text { text: "It is red.".to_owned() }]);
    turns.push(("think please".to_owned(), vec![thinks.into()]));
    turns.extend(CLIENTS.map(|client| (format!("busy {client}"), vec![busy()])));
    let script = Script { turns: turns.into_iter().collect(), ..Script::default() };
    let server = ModelServer::start(script).await.unwrap();
    let home = Home::new(TestBackend::Local)?.openai(&server);
    // The client hears of a busy provider at once.
    let home = home.var("CLAWNODE_AGENTS__DEFAULT__OUTAGE", "0s");
    let home = home.var("CLAWNODE_EMBEDDINGS__MODELS", "openai/embedder");
    let node = Node::up(&home).await?;
    let client = node.client()?;

    let at = (home.path(), &client);
    let columns: [Column; 9] = [
        python(&["clients.py", "openai"], at.0, at.1).await,
        javascript(&["clients.mjs", "openai"], at.0, at.1).await,
        python(&["clients.py", "anthropic"], at.0, at.1).await,
        javascript(&["clients.mjs", "anthropic"], at.0, at.1).await,
        python(&["clients.py", "langchain"], at.0, at.1).await,
        python(&["clients.py", "litellm"], at.0, at.1).await,
        python(&["clients.py", "pydantic"], at.0, at.1).await,
        javascript(&["clients.mjs", "vercel"], at.0, at.1).await,
        python(&["clients.py", "llm"], at.0, at.1).await,
    ];
    insta::assert_snapshot!(table(&columns));
    check_guide(&for_people(&columns));

    // Who names a conversation has one, and whose client tries again has not asked twice.
    for user in
        ["openai", "openai-js", "anthropic", "anthropic-js", "litellm", "pydantic", "vercel"]
    {
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
fn table(columns: &[Column; 9]) -> String {
    let known = |column: &Column| column.keys().all(|key| FEATURES.contains(&key.as_str()));
    assert!(columns.iter().all(known), "each feature is in the table: {columns:?}");
    let line = |first: &str, cells: [&str; 9]| {
        let wide = |line: String, cell: &&str| format!("{line}{cell:<30}");
        cells.iter().fold(format!("{first:<20}"), wide).trim_end().to_owned()
    };
    let mut lines = vec![line("", HEADS)];
    for feature in FEATURES {
        let cell = |column: &'_ Column| column.get(feature).cloned().unwrap_or("-".to_owned());
        let cells = columns.each_ref().map(cell);
        let cells = cells.each_ref().map(String::as_str);
        lines.push(line(feature, cells));
    }
    lines.join("\n")
}

/// The same in Markdown. What the test does not try has no cell.
fn for_people(columns: &[Column; 9]) -> String {
    let cell = |column: &Column, feature: &str| match column.get(feature).map(String::as_str) {
        None => String::new(),
        Some("ok") => "yes".to_owned(),
        Some(refused) => refused.split(' ').next().unwrap().to_owned(),
    };
    let line = |first: &str, cells: [String; 9]| format!("| {first} | {} |\n", cells.join(" | "));
    let mut text = line("", HEADS.map(str::to_owned)) + &"|---".repeat(10) + "|\n";
    for feature in FEATURES {
        text += &line(feature, columns.each_ref().map(|column| cell(column, feature)));
    }
    text
}

/// Compares the guide's table with this one, or writes it if that is asked for.
fn check_guide(made: &str) {
    let guide = fs::read_to_string(GUIDE).unwrap();
    let (before, rest) = guide.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    if found != made && env::var("INSTA_UPDATE").is_ok_and(|value| value == "always") {
        fs::write(GUIDE, format!("{before}{BEGIN}{made}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(found, made, "the table of `docs/guide/clients.md` is not what the clients do");
}
