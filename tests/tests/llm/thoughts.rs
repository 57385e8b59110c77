//! Thoughts: what is read of them, and that they go back exactly as they came, or not at all (LLM-2).
//! The scripted server refuses a thought that is missing, altered or in another place.

use clawnode_actors::llm::{
    Item, ModelEvent, ModelRequest, PlainBlock, PlainMessage, PlainReply, ReplyBlocks, Wire,
    fuzz::replay_whole,
};
use clawnode_proto::{
    llm::{Role, Sampling},
    reasoning::Reasoning,
};
use clawnode_tests::model::{Act, ModelServer, Reply, Script, Step, ToolCall, WireName};
use serde_json::{Value, json};

use crate::{WIRES, ask, call, calls, client_at, done, failed, offer, server::post, text, url_of};

/// The wires that were there first, and say thoughts as the others do not.
const FIRST: [Wire; 2] = [Wire::Anthropic, Wire::Openai];

pub(crate) fn say(text: &str) -> Step {
    Step::Text { text: text.to_owned() }
}

pub(crate) fn think(text: &str) -> Step {
    Step::Thinking { text: text.to_owned() }
}

/// The replies of a turn that thinks between all that it says, and calls a tool in each of two rounds.
fn turn() -> [Act; 3] {
    let first = [
        think("Wo ist "),
        think("Köln 🦀?"),
        say("I look."),
        Step::Redacted { data: "secret".to_owned() },
        think("Both."),
        Step::tools([("get", json!({"a": 1}))]),
    ];
    let second = [think("Once more."), Step::tools([("put", json!({"a": 2}))])];
    [
        Reply { chunk: 1, ..Reply::steps(first) }.into(),
        Reply::steps(second).into(),
        Reply::steps([think("So."), say("There.")]).into(),
    ]
}

pub(crate) async fn start() -> ModelServer {
    ModelServer::start(Script::default().turn("go", turn())).await.unwrap()
}

pub(crate) fn thinking(text: &str, reasoning: Option<Reasoning>) -> ModelRequest {
    let sampling = Sampling { reasoning, max_tokens: Some(500), ..Sampling::default() };
    ModelRequest { tools: vec![offer("get"), offer("put")], sampling, ..ask(text) }
}

pub(crate) async fn asked(
    wire: Wire,
    server: &ModelServer,
    request: ModelRequest,
) -> Vec<ModelEvent> {
    let client = client_at(wire, &url_of(wire, server), |options| {
        options.retries = 0;
        options.api_key_env = None;
    });
    call(&*client, request).await
}

/// What was said, as it is kept, and an answer to each tool call.
pub(crate) fn kept(events: &[ModelEvent]) -> [PlainMessage; 2] {
    let mut blocks = ReplyBlocks::default();
    for event in events {
        match event {
            ModelEvent::Text(text) => blocks.text(text.len()),
            ModelEvent::ToolUse(_) => blocks.tool_use(),
            ModelEvent::Item(item) => blocks.item(item.clone()),
            _ => {}
        }
    }
    let (tool_uses, blocks) = (calls(events), blocks.done());
    let answer = |id: &str| PlainReply {
        id: id.to_owned(),
        text: "ok".to_owned(),
        is_error: false,
        media: Vec::new(),
    };
    let tool_replies = tool_uses.iter().map(|tool_use| answer(&tool_use.id)).collect();
    [
        PlainMessage { tool_uses, blocks, ..PlainMessage::text(Role::Assistant, text(events)) },
        PlainMessage { tool_replies, ..PlainMessage::text(Role::User, "") },
    ]
}

fn thoughts(events: &[ModelEvent]) -> String {
    let thought = |event: &ModelEvent| match event {
        ModelEvent::Thought(text) => Some(text.clone()),
        _ => None,
    };
    events.iter().filter_map(thought).collect()
}

#[tokio::test]
async fn thoughts_go_back_exactly_in_each_round_of_a_turn() {
    for wire in WIRES {
        for reasoning in [None, Some(Reasoning::High), Some(Reasoning::Tokens(2_000))] {
            let server = start().await;
            let mut request = thinking("go", reasoning);
            for thought in ["Wo ist Köln 🦀?Both.", "Once more."] {
                let events = asked(wire, &server, request.clone()).await;
                assert_eq!(thoughts(&events), thought, "{wire:?}");
                request.messages.extend(kept(&events));
            }
            let events = asked(wire, &server, request).await;
            assert_eq!((&*text(&events), &*thoughts(&events)), ("There.", "So."), "{wire:?}");
            server.stop().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_server_that_is_strict_refuses_what_was_changed() {
    for wire in FIRST {
        let server = start().await;
        let mut request = thinking("go", None);
        let events = asked(wire, &server, request.clone()).await;
        request.messages.extend(kept(&events));
        let changes: [fn(&mut Vec<PlainBlock>); 4] = [
            // Altered.
            |blocks| {
                if let PlainBlock::Item(Item::Thinking { text, .. }) = &mut blocks[0] {
                    text.push('!');
                }
            },
            // Left out.
            |blocks| drop(blocks.remove(0)),
            // In another place.
            |blocks| blocks.swap(0, 1),
            // All of them left out: a good request for Anthropic, because the model is not told to think.
            Vec::clear,
        ];
        for (nth, change) in changes.into_iter().enumerate() {
            let mut again = request.clone();
            change(&mut again.messages[1].blocks);
            let events = asked(wire, &server, again).await;
            let refused = !server.take_violations().is_empty();
            let expected = match wire {
                Wire::Anthropic => nth < 3,
                // It has no signatures: the text is all there is, and has no place of its own.
                _ => nth != 2,
            };
            assert_eq!(refused, expected, "{wire:?} {nth}: {events:?}");
            if refused {
                assert_eq!(failed(&events).status, Some(400));
            } else {
                done(&events);
            }
        }
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_model_that_is_told_to_think_wants_its_thoughts_back() {
    let server = start().await;
    let tool_use = json!({"type": "tool_use", "id": "t1", "name": "get", "input": {"a": 1}});
    let result = json!({"type": "tool_result", "tool_use_id": "t1", "content": "ok"});
    let asking = |content: Value| {
        json!({
            "model": "m", "max_tokens": 2_000, "thinking": {"type": "enabled", "budget_tokens": 1_024},
            "messages": [
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": content},
                {"role": "user", "content": [result]},
            ],
            "tools": [{"name": "get", "input_schema": {"type": "object"}}],
        })
    };
    let plain = json!({
        "model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "go"}],
        "tools": [{"name": "get", "input_schema": {"type": "object"}}],
    });
    let (_, first) = post(&server, WireName::Anthropic, &plain).await;
    let said = first["content"].as_array().unwrap().clone();
    assert_eq!(said.len(), 5, "{said:?}");
    let [thought, words, redacted, other, _] = &said[..] else { panic!("{said:?}") };
    let good = json!([thought, words, redacted, other, tool_use]);
    for (content, says) in [
        (json!([tool_use]), "must start with a thinking block"),
        (json!([words, thought, redacted, other, tool_use]), "Invalid `signature`"),
        (json!([other, words, redacted, thought, tool_use]), "Invalid `signature`"),
        (json!([thought, words, redacted, tool_use]), "Invalid `signature`"),
        (json!([thought, words, other, redacted, tool_use]), "Invalid `"),
    ] {
        let (status, answer) = post(&server, WireName::Anthropic, &asking(content)).await;
        assert_eq!((status, &answer["error"]["type"]), (400, &json!("invalid_request_error")));
        assert!(answer.to_string().contains(says), "{says}: {answer}");
        assert_eq!(server.take_violations().len(), 1);
    }
    let mut small = asking(good.clone());
    small["max_tokens"] = 1_024.into();
    assert_eq!(post(&server, WireName::Anthropic, &small).await.0, 400);
    assert_eq!(server.take_violations().len(), 1);
    assert_eq!(post(&server, WireName::Anthropic, &asking(good)).await.0, 200);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_round_that_began_without_a_thought_goes_on_without() {
    let server = ModelServer::start(Script::default()).await.unwrap();
    let mut request = thinking("/tool get {}", Some(Reasoning::Medium));
    let events = asked(Wire::Anthropic, &server, request.clone()).await;
    request.messages.extend(kept(&events));
    done(&asked(Wire::Anthropic, &server, request.clone()).await);
    // A thought that was cut has no signature, and does not go back.
    let cut = Item::Thinking { text: "hm".to_owned(), signature: None };
    request.messages[1].blocks = vec![PlainBlock::Item(cut), PlainBlock::ToolUse];
    done(&asked(Wire::Anthropic, &server, request.clone()).await);
    request.messages.push(PlainMessage::text(Role::Assistant, "ok"));
    request.messages.push(PlainMessage::text(Role::User, "and now?"));
    done(&asked(Wire::Anthropic, &server, request).await);
    let bodies: Vec<Value> =
        server.calls().iter().map(|call| serde_json::from_slice(&call.body).unwrap()).collect();
    let told: Vec<bool> = bodies.iter().map(|body| body["thinking"].is_object()).collect();
    assert_eq!(told, [true, false, false, true], "the next turn thinks again");
    assert_eq!(bodies[1]["max_tokens"], 500);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn how_much_a_model_thinks_is_said_in_the_words_of_its_wire() {
    for (reasoning, budget, effort) in [
        (None, Value::Null, Value::Null),
        (Some(Reasoning::Off), Value::Null, Value::Null),
        (Some(Reasoning::Low), json!(2_048), json!("low")),
        (Some(Reasoning::Medium), json!(8_192), json!("medium")),
        (Some(Reasoning::High), json!(16_384), json!("high")),
        (Some(Reasoning::Tokens(1_024)), json!(1_024), json!("low")),
        (Some(Reasoning::Tokens(50_000)), json!(50_000), json!("high")),
    ] {
        for wire in FIRST {
            let server = ModelServer::start(Script::default()).await.unwrap();
            let mut request = thinking("hi", reasoning);
            (request.sampling.temperature, request.sampling.top_p) = (Some(0.5), Some(0.5));
            done(&asked(wire, &server, request).await);
            let body: Value = serde_json::from_slice(&server.calls()[0].body).unwrap();
            if wire == Wire::Anthropic {
                assert_eq!(body["thinking"]["budget_tokens"], budget, "{reasoning:?}");
                let more = budget.as_u64().unwrap_or_default();
                assert_eq!(body["max_tokens"], 500 + more, "the reply keeps its room");
                assert_eq!(body["temperature"].is_null(), budget != Value::Null);
                assert_eq!(body["top_p"].is_null(), budget != Value::Null);
            } else {
                assert_eq!(body["reasoning_effort"], effort, "{reasoning:?}");
                assert_eq!(body["max_tokens"], 500);
            }
            server.stop().await.unwrap();
        }
    }
}

#[tokio::test]
async fn what_a_server_wants_back_with_a_call_goes_back_with_it() {
    let extra = r#"{"google": {"thought_signature": "Ep4B", "n": 1.50}}"#;
    let function = json!({"name": "get", "arguments": "{}"});
    let body = json!({"model": "g", "choices": [{"index": 0, "finish_reason": "tool_calls",
    "message": {"role": "assistant", "content": null, "tool_calls": [
        {"id": "a", "type": "function", "function": function},
        {"id": "b", "type": "function", "function": function, "extra_content": "EXTRA"},
    ]}}]});
    let body = body.to_string().replace("\"EXTRA\"", extra);
    let events = replay_whole(Wire::Openai, true, body.as_bytes());
    let server = ModelServer::start(Script::default()).await.unwrap();
    let mut request = thinking("go", None);
    request.messages.extend(kept(&events));
    done(&asked(Wire::Openai, &server, request).await);
    let sent = String::from_utf8(server.calls()[0].body.to_vec()).unwrap();
    assert_eq!(sent.matches("extra_content").count(), 1, "{sent}");
    assert!(sent.contains(&format!("\"extra_content\":{extra}")), "byte for byte: {sent}");
    server.stop().await.unwrap();
}

/// A turn of a server that lists its thoughts and names their calls, as `OpenRouter` does.
fn listed_turn(chunk: usize) -> [Act; 3] {
    let named = |name: &str, id: &str| {
        Step::tools([ToolCall { id: Some(id.to_owned()), ..ToolCall::new(name, "{}") }])
    };
    let listed = |steps: Vec<Step>| Reply { details: true, chunk, ..Reply::steps(steps) }.into();
    let secret = Step::Redacted { data: "secret".to_owned() };
    let first = [think("Wo ist "), think("Köln 🦀?"), say("I look."), think("Both."), secret];
    [
        listed(first.into_iter().chain([named("get", "get_1")]).collect()),
        listed(vec![think("Once more."), named("put", "put_1")]),
        listed(vec![think("So."), say("There.")]),
    ]
}

/// The same with ids of our own, as sessions have them.
fn kept_with_own_ids(events: &[ModelEvent], round: usize) -> [PlainMessage; 2] {
    let [mut said, mut answer] = kept(events);
    for (nth, tool_use) in said.tool_uses.iter_mut().enumerate() {
        tool_use.id = format!("own_{round}_{nth}");
        answer.tool_replies[nth].id.clone_from(&tool_use.id);
    }
    [said, answer]
}

#[tokio::test]
async fn reasoning_details_go_back_exactly_in_each_round_of_a_turn_and_later() {
    for chunk in [0, 1] {
        let script = Script::default().turn("go", listed_turn(chunk));
        let server = ModelServer::start(script).await.unwrap();
        let mut request = thinking("go", None);
        for (round, thought) in ["Wo ist Köln 🦀?Both.", "Once more."].into_iter().enumerate() {
            let events = asked(Wire::Openai, &server, request.clone()).await;
            assert_eq!(thoughts(&events), thought, "once");
            request.messages.extend(kept_with_own_ids(&events, round));
        }
        let events = asked(Wire::Openai, &server, request.clone()).await;
        assert_eq!((&*text(&events), &*thoughts(&events)), ("There.", "So."));
        request.messages.extend(kept(&events));
        request.messages.push(PlainMessage::text(Role::User, "and now?"));
        done(&asked(Wire::Openai, &server, request).await);
        let calls = server.calls();
        let sent: Vec<Value> =
            calls.iter().map(|call| serde_json::from_slice(&call.body).unwrap()).collect();
        let listed = |body: &Value| {
            let all = body["messages"].as_array().unwrap().iter();
            all.filter_map(|message| message.get("reasoning_details").cloned()).collect::<Vec<_>>()
        };
        let listed: Vec<Vec<Value>> = sent.iter().map(listed).collect();
        assert_eq!(listed.iter().map(Vec::len).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(listed.windows(2).all(|pair| pair[1].starts_with(&pair[0])), "always the same");
        assert_eq!(listed[3][0].as_array().unwrap().len(), 3);
        assert!(!sent[3].to_string().contains("reasoning_content"), "not twice");
        let ids: Vec<&Value> = sent[3]["messages"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|message| message.get("tool_call_id"))
            .collect();
        assert_eq!(ids, ["get_1", "own_1_0"], "the server's own where a thought names it");
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_lists_thoughts_refuses_what_was_changed() {
    let server = ModelServer::start(Script::default().turn("go", listed_turn(0))).await.unwrap();
    let mut request = thinking("go", None);
    let events = asked(Wire::Openai, &server, request.clone()).await;
    request.messages.extend(kept_with_own_ids(&events, 0));
    let changes: [fn(&mut Vec<PlainBlock>, usize); 4] = [
        // Altered.
        |blocks, at| {
            if let PlainBlock::Item(Item::Opaque { data, .. }) = &mut blocks[at] {
                *data = data.replace("Köln", "Bonn");
            }
        },
        // In another order.
        |blocks, at| {
            if let PlainBlock::Item(Item::Opaque { data, .. }) = &mut blocks[at] {
                let mut list: Vec<Value> = serde_json::from_str(data).unwrap();
                list.reverse();
                *data = Value::from(list).to_string();
            }
        },
        // Left out.
        |blocks, at| drop(blocks.remove(at)),
        // With another id of the call that they name.
        |blocks, at| drop(blocks.remove(at + 1)),
    ];
    for (nth, change) in changes.into_iter().enumerate() {
        let mut again = request.clone();
        let blocks = &mut again.messages[1].blocks;
        let is_listed = |block: &PlainBlock| match block {
            PlainBlock::Item(Item::Opaque { field, .. }) => field == "reasoning_details",
            _ => false,
        };
        let at = blocks.iter().position(is_listed).unwrap();
        change(blocks, at);
        let events = asked(Wire::Openai, &server, again).await;
        assert_eq!(failed(&events).status, Some(400), "{nth}");
        assert_eq!(server.take_violations().len(), 1, "{nth}");
    }
    done(&asked(Wire::Openai, &server, request).await);
    server.stop().await.unwrap();
}

#[test]
fn replies_in_one_piece_think_too() {
    let anthropic = json!({
        "id": "m", "type": "message", "role": "assistant", "model": "c", "stop_reason": "tool_use",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "text", "text": "Let me see."},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "tool_use", "id": "t1", "name": "get", "input": {}},
        ],
    });
    let openai = json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
        "role": "assistant", "reasoning_content": "hm", "content": "Let me see.", "tool_calls": [
            {"id": "t1", "type": "function", "function": {"name": "get", "arguments": "{}"}}],
    }}], "usage": {"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 7}}});
    let thought = |signature: &str| {
        let (text, signature) = ("hm".to_owned(), Some(signature.to_owned()));
        PlainBlock::Item(Item::Thinking { text, signature })
    };
    let redacted = PlainBlock::Item(Item::Redacted { data: "x".to_owned() });
    let (words, tool) = (PlainBlock::Text(11), PlainBlock::ToolUse);
    for (wire, body, wanted, tokens) in [
        (
            Wire::Anthropic,
            anthropic,
            vec![thought("c2ln"), words.clone(), redacted, tool.clone()],
            0,
        ),
        (Wire::Openai, openai, vec![thought(""), words, tool], 7),
    ] {
        let events = replay_whole(wire, true, body.to_string().as_bytes());
        let [said, _] = kept(&events);
        assert_eq!((said.blocks, &*thoughts(&events)), (wanted, "hm"), "{wire:?}");
        assert_eq!(done(&events).1.reasoning_tokens, tokens);
    }
}

#[tokio::test]
async fn the_server_thinks_in_one_piece_as_it_does_in_a_stream() {
    for wire in FIRST {
        let server = start().await;
        let body = match wire {
            Wire::Anthropic => json!({"model": "m", "max_tokens": 9}),
            _ => json!({"model": "m"}),
        };
        let mut body = body;
        body["messages"] = json!([{"role": "user", "content": "go"}]);
        let offered = json!({"name": "get", "parameters": {"type": "object"}});
        body["tools"] = match wire {
            Wire::Anthropic => json!([{"name": "get", "input_schema": {"type": "object"}}]),
            _ => json!([{"type": "function", "function": offered}]),
        };
        let name = match wire {
            Wire::Anthropic => WireName::Anthropic,
            _ => WireName::Openai,
        };
        let (_, whole) = post(&server, name, &body).await;
        let whole = kept(&replay_whole(wire, true, whole.to_string().as_bytes()));
        let streamed = kept(&asked(wire, &server, thinking("go", None)).await);
        assert_eq!(whole[0].text, streamed[0].text, "{wire:?}");
        let is_item = |block: &&PlainBlock| matches!(block, PlainBlock::Item(_));
        assert_eq!(
            whole[0].blocks.iter().filter(is_item).count() > 0,
            streamed[0].blocks.iter().filter(is_item).count() > 0
        );
        if wire == Wire::Anthropic {
            assert_eq!(whole[0].blocks, streamed[0].blocks);
        }
        server.stop().await.unwrap();
    }
}
