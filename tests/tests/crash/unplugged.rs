//! Providers that are unplugged: their processes die of `kill -9` in mid-answer. The next one of the chain finishes
//! the answer, and if all are gone the turn waits and goes on by itself, also in another process.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use clawnode_proto::view::EventView;
use clawnode_tests::{
    effects::EffectCounter,
    model::{Act, ModelServer, Reply, Script, Step, read_log},
    nats::free_port,
    process::{Frame, Home, Message, Node, ProcessError, TestBackend, Turn, sound},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use super::support::Outcome;

/// What a provider says before it is unplugged.
const BEGUN: &str = "I am beg";

/// A provider of models as a process of its own.
struct PluggedProvider {
    child: Child,
    address: String,
    log: PathBuf,
}

impl PluggedProvider {
    /// Starts one that answers so, at this address.
    async fn plugged_in(dir: &Path, name: &str, address: &str, script: &Script) -> Self {
        let file = dir.join(format!("{name}.json"));
        std::fs::write(&file, serde_json::to_string(script).unwrap()).unwrap();
        let log = dir.join(format!("{name}.jsonl"));
        let mut child = Command::new(env!("CARGO_BIN_EXE_model_server"))
            .args(["--listen", address, "--script"])
            .arg(file)
            .arg("--log")
            .arg(&log)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().unwrap();
        let address = line.strip_prefix("listening ").unwrap().to_owned();
        Self { child, address, log }
    }

    /// Unplugs it; its address.
    async fn unplugged(mut self) -> String {
        self.child.kill().await.unwrap();
        self.address
    }

    /// How often it was asked.
    fn asked(&self) -> usize {
        read_log(&self.log).unwrap().len()
    }
}

/// One that never ends what it begins, and one that does.
async fn providers(dir: &Path) -> (PluggedProvider, PluggedProvider) {
    let steps = [Step::Text { text: BEGUN.to_owned() }, Step::Flush, Step::Stall];
    let begins = Script::default().turn("go", [Act::Reply(Reply::steps(steps))]);
    let first = PluggedProvider::plugged_in(dir, "first", "127.0.0.1:0", &begins).await;
    // Below the ports of outgoing connections, one of which could have it when the provider comes back.
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    (first, PluggedProvider::plugged_in(dir, "second", &address, &whole()).await)
}

fn whole() -> Script {
    Script::default().turn("go", [Act::say("whole.")])
}

/// A home whose agent asks the first one, and then the one at this URL. `more` is said of the agent besides.
fn home(first: &PluggedProvider, second: &str, more: &str) -> Result<Home, ProcessError> {
    let home = Home::new(TestBackend::Local)?
        .var("ANTHROPIC_API_KEY", Home::key())
        .var("ANTHROPIC_BASE_URL", &format!("http://{}", first.address))
        .var("OPENAI_API_KEY", Home::key())
        .var("OPENAI_BASE_URL", second)
        // The last of a chain is tried again within its call, for some seconds.
        .var("CLAWNODE_PROVIDERS__OPENAI__RETRIES", "0");
    let settings = home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    let agent = "[agents.default]\nmodel = \"anthropic/scripted\"\n\
                 fallback = [\"openai/scripted\"]\noutage = \"3s\"\n";
    std::fs::write(settings.join("config.toml"), format!("{agent}{more}")).unwrap();
    Ok(home)
}

/// The next frame that is so.
async fn next(turn: &mut Turn, is_so: impl Fn(&Frame) -> bool) -> Result<Frame, ProcessError> {
    loop {
        let frame = turn.next().await?;
        if is_so(&frame) {
            return Ok(frame);
        }
        assert_ne!(frame.event, "done", "{frame:?}");
    }
}

fn is_notice(frame: &Frame, name: &str) -> bool {
    frame.event == "notice" && frame.data["name"] == name
}

/// How often an attempt gave way, a call was answered, and one failed.
async fn journaled(node: &Node, message: &Message) -> Result<[usize; 3], ProcessError> {
    let events = node.client()?.journal::<EventView>(&message.session()).await?;
    let count_of = |kind: &str| events.iter().filter(|event| event.kind == kind).count();
    Ok(["model_gave_way", "model_done", "model_failed"].map(count_of))
}

/// A turn whose provider is in mid-answer.
struct MidAnswer {
    first: PluggedProvider,
    second: PluggedProvider,
    node: Node,
    turn: Turn,
    home: Home,
    dir: TempDir,
}

impl MidAnswer {
    async fn new() -> Result<Self, ProcessError> {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = providers(dir.path()).await;
        let home = home(&first, &format!("http://{}/v1", second.address), "")?;
        let node = Node::up(&home).await?;
        let mut turn = node.client()?.send(&Message::new("ada", "go")).await?;
        next(&mut turn, |frame| frame.event == "text" && frame.data == BEGUN).await?;
        Ok(Self { first, second, node, turn, home, dir })
    }
}

#[tokio::test]
async fn a_provider_unplugged_in_mid_answer_is_followed_by_the_next() -> Outcome {
    let MidAnswer { first, second, node, mut turn, home, dir: _dir } = MidAnswer::new().await?;
    first.unplugged().await;
    next(&mut turn, |frame| frame.event == "reset").await?;
    next(&mut turn, |frame| is_notice(frame, "model_gave_way")).await?;
    assert_eq!(turn.completed().await?, "whole.");
    let message = Message::new("ada", "go");
    assert_eq!(journaled(&node, &message).await?, [1, 1, 0]);
    // What was answered is not asked for again, whatever dies now.
    node.kill().await?;
    let node = Node::up(&home).await?;
    assert_eq!(node.client()?.chat(&message).await?, "whole.");
    assert_eq!(second.asked(), 1);
    node.stop().await?;
    assert!(sound(&home).await? > 0);
    Ok(())
}

#[tokio::test]
async fn with_all_providers_unplugged_a_turn_waits_through_a_kill_and_goes_on() -> Outcome {
    let MidAnswer { first, second, node, mut turn, home, dir } = MidAnswer::new().await?;
    let address = second.unplugged().await;
    first.unplugged().await;
    next(&mut turn, |frame| is_notice(frame, "provider_down")).await?;
    let counted = |status: &Value| status["outages"] == 1;
    node.client()?.call_when::<Value>("status", json!({}), counted).await?;
    node.kill().await?;
    let second = PluggedProvider::plugged_in(dir.path(), "second", &address, &whole()).await;
    let node = Node::up(&home).await?;
    let message = Message::new("ada", "go");
    assert_eq!(node.client()?.chat(&message).await?, "whole.");
    // The first gives way twice, and the second once, before it is there again.
    assert_eq!(journaled(&node, &message).await?, [3, 1, 0]);
    assert_eq!(second.asked(), 1);
    node.stop().await?;
    assert!(sound(&home).await? > 0);
    Ok(())
}

/// LLM-3, in mid-turn: what the first one thought before a tool is for it alone. The next one goes on with the call and
/// its result, the client hears that something is left out, and no tool runs twice.
#[tokio::test]
async fn who_follows_after_a_tool_is_not_shown_what_the_first_one_thought() -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    let counter = EffectCounter::start(dir.path()).await.unwrap();
    let thinks = |text: &str| Step::Thinking { text: text.to_owned() };
    let calls = [thinks("For me alone."), Step::tools([("effect_once", json!({}))])];
    let begins = Step::Text { text: BEGUN.to_owned() };
    let begins = [thinks("And this."), begins, Step::Flush, Step::Stall];
    let script = [calls.to_vec(), begins.to_vec()].map(|steps| Act::Reply(Reply::steps(steps)));
    let script = Script::default().turn("go", script);
    let first = PluggedProvider::plugged_in(dir.path(), "first", "127.0.0.1:0", &script).await;
    let script = Script::default().turn("go", [Act::say("too early"), Act::say("whole.")]);
    let second = ModelServer::start(script).await.unwrap();
    let more = "reasoning = \"high\"\ntools = [\"effect_once\"]\n";
    let home = home(&first, &second.openai_url(), more)?;
    let home = home.var("CLAWNODE_TEST_EFFECTS", &counter.url());
    let node = Node::up(&home).await?;
    let message = Message::new("ada", "go");
    let mut turn = node.client()?.send(&message).await?;
    next(&mut turn, |frame| frame.event == "text" && frame.data == BEGUN).await?;
    first.unplugged().await;
    next(&mut turn, |frame| is_notice(frame, "model_gave_way")).await?;
    next(&mut turn, |frame| is_notice(frame, "thoughts_withheld")).await?;
    assert_eq!(turn.completed().await?, "whole.");
    let [call] = &second.calls()[..] else { panic!("{:?}", second.calls()) };
    let sent = String::from_utf8_lossy(&call.body);
    assert!(!sent.contains("For me alone.") && !sent.contains("And this."), "{sent}");
    assert!(!sent.contains("signature"), "{sent}");
    assert_eq!((call.results.len(), counter.total().unwrap()), (1, 1));
    assert_eq!(second.take_violations(), Vec::<String>::new());
    node.stop().await?;
    assert!(sound(&home).await? > 0);
    Ok(())
}
