//! `gateway::taps/readers=N`: how late a token is for the sender of the message, beside N clients
//! that follow the same turn over two gateways and read nothing, and without them.
//!
//! Two gateways and a worker on one NATS server; the model says a word every few milliseconds and
//! writes down when. Turns with and without taps alternate. Run with
//! `CLAWNODE_BIN=target/release/clawnode cargo run --release -p clawnode-bench --bin taps`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use clawnode_bench::{Error, Row, Table, percentile, resident_bytes};
use clawnode_tests::{
    model::{ModelServer, Reply, Script, Setup, Step},
    nats::{NatsServer, ServerOptions},
    process::{Client, Home, Message, Node, Start, TestBackend},
};

/// By how much taps may slow the owner's tokens.
const MOST: f64 = 1.05;
/// What may wait for each tap.
const UNREAD: u64 = 64 << 10;
/// Milliseconds between two words.
const DELAY_MS: u64 = 10;
/// What may be held of each tap, beside what waits: twice that in all, and its connection.
const TAP_BYTES: u64 = 2 * UNREAD + (64 << 10);

/// Measures what readers that do not read cost the sender of the message
#[derive(Debug, Parser)]
struct Args {
    /// Clients that follow the turn and do not read
    #[arg(long, default_value_t = 500)]
    taps: usize,
    /// Turns of each kind, in alternation
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// Words of one turn
    #[arg(long, default_value_t = 300)]
    words: u32,
}

/// Two gateways with a worker behind them.
struct Stage {
    _model: ModelServer,
    _nats: NatsServer,
    home: Home,
    _worker: Node,
    gateways: Vec<Node>,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let args = Args::parse();
    let stage = Box::pin(Stage::start(args.words)).await?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let mut grown = 0;
    for round in 0..args.rounds {
        without.extend(stage.turn(round * 2, 0).await?.0);
        let (late, more) = stage.turn(round * 2 + 1, args.taps).await?;
        with.extend(late);
        grown = grown.max(more);
    }
    without.sort_unstable();
    with.sort_unstable();
    let mut table = Table::default();
    let mut row = Row::new(format!("gateway::taps/readers={}", args.taps));
    for (name, of_1000) in [("p50", 500), ("p99", 990)] {
        let ms = |all: &[Duration]| percentile(all, of_1000).as_secs_f64() * 1_000.0;
        let (alone, beside) = (ms(&without), ms(&with));
        row = match name {
            "p50" => row.figure("p50 ms", beside).figure("alone p50 ms", alone),
            _ => row.figure("p99 ms", beside).figure("alone p99 ms", alone),
        };
        row = row.at_most(&format!("{name} to alone"), beside / alone, MOST);
    }
    let kib = |bytes: u64| u32::try_from(bytes >> 10).map_or(f64::MAX, f64::from);
    let most = TAP_BYTES * u64::try_from(args.taps)?;
    table.add(row.figure("memory KiB", kib(grown)).at_most("memory KiB", kib(grown), kib(most)));
    Ok(table.json()?)
}

// === impl Stage ===

impl Stage {
    async fn start(words: u32) -> Result<Self, Error> {
        let word = [Step::Delay { ms: DELAY_MS }, Step::Clock, Step::Flush];
        let steps: Vec<Step> = (0..words).flat_map(|_| word.clone()).collect();
        let script = Script::default().turn("go", [Reply::steps(steps).into()]);
        let setup = Setup { api_key: Some(Home::key().to_owned()), ..Setup::from(script) };
        let model = ModelServer::start(setup).await?;
        let nats = NatsServer::start(ServerOptions::default()).await?;
        let backend = TestBackend::Nats { url: nats.url(), prefix: "bench".to_owned() };
        let home = Home::new(backend)?.anthropic(&model).var("CLAWNODE_CLUSTER__PARTITIONS", "8");
        let home = home.var("CLAWNODE_GATEWAY__MAX_UNREAD", "64KiB");
        let worker = Node::start(&home, Start::role("worker")).await?;
        let mut gateways = Vec::new();
        for _ in 0..2 {
            gateways.push(Node::start(&home, Start::role("gateway")).await?);
        }
        Ok(Self { _model: model, _nats: nats, home, _worker: worker, gateways })
    }

    fn client(&self, at: usize) -> Result<Client, Error> {
        let gateway = &self.gateways[at % self.gateways.len()];
        Ok(Client::new(gateway.url(), &self.home.data())?)
    }

    /// One turn beside so many taps: how late each of its words was, and by how many bytes the
    /// gateways grew.
    async fn turn(&self, number: usize, taps: usize) -> Result<(Vec<Duration>, u64), Error> {
        let message = Message::new(&format!("peer{number}"), "go");
        let before = self.resident().await?;
        let mut own = self.client(0)?.send(&message).await?;
        own.begun().await?;
        let mut following = Vec::with_capacity(taps);
        let (session, turn) = (own.session.clone(), own.turn.clone());
        // All of them follow before the first word that counts.
        let reader = tokio::spawn(async move {
            let mut late: Vec<(SystemTime, Duration)> = Vec::new();
            loop {
                let frame = own.next().await?;
                match frame.event.as_str() {
                    "text" => late.extend(lateness(frame.data.as_str().unwrap_or_default())),
                    "done" => return Ok::<_, clawnode_tests::process::ProcessError>(late),
                    _ => {}
                }
            }
        });
        for number in 0..taps {
            following.push(self.client(number)?.tap(&session, &turn).await?);
        }
        let all_follow = now();
        let late = reader.await??;
        let grown = self.resident().await?.saturating_sub(before);
        drop(following);
        let counts = late.into_iter().filter(|(heard, _)| *heard > all_follow);
        Ok((counts.map(|(_, late)| late).collect(), grown))
    }

    async fn resident(&self) -> Result<u64, Error> {
        let mut all = 0;
        for gateway in &self.gateways {
            all += resident_bytes(u32::try_from(gateway.pid())?).await?;
        }
        Ok(all)
    }
}

/// When a frame's words were heard, and how long after the model said the last of them.
fn lateness(text: &str) -> Option<(SystemTime, Duration)> {
    let heard = now();
    let said: u64 = text.split_whitespace().last()?.strip_prefix('@')?.parse().ok()?;
    let said = UNIX_EPOCH + Duration::from_nanos(said);
    Some((heard, heard.duration_since(said).unwrap_or_default()))
}

#[expect(clippy::disallowed_methods, reason = "the model server writes the same clock's time")]
fn now() -> SystemTime {
    SystemTime::now()
}
