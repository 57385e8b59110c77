//! `recall::turn`: what memory adds to a turn, from a client's message to `done`.
//!
//! One person talks to two agents of one node, which are the same, but one has a memory. It has 2,000 points about the
//! person and 1,000 passages of an earlier conversation of both. Blocks of turns with and without memory alternate, each
//! in a conversation of its own, so a slow moment of the machine falls on both; so does what the store does in the
//! background. The model answers without delay, and no agent has tools. What people say consists of words that memories
//! and passages have, too, and teaches nothing. Each message is sent as soon as the turn before is done. Run with
//! `cargo run --release -p clawnode-bench --bin recall_turn`, and with `--nats` on a NATS server of its own.

#![expect(clippy::cast_precision_loss, reason = "counts of turns are far below 2^52")]

use std::time::{Duration, Instant};

use clap::Parser;
use clawnode_bench::{
    Error, Node, NodeSetup, Pin, Place, Role, Row, Speech, Storage, Table, TurnSocket, model,
    percentile,
};
use clawnode_tests::nats::{NatsServer, ServerOptions};
use serde_json::{Value, json};

/// The most that memory may add to a turn at p50, in milliseconds: embedded, and on NATS.
const EMBEDDED_MS: f64 = 0.5;
const NATS_MS: f64 = 1.5;
/// The agent without memory, and the one with it.
const AGENTS: [&str; 2] = ["plain", "reminded"];
const CONFIG: &str = "[agents.plain]\nmodel = \"openai/scripted\"\n\
                      [agents.reminded]\nmodel = \"openai/scripted\"\n[agents.reminded.memory]\n";
/// What the second agent knows of the person, and their earlier conversation.
const MEMORY: &str = "reminded/peer/bench:recall:ada";
const EARLIER: &str = "reminded:bench:recall:ada";
/// Points of one request.
const BATCH: usize = 64;
/// Words of a point, of a message of the earlier conversation, and of one whose turn is measured.
const POINT_WORDS: usize = 14;
const EARLIER_WORDS: usize = 40;
const MESSAGE_WORDS: usize = 12;
/// A word of the last earlier message alone: the store has the conversation once it finds that.
const LAST: &str = "lighthouse";
/// How long the store may take until then, and how often it is asked.
const PATIENCE: Duration = Duration::from_mins(2);
const LOOK: Duration = Duration::from_millis(200);

/// Measures what memory adds to a turn
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    /// Blocks of turns with memory, and as many without
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    blocks: u16,
    /// Turns of a block, the first of which is not counted
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(2..))]
    turns: u16,
    /// Points of the memory
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u16).range(1..=2_000))]
    points: u16,
    /// Turns of the earlier conversation, each of which is two passages
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..))]
    earlier: u16,
    /// Pieces of a reply
    #[arg(long, default_value_t = 16)]
    tokens: u32,
    /// On a NATS server instead of a data directory
    #[arg(long)]
    nats: bool,
    #[command(flatten)]
    place: Place,
}

/// The person, who talks to both agents of a node.
struct TalkingPerson {
    addr: String,
    http: reqwest::Client,
    socket: TurnSocket,
    speech: Speech,
    /// How each reply ends.
    ends_with: String,
}

/// What turns recalled.
#[derive(Debug, Default)]
struct RecallsOfTurns {
    points: usize,
    passages: usize,
    /// Turns with a search that may have missed something.
    degraded: usize,
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
    let (_model, model) = model(Pin(None), args.tokens).await?;
    let server =
        if args.nats { Some(NatsServer::start(ServerOptions::default()).await?) } else { None };
    let storage = match &server {
        Some(server) => Storage::Nats { url: server.url() },
        None => Storage::Embedded,
    };
    let dir = tempfile::tempdir_in(&parent)?;
    let setup = NodeSetup {
        binary: &binary,
        dir: dir.path(),
        model: &model,
        storage,
        config: CONFIG,
        pin: Pin(None),
        role: None,
    };
    let mut node = Node::start(&setup).await?;
    let mut person = TalkingPerson {
        addr: node.addr.clone(),
        http: reqwest::Client::new(),
        socket: TurnSocket::connect(&node.addr).await?,
        speech: Speech::default(),
        ends_with: if args.tokens > 1 { format!(" {}", args.tokens) } else { String::new() },
    };
    person.is_known(usize::from(args.points)).await?;
    person.has_talked(args.earlier).await?;

    let mut took: [Vec<Duration>; AGENTS.len()] = Default::default();
    for block in 0..=args.blocks {
        let mut sides = [0, 1];
        if block % 2 == 1 {
            sides.reverse();
        }
        for side in sides {
            let block_took = person.talks(AGENTS[side], block, args.turns).await?;
            // The first blocks warm up, and the first turn of a conversation makes its session.
            if block > 0 {
                took[side].extend(block_took.into_iter().skip(1));
            }
        }
    }
    let mut recalls = RecallsOfTurns::default();
    for block in 1..=args.blocks {
        person.counts(block, &mut recalls).await?;
    }
    person.socket.close().await?;
    node.process().stop().await?;
    let mut table = Table::default();
    table.add(row(args, took, &recalls));
    if recalls.points == 0 || recalls.passages == 0 {
        return Err("the turns recalled no points, or no passages: the figures say nothing".into());
    }
    Ok(table.json()?)
}

fn row(args: &Args, took: [Vec<Duration>; AGENTS.len()], recalls: &RecallsOfTurns) -> Row {
    let [without, with] = took.map(|mut took| {
        took.sort_unstable();
        [500, 990].map(|of_1000| percentile(&took, of_1000).as_secs_f64() * 1e3)
    });
    let (storage, most) = if args.nats { ("nats", NATS_MS) } else { ("embedded", EMBEDDED_MS) };
    let turns = f64::from(args.blocks) * f64::from(args.turns);
    let added = with[0] - without[0];
    let (points, passages) = (args.points, u32::from(args.earlier) * 2);
    Row::new(format!("recall::turn/{storage}/points={points}/passages={passages}"))
        .figure("without_p50_ms", without[0])
        .figure("with_p50_ms", with[0])
        .figure("added_p50_ms", added)
        .figure("without_p99_ms", without[1])
        .figure("with_p99_ms", with[1])
        .figure("added_p99_ms", with[1] - without[1])
        .figure("points_a_turn", recalls.points as f64 / turns)
        .figure("passages_a_turn", recalls.passages as f64 / turns)
        .figure("degraded_percent", 100.0 * recalls.degraded as f64 / turns)
        .at_most("added ms at p50", added, most)
}

// === impl TalkingPerson ===

impl TalkingPerson {
    /// Gives the second agent so many points about the person.
    async fn is_known(&mut self, points: usize) -> Result<(), Error> {
        let mut left = points;
        while left > 0 {
            let batch = left.min(BATCH);
            let point = |speech: &mut Speech| json!({ "text": speech.text(POINT_WORDS) });
            let batch_points: Vec<Value> = (0..batch).map(|_| point(&mut self.speech)).collect();
            let put = json!({ "memory": MEMORY, "points": batch_points });
            self.call("memory.put", &put).await?;
            left -= batch;
        }
        let stats = self.call("memory.stats", &json!({ "memory": MEMORY })).await?;
        if stats["points"] != json!(points) {
            return Err(format!("the memory lacks points: {stats}").into());
        }
        Ok(())
    }

    /// Has the earlier conversation, and waits until the store has it.
    async fn has_talked(&mut self, turns: u16) -> Result<(), Error> {
        for turn in 1..=turns {
            let said = self.speech.text(EARLIER_WORDS);
            let said = if turn == turns { format!("{said} {LAST}") } else { said };
            self.says(AGENTS[1], None, &said).await?;
        }
        let asked = json!({ "session": EARLIER, "query": LAST });
        let began = Instant::now();
        loop {
            let view = self.call("memory.search", &asked).await?;
            let mut found = view["found"].as_array().into_iter().flatten();
            // A passage is what has no id of a point.
            if view["degraded"].is_null() && found.any(|found| found["point"].is_null()) {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("the store does not have the conversation: {view}").into());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A conversation with an agent: how long each turn took.
    async fn talks(&mut self, agent: &str, block: u16, turns: u16) -> Result<Vec<Duration>, Error> {
        let conversation = block.to_string();
        let mut took = Vec::with_capacity(usize::from(turns));
        for _ in 0..turns {
            let said = self.speech.text(MESSAGE_WORDS);
            took.push(self.says(agent, Some(&conversation), &said).await?);
        }
        Ok(took)
    }

    /// One turn.
    async fn says(
        &mut self,
        agent: &str,
        conversation: Option<&str>,
        content: &str,
    ) -> Result<Duration, Error> {
        let params = json!({
            "channel": "bench",
            "account": "recall",
            "peer": "ada",
            "conversation": conversation,
            "agent": agent,
            "content": content,
        });
        Ok(self.socket.turn(&params, &self.ends_with).await?.0)
    }

    /// Adds what the turns of a conversation recalled, by its journal.
    async fn counts(&self, block: u16, recalls: &mut RecallsOfTurns) -> Result<(), Error> {
        let mut cursor = Value::Null;
        loop {
            let asked = json!({ "session": format!("{EARLIER}~{block}"), "cursor": cursor });
            let page = self.call("journal.show", &asked).await?;
            let events = page["events"].as_array().into_iter().flatten();
            for event in events.filter(|event| event["kind"] == "recalled") {
                let body = &event["body"];
                let count = |field: &str| body[field].as_array().map_or(0, Vec::len);
                recalls.points += count("points");
                recalls.passages += count("passages");
                recalls.degraded += usize::from(!body["degraded"].is_null());
            }
            cursor = page["next"].clone();
            if cursor.is_null() {
                return Ok(());
            }
        }
    }

    /// Calls a method of the node.
    async fn call(&self, method: &str, params: &Value) -> Result<Value, Error> {
        let request = json!({ "id": 1, "method": method, "params": params });
        let url = format!("http://{}/v1/rpc", self.addr);
        let answer: Value = self.http.post(url).json(&request).send().await?.json().await?;
        match answer.get("result") {
            Some(result) => Ok(result.clone()),
            None => Err(format!("`{method}` failed: {answer}").into()),
        }
    }
}
