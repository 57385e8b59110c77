//! The real clients against the scripted model server, on loopback: every kind of event of every
//! wire, every fault, and what is retried.
//!
//! No test waits for time to pass: waits that matter are moved by tokio's paused clock, or are
//! seen in the `Retrying` event that announces them.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests: their panic is the test's failure"
)]

mod bedrock;
mod calls;
mod circuit;
mod embeddings;
mod faults;
mod server;
mod settings;
mod streams;
mod thoughts;
mod tools;
mod wires;

use std::{collections::BTreeMap, fs, io, path::Path, sync::Arc, time::Duration};

use clawnode_actors::llm::{
    Model, ModelEvent, ModelRequest, Models, PlainMessage, ProviderOptions, ToolOffer, Wire,
};
use clawnode_cluster::{Clock, SystemClock};
use clawnode_proto::{
    llm::{ModelFailure, ModelRef, Role, Sampling, StopReason, Usage},
    tool::ToolUse,
};
use clawnode_tests::model::{Act, ModelServer, Script, Setup, event_stream};
use futures_util::{StreamExt, poll, stream::BoxStream};
use serde_json::json;

pub(crate) const WIRES: [Wire; 6] = [
    Wire::Anthropic,
    Wire::Openai,
    Wire::OpenaiResponses,
    Wire::Gemini,
    Wire::Ollama,
    Wire::Bedrock,
];
/// Those whose tool calls have their arguments as text, which may be cut or no JSON.
pub(crate) const TEXT_ARGUMENTS: [Wire; 4] =
    [Wire::Anthropic, Wire::Openai, Wire::OpenaiResponses, Wire::Bedrock];
pub(crate) const KEY: &str = "sk-hunter2";

/// A client of a server, with retries that come at once.
pub(crate) fn client(wire: Wire, server: &ModelServer) -> Arc<dyn Model> {
    client_with(wire, server, |options| options.retry_first = Duration::from_millis(1))
}

pub(crate) fn client_with(
    wire: Wire,
    server: &ModelServer,
    set: impl FnOnce(&mut ProviderOptions),
) -> Arc<dyn Model> {
    client_at(wire, &url_of(wire, server), set)
}

/// Where a server is for clients of a wire.
pub(crate) fn url_of(wire: Wire, server: &ModelServer) -> String {
    match wire {
        Wire::Anthropic | Wire::Ollama | Wire::Bedrock | Wire::Demo => server.url(),
        Wire::Openai | Wire::OpenaiResponses => server.openai_url(),
        Wire::Gemini => server.gemini_url(),
    }
}

/// The vendor's word for a server that has too much to do.
pub(crate) fn overloaded(wire: Wire) -> String {
    let word = match wire {
        Wire::Anthropic => "overloaded_error",
        Wire::Gemini => "UNAVAILABLE",
        Wire::Bedrock => "serviceUnavailableException",
        _ => "server_error",
    };
    word.to_owned()
}

/// The content type of a stream.
pub(crate) fn events_type(wire: Wire) -> String {
    let kind = match wire {
        Wire::Ollama => "application/x-ndjson",
        Wire::Bedrock => "application/vnd.amazon.eventstream",
        _ => EVENTS,
    };
    kind.to_owned()
}

pub(crate) fn client_at(
    wire: Wire,
    url: &str,
    set: impl FnOnce(&mut ProviderOptions),
) -> Arc<dyn Model> {
    let mut options = ProviderOptions::new(wire);
    options.base_url = Some(url.parse().unwrap());
    options.api_key_env = Some("KEY".to_owned());
    set(&mut options);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let lookup = |name: &str| (name == "KEY").then(|| KEY.to_owned());
    let models = Models::new(BTreeMap::from([("p".to_owned(), options)]), &lookup, &clock);
    models.resolve(&ModelRef { provider: "p".to_owned(), model: "m".to_owned() }).unwrap()
}

pub(crate) async fn server(acts: impl IntoIterator<Item = Act>) -> io::Result<ModelServer> {
    let setup = Setup { api_key: Some(KEY.to_owned()), ..Setup::from(Script::queue(acts)) };
    ModelServer::start(setup).await
}

pub(crate) fn ask(text: &str) -> ModelRequest {
    ModelRequest {
        model: "m-1".to_owned(),
        system: "be brief".to_owned(),
        messages: vec![PlainMessage::text(Role::User, text)],
        tools: Vec::new(),
        sampling: Sampling::default(),
        idempotency_key: "call-1".to_owned(),
        reply_schema: None,
        cache_key: "ses-1".to_owned(),
    }
}

/// A tool as it is offered.
pub(crate) fn offer(name: &str) -> ToolOffer {
    ToolOffer {
        name: name.parse().unwrap(),
        description: format!("It does {name}."),
        input_schema: json!({"type": "object", "properties": {"a": {"type": "integer"}}}),
    }
}

/// What is offered to the model that said this fixture.
pub(crate) fn offers_in(fixture: &str) -> Vec<ToolOffer> {
    let asks = fixture.trim_start_matches("bad_").starts_with("tools_");
    if asks { vec![offer("get"), offer("put")] } else { Vec::new() }
}

pub(crate) async fn call(client: &dyn Model, request: ModelRequest) -> Vec<ModelEvent> {
    let events: Vec<ModelEvent> = client.stream(request).collect().await;
    let ends =
        |event: &ModelEvent| matches!(event, ModelEvent::Done { .. } | ModelEvent::Failed(_));
    let terminal = events.iter().filter(|event| ends(event)).count();
    assert_eq!(terminal, 1, "LLM-1: one terminal event: {events:?}");
    assert!(events.last().is_some_and(ends), "LLM-1: it is the last: {events:?}");
    events
}

pub(crate) fn text(events: &[ModelEvent]) -> String {
    let text = |event: &ModelEvent| match event {
        ModelEvent::Text(text) => Some(text.clone()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

pub(crate) fn calls(events: &[ModelEvent]) -> Vec<ToolUse> {
    let call = |event: &ModelEvent| match event {
        ModelEvent::ToolUse(tool_use) => Some(tool_use.clone()),
        _ => None,
    };
    events.iter().filter_map(call).collect()
}

pub(crate) fn done(events: &[ModelEvent]) -> (&StopReason, Usage, &str) {
    match events.last() {
        Some(ModelEvent::Done { stop, usage, model }) => (stop, *usage, model),
        other => panic!("no good end: {other:?}"),
    }
}

/// What a failure says before it names the provider, its address and what to do.
pub(crate) fn own_words(failure: &ModelFailure) -> &str {
    let (own, _) = failure.message.split_once(". Provider `p` at http://127.0.0.1:").unwrap();
    own
}

pub(crate) fn failed(events: &[ModelEvent]) -> &ModelFailure {
    match events.last() {
        Some(ModelEvent::Failed(failure)) => failure,
        other => panic!("no failure: {other:?}"),
    }
}

pub(crate) fn retries(events: &[ModelEvent]) -> Vec<(Duration, &ModelFailure)> {
    let retry = |event| match event {
        &ModelEvent::Retrying { wait, ref failure, .. } => Some((wait, failure)),
        _ => None,
    };
    events.iter().filter_map(retry).collect()
}

pub(crate) const EVENTS: &str = "text/event-stream; charset=utf-8";

pub(crate) fn fixtures(wire: Wire) -> Vec<(String, Vec<u8>)> {
    let dir = match wire {
        Wire::Anthropic => "anthropic",
        Wire::Openai | Wire::Demo => "openai",
        Wire::OpenaiResponses => "responses",
        Wire::Gemini => "gemini",
        Wire::Ollama => "ollama",
        Wire::Bedrock => "bedrock",
    };
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/llm").join(dir);
    let read = |entry: io::Result<fs::DirEntry>| {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        (name, if wire == Wire::Bedrock { event_stream(&text) } else { text.into_bytes() })
    };
    let mut all: Vec<_> = fs::read_dir(dir).unwrap().map(read).collect();
    all.sort();
    assert!(all.len() > 14, "fixtures are found");
    all
}

/// Lets time pass for a stream that waits, and only then.
pub(crate) async fn skip(stream: &mut BoxStream<'_, ModelEvent>, time: Duration) {
    assert!(poll!(stream.next()).is_pending(), "the stream does not wait");
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}
