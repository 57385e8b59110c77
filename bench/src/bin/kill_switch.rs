//! `kill_switch::acknowledged` and `kill_switch::dead`: from an operator's `panic` at a gateway
//! until each node of three has stopped giving permits and has cancelled its work, and until none
//! of it runs any more.
//!
//! In each run both workers have model calls under way, which would go on for minutes. The record
//! is stored before any node is notified, so that is in the figure. Run with
//! `CLAWNODE_BIN=target/release/clawnode cargo run --release -p clawnode-bench --bin kill_switch`.

use std::time::Duration;

use clap::Parser;
use clawnode_bench::{Error, Row, Table, percentile};
use clawnode_proto::{kill_switch::PanicView, overview::NodeList};
use clawnode_tests::{
    model::{DefaultReply, ModelServer, Script},
    nats::{NatsServer, ServerOptions},
    process::{Home, Message, Node, Start, TestBackend},
};
use serde_json::json;

/// The promise that the figure is held against.
const TARGET_MS: f64 = 200.0;
/// Pieces of a reply, and milliseconds before each: longer than any run.
const PIECES: u32 = 3_000;
const PIECE_MS: u64 = 100;

/// Measures how soon every node has heard of a stop.
#[derive(Debug, Parser)]
struct Args {
    /// How often everything is stopped
    #[arg(long, default_value_t = 100)]
    runs: usize,
    /// Turns that run each time
    #[arg(long, default_value_t = 8)]
    turns: usize,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let args = Args::parse();
    let nats = NatsServer::start(ServerOptions::default()).await.map_err(other)?;
    let default = DefaultReply { tokens: PIECES, delay_ms: PIECE_MS, flush: true };
    let model = ModelServer::start(Script { default, ..Script::default() }).await?;
    let backend = TestBackend::Nats { url: nats.url(), prefix: "bench".to_owned() };
    let home = Home::new(backend).map_err(other)?.openai(&model);
    let home = home.var("CLAWNODE_CLUSTER__PARTITIONS", "16");
    let mut nodes = Vec::new();
    for role in ["gateway", "worker", "worker"] {
        nodes.push(Node::start(&home, Start::role(role)).await.map_err(other)?);
    }
    let client = nodes[0].client().map_err(other)?;
    let all = |list: &NodeList| list.nodes.len() == nodes.len();
    let _: NodeList = client.call_when("nodes.list", json!({}), all).await.map_err(other)?;
    let (mut acknowledged, mut dead) = (Vec::new(), Vec::new());
    for run in 0..args.runs {
        let mut turns = Vec::new();
        for n in 0..args.turns {
            let message = Message::new(&format!("r{run}n{n}"), "go on");
            let mut turn = client.send(&message).await.map_err(other)?;
            turn.begun().await.map_err(other)?;
            turns.push(turn);
        }
        let view: PanicView = client.call("panic", json!({})).await.map_err(other)?;
        // The slowest node of each run.
        let worst = |figure: fn(&clawnode_proto::kill_switch::SwitchAck) -> Option<u64>| {
            let all: Option<Vec<u64>> = view.nodes.iter().map(figure).collect();
            let worst = all.and_then(|all| all.into_iter().max());
            worst.map(Duration::from_millis).ok_or("a node did not answer")
        };
        acknowledged.push(worst(|ack| ack.acknowledged_ms)?);
        dead.push(worst(|ack| ack.dead_ms)?);
        let clear = json!({ "latch": view.switch.id });
        let _: PanicView = client.call("panic.clear", clear).await.map_err(other)?;
    }
    let mut table = Table::default();
    table.add(row("kill_switch::acknowledged", acknowledged).at_most_p99());
    table.add(row("kill_switch::dead", dead).row);
    for node in nodes {
        node.stop().await.map_err(other)?;
    }
    Ok(table.json()?)
}

/// A row, and the figure that has a target.
struct Measured {
    row: Row,
    p99: f64,
}

impl Measured {
    fn at_most_p99(self) -> Row {
        self.row.at_most("p99 ms", self.p99, TARGET_MS)
    }
}

fn row(name: &'static str, mut took: Vec<Duration>) -> Measured {
    took.sort_unstable();
    let ms = |of_1000| percentile(&took, of_1000).as_secs_f64() * 1_000.0;
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let runs = took.len() as f64;
    let row = Row::new(name)
        .figure("runs", runs)
        .figure("p50_ms", ms(500))
        .figure("p99_ms", ms(990))
        .figure("worst_ms", ms(1_000));
    Measured { row, p99: ms(990) }
}

fn other(error: impl std::fmt::Display) -> Error {
    Error::from(std::io::Error::other(error.to_string()))
}
