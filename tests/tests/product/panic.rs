//! An operator's stop: what runs ends, nothing begins, every client is informed, and it lasts until
//! it is cleared.

use clawnode_proto::{
    ErrorCode,
    kill_switch::{PanicView, SwitchList},
    llm::Role,
    overview::{FeedView, NodeList},
    session::TurnOutcome,
    view::{HistoryView, StatusView, TurnView},
};
use clawnode_tests::{
    effects::EffectCounter,
    model::{ModelServer, Reply, Script, Setup, Step},
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Message, Node, ProcessError, Start, TestBackend, Turn},
    wait::until,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Outcome;

/// What the model answers slowly: it says a word, and waits at a gate for ever.
const SLOW: &str = "tell me everything";

/// How often nodes may be late. A command waits 2 s for them.
const LATE_MOST: usize = 5;

/// A model, a counter of effects, and nodes that may be stopped.
struct Scene {
    home: Home,
    nodes: Vec<Node>,
    client: Client,
    counter: EffectCounter,
    server: ModelServer,
    nats: Option<NatsServer>,
    _dir: TempDir,
}

fn script() -> Script {
    let said = Step::Text { text: "well".to_owned() };
    let gate = Step::Gate { name: "never".to_owned() };
    let slow = vec![Reply::steps(vec![said, gate]).into()];
    Script { on: [(SLOW.to_owned(), slow.into())].into(), ..Script::default() }
}

fn named(role: Option<&'static str>, name: &str) -> Start {
    let vars = vec![("CLAWNODE_NODE__NAME", name.to_owned())];
    Start { role, vars, ..Start::default() }
}

impl Scene {
    /// One process on its own directory.
    async fn local() -> Result<Self, ProcessError> {
        Self::on(None, vec![named(None, "alone")]).await
    }

    /// One gateway and two workers.
    async fn cluster() -> Result<Self, ProcessError> {
        let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
        let starts = vec![
            named(Some("gateway"), "front"),
            named(Some("worker"), "worker-1"),
            named(Some("worker"), "worker-2"),
        ];
        Self::on(Some(nats), starts).await
    }

    async fn on(nats: Option<NatsServer>, starts: Vec<Start>) -> Result<Self, ProcessError> {
        let dir = tempfile::tempdir().unwrap();
        let counter = EffectCounter::start(dir.path()).await.unwrap();
        let setup = Setup { api_key: Some(Home::key().to_owned()), ..Setup::from(script()) };
        let server = ModelServer::start(setup).await.unwrap();
        let backend = nats.as_ref().map_or(TestBackend::Local, |nats| TestBackend::Nats {
            url: nats.url(),
            prefix: "panic".to_owned(),
        });
        let home = Home::new(backend)?.anthropic(&server);
        let home = home.var("CLAWNODE_CLUSTER__PARTITIONS", "8");
        let home = home.var("CLAWNODE_TEST_EFFECTS", &counter.url());
        let settings = home.path().join(".config/clawnode");
        std::fs::create_dir_all(&settings).unwrap();
        let config = "[agents.default]\ntools = [\"effect_safe\", \"effect_once\"]\n";
        std::fs::write(settings.join("config.toml"), config).unwrap();
        let count = starts.len();
        let mut nodes = Vec::new();
        for start in starts {
            nodes.push(Node::start(&home, start).await?);
        }
        let client = nodes[0].client()?;
        let all = |list: &NodeList| list.nodes.len() == count;
        let _: NodeList = client.call_when("nodes.list", json!({}), all).await?;
        Ok(Self { home, nodes, client, counter, server, nats, _dir: dir })
    }

    /// A command's document, and its exit code.
    async fn command<T: serde::de::DeserializeOwned>(
        &self,
        args: &[&str],
    ) -> Result<(T, i32), ProcessError> {
        let ended = self.home.run(&[args, &["--json"]].concat()).await?;
        let value = ended.json()?;
        Ok((serde_json::from_value(value).unwrap(), ended.code))
    }

    /// Stops something by one command. All nodes are up, so a node can only answer later than the command waits, on a
    /// busy machine. Then the command asks them again about the same stop, and sets none: what they acknowledge is the
    /// first one.
    async fn panics(&self, args: &[&str]) -> Result<PanicView, ProcessError> {
        let command = [&["panic"], args].concat();
        let (mut view, mut code): (PanicView, i32) = self.command(&command).await?;
        assert!(!view.already, "{view:?}");
        assert!(
            view.nodes.iter().any(|ack| ack.acknowledged_ms.is_some()),
            "who sets it: {view:?}"
        );
        let first = view.switch.clone();
        for _ in 0..LATE_MOST {
            if code == 0 {
                break;
            }
            for ack in view.nodes.iter().filter(|ack| ack.dead_ms.is_none()) {
                let is_late = ack.problem.as_deref().is_none_or(|why| why == "no answer in time");
                assert!(is_late, "{view:?}");
            }
            (view, code) = self.command(&command).await?;
            assert!(view.already && view.switch == first, "{view:?}");
        }
        assert_eq!(code, 0, "{view:?}");
        Ok(view)
    }

    /// Waits until so many effects have happened.
    async fn effects(&self, count: usize) -> Outcome {
        until("effects", async || Ok((self.counter.total().unwrap() == count).then_some(()))).await
    }

    /// The only turns of a session, once all have ended.
    async fn turns(&self, message: &Message, count: usize) -> Result<HistoryView, ProcessError> {
        self.client.finished(&message.session(), count).await
    }

    async fn kinds(&self, message: &Message) -> Result<Vec<String>, ProcessError> {
        let events: Vec<Value> = self.client.journal(&message.session()).await?;
        Ok(events.iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect())
    }

    async fn stop(self) -> Outcome {
        for node in self.nodes {
            node.stop().await?;
        }
        self.server.stop().await.unwrap();
        Ok(())
    }
}

/// The error and the outcome that a turn ends with.
async fn end_of(turn: &mut Turn) -> Result<(Value, Value), ProcessError> {
    let mut error = Value::Null;
    loop {
        let frame = turn.next().await?;
        match frame.event.as_str() {
            "error" => error = frame.data,
            "done" => return Ok((error, frame.data["outcome"].clone())),
            _ => {}
        }
    }
}

/// What the model was shown of the tools of a turn: the text, and whether it is an error.
fn told(turn: &TurnView) -> Vec<(String, bool)> {
    let replies = turn.messages.iter().filter(|message| message.role == Role::User);
    replies
        .flat_map(|message| &message.tool_replies)
        .map(|reply| (reply.content.inline().unwrap_or_default().to_owned(), reply.is_error))
        .collect()
}

/// A message of several lines.
fn lines(peer: &str, content: &str) -> Message {
    Message { key: content.replace('\n', " "), ..Message::new(peer, content) }
}

/// A turn that has both tools running, which will not end by themselves.
async fn busy(scene: &Scene, peer: &str) -> Result<(Message, Turn), ProcessError> {
    let before = scene.counter.total().unwrap();
    scene.counter.hold(true);
    let message = lines(peer, "/tool effect_safe {}\n/tool effect_once {}");
    let turn = scene.client.send(&message).await?;
    scene.effects(before + 2).await?;
    Ok((message, turn))
}

/// New messages are refused in words; reading goes on, and everybody sees why.
async fn stops_are_seen(scene: &Scene) -> Outcome {
    let refused = scene.client.send(&Message::new("eve", "hello")).await.unwrap_err();
    let refusal = refused.refusal().unwrap();
    assert_eq!(refusal.code, ErrorCode::Stopped, "{refusal:?}");
    assert!(refusal.hint.as_ref().unwrap().contains("--clear"), "{refusal:?}");
    let status: StatusView = scene.client.call("status", json!({})).await?;
    assert_eq!(status.warnings[0].name, "panic.all", "{:?}", status.warnings);
    let ended = scene.home.run(&["status"]).await?;
    assert!(ended.out.contains("panic.all") && ended.out.contains("runs away"), "{ended:?}");
    let params = json!({ "limit": 1_000 });
    let _: FeedView = scene
        .client
        .call_when("events.list", params, |feed: &FeedView| {
            let has = |name: &str| feed.events.iter().any(|row| row.event.what.name() == name);
            // A client may hear of the end of a turn before operators do.
            has("latched") && has("turn_ended")
        })
        .await?;
    Ok(())
}

/// Kills the last node and starts it again; whether it was the one that clients speak to.
async fn restart_last(scene: &mut Scene) -> Result<bool, ProcessError> {
    scene.nodes.pop().unwrap().kill().await?;
    let alone = scene.nodes.is_empty();
    let start = if alone { named(None, "alone") } else { named(Some("worker"), "worker-2") };
    scene.nodes.push(Node::start(&scene.home, start).await?);
    if alone {
        scene.client = scene.nodes[0].client()?;
    }
    Ok(alone)
}

async fn everything_stops(mut scene: Scene) -> Outcome {
    // In the middle of a model's stream, in the middle of two tools, and one message that waits.
    let slow = Message::new("ada", SLOW);
    let mut streaming = scene.client.send(&slow).await?;
    streaming.begun().await?;
    let waits = Message::new("ada", "are you there?");
    let mut waiting = scene.client.send(&waits).await?;
    let (tools, mut running) = busy(&scene, "bob").await?;
    let effects = scene.counter.total().unwrap();

    let view = scene.panics(&["--why", "runs away"]).await?;
    assert_eq!(view.nodes.len(), scene.nodes.len(), "{view:?}");
    for ack in &view.nodes {
        let (acknowledged, dead) = (ack.acknowledged_ms.unwrap(), ack.dead_ms.unwrap());
        assert!(acknowledged <= dead && ack.running == 0, "{view:?}");
    }

    // The calls end, and say why.
    for turn in [&mut streaming, &mut running] {
        let (error, outcome) = end_of(turn).await?;
        assert_eq!(outcome["type"], "stopped", "{outcome}");
        assert!(outcome["detail"].as_str().unwrap().ends_with(": runs away"), "{outcome}");
        assert_eq!(error["code"], "stopped", "{error}");
        assert!(error["hint"].as_str().unwrap().contains("`clawnode status` shows"), "{error}");
    }
    // An effect that may have happened is not called undone.
    let kinds = scene.kinds(&tools).await?;
    let count = |kind: &str| kinds.iter().filter(|other| *other == kind).count();
    assert_eq!((count("tool_asked"), count("tool_done")), (2, 1), "{kinds:?}");
    assert_eq!((count("tool_uncertain"), count("turn_done")), (1, 1), "{kinds:?}");

    stops_are_seen(&scene).await?;

    // A node that starts while it is stopped takes nothing up.
    let asked = scene.server.count();
    if restart_last(&mut scene).await? {
        waiting = scene.client.resume(&waits.session(), &turn_of(&waits)).await?;
    }
    let again: PanicView = scene
        .client
        .call_when("panic", json!({}), |view: &PanicView| {
            view.nodes.len() == scene.nodes.len()
                && view.nodes.iter().all(|ack| ack.dead_ms.is_some())
        })
        .await?;
    assert!(again.already && again.switch == view.switch, "one kill switch for a scope: {again:?}");
    let history = scene.client.history(&waits.session()).await?;
    assert_eq!(history.turns.len(), 2, "{history:?}");
    assert_eq!(history.turns[1].outcome, None, "it waits, whole");
    assert_eq!(scene.server.count(), asked, "nothing was asked of the model");
    assert_eq!(scene.counter.total().unwrap(), effects, "no tool was run");

    // Only the kill switch that was shown is cleared; then what waited goes on.
    let wrong = scene.home.run(&["panic", "--clear", "--id", &other_switch()]).await?;
    assert_eq!(wrong.code, 1, "{wrong:?}");
    scene.counter.hold(false);
    let id = view.switch.id.to_string();
    let (cleared, code): (Vec<PanicView>, _) =
        scene.command(&["panic", "--clear", "--id", &id]).await?;
    assert_eq!((code, cleared[0].on), (0, false));
    waiting.completed().await?;
    let switches: SwitchList = scene.client.call("panic.list", json!({})).await?;
    assert_eq!(switches, SwitchList::default());
    scene.client.chat(&Message::new("eve", "hello again")).await?;
    let history = scene.turns(&slow, 2).await?;
    assert!(matches!(history.turns[0].outcome, Some(TurnOutcome::Stopped { .. })), "{history:?}");
    let verified = scene.home.run(&["journal", "verify"]).await?;
    assert_eq!(verified.code, 0, "{verified:?}");
    scene.stop().await
}

/// An id that no kill switch has.
fn other_switch() -> String {
    clawnode_proto::SwitchId::from_u128(1).to_string()
}

/// The turn that a message begins.
fn turn_of(message: &Message) -> String {
    let entity = message.session().parse::<clawnode_proto::SessionKey>().unwrap().entity();
    let input = clawnode_proto::InputId::derive(entity, &message.key.parse().unwrap());
    clawnode_proto::TurnId::from(input).to_string()
}

#[tokio::test]
async fn panic_stops_everything_until_it_is_cleared() -> Outcome {
    everything_stops(Scene::local().await?).await
}

#[tokio::test]
async fn panic_stops_everything_on_three_nodes_on_nats() -> Outcome {
    everything_stops(Scene::cluster().await?).await
}

#[tokio::test]
async fn a_frozen_tool_ends_and_other_tools_and_the_turn_go_on() -> Outcome {
    let scene = Scene::local().await?;
    let (message, mut turn) = busy(&scene, "ada").await?;
    let view = scene.panics(&["--tool", "effect_safe"]).await?;
    assert_eq!(view.nodes[0].running, 0, "{view:?}");
    scene.counter.hold(false);
    turn.completed().await?;
    let history = scene.turns(&message, 1).await?;
    let [(safe, true), (once, false)] = &told(&history.turns[0])[..] else {
        panic!("{history:?}");
    };
    assert!(safe.starts_with("stopped while it ran: tool `effect_safe` was stopped by"), "{safe}");
    assert_eq!(once, "done");

    // It is not run again, nor is whatever leaves for other machines.
    let again = Message::new("bob", "/tool effect_safe {}");
    scene.client.chat(&again).await?;
    scene.panics(&["--no-egress"]).await?;
    let egress = Message::new("eve", "/tool effect_once {}");
    scene.client.chat(&egress).await?;
    assert_eq!(scene.counter.total().unwrap(), 2, "neither was run");
    for (message, why) in [(&again, "tool `effect_safe`"), (&egress, "all that reaches out")] {
        let history = scene.turns(message, 1).await?;
        let [(text, true)] = &told(&history.turns[0])[..] else { panic!("{history:?}") };
        assert!(text.starts_with(&format!("not run: {why}")), "{text}");
    }
    let (cleared, _): (Vec<PanicView>, _) = scene.command(&["panic", "--clear"]).await?;
    assert_eq!(cleared.len(), 2);
    let free = lines("bob", "/tool effect_safe {}\n/then\n/tool effect_once {}");
    scene.client.chat(&free).await?;
    assert_eq!(scene.counter.total().unwrap(), 4);
    scene.stop().await
}

#[tokio::test]
async fn a_stopped_agent_ends_its_turns_and_keeps_its_messages() -> Outcome {
    let scene = Scene::local().await?;
    let mut streaming = scene.client.send(&Message::new("ada", SLOW)).await?;
    streaming.begun().await?;
    let (view, _): (PanicView, _) = scene.command(&["panic", "--agent", "default"]).await?;
    let (_, outcome) = end_of(&mut streaming).await?;
    assert_eq!(outcome["type"], "stopped", "{outcome}");
    let mut waiting = scene.client.send(&Message::new("bob", "hello")).await?;
    let resumed = scene.home.run(&["agents", "resume", "default"]).await?;
    assert!(resumed.code == 1 && resumed.err.contains("panic --clear"), "{resumed:?}");
    let listed = scene.home.run(&["agents", "list"]).await?;
    assert!(listed.out.contains("stopped"), "{listed:?}");
    assert_eq!(scene.server.count(), 1);
    let id = view.switch.id.to_string();
    let (_, code): (Vec<PanicView>, _) = scene.command(&["panic", "--clear", "--id", &id]).await?;
    assert_eq!(code, 0);
    waiting.completed().await?;
    scene.stop().await
}

#[tokio::test]
async fn a_frozen_node_is_seen_not_to_acknowledge_on_nats_and_follows_when_it_thaws() -> Outcome {
    let scene = Scene::cluster().await?;
    let frozen = scene.nodes[2].process();
    scene.nodes[2].signal(Signal::STOP)?;
    let ended = scene.home.run(&["panic", "--json"]).await?;
    assert_eq!(ended.code, 1, "{ended:?}");
    let view: PanicView = serde_json::from_value(ended.json()?).unwrap();
    for ack in &view.nodes {
        let silent = Some(ack.process) == frozen;
        assert_eq!(ack.acknowledged_ms.is_none(), silent, "{view:?}");
        assert_eq!(ack.problem.is_some(), silent, "{view:?}");
    }
    scene.nodes[2].signal(Signal::CONT)?;
    let all = |view: &PanicView| {
        view.nodes.len() == 3 && view.nodes.iter().all(|ack| ack.dead_ms.is_some())
    };
    let again: PanicView = scene.client.call_when("panic", json!({}), all).await?;
    assert!(again.already, "{again:?}");
    let (_, code): (Vec<PanicView>, _) = scene.command(&["panic", "--clear"]).await?;
    assert_eq!(code, 0);
    scene.client.chat(&Message::new("ada", "hello")).await?;
    scene.stop().await
}

/// A node that is cut off from the store cannot hear of a stop, so it stops by itself.
#[tokio::test]
async fn a_node_that_is_out_of_touch_on_nats_stops_by_itself_and_goes_on_afterwards() -> Outcome {
    let nats = NatsServer::start(ServerOptions::default()).await.unwrap();
    let mut start = named(None, "alone");
    start.vars.push(("CLAWNODE_CLUSTER__LOST_AFTER", "2s".to_owned()));
    let scene = Scene::on(Some(nats), vec![start]).await?;
    let slow = Message::new("ada", SLOW);
    let mut streaming = scene.client.send(&slow).await?;
    streaming.begun().await?;
    let (tools, mut running) = busy(&scene, "bob").await?;
    scene.nats.as_ref().unwrap().freeze().unwrap();
    let alone = |status: &StatusView| {
        status.warnings.iter().any(|warning| warning.name == "node.out_of_touch")
    };
    let _: StatusView = scene.client.call_when("status", json!({}), alone).await?;
    scene.counter.hold(false);
    scene.nats.as_ref().unwrap().thaw().unwrap();

    // The call is made again; a tool that may not run twice is not, and that is said.
    streaming.completed().await?;
    running.completed().await?;
    let history = scene.turns(&tools, 1).await?;
    let [(safe, true), (once, true)] = &told(&history.turns[0])[..] else {
        panic!("{history:?}");
    };
    assert!(safe.contains("lost touch with the store"), "{safe}");
    assert!(once.contains(" knows whether the call of `effect_once` happened"), "{once}");
    assert_eq!(scene.counter.total().unwrap(), 2, "neither was run again");
    let begun = scene.kinds(&slow).await?.iter().filter(|other| *other == "model_begun").count();
    assert_eq!(begun, 2, "the call that was given up is made once more");
    let in_touch = |status: &StatusView| !alone(status);
    let _: StatusView = scene.client.call_when("status", json!({}), in_touch).await?;
    scene.stop().await
}

/// The process that sets it may die at once: what is stored holds.
#[tokio::test]
async fn a_kill_switch_whose_gateway_is_killed_stops_the_workers_on_nats_all_the_same() -> Outcome {
    let mut scene = Scene::cluster().await?;
    let (tools, _running) = busy(&scene, "bob").await?;
    let mut start = named(Some("gateway"), "doomed");
    start.kill = Some("after-switch".to_owned());
    let mut doomed = Node::start(&scene.home, start).await?;
    let lost = doomed.client()?.call::<PanicView>("panic", json!({})).await.unwrap_err();
    assert!(lost.is_lost(), "{lost}");
    doomed.ended().await?;
    let history = scene.turns(&tools, 1).await?;
    let outcome = history.turns[0].outcome.as_ref();
    assert!(matches!(outcome, Some(TurnOutcome::Stopped { .. })), "{outcome:?}");
    scene.counter.hold(false);

    // Another gateway knows of it, from its start.
    scene.nodes.remove(0).stop().await?;
    scene.nodes.insert(0, Node::start(&scene.home, named(Some("gateway"), "front")).await?);
    scene.client = scene.nodes[0].client()?;
    let refused = scene.client.send(&Message::new("eve", "hello")).await.unwrap_err();
    assert_eq!(refused.refusal().unwrap().code, ErrorCode::Stopped);
    let switches: SwitchList = scene.client.call("panic.list", json!({})).await?;
    let clear = json!({ "latch": switches.switches[0].id });
    let _: PanicView = scene.client.call("panic.clear", clear).await?;
    scene.client.chat(&Message::new("eve", "hello")).await?;
    scene.stop().await
}

/// Clients hold all connections that those with the token may have; one is kept for newcomers.
#[tokio::test]
async fn the_command_stops_a_node_that_takes_no_more_connections() -> Outcome {
    let mut start = named(None, "alone");
    start.vars.push(("CLAWNODE_GATEWAY__MAX_CONNECTIONS", "4".to_owned()));
    let scene = Scene::on(None, vec![start]).await?;
    // Besides the one of the scene.
    let (one, other) = (scene.nodes[0].client()?, scene.nodes[0].client()?);
    let mut turn = one.send(&Message::new("ada", SLOW)).await?;
    turn.begun().await?;
    let _turn = other.send(&Message::new("bob", "hello")).await?;
    let one_more = scene.nodes[0].client()?.send(&Message::new("cyd", "hello")).await;
    assert!(one_more.is_err_and(|error| error.to_string().contains("503")));
    scene.panics(&["--why", "runs away"]).await?;
    let (_, outcome) = end_of(&mut turn).await?;
    assert_eq!(outcome["type"], "stopped", "{outcome}");
    scene.stop().await
}
