//! `gateway::resume/kills=N`: from `kill -9` of a gateway in the middle of a turn to the next word
//! that the command line's chat gets, by way of the other gateway.
//!
//! Two gateways and a worker on one NATS server; the model says a word every 20 ms, all in one
//! turn. The gateway that the chat is connected to is killed, and started again at the same
//! address once the chat goes on. Run with
//! `CLAWNODE_BIN=target/release/clawnode cargo run --release -p clawnode-bench --bin resume`.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use clap::Parser;
use clawnode_bench::{Error, Row, Table, percentile};
use clawnode_tests::{
    model::{DefaultReply, ModelServer, Script, Setup},
    nats::{NatsServer, ServerOptions},
    process::{Home, Node, Start, TestBackend},
};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::ChildStdout,
    time::timeout,
};

/// What 99 of 100 resumptions may take, in milliseconds.
const TARGET_MS: f64 = 2_000.0;
/// Reaching it means a bug, not a slow machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// Words that are waited for between two kills.
const WORDS: u32 = 10;

/// Measures how long a client is without its turn when its gateway dies.
#[derive(Debug, Parser)]
struct Args {
    /// Gateways that are killed
    #[arg(long, default_value_t = 40)]
    kills: usize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let args = Args::parse();
    let took = Box::pin(bench(args.kills)).await?;
    let ms = |duration: Duration| duration.as_secs_f64() * 1_000.0;
    let p99 = ms(percentile(&took, 990));
    let mut table = Table::default();
    table.add(
        Row::new(format!("gateway::resume/kills={}", args.kills))
            .figure("p50 ms", ms(percentile(&took, 500)))
            .figure("p99 ms", p99)
            .figure("worst ms", ms(took.last().copied().unwrap_or_default()))
            .at_most("p99 ms", p99, TARGET_MS),
    );
    Ok(table.json()?)
}

async fn bench(kills: usize) -> Result<Vec<Duration>, Error> {
    let default = DefaultReply { tokens: 100_000, delay_ms: 20, flush: true };
    let script = Script { default, ..Script::default() };
    let setup = Setup { api_key: Some(Home::key().to_owned()), ..Setup::from(script) };
    let model = ModelServer::start(setup).await?;
    let nats = NatsServer::start(ServerOptions::default()).await?;
    let backend = TestBackend::Nats { url: nats.url(), prefix: "bench".to_owned() };
    let home = Home::new(backend)?.anthropic(&model).var("CLAWNODE_CLUSTER__PARTITIONS", "8");
    let _worker = Node::start(&home, Start::role("worker")).await?;
    let mut gateways = Vec::new();
    for _ in 0..2 {
        gateways.push(Node::start(&home, Start::role("gateway")).await?);
    }
    let urls = format!("{},{}", gateways[0].url(), gateways[1].url());
    let token = home.data().join("token");
    let args = ["chat", "--json", "--url", &urls, "--token-file", &token.to_string_lossy()];
    let mut chat = home.command(&args).stdin(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let (Some(mut stdin), Some(stdout)) = (chat.stdin.take(), chat.stdout.take()) else {
        return Err("a chat without input or output".into());
    };
    stdin.write_all(b"go\n").await?;
    let mut lines = BufReader::new(stdout).lines();
    let mut took = Vec::with_capacity(kills);
    until(&mut lines, "accepted").await?;
    for _ in 0..kills {
        for _ in 0..WORDS {
            until(&mut lines, "text").await?;
        }
        let victim = gateways.remove(0);
        let listen = victim.url().trim_start_matches("http://").to_owned();
        let killed = Instant::now();
        victim.kill().await?;
        until(&mut lines, "accepted").await?;
        until(&mut lines, "text").await?;
        took.push(killed.elapsed());
        let again = Start { listen: Some(listen), ..Start::role("gateway") };
        // The chat is connected to the other one, which is the next to go.
        gateways.push(Node::start(&home, again).await?);
    }
    took.sort_unstable();
    Ok(took)
}

async fn until(lines: &mut Lines<BufReader<ChildStdout>>, event: &str) -> Result<(), Error> {
    loop {
        let line = timeout(PATIENCE, lines.next_line()).await??.ok_or("the chat has ended")?;
        if serde_json::from_str::<Value>(&line)?["event"] == event {
            return Ok(());
        }
    }
}
