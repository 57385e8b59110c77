//! A reply in one piece.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    book::WireName,
    check::Asked,
    details::details,
    render::{anthropic_usage, bedrock, called, gemini, id, openai_usage, responses, said, stop},
    script::{self, Reply, Step, ToolCall},
    thoughts::{seal, sign},
};

/// A reply that is not streamed; only its words, thoughts and tool calls count.
pub(super) fn whole(wire: WireName, seq: u64, asked: &Asked, reply: &Reply) -> Bytes {
    match wire {
        WireName::Anthropic => whole_anthropic(seq, asked, reply),
        WireName::Openai => whole_openai(seq, asked, reply),
        WireName::OpenaiResponses => whole_response(seq, asked, reply),
        WireName::Gemini => whole_gemini(seq, asked, reply),
        WireName::Ollama => whole_ollama(seq, asked, reply),
        WireName::Bedrock => whole_bedrock(seq, asked, reply),
    }
}

fn whole_anthropic(seq: u64, asked: &Asked, reply: &Reply) -> Bytes {
    let content = whole_blocks(WireName::Anthropic, seq, reply);
    let body = json!({
        "id": "msg_scripted", "type": "message", "role": "assistant", "model": asked.model,
        "content": content,
        "stop_reason": stop(WireName::Anthropic, reply), "stop_sequence": null,
        "usage": anthropic_usage(asked, tokens(reply)),
    });
    body.to_string().into()
}

fn whole_openai(seq: u64, asked: &Asked, reply: &Reply) -> Bytes {
    let text: String = reply.steps.iter().filter_map(said).collect();
    let calls: Vec<Value> = reply
        .steps
        .iter()
        .flat_map(called)
        .enumerate()
        .map(|(nth, call)| {
            json!({
                "id": id(WireName::Openai, seq, nth, call), "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            })
        })
        .collect();
    let mut message = json!({"role": "assistant", "content": text, "refusal": null});
    let thought: String = reply.steps.iter().filter_map(thought).collect();
    if reply.details {
        message["reasoning"] = thought.into();
        message["reasoning_details"] = details(&reply.steps).into();
    } else if !thought.is_empty() {
        message["reasoning_content"] = thought.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
        if text.is_empty() {
            message["content"] = Value::Null;
        }
    }
    let body = json!({
        "id": "chatcmpl-scripted", "object": "chat.completion", "created": 1_700_000_000,
        "model": asked.model,
        "choices": [{
            "index": 0, "logprobs": null, "finish_reason": stop(WireName::Openai, reply),
            "message": message,
        }],
        "usage": openai_usage(asked, tokens(reply)),
    });
    body.to_string().into()
}

/// Pieces said and calls made, which this server counts as tokens.
fn tokens(reply: &Reply) -> u64 {
    let said = reply.steps.iter().filter(|step| said(step).is_some()).count();
    (said + reply.steps.iter().flat_map(called).count()) as u64
}

fn whole_response(seq: u64, asked: &Asked, reply: &Reply) -> Bytes {
    let (mut output, mut calls) = (Vec::<Value>::new(), 0);
    let thoughts = script::thoughts(&reply.steps);
    // What the open item is, and its text.
    let mut open: Option<(bool, String)> = None;
    let close = |open: &mut Option<(bool, String)>, output: &mut Vec<Value>| {
        let index = output.len();
        output.extend(open.take().map(|(is_thought, text)| {
            if is_thought {
                responses::reasoning(index, thoughts, &text, true)
            } else {
                responses::message(index, &text)
            }
        }));
    };
    for step in &reply.steps {
        let more = said(step).map(|text| (false, text));
        if let Some((is_thought, text)) = more.or_else(|| thought(step).map(|text| (true, text))) {
            if open.as_ref().is_some_and(|(is, _)| *is != is_thought) {
                close(&mut open, &mut output);
            }
            open.get_or_insert_with(|| (is_thought, String::new())).1.push_str(text);
            continue;
        }
        close(&mut open, &mut output);
        if let Step::Redacted { data } = step {
            output.push(responses::reasoning(output.len(), thoughts, data, false));
        }
        for call in called(step) {
            let id = id(WireName::OpenaiResponses, seq, calls, call);
            output.push(responses::function_call(&id, call));
            calls += 1;
        }
    }
    close(&mut open, &mut output);
    let stop = stop(WireName::OpenaiResponses, reply);
    let usage = Some((asked.words, tokens(reply)));
    responses::response(&asked.model, &output, stop, usage).to_string().into()
}

fn whole_gemini(seq: u64, asked: &Asked, reply: &Reply) -> Bytes {
    let (mut parts, mut calls) = (Vec::new(), 0);
    for step in &reply.steps {
        parts.extend(said(step).map(|text| json!({"text": text}).to_string()));
        let thought = thought(step).map(|text| json!({"text": text, "thought": true}));
        parts.extend(thought.map(|part| part.to_string()));
        for call in called(step) {
            let id = id(WireName::Gemini, seq, calls, call);
            parts.push(gemini::call_part(&id, call, calls == 0));
            calls += 1;
        }
    }
    if calls == 0 && script::thoughts(&reply.steps) > 0 {
        let text: String = reply.steps.iter().filter_map(said).collect();
        parts.push(gemini::last_part(&text));
    }
    let (parts, stop) = (parts.join(","), json!(stop(WireName::Gemini, reply)));
    let (input, output, model) = (asked.words, tokens(reply), json!(asked.model));
    format!(
        r#"{{"candidates":[{{"content":{{"parts":[{parts}],"role":"model"}},"finishReason":{stop},"index":0}}],"usageMetadata":{{"promptTokenCount":{input},"candidatesTokenCount":{output}}},"modelVersion":{model}}}"#
    )
    .into()
}

fn whole_ollama(seq: u64, asked: &Asked, reply: &Reply) -> Bytes {
    let text: String = reply.steps.iter().filter_map(said).collect();
    let thought: String = reply.steps.iter().filter_map(thought).collect();
    let mut message = json!({"role": "assistant", "content": text});
    if !thought.is_empty() {
        message["thinking"] = thought.into();
    }
    let calls: Vec<Value> = reply
        .steps
        .iter()
        .flat_map(called)
        .enumerate()
        .map(|(nth, call)| {
            let id = id(WireName::Ollama, seq, nth, call);
            let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
            json!({"id": id, "function": {"index": nth, "name": call.name, "arguments": arguments}})
        })
        .collect();
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    let body = json!({
        "model": asked.model, "created_at": "2026-01-01T00:00:00Z", "message": message, "done": true,
        "done_reason": stop(WireName::Ollama, reply),
        "prompt_eval_count": asked.words, "eval_count": tokens(reply),
    });
    body.to_string().into()
}

fn whole_bedrock(seq: u64, asked: &Asked, reply: &Reply) -> Bytes {
    let content: Vec<Value> =
        whole_blocks(WireName::Bedrock, seq, reply).iter().map(bedrock::block).collect();
    let body = json!({
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": stop(WireName::Bedrock, reply), "metrics": {"latencyMs": 1},
        "usage": bedrock::usage(asked, tokens(reply)),
    });
    body.to_string().into()
}

/// The content of a whole reply on Anthropic's wire.
fn whole_blocks(wire: WireName, seq: u64, reply: &Reply) -> Vec<Value> {
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
            let id = id(wire, seq, calls, call);
            blocks.push(whole_call(&id, call));
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

/// The wire has no form for arguments that are no JSON.
fn whole_call(id: &str, call: &ToolCall) -> Value {
    json!({
        "type": "tool_use", "id": id, "name": call.name,
        "input": serde_json::from_str::<Value>(&call.arguments).unwrap_or_else(|_| json!({})),
    })
}

fn thought(step: &Step) -> Option<&str> {
    match step {
        Step::Thinking { text } => Some(text),
        _ => None,
    }
}
