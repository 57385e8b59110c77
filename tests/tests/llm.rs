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

use std::{collections::BTreeMap, fmt::Write as _, fs, io, path::Path, sync::Arc, time::Duration};

use clawnode_actors::llm::{
    Model, ModelEvent, ModelRequest, Models, PlainMessage, ProviderOptions, Wire, discover,
    ollama_models,
};
use clawnode_cluster::{Clock, SystemClock};
use clawnode_proto::llm::{
    FailureClass, ModelFailure, ModelRef, Role, Sampling, StopReason, Usage,
};
use clawnode_tests::model::{Act, ModelServer, Reply, Script, Setup, Step};
use futures_util::{StreamExt, poll, stream::BoxStream};

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

#[tokio::test]
async fn every_kind_of_event_is_read() {
    for wire in WIRES {
        let mut told = String::new();
        for (name, body) in fixtures(wire) {
            let server =
                server([Act::Raw { content_type: EVENTS.to_owned(), body }]).await.unwrap();
            let events = call(&*client_with(wire, &server, |o| o.retries = 0), ask("hi")).await;
            let good = matches!(events.last(), Some(ModelEvent::Done { .. }));
            assert_eq!(good, !name.starts_with("bad_"), "{wire:?} {name}: {events:?}");
            writeln!(told, "{name}").unwrap();
            for event in events {
                writeln!(told, "  {event:?}").unwrap();
            }
            server.stop().await.unwrap();
        }
        insta::assert_snapshot!(format!("fixtures_{wire:?}"), told);
    }
}

const EVENTS: &str = "text/event-stream; charset=utf-8";

fn fixtures(wire: Wire) -> Vec<(String, String)> {
    let dir = if wire == Wire::Anthropic { "anthropic" } else { "openai" };
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/llm").join(dir);
    let read = |entry: io::Result<fs::DirEntry>| {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(&path).unwrap())
    };
    let mut all: Vec<_> = fs::read_dir(dir).unwrap().map(read).collect();
    all.sort();
    assert!(all.len() > 20, "fixtures are found");
    all
}

#[tokio::test]
async fn what_is_not_the_reply_is_skipped() {
    let say = |text: &str| Step::Text { text: text.to_owned() };
    let steps = [
        Step::Ping,
        Step::Thinking { text: "hm".to_owned() },
        say("Hel"),
        Step::Ping,
        Step::Unknown,
        Step::Split { text: "lö 🦀".to_owned() },
    ];
    for wire in WIRES {
        for crlf in [false, true] {
            for usage in [false, true] {
                let reply = Reply { crlf, usage, ..Reply::steps(steps.clone()) };
                let server = server([reply.into()]).await.unwrap();
                let events = call(&*client(wire, &server), ask("hi there")).await;
                assert_eq!(text(&events), "Hello 🦀".replace("llo", "llö"), "{wire:?}");
                let counts = if usage { (4, 2) } else { (0, 0) };
                let counted = done(&events).1;
                assert_eq!((counted.input_tokens, counted.output_tokens), counts, "{wire:?}");
                server.stop().await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_fault_within_a_reply_is_a_failure_and_not_tried_again() {
    use FailureClass::{BrokenStream, Overloaded};
    let overloaded = |wire| Step::Error {
        kind: if wire == Wire::Anthropic { "overloaded_error" } else { "server_error" }.to_owned(),
        message: "too busy".to_owned(),
    };
    for wire in WIRES {
        for (step, class, says) in [
            (Step::Cut, BrokenStream, "the connection broke"),
            (Step::BadJson, BrokenStream, "EOF while parsing"),
            (Step::BadShape, BrokenStream, "invalid"),
            (Step::Garble, BrokenStream, "not valid text"),
            (Step::Tool, BrokenStream, "a tool"),
            (overloaded(wire), Overloaded, "too busy"),
            (Step::Raw { text: "x".repeat(2 << 20) }, BrokenStream, "1048576 bytes"),
        ] {
            let name = format!("{wire:?} {:.40}", format!("{step:?}"));
            let server =
                server([Reply::steps([Step::Text { text: "par".to_owned() }, step]).into()]);
            let server = server.await.unwrap();
            let events = call(&*client(wire, &server), ask("hi")).await;
            assert_eq!(text(&events), "par", "{name}");
            assert_eq!(failed(&events).class, class, "{name}: {events:?}");
            assert!(failed(&events).message.contains(says), "{name}: {events:?}");
            assert_eq!(server.stop().await.unwrap().len(), 1, "{name}: asked once");
        }
        let endless = Reply { end: false, ..Reply::text(["par"]) };
        let server = server([endless.into()]).await.unwrap();
        let events = call(&*client(wire, &server), ask("hi")).await;
        assert!(failed(&events).message.contains("before its proper end"), "{wire:?} {events:?}");
        assert_eq!(server.stop().await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn refusals_are_classed_and_carry_the_providers_words() {
    use FailureClass::{Overloaded, Rejected};
    for wire in WIRES {
        for (status, class) in
            [(400, Rejected), (404, Rejected), (413, Rejected), (422, Rejected), (501, Overloaded)]
        {
            let server = server([Act::status(status, "because\r\nof you")]).await.unwrap();
            let events = call(&*client(wire, &server), ask("hi")).await;
            let expected =
                ModelFailure { class, message: "because  of you".to_owned(), status: Some(status) };
            assert_eq!(failed(&events), &expected, "{wire:?}");
            assert_eq!(server.stop().await.unwrap().len(), 1, "{status} is not tried again");
        }
    }
}

#[tokio::test]
async fn what_passes_is_tried_again_with_the_same_key() {
    for wire in WIRES {
        for status in [408, 429, 500, 502, 503, 504, 529] {
            let acts = [Act::status(status, "busy"), Act::say("ok")];
            let server = server(acts).await.unwrap();
            let events = call(&*client(wire, &server), ask("hi")).await;
            assert_eq!(text(&events), "ok", "{wire:?} {status}");
            assert_eq!(retries(&events).len(), 1, "{wire:?} {status}");
            assert_eq!(retries(&events)[0].1.status, Some(status));
            let calls = server.stop().await.unwrap();
            assert_eq!(calls.len(), 2);
            assert_eq!((&calls[0].key, &calls[0].digest), (&calls[1].key, &calls[1].digest));
        }
    }
}

#[tokio::test]
async fn a_connection_closed_before_an_answer_is_tried_again() {
    for wire in WIRES {
        let server = server([Act::Hangup, Act::Hangup, Act::say("ok")]).await.unwrap();
        let events = call(&*client(wire, &server), ask("hi")).await;
        assert_eq!((text(&events).as_str(), retries(&events).len()), ("ok", 2), "{events:?}");
        assert_eq!(server.stop().await.unwrap().len(), 3);
    }
}

#[tokio::test]
async fn an_error_in_the_place_of_a_reply_is_tried_again() {
    for (wire, kind) in [(Wire::Anthropic, "overloaded_error"), (Wire::Openai, "server_error")] {
        let error = format!(
            "event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"{kind}\",\"message\":\"busy\"}}}}\n\n"
        );
        let acts = [Act::Raw { content_type: EVENTS.to_owned(), body: error }, Act::say("ok")];
        let server = server(acts).await.unwrap();
        let events = call(&*client(wire, &server), ask("hi")).await;
        assert_eq!((text(&events).as_str(), retries(&events).len()), ("ok", 1), "{events:?}");
        assert_eq!(retries(&events)[0].1.class, FailureClass::Overloaded);
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn retries_end() {
    for wire in WIRES {
        let server = server((0..9).map(|n| Act::status(500, &format!("no {n}")))).await.unwrap();
        let events = call(&*client(wire, &server), ask("hi")).await;
        assert_eq!(retries(&events).len(), 4);
        assert_eq!(failed(&events).message, "no 4", "the last word, after 4 retries");
        let never = Act::status_with(500, "no more", "x-should-retry", "false");
        let events = {
            let server = self::server([never]).await.unwrap();
            call(&*client(wire, &server), ask("hi")).await
        };
        assert_eq!(retries(&events).len(), 0, "the provider says not to");
        assert_eq!(server.stop().await.unwrap().len(), 5);
    }
}

#[tokio::test]
async fn a_wait_that_the_provider_asks_for_is_kept() {
    for wire in WIRES {
        let busy = Act::status_with(429, "slow down", "Retry-After", "7");
        let server = server([busy, Act::say("ok")]).await.unwrap();
        let mut stream = client(wire, &server).stream(ask("hi"));
        let Some(ModelEvent::Retrying { retry: 1, wait, failure }) = stream.next().await else {
            panic!("not retried")
        };
        assert_eq!((wait, failure.class), (Duration::from_secs(7), FailureClass::RateLimited));
        skip(&mut stream, Duration::from_millis(6_900)).await;
        assert!(poll!(stream.next()).is_pending());
        assert_eq!(server.count(), 1, "not asked again before its time");
        skip(&mut stream, Duration::from_millis(200)).await;
        let rest: Vec<_> = stream.collect().await;
        assert_eq!(text(&rest), "ok");
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_wait_beyond_the_deadline_is_not_begun() {
    for wire in WIRES {
        let server = server([Act::status_with(429, "quota", "retry-after", "3600")]).await.unwrap();
        let events = call(&*client(wire, &server), ask("hi")).await;
        assert_eq!(failed(&events).message, "quota (it asks to wait 3600 s)");
        server.stop().await.unwrap();
    }
}

/// Lets time pass for a stream that waits, and only then.
async fn skip(stream: &mut BoxStream<'_, ModelEvent>, time: Duration) {
    assert!(poll!(stream.next()).is_pending(), "the stream does not wait");
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn silence_is_a_timeout_before_and_within_a_reply() {
    for wire in WIRES {
        let silent = Reply::steps([Step::Text { text: "par".to_owned() }, Step::Stall]);
        let server = server([Act::Stall, silent.into()]).await.unwrap();
        let client = client(wire, &server);
        let mut stream = client.stream(ask("hi"));
        tokio::select! {
            biased;
            event = stream.next() => panic!("{event:?}"),
            _ = server.asked(1) => {}
        }
        skip(&mut stream, Duration::from_secs(71)).await;
        let rest: Vec<_> = stream.collect().await;
        assert_eq!(failed(&rest).class, FailureClass::Timeout);
        assert!(failed(&rest).message.starts_with("provider timeout"), "{rest:?}");

        let mut stream = client.stream(ask("hi"));
        while stream.next().await != Some(ModelEvent::Text("par".to_owned())) {}
        skip(&mut stream, Duration::from_secs(61)).await;
        let rest: Vec<_> = stream.collect().await;
        assert_eq!(failed(&rest).class, FailureClass::Timeout, "{wire:?}");
        assert_eq!(server.stop().await.unwrap().len(), 2, "a timeout is not tried again");
    }
}

#[tokio::test]
async fn a_reply_that_never_ends_meets_the_deadline() {
    for wire in WIRES {
        let reply = Reply::steps([Step::Text { text: "par".to_owned() }, Step::Stall]);
        let server = server([reply.into()]).await.unwrap();
        let client = client_with(wire, &server, |options| {
            options.idle_timeout = Duration::from_hours(1);
        });
        let mut stream = client.stream(ask("hi"));
        while stream.next().await != Some(ModelEvent::Text("par".to_owned())) {}
        skip(&mut stream, Duration::from_secs(601)).await;
        let rest: Vec<_> = stream.collect().await;
        assert_eq!(failed(&rest).message, "provider timeout: no end within 600 s");
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn nobody_there_is_unreachable() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for wire in WIRES {
        let client = client_at(wire, &format!("http://{free}/v1"), |options| {
            options.retries = 1;
            options.retry_first = Duration::from_millis(1);
        });
        let events = call(&*client, ask("hi")).await;
        assert_eq!(retries(&events).len(), 1);
        let failure = failed(&events);
        assert_eq!(failure.class, FailureClass::Unreachable);
        assert!(
            failure.message.starts_with("provider unreachable: http://127.0.0.1"),
            "{failure:?}"
        );
        assert!(failure.message.contains("refused"), "{failure:?}");
    }
}

#[tokio::test]
async fn answers_that_are_no_stream() {
    let json = |body: &str| Act::Raw {
        content_type: "application/json".to_owned(),
        body: body.to_owned(),
    };
    let whole_anthropic = r#"{"id":"m","type":"message","role":"assistant","model":"c","content":
        [{"type":"thinking","thinking":"hm"},{"type":"text","text":"Hello"}],
        "stop_reason":"max_tokens","usage":{"input_tokens":4,"output_tokens":2}}"#;
    let whole_openai = r#"{"id":"c","object":"chat.completion","created":1,"model":"c","choices":
        [{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"length"}],
        "usage":{"prompt_tokens":4,"completion_tokens":2,"total_tokens":6}}"#;
    for (wire, whole) in [(Wire::Anthropic, whole_anthropic), (Wire::Openai, whole_openai)] {
        let html = Act::Raw { content_type: "text/html".to_owned(), body: "<html>".to_owned() };
        let server = server([json(whole), json("{}"), json("["), html]).await.unwrap();
        let client = client(wire, &server);
        let events = call(&*client, ask("hi")).await;
        let usage = Usage { input_tokens: 4, output_tokens: 2, ..Usage::default() };
        assert_eq!(text(&events), "Hello");
        assert_eq!(done(&events), (&StopReason::MaxTokens, usage, "c"));
        for says in ["", "", "`text/html`"] {
            let events = call(&*client, ask("hi")).await;
            assert_eq!(failed(&events).class, FailureClass::BrokenStream, "{events:?}");
            assert!(failed(&events).message.contains(says), "{events:?}");
        }
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn redirects_are_not_followed_with_the_key() {
    for wire in WIRES {
        let away = Act::status_with(307, "moved", "location", "http://evil.test/x?token=hunter3");
        let server = server([away]).await.unwrap();
        let events = call(&*client(wire, &server), ask("hi")).await;
        let failure = failed(&events);
        assert!(failure.message.contains("`evil.test`: set `base_url`"), "{failure:?}");
        assert!(!failure.message.contains("hunter"), "{failure:?}");
        assert_eq!(server.stop().await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_wrong_key_is_unauthorized_and_never_shown() {
    for wire in WIRES {
        let echo = format!("Incorrect API key provided: {KEY}.");
        let server = server([Act::status(403, &echo)]).await.unwrap();
        let client = client(wire, &server);
        let events = call(&*client, ask("hi")).await;
        assert_eq!(failed(&events).class, FailureClass::Unauthorized);
        assert_eq!(failed(&events).message, "Incorrect API key provided: [key].");
        assert!(!format!("{client:?}").contains("hunter2"));
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn dropping_the_stream_aborts_the_call() {
    for wire in WIRES {
        let reply = Reply::steps([Step::Text { text: "par".to_owned() }, Step::Stall]);
        let server = server([reply.into()]).await.unwrap();
        let mut stream = client(wire, &server).stream(ask("hi"));
        while stream.next().await != Some(ModelEvent::Text("par".to_owned())) {}
        drop(stream);
        assert!(!server.answered(1).await[0].full, "the provider sees the connection go");
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn calls_share_a_connection() {
    for wire in WIRES {
        let server = server([]).await.unwrap();
        let client = client(wire, &server);
        for n in 1..=5 {
            let events = call(&*client, ask("hi")).await;
            assert_eq!(text(&events), "reply to: hi");
            // The server has seen the end of this answer before the next request goes out.
            server.answered(n).await;
        }
        assert_eq!(server.connections(), 1, "{wire:?}: each call opens a connection of its own");
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn an_ollama_is_found() {
    let mut setup = Setup::default();
    setup.models = vec!["qwen3:8b".to_owned(), "other".to_owned()];
    let server = ModelServer::start(setup).await.unwrap();
    let addr = server.addr().to_string();
    let lookup = |name: &str| (name == "OLLAMA_HOST").then(|| addr.clone());
    let choice = discover(&lookup, ollama_models).await;
    assert_eq!(choice.model.to_string(), "ollama/qwen3:8b", "{}", choice.why);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let models = Models::new(BTreeMap::new(), &lookup, &clock);
    let events = call(&*models.resolve(&choice.model).unwrap(), ask("hi")).await;
    assert_eq!(text(&events), "reply to: hi", "a local server needs no key");
    server.stop().await.unwrap();
}
