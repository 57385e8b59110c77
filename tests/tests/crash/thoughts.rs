//! Thoughts in flight: a process dies in a round of tools, another goes on, and the provider, which
//! refuses a thought that is missing, altered or in another place, takes what it is sent (LLM-2).

use clawnode_proto::{block::Block, session::TurnOutcome};
use clawnode_tests::{
    effects::EffectCounter,
    model::{Act, Reply, Script, Step, WireName},
    process::{Message, Node},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::support::{Outcome, Scene, Under};

/// Bytes of a thought that is too long for its event.
const LONG: usize = 40 << 10;

fn think(text: &str) -> Step {
    Step::Thinking { text: text.to_owned() }
}

/// Two rounds of tools, with thoughts between all that is said, and the answer.
fn script() -> Script {
    let say = |text: &str| Step::Text { text: text.to_owned() };
    let call = |name: &str| Step::tools([(name, json!({}))]);
    let first = [
        think("Wo ist Köln 🦀?"),
        say("I look."),
        Step::Redacted { data: "secret".to_owned() },
        think(&"é".repeat(LONG / 2)),
        call("effect_once"),
    ];
    let acts: [Act; 3] = [
        Reply::steps(first).into(),
        Reply::steps([think("Again."), call("effect_safe")]).into(),
        Reply::steps([think("So."), say("There.")]).into(),
    ];
    Script::default().turn("go", acts)
}

/// What the turn says in the end.
pub(crate) const SAID: &str = "I look.\n\nThere.";

/// A scene whose agent thinks, on this wire, and has tools whose effects are counted.
pub(crate) async fn stage(under: Under, wire: WireName) -> (Scene, EffectCounter, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let counter = EffectCounter::start(dir.path()).await.unwrap();
    let mut scene = Scene::on(under, script()).await;
    let settings = scene.home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    let of_server = |name: &str, wire: &str, url: &str| {
        format!(
            "[providers.{name}]\nwire = \"{wire}\"\nbase_url = \"{url}\"\n\
             api_key_env = \"ANTHROPIC_API_KEY\"\n"
        )
    };
    let (model, provider) = match wire {
        WireName::Anthropic => ("", String::new()),
        WireName::Openai => ("model = \"openai/scripted\"\n", String::new()),
        WireName::OpenaiResponses => {
            let url = scene.server.openai_url();
            let provider = of_server("responses", "openai_responses", &url);
            ("model = \"responses/scripted\"\n", provider)
        }
        WireName::Gemini => ("model = \"gemini/scripted\"\n", String::new()),
        WireName::Ollama => {
            let provider = of_server("ollama", "ollama", &scene.server.url());
            ("model = \"ollama/scripted\"\n", provider)
        }
        WireName::Bedrock => {
            let provider = of_server("bedrock", "bedrock", &scene.server.url());
            // Not every model there thinks.
            ("model = \"bedrock/eu.anthropic.claude-sonnet-4-5-20250929-v1:0\"\n", provider)
        }
    };
    let config = format!(
        "{provider}[agents.default]\n{model}reasoning = \"high\"\ntools = [\"effect_once\", \"effect_safe\"]\n"
    );
    std::fs::write(settings.join("config.toml"), config).unwrap();
    scene = scene.with_var("CLAWNODE_TEST_EFFECTS", &counter.url());
    if wire == WireName::Openai {
        scene.home = scene.home.openai(&scene.server);
    } else if wire == WireName::Gemini {
        scene.home = scene.home.gemini(&scene.server);
    }
    (scene, counter, dir)
}

/// A turn on a wire whose process dies at `point`; all of it is in the journal, and went back.
async fn hit(under: Under, point: &str, wire: WireName) -> Outcome {
    let (mut scene, _counter, _dir) = stage(under, wire).await;
    let message = Message::new("ada", "go");
    scene.die_at(point, &message).await?;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    assert_eq!(client.chat(&message).await?, SAID, "at `{point}`");
    let history = client.history(&message.session()).await?;
    let turn = &history.turns[0];
    assert!(matches!(turn.outcome, Some(TurnOutcome::Completed { .. })), "{turn:?}");
    let thoughts =
        turn.messages.iter().flat_map(|message| &message.blocks).flat_map(|blocks| &blocks.list);
    let texts = thoughts.filter_map(|block| match block {
        Block::Thinking { text, .. } => text.inline(),
        _ => None,
    });
    let long = "é".repeat(LONG / 2);
    assert!(texts.eq(["Wo ist Köln 🦀?", &long, "Again.", "So."]), "at `{point}`");
    node.stop().await?;

    let asked = scene.server.calls();
    let last: Value = serde_json::from_slice(&asked.last().unwrap().body).unwrap();
    let (sent, told, how) = match wire {
        WireName::OpenaiResponses => (&last["input"], &last["reasoning"]["effort"], "high"),
        WireName::Gemini => {
            let config = &last["generationConfig"]["thinkingConfig"];
            (&last["contents"], &config["thinkingLevel"], "high")
        }
        WireName::Openai => (&last["messages"], &last["reasoning_effort"], "high"),
        _ => (&last["messages"], &last["thinking"]["type"], "enabled"),
    };
    assert_eq!(told, how, "at `{point}`");
    let sent = sent.to_string();
    if wire == WireName::Gemini {
        // Its thoughts have no signatures of their own; its calls have.
        assert_eq!(sent.matches("thoughtSignature").count(), 2, "at `{point}`: {sent}");
        assert!(!sent.contains("skip_thought"), "at `{point}`: {sent}");
    } else {
        assert!(sent.contains("Wo ist Köln 🦀?") && sent.contains(&long), "at `{point}`");
    }
    assert_eq!(scene.server.take_violations(), Vec::<String>::new(), "at `{point}`");
    Ok(())
}

#[tokio::test]
async fn thoughts_of_a_round_outlive_the_process_that_heard_them() -> Outcome {
    for point in ["before-outcome", "before-job", "before-done", "after-result"] {
        hit(Under::Local, point, WireName::Anthropic).await?;
    }
    Ok(())
}

#[tokio::test]
async fn thoughts_without_a_signature_go_back_after_a_kill_too() -> Outcome {
    hit(Under::Local, "after-result", WireName::Openai).await
}

#[tokio::test]
async fn signatures_and_reasoning_items_go_back_after_a_kill_too() -> Outcome {
    for wire in [WireName::Gemini, WireName::OpenaiResponses] {
        hit(Under::Local, "after-result", wire).await?;
    }
    Ok(())
}

#[tokio::test]
async fn thoughts_go_back_from_another_process_of_a_cluster() -> Outcome {
    hit(Under::Nats, "after-result", WireName::Anthropic).await
}
