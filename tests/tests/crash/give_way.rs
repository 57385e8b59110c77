//! Providers that fail: another model answers, or the turn waits and goes on by itself, whatever process it is
//! in by then (GIVE-1).

use clawnode_proto::{session::TurnOutcome, view::EventView};
use clawnode_tests::{
    model::{Act, ModelServer, Reply, Script, Setup, Step},
    process::{Home, Message, Node, sound},
};
use serde_json::{Value, json};

use super::support::{Outcome, Scene, Under};

/// A refusal that the provider layer does not try again.
fn busy() -> Act {
    Act::status_with(503, "busy", "x-should-retry", "false")
}

/// A scene whose agent has these settings; its second model is that of the server.
async fn scene(
    under: Under,
    acts: impl IntoIterator<Item = Act>,
    agent: &str,
) -> (Scene, ModelServer) {
    let api_key = Some(Home::key().to_owned());
    let script = Script::default().turn("go", [Act::say("whole.")]);
    let second = ModelServer::start(Setup { api_key, ..Setup::from(script) }).await.unwrap();
    let mut scene = Scene::on(under, Script::queue(acts)).await;
    let settings = scene.home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    std::fs::write(settings.join("config.toml"), format!("[agents.default]\n{agent}\n")).unwrap();
    scene.home = scene.home.openai(&second);
    (scene, second)
}

const CHAIN: &str = "model = \"anthropic/scripted\"\nfallback = [\"openai/scripted\"]";

/// How often the journal of the message's session has events of these kinds.
async fn journaled(
    node: &Node,
    message: &Message,
    kinds: [&str; 3],
) -> Result<[usize; 3], clawnode_tests::process::ProcessError> {
    let events = node.client()?.journal::<EventView>(&message.session()).await?;
    Ok(kinds.map(|kind| events.iter().filter(|event| event.kind == kind).count()))
}

const KINDS: [&str; 3] = ["model_gave_way", "model_done", "model_failed"];

#[tokio::test]
async fn a_kill_about_a_give_way_costs_no_turn_and_no_outcome() -> Outcome {
    // What was not recorded is made again, by the same model; what was is not.
    for (point, refused) in [("before-give-way", 2), ("after-give-way", 1)] {
        let (mut scene, second) = scene(Under::Local, (0..refused).map(|_| busy()), CHAIN).await;
        let message = Message::new("ada", "go");
        scene.die_at(point, &message).await?;
        let node = Node::up(&scene.home).await?;
        assert_eq!(node.client()?.chat(&message).await?, "whole.", "at `{point}`");
        assert_eq!(scene.server.count(), refused, "at `{point}`");
        assert_eq!(journaled(&node, &message, KINDS).await?, [1, 1, 0], "at `{point}`");
        assert!(second.count() >= 1);
        node.stop().await?;
        assert!(sound(&scene.home).await? > 0);
    }
    Ok(())
}

#[tokio::test]
async fn another_provider_finishes_what_one_broke_off() -> Outcome {
    let begun = || Step::Text { text: "I am beg".to_owned() };
    let cut = || Act::Reply(Reply::steps([begun(), Step::Flush, Step::Cut]));
    let (scene, second) = scene(Under::Local, [cut(), cut()], CHAIN).await;
    let node = Node::up(&scene.home).await?;
    let message = Message::new("ada", "go");
    let mut turn = node.client()?.send(&message).await?;
    let (mut text, mut notices) = (String::new(), Vec::new());
    loop {
        let frame = turn.next().await?;
        match frame.event.as_str() {
            "text" => text.push_str(frame.data.as_str().unwrap()),
            "reset" => text.clear(),
            "notice" => notices.push(frame.data["name"].as_str().unwrap().to_owned()),
            "done" => break,
            _ => {}
        }
    }
    assert_eq!((text.as_str(), second.count()), ("whole.", 1));
    assert_eq!(notices.last().map(String::as_str), Some("model_gave_way"), "{notices:?}");
    let history = node.client()?.history(&message.session()).await?;
    assert!(matches!(history.turns[0].outcome, Some(TurnOutcome::Completed { .. })));
    node.stop().await
}

/// A turn that waits is killed with its process, and goes on in the next one.
async fn waits(under: Under) -> Outcome {
    let (scene, _second) = scene(under, [busy(), Act::say("back.")], "outage = \"3s\"").await;
    let node = Node::up(&scene.home).await?;
    let message = Message::new("ada", "go");
    let mut turn = node.client()?.send(&message).await?;
    loop {
        let frame = turn.next().await?;
        if frame.event == "notice" && frame.data["name"] == "provider_down" {
            break;
        }
        assert_ne!(frame.event, "done", "{frame:?}");
    }
    let client = node.client()?;
    let counted = |status: &Value| status["outages"] == 1;
    client.call_when::<Value>("status", json!({}), counted).await?;
    node.kill().await?;
    let node = Node::up(&scene.home).await?;
    assert_eq!(node.client()?.chat(&message).await?, "back.");
    assert_eq!(scene.server.count(), 2);
    assert_eq!(journaled(&node, &message, KINDS).await?, [1, 1, 0]);
    node.stop().await
}

#[tokio::test]
async fn a_turn_that_waits_for_its_provider_outlives_its_process() -> Outcome {
    waits(Under::Local).await
}

#[tokio::test]
async fn a_turn_that_waits_for_its_provider_moves_to_another_process() -> Outcome {
    waits(Under::Nats).await
}

/// OpenAI's API has no `top_k`: the turn waits for the model that takes it.
#[tokio::test]
async fn a_model_that_does_not_take_a_setting_is_not_asked_instead() -> Outcome {
    let agent = format!("{CHAIN}\noutage = \"3s\"");
    let (scene, second) = scene(Under::Local, [busy(), Act::say("back.")], &agent).await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let body = json!({ "model": "default", "max_tokens": 100, "top_k": 5,
        "messages": [{ "role": "user", "content": "go" }] });
    let url = format!("{}/v1/messages", client.url());
    let request = reqwest::Client::new().post(url).header("x-api-key", client.token());
    let answer: Value = request.json(&body).send().await.unwrap().json().await.unwrap();
    assert_eq!(answer["content"][0]["text"], "back.", "{answer}");
    assert_eq!((scene.server.count(), second.count()), (2, 0));
    let calls = scene.server.calls();
    let asked: Value = serde_json::from_slice(&calls[1].body).unwrap();
    assert_eq!(asked["top_k"], 5, "{asked}");
    node.stop().await
}

/// Anthropic's API has no `seed`. The agent's own model has, and is not asked instead.
#[tokio::test]
async fn a_setting_that_the_model_of_a_session_does_not_take_is_refused_by_name() -> Outcome {
    let agent = "model = \"openai/scripted\"\nmodels = [\"anthropic/*\"]";
    let (scene, second) = scene(Under::Local, ["chosen."; 2].map(Act::say), agent).await;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let post = async |path: &str, key: &str, body: Value| {
        let request = reqwest::Client::new().post(format!("{}{path}", client.url()));
        let request = request.header("idempotency-key", key).bearer_auth(client.token());
        let answer = request.json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let messages = |user: &str| format!("/v1/sessions/default:openai:default:{user}/messages");
    let chosen = json!({ "content": "hi", "model": "anthropic/scripted", "keep": ["model"] });
    let (status, answer) = post(&messages("ada"), "choice", chosen.clone()).await;
    assert_eq!((status, scene.server.count()), (200, 1), "{answer}");
    let seeded = |user: &str| {
        json!({ "model": "default", "user": user, "seed": 7,
            "messages": [{ "role": "user", "content": "go" }] })
    };
    let (status, answer) = post("/v1/chat/completions", "seed", seeded("ada")).await;
    assert_eq!(status, 400, "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    let what = "parameter `seed`: model `anthropic/scripted` does not take it";
    assert!(message.contains(what) && message.contains("chosen for this session"), "{message}");
    assert_eq!((scene.server.count(), second.count()), (1, 0), "no model was asked");
    // Without that choice, the agent's own model takes it.
    let (status, first) = post("/v1/chat/completions", "seed", seeded("bob")).await;
    assert_eq!((status, second.count()), (200, 1), "{first}");
    // What was accepted before a choice is not judged by it when it is repeated.
    let (status, answer) = post(&messages("bob"), "choice", chosen).await;
    assert_eq!((status, scene.server.count()), (200, 2), "{answer}");
    let (status, again) = post("/v1/chat/completions", "seed", seeded("bob")).await;
    assert_eq!((status, &again["choices"]), (200, &first["choices"]), "{again}");
    assert_eq!((scene.server.count(), second.count()), (2, 1), "no model was asked again");
    node.stop().await
}

#[tokio::test]
async fn an_outage_that_lasts_ends_the_turn() -> Outcome {
    let (scene, _second) = scene(Under::Local, [busy(), busy()], "outage = \"1s\"").await;
    let node = Node::up(&scene.home).await?;
    let message = Message::new("ada", "go");
    let error = node.client()?.chat(&message).await.unwrap_err();
    let refusal = error.refusal().unwrap_or_else(|| panic!("{error}"));
    assert_eq!(refusal.code, clawnode_proto::ErrorCode::ProviderOverloaded);
    assert_eq!(journaled(&node, &message, KINDS).await?, [1, 0, 1]);
    node.stop().await
}
