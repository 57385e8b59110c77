//! Real models of real providers: a tool, thoughts that go back after `kill -9`, tokens.
//!
//! Only with `CLAWNODE_TEST_REAL_PROVIDERS=PROVIDER/MODEL,… cargo xtest real_providers`, and the keys and addresses that
//! a node reads (`ANTHROPIC_API_KEY`, `OPENAI_BASE_URL`, …). It costs a few cents a model. A model is judged by what it
//! does with a tool, not by its words.

use clawnode_proto::{
    model::{ModelView, ReasoningStyle},
    session::TurnOutcome,
};
use clawnode_tests::process::{Home, Message, Node, TestBackend, sound};
use serde_json::json;

use super::Outcome;

const MODELS: &str = "CLAWNODE_TEST_REAL_PROVIDERS";
/// What a node may have of this environment.
const PASSED: [&str; 13] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "AWS_ACCESS_KEY_ID",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
    "AWS_REGION",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "GEMINI_API_KEY",
    "GEMINI_BASE_URL",
    "OLLAMA_HOST",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
];
/// No model knows the product of these by heart.
const QUESTION: &str =
    "Use the tool calculate to compute 73914827 * 59218463. Then say the product in digits.";
const PRODUCT: &str = "4377122447850901";

#[tokio::test]
#[ignore = "asks models that cost money: CLAWNODE_TEST_REAL_PROVIDERS=PROVIDER/MODEL cargo xtest real_providers"]
async fn real_providers_call_tools_and_take_their_thoughts_back() -> Outcome {
    let models = std::env::var(MODELS).unwrap_or_default();
    // With `CLAWNODE_TEST_REAL_MODEL=1` all ignored tests run: no model is named then, and none is asked.
    for model in models.split(',').map(str::trim).filter(|model| !model.is_empty()) {
        eprintln!("asking {model}");
        asked(model).await?;
    }
    Ok(())
}

fn configure(home: &Home, model: &str, reasoning: &str) {
    let folder = home.path().join(".config/clawnode");
    std::fs::create_dir_all(&folder).unwrap();
    let agent = format!(
        "[agents.default]\nmodel = \"{model}\"\ntools = [\"calculate\"]\nreasoning = \"{reasoning}\"\n"
    );
    std::fs::write(folder.join("config.toml"), agent).unwrap();
}

/// Two turns of a model, with a `kill -9` of the node between them.
async fn asked(model: &str) -> Outcome {
    let mut home = Home::new(TestBackend::Local)?;
    configure(&home, model, "off");
    for name in PASSED {
        if let Ok(value) = std::env::var(name) {
            home = home.var(name, &value);
        }
    }
    let mut node = Node::up(&home).await?;
    let known: ModelView = node.client()?.call("models.show", json!({ "model": model })).await?;
    if !matches!(known.reasoning, ReasoningStyle::Unknown | ReasoningStyle::None) {
        node.stop().await?;
        configure(&home, model, "low");
        node = Node::up(&home).await?;
    }
    let client = node.client()?;
    let said = client.chat(&Message::new("ada", QUESTION)).await?;
    let digits: String = said.chars().filter(char::is_ascii_digit).collect();
    assert!(digits.contains(PRODUCT), "{model} said {said:?}");
    let session = Message::new("ada", "").session();
    let history = client.finished(&session, 1).await?;
    let called = history.turns[0].messages.iter().flat_map(|message| &message.tool_uses);
    let names: Vec<&str> = called.map(|call| call.name.as_str()).collect();
    assert!(names.contains(&"calculate"), "{model} called {names:?}");
    let usage = &history.turns[0].usage;
    assert!(usage.input_tokens > 0 && usage.output_tokens > 0, "{usage:?}");
    node.kill().await?;

    // What it thought goes back to it out of the journal.
    let node = Node::up(&home).await?;
    let client = node.client()?;
    let more =
        Message { key: "more".to_owned(), ..Message::new("ada", "Say the product once more.") };
    assert!(!client.chat(&more).await?.is_empty(), "{model} said nothing");
    let history = client.finished(&session, 2).await?;
    for turn in &history.turns {
        assert!(matches!(turn.outcome, Some(TurnOutcome::Completed { .. })), "{turn:?}");
    }
    assert_eq!(sound(&home).await?, 1);
    node.stop().await
}
