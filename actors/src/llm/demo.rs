//! The demo: answers offline and says that it is no language model.
//!
//! It is there so that everything around a model can be tried without one: its reply is a pure
//! function of the conversation, comes in small pieces, and as `demo/slow` takes its time, so that a
//! process can be killed in the middle of it.

use std::time::Duration;

use clawnode_proto::llm::{FailureClass, ModelFailure, Role, StopReason, Usage};
use futures_util::stream::BoxStream;
use tracing::{Instrument, info_span};

use super::{
    Model, ModelEvent, ModelRequest, PlainMessage,
    prompt::alternate,
    tell::{Finish, Teller, tell},
};

/// The model that answers at once; the default.
pub(super) const ECHO: &str = "echo";
/// What `slow` waits before each piece.
const SLOW: Duration = Duration::from_millis(250);
/// The most that `slow-MS` may ask for.
const SLOWEST_MS: u64 = 60_000;
/// Characters of the user's text that are repeated.
const ECHO_CHARS: usize = 2_000;

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
}

async fn answer(request: ModelRequest, to: &Teller) -> Result<Finish, ModelFailure> {
    let delay = delay(&request.model)?;
    let messages = alternate(request.messages)?;
    let (mut text, mut stop) = (reply(&messages), StopReason::EndTurn);
    let cut = request.sampling.stop.iter().filter(|stop| !stop.is_empty());
    if let Some(at) = cut.filter_map(|stop| text.find(stop.as_str())).min() {
        text.truncate(at);
        stop = StopReason::StopSequence;
    }
    let most = request.sampling.max_tokens.map_or(usize::MAX, |most| most as usize);
    let mut usage = Usage {
        input_tokens: messages.iter().map(|message| words(&message.text)).sum::<u64>()
            + words(&request.system),
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
    to.usage(usage).await;
    Ok(Finish { stop, usage, model: request.model })
}

/// The whole reply. A "token" of the demo is a word.
fn reply(messages: &[PlainMessage]) -> String {
    let by_user = messages.iter().filter(|message| message.role == Role::User).count();
    let last = messages.last().map(|message| message.text.trim()).unwrap_or_default();
    let mut said: String = last.chars().take(ECHO_CHARS).collect();
    if said.len() < last.len() {
        said.push('…');
    }
    let nth = match by_user {
        0 | 1 => "your first message that I remember".to_owned(),
        n => format!("message {n} of yours that I remember"),
    };
    format!(
        "This is clawnode's built-in demo, not a language model. You said: {said}\n\
         It is {nth}. For real answers give clawnode a provider's key or a local server."
    )
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
    ms.filter(|ms| *ms <= SLOWEST_MS).map(Duration::from_millis).ok_or_else(|| ModelFailure {
        class: FailureClass::Rejected,
        message: format!(
            "the demo has no model `{model}`: it has `echo`, `slow` and `slow-MS` \
             (milliseconds before each word, at most {SLOWEST_MS})"
        ),
        status: None,
    })
}

#[cfg(test)]
mod tests {
    use clawnode_proto::llm::Sampling;
    use futures_util::StreamExt;

    use super::*;

    fn ask(model: &str, said: &[&str], sampling: Sampling) -> ModelRequest {
        let message = |(n, text): (usize, &&str)| PlainMessage {
            role: if n % 2 == 0 { Role::User } else { Role::Assistant },
            text: (*text).to_owned(),
        };
        ModelRequest {
            model: model.to_owned(),
            system: String::new(),
            messages: said.iter().enumerate().map(message).collect(),
            sampling,
            idempotency_key: "k".to_owned(),
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
}
