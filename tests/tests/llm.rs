//! The real clients against the scripted model server, on loopback: every kind of event of both
//! wires, every fault, and what is retried.
//!
//! No test waits for time to pass: waits that matter are moved by tokio's paused clock, or are
//! seen in the `Retrying` event that announces them.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests: their panic is the test's failure"
)]

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use clawnode_actors::llm::{
    Model, ModelEvent, ModelRequest, Models, PlainMessage, ProviderOptions, Wire,
};
use clawnode_cluster::{Clock, SystemClock};
use clawnode_proto::llm::{
    FailureClass, ModelFailure, ModelRef, Role, Sampling, StopReason, Usage,
};
use clawnode_tests::model::{Act, ModelServer, Reply, Script, Setup, Step};
use futures_util::StreamExt;

const WIRES: [Wire; 2] = [Wire::Anthropic, Wire::Openai];
const KEY: &str = "sk-hunter2";

/// A client of a server, with retries that come at once.
fn client(wire: Wire, server: &ModelServer) -> Arc<dyn Model> {
    client_with(wire, server, |options| options.retry_first = Duration::from_millis(1))
}

fn client_with(
    wire: Wire,
    server: &ModelServer,
    set: impl FnOnce(&mut ProviderOptions),
) -> Arc<dyn Model> {
    let url = if wire == Wire::Anthropic { server.url() } else { server.openai_url() };
    client_at(wire, &url, set)
}

fn client_at(wire: Wire, url: &str, set: impl FnOnce(&mut ProviderOptions)) -> Arc<dyn Model> {
    let mut options = ProviderOptions::new(wire);
    options.base_url = Some(url.parse().unwrap());
    options.api_key_env = Some("KEY".to_owned());
    set(&mut options);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let lookup = |name: &str| (name == "KEY").then(|| KEY.to_owned());
    let models = Models::new(BTreeMap::from([("p".to_owned(), options)]), &lookup, &clock);
    models.resolve(&ModelRef { provider: "p".to_owned(), model: "m".to_owned() }).unwrap()
}

async fn server(acts: impl IntoIterator<Item = Act>) -> io::Result<ModelServer> {
    let setup = Setup { api_key: Some(KEY.to_owned()), ..Setup::from(Script::queue(acts)) };
    ModelServer::start(setup).await
}

fn ask(text: &str) -> ModelRequest {
    ModelRequest {
        model: "m-1".to_owned(),
        system: "be brief".to_owned(),
        messages: vec![PlainMessage { role: Role::User, text: text.to_owned() }],
        sampling: Sampling::default(),
        idempotency_key: "call-1".to_owned(),
    }
}

async fn call(client: &dyn Model, request: ModelRequest) -> Vec<ModelEvent> {
    let events: Vec<ModelEvent> = client.stream(request).collect().await;
    let ends =
        |event: &&ModelEvent| matches!(event, ModelEvent::Done { .. } | ModelEvent::Failed(_));
    assert_eq!(events.iter().filter(ends).count(), 1, "LLM-1: one terminal event: {events:?}");
    assert!(events.last().filter(ends).is_some(), "LLM-1: it is the last: {events:?}");
    events
}

fn text(events: &[ModelEvent]) -> String {
    let text = |event: &ModelEvent| match event {
        ModelEvent::Text(text) => Some(text.clone()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

fn done(events: &[ModelEvent]) -> (&StopReason, Usage, &str) {
    match events.last() {
        Some(ModelEvent::Done { stop, usage, model }) => (stop, *usage, model),
        other => panic!("no good end: {other:?}"),
    }
}

fn failed(events: &[ModelEvent]) -> &ModelFailure {
    match events.last() {
        Some(ModelEvent::Failed(failure)) => failure,
        other => panic!("no failure: {other:?}"),
    }
}

fn retries(events: &[ModelEvent]) -> Vec<(Duration, &ModelFailure)> {
    let retry = |event| match event {
        &ModelEvent::Retrying { wait, ref failure, .. } => Some((wait, failure)),
        _ => None,
    };
    events.iter().filter_map(retry).collect()
}

#[tokio::test]
async fn a_reply_streams_with_its_usage_and_end() {
    for wire in WIRES {
        let server = server([Reply::text(["Hel", "lo ", "🦀"]).into()]).await.unwrap();
        let events = call(&*client(wire, &server), ask("hi there")).await;
        let pieces = events.iter().filter(|event| matches!(event, ModelEvent::Text(_))).count();
        assert_eq!((text(&events).as_str(), pieces), ("Hello 🦀", 3), "{wire:?}");
        let usage = Usage { input_tokens: 4, output_tokens: 3, ..Usage::default() };
        assert_eq!(done(&events), (&StopReason::EndTurn, usage, "m-1"), "{wire:?}");
        let calls = server.stop().await.unwrap();
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0].key.as_deref(), Some("call-1"));
        assert!(calls[0].full, "the whole answer was taken");
    }
}

#[tokio::test]
async fn what_is_asked_is_what_was_said() {
    for wire in WIRES {
        let server = server([]).await.unwrap();
        let mut request = ask("first");
        let say = |role, text: &str| PlainMessage { role, text: text.to_owned() };
        request.messages = vec![
            say(Role::User, "first"),
            say(Role::User, "second"),
            say(Role::Assistant, "answer"),
            say(Role::User, "third"),
        ];
        request.sampling =
            Sampling { temperature: Some(0.5), max_tokens: Some(7), stop: vec!["END".to_owned()] };
        let events = call(&*client(wire, &server), request).await;
        assert_eq!(text(&events), "reply to: third");
        let calls = server.stop().await.unwrap();
        let body = String::from_utf8(calls[0].body.to_vec()).unwrap();
        insta::assert_snapshot!(format!("request_{wire:?}"), body);
    }
}
