//! Input from outside is refused or understood, and never panics.
//!
//! Method: each decoder gets mutated samples of real data. The short runs are part
//! of every test run; the minute-long ones are `_soak`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests: their panic is the test's failure"
)]

use std::{sync::Arc, time::Duration};

use clawnode_actors::llm::{Wire, fuzz::fuzz};
use clawnode_cluster::{AppendAnswer, SystemClock, Write};
use clawnode_local as local;
use clawnode_local::LocalOptions;
use clawnode_proto::{
    EntityId, Epoch, EventId, Head, Incarnation, Input, Kind, Position, ProcessId, Sealed, Seq,
    Timestamp,
    codec::{decode, encode},
    event::{decode_record, encode_record},
    frame::FrameBatch,
    kernel::{Claim, KernelEvent},
    node::{Heartbeat, NodeReply, NodeRequest},
    session::{SessionInput, UserMessage},
    subject::Prefix,
};
use clawnode_tests::{fuzz::Fuzzer, model::event_stream};

/// Inputs per decoder in a short run.
const ROUNDS: usize = 20_000;
/// How long a decoder is fed in the soak profile.
const SOAK: Duration = Duration::from_mins(1);

fn envelope(bytes: &[u8]) {
    if let Ok(input) = Input::from_bytes(bytes) {
        // What is taken is consistent: its id is the hash of its key.
        assert_eq!(EntityId::derive(input.kind, &input.key), input.entity);
        let again = Input::from_bytes(&input.to_bytes().unwrap()).unwrap();
        assert_eq!(again, input);
    }
}

fn record(bytes: &[u8]) {
    if let Ok(events) = decode_record(bytes) {
        assert!(!events.is_empty());
        for event in events {
            drop(event.event::<KernelEvent>());
            drop(event.event::<clawnode_proto::session::SessionEvent>());
        }
    }
}

fn messages(bytes: &[u8]) {
    drop(decode::<FrameBatch>(bytes));
    drop(decode::<Heartbeat>(bytes));
    drop(decode::<NodeRequest>(bytes));
    drop(decode::<NodeReply>(bytes));
    drop(decode::<SessionInput>(bytes));
}

fn envelopes() -> Vec<Vec<u8>> {
    let body = SessionInput::UserMessage(UserMessage::text("hello"));
    let key = "default:cli:local:ada";
    let input = Input::new(Kind::SESSION, key, "k".parse().unwrap(), Timestamp(1), &body).unwrap();
    vec![input.to_bytes().unwrap(), encode(&body).unwrap(), Vec::new()]
}

fn records() -> Vec<Vec<u8>> {
    let entity = EntityId::derive(Kind::SESSION, "default:cli:local:ada");
    let incarnation = Incarnation { process: ProcessId::from_u128(7), counter: 1 };
    let head = Head {
        entity,
        n: Seq(1),
        v: 1,
        eid: EventId::derive(entity, incarnation, Seq(1)),
        epoch: Epoch(1),
        incarnation,
        ts: Timestamp(1),
        kind: "claim".to_owned(),
        required: true,
        progress: false,
    };
    let claim = KernelEvent::from(Claim::default());
    let sealed = Sealed::seal(head, &claim, clawnode_proto::Digest::ZERO).unwrap();
    vec![encode_record(&[sealed]).unwrap()]
}

fn requests() -> Vec<Vec<u8>> {
    let entity = EntityId::from_u128(1);
    let ask =
        NodeRequest::Ask { entity, input: clawnode_proto::InputId::from_u128(2), asker: None };
    let frames = NodeReply::Frames { frames: Vec::new(), truncated: true };
    vec![encode(&ask).unwrap(), encode(&frames).unwrap(), encode(&NodeRequest::Ping).unwrap()]
}

const ANTHROPIC: &[u8] = b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":\
{\"id\":\"m\",\"model\":\"c\",\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\n\
event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":\
{\"type\":\"text_delta\",\"text\":\"hi \\u00e9\"}}\n\nevent: message_delta\ndata: {\"type\":\
\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":2}}\n\n\
event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
const OPENAI: &[u8] = b"data: {\"id\":\"c\",\"model\":\"g\",\"choices\":[{\"index\":0,\"delta\":\
{\"content\":\"hi\"},\"finish_reason\":null}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{},\
\"finish_reason\":\"stop\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\
\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";

/// Replies with tool calls and thoughts, as the corpus of streams has them.
const REPLIES: [(Wire, &[&[u8]]); 6] = [
    (
        Wire::Anthropic,
        &[
            ANTHROPIC,
            include_bytes!("../fixtures/llm/anthropic/tools_three_calls.sse"),
            include_bytes!("../fixtures/llm/anthropic/tools_no_arguments_cut_off.sse"),
        ],
    ),
    (
        Wire::Openai,
        &[
            OPENAI,
            include_bytes!("../fixtures/llm/openai/tools_interleaved.sse"),
            include_bytes!("../fixtures/llm/openai/tools_without_index.sse"),
        ],
    ),
    (
        Wire::OpenaiResponses,
        &[
            include_bytes!("../fixtures/llm/responses/text.sse"),
            include_bytes!("../fixtures/llm/responses/tools_after_reasoning.sse"),
        ],
    ),
    (
        Wire::Gemini,
        &[
            include_bytes!("../fixtures/llm/gemini/text.sse"),
            include_bytes!("../fixtures/llm/gemini/tools_signed.sse"),
        ],
    ),
    (
        Wire::Ollama,
        &[
            include_bytes!("../fixtures/llm/ollama/text.ndjson"),
            include_bytes!("../fixtures/llm/ollama/tools_after_thinking.ndjson"),
        ],
    ),
    (
        Wire::Bedrock,
        &[
            include_bytes!("../fixtures/llm/bedrock/text.events"),
            include_bytes!("../fixtures/llm/bedrock/tools_after_thinking.events"),
            include_bytes!("../fixtures/llm/bedrock/bad_throttled_after_begin.events"),
        ],
    ),
];

/// A fuzzer of a wire's replies.
fn replies(read_wire: Wire, seed: u64) -> Fuzzer {
    let (_, corpus) = REPLIES.iter().find(|(wire, _)| *wire == read_wire).unwrap();
    let bytes = |text: &&[u8]| match read_wire {
        Wire::Bedrock => event_stream(std::str::from_utf8(text).unwrap()),
        _ => text.to_vec(),
    };
    Fuzzer::new(corpus.iter().map(bytes).collect(), seed)
}

#[test]
fn envelopes_are_refused_or_understood() {
    Fuzzer::new(envelopes(), 1).rounds(ROUNDS, envelope);
}

#[test]
fn records_are_refused_or_understood() {
    Fuzzer::new(records(), 2).rounds(ROUNDS, record);
}

#[test]
fn bus_messages_are_refused_or_understood() {
    Fuzzer::new(requests(), 3).rounds(ROUNDS, messages);
}

#[test]
fn model_streams_are_refused_or_understood() {
    // Each input is a whole simulated call, so fewer of them.
    for ((wire, _), seed) in REPLIES.into_iter().zip(4..) {
        replies(wire, seed).rounds(ROUNDS / 20, |data| fuzz(wire, data));
    }
}

#[test]
fn envelopes_soak() {
    Fuzzer::new(envelopes(), rand::random()).soak(SOAK, envelope);
}

#[test]
fn records_soak() {
    Fuzzer::new(records(), rand::random()).soak(SOAK, record);
}

#[test]
fn bus_messages_soak() {
    Fuzzer::new(requests(), rand::random()).soak(SOAK, messages);
}

#[test]
fn anthropic_streams_soak() {
    replies(Wire::Anthropic, rand::random()).soak(SOAK, |data| fuzz(Wire::Anthropic, data));
}

#[test]
fn openai_streams_soak() {
    replies(Wire::Openai, rand::random()).soak(SOAK, |data| fuzz(Wire::Openai, data));
}

#[test]
fn responses_streams_soak() {
    replies(Wire::OpenaiResponses, rand::random())
        .soak(SOAK, |data| fuzz(Wire::OpenaiResponses, data));
}

#[test]
fn gemini_streams_soak() {
    replies(Wire::Gemini, rand::random()).soak(SOAK, |data| fuzz(Wire::Gemini, data));
}

#[test]
fn ollama_streams_soak() {
    replies(Wire::Ollama, rand::random()).soak(SOAK, |data| fuzz(Wire::Ollama, data));
}

#[test]
fn bedrock_streams_soak() {
    replies(Wire::Bedrock, rand::random()).soak(SOAK, |data| fuzz(Wire::Bedrock, data));
}

/// A data directory with a few journals; what they hold, and the file of its log.
async fn journals(dir: &std::path::Path) -> Vec<(EntityId, Vec<bytes::Bytes>)> {
    let options = LocalOptions::new(Prefix::default(), Arc::new(SystemClock));
    let (storage, _control) = local::open(dir, options).unwrap();
    let mut all = Vec::new();
    for n in 0..6 {
        let entity = EntityId::derive(Kind::SESSION, &format!("default:fuzz:local:{n}"));
        let mut position = Position(0);
        let mut records = Vec::new();
        for k in 0..4 {
            let bytes = bytes::Bytes::from(format!("record {k} of {n}").repeat(n + 1));
            let write = Write { bytes: bytes.clone(), rollup: false };
            match storage.journal.append(entity, position, write).await {
                AppendAnswer::Stored(at) => position = at,
                other => panic!("{other:?}"),
            }
            records.push(bytes);
        }
        all.push((entity, records));
    }
    storage.health.close().await;
    all
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// A damaged log is refused, or what it serves is what was written: a prefix where the tail is
/// torn, and never other bytes.
async fn damaged_logs(rounds: usize, seed: u64) {
    let whole = tempfile::tempdir().unwrap();
    let written = journals(whole.path()).await;
    let log = std::fs::read_dir(whole.path().join("log")).unwrap().next().unwrap().unwrap();
    let bytes = std::fs::read(log.path()).unwrap();
    let mut fuzzer = Fuzzer::new(vec![bytes.clone()], seed);
    let mut served = 0;
    for _ in 0..rounds {
        let damaged = tempfile::tempdir().unwrap();
        copy(whole.path(), damaged.path());
        let input = fuzzer.whole_input();
        std::fs::write(damaged.path().join("log").join(log.file_name()), &input).unwrap();
        let Ok((storage, _control)) = local::open_read_only(damaged.path()) else { continue };
        for (entity, records) in &written {
            let Ok(found) = storage.journal.read(*entity, Position(0)).await else { continue };
            let found: Vec<_> = found.into_iter().map(|record| record.bytes).collect();
            assert!(records.starts_with(&found), "seed {seed}: served what was not written");
            served += found.len();
        }
    }
    assert!(served > 0, "no damaged log was served at all, so nothing was tested");
}

#[tokio::test]
async fn damaged_logs_are_refused_or_served_as_written() {
    damaged_logs(300, 6).await;
}

#[tokio::test]
async fn damaged_logs_soak() {
    damaged_logs(20_000, rand::random()).await;
}
