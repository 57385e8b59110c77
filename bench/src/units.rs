//! What one of each thing costs, measured for the [arithmetic](crate::capacity).
#![expect(clippy::cast_precision_loss, reason = "counts and bytes are far below 2^52")]

use std::{
    path::Path,
    time::{Duration, Instant},
};

use bytes::Bytes;
use clawnode_cluster::placement::{Seat, serving};
use clawnode_proto::{
    EntityId, Partition, ProcessId,
    limits::{ACK_WAIT, PARTITIONS_NATS},
    subject::Prefix,
};
use clawnode_tests::nats::{NatsServer, ServerOptions};
use futures_util::{StreamExt, future::try_join_all};
use serde_json::Value;

use crate::{
    Error, Load, Node, NodeSetup, Pin, Storage, cpu, fill, load, model, model_with, passivated,
    resident_bytes, slope,
};

/// After sessions or subjects were made, for what follows.
const SETTLE: Duration = Duration::from_secs(3);
/// How long a node at rest is looked at.
const REST: Duration = Duration::from_secs(15);
/// Publishes to a stream that wait for their answers.
const WINDOW: usize = 1_000;
/// Pieces of a long reply, and milliseconds before each: each piece becomes a frame.
const PIECES: u32 = 41;
const GAP: &str = "25";
/// How often a heartbeat is read to measure that.
const READS: u32 = 20_000;

/// Memory of one process with its own store: bytes of it (RSS) with so many sessions.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Without sessions.
    pub idle: f64,
    /// Sessions and bytes, with all of them resident: few, then many.
    pub resident: [(f64, f64); 2],
    /// The same with none of them resident.
    pub passivated: [(f64, f64); 2],
}

/// What turns cost a node and the NATS server.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    /// Processor time of the node, in microseconds.
    pub node_us: f64,
    /// Processor time of the server, in microseconds.
    pub bus_us: f64,
    /// Messages into and out of the server.
    pub messages: f64,
    /// Frames of text.
    pub frames: f64,
    /// Records in the journal's stream.
    pub records: f64,
    /// Bytes in the journal's stream.
    pub stored: f64,
}

/// What a node at rest says.
#[derive(Clone, Copy, Debug)]
pub struct Rest {
    /// Messages into and out of the server, a second.
    pub messages: f64,
    /// Bytes of its heartbeat.
    pub heartbeat: f64,
    /// To read that, in microseconds.
    pub heartbeat_us: f64,
}

/// What a subject of a stream costs the server.
#[derive(Clone, Copy, Debug)]
pub struct Subjects {
    /// In memory, in bytes.
    pub memory: f64,
    /// On its disk, in bytes, with a record of 16 bytes.
    pub disk: f64,
    /// Of a start after a kill, in seconds.
    pub restart: f64,
}

/// Counters of a server and a node.
#[derive(Clone, Copy)]
struct Counters {
    node: Duration,
    bus: Duration,
    messages: f64,
    records: f64,
    stored: f64,
}

/// Measures memory without sessions, and with the smaller and the larger number of them.
pub async fn memory(binary: &Path, parent: &Path, from: usize, to: usize) -> Result<Memory, Error> {
    let (_model, model) = model(Pin(None), 1).await?;
    let mut memory =
        Memory { idle: f64::NAN, resident: [(0.0, 0.0); 2], passivated: [(0.0, 0.0); 2] };
    for (stay, points) in [("1h", &mut memory.resident), ("1s", &mut memory.passivated)] {
        let dir = tempfile::tempdir_in(parent)?;
        let mut node = start(binary, dir.path(), &model, Storage::Embedded, stay).await?;
        tokio::time::sleep(SETTLE).await;
        memory.idle = node.process().resident_bytes().await? as f64;
        let mut sessions = 0;
        for ((first, then), point) in [(0, from), (from, to)].into_iter().zip(points) {
            sessions += fill(&node.addr, first, then).await?;
            if stay == "1s" {
                passivated(&node).await?;
            }
            tokio::time::sleep(SETTLE).await;
            *point = (sessions as f64, node.process().resident_bytes().await? as f64);
        }
        node.process().kill().await?;
    }
    Ok(memory)
}

async fn start(
    binary: &Path,
    dir: &Path,
    model: &str,
    storage: Storage,
    stay: &str,
) -> Result<Node, Error> {
    let config = format!("[session]\npassivate_after = \"{stay}\"\n");
    let pin = Pin(None);
    Node::start(&NodeSetup { binary, dir, model, storage, config: &config, pin, role: None }).await
}

/// A node at a NATS server of its own.
#[derive(Debug)]
pub struct OnNats {
    server: NatsServer,
    node: Node,
    began: Instant,
    _model: crate::Process,
    _dir: tempfile::TempDir,
}

impl OnNats {
    /// Starts both; the model answers in one piece, or in `long` many with time between.
    pub async fn start(binary: &Path, parent: &Path, long: bool) -> Result<Self, Error> {
        let server = NatsServer::start(ServerOptions::default()).await?;
        let pieces = PIECES.to_string();
        let role: &[&str] = if long {
            &["model", "--tokens", &pieces, "--delay-ms", GAP]
        } else {
            &["model", "--tokens", "1"]
        };
        let (model, addr) = model_with(Pin(None), role).await?;
        let dir = tempfile::tempdir_in(parent)?;
        let storage = Storage::Nats { url: server.url() };
        let node = start(binary, dir.path(), &addr, storage, "1h").await?;
        let began = Instant::now();
        Ok(Self { server, node, began, _model: model, _dir: dir })
    }

    /// Messages a second into and out of the server while the node, which has just started, scans
    /// what it serves first, as all do after a death.
    pub async fn scanning(&mut self) -> Result<f64, Error> {
        tokio::time::sleep(SETTLE).await;
        self.messages_a_second().await
    }

    /// Waits until the node scans no more.
    async fn quiet(&self) {
        let until = self.began + ACK_WAIT * 2 + SETTLE;
        tokio::time::sleep_until(until.into()).await;
    }

    /// What a node at rest says.
    pub async fn rest(&mut self) -> Result<Rest, Error> {
        self.quiet().await;
        let messages = self.messages_a_second().await?;
        let client = async_nats::connect(self.server.url()).await?;
        let mut heard = client.subscribe("cn.hb.*").await?;
        let payload = heard.next().await.ok_or("no heartbeat")?.payload;
        let began = Instant::now();
        for _ in 0..READS {
            clawnode_proto::codec::decode::<clawnode_proto::node::Heartbeat>(&payload)?;
        }
        let heartbeat_us = began.elapsed().as_secs_f64() * 1e6 / f64::from(READS);
        Ok(Rest { messages, heartbeat: payload.len() as f64, heartbeat_us })
    }

    async fn messages_a_second(&mut self) -> Result<f64, Error> {
        let before = self.counters().await?;
        tokio::time::sleep(REST).await;
        Ok((self.counters().await?.messages - before.messages) / REST.as_secs_f64())
    }

    /// What each of so many turns costs, in sessions of `of_session` turns each.
    pub async fn turns(
        &mut self,
        run: &str,
        turns: usize,
        of_session: usize,
    ) -> Result<Turns, Error> {
        self.quiet().await;
        let before = self.counters().await?;
        let concurrency = 32;
        let plan = Load {
            addr: self.node.addr.clone(),
            concurrency,
            turns_per_session: of_session,
            one_user: false,
            time: Duration::MAX,
            turns: turns.div_ceil(concurrency).next_multiple_of(of_session),
            run: run.to_owned(),
            ends_with: String::new(),
        };
        let report = load(&plan).await?;
        // What follows the last turn's end.
        tokio::time::sleep(SETTLE).await;
        let after = self.counters().await?;
        let count = report.latencies.len() as f64;
        let per_unit = |less: f64, more: f64| (more - less) / count;
        let us =
            |less: Duration, more: Duration| more.saturating_sub(less).as_secs_f64() * 1e6 / count;
        Ok(Turns {
            node_us: us(before.node, after.node),
            bus_us: us(before.bus, after.bus),
            messages: per_unit(before.messages, after.messages),
            frames: report.texts as f64 / count,
            records: per_unit(before.records, after.records),
            stored: per_unit(before.stored, after.stored),
        })
    }

    async fn counters(&mut self) -> Result<Counters, Error> {
        let pid = self.server.pid().ok_or("the server has ended")?;
        let general = self.server.page("/varz").await?;
        let journal = stream(&self.server, "JOURNAL").await?;
        Ok(Counters {
            node: self.node.process().cpu().await?,
            bus: cpu(pid).await?,
            messages: number(&general["in_msgs"]) + number(&general["out_msgs"]),
            // Never less: what a snapshot replaced was written as well.
            records: number(&journal["state"]["last_seq"]),
            stored: number(&journal["state"]["bytes"]),
        })
    }
}

/// The page of the stream whose name ends so.
async fn stream(server: &NatsServer, name: &str) -> Result<Value, Error> {
    let page = server.page("/jsz?streams=true").await?;
    let accounts = page["account_details"].as_array().ok_or("no accounts")?;
    let streams = accounts.iter().filter_map(|one| one["stream_detail"].as_array()).flatten();
    let mut named =
        streams.filter(|one| one["name"].as_str().is_some_and(|text| text.ends_with(name)));
    Ok(named.next().cloned().ok_or("no such stream")?)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// Measures what a subject of a stream like the journal's costs, between two numbers of them.
pub async fn subjects(from: usize, to: usize) -> Result<Subjects, Error> {
    let mut server = NatsServer::start(ServerOptions::default()).await?;
    let (mut memory, mut disk, mut restarts) = ([(0.0, 0.0); 2], [(0.0, 0.0); 2], [(0.0, 0.0); 2]);
    for (at, (first, then)) in [(0, from), (from, to)].into_iter().enumerate() {
        publish(&server, first, then).await?;
        tokio::time::sleep(SETTLE).await;
        let state = stream(&server, "SUBJECTS").await?["state"].clone();
        let subjects = number(&state["num_subjects"]);
        disk[at] = (subjects, number(&state["bytes"]));
        let began = Instant::now();
        server.restart().await?;
        restarts[at] = (subjects, began.elapsed().as_secs_f64());
        tokio::time::sleep(SETTLE).await;
        // After a start there is no garbage that its collector has not come to yet.
        let pid = server.pid().ok_or("the server has ended")?;
        memory[at] = (subjects, resident_bytes(pid).await? as f64);
    }
    Ok(Subjects { memory: slope(memory), disk: slope(disk), restart: slope(restarts) })
}

async fn publish(server: &NatsServer, first: usize, then: usize) -> Result<(), Error> {
    let context = async_nats::jetstream::new(async_nats::connect(server.url()).await?);
    let config = async_nats::jetstream::stream::Config {
        name: "SUBJECTS".to_owned(),
        subjects: vec!["cn.j.>".to_owned()],
        ..Default::default()
    };
    context.get_or_create_stream(config).await?;
    let prefix = Prefix::default();
    let mut at = first;
    while at < then {
        let until = then.min(at + WINDOW);
        let mut answers = Vec::with_capacity(WINDOW);
        for number in at..until {
            // Spread over the whole range, as derived ids are.
            let bits =
                u128::try_from(number)?.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
            let entity = EntityId::from_u128(bits);
            let subject = prefix.journal(entity.partition(PARTITIONS_NATS), entity);
            answers
                .push(context.publish(subject, Bytes::from_static(&[0; 16])).await?.into_future());
        }
        try_join_all(answers).await?;
        at = until;
    }
    Ok(())
}

/// How many of so many partitions the busiest of so many workers serves first: the mean of some
/// clusters.
pub fn most_partitions(partitions: u16, workers: u128) -> f64 {
    const CLUSTERS: u128 = 20;
    let mut sum = 0;
    for cluster in 0..CLUSTERS {
        let process = |number| ProcessId::from_u128(cluster << 64 | number);
        let seats: Vec<Seat> =
            (1..=workers).map(|number| Seat { process: process(number), shed: 0 }).collect();
        let mut firsts = std::collections::BTreeMap::new();
        for partition in 0..partitions {
            if let Some((_, first)) = serving(Partition(partition), &seats).first() {
                *firsts.entry(*first).or_insert(0_u32) += 1;
            }
        }
        sum += firsts.values().max().copied().unwrap_or_default();
    }
    f64::from(sum) / CLUSTERS as f64
}
