//! Thoughts of a turn that have to come back, also as `OpenRouter` lists them: `reasoning_details`.

use serde_json::{Value, json};

use super::{
    book::WireName,
    check::Asked,
    script::{self, Act, Script, Step},
    thoughts::{seal, sign},
};

const FORMAT: &str = "scripted-v1";

// === impl Script ===

impl Script {
    /// Holds a request to what the turn's earlier replies have thought.
    pub(super) fn check(&self, wire: WireName, asked: &Asked) -> Result<(), String> {
        match self.turns.get(&asked.last_user) {
            Some(acts) => check_turn(wire, asked, acts),
            None => Ok(()),
        }
    }
}

/// What a reply thinks.
fn thought(act: &Act) -> String {
    let Act::Reply(reply) = act else { return String::new() };
    let text = |step: &Step| match step {
        Step::Thinking { text } => Some(text.clone()),
        _ => None,
    };
    reply.steps.iter().filter_map(text).collect()
}

/// Whether this is what a reply has thought, as its wire wants it back.
fn is_thought_of(wire: WireName, sent: &str, act: &Act) -> bool {
    match act {
        Act::Reply(reply) if reply.details && wire == WireName::Openai => {
            let details = details(&reply.steps);
            let sent = if sent.is_empty() { Ok(Vec::new()) } else { serde_json::from_str(sent) };
            sent.is_ok_and(|sent: Vec<Value>| sent == details)
        }
        _ => *sent == thought(act),
    }
}

/// Holds a request to what this turn's replies, as they are scripted, have thought.
fn check_turn(wire: WireName, asked: &Asked, acts: &[Act]) -> Result<(), String> {
    for (round, (sent, act)) in asked.thoughts.iter().zip(acts).enumerate() {
        if !is_thought_of(wire, sent, act) {
            return Err(match wire {
                WireName::Anthropic | WireName::Bedrock => format!(
                    "round {round}: Expected `thinking` or `redacted_thinking`: the thoughts of a round \
                     of tools cannot be left out or modified"
                ),
                WireName::OpenaiResponses => format!(
                    "round {round}: Item of type 'function_call' was provided without its required \
                     'reasoning' item, or with another"
                ),
                WireName::Openai | WireName::Gemini | WireName::Ollama => format!(
                    "round {round}: thinking is enabled but reasoning_content or reasoning_details are \
                     missing, or are others"
                ),
            });
        }
    }
    Ok(())
}

/// What a reply with these steps thinks, one entry for each block of thoughts. A sealed one is of the first tool call
/// that has an id.
pub(super) fn details(steps: &[Step]) -> Vec<Value> {
    let thoughts = script::thoughts(steps);
    let mut entries: Vec<Value> = Vec::new();
    let mut text = String::new();
    for (at, step) in steps.iter().enumerate() {
        let index = entries.len();
        match step {
            Step::Thinking { text: more } => {
                text.push_str(more);
                if !matches!(steps.get(at + 1), Some(Step::Thinking { .. })) {
                    let signature = sign(index, thoughts, &text);
                    entries.push(json!({
                        "type": "reasoning.text", "text": text, "signature": signature, "id": null,
                        "format": FORMAT, "index": index,
                    }));
                    text.clear();
                }
            }
            Step::Redacted { data } => entries.push(json!({
                "type": "reasoning.encrypted", "data": seal(index, thoughts, data),
                "id": first_call(steps), "format": FORMAT, "index": index,
            })),
            _ => {}
        }
    }
    entries
}

/// The piece of an entry with these words, and the one with what signs it.
pub(super) fn pieces(entry: &Value, text: &str) -> [Value; 2] {
    let (format, index) = (&entry["format"], &entry["index"]);
    [
        json!({"type": "reasoning.text", "text": text, "signature": null, "id": null,
            "format": format, "index": index}),
        json!({"type": "reasoning.text", "signature": entry["signature"], "format": format,
            "index": index}),
    ]
}

fn first_call(steps: &[Step]) -> Option<&str> {
    steps.iter().find_map(|step| match step {
        Step::Tools { calls, .. } => calls.iter().find_map(|call| call.id.as_deref()),
        _ => None,
    })
}
