//! A provider's cache of the beginnings of prompts, by the rules that the vendors publish.
//!
//! Anthropic keeps a prompt up to each marker, and from a marker looks back over 20 blocks for what it has kept.
//! `OpenAI` keeps every prompt, by its key, and counts what it reads in steps of 128 tokens. Both keep nothing
//! shorter than 1,024 tokens, and for five minutes from its last use.

use std::{collections::BTreeMap, time::Duration};

use clawnode_proto::Digest;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::book::WireName;

/// Tokens of the shortest beginning that is kept.
const LEAST: u64 = 1_024;
/// How long it is kept.
const KEPT_FOR: Duration = Duration::from_mins(5);
/// Blocks before a marker that are compared.
const LOOK_BACK: usize = 20;
/// `OpenAI` counts what it reads in steps of so many tokens.
const STEP: u64 = 128;
/// Bytes of JSON that this server counts as one token.
const BYTES_PER_TOKEN: u64 = 4;

/// How a vendor counts a prompt of which it keeps the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PromptTokens {
    /// All of them.
    pub(super) all: u64,
    /// Of these, those that were kept.
    pub(super) read: u64,
    /// Of these, those that are kept from now on.
    pub(super) written: u64,
}

/// What is kept, and when it was used.
#[derive(Debug, Default)]
pub(super) struct PromptCache(BTreeMap<Digest, Instant>);

/// A prompt up to the end of one of its blocks.
struct Beginning {
    digest: Digest,
    tokens: u64,
    is_marked: bool,
}

// === impl PromptCache ===

impl PromptCache {
    /// Takes a request, and says what was kept of it.
    pub(super) fn take(&mut self, now: Instant, wire: WireName, body: &[u8]) -> PromptTokens {
        self.0.retain(|_, used| now.duration_since(*used) < KEPT_FOR);
        let prompt: Value = serde_json::from_slice(body).unwrap_or_default();
        let beginnings = beginnings(wire, &prompt);
        let all = beginnings.last().map_or(0, |whole| whole.tokens);
        let ends: Vec<usize> = (0..beginnings.len())
            .filter(|at| wire == WireName::Openai || beginnings[*at].is_marked)
            .collect();
        let back = if wire == WireName::Openai { 0 } else { LOOK_BACK };
        let near = ends.iter().flat_map(|end| end.saturating_sub(back)..=*end);
        let found = near
            .map(|at| &beginnings[at])
            .filter(|beginning| self.0.contains_key(&beginning.digest));
        let found = found.max_by_key(|beginning| beginning.tokens);
        let mut read = found.map_or(0, |beginning| beginning.tokens);
        self.0.extend(found.map(|beginning| (beginning.digest, now)));
        let long =
            ends.iter().map(|end| &beginnings[*end]).filter(|beginning| beginning.tokens >= LEAST);
        let kept = long.clone().next_back().map_or(0, |beginning| beginning.tokens);
        self.0.extend(long.map(|beginning| (beginning.digest, now)));
        if wire == WireName::Openai {
            read = read / STEP * STEP;
        }
        let written = if wire == WireName::Openai { 0 } else { kept.saturating_sub(read) };
        PromptTokens { all, read, written }
    }
}

/// A prompt up to the end of each of its blocks. Its markers, and whether a text is a block, change nothing.
fn beginnings(wire: WireName, prompt: &Value) -> Vec<Beginning> {
    let list = |value: &Value| match value {
        Value::Array(list) => list.clone(),
        Value::Null => Vec::new(),
        text => vec![json!({"type": "text", "text": text})],
    };
    let mut blocks: Vec<(Value, Value)> = Vec::new();
    blocks.extend(list(&prompt["tools"]).into_iter().map(|tool| (json!("tool"), tool)));
    match wire {
        WireName::Anthropic => {
            blocks
                .extend(list(&prompt["system"]).into_iter().map(|block| (json!("system"), block)));
            for message in list(&prompt["messages"]) {
                // With other thoughts, the conversation is another one.
                let said = json!([message["role"], prompt["thinking"]]);
                blocks.extend(
                    list(&message["content"]).into_iter().map(|block| (said.clone(), block)),
                );
            }
        }
        WireName::Openai => {
            blocks.extend(list(&prompt["messages"]).into_iter().map(|block| (Value::Null, block)));
        }
        // Their caches are not played.
        WireName::OpenaiResponses | WireName::Gemini | WireName::Ollama | WireName::Bedrock => {
            return Vec::new();
        }
    }
    let seed = json!([prompt["model"], prompt["prompt_cache_key"]]).to_string();
    let (mut digest, mut tokens) = (Digest::of(seed.as_bytes()), 0);
    let begin = |(block_of, mut block): (Value, Value)| {
        let marker = block.as_object_mut().and_then(|block| block.remove("cache_control"));
        let text = block.to_string();
        digest = Digest::of(format!("{digest}{block_of}{text}").as_bytes());
        tokens += text.len() as u64 / BYTES_PER_TOKEN + 1;
        Beginning { digest, tokens, is_marked: marker.is_some() }
    };
    blocks.into_iter().map(begin).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(tokens: usize) -> String {
        "abc ".repeat(tokens)
    }

    fn text(text: &str, is_marked: bool) -> Value {
        let mut block = json!({"type": "text", "text": text});
        if is_marked {
            block["cache_control"] = json!({"type": "ephemeral"});
        }
        block
    }

    fn prompt(system: usize, messages: &[(&str, bool)]) -> Value {
        let message = |(nth, (said, is_marked)): (usize, &(&str, bool))| {
            let role = if nth % 2 == 0 { "user" } else { "assistant" };
            json!({"role": role, "content": [text(said, *is_marked)]})
        };
        let messages: Vec<Value> = messages.iter().enumerate().map(message).collect();
        json!({"model": "m", "system": [text(&words(system), true)], "messages": messages})
    }

    #[test]
    fn anthropic_keeps_what_is_marked_for_five_minutes() {
        let (mut cache, start) = (PromptCache::default(), Instant::now());
        let mut take = |seconds, prompt: &Value| {
            let now = start + Duration::from_secs(seconds);
            cache.take(now, WireName::Anthropic, prompt.to_string().as_bytes())
        };
        let short = prompt(900, &[("hi", true)]);
        assert_eq!(take(0, &short).written + take(0, &short).read, 0, "too short");
        let first = prompt(1_100, &[("hi", true)]);
        let written = take(0, &first);
        assert_eq!((written.read, written.written), (0, written.all));
        // Up to the marker of the request before; a marker that is gone is as good.
        let second = prompt(1_100, &[("hi", false), ("ho", false), ("and?", true)]);
        let read = take(299, &second);
        assert_eq!((read.read, read.written), (written.all, read.all - written.all));
        // It was used since; what was not is gone.
        assert_eq!(take(598, &second).read, read.all);
        assert_eq!(take(898, &second).read, 0);
        let unmarked =
            json!({"model": "m", "messages": [{"role": "user", "content": words(2_000)}]});
        assert_eq!((take(898, &unmarked).written, take(898, &unmarked).read), (0, 0));
        // Too many blocks lie between.
        let mut long = prompt(1_100, &[("hi", false)]);
        let many = (0..25).map(|n| text(&n.to_string(), n == 24));
        long["messages"][0]["content"].as_array_mut().unwrap().extend(many);
        long["system"][0]["cache_control"].take();
        long["system"][0].as_object_mut().unwrap().remove("cache_control");
        assert_eq!(take(898, &long).read, 0);
        let mut other = first;
        other["model"] = json!("n");
        assert_eq!(take(899, &other).read, 0, "another model's");
    }

    #[test]
    fn openai_keeps_every_prompt_by_its_key() {
        let (mut cache, now) = (PromptCache::default(), Instant::now());
        let ask = |key: &str, said: &[&str]| {
            let said = said.iter().map(|text| json!({"role": "user", "content": text}));
            let messages: Vec<Value> = said.collect();
            json!({"model": "m", "prompt_cache_key": key, "messages": messages}).to_string()
        };
        let long = words(1_200);
        let first = cache.take(now, WireName::Openai, ask("a", &[&long]).as_bytes());
        assert_eq!((first.read, first.written), (0, 0));
        let second = cache.take(now, WireName::Openai, ask("a", &[&long, "and?"]).as_bytes());
        assert_eq!(second.read, first.all / STEP * STEP);
        let other = cache.take(now, WireName::Openai, ask("b", &[&long, "and?"]).as_bytes());
        assert_eq!(other.read, 0, "another conversation's");
    }
}
