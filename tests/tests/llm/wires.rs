//! What is particular to the wires that came last, Responses, Gemini and Ollama: that the scripted server
//! holds requests to them, and that what each wants back goes back as it came (LLM-2).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use clawnode_actors::llm::{
    Item, Model, ModelEvent, ModelRequest, Models, PlainBlock, PlainMessage, Wire,
    circuit::Circuits,
    profile::{ModelOverride, ModelProfiles},
};
use clawnode_cluster::{Clock, SystemClock};
use clawnode_proto::llm::{FailureClass, ModelRef, Role, StopReason};
use clawnode_tests::model::{Act, ModelServer, Reply, Script, Setup, WireName};
use serde_json::{Value, json};

use crate::{
    KEY, ask, call, client, done, failed, offer, own_words, retries,
    server::{post, put},
    text,
    thoughts::{asked, kept, say, start, think, thinking},
};

fn body_of(server: &ModelServer, nth: usize) -> Value {
    serde_json::from_slice(&server.calls()[nth].body).unwrap()
}

/// A conversation in which a tool is called and the user goes on.
fn with_tools(wire: WireName) -> Value {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let function = json!({"name": "get", "parameters": schema});
    match wire {
        WireName::Gemini => json!({
            "tools": [{"functionDeclarations": [function]}],
            "contents": [
                {"role": "user", "parts": [{"text": "a"}]},
                {"role": "model", "parts": [
                    {"text": "b"},
                    {"functionCall": {"id": "t1", "name": "get", "args": {}},
                     "thoughtSignature": "skip_thought_signature_validator"},
                ]},
                {"role": "user", "parts": [
                    {"functionResponse": {"id": "t1", "name": "get", "response": {"output": "c"}}},
                    {"text": "d"},
                ]},
            ],
        }),
        WireName::Ollama => json!({
            "model": "m", "stream": false, "tools": [{"type": "function", "function": function}],
            "messages": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": "", "tool_calls": [
                    {"id": "t1", "function": {"name": "get", "arguments": {}}},
                ]},
                {"role": "tool", "tool_name": "get", "tool_call_id": "t1", "content": "c"},
                {"role": "user", "content": "d"},
            ],
        }),
        _ => json!({
            "model": "m", "store": false,
            "tools": [{"type": "function", "name": "get", "parameters": schema, "strict": false}],
            "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
                {"type": "function_call", "call_id": "t1", "name": "get", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "t1", "output": "c"},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "d"}]},
            ],
        }),
    }
}

#[tokio::test]
async fn malformed_requests_are_violations() {
    let gemini: [(&str, Value, &str); 11] = [
        ("/contents", json!([]), "not the user's"),
        ("/contents/0/role", json!("model"), "alternate"),
        ("/contents/0/parts", json!([]), "without parts"),
        ("/contents/0/parts/0", json!({"text": " "}), "empty text"),
        ("/contents/0/parts/0", json!({"novelty": 1}), "unknown field `novelty`"),
        ("/contents/1/parts/1/thoughtSignature", json!("other"), "Corrupted thought signature"),
        ("/contents/1/parts/1/functionCall/args", json!([]), "no object"),
        ("/contents/2/parts/0/functionResponse/id", json!("t2"), "an orphan tool result `t2`"),
        ("/contents/2/parts/0/functionResponse/name", json!("put"), "no call of `put`"),
        ("/contents/2/parts", json!([{"text": "d"}]), "no tool result for `t1`"),
        (
            "/tools/0/functionDeclarations/0/parameters/properties/a",
            json!({"type": "integer", "additionalProperties": false}),
            "Unknown name \"additionalProperties\"",
        ),
    ];
    let ollama: [(&str, Value, &str); 7] = [
        ("/messages", json!([]), "not the user's"),
        ("/messages/0", json!({"role": "system", "text": "a"}), "unknown field `text`"),
        ("/messages/1/tool_calls/0/function/arguments", json!("{}"), "no object"),
        ("/messages/2/tool_call_id", json!("t2"), "an orphan tool result `t2`"),
        ("/messages/2/tool_name", json!("put"), "no call of `put`"),
        ("/messages/2", json!({"role": "user", "content": "x"}), "no tool result for `t1`"),
        ("/tools/0/type", json!("custom"), "no function"),
    ];
    let item = |kind: &str| json!({"type": kind, "id": "r", "summary": []});
    let responses: [(&str, Value, &str); 9] = [
        ("/store", json!(true), "`store`"),
        ("/input", json!([]), "not the user's"),
        ("/input/0/content", json!([{"type": "output_text", "text": "a"}]), "other side"),
        ("/input/0/content", json!([]), "empty text"),
        ("/input/1/arguments", json!("[1]"), "no object in JSON"),
        ("/input/2/call_id", json!("t2"), "an orphan tool result `t2`"),
        ("/input/2", item("reasoning"), "`store` is false"),
        ("/input/2", item("novelty"), "unknown variant `novelty`"),
        ("/tools/0/strict", json!(true), "is strict"),
    ];
    let cases = (gemini.into_iter().map(|case| (WireName::Gemini, case)))
        .chain(ollama.into_iter().map(|case| (WireName::Ollama, case)))
        .chain(responses.into_iter().map(|case| (WireName::OpenaiResponses, case)));
    let server = ModelServer::start(Setup::default()).await.unwrap();
    for wire in [WireName::Gemini, WireName::Ollama, WireName::OpenaiResponses] {
        let (status, answer) = post(&server, wire, &with_tools(wire)).await;
        assert_eq!((status, server.take_violations().len()), (200, 0), "{wire:?} {answer}");
    }
    for (wire, (at, value, says)) in cases {
        let mut body = with_tools(wire);
        put(at, value)(&mut body);
        let (status, _) = post(&server, wire, &body).await;
        let violations = server.take_violations();
        assert_eq!((status, violations.len()), (400, 1), "{wire:?} {at}: {body}");
        assert!(violations[0].contains(says), "{says}: {}", violations[0]);
    }
    server.stop().await.unwrap();
}

/// The answer to a second request in which the blocks of the first reply were changed.
async fn changed(wire: Wire, change: impl FnOnce(&mut Vec<PlainBlock>)) -> (bool, Value) {
    let server = start().await;
    let mut request = thinking("go", None);
    let events = asked(wire, &server, request.clone()).await;
    request.messages.extend(kept(&events));
    change(&mut request.messages[1].blocks);
    let events = asked(wire, &server, request).await;
    let refused = !server.take_violations().is_empty();
    assert_eq!(refused, matches!(events.last(), Some(ModelEvent::Failed(_))), "{events:?}");
    let body = if refused { Value::Null } else { body_of(&server, 1) };
    server.stop().await.unwrap();
    (refused, body)
}

/// Changes the data of the nth opaque item.
fn alter(blocks: &mut [PlainBlock], nth: usize, from: &str, to: &str) {
    let data = blocks.iter_mut().filter_map(|block| match block {
        PlainBlock::Item(Item::Opaque { data, .. }) => Some(data),
        _ => None,
    });
    let data = data.into_iter().nth(nth).unwrap();
    assert!(data.contains(from), "{data}");
    *data = data.replacen(from, to, 1);
}

#[tokio::test]
async fn a_signature_of_gemini_goes_back_with_its_call_and_nothing_else_does() {
    let (refused, body) = changed(Wire::Gemini, |_| {}).await;
    assert!(!refused);
    let parts = body["contents"][1]["parts"].as_array().unwrap();
    assert_eq!(parts[0], json!({"text": "I look."}), "a thought without a signature stays here");
    let signature = parts[1]["thoughtSignature"].as_str().unwrap();
    assert_eq!(parts[1]["functionCall"]["id"], "fc_1_0", "the id of the provider");
    assert_eq!(body["contents"][2]["parts"][0]["functionResponse"]["id"], "fc_1_0");
    assert!(signature.len() > 20);
    let quoted = format!("\"{signature}\"");
    let other = format!("\"A{signature}\"");
    let (refused, _) = changed(Wire::Gemini, |request| alter(request, 0, &quoted, &other)).await;
    assert!(refused, "an altered signature is refused");
    let (refused, _) = changed(Wire::Gemini, |request| alter(request, 1, "fc_1_0", "fc_1_1")).await;
    assert!(refused, "and one that is of another call");
    // After a change of model in mid-turn there is none: what the vendor takes then is sent.
    let (refused, body) = changed(Wire::Gemini, Vec::clear).await;
    let sent = &body["contents"][1]["parts"][1]["thoughtSignature"];
    assert_eq!((refused, sent), (false, &json!("skip_thought_signature_validator")));
}

#[tokio::test]
async fn the_signature_at_the_end_of_a_text_goes_back_too() {
    let acts = [Reply::steps([think("So."), say("There"), say(" it is.")]).into()];
    let server = ModelServer::start(Script::default().turn("go", acts)).await.unwrap();
    let mut request = thinking("go", None);
    let events = asked(Wire::Gemini, &server, request.clone()).await;
    assert_eq!(text(&events), "There it is.");
    let [said, _] = kept(&events);
    request.messages.extend([said, PlainMessage::text(Role::User, "and now?")]);
    done(&asked(Wire::Gemini, &server, request).await);
    let parts = &body_of(&server, 1)["contents"][1]["parts"];
    assert_eq!(parts[0], json!({"text": "There it is."}));
    assert_eq!(parts[1]["text"], "");
    assert!(parts[1]["thoughtSignature"].is_string(), "{parts}");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn reasoning_items_go_back_before_what_followed_them() {
    let (refused, body) = changed(Wire::OpenaiResponses, |_| {}).await;
    assert!(!refused);
    let kinds: Vec<_> = body["input"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["type"].as_str().unwrap())
        .collect();
    let said = ["reasoning", "message", "reasoning", "reasoning", "function_call"];
    assert_eq!(kinds[1..6], said);
    assert_eq!(body["include"], json!(["reasoning.encrypted_content"]));
    let (refused, _) =
        changed(Wire::OpenaiResponses, |request| alter(request, 0, "Wo ist", "Wo war")).await;
    assert!(refused, "altered");
    let (refused, _) = changed(Wire::OpenaiResponses, |blocks| {
        let at =
            blocks.iter().position(|block| matches!(block, PlainBlock::Item(Item::Opaque { .. })));
        blocks.remove(at.unwrap());
    })
    .await;
    assert!(refused, "left out");
    let (refused, _) = changed(Wire::OpenaiResponses, Vec::clear).await;
    assert!(refused, "and all of them left out: this server wants them");
}

#[tokio::test]
async fn a_provider_of_each_wire_needs_only_its_key() {
    let setup = Setup { api_key: Some(KEY.to_owned()), ..Setup::default() };
    let server = ModelServer::start(setup).await.unwrap();
    let url = server.gemini_url();
    let lookup = |name: &str| match name {
        "GEMINI_API_KEY" => Some(KEY.to_owned()),
        "GEMINI_BASE_URL" => Some(url.clone()),
        _ => None,
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let models = Models::new(BTreeMap::new(), &lookup, &clock);
    let model: ModelRef = "gemini/gemini-3-pro-preview".parse().unwrap();
    let events = call(&*models.resolve(&model).unwrap(), ask("hi")).await;
    assert_eq!(text(&events), "reply to: hi");
    server.stop().await.unwrap();
}

/// A client of an Ollama that the configuration says this of.
fn ollama(server: &ModelServer, set: ModelOverride) -> Arc<dyn Model> {
    let addr = server.addr().to_string();
    let lookup = |name: &str| (name == "OLLAMA_HOST").then(|| addr.clone());
    let profiles = ModelProfiles::new(BTreeMap::from([("ollama/*".to_owned(), set)]));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let models = Models::with(BTreeMap::new(), &profiles, &lookup, &clock, &Circuits::default());
    models.resolve(&"ollama/qwen3:8b".parse().unwrap()).unwrap()
}

#[tokio::test]
async fn the_window_of_a_profile_holds_with_ollama() {
    let server = ModelServer::start(Setup::default()).await.unwrap();
    let mut set = ModelOverride::default();
    set.extras.num_ctx = Some(16_384);
    set.extras.body.insert("keep_alive".to_owned(), "1h".into());
    let mut request = ModelRequest { tools: vec![offer("get")], ..ask("hi") };
    request.sampling.max_tokens = Some(100);
    done(&call(&*ollama(&server, set), request.clone()).await);
    let body = body_of(&server, 0);
    assert_eq!(body["options"], json!({"num_ctx": 16_384, "num_predict": 100}));
    assert_eq!(body["keep_alive"], "1h");
    done(&call(&*ollama(&server, ModelOverride::default()), ask("hi")).await);
    let body = body_of(&server, 1);
    assert_eq!((body.get("options"), body.get("keep_alive")), (None, None));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_wait_in_the_body_and_a_bad_key_are_read_in_googles_words() {
    let details =
        json!([{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.002s"}]);
    let busy = json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "too many",
        "details": details}});
    let reason = json!([{"@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "API_KEY_INVALID", "domain": "googleapis.com"}]);
    let bad_key = json!([{"error": {"code": 400, "status": "INVALID_ARGUMENT",
        "message": "API key not valid.", "details": reason}}]);
    let in_reply =
        Act::Raw { content_type: crate::EVENTS.to_owned(), body: format!("data: {busy}\n\n") };
    let server = crate::server([
        Act::status_body(429, &busy.to_string()),
        in_reply,
        Act::status_body(400, &bad_key.to_string()),
    ])
    .await
    .unwrap();
    let events = call(&*client(Wire::Gemini, &server), ask("hi")).await;
    let waits: Vec<_> = retries(&events).into_iter().map(|(wait, why)| (wait, why.class)).collect();
    assert_eq!(waits, [(Duration::from_millis(2), FailureClass::RateLimited); 2]);
    assert_eq!(failed(&events).class, FailureClass::Unauthorized);
    assert_eq!(own_words(failed(&events)), "API key not valid");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_tool_call_that_gemini_could_not_write_is_asked_for_again() {
    let malformed =
        Reply { stop: Some("MALFORMED_FUNCTION_CALL".to_owned()), ..Reply::text(["x"]) };
    let server = crate::server([malformed.into(), Act::say("ok")]).await.unwrap();
    let events = call(&*client(Wire::Gemini, &server), ask("hi")).await;
    assert_eq!((retries(&events).len(), done(&events).0), (1, &StopReason::EndTurn));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn replies_in_one_piece_say_the_same_as_streams() {
    for (wire, name) in [
        (Wire::OpenaiResponses, WireName::OpenaiResponses),
        (Wire::Gemini, WireName::Gemini),
        (Wire::Ollama, WireName::Ollama),
    ] {
        let server = start().await;
        let mut streamed = kept(&asked(wire, &server, thinking("go", None)).await);
        let mut body = body_of(&server, 0);
        if wire != Wire::Gemini {
            body["stream"] = false.into();
        }
        let server = start().await;
        let (status, whole) = post(&server, name, &body).await;
        assert_eq!(status, 200, "{whole}");
        let whole = whole.to_string();
        let events = clawnode_actors::llm::fuzz::replay_whole(wire, true, whole.as_bytes());
        if wire == Wire::Ollama {
            // A document has one place for all thoughts.
            let text = "Wo ist Köln 🦀?Both.".to_owned();
            let thought = Item::Thinking { text, signature: Some(String::new()) };
            let blocks = [PlainBlock::Item(thought), PlainBlock::Text(7), PlainBlock::ToolUse];
            streamed[0].blocks = blocks.to_vec();
        }
        assert_eq!(kept(&events), streamed, "{wire:?}");
        server.stop().await.unwrap();
    }
}
