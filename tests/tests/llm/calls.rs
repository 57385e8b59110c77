//! What a call sends, what it keeps secret, and how it ends.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::{Arc, Mutex},
};

use clawnode_actors::llm::{
    ModelEvent, Models, PlainMessage, Wire, discover, fuzz::replay_whole, ollama_models,
};
use clawnode_cluster::{Clock, SystemClock};
use clawnode_proto::llm::{FailureClass, Role, Sampling, StopReason, Usage};
use clawnode_tests::model::{Act, ModelServer, Reply, Setup, Step};
use futures_util::StreamExt;
use tracing_subscriber::fmt::{MakeWriter, format::FmtSpan};

use crate::{KEY, WIRES, ask, call, client, done, failed, server, text};

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
        let say = |role, text: &str| PlainMessage::text(role, text);
        request.messages = vec![
            say(Role::User, "first"),
            say(Role::User, "second"),
            say(Role::Assistant, "answer"),
            say(Role::User, "third"),
        ];
        request.sampling = Sampling {
            temperature: Some(0.5),
            top_p: Some(0.9),
            max_tokens: Some(7),
            stop: vec!["END".to_owned()],
            ..Sampling::default()
        };
        if wire == Wire::OpenaiResponses {
            // It has no such field.
            request.sampling.stop.clear();
        }
        let events = call(&*client(wire, &server), request).await;
        assert_eq!(text(&events), "reply to: third");
        let calls = server.stop().await.unwrap();
        let body = String::from_utf8(calls[0].body.to_vec()).unwrap();
        insta::assert_snapshot!(format!("request_{wire:?}"), body);
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

#[test]
fn tokens_from_a_cache_are_part_of_the_input_however_a_provider_counts() {
    let anthropic = r#"{"id":"m","type":"message","role":"assistant","model":"c","content":
        [{"type":"text","text":"Hi"}],"stop_reason":"end_turn","usage":USAGE}"#;
    let openai = r#"{"id":"c","object":"chat.completion","created":1,"model":"c","choices":
        [{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":USAGE}"#;
    let apart = r#"{"input_tokens":5,"output_tokens":2,"cache_read_input_tokens":90,
        "cache_creation_input_tokens":7}"#;
    let details = r#"{"prompt_tokens":102,"completion_tokens":2,
        "prompt_tokens_details":{"cached_tokens":90}}"#;
    let deepseek = r#"{"prompt_tokens":102,"completion_tokens":2,"prompt_cache_hit_tokens":90,
        "prompt_cache_miss_tokens":12}"#;
    let moonshot = r#"{"prompt_tokens":102,"completion_tokens":2,"cached_tokens":90}"#;
    for (wire, body, usage, written) in [
        (Wire::Anthropic, anthropic, apart, 7),
        (Wire::Openai, openai, details, 0),
        (Wire::Openai, openai, deepseek, 0),
        (Wire::Openai, openai, moonshot, 0),
    ] {
        let events = replay_whole(wire, false, body.replace("USAGE", usage).as_bytes());
        let expected = Usage {
            input_tokens: 102,
            output_tokens: 2,
            cache_read_tokens: 90,
            cache_write_tokens: written,
            ..Usage::default()
        };
        assert_eq!(done(&events).1, expected, "{usage}");
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
async fn a_wrong_key_is_unauthorized_and_never_shown() {
    for wire in WIRES {
        let echo = format!("Incorrect API key provided: {KEY}.");
        let server = server([Act::status(403, &echo)]).await.unwrap();
        let client = client(wire, &server);
        let events = call(&*client, ask("hi")).await;
        assert_eq!(failed(&events).class, FailureClass::Unauthorized);
        let says = &failed(&events).message;
        assert!(says.starts_with("Incorrect API key provided: [key]. Provider `p` at "), "{says}");
        assert!(says.ends_with(" refused its key: check `KEY`"), "{says}");
        assert!(!format!("{client:?}").contains("hunter2"));
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
async fn an_ollama_is_found() {
    let models = vec!["qwen3:8b".to_owned(), "other".to_owned()];
    let setup = Setup { models, ..Setup::default() };
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

/// What a subscriber writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Written {
    type Writer = Self;
    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn a_span_tells_of_the_call_but_not_what_was_said() {
    for wire in WIRES {
        let acts =
            [Act::status(500, "you said private"), Act::say("secret"), Act::status(400, "private")];
        let server = server(acts).await.unwrap();
        let written = Written::default();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .with_max_level(tracing::Level::TRACE)
            .with_span_events(FmtSpan::CLOSE)
            .with_writer(written.clone())
            .finish();
        let client = client(wire, &server);
        {
            let _guard = tracing::subscriber::set_default(subscriber);
            let events = call(&*client, ask("private")).await;
            assert_eq!(text(&events), "secret");
            failed(&call(&*client, ask("private")).await);
        }
        let log = written.text();
        let closed =
            |line: &&str| line.contains(r#""message":"close""#) && line.contains("llm.call");
        let spans: Vec<&str> = log.lines().filter(closed).collect();
        assert_eq!(spans.len(), 2, "{log}");
        let provider = match wire {
            Wire::Anthropic => "anthropic",
            Wire::Openai | Wire::OpenaiResponses | Wire::Demo => "openai",
            Wire::Gemini => "gcp.gemini",
            Wire::Ollama => "ollama",
            Wire::Bedrock => "aws.bedrock",
        };
        for (span, fields) in [
            (
                spans[0],
                &[
                    r#""gen_ai.operation.name":"chat""#,
                    &format!(r#""gen_ai.provider.name":"{provider}""#),
                    r#""gen_ai.request.model":"m-1""#,
                    r#""gen_ai.response.model":"m-1""#,
                    r#""gen_ai.response.finish_reasons":"stop""#,
                    r#""gen_ai.usage.input_tokens":3"#,
                    r#""gen_ai.usage.output_tokens":1"#,
                    r#""server.address":"127.0.0.1""#,
                ][..],
            ),
            (
                spans[1],
                &[r#""error.type":"provider_rejected""#, r#""otel.status_code":"ERROR""#][..],
            ),
        ] {
            for field in fields {
                assert!(span.contains(field), "{field} in {span}");
            }
        }
        assert!(log.contains("trying again"), "{log}");
        for secret in ["private", "secret", "hunter2"] {
            // The server runs in this process too, but logs nothing of its calls.
            assert!(!log.contains(secret), "`{secret}` in {log}");
        }
        server.stop().await.unwrap();
    }
}
