//! `budget::limits/followers=N`: how soon every process knows a limit that a person sets.
//!
//! Two nodes share a NATS server. A limit of one account is set at the first one, again and again, each time to another
//! amount. Followers keep the view of limits as each node does, each over a connection of its own. What counts is the
//! slowest of them, once from the request and once from its answer: a follower may know the limit before that. Run with
//! `CLAWNODE_BIN=target/release/clawnode cargo run --release -p clawnode-bench --bin budget_limits`.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use clap::Parser;
use clawnode_bench::{Error, Row, Table, percentile};
use clawnode_budget::holder::{HolderHandle, HolderOptions, HolderTasks};
use clawnode_cluster::SystemClock;
use clawnode_nats::{NatsOptions, connect};
use clawnode_proto::{
    ProcessId,
    budget::{AccountKey, AccountView, BudgetLimit},
    overview::NodeList,
};
use clawnode_tests::{
    model::{ModelServer, Script},
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Node, Start, TestBackend},
};
use serde_json::json;
use tokio::{task::JoinSet, time::timeout};

/// A limit is known everywhere so soon after it was set (p99).
const TARGET_MS: f64 = 200.0;
/// The name of the cluster on its server.
const PREFIX: &str = "bench";
/// How often a follower's view is looked at. It is in memory.
const LOOK: Duration = Duration::from_micros(200);
/// Reaching it means a bug, not a slow machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// Measures how soon a limit is known everywhere.
#[derive(Debug, Parser)]
struct Args {
    /// How often the limit is set
    #[arg(long, default_value_t = 500)]
    runs: u64,
    /// Processes that follow
    #[arg(long, default_value_t = 3)]
    followers: u8,
}

/// How long one change took.
struct Spread {
    /// From the request.
    since_set: Duration,
    /// From the answer to it; nothing if all knew it before that.
    since_answer: Duration,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Installing fails only if it was installed before, which serves as well.
    drop(rustls::crypto::ring::default_provider().install_default());
    let args = Args::parse();
    let nats = NatsServer::start(ServerOptions::default()).await.map_err(other)?;
    let model = ModelServer::start(Script::default()).await?;
    let backend = TestBackend::Nats { url: nats.url(), prefix: PREFIX.to_owned() };
    let home = Home::new(backend).map_err(other)?.openai(&model);
    let home = home.var("CLAWNODE_CLUSTER__PARTITIONS", "16");
    let mut nodes = Vec::new();
    for _ in 0..2 {
        nodes.push(Node::start(&home, Start::default()).await.map_err(other)?);
    }
    let first = nodes.first().ok_or("two nodes")?;
    let client = first.client().map_err(other)?;
    let both = |list: &NodeList| list.nodes.len() == 2;
    let _: NodeList = client.call_when("nodes.list", json!({}), both).await.map_err(other)?;

    let mut following = JoinSet::new();
    let mut followers = Vec::new();
    for number in 0..args.followers {
        let holder = HolderHandle::new(ProcessId::from_u128(1), HolderOptions::default());
        let prefix = PREFIX.parse()?;
        let options = NatsOptions { prefix, ..NatsOptions::new(vec![nats.url()]) };
        let storage = connect(options).await.map_err(other)?;
        let clock = Arc::new(SystemClock);
        let tasks = HolderTasks { holder: holder.clone(), storage, clock };
        following.spawn(async move {
            loop {
                tasks.clone().follow().await;
            }
        });
        followers.push((number, holder));
    }
    let mut all = Vec::new();
    // The first changes make the account, and its owner loads it.
    for run in 0..args.runs.saturating_add(5) {
        let spread = sets(&client, &followers, 1_000_000 + run).await?;
        if run >= 5 {
            all.push(spread);
        }
    }
    let mut table = Table::default();
    table.add(row(&args, &all));
    following.abort_all();
    for node in nodes {
        node.stop().await.map_err(other)?;
    }
    Ok(table.json()?)
}

/// Sets the limit to this amount, and waits until all have it.
async fn sets(
    client: &Client,
    followers: &[(u8, HolderHandle)],
    amount: u64,
) -> Result<Spread, Error> {
    let account = AccountKey::Cluster;
    let limits = json!([{ "unit": "tokens", "window": "day", "amount": amount.to_string() }]);
    let set = json!({ "account": account, "limits": limits });
    let began = Instant::now();
    let answered = async {
        let _: AccountView = client.call("budget.set", set).await.map_err(other)?;
        Ok::<_, Error>(began.elapsed())
    };
    let is_it = |limit: &BudgetLimit| limit.amount == amount;
    let known = async {
        for (number, holder) in followers {
            let knows = async {
                while !holder.set_by_person(&account).is_some_and(|found| found.iter().any(is_it)) {
                    tokio::time::sleep(LOOK).await;
                }
            };
            let late = |_| format!("follower {number} does not hear of {amount}");
            timeout(PATIENCE, knows).await.map_err(late)?;
        }
        Ok(began.elapsed())
    };
    let (answered, since_set) = tokio::try_join!(answered, known)?;
    Ok(Spread { since_set, since_answer: since_set.saturating_sub(answered) })
}

#[expect(clippy::cast_precision_loss, reason = "a few hundred")]
fn row(args: &Args, all: &[Spread]) -> Row {
    let ms = |part: fn(&Spread) -> Duration, of_1000| {
        let mut all: Vec<Duration> = all.iter().map(part).collect();
        all.sort_unstable();
        percentile(&all, of_1000).as_secs_f64() * 1e3
    };
    let since_set = |of_1000| ms(|found| found.since_set, of_1000);
    Row::new(format!("budget::limits/followers={}", args.followers))
        .figure("runs", all.len() as f64)
        .figure("p50_ms", since_set(500))
        .figure("p99_ms", since_set(990))
        .figure("worst_ms", since_set(1_000))
        .figure("after_answer_p99_ms", ms(|found| found.since_answer, 990))
        .at_most("p99 ms", since_set(990), TARGET_MS)
}

fn other(error: impl std::fmt::Display) -> Error {
    Error::from(std::io::Error::other(error.to_string()))
}
