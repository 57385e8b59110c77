//! `sessions::list/sessions=N`: one page of a list, from the request to the whole answer.
//!
//! The first list reads the end of every journal; those after it only what was written since. Run with
//! `cargo run --release -p clawnode-bench --bin lists`, and with `--nats` on a NATS server of its own.

use std::time::{Duration, Instant};

use clap::Parser;
use clawnode_bench::{
    Error, Load, Node, NodeSetup, Pin, Place, Role, Row, Storage, Table, fill, load, model,
    percentile,
};
use clawnode_tests::nats::{NatsServer, ServerOptions};

/// What a page may take, in milliseconds.
const TARGET_MS: f64 = 50.0;
/// Turns between two lists: what the next one follows.
const TURNS: usize = 50;

/// Measures how long lists of sessions take.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    /// Sessions there are
    #[arg(long, default_value_t = 100_000)]
    sessions: usize,
    /// Lists of each kind
    #[arg(long, default_value_t = 30)]
    lists: usize,
    /// On a NATS server instead of a data directory
    #[arg(long)]
    nats: bool,
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
    let (binary, parent) = (args.place.binary()?, args.place.dir());
    let (_model, model) = model(Pin(None), 1).await?;
    let server =
        if args.nats { Some(NatsServer::start(ServerOptions::default()).await?) } else { None };
    let storage = || match &server {
        Some(server) => Storage::Nats { url: server.url() },
        None => Storage::Embedded,
    };
    let dir = tempfile::tempdir_in(&parent)?;
    let setup = NodeSetup {
        binary: &binary,
        dir: dir.path(),
        model: &model,
        storage: storage(),
        config: "",
        pin: Pin(None),
        role: None,
    };
    let node = Node::start(&setup).await?;
    fill(&node.addr, 0, args.sessions).await?;
    let mut table = Table::default();
    let name = |what: &str| format!("sessions::list/sessions={}/{what}", args.sessions);

    let first = list(&node, "limit=100").await?;
    table.add(Row::new(name("first")).figure("ms", first.as_secs_f64() * 1e3));
    // The first query for an agent has every session folded, 5,000 a page.
    let mut after = String::new();
    let began = Instant::now();
    loop {
        let page = page(&node, &format!("agent=other{after}")).await?;
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    let fold = began.elapsed().as_secs_f64();
    table.add(Row::new(name("first of an agent, all pages")).figure("s", fold));
    for (what, query) in [
        ("newest", "limit=100"),
        ("agent", "agent=default&limit=100"),
        ("agent without sessions", "agent=other&limit=100"),
        ("state", "state=waiting&limit=100"),
        ("since", "since=1h&limit=100"),
    ] {
        let mut times = Vec::with_capacity(args.lists);
        for n in 0..args.lists {
            more(&node, &format!("{what}-{n}")).await?;
            times.push(list(&node, query).await?);
        }
        times.sort_unstable();
        let ms = |of_1000| percentile(&times, of_1000).as_secs_f64() * 1e3;
        let row = Row::new(name(what)).figure("p50_ms", ms(500)).figure("worst_ms", ms(1_000));
        table.add(row.at_most("p50_ms", ms(500), TARGET_MS));
    }
    Ok(table.json()?)
}

/// Some turns, so that the next list has something to follow.
async fn more(node: &Node, run: &str) -> Result<(), Error> {
    let plan = Load {
        addr: node.addr.clone(),
        concurrency: 1,
        turns_per_session: TURNS,
        one_user: false,
        time: Duration::MAX,
        turns: TURNS,
        run: run.replace(' ', "-"),
        ends_with: String::new(),
    };
    load(&plan).await?;
    Ok(())
}

async fn list(node: &Node, query: &str) -> Result<Duration, Error> {
    let began = Instant::now();
    page(node, query).await?;
    Ok(began.elapsed())
}

async fn page(node: &Node, query: &str) -> Result<serde_json::Value, Error> {
    let url = format!("http://{}/v1/sessions?{query}", node.addr);
    Ok(reqwest::get(url).await?.error_for_status()?.json().await?)
}
