//! `llm::failover/CASE`: from a message to the first word of the model that answers, if the first model of the
//! chain is dead: its provider refuses the connection, or breaks off its reply after some words. Beside it, what
//! the second model takes by itself; the difference of the medians is what the failover costs.
//!
//! Five failures would open the circuit of the dead provider, and calls would not try it any more: so each node
//! serves a few turns only. Run with
//! `CLAWNODE_BIN=target/release/clawnode cargo run --release -p clawnode-bench --bin failover`.

use std::time::{Duration, Instant};

use clap::Parser;
use clawnode_bench::{Error, Row, Table, percentile};
use clawnode_tests::{
    model::{Act, DefaultReply, ModelServer, Reply, Script, Setup, Step},
    nats::free_port,
    process::{Client, Home, Message, Node, TestBackend},
};

/// What the failover may cost, in milliseconds.
const TARGET_MS: f64 = 50.0;
/// What a dead provider says before it breaks off.
const BROKEN: &str = "I am beg";
/// Turns of one node: a reply that breaks off is tried once more, and two such turns are four failures.
const TURNS: usize = 2;

/// Measures what it costs that the first model of a chain is dead
#[derive(Debug, Parser)]
struct Args {
    /// Nodes of each case, each of which serves two turns
    #[arg(long, default_value_t = 30)]
    nodes: usize,
    /// Pieces of a reply
    #[arg(long, default_value_t = 16)]
    tokens: u32,
}

/// How the first provider is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// There is none.
    None,
    /// Nothing listens at its address.
    Refuses,
    /// It breaks off its replies.
    Cuts,
}

impl First {
    const ALL: [Self; 3] = [Self::None, Self::Refuses, Self::Cuts];

    const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Refuses => "refused",
            Self::Cuts => "cut",
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let args = Args::parse();
    let mut table = Table::default();
    let mut took = [const { Vec::new() }; First::ALL.len()];
    // In turns, so that a slow moment of the machine falls on all.
    for _ in 0..args.nodes {
        for (first, took) in First::ALL.into_iter().zip(&mut took) {
            took.extend(measure(first, args.tokens).await?);
        }
    }
    for took in &mut took {
        took.sort_unstable();
    }
    let ms = |took: &[Duration], of_1000| percentile(took, of_1000).as_secs_f64() * 1_000.0;
    let own = ms(&took[0], 500);
    for (first, took) in First::ALL.into_iter().zip(&took) {
        let (p50, p99) = (ms(took, 500), ms(took, 990));
        let row = Row::new(format!("llm::failover/first={}", first.as_str()))
            .figure("p50_ms", p50)
            .figure("p99_ms", p99);
        table.add(match first {
            First::None => row,
            First::Refuses | First::Cuts => row.figure("added_p50_ms", p50 - own).at_most(
                "p50 ms beside its own",
                p50 - own,
                TARGET_MS,
            ),
        });
    }
    Ok(table.json()?)
}

/// The times of a few turns of a new node.
async fn measure(first: First, tokens: u32) -> Result<Vec<Duration>, Error> {
    let default = DefaultReply { tokens, delay_ms: 0, flush: true };
    let second = server(Script { default, ..Script::default() }).await?;
    let cut = || {
        let steps = [Step::Text { text: BROKEN.to_owned() }, Step::Flush, Step::Cut];
        Act::Reply(Reply::steps(steps))
    };
    let dead = server(Script::queue((0..TURNS * 4).map(|_| cut()))).await?;
    let mut home = Home::new(TestBackend::Local).map_err(other)?.openai(&second);
    home = match first {
        First::None => home,
        First::Cuts => home.anthropic(&dead),
        First::Refuses => {
            let url = format!("http://127.0.0.1:{}", free_port()?);
            home.anthropic(&dead).var("ANTHROPIC_BASE_URL", &url)
        }
    };
    let chain = match first {
        First::None => "model = \"openai/scripted\"\n",
        First::Refuses | First::Cuts => {
            "model = \"anthropic/scripted\"\nfallback = [\"openai/scripted\"]\n"
        }
    };
    let config = home.path().join("config.toml");
    std::fs::write(&config, format!("[agents.default]\n{chain}"))?;
    let home = home.var("CLAWNODE_CONFIG", &config.to_string_lossy());
    let node = Node::up(&home).await.map_err(other)?;
    let client = node.client().map_err(other)?;
    let mut took = Vec::with_capacity(TURNS);
    for turn in 0..TURNS {
        took.push(first_word(&client, turn).await?);
    }
    node.stop().await.map_err(other)?;
    second.stop().await?;
    dead.stop().await?;
    Ok(took)
}

async fn server(script: Script) -> Result<ModelServer, Error> {
    let api_key = Some(Home::key().to_owned());
    let setup = Setup { api_key, keep_calls: false, ..Setup::from(script) };
    Ok(ModelServer::start(setup).await?)
}

/// From sending a message to the first word that stays; then the turn is read to its end.
async fn first_word(client: &Client, turn: usize) -> Result<Duration, Error> {
    let message = Message { key: format!("k{turn}"), ..Message::new("ada", "what is new?") };
    let sent = Instant::now();
    let mut reading = client.send(&message).await.map_err(other)?;
    let mut first = None;
    loop {
        let frame = reading.next().await.map_err(other)?;
        match frame.event.as_str() {
            "text" if !frame.data.as_str().is_some_and(|text| BROKEN.contains(text)) => {
                first.get_or_insert_with(|| sent.elapsed());
            }
            "done" => break,
            _ => {}
        }
    }
    first.ok_or_else(|| "a turn without a reply".into())
}

fn other(error: impl std::fmt::Display) -> Error {
    Error::from(std::io::Error::other(error.to_string()))
}
