//! Builds a reply out of a turn's events, and says it in OpenAI's words.

use std::collections::BTreeMap;

use clawnode_proto::{
    ErrorBody, ErrorCode,
    client_tool::{ClientCall, ClientCalls},
    frame::{ApprovalRequest, Notice},
    llm::{StopReason, Usage},
    session::TurnOutcome,
    turn::{StreamEnd, TurnBody},
};
use serde::{Serialize, de::IgnoredAny};

use super::{
    super::{error::json, slow_client_stream::lost},
    id::ResponseId,
    tools::HandedCall,
};

/// The reply so far, and how far it can still be said as a stream, which takes nothing back.
#[derive(Debug, Default)]
pub(in super::super) struct OpenAiReply {
    text: String,
    /// How much of `text` was sent.
    told: usize,
    /// What was sent before the reply was begun again, until `text` has caught up with it.
    before: Option<String>,
    /// What the model thought, of which nothing is void.
    thought: String,
    /// Whether the client gets nothing before the end: a reply that has to fit a schema may be corrected, and
    /// this protocol takes nothing back.
    is_held: bool,
    usage: Usage,
    /// Whether the model has stopped at one of the texts at which it was to stop.
    at_stop: bool,
}

/// The notices that say why nothing happens.
const WAITS: [&str; 2] = ["provider_down", "paced"];

/// What follows from one event.
#[derive(Debug, PartialEq)]
pub(in super::super) enum ReplyStep {
    /// Nothing to say.
    Nothing,
    /// More of the reply.
    Text(String),
    /// More of the model's thoughts.
    Thought(String),
    /// A tool call waits for a person.
    Asks(ApprovalRequest),
    /// The turn waits for a provider.
    Waits(Notice),
    /// The reply was begun again, and is another one now. No matter to who reads only the whole.
    Diverged,
    /// The reply is whole, and its client is to run tools.
    Called(ClientCalls),
    /// The reply is whole.
    Finished(FinishReason),
    /// There is no reply.
    Failed(ErrorBody),
}

/// Why a reply ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in super::super) enum FinishReason {
    Stop,
    Length,
    ContentFilter,
    ToolCalls,
}

/// What all chunks of one completion have in common.
#[derive(Debug)]
pub(super) struct Label {
    pub(super) id: ResponseId,
    pub(super) created: u64,
    pub(super) model: String,
    /// The pairs that its client keeps with it, in a completion that is read again.
    pub(super) metadata: Option<BTreeMap<String, String>>,
    /// Whether chunks carry `usage`, `null` but in the last.
    pub(super) usage: bool,
}

#[derive(Serialize)]
struct Completion<'a> {
    id: String,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: [CompletionChoice<'a>; 1],
    usage: Tokens,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a BTreeMap<String, String>>,
}

#[derive(Serialize)]
struct CompletionChoice<'a> {
    index: u32,
    message: Spoken<'a>,
    logprobs: Option<()>,
    finish_reason: FinishReason,
}

#[derive(Serialize)]
struct Spoken<'a> {
    role: &'static str,
    /// `null` for one that only calls.
    content: Option<&'a str>,
    /// What the model thought; left out if it did not.
    #[serde(skip_serializing_if = "str::is_empty")]
    reasoning_content: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<HandedCall<'a>>,
    refusal: Option<()>,
}

#[derive(Serialize)]
struct CompletionChunk<'a> {
    id: String,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: &'a [ChunkChoice<'a>],
    #[serde(skip_serializing_if = "ChunkUsage::is_left_out")]
    usage: ChunkUsage,
    /// What this protocol has no word for.
    #[serde(skip_serializing_if = "Option::is_none")]
    clawnode: Option<Extension<'a>>,
}

/// What a chunk says beside this protocol.
#[derive(Clone, Copy, Serialize)]
struct Extension<'a> {
    /// The call that waits for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<&'a ApprovalRequest>,
    /// Why the turn waits for a provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<&'a Notice>,
}

#[derive(Serialize)]
struct ChunkChoice<'a> {
    index: u32,
    delta: ChunkDelta<'a>,
    logprobs: Option<()>,
    finish_reason: Option<FinishReason>,
}

#[derive(Default, Serialize)]
struct ChunkDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<&'a [HandedCall<'a>]>,
}

/// `usage` of a chunk: left out, `null`, or known.
enum ChunkUsage {
    LeftOut,
    Null,
    Known(Tokens),
}

#[derive(Clone, Copy, Serialize)]
struct Tokens {
    #[serde(rename = "prompt_tokens")]
    prompt: u64,
    #[serde(rename = "completion_tokens")]
    completion: u64,
    #[serde(rename = "total_tokens")]
    total: u64,
    #[serde(rename = "prompt_tokens_details")]
    details: TokenDetails,
    #[serde(rename = "completion_tokens_details", skip_serializing_if = "Option::is_none")]
    completion_details: Option<CompletionTokensDetails>,
}

/// Left out if no provider counted them.
#[derive(Clone, Copy, Serialize)]
struct CompletionTokensDetails {
    reasoning_tokens: u64,
}

#[derive(Clone, Copy, Serialize)]
struct TokenDetails {
    cached_tokens: u64,
}

// === impl OpenAiReply ===

impl OpenAiReply {
    /// A reply of which the client gets nothing before the end, if `is_held`.
    pub(in super::super) fn held(is_held: bool) -> Self {
        Self { is_held, ..Self::default() }
    }

    /// Takes one event in.
    pub(in super::super) fn take(&mut self, body: TurnBody) -> ReplyStep {
        match body {
            TurnBody::Text(more) => {
                self.text.push_str(&more);
                self.tell()
            }
            TurnBody::Thought(more) => {
                self.thought.push_str(&more);
                ReplyStep::Thought(more)
            }
            TurnBody::Reset(reset) => {
                // What a stream has told of it cannot be taken back, and is no part of the reply.
                self.thought.clear();
                let before = std::mem::replace(&mut self.text, reset.text);
                self.before.get_or_insert(before);
                self.tell()
            }
            TurnBody::Usage(usage) => {
                self.usage = self.usage.plus(usage);
                ReplyStep::Nothing
            }
            TurnBody::Notice(notice) if WAITS.contains(&notice.name.as_str()) => {
                ReplyStep::Waits(notice)
            }
            TurnBody::Accepted(_)
            | TurnBody::Notice(_)
            | TurnBody::ToolUse(_)
            | TurnBody::ToolResult(_)
            | TurnBody::Lagged(_)
            | TurnBody::Unknown { .. } => ReplyStep::Nothing,
            TurnBody::ApprovalRequest(request) => ReplyStep::Asks(request),
            TurnBody::ClientCalls(calls) => ReplyStep::Called(calls),
            TurnBody::Error(error) => ReplyStep::Failed(error),
            TurnBody::Done(StreamEnd { outcome: Some(outcome), structured, .. }) => {
                // Clients read the whole as JSON: without a fence, and without what was said between tools.
                if let Some(json) = structured
                    && serde_json::from_str::<IgnoredAny>(&self.text).is_err()
                {
                    self.text = json.to_string();
                }
                let stop = StopReason::StopSequence;
                self.at_stop = outcome == TurnOutcome::Completed { stop };
                Self::end(&outcome)
            }
            TurnBody::Done(_) => ReplyStep::Failed(lost()),
        }
    }

    /// What a client reads that wants the whole at once.
    pub(in super::super) fn text(&self) -> &str {
        &self.text
    }

    /// What the model thought.
    pub(in super::super) fn thought(&self) -> &str {
        &self.thought
    }

    pub(in super::super) const fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Whether the model has stopped at one of the texts at which it was to stop.
    pub(in super::super) const fn is_at_stop(&self) -> bool {
        self.at_stop
    }

    /// What is left to be told at the end of a reply that was held.
    pub(super) fn rest(&mut self) -> Option<&str> {
        let is_held = std::mem::take(&mut self.is_held);
        Some(self.text.as_str()).filter(|text| is_held && !text.is_empty())
    }

    /// Whether a stream has told all of the reply and nothing else.
    pub(super) fn is_told(&self) -> bool {
        self.before.is_none()
    }

    /// Says what was not said yet. When the reply is begun again, nothing need be said as long as
    /// it says the same as before.
    fn tell(&mut self) -> ReplyStep {
        if self.is_held {
            self.before = None;
            return ReplyStep::Nothing;
        }
        if let Some(before) = &self.before {
            if !self.text.starts_with(before.as_str()) {
                let behind = before.starts_with(&self.text);
                return if behind { ReplyStep::Nothing } else { ReplyStep::Diverged };
            }
            self.told = before.len();
            self.before = None;
        }
        match self.text.get(self.told..) {
            None | Some("") => ReplyStep::Nothing,
            Some(fresh) => {
                let fresh = fresh.to_owned();
                self.told = self.text.len();
                ReplyStep::Text(fresh)
            }
        }
    }

    /// How a turn's end ends its reply.
    pub(super) fn end(outcome: &TurnOutcome) -> ReplyStep {
        match outcome {
            TurnOutcome::Completed { stop } => ReplyStep::Finished(match stop {
                StopReason::EndTurn
                | StopReason::StopSequence
                | StopReason::ToolUse
                | StopReason::Other { .. } => FinishReason::Stop,
                StopReason::MaxTokens => FinishReason::Length,
                StopReason::Refusal => FinishReason::ContentFilter,
            }),
            TurnOutcome::StepLimit { .. } | TurnOutcome::TimedOut { .. } => {
                ReplyStep::Finished(FinishReason::Length)
            }
            TurnOutcome::Failed { .. }
            | TurnOutcome::Looped { .. }
            | TurnOutcome::BadCalls { .. }
            | TurnOutcome::SchemaFailed { .. }
            | TurnOutcome::Stopped { .. }
            | TurnOutcome::Blocked { .. }
            | TurnOutcome::StepFailed { .. }
            | TurnOutcome::Bankrupt { .. }
            | TurnOutcome::Cancelled => {
                ReplyStep::Failed(outcome.error().unwrap_or_else(|| {
                    ErrorBody::new(ErrorCode::Cancelled, "the turn was cancelled")
                }))
            }
        }
    }
}

// === impl Label ===

impl Label {
    /// The whole completion.
    pub(super) fn completion(&self, reply: &OpenAiReply, finish_reason: FinishReason) -> String {
        self.whole(reply, finish_reason, Vec::new())
    }

    /// The whole completion of a reply whose client is to run tools.
    pub(super) fn called(&self, reply: &OpenAiReply, calls: &ClientCalls) -> String {
        let handed = calls.calls.iter().map(|call| HandedCall::new(call, self.id.session, None));
        self.whole(reply, FinishReason::ToolCalls, handed.collect())
    }

    fn whole(
        &self,
        reply: &OpenAiReply,
        finish_reason: FinishReason,
        tool_calls: Vec<HandedCall<'_>>,
    ) -> String {
        let only_calls = reply.text().is_empty() && !tool_calls.is_empty();
        json(&Completion {
            id: self.id(),
            object: "chat.completion",
            created: self.created,
            model: &self.model,
            choices: [CompletionChoice {
                index: 0,
                message: Spoken {
                    role: "assistant",
                    content: (!only_calls).then(|| reply.text()),
                    reasoning_content: &reply.thought,
                    tool_calls,
                    refusal: None,
                },
                logprobs: None,
                finish_reason,
            }],
            usage: Tokens::from(reply.usage()),
            metadata: self.metadata.as_ref(),
        })
    }

    /// The first chunk: who speaks.
    pub(super) fn first(&self) -> String {
        let (role, content) = (Some("assistant"), Some(""));
        self.chunk(ChunkDelta { role, content, ..ChunkDelta::default() }, None)
    }

    pub(super) fn text(&self, text: &str) -> String {
        self.chunk(ChunkDelta { content: Some(text), ..ChunkDelta::default() }, None)
    }

    pub(super) fn thought(&self, text: &str) -> String {
        self.chunk(ChunkDelta { reasoning_content: Some(text), ..ChunkDelta::default() }, None)
    }

    /// A call that its client is to run, whole.
    pub(super) fn call(&self, call: &ClientCall, index: usize) -> String {
        let handed = [HandedCall::new(call, self.id.session, Some(index))];
        self.chunk(ChunkDelta { tool_calls: Some(&handed), ..ChunkDelta::default() }, None)
    }

    /// A call that waits for a person.
    pub(super) fn approval(&self, approval: &ApprovalRequest) -> String {
        let delta = ChunkDelta::default();
        let choice = ChunkChoice { index: 0, delta, logprobs: None, finish_reason: None };
        let extension = Extension { approval: Some(approval), notice: None };
        self.render(&[choice], self.no_usage(), Some(extension))
    }

    /// What a client reads that does not know the extension: nothing.
    pub(super) fn waits(&self, notice: &Notice) -> String {
        let delta = ChunkDelta::default();
        let choice = ChunkChoice { index: 0, delta, logprobs: None, finish_reason: None };
        let extension = Extension { approval: None, notice: Some(notice) };
        self.render(&[choice], self.no_usage(), Some(extension))
    }

    pub(super) fn finish(&self, reason: FinishReason) -> String {
        self.chunk(ChunkDelta::default(), Some(reason))
    }

    /// The last chunk of who asked for `include_usage`.
    pub(super) fn usage(&self, usage: &Usage) -> String {
        self.render(&[], ChunkUsage::Known(Tokens::from(usage)), None)
    }

    fn chunk(&self, delta: ChunkDelta<'_>, finish_reason: Option<FinishReason>) -> String {
        let choice = ChunkChoice { index: 0, delta, logprobs: None, finish_reason };
        self.render(&[choice], self.no_usage(), None)
    }

    const fn no_usage(&self) -> ChunkUsage {
        if self.usage { ChunkUsage::Null } else { ChunkUsage::LeftOut }
    }

    fn render(
        &self,
        choices: &[ChunkChoice<'_>],
        usage: ChunkUsage,
        clawnode: Option<Extension<'_>>,
    ) -> String {
        json(&CompletionChunk {
            id: self.id(),
            object: "chat.completion.chunk",
            created: self.created,
            model: &self.model,
            choices,
            usage,
            clawnode,
        })
    }

    fn id(&self) -> String {
        self.id.of_completion()
    }
}

// === impl ChunkUsage ===

impl ChunkUsage {
    fn is_left_out(&self) -> bool {
        matches!(self, Self::LeftOut)
    }
}

impl Serialize for ChunkUsage {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::LeftOut | Self::Null => serializer.serialize_none(),
            Self::Known(tokens) => tokens.serialize(serializer),
        }
    }
}

// === impl Tokens ===

impl From<&Usage> for Tokens {
    fn from(usage: &Usage) -> Self {
        Self {
            prompt: usage.input_tokens,
            completion: usage.output_tokens,
            total: usage.input_tokens.saturating_add(usage.output_tokens),
            details: TokenDetails { cached_tokens: usage.cache_read_tokens },
            completion_details: Some(usage.reasoning_tokens)
                .filter(|tokens| *tokens > 0)
                .map(|reasoning_tokens| CompletionTokensDetails { reasoning_tokens }),
        }
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::turn::ReplyReset;

    use super::*;

    #[test]
    fn a_turn_that_waits_for_its_provider_says_so_beside_the_protocol() {
        let notice = |name: &str| Notice { name: name.to_owned(), message: "why".to_owned() };
        let mut reply = OpenAiReply::default();
        for (name, is_told) in
            [("provider_down", true), ("paced", true), ("history_dropped", false)]
        {
            let step = reply.take(TurnBody::Notice(notice(name)));
            let told = if is_told { ReplyStep::Waits(notice(name)) } else { ReplyStep::Nothing };
            assert_eq!(step, told);
        }
        let both = Extension { approval: None, notice: Some(&notice("paced")) };
        let json = serde_json::json!({"notice": {"name": "paced", "message": "why"}});
        assert_eq!(serde_json::to_value(both).unwrap(), json);
    }

    #[test]
    fn thoughts_are_told_beside_the_reply_and_no_part_of_it() {
        let mut reply = OpenAiReply::default();
        let thought = |text: &str| TurnBody::Thought(text.to_owned());
        assert_eq!(reply.take(thought("void")), ReplyStep::Thought("void".to_owned()));
        assert_eq!(reply.take(reset("")), ReplyStep::Nothing);
        assert_eq!(reply.take(thought("hm")), ReplyStep::Thought("hm".to_owned()));
        assert_eq!(reply.take(text("a")), ReplyStep::Text("a".to_owned()));
        let usage = Usage { output_tokens: 9, reasoning_tokens: 7, ..Usage::default() };
        assert_eq!(reply.take(TurnBody::Usage(usage)), ReplyStep::Nothing);
        let label = Label {
            id: ResponseId {
                session: clawnode_proto::EntityId::from_u128(2),
                turn: clawnode_proto::TurnId::from_u128(1),
                after: None,
                is_held: false,
            },
            created: 1,
            model: "m".to_owned(),
            metadata: None,
            usage: false,
        };
        let whole: serde_json::Value =
            serde_json::from_str(&label.completion(&reply, FinishReason::Stop)).unwrap();
        let message = &whole["choices"][0]["message"];
        assert_eq!(
            (&message["content"], &message["reasoning_content"]),
            (&"a".into(), &"hm".into())
        );
        assert_eq!(whole["usage"]["completion_tokens_details"]["reasoning_tokens"], 7);
        let chunk: serde_json::Value = serde_json::from_str(&label.thought("hm")).unwrap();
        let delta = serde_json::json!({"reasoning_content": "hm"});
        assert_eq!(chunk["choices"][0]["delta"], delta);
    }

    fn text(text: &str) -> TurnBody {
        TurnBody::Text(text.to_owned())
    }

    fn reset(text: &str) -> TurnBody {
        TurnBody::Reset(ReplyReset { text: text.to_owned() })
    }

    fn done(outcome: TurnOutcome) -> TurnBody {
        TurnBody::Done(StreamEnd { outcome: Some(outcome), ..StreamEnd::default() })
    }

    fn said(text: &str) -> ReplyStep {
        ReplyStep::Text(text.to_owned())
    }

    #[test]
    fn a_reply_begun_again_is_not_said_twice() {
        let mut reply = OpenAiReply::default();
        assert_eq!(reply.take(text("Hello")), said("Hello"));
        assert_eq!(reply.take(reset("")), ReplyStep::Nothing);
        assert!(!reply.is_told());
        assert_eq!(reply.take(text("Hel")), ReplyStep::Nothing);
        assert_eq!(reply.take(reset("He")), ReplyStep::Nothing);
        assert_eq!(reply.take(text("llo, w")), said(", w"));
        assert!(reply.is_told());
        assert_eq!(reply.take(text("orld")), said("orld"));
        assert_eq!(reply.text(), "Hello, world");
    }

    #[test]
    fn another_reply_is_not_glued_to_the_first() {
        let mut reply = OpenAiReply::default();
        reply.take(text("Hello"));
        reply.take(reset(""));
        assert_eq!(reply.take(text("Hex")), ReplyStep::Diverged);
        assert_eq!(reply.text(), "Hex", "who reads the whole reads the last one");
        let mut short = OpenAiReply::default();
        short.take(text("Hello"));
        short.take(reset("He"));
        let ended = done(TurnOutcome::Completed { stop: StopReason::EndTurn });
        assert_eq!(short.take(ended), ReplyStep::Finished(FinishReason::Stop));
        assert!(!short.is_told(), "it ended before it caught up");
    }

    #[test]
    fn a_reply_that_may_be_corrected_is_told_at_the_end() {
        let mut reply = OpenAiReply::held(true);
        for body in [text("{\"a\":"), reset(""), text("```json\n{\"a\":1}\n```")] {
            assert_eq!(reply.take(body), ReplyStep::Nothing);
            assert!(reply.is_told());
        }
        let end = StreamEnd {
            outcome: Some(TurnOutcome::Completed { stop: StopReason::EndTurn }),
            structured: Some(serde_json::json!({"a": 1})),
            ..StreamEnd::default()
        };
        assert_eq!(
            reply.take(TurnBody::Done(end.clone())),
            ReplyStep::Finished(FinishReason::Stop)
        );
        assert_eq!(reply.rest(), Some(r#"{"a":1}"#));
        assert_eq!(reply.rest(), None, "once");

        let mut whole = OpenAiReply::held(false);
        whole.take(text("{\"a\": 1}"));
        whole.take(TurnBody::Done(end));
        assert_eq!(whole.text(), "{\"a\": 1}", "as the model wrote it");
        assert_eq!(whole.rest(), None);
        let account = "cluster".to_owned();
        let unit = clawnode_proto::budget::BudgetUnit::Usd;
        let (used, limit, needed, window) = (5_000_000, 5_000_000, 1, None);
        let spent = TurnOutcome::Bankrupt { account, unit, used, limit, needed, window };
        let spent = OpenAiReply::default().take(done(spent));
        assert!(matches!(spent, ReplyStep::Failed(error) if error.code == ErrorCode::Bankrupt));
        let failed = done(TurnOutcome::SchemaFailed { detail: "`a` is required".to_owned() });
        let failed = OpenAiReply::held(true).take(failed);
        assert!(
            matches!(failed, ReplyStep::Failed(error) if error.code == ErrorCode::SchemaFailed)
        );
    }

    #[test]
    fn how_turns_end() {
        let completed = |stop| done(TurnOutcome::Completed { stop });
        let table = [
            (completed(StopReason::EndTurn), ReplyStep::Finished(FinishReason::Stop)),
            (completed(StopReason::StopSequence), ReplyStep::Finished(FinishReason::Stop)),
            (completed(StopReason::MaxTokens), ReplyStep::Finished(FinishReason::Length)),
            (completed(StopReason::Refusal), ReplyStep::Finished(FinishReason::ContentFilter)),
            (done(TurnOutcome::StepLimit { limit: 3 }), ReplyStep::Finished(FinishReason::Length)),
        ];
        for (body, step) in table {
            assert_eq!(OpenAiReply::default().take(body.clone()), step, "{body:?}");
        }
        let cancelled = OpenAiReply::default().take(done(TurnOutcome::Cancelled));
        assert!(
            matches!(cancelled, ReplyStep::Failed(error) if error.code == ErrorCode::Cancelled)
        );
    }
}
