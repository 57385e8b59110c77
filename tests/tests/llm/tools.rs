//! Tools: what is offered and answered on the wires, and how calls come out of replies.

use clawnode_actors::llm::{
    ModelEvent, ModelRequest, PlainMessage, PlainReply, Wire,
    fuzz::{replay, replay_whole},
};
use clawnode_proto::{
    limits::{REPLY_TOOLS, TOOL_ARGUMENTS_BYTES},
    llm::{FailureClass, Role, StopReason},
    tool::ToolUse,
};
use clawnode_tests::model::{Act, ModelServer, Reply, Script, Step, ToolCall};
use proptest::{prelude::*, sample::Index};
use serde_json::{Value, json};

use crate::{
    TEXT_ARGUMENTS, WIRES, ask, call, calls, client, client_at, done, failed, offer, overloaded,
    server, text, url_of,
};

/// A request that offers two tools.
fn offering(text: &str) -> ModelRequest {
    ModelRequest { tools: vec![offer("get"), offer("put")], ..ask(text) }
}

fn asking(text: &str, tool_uses: Vec<ToolUse>) -> PlainMessage {
    PlainMessage { tool_uses, ..PlainMessage::text(Role::Assistant, text) }
}

fn answering(tool_replies: Vec<PlainReply>, text: &str) -> PlainMessage {
    PlainMessage { tool_replies, ..PlainMessage::text(Role::User, text) }
}

fn tool_use(id: &str, name: &str, arguments: &str) -> ToolUse {
    ToolUse { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
}

fn reply(id: &str, text: &str, is_error: bool) -> PlainReply {
    PlainReply { id: id.to_owned(), text: text.to_owned(), is_error, media: Vec::new() }
}

/// What each call asks for.
fn asked(events: &[ModelEvent]) -> Vec<(String, String)> {
    calls(events).into_iter().map(|call| (call.name, call.arguments)).collect()
}

fn pair(name: &str, arguments: &str) -> (String, String) {
    (name.to_owned(), arguments.to_owned())
}

#[tokio::test]
async fn tools_their_uses_and_their_replies_are_asked_in_the_wires_shape() {
    for wire in WIRES {
        let server = server([]).await.unwrap();
        let mut request = offering("what is there?");
        request.messages.extend([
            asking("Let me see.", vec![tool_use("t1", "get", r#"{"b": 1.50, "a": "é"}"#)]),
            answering(vec![reply("t1", "42", false)], ""),
            asking("", vec![tool_use("t2", "put", "{}"), tool_use("t3", "no such", "{}")]),
            answering(vec![reply("t2", "", false), reply("t3", "no such tool", true)], "go on"),
        ]);
        let events = call(&*client(wire, &server), request).await;
        let results = match wire {
            Wire::Anthropic | Wire::Gemini => ", no such tool",
            Wire::Bedrock => "(no output), Error: no such tool",
            _ => ", Error: no such tool",
        };
        assert_eq!(text(&events), format!("reply to: go on with {results}"));
        let calls = server.stop().await.unwrap();
        let body = String::from_utf8(calls[0].body.to_vec()).unwrap();
        insta::assert_snapshot!(format!("tools_{wire:?}"), body);
    }
}

#[tokio::test]
async fn calls_come_out_as_they_were_made_however_they_are_cut() {
    let get = r#"{"place": "Köln 🦀", "n": [1, {"x": null}]}"#;
    let piecewise = |name, arguments, piece| ToolCall { piece, ..ToolCall::new(name, arguments) };
    let calls_made =
        [piecewise("get", get, 5), piecewise("put", r#"{"a":1}"#, 1), piecewise("get", "{}", 0)];
    for wire in WIRES {
        for (chunk, interleaved) in [(0, false), (1, true), (7, false), (64, true)] {
            let tools = Step::Tools { calls: calls_made.to_vec(), interleaved };
            let steps = [Step::Text { text: "Let me see.".to_owned() }, tools];
            let server = server([Reply { chunk, ..Reply::steps(steps) }.into()]).await.unwrap();
            let events = call(&*client(wire, &server), offering("hi")).await;
            assert_eq!(text(&events), "Let me see.", "{wire:?} {chunk}");
            assert_eq!(
                asked(&events),
                [pair("get", get), pair("put", r#"{"a":1}"#), pair("get", "{}")],
                "{wire:?} {chunk}"
            );
            let mut ids: Vec<String> = calls(&events).into_iter().map(|call| call.id).collect();
            ids.dedup();
            assert_eq!(ids.len(), 3, "{ids:?}");
            assert_eq!(done(&events).0, &StopReason::ToolUse);
            server.stop().await.unwrap();
        }
    }
}

#[tokio::test]
async fn broken_calls_are_delivered_as_they_are() {
    let twice = |id: &str| ToolCall { id: Some(id.to_owned()), ..ToolCall::new("get", "{}") };
    for wire in TEXT_ARGUMENTS {
        let cut_off = Reply {
            cut_off: true,
            ..Reply::tools([ToolCall::new("get", "{}"), ToolCall::new("put", r#"{"a": "ha"#)])
        };
        let server = server([
            cut_off.into(),
            Act::tools([twice("x"), twice("x")]),
            Act::tools([ToolCall::new("no such", "[1]")]),
        ])
        .await
        .unwrap();
        let client = client(wire, &server);
        let events = call(&*client, offering("hi")).await;
        assert_eq!(asked(&events), [pair("get", "{}"), pair("put", r#"{"a": "ha"#)], "{wire:?}");
        assert_eq!(done(&events).0, &StopReason::MaxTokens);
        let events = call(&*client, offering("hi")).await;
        let ids: Vec<String> = calls(&events).into_iter().map(|call| call.id).collect();
        assert_eq!(ids, ["x", "x"], "{wire:?}");
        let events = call(&*client, offering("hi")).await;
        assert_eq!(asked(&events), [pair("no such", "[1]")], "{wire:?}");
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_reply_makes_a_bounded_number_of_bounded_calls() {
    let long = format!("{{\"x\": \"{}\"}}", "é".repeat(TOOL_ARGUMENTS_BYTES / 2));
    for wire in WIRES {
        let many = (0..100).map(|_| ToolCall::new("get", "{}"));
        let big = [
            ToolCall { piece: 10_000, ..ToolCall::new("get", long.as_str()) },
            ToolCall::new("put", r#"{"a":1}"#),
        ];
        let server = server([Act::tools(many), Act::tools(big)]).await.unwrap();
        let client = client(wire, &server);
        let events = call(&*client, offering("hi")).await;
        assert_eq!(calls(&events).len(), REPLY_TOOLS + 1, "{wire:?}: one too many is seen");
        let events = call(&*client, offering("hi")).await;
        let cut = asked(&events);
        let bytes: usize = cut.iter().map(|(_, arguments)| arguments.len()).sum();
        assert!(bytes <= TOOL_ARGUMENTS_BYTES && long.starts_with(&cut[0].1), "{wire:?} {bytes}");
        assert!(bytes > TOOL_ARGUMENTS_BYTES - 4, "{wire:?}: no more is cut than need be");
        assert_eq!(cut[1], pair("put", ""), "{wire:?}");
        for (_, arguments) in cut {
            assert!(serde_json::from_str::<Value>(&arguments).is_err(), "what was cut is invalid");
        }
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_fault_after_a_tool_call_is_tried_again() {
    for wire in WIRES {
        let error = Step::Error { kind: overloaded(wire), message: "too busy".to_owned() };
        let steps = [Step::tools([("get", json!({}))]), Step::Flush, error];
        let server = server([Reply::steps(steps).into(), Act::say("ok")]).await.unwrap();
        let events = call(&*client(wire, &server), offering("hi")).await;
        let retried = |event: &ModelEvent| matches!(event, ModelEvent::Retrying { .. });
        let retried = events.iter().position(retried).unwrap();
        assert_eq!((calls(&events[retried..]).len(), text(&events).as_str()), (0, "ok"));
        assert_eq!(server.stop().await.unwrap().len(), 2, "{wire:?}");
    }
}

#[tokio::test]
async fn what_providers_refuse_is_not_sent() {
    for wire in WIRES {
        let server = server([]).await.unwrap();
        let mut request = offering("hi");
        request.messages.push(asking("", vec![tool_use("t1", "get", "{}")]));
        request.messages.push(PlainMessage::text(Role::User, "well?"));
        let events = call(&*client(wire, &server), request).await;
        assert_eq!(failed(&events).class, FailureClass::Rejected);
        assert!(failed(&events).message.starts_with("not sent: message 3"), "{events:?}");
        assert_eq!(server.stop().await.unwrap().len(), 0, "{wire:?}");
    }
}

#[test]
fn replies_in_one_piece_make_calls_too() {
    let anthropic = |stop: &str| {
        json!({
            "id": "m", "type": "message", "role": "assistant", "model": "c", "stop_reason": stop,
            "content": [
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "t1", "name": "get", "input": {}},
                {"type": "tool_use", "id": "t2", "name": "put", "input": {"a": 1}},
            ],
        })
    };
    let openai = |stop: &str, last: &str| {
        let call = |id: &str, name: &str, arguments: &str| {
            let function = json!({"name": name, "arguments": arguments});
            json!({"id": id, "type": "function", "function": function})
        };
        json!({
            "id": "c", "model": "c", "usage": null,
            "choices": [{"index": 0, "finish_reason": stop, "message": {
                "role": "assistant", "content": "Let me see.",
                "tool_calls": [call("t1", "get", "{}"), call("t2", "put", last)],
            }}],
        })
    };
    let legacy = json!({"choices": [{"index": 0, "finish_reason": "function_call", "message": {
        "role": "assistant", "content": null, "function_call": {"name": "get", "arguments": "{}"},
    }}]});
    let whole = r#"{"a":1}"#;
    // Anthropic makes an object of the pieces; it is opened again, as the missing part is unknown.
    let cut = r#"{"a":1"#;
    let two = |last: &str| vec![tool_use("t1", "get", "{}"), tool_use("t2", "put", last)];
    for (wire, body, wanted, stop) in [
        (Wire::Anthropic, anthropic("tool_use"), two(whole), StopReason::ToolUse),
        (Wire::Anthropic, anthropic("end_turn"), two(whole), StopReason::ToolUse),
        (Wire::Anthropic, anthropic("max_tokens"), two(cut), StopReason::MaxTokens),
        (Wire::Openai, openai("tool_calls", whole), two(whole), StopReason::ToolUse),
        (Wire::Openai, openai("stop", whole), two(whole), StopReason::ToolUse),
        (Wire::Openai, openai("length", cut), two(cut), StopReason::MaxTokens),
        (Wire::Openai, legacy, vec![tool_use("call_0", "get", "{}")], StopReason::ToolUse),
    ] {
        let body = body.to_string();
        let events = replay_whole(wire, true, body.as_bytes());
        assert_eq!(calls(&events), wanted, "{wire:?} {body}");
        assert_eq!(done(&events).0, &stop, "{wire:?} {body}");
        let events = replay_whole(wire, false, body.as_bytes());
        assert!(failed(&events).message.contains("none was offered"), "{events:?}");
        assert_eq!(calls(&events), []);
    }
}

#[tokio::test]
async fn a_script_answers_each_round_of_a_turn_by_its_own_act() {
    for wire in WIRES {
        let script = Script::default().turn(
            "go",
            [
                Act::tools([("get", json!({"a": 1})), ("put", json!({}))]),
                Act::tools([("get", json!({"a": 2}))]),
                Act::say("done"),
            ],
        );
        let server = ModelServer::start(script).await.unwrap();
        let client = client_at(wire, &url_of(wire, &server), |options| options.api_key_env = None);
        let mut request = offering("go");
        for rounds in [2, 1] {
            let first = call(&*client, request.clone()).await;
            assert_eq!(calls(&first).len(), rounds);
            let again = call(&*client, request.clone()).await;
            assert_eq!(asked(&again), asked(&first), "the same again for the same request");
            let made = calls(&first);
            let answers = made.iter().map(|call| reply(&call.id, &call.name, false)).collect();
            request.messages.extend([asking("", made), answering(answers, "")]);
        }
        assert_eq!(text(&call(&*client, request).await), "done");
        let calls = server.stop().await.unwrap();
        let results: Vec<String> = calls.iter().map(|call| call.results.join(" ")).collect();
        assert_eq!(results, ["", "", "get put", "get put", "get"]);
        assert!(calls.iter().all(|call| call.last_user == "go"));
    }
}

#[tokio::test]
async fn the_users_text_can_say_what_the_default_reply_calls() {
    let said = "m-17\n/tool get {\"a\": 1}\n/tool put {}\n/then\n/tool get {}";
    for wire in WIRES {
        let server = server([]).await.unwrap();
        let client = client(wire, &server);
        let mut request = offering(said);
        for wanted in [vec![pair("get", r#"{"a": 1}"#), pair("put", "{}")], vec![pair("get", "{}")]]
        {
            let events = call(&*client, request.clone()).await;
            assert_eq!(asked(&events), wanted, "{wire:?}");
            let made = calls(&events);
            let answers = made.iter().map(|call| reply(&call.id, "ok", false)).collect();
            request.messages.extend([asking("", made), answering(answers, "")]);
        }
        let events = call(&*client, request).await;
        assert_eq!(text(&events), format!("reply to: {said} with ok"));
        let events = call(&*client, ask(said)).await;
        assert_eq!(text(&events), format!("reply to: {said}"), "no tools, no calls");
        server.stop().await.unwrap();
    }
}

/// A stream of these calls, whose pieces come in this order; Anthropic's blocks are all open.
fn streamed(wire: Wire, calls: &[(ToolUse, Vec<String>)], order: &[Index]) -> String {
    let event = |name: &str, mut data: Value| {
        data["type"] = name.into();
        format!("event: {name}\ndata: {data}\n\n")
    };
    let chunk = |delta: Value, finish: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        format!("data: {}\n\n", json!({"model": "m", "choices": [choice]}))
    };
    let anthropic = wire == Wire::Anthropic;
    let mut body = String::new();
    if anthropic {
        body += &event("message_start", json!({"message": {"model": "m"}}));
    }
    for (n, (call, _)) in calls.iter().enumerate() {
        let ToolUse { id, name, .. } = call;
        body += &if anthropic {
            let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
            event("content_block_start", json!({"index": n, "content_block": block}))
        } else {
            let function = json!({"name": name, "arguments": ""});
            chunk(json!({"tool_calls": [{"index": n, "id": id, "function": function}]}), None)
        };
    }
    let mut left: Vec<(usize, std::slice::Iter<'_, String>)> =
        calls.iter().enumerate().map(|(n, (_, pieces))| (n, pieces.iter())).collect();
    let mut order = order.iter().cycle();
    while !left.is_empty() {
        let at = order.next().map_or(0, |at| at.index(left.len()));
        let (n, pieces) = &mut left[at];
        let (n, Some(piece)) = (*n, pieces.next()) else {
            drop(left.remove(at));
            continue;
        };
        body += &if anthropic {
            let delta = json!({"type": "input_json_delta", "partial_json": piece});
            event("content_block_delta", json!({"index": n, "delta": delta}))
        } else {
            chunk(json!({"tool_calls": [{"index": n, "function": {"arguments": piece}}]}), None)
        };
    }
    if anthropic {
        for n in 0..calls.len() {
            body += &event("content_block_stop", json!({"index": n}));
        }
        body += &event("message_delta", json!({"delta": {"stop_reason": "tool_use"}}));
        body + &event("message_stop", json!({}))
    } else {
        body + &chunk(json!({}), Some("tool_calls")) + "data: [DONE]\n\n"
    }
}

/// A call with any arguments, in pieces.
fn any_call() -> impl Strategy<Value = (String, Vec<String>)> {
    ("[a-z_]{1,12}", prop::collection::vec("\\PC{1,8}", 1..8))
}

proptest! {
    #[test]
    fn any_cut_and_any_order_make_the_same_calls(
        made in prop::collection::vec(any_call(), 1..6),
        anthropic: bool,
        order in prop::collection::vec(any::<Index>(), 1..32),
        cuts in prop::collection::vec(any::<Index>(), 0..24),
    ) {
        let wire = if anthropic { Wire::Anthropic } else { Wire::Openai };
        let call = |(n, (name, pieces)): (usize, (String, Vec<String>))| {
            (ToolUse { id: format!("id_{n}"), name, arguments: pieces.concat() }, pieces)
        };
        let made: Vec<_> = made.into_iter().enumerate().map(call).collect();
        let body = streamed(wire, &made, &order).into_bytes();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        cuts.extend([0, body.len()]);
        cuts.sort_unstable();
        let chunks = cuts.windows(2).map(|cut| body[cut[0]..cut[1]].to_vec());
        let events = replay(wire, true, chunks);
        let wanted: Vec<ToolUse> = made.into_iter().map(|(call, _)| call).collect();
        prop_assert_eq!(calls(&events), wanted, "{:?}", String::from_utf8_lossy(&body));
        prop_assert_eq!(done(&events).0, &StopReason::ToolUse);
    }
}
