//! `caching`: the share of a session's input that its provider has kept, with a scripted provider that caches
//! by the vendors' rules.
//!
//! Each turn calls one of eight tools. Halfway, another worker comes and the one that has the session is
//! stopped. What is counted are tokens, so the build's profile and the machine's speed do not matter. Run with
//! `CLAWNODE_BIN=$PWD/target/debug/clawnode cargo run -p clawnode-bench --bin caching`.

use clap::Parser;
use clawnode_bench::{Error, Row, Table};
use clawnode_proto::{
    llm::Usage,
    view::{HistoryView, StatusView, TurnView},
};
use clawnode_tests::{
    model::{ModelServer, Script, Setup},
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Message, Node, Start, TestBackend},
};
use serde_json::json;

/// The target, in percent.
const TARGET: f64 = 90.0;
/// What the agent has.
const TOOLS: [&str; 8] = [
    "time_now",
    "calculate",
    "http_fetch",
    "file_read",
    "file_write",
    "file_list",
    "file_search",
    "word_count",
];
/// The last of them.
const WORD_COUNT: &str = "[sandbox.tools.word_count]\ndescription = \"Counts the words of a file.\"\n\
                          command = [\"wc\", \"-w\"]\n";
/// What each person says, beside the call of a tool.
const WORDS: &str = "Please look at this part of the plan and say what it costs, what it needs, and what to do next. ";
/// The system prompt.
const SYSTEM: &str =
    "You plan journeys. You know trains, ferries and the opening hours of museums. ";

/// Measures how much of a session's input comes from its provider's cache
#[derive(Debug, Parser)]
struct Args {
    /// Turns of the session
    #[arg(long, default_value_t = 50)]
    turns: usize,
}

/// One session that is measured.
struct Case {
    name: &'static str,
    model: &'static str,
    /// What the configuration says of it besides.
    settings: &'static str,
    /// Whether the share has to reach the target.
    has_target: bool,
}

const CASES: [Case; 4] = [
    Case {
        name: "anthropic/markers",
        model: "anthropic/claude-sonnet-4-5",
        settings: "",
        has_target: true,
    },
    Case {
        name: "anthropic/without",
        model: "anthropic/claude-sonnet-4-5",
        settings: "[models.\"anthropic/*\"]\ncache = \"none\"\n",
        has_target: false,
    },
    Case {
        name: "anthropic/markers/window=8000",
        model: "anthropic/claude-sonnet-4-5",
        settings: "[models.\"anthropic/*\"]\nwindow_tokens = 8000\n",
        has_target: false,
    },
    Case { name: "openai/key", model: "openai/gpt-4o", settings: "", has_target: true },
];

#[tokio::main]
async fn main() -> Result<(), Error> {
    let args = Args::parse();
    let mut table = Table::default();
    for case in &CASES {
        table.add(measure(case, args.turns).await?);
    }
    Ok(table.json()?)
}

async fn measure(case: &Case, turns: usize) -> Result<Row, Error> {
    let nats = NatsServer::start(ServerOptions::default()).await.map_err(other)?;
    let setup = Setup { caches: true, keep_calls: false, ..Setup::from(Script::default()) };
    let server = ModelServer::start(setup).await?;
    let backend = TestBackend::Nats { url: nats.url(), prefix: "bench".to_owned() };
    let home = Home::new(backend).map_err(other)?.anthropic(&server).openai(&server);
    let config = home.path().join("config.toml");
    std::fs::write(&config, configuration(case))?;
    let home = home.var("CLAWNODE_CONFIG", &config.to_string_lossy());
    let gateway = Node::start(&home, Start::role("gateway")).await.map_err(other)?;
    let client = gateway.client().map_err(other)?;
    let mut worker = Node::start(&home, Start::role("worker")).await.map_err(other)?;
    for turn in 0..turns {
        if turn == turns / 2 {
            let next = Node::start(&home, Start::role("worker")).await.map_err(other)?;
            let knows = |status: &StatusView| {
                status.nodes.iter().any(|node| Some(node.process) == next.process())
            };
            let _: StatusView = client.until("status", knows).await.map_err(other)?;
            std::mem::replace(&mut worker, next).stop().await.map_err(other)?;
        }
        let call = format!("/tool calculate {{\"expression\":\"{turn}*7\"}}");
        let said = format!("{turn}: {}\n{call}", WORDS.repeat(3));
        let message = Message { key: format!("k{turn}"), ..Message::new("ada", &said) };
        client.chat(&message).await.map_err(other)?;
    }
    let row = row(case, &client, turns).await?;
    gateway.stop().await.map_err(other)?;
    worker.stop().await.map_err(other)?;
    server.stop().await?;
    Ok(row)
}

fn configuration(case: &Case) -> String {
    let Case { model, settings, .. } = case;
    let agent = json!({ "model": model, "tools": TOOLS, "system": SYSTEM.repeat(40) });
    let lines = agent.as_object().into_iter().flatten();
    let lines = lines.map(|(key, value)| format!("{key} = {value}\n"));
    format!("[agents.default]\n{}{WORD_COUNT}{settings}", lines.collect::<String>())
}

async fn row(case: &Case, client: &Client, turns: usize) -> Result<Row, Error> {
    let session = Message::new("ada", "").session();
    let history: HistoryView = client.history(&session).await.map_err(other)?;
    let is_done = |turn: &TurnView| {
        turn.outcome.as_ref().is_some_and(|outcome| outcome.name() == "completed")
    };
    if history.turns.len() != turns || !history.turns.iter().all(is_done) {
        return Err(other(format!("{}: not every turn is done", case.name)));
    }
    let used = history.turns.iter().fold(Usage::default(), |sum, turn| sum.plus(turn.usage));
    #[expect(clippy::cast_precision_loss, reason = "some millions")]
    let [input, read, written] =
        [used.input_tokens, used.cache_read_tokens, used.cache_write_tokens]
            .map(|tokens| tokens as f64);
    let percent = 100.0 * read / input;
    let row = Row::new(format!("caching/{}/turns={turns}", case.name))
        .figure("input_tokens", input)
        .figure("read", read)
        .figure("written", written)
        .figure("read_percent", percent);
    Ok(if case.has_target { row.at_least("read %", percent, TARGET) } else { row })
}

fn other(error: impl std::fmt::Display) -> Error {
    Error::from(std::io::Error::other(error.to_string()))
}
