//! Tests: what is sent so that providers find what they kept of a conversation.

use clawnode_proto::{
    llm::{Role, Sampling},
    tool::ToolUse,
};
use serde_json::{Value, json};

use super::{
    Item, ModelRequest, PlainBlock, PlainMessage, PlainReply, ToolOffer, Wire,
    anthropic::Anthropic,
    call::Dialect,
    openai::OpenAi,
    profile::ModelProfiles,
    protocols::{WireParts, rows},
    responses::Responses,
};

fn wires() -> [Box<dyn Dialect>; 2] {
    let anthropic =
        Anthropic { base: "https://api.anthropic.com".parse().unwrap(), key: None, max_tokens: 9 };
    let openai = OpenAi { base: "http://127.0.0.1:1/v1".parse().unwrap(), key: None };
    [Box::new(anthropic), Box::new(openai)]
}

fn body(wire: &dyn Dialect, request: &ModelRequest) -> Value {
    let profile = ModelProfiles::default().of(&format!("p/{}", request.model).parse().unwrap());
    let prepared = wire.prepare(request.clone(), &profile).unwrap();
    serde_json::from_slice(&prepared.body).unwrap()
}

fn asked(model: &str, messages: &[PlainMessage]) -> ModelRequest {
    let offer = |name: &&str| ToolOffer {
        name: name.parse().unwrap(),
        description: format!("It does {name}."),
        input_schema: json!({"type": "object"}),
    };
    ModelRequest {
        reply_schema: None,
        model: model.to_owned(),
        system: "be brief".to_owned(),
        messages: messages.to_vec(),
        tools: ["get", "put"].iter().map(offer).collect(),
        sampling: Sampling::default(),
        idempotency_key: "call".to_owned(),
        cache_key: "ses".to_owned(),
    }
}

/// A conversation with a round of tools in each turn, whose model thinks.
fn conversation(turns: usize) -> Vec<PlainMessage> {
    let mut messages = Vec::new();
    for turn in 0..turns {
        let thought = Item::Thinking { text: "hm".to_owned(), signature: Some("c2ln".to_owned()) };
        let ids: Vec<String> = (0..=turn % 3).map(|nth| format!("t{turn}_{nth}")).collect();
        let using = |id: &String| ToolUse {
            id: id.clone(),
            name: "get".to_owned(),
            arguments: r#"{"b":1,"a":2}"#.to_owned(),
        };
        let reply = |id: &String| PlainReply {
            id: id.clone(),
            text: format!("{id} is done"),
            is_error: turn == 1,
            media: Vec::new(),
        };
        let (tool_uses, tool_replies) =
            (ids.iter().map(using).collect(), ids.iter().map(reply).collect());
        let calls = ids.iter().map(|_| PlainBlock::ToolUse);
        let blocks = [PlainBlock::Item(thought)].into_iter().chain(calls).collect();
        let said = |role, text: &str| PlainMessage::text(role, text);
        messages.push(said(Role::User, &format!("q{turn}")));
        messages.push(PlainMessage { tool_uses, blocks, ..said(Role::Assistant, "") });
        messages.push(PlainMessage { tool_replies, ..said(Role::User, "") });
        messages.push(said(Role::Assistant, &format!("a{turn}")));
    }
    messages
}

/// Takes all markers away; how many there were.
fn unmarked(value: &mut Value) -> usize {
    match value {
        Value::Array(list) => {
            let all = list.len();
            list.retain(|block| block.get("cachePoint").is_none());
            all - list.len() + list.iter_mut().map(unmarked).sum::<usize>()
        }
        Value::Object(fields) => {
            let marker = usize::from(fields.remove("cache_control").is_some());
            marker + fields.values_mut().map(unmarked).sum::<usize>()
        }
        _ => 0,
    }
}

/// What a request has before its conversation: the tools and the system prompt, under the name that each wire
/// has for them.
const BEFORE_MESSAGES: [&str; 6] =
    ["tools", "toolConfig", "tool_config", "system", "systemInstruction", "instructions"];

/// The conversation in a request, whatever its wire calls it.
fn conversation_of(body: &Value) -> &[Value] {
    let messages = ["messages", "input", "contents"].into_iter().find_map(|name| body.get(name));
    messages.unwrap().as_array().unwrap()
}

/// How much of a conversation stays as it is in the next request. In the running turn, Gemini gets a placeholder with
/// each step that has no signature; that is left out once the turn is over.
fn settled(wire: Wire, conversation: &[Value]) -> usize {
    if wire != Wire::Gemini {
        return conversation.len();
    }
    let is_said = |message: &Value| {
        message["role"] == "user" && message.pointer("/parts/0/text").is_some_and(Value::is_string)
    };
    conversation.iter().rposition(is_said).unwrap()
}

#[test]
fn cache_1_a_body_begins_with_the_body_before_it() {
    let all = conversation(12);
    let parts = WireParts {
        base: "http://127.0.0.1:1".parse().unwrap(),
        key: None,
        max_tokens: 9,
        aws: None,
    };
    assert_eq!(rows().count(), 6);
    for row in rows() {
        let wire = (row.dialect)(parts.clone());
        for model in ["claude-sonnet-4-5", "gpt-4o", "o3", "amazon.nova-lite-v1:0", "some-model"] {
            let mut before: Option<Value> = None;
            let ends = (0..all.len()).filter(|at| all[*at].role == Role::User);
            for end in ends {
                let mut now = body(&*wire, &asked(model, &all[..=end]));
                let what = format!("CACHE-1: {:?}, {model}, {end}", row.wire);
                assert!(unmarked(&mut now) <= 4, "{what}");
                assert!(BEFORE_MESSAGES.iter().any(|name| now.get(name).is_some()), "{what}");
                if let Some(before) = before {
                    for name in BEFORE_MESSAGES {
                        assert_eq!(before.get(name), now.get(name), "{what}");
                    }
                    let (old, new) = (conversation_of(&before), conversation_of(&now));
                    let settled = &old[..settled(row.wire, old)];
                    assert!(new.len() > old.len() && new.starts_with(settled), "{what}");
                }
                before = Some(now);
            }
        }
    }
}

#[test]
fn anthropic_gets_markers_after_tools_system_and_two_ends_of_the_conversation() {
    let [anthropic, openai] = wires();
    let mut messages = conversation(2);
    messages.push(PlainMessage::text(Role::User, "and?"));
    let mut sent = body(&*anthropic, &asked("claude-sonnet-4-5", &messages));
    let marker = json!({"type": "ephemeral"});
    for place in [
        "/tools/1/cache_control",
        "/system/0/cache_control",
        "/messages/6/content/1/cache_control",
        "/messages/8/content/0/cache_control",
    ] {
        assert_eq!(sent.pointer(place), Some(&marker), "{place}: {sent}");
    }
    assert_eq!(sent["messages"][6]["content"][1]["type"], "tool_result");
    assert_eq!(unmarked(&mut sent), 4);
    let bare = ModelRequest {
        system: String::new(),
        tools: Vec::new(),
        ..asked("claude-sonnet-4-5", &[PlainMessage::text(Role::User, "hi")])
    };
    let mut sent = body(&*anthropic, &bare);
    assert_eq!((sent.get("system"), sent.get("tools")), (None, None), "nothing is empty");
    assert_eq!(unmarked(&mut sent), 1);
    for (wire, model) in [(&anthropic, "some-model"), (&openai, "some-model"), (&openai, "gpt-4o")]
    {
        let mut sent = body(&**wire, &asked(model, &messages));
        assert_eq!(unmarked(&mut sent), 0, "servers may refuse what they do not know");
    }
}

#[test]
fn markers_on_openai_s_wire_are_in_parts_after_system_and_two_ends_of_the_conversation() {
    let [_, openai] = wires();
    let mut messages = conversation(2);
    messages.push(PlainMessage::text(Role::User, "and?"));
    let mut sent = body(&*openai, &asked("claude-sonnet-4-5", &messages));
    let part = |text: &str, is_marked: bool| {
        let mut part = json!({"type": "text", "text": text});
        if is_marked {
            part["cache_control"] = json!({"type": "ephemeral"});
        }
        json!([part])
    };
    let roles: Vec<&str> =
        conversation_of(&sent).iter().map(|message| message["role"].as_str().unwrap()).collect();
    let turn = ["user", "assistant", "tool", "assistant"];
    let second = ["user", "assistant", "tool", "tool", "assistant", "user"];
    assert_eq!(roles, [&["system"][..], &turn[..], &second[..]].concat());
    for (place, content) in [
        ("/messages/0/content", part("be brief", true)),
        ("/messages/1/content", part("q0", false)),
        ("/messages/3/content", part("t0_0 is done", false)),
        ("/messages/4/content", json!("a0")),
        ("/messages/7/content", part("Error: t1_0 is done", false)),
        ("/messages/8/content", part("Error: t1_1 is done", true)),
        ("/messages/10/content", part("and?", true)),
    ] {
        assert_eq!(sent.pointer(place), Some(&content), "{place}: {sent}");
    }
    assert_eq!(unmarked(&mut sent), 3);
    // A blank part would be refused.
    messages.truncate(3);
    messages[2].tool_replies[0].text = " ".to_owned();
    let mut bare = ModelRequest { system: String::new(), ..asked("claude-sonnet-4-5", &messages) };
    let mut sent = body(&*openai, &bare);
    assert_eq!(sent["messages"][2]["content"], " ");
    assert_eq!(unmarked(&mut sent), 1);
    bare.messages = vec![PlainMessage::text(Role::User, "hi")];
    assert_eq!(body(&*openai, &bare)["messages"][0]["content"], part("hi", true));
}

#[test]
fn openai_gets_the_key_of_a_conversation_for_models_that_know_it() {
    let [_, openai] = wires();
    let responses = Responses { base: "http://127.0.0.1:1/v1".parse().unwrap(), key: None };
    let hi = [PlainMessage::text(Role::User, "hi")];
    let both: [&dyn Dialect; 2] = [&*openai, &responses];
    for wire in both {
        for (model, key) in [("gpt-4o", Some("ses")), ("o3", Some("ses")), ("some-model", None)] {
            let sent = body(wire, &asked(model, &hi));
            let sent = sent.get("prompt_cache_key").and_then(Value::as_str);
            assert_eq!(sent, key, "{wire:?} {model}");
        }
        let keyless = ModelRequest { cache_key: String::new(), ..asked("gpt-4o", &hi) };
        assert_eq!(body(wire, &keyless).get("prompt_cache_key"), None, "{wire:?}");
    }
}
