//! The demo: answers offline and says that it is no language model.
//!
//! It is there so that everything around a model can be tried without one: its reply is a pure
//! function of the conversation, comes in small pieces, and as `demo/slow` takes its time, so that a
//! process can be killed in the middle of it.
//!
//! It calls tools as well, if some are offered: each line `/tool NAME {…}` of a message is a call,
//! with the rest of the line as its arguments, right or wrong (`{}` if there are none). When the
//! tools have answered, it repeats how each answer begins.

use std::time::Duration;

use clawnode_proto::{
    llm::{FailureClass, ModelFailure, ModelRef, Role, Sampling, StopReason, Usage},
    model::SchemaStyle,
    tool::ToolUse,
};
use futures_util::{future::BoxFuture, stream::BoxStream};
use tracing::{Instrument, info_span};

use super::{
    EmbedReply, EmbedRequest, Model, ModelEvent, ModelRequest, PlainMessage,
    call_stream::{Finish, Teller, tell},
    media::in_words,
    profile::ModelProfiles,
    prompt::{alternate, not_sent},
    settings::{Setting, refused},
    tool_uses::MOST,
};

/// The model that answers at once; the default.
pub(super) const ECHO: &str = "echo";
/// What `slow` waits before each piece.
const SLOW: Duration = Duration::from_millis(250);
/// The most that `slow-MS` may ask for.
const SLOWEST_MS: u64 = 60_000;
/// Characters of the user's text that are repeated.
const ECHO_CHARS: usize = 2_000;
/// Characters of a tool's answer that are repeated.
const RESULT_CHARS: usize = 200;
/// What begins a line that is a tool call.
const TOOL: &str = "/tool ";

/// The settings that it has, of those that not every model has. It chooses neither words nor tools.
pub(super) const SETTINGS: &[Setting] = &[Setting::Stop, Setting::Seed];

/// The demo provider.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demo;

impl Model for Demo {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        let span = info_span!(
            "llm.call",
            otel.name = %format_args!("chat {}", request.model),
            gen_ai.operation.name = "chat",
            gen_ai.provider.name = "clawnode.demo",
            gen_ai.request.model = %request.model,
        );
        tell(move |to| async move { answer(request, &to).await }.instrument(span))
    }

    fn refused(&self, model: &str, sampling: &Sampling) -> Option<&'static str> {
        let (provider, model) = ("demo".to_owned(), model.to_owned());
        let profile = ModelProfiles::default().of(&ModelRef { provider, model });
        refused(SETTINGS, sampling, &profile).map(Setting::name)
    }

    fn probe(&self) -> Option<BoxFuture<'static, Result<(), ModelFailure>>> {
        None
    }

    fn schema_style(&self, _model: &str) -> Option<SchemaStyle> {
        None
    }

    fn embed(
        &self,
        _request: EmbedRequest,
    ) -> Option<BoxFuture<'static, Result<EmbedReply, ModelFailure>>> {
        None
    }
}

/// Refuses a model that the demo does not have.
pub(super) fn check(model: &str) -> Result<(), ModelFailure> {
    delay(model).map(drop)
}

async fn answer(mut request: ModelRequest, to: &Teller) -> Result<Finish, ModelFailure> {
    let delay = delay(&request.model)?;
    if let Some(setting) = Demo.refused(&request.model, &request.sampling) {
        return Err(not_sent(format_args!("`{setting}`: the demo model does not take it")));
    }
    let offers = !request.tools.is_empty();
    in_words(&mut request.messages, |_| false);
    // Before merging: what an earlier turn asked for is not asked for again.
    let asked = request.messages.last().map(|message| message.text.clone()).unwrap_or_default();
    let messages = alternate(request.messages)?;
    let mut calls = if offers { calls(&messages, &asked) } else { Vec::new() };
    let (mut text, mut stop) = (reply(&messages, &asked, &calls, offers), StopReason::EndTurn);
    let cut = request.sampling.stop.iter().filter(|stop| !stop.is_empty());
    if let Some(at) = cut.filter_map(|stop| text.find(stop.as_str())).min() {
        text.truncate(at);
        stop = StopReason::StopSequence;
    }
    let most = request.sampling.max_tokens.map_or(usize::MAX, |most| most as usize);
    let mut usage = Usage {
        input_tokens: messages.iter().map(read).sum::<u64>() + words(&request.system),
        ..Usage::default()
    };
    for (n, piece) in text.split_inclusive(' ').enumerate() {
        if n == most {
            stop = StopReason::MaxTokens;
            break;
        }
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        to.text(piece.to_owned()).await;
        usage.output_tokens += 1;
    }
    if stop == StopReason::EndTurn && !calls.is_empty() {
        stop = StopReason::ToolUse;
        for call in calls.drain(..) {
            to.tool_use(call).await;
        }
    }
    to.usage(usage).await;
    Ok(Finish { stop, usage, model: request.model })
}

/// The tools that a message asks for.
fn calls(messages: &[PlainMessage], asked: &str) -> Vec<ToolUse> {
    let before: usize = messages.iter().map(|message| message.tool_uses.len()).sum();
    let call = |(nth, line): (usize, &str)| {
        let (name, arguments) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let arguments = if arguments.trim().is_empty() { "{}" } else { arguments.trim() };
        ToolUse {
            id: format!("demo_{}", before + nth + 1),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        }
    };
    let lines = asked.lines().filter_map(|line| line.trim().strip_prefix(TOOL));
    lines.map(str::trim).enumerate().map(call).take(MOST).collect()
}

/// The whole reply. A "token" of the demo is a word.
fn reply(messages: &[PlainMessage], asked: &str, calls: &[ToolUse], offers: bool) -> String {
    if !calls.is_empty() {
        let names: Vec<String> = calls.iter().map(|call| format!("`{}`", call.name)).collect();
        return format!("I call {}.", names.join(", "));
    }
    let asked = asked.trim();
    if let [.., asking, last] = messages
        && asked.is_empty()
        && !last.tool_replies.is_empty()
    {
        return results(asking, last);
    }
    // Results of tools have the user's role, too.
    let is_said = |message: &&PlainMessage| {
        let is_result = !message.tool_replies.is_empty() && message.text.trim().is_empty();
        message.role == Role::User && !is_result
    };
    let by_user = messages.iter().filter(is_said).count();
    let said = first(asked, ECHO_CHARS);
    let nth = match by_user {
        0 | 1 => "your first message that I remember".to_owned(),
        n => format!("message {n} of yours that I remember"),
    };
    let hint =
        if offers { " Type `/tool NAME {…}` to have me call one of your tools." } else { "" };
    format!(
        "This is clawnode's built-in demo, not a language model. You said: {said}\n\
         It is {nth}. For real answers give clawnode a provider's key or a local server.{hint}"
    )
}

/// How the answer of each tool begins.
fn results(asking: &PlainMessage, answering: &PlainMessage) -> String {
    let said = answering.tool_replies.iter().map(|reply| {
        let asked = asking.tool_uses.iter().find(|tool_use| tool_use.id == reply.id);
        let name = asked.map(|tool_use| tool_use.name.as_str()).unwrap_or_default();
        let verb = if reply.is_error { "failed" } else { "said" };
        format!("`{name}` {verb}: {}", first(reply.text.trim(), RESULT_CHARS))
    });
    said.collect::<Vec<_>>().join("\n")
}

/// The first so many characters.
fn first(text: &str, chars: usize) -> String {
    let mut first: String = text.chars().take(chars).collect();
    if first.len() < text.len() {
        first.push('…');
    }
    first
}

fn read(message: &PlainMessage) -> u64 {
    words(&message.text)
        + message.tool_replies.iter().map(|reply| words(&reply.text)).sum::<u64>()
        + message.tool_uses.iter().map(|tool_use| words(&tool_use.arguments)).sum::<u64>()
}

fn words(text: &str) -> u64 {
    text.split_whitespace().count() as u64
}

/// `echo`, `slow` or `slow-MS`.
fn delay(model: &str) -> Result<Duration, ModelFailure> {
    if model == ECHO {
        return Ok(Duration::ZERO);
    }
    if model == "slow" {
        return Ok(SLOW);
    }
    let ms = model.strip_prefix("slow-").and_then(|ms| ms.parse().ok());
    ms.filter(|ms| *ms <= SLOWEST_MS).map(Duration::from_millis).ok_or_else(|| {
        ModelFailure::new(
            FailureClass::Rejected,
            format!(
                "the demo has no model `{model}`: it has `echo`, `slow` and `slow-MS` \
             (milliseconds before each word, at most {SLOWEST_MS})"
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use clawnode_proto::llm::Sampling;
    use futures_util::StreamExt;

    use super::*;
    use crate::llm::{PlainReply, ToolOffer};

    fn ask(model: &str, said: &[&str], sampling: Sampling) -> ModelRequest {
        let message = |(n, text): (usize, &&str)| {
            PlainMessage::text(if n % 2 == 0 { Role::User } else { Role::Assistant }, *text)
        };
        ModelRequest {
            model: model.to_owned(),
            system: String::new(),
            messages: said.iter().enumerate().map(message).collect(),
            tools: Vec::new(),
            sampling,
            idempotency_key: "k".to_owned(),
            reply_schema: None,
            cache_key: String::new(),
        }
    }

    async fn collect(request: ModelRequest) -> (String, Vec<ModelEvent>) {
        let events: Vec<_> = Demo.stream(request).collect().await;
        let text = |event: &ModelEvent| match event {
            ModelEvent::Text(text) => text.clone(),
            _ => String::new(),
        };
        (events.iter().map(text).collect(), events)
    }

    #[tokio::test]
    async fn it_says_what_it_is_and_repeats_and_counts() {
        let (text, events) =
            collect(ask(ECHO, &["hi", "x", "good day"], Sampling::default())).await;
        assert!(text.contains("not a language model"), "{text}");
        assert!(text.contains("You said: good day\n"), "{text}");
        assert!(text.contains("message 2 of yours"), "{text}");
        assert!(events.len() > 10, "it comes in pieces");
        assert!(matches!(events.last(), Some(ModelEvent::Done { stop: StopReason::EndTurn, .. })));
        let again = collect(ask(ECHO, &["hi", "x", "good day"], Sampling::default())).await;
        assert_eq!(again.1, events, "a pure function of the conversation");
    }

    #[tokio::test]
    async fn limits_are_kept() {
        let two = Sampling { max_tokens: Some(2), ..Sampling::default() };
        let (text, events) = collect(ask(ECHO, &["hi"], two)).await;
        assert_eq!(text, "This is ");
        let Some(ModelEvent::Done { stop, usage, .. }) = events.last() else { panic!() };
        assert_eq!((stop, usage.output_tokens), (&StopReason::MaxTokens, 2));
        let stop = Sampling { stop: vec!["demo".to_owned()], ..Sampling::default() };
        let (text, events) = collect(ask(ECHO, &["hi"], stop)).await;
        assert_eq!(text, "This is clawnode's built-in ");
        let end = events.last();
        assert!(matches!(end, Some(ModelEvent::Done { stop: StopReason::StopSequence, .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_takes_its_time() {
        for (model, each) in [("slow", SLOW), ("slow-40", Duration::from_millis(40))] {
            let begin = tokio::time::Instant::now();
            let (_, events) = collect(ask(model, &["hi"], Sampling::default())).await;
            let pieces = u32::try_from(events.len() - 2).unwrap();
            assert!(begin.elapsed() >= each * pieces, "{:?}", begin.elapsed());
        }
    }

    #[tokio::test]
    async fn an_unknown_model_is_refused() {
        for model in ["gpt", "slow-", "slow-60001", "slow--1"] {
            let (_, events) = collect(ask(model, &["hi"], Sampling::default())).await;
            let [ModelEvent::Failed(failure)] = &events[..] else { panic!("{events:?}") };
            assert_eq!(failure.class, FailureClass::Rejected);
        }
    }

    fn offering(said: &[&str]) -> ModelRequest {
        let offer = ToolOffer {
            name: "get".parse().unwrap(),
            description: String::new(),
            input_schema: serde_json::json!({"type": "object"}),
        };
        ModelRequest { tools: vec![offer], ..ask(ECHO, said, Sampling::default()) }
    }

    fn calls_in(events: Vec<ModelEvent>) -> Vec<ToolUse> {
        let call = |event| match event {
            ModelEvent::ToolUse(tool_use) => Some(tool_use),
            _ => None,
        };
        events.into_iter().filter_map(call).collect()
    }

    #[tokio::test]
    async fn it_calls_tools_that_it_is_told_to_call() {
        let said = "please\n/tool get {\"a\": 1}\n  /tool put {broken\n/tool get\n/toolx";
        let (text, events) = collect(offering(&[said])).await;
        assert_eq!(text, "I call `get`, `put`, `get`.");
        assert!(matches!(events.last(), Some(ModelEvent::Done { stop: StopReason::ToolUse, .. })));
        let calls = calls_in(events);
        let told: Vec<_> =
            calls.iter().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
        let wanted = [
            ("demo_1", "get", r#"{"a": 1}"#),
            ("demo_2", "put", "{broken"),
            ("demo_3", "get", "{}"),
        ];
        assert_eq!(told, wanted);
        let (text, events) = collect(ask(ECHO, &[said], Sampling::default())).await;
        assert!(text.contains("You said: please"), "without tools it is a text like any other");
        assert_eq!(calls_in(events), []);
    }

    #[tokio::test]
    async fn it_repeats_what_tools_answered_and_asks_anew_only_when_told() {
        let mut request = offering(&["/tool get {}\n/tool put {}"]);
        let calls = calls_in(collect(request.clone()).await.1);
        let reply = |(call, text): (&ToolUse, &str)| PlainReply {
            id: call.id.clone(),
            text: text.to_owned(),
            is_error: call.name == "put",
            media: Vec::new(),
        };
        let long = "é".repeat(300);
        let tool_replies = calls.iter().zip(["42 ", long.as_str()]).map(reply).collect();
        let asking = PlainMessage { tool_uses: calls, ..PlainMessage::text(Role::Assistant, "") };
        request.messages.push(asking);
        request.messages.push(PlainMessage { tool_replies, ..PlainMessage::text(Role::User, "") });
        let (text, events) = collect(request.clone()).await;
        assert_eq!(text, format!("`get` said: 42\n`put` failed: {}…", "é".repeat(200)));
        assert_eq!(calls_in(events), []);
        // After a turn that was stopped there, the next message is what it answers.
        let mut stopped = request.clone();
        stopped.messages.push(PlainMessage::text(Role::User, "hi"));
        let (answer, _) = collect(stopped.clone()).await;
        assert!(answer.contains("You said: hi\n"), "{answer}");
        stopped.messages.push(PlainMessage::text(Role::User, "/tool get {}"));
        assert_eq!(calls_in(collect(stopped).await.1).len(), 1);
        request.messages.push(PlainMessage::text(Role::Assistant, text));
        request.messages.push(PlainMessage::text(Role::User, "thanks"));
        let (text, _) = collect(request.clone()).await;
        assert!(text.contains("Type `/tool NAME {…}`"), "{text}");
        assert!(
            text.contains("message 2 of yours"),
            "results of tools are not of the user: {text}"
        );
        request.messages.push(PlainMessage::text(Role::User, "/tool get {}"));
        let (_, events) = collect(request).await;
        let calls = calls_in(events);
        let ids: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["demo_3"]);
    }
}
