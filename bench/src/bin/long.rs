//! `session::long/turn=N`: what a turn costs besides its model, early and late in a session of many turns, from
//! a client's message to `done`.
//!
//! One connection, one session after the other. The model's own time grows with the conversation, because it
//! reads and checks all of it: it is measured apart, with requests of the same length, and taken off. Run with
//! `cargo run --release -p clawnode-bench --bin long`.

use std::time::{Duration, Instant};

use clap::Parser;
use clawnode_bench::{
    Error, Load, Node, NodeSetup, Pin, Place, Role, Row, Storage, Table, load, model, percentile,
};
use serde_json::{Value, json};

/// How much more a late turn may cost than an early one, as a ratio.
const TARGET: f64 = 1.2;
/// The early turn, and how many on each side of a turn count as that turn.
const EARLY: usize = 5;
const AROUND: usize = 2;
/// Pieces of a reply.
const TOKENS: u32 = 16;
/// Requests to the model alone, for each length.
const REQUESTS: usize = 50;

/// Compares late turns of a session to early ones
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    /// Turns of a session
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(20..))]
    turns: u16,
    /// Sessions, one after the other
    #[arg(long, default_value_t = 12)]
    sessions: usize,
    #[command(flatten)]
    place: Place,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let args = Args::parse();
    match &args.role {
        Some(role) => role.play().await,
        None => Box::pin(bench(&args)).await,
    }
}

async fn bench(args: &Args) -> Result<(), Error> {
    let (binary, dir) = (args.place.binary()?, tempfile::tempdir_in(args.place.dir())?);
    let (_model, model) = model(Pin(None), TOKENS).await?;
    let setup = NodeSetup {
        binary: &binary,
        dir: dir.path(),
        model: &model,
        storage: Storage::Embedded,
        config: "",
        pin: Pin(None),
        role: None,
    };
    let mut node = Node::start(&setup).await?;
    let turns = usize::from(args.turns);
    let plan = Load {
        addr: node.addr.clone(),
        concurrency: 1,
        turns_per_session: turns,
        one_user: false,
        time: Duration::MAX,
        turns: turns * args.sessions,
        run: "long".to_owned(),
        ends_with: format!(" {TOKENS}"),
    };
    let report = load(&plan).await?;
    node.process().stop().await?;
    let late = turns - AROUND;
    let mut table = Table::default();
    let mut added = [0.0; 2];
    for (at, turn) in [EARLY, late].into_iter().enumerate() {
        let mut all = around(&report.latencies, turns, turn);
        all.sort_unstable();
        let (turn_ms, model_ms) = (ms(&all), ms(&alone(&model, turn).await?));
        added[at] = turn_ms - model_ms;
        let row = Row::new(format!("session::long/turn={turn}"));
        let row = row.figure("p50_ms", turn_ms).figure("model_p50_ms", model_ms);
        table.add(row.figure("added_ms", added[at]));
    }
    let ratio = added[1] / added[0];
    let compared = Row::new(format!("session::long/{late}-to-{EARLY}")).figure("ratio", ratio);
    table.add(compared.at_most("added time", ratio, TARGET));
    Ok(table.json()?)
}

/// The times of the turns around this one (from 1), in every session.
fn around(latencies: &[Duration], turns: usize, turn: usize) -> Vec<Duration> {
    let session = |all: &[Duration]| {
        let from = turn.saturating_sub(1 + AROUND);
        all.iter().skip(from).take(2 * AROUND + 1).copied().collect::<Vec<_>>()
    };
    latencies.chunks_exact(turns).flat_map(session).collect()
}

/// What the model takes by itself with a conversation of so many turns.
async fn alone(model: &str, turns: usize) -> Result<Vec<Duration>, Error> {
    let reply = (2..=TOKENS).fold(String::new(), |reply, n| format!("{reply} {n}"));
    let mut messages: Vec<Value> = Vec::new();
    for turn in 0..turns {
        let content = format!("message {turn} of connection 0: what is new?");
        messages.push(json!({ "role": "user", "content": content }));
        let content = format!("reply to: {content}{reply}");
        messages.push(json!({ "role": "assistant", "content": content }));
    }
    messages.pop();
    let body = json!({ "model": "scripted", "stream": true, "messages": messages }).to_string();
    let (http, url) = (reqwest::Client::new(), format!("http://{model}/v1/chat/completions"));
    let mut took = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        let request = http.post(&url).header("content-type", "application/json");
        let began = Instant::now();
        let answer = request.body(body.clone()).send().await?.error_for_status()?;
        answer.bytes().await?;
        took.push(began.elapsed());
    }
    took.sort_unstable();
    Ok(took)
}

fn ms(sorted: &[Duration]) -> f64 {
    percentile(sorted, 500).as_secs_f64() * 1_000.0
}
