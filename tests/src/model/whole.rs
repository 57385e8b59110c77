//! A reply in one piece.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    book::WireName,
    check::Asked,
    render::{anthropic_usage, called, id, openai_usage, said, stop},
    script::{self, Reply, Step, ToolCall},
    thoughts::{seal, sign},
};

/// A reply that is not streamed; only its words, thoughts and tool calls count.
pub(super) fn whole(wire: WireName, seq: u64, asked: &Asked, reply: &Reply) -> Bytes {
    let text: String = reply.steps.iter().filter_map(said).collect();
    let calls: Vec<Value> = reply
        .steps
        .iter()
        .flat_map(called)
        .enumerate()
        .map(|(nth, call)| whole_call(wire, &id(wire, seq, nth, call), call))
        .collect();
    let said = reply.steps.iter().filter(|step| said(step).is_some()).count();
    let tokens = (said + calls.len()) as u64;
    let body = match wire {
        WireName::Anthropic => {
            let content = whole_blocks(seq, reply);
            json!({
                "id": "msg_scripted", "type": "message", "role": "assistant", "model": asked.model,
                "content": content,
                "stop_reason": stop(wire, reply), "stop_sequence": null,
                "usage": anthropic_usage(asked, tokens),
            })
        }
        WireName::Openai => {
            let mut message = json!({"role": "assistant", "content": text, "refusal": null});
            let thought: String = reply.steps.iter().filter_map(thought).collect();
            if !thought.is_empty() {
                message["reasoning_content"] = thought.into();
            }
            if !calls.is_empty() {
                message["tool_calls"] = calls.into();
                if text.is_empty() {
                    message["content"] = Value::Null;
                }
            }
            json!({
                "id": "chatcmpl-scripted", "object": "chat.completion", "created": 1_700_000_000,
                "model": asked.model,
                "choices": [{
                    "index": 0, "logprobs": null, "finish_reason": stop(wire, reply),
                    "message": message,
                }],
                "usage": openai_usage(asked, tokens),
            })
        }
    };
    body.to_string().into()
}

/// The content of a whole reply on Anthropic's wire.
fn whole_blocks(seq: u64, reply: &Reply) -> Vec<Value> {
    let (mut blocks, mut calls) = (Vec::<Value>::new(), 0);
    let thoughts = script::thoughts(&reply.steps);
    let grow = |blocks: &mut Vec<Value>, kind: &str, text: &str| match blocks.last_mut() {
        Some(last) if last["type"] == kind => {
            let grown = format!("{}{text}", last[kind].as_str().unwrap_or_default());
            last[kind] = grown.into();
        }
        _ => blocks.push(json!({"type": kind, kind: text})),
    };
    for step in &reply.steps {
        if let Some(text) = said(step) {
            grow(&mut blocks, "text", text);
        } else if let Some(text) = thought(step) {
            grow(&mut blocks, "thinking", text);
        } else if let Step::Redacted { data } = step {
            let data = seal(blocks.len(), thoughts, data);
            blocks.push(json!({"type": "redacted_thinking", "data": data}));
        }
        for call in called(step) {
            let id = id(WireName::Anthropic, seq, calls, call);
            blocks.push(whole_call(WireName::Anthropic, &id, call));
            calls += 1;
        }
    }
    for (index, block) in blocks.iter_mut().enumerate() {
        if let Some(text) = block["thinking"].as_str() {
            block["signature"] = sign(index, thoughts, text).into();
        }
    }
    if blocks.is_empty() {
        blocks.push(json!({"type": "text", "text": ""}));
    }
    blocks
}

fn whole_call(wire: WireName, id: &str, call: &ToolCall) -> Value {
    match wire {
        // The wire has no form for arguments that are no JSON.
        WireName::Anthropic => json!({
            "type": "tool_use", "id": id, "name": call.name,
            "input": serde_json::from_str::<Value>(&call.arguments).unwrap_or_else(|_| json!({})),
        }),
        WireName::Openai => json!({
            "id": id, "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }),
    }
}

fn thought(step: &Step) -> Option<&str> {
    match step {
        Step::Thinking { text } => Some(text),
        _ => None,
    }
}
