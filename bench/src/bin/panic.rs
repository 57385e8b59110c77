//! `panic::containers`: from an operator's `panic` until none of the containers of three nodes runs.
//!
//! An engine of the bench's own, with busybox. In each run every container sleeps for a turn of its
//! own; what counts is the slowest node's own word, and when the engine itself lists none of them any
//! more. Takes root. Run with `CLAWNODE_BIN=target/release/clawnode cargo run --release
//! -p clawnode-bench --bin panic`.

use std::time::{Duration, Instant};

use clap::Parser;
use clawnode_bench::{Error, Row, Table, percentile};
use clawnode_proto::{kill_switch::PanicView, overview::NodeList};
use clawnode_tests::{
    docker::Engine,
    model::{ModelServer, Script},
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Message, Node, ProcessError, TestBackend},
    wait::until,
};
use serde_json::json;

/// The target, for the worst run.
const TARGET_MS: f64 = 5_000.0;
/// Nodes, each of which does everything.
const NODES: usize = 3;

/// Measures how soon containers are dead.
#[derive(Debug, Parser)]
struct Args {
    /// How often everything is stopped
    #[arg(long, default_value_t = 10)]
    runs: usize,
    /// Containers at work each time
    #[arg(long, default_value_t = 60)]
    containers: usize,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let args = Args::parse();
    let engine = Engine::start().await.map_err(other)?;
    engine.import_busybox().await.map_err(other)?;
    let figures = measure(&args, &engine).await;
    engine.stop().await.map_err(other)?;
    let figures = figures?;
    let mut table = Table::default();
    for (name, column) in
        [("acknowledged", 0), ("dead, nodes' word", 1), ("dead, engine's word", 2)]
    {
        let mut all: Vec<Duration> = figures.iter().map(|run| run[column]).collect();
        all.sort_unstable();
        let ms = |of_1000| percentile(&all, of_1000).as_secs_f64() * 1_000.0;
        let row = Row::new(format!("panic::containers/{name}"))
            .figure("p50 ms", ms(500))
            .figure("worst ms", ms(1_000));
        table.add(if column == 0 { row } else { row.at_most("worst ms", ms(1_000), TARGET_MS) });
    }
    Ok(table.json()?)
}

/// Of each run: until all have acknowledged, until all nodes and until the engine say all are dead.
async fn measure(args: &Args, engine: &Engine) -> Result<Vec<[Duration; 3]>, Error> {
    let nats = NatsServer::start(ServerOptions::default()).await.map_err(other)?;
    let model = ModelServer::start(Script::default()).await?;
    let home = || -> Result<Home, Error> {
        let backend = TestBackend::Nats { url: nats.url(), prefix: "bench".to_owned() };
        let home = Home::new(backend).map_err(other)?.openai(&model);
        let settings = home.path().join(".config/clawnode");
        std::fs::create_dir_all(&settings)?;
        let config = format!(
            "[agents.default]\ntools = [\"run_command\"]\nmax_turns = {most}\n\
             [[agents.default.rules]]\nverdict = \"allow\"\n[tools]\nmax_jobs = {most}\n\
             job_wait = \"10m\"\n[sandbox]\nmax_timeout = \"1h\"\n\
             [sandbox.docker]\ntimeout = \"1h\"\nsocket = \"{}\"\nimage = \"busybox:test\"\n",
            engine.socket().display(),
            most = args.containers,
        );
        std::fs::write(settings.join("config.toml"), config)?;
        Ok(home.var("CLAWNODE_CLUSTER__PARTITIONS", "16"))
    };
    let mut homes = Vec::new();
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        let home = home()?;
        nodes.push(Node::up(&home).await.map_err(other)?);
        homes.push(home);
    }
    let client = nodes[0].client().map_err(other)?;
    let all = |list: &NodeList| list.nodes.len() == NODES;
    let _: NodeList = client.call_when("nodes.list", json!({}), all).await.map_err(other)?;
    let mut figures = Vec::new();
    for run in 0..args.runs {
        figures.push(once(args, engine, &client, run).await?);
    }
    for node in nodes {
        node.stop().await.map_err(other)?;
    }
    Ok(figures)
}

async fn once(
    args: &Args,
    engine: &Engine,
    client: &Client,
    run: usize,
) -> Result<[Duration; 3], Error> {
    let mut turns = Vec::new();
    for n in 0..args.containers {
        let says = r#"/tool run_command {"command":"sleep 3000"}"#;
        turns.push(client.send(&Message::new(&format!("r{run}n{n}"), says)).await.map_err(other)?);
    }
    // Making so many takes longer than one wait is allowed to.
    let mut seen = 0;
    while seen < args.containers {
        let more = until("one more container at work", async || {
            let now = at_work(engine).await?;
            Ok((now > seen).then_some(now))
        });
        seen = more.await.map_err(other)?;
    }
    let began = Instant::now();
    // The longest that may be asked for, and twice the target.
    let stop = client.call::<PanicView>("panic", json!({ "wait_ms": 10_000 }));
    let gone = async {
        let none = async || Ok((at_work(engine).await? == 0).then_some(()));
        until("no container at work", none).await.map(|()| began.elapsed())
    };
    let (view, gone) = tokio::join!(stop, gone);
    let (view, gone) = (view.map_err(other)?, gone.map_err(other)?);
    let worst = |figure: fn(&clawnode_proto::kill_switch::SwitchAck) -> Option<u64>| {
        let all: Option<Vec<u64>> = view.nodes.iter().map(figure).collect();
        let worst = all.and_then(|all| all.into_iter().max());
        worst.map(Duration::from_millis).ok_or("a node did not answer")
    };
    let figures = [worst(|ack| ack.acknowledged_ms)?, worst(|ack| ack.dead_ms)?, gone];
    let clear = json!({ "latch": view.switch.id });
    let _: PanicView = client.call("panic.clear", clear).await.map_err(other)?;
    Ok(figures)
}

/// Containers of calls that run.
async fn at_work(engine: &Engine) -> Result<usize, ProcessError> {
    let listed = engine.docker(&["ps", "--format", "{{.Names}}"]).await?;
    Ok(listed.lines().filter(|name| name.starts_with("clawnode-job_")).count())
}

fn other(error: impl std::fmt::Display) -> Error {
    Error::from(std::io::Error::other(error.to_string()))
}
