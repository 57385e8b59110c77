//! A model looks back at turns, and what it writes, or finds in what the person said, is in the memory of the person.

use std::fs;

use clawnode_proto::{
    SessionKey, TurnId,
    feedback_view::{FeedbackView, ReflectionRow},
    memory::{MemoryLayer, MemoryTrust},
    memory_view::{MemoryPointView, MemoryPoints},
    usage::UsageView,
};
use clawnode_tests::{
    model::{Act, ModelServer, Reply, Script, Step},
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Message, Node, ProcessError, TestBackend},
    wait::until,
};
use serde_json::{Value, json};

use super::Outcome;

const CONFIG: &str = "\
[agents.default]
model = \"anthropic/claude-sonnet-4-5\"
compact_model = \"openai/gpt-4o-mini\"
tools = [\"recall\"]
rules = [{ tool = \"*\", verdict = \"allow\" }]
[agents.default.memory]
layers = [\"procedural\"]
reflect = \"model\"
";
/// Without passages of the other conversation.
const EXTRACTS: &str = "\
[agents.default]
model = \"anthropic/claude-sonnet-4-5\"
compact_model = \"openai/gpt-4o-mini\"
[agents.default.memory]
layers = [\"semantic\"]
extract = \"model\"
";
const OF_ADA: &str = "default/peer/test:a:ada";
const LESSON: &str = "Always search for the build flag before the build.";
const RATED: &str =
    r#"{"rating":4,"lessons":["Always search for the build flag before the build."]}"#;
/// Turns after which one was shown what it was looked for, also on a busy machine.
const TURNS_MOST: usize = 20;

/// A node, and the servers of its two models.
struct Scene {
    home: Home,
    chats: ModelServer,
    looks_back: ModelServer,
}

impl Scene {
    async fn new(backend: TestBackend, acts: Vec<Act>) -> Result<Self, ProcessError> {
        Self::with(CONFIG, backend, acts).await
    }

    async fn with(
        config: &str,
        backend: TestBackend,
        acts: Vec<Act>,
    ) -> Result<Self, ProcessError> {
        let chats = ModelServer::start(Script::default()).await.unwrap();
        let looks_back = ModelServer::start(Script::queue(acts)).await.unwrap();
        let home = Home::new(backend)?.anthropic(&chats).openai(&looks_back);
        let settings = home.path().join(".config/clawnode");
        fs::create_dir_all(&settings).unwrap();
        fs::write(settings.join("config.toml"), config).unwrap();
        Ok(Self { home, chats, looks_back })
    }

    /// A turn with five calls of tools.
    async fn works(&self, client: &Client, text: &str) -> Result<Message, ProcessError> {
        let words = ["build", "flag", "cache", "target", "lock"];
        let calls = words.map(|word| ("recall", json!({ "query": word })));
        self.chats.push(Act::tools(calls));
        let message = Message::new("ada", text);
        client.chat(&message).await?;
        Ok(message)
    }
}

async fn points(client: &Client) -> Result<Vec<MemoryPointView>, ProcessError> {
    let params = json!({ "memory": OF_ADA, "all": true });
    // A memory begins with its first point.
    let shown = client.call::<MemoryPoints>("memory.show", params).await;
    Ok(shown.map(|shown| shown.points).unwrap_or_default())
}

/// The reflections of a session, once there are so many.
async fn reflections(
    client: &Client,
    session: &str,
    count: usize,
) -> Result<Vec<ReflectionRow>, ProcessError> {
    until("a model has looked back", async || {
        let params = json!({ "session": session });
        let view: FeedbackView = client.call("feedback.list", params).await?;
        Ok((view.reflections.len() >= count).then_some(view.reflections))
    })
    .await
}

/// Asks over HTTP; the status, and the body.
async fn asks(client: &Client, session: &str, body: Value) -> (u16, Value) {
    let url = format!("{}/v1/sessions/{session}/reflect", client.url());
    let request = reqwest::Client::builder().no_proxy().build().unwrap().post(url);
    let answer = request.bearer_auth(client.token()).json(&body).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// Another conversation of the same person finds the lesson, as that of an agent.
async fn is_found_as_data(scene: &Scene, client: &Client) -> Outcome {
    for turn in 0.. {
        assert!(turn < TURNS_MOST, "no turn was shown the lesson");
        client.chat(&Message::new("ada~2", &format!("{turn}: which build flag?"))).await?;
        let asked = String::from_utf8_lossy(&scene.chats.calls().pop().unwrap().body).into_owned();
        assert!(!asked.contains("<standing>"), "S-22: no agent gives standing instructions");
        if asked.contains(LESSON) {
            assert!(asked.contains(r#"said_by=\"agent\""#), "S-22: {asked}");
            return Ok(());
        }
    }
    Ok(())
}

async fn looks_back(backend: TestBackend) -> Outcome {
    let acts = vec![Act::say(RATED), Act::say("It went well.")];
    let scene = Scene::new(backend, acts).await?;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let message = scene.works(&client, "Fix the build.").await?;
    let session = message.session();
    let learned = until("the lesson is in the memory", async || {
        Ok(points(&client).await?.into_iter().next())
    })
    .await?;
    assert_eq!((learned.text.as_str(), learned.layer), (LESSON, MemoryLayer::Procedural));
    assert_eq!(learned.trust, MemoryTrust::Agent);
    let key: SessionKey = session.parse().unwrap();
    assert_eq!(learned.source.entity, key.entity());
    let journal: Vec<Value> = client.journal(&session).await?;
    let event = journal.iter().find(|event| event["n"] == json!(learned.source.event)).unwrap();
    assert_eq!(event["kind"], "reflected", "MEM-3: {event}");

    let rows = reflections(&client, &session, 1).await?;
    assert_eq!((rows[0].rating, rows[0].lessons.len(), &rows[0].failure), (Some(4), 1, &None));
    assert_eq!(rows[0].by.as_ref().unwrap().to_string(), "openai/gpt-4o-mini");
    let listed = scene.home.run(&["feedback", &session]).await?;
    assert!(listed.out.contains("4/5 by openai/gpt-4o-mini"), "{listed:?}");
    let asked = String::from_utf8_lossy(&scene.looks_back.calls()[0].body).into_owned();
    assert!(asked.contains("Fix the build.") && asked.contains("recall"), "{asked}");
    assert!(!asked.contains("<recalled>"), "S-22: no result of a tool: {asked}");
    let history = serde_json::to_string(&client.history(&session).await?).unwrap();
    assert!(!history.contains(LESSON), "it is no part of the conversation");
    is_found_as_data(&scene, &client).await?;

    // A person asks for another one, whose reply does not fit.
    let asked = scene.home.run(&["memory", "reflect", &session]).await?;
    assert_eq!(asked.code, 0, "{asked:?}");
    let rows = reflections(&client, &session, 2).await?;
    assert_eq!((rows[1].rating, rows[1].turn), (None, rows[0].turn));
    assert!(rows[1].failure.is_some(), "{rows:?}");
    assert_eq!(points(&client).await?.len(), 1, "it changes nothing");
    let unknown = TurnId::from_u128(7).to_string();
    let (status, answer) = asks(&client, &session, json!({ "turn": unknown })).await;
    assert_eq!((status, &answer["code"]), (404, &json!("not_found")), "{answer}");
    let usage: UsageView = client
        .call_when("usage.show", json!({ "by": "model" }), |view: &UsageView| view.behind_ms == 0)
        .await?;
    let row = usage.rows.iter().find(|row| row.name.contains("gpt-4o-mini"));
    assert_eq!(row.map(|row| (row.calls.done, row.calls.failed)), Some((1, 1)), "{usage:?}");
    node.stop().await?;
    // Without a node, only a data directory can be read.
    if matches!(scene.home.backend(), TestBackend::Local) {
        let replayed = scene.home.run(&["journal", "replay", &session]).await?;
        assert_eq!(replayed.code, 0, "{replayed:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_model_looks_back_at_a_long_turn() -> Outcome {
    looks_back(TestBackend::Local).await
}

#[tokio::test]
async fn a_model_looks_back_at_a_long_turn_on_nats() -> Outcome {
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    looks_back(TestBackend::Nats { url: nats.url(), prefix: "reflect".to_owned() }).await
}

/// A person is answered while a model that never answers looks back; what was asked for later is made.
#[tokio::test]
async fn a_message_does_not_wait_for_a_reflection() -> Outcome {
    let gated = Reply::steps([Step::Gate { name: "never".to_owned() }]);
    let acts = vec![Act::Reply(gated), Act::say(RATED)];
    let scene = Scene::new(TestBackend::Local, acts).await?;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let message = scene.works(&client, "Fix the build.").await?;
    let session = message.session();
    scene.looks_back.asked(1).await;
    let answered = client.chat(&Message::new("ada", "and now?")).await?;
    assert!(answered.contains("and now?"), "{answered}");
    let rows = reflections(&client, &session, 1).await?;
    assert_eq!(rows[0].failure.as_deref(), Some("a message came first"));
    assert_eq!(scene.looks_back.calls().len(), 1, "it is not made again by itself");

    let wanted = json!({ "turn": rows[0].turn, "idempotency_key": "1" });
    for _ in 0..2 {
        let asked = asks(&client, &session, wanted.clone()).await;
        assert_eq!(asked, (200, json!({ "ok": true })));
    }
    let rows = reflections(&client, &session, 2).await?;
    assert_eq!((rows.len(), rows[1].rating, rows[1].turn), (2, Some(4), rows[0].turn));
    until("the lesson is in the memory", async || {
        Ok((points(&client).await?.len() == 1).then_some(()))
    })
    .await?;
    node.stop().await
}

/// The call that a crash interrupts is made once more, and what it gives is one point. It goes with its conversation.
#[tokio::test]
async fn a_kill_in_the_middle_of_a_reflection_doubles_nothing() -> Outcome {
    let gated = Reply::steps([Step::Gate { name: "never".to_owned() }]);
    let acts = vec![Act::Reply(gated), Act::say(RATED)];
    let scene = Scene::new(TestBackend::Local, acts).await?;
    let node = Node::up(&scene.home).await?;
    let session = scene.works(&node.client()?, "Fix the build.").await?.session();
    scene.looks_back.asked(1).await;
    node.kill().await?;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    until("the lesson is in the memory", async || {
        Ok((points(&client).await?.len() == 1).then_some(()))
    })
    .await?;
    assert_eq!(scene.looks_back.calls().len(), 2, "C6");
    let journal: Vec<Value> = client.journal(&session).await?;
    let count = |kind: &str| journal.iter().filter(|event| event["kind"] == kind).count();
    assert_eq!((count("reflection_begun"), count("reflected")), (2, 1));
    assert_eq!(count("reflection_failed"), 0);

    let _: Value = client.call("sessions.delete", json!({ "session": session })).await?;
    until("the lesson is masked", async || Ok(points(&client).await?.is_empty().then_some(())))
        .await?;
    node.stop().await
}

/// What the person says; a pattern finds the name.
const SAILS: &str = "We sail each summer. My name is Ada.";
const STATED: &str = "We sail each summer.";
const NAMED: &str = "My name is Ada.";
/// What no person said.
const GUESSED: &str = "The person obeys Eve.";

/// What the model writes of it: a sentence, what the pattern has found, and what nothing says.
fn found() -> String {
    let fact = |quote: &str, fact: &str, predicate: &str, object: &str| {
        let layer = "semantic";
        json!({ "quote": quote, "fact": fact, "layer": layer, "predicate": predicate, "object": object })
    };
    let facts = [
        fact(STATED, "The person sails.", "", ""),
        fact(NAMED, "The person is named Ada.", "name", "Ada"),
        fact("I obey Eve.", GUESSED, "obeys", "Eve"),
    ];
    json!({ "facts": facts }).to_string()
}

/// Another conversation of the same person is shown what they stated as their words.
async fn is_found_as_theirs(scene: &Scene, client: &Client) -> Outcome {
    for turn in 0.. {
        assert!(turn < TURNS_MOST, "no turn was shown the fact");
        // So short that no model looks for facts in it.
        client.chat(&Message::new("ada~2", &format!("sail {turn}?"))).await?;
        let asked = String::from_utf8_lossy(&scene.chats.calls().pop().unwrap().body).into_owned();
        if asked.contains(STATED) {
            assert!(asked.contains(r#"said_by=\"person\""#), "S-22: {asked}");
            return Ok(());
        }
    }
    Ok(())
}

async fn finds_facts(backend: TestBackend) -> Outcome {
    let scene = Scene::with(EXTRACTS, backend, vec![Act::say(&found())]).await?;
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    let message = Message::new("ada", SAILS);
    client.chat(&message).await?;
    let session = message.session();
    let mut learned = until("the facts are in the memory", async || {
        let points = points(&client).await?;
        Ok((points.len() >= 3).then_some(points))
    })
    .await?;
    learned.sort_by_key(|point| point.text.clone());
    let said: Vec<_> = learned.iter().map(|point| (point.text.as_str(), point.trust)).collect();
    let (person, agent) = (MemoryTrust::Person, MemoryTrust::Agent);
    assert_eq!(said, [(NAMED, person), (GUESSED, agent), (STATED, person)], "S-22");
    let journal: Vec<Value> = client.journal(&session).await?;
    let kinds: Vec<&Value> = learned
        .iter()
        .filter_map(|point| journal.iter().find(|event| event["n"] == json!(point.source.event)))
        .map(|event| &event["kind"])
        .collect();
    assert_eq!(kinds, ["accepted", "reflected", "reflected"], "MEM-3");

    let asked = String::from_utf8_lossy(&scene.looks_back.calls()[0].body).into_owned();
    assert!(asked.contains("We sail each summer."), "{asked}");
    let view: FeedbackView = client.call("feedback.list", json!({ "session": &session })).await?;
    assert!(view.reflections.is_empty(), "facts are no rating: {view:?}");
    is_found_as_theirs(&scene, &client).await?;
    assert_eq!(scene.looks_back.calls().len(), 1, "short messages cost no call");
    let usage: UsageView = client
        .call_when("usage.show", json!({ "by": "model" }), |view: &UsageView| view.behind_ms == 0)
        .await?;
    let row = usage.rows.iter().find(|row| row.name.contains("gpt-4o-mini"));
    assert_eq!(row.map(|row| (row.calls.done, row.calls.failed)), Some((1, 0)), "{usage:?}");
    node.stop().await?;
    // Without a node, only a data directory can be read.
    if matches!(scene.home.backend(), TestBackend::Local) {
        let replayed = scene.home.run(&["journal", "replay", &session]).await?;
        assert_eq!(replayed.code, 0, "{replayed:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_model_finds_facts_in_what_a_person_said() -> Outcome {
    finds_facts(TestBackend::Local).await
}

#[tokio::test]
async fn a_model_finds_facts_in_what_a_person_said_on_nats() -> Outcome {
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    finds_facts(TestBackend::Nats { url: nats.url(), prefix: "extract".to_owned() }).await
}
