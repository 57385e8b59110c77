//! What a model call has used: what its provider reports, and an estimate where it reports nothing. Pure.
//!
//! A call may make several tries. A provider bills each of them that it began to answer, so each is counted,
//! also one that broke off. A try that was refused or not sent counts nothing.
//!
//! An estimate is never less than what may be billed: where no provider has counted the request, all its
//! tokens are of the sort that costs the most.

use std::time::Duration;

use clawnode_proto::{
    llm::{FailureClass, ModelFailure, ModelRef, Usage},
    model::ModelPrice,
    reasoning::Reasoning,
};
use tokio::time::Instant;
use tracing::warn;

use crate::{
    llm::{Item, ModelEvent, circuit::is_not_sent},
    session::turn::prepare::CallJob,
};

/// Bytes of text that count as one token: few texts have more tokens.
const BYTES_OF_TOKEN: usize = 3;
/// A report is believed up to so many times what was asked, and [`ADDED`] tokens more. Requests with scripts that
/// tokenizers know badly have a token for each byte, and some providers do not keep to the cap exactly.
const BELIEVED_TIMES: u64 = 4;
/// What a provider may add by itself to a request: instructions, descriptions of its own tools.
const ADDED: u64 = 100_000;
/// The same of a reply without a cap: no model writes so many tokens.
const REPLY_MOST: u64 = 10_000_000;

/// The tokens of a call under way.
#[derive(Debug)]
pub(super) struct CallTokens {
    model: ModelRef,
    /// Of the request, as estimated; what was reserved for it, if a limit holds.
    input: u64,
    /// The cap on what the model writes, thoughts included, if it has one.
    cap: Option<u64>,
    /// What its tokens cost, if a limit holds.
    price: Option<ModelPrice>,
    /// Of tries that ended.
    spent: Usage,
    open: OpenTry,
}

/// The try under way.
#[derive(Debug, Default)]
struct OpenTry {
    /// From when on its request may be with the provider; absent before it is made.
    sent: Option<Instant>,
    reported: Option<Usage>,
    /// Bytes of the reply.
    text: usize,
    /// Bytes of thoughts that were shown.
    shown: usize,
    /// Bytes of items, which came beside text and calls; a thought is there again.
    items: usize,
    /// Bytes of arguments that came in pieces, and of whole tool calls, which have them again.
    argued: usize,
    called: usize,
}

// === impl CallTokens ===

impl CallTokens {
    /// A call that is about to be made.
    pub(super) fn of(job: &CallJob) -> Self {
        let request = &job.request;
        let model = request.model.clone();
        if let Some(paid) = &job.paid {
            let (cap, price) = (Some(paid.max_output), Some(paid.price));
            return Self { price, ..Self::new(model, paid.input, cap) };
        }
        // Some wires count thoughts beside the cap.
        let thoughts = request.sampling.reasoning.map_or(0, Reasoning::budget);
        let cap = request.sampling.max_tokens.map(|cap| u64::from(cap) + u64::from(thoughts));
        Self::new(model, request.estimate(), cap)
    }

    /// A call of `model` whose request seems to have `input` tokens.
    fn new(model: ModelRef, input: u64, cap: Option<u64>) -> Self {
        let (spent, open) = (Usage::default(), OpenTry::default());
        Self { model, input, cap, price: None, spent, open }
    }

    /// The request goes out.
    pub(super) fn sent(&mut self, now: Instant) {
        self.open.sent = Some(now);
    }

    /// Counts what came, also of a try that ended.
    pub(super) fn take(&mut self, event: &ModelEvent, now: Instant) {
        let open = &mut self.open;
        match event {
            ModelEvent::Text(text) => open.text += text.len(),
            ModelEvent::Thought(text) => open.shown += text.len(),
            ModelEvent::Item(Item::Thinking { text, .. }) => open.items += text.len(),
            ModelEvent::Item(Item::Redacted { data } | Item::Opaque { data, .. }) => {
                open.items += data.len();
            }
            ModelEvent::Arguments { bytes } => open.argued += bytes,
            ModelEvent::ToolUse(using) => open.called += using.name.len() + using.arguments.len(),
            ModelEvent::Usage(usage) => open.reported = Some(*usage),
            ModelEvent::Paced { wait } => open.sent = Some(later(now, *wait)),
            ModelEvent::Retrying { wait, failure, .. } => {
                self.failed(failure, now);
                self.open.sent = Some(later(now, *wait));
            }
            ModelEvent::Done { usage, .. } => {
                let open = std::mem::take(&mut self.open);
                let used = self.whole(&open, *usage);
                self.spent = self.spent.plus(used);
            }
            ModelEvent::Failed(failure) => self.failed(failure, now),
        }
    }

    /// The try under way ends by this. It counts once: after that there is none.
    pub(super) fn failed(&mut self, failure: &ModelFailure, now: Instant) {
        let open = std::mem::take(&mut self.open);
        let has_begun = open.bytes() > 0 || open.reported.is_some();
        let is_out = open.sent.is_some_and(|sent| sent <= now);
        if has_begun || (is_out && !is_refusal(failure)) {
            let used = self.cut(&open);
            self.spent = self.spent.plus(used);
        }
    }

    /// No try follows the one that ended.
    pub(super) fn given_up(&mut self) {
        self.open = OpenTry::default();
    }

    /// Of all tries that have ended.
    pub(super) const fn spent(&self) -> Usage {
        self.spent
    }

    /// Whether what was reserved does not pay for one more try: those that broke off have read the request, and
    /// what they wrote costs more than what they read. The next one reads it again, and may write up to the cap.
    pub(super) fn is_paid_once(&self) -> bool {
        let Some(price) = &self.price else { return false };
        let Usage { input_tokens: read, output_tokens: written, .. } = self.spent;
        let tokens = read.saturating_mul(2).saturating_add(written);
        let usd = price.cost(&self.spent).0.saturating_add(price.most(read, 0).0);
        read > 0 && (tokens > self.input || usd > price.most(self.input, 0).0)
    }

    /// A reply that came to its end.
    fn whole(&self, open: &OpenTry, reported: Usage) -> Usage {
        if !self.is_believed(&reported) {
            return self.most(open, &reported);
        }
        let came = open.tokens();
        let has_input = reported.input_tokens > 0;
        let has_output = reported.output_tokens > 0 || came == 0;
        if has_input && has_output && (!reported.estimated || came == 0) {
            return Usage { estimated: false, ..reported };
        }
        self.filled(open, reported)
    }

    /// A reply that broke off: what was reported of it may be only its beginning.
    fn cut(&self, open: &OpenTry) -> Usage {
        let reported = open.reported.unwrap_or(Usage::UNREPORTED);
        if self.is_believed(&reported) {
            self.filled(open, reported)
        } else {
            self.most(open, &reported)
        }
    }

    fn filled(&self, open: &OpenTry, reported: Usage) -> Usage {
        let read = if reported.input_tokens > 0 { reported } else { self.request() };
        let output_tokens = reported.output_tokens.max(open.tokens());
        let reasoning_tokens = reported.reasoning_tokens;
        Usage { output_tokens, reasoning_tokens, estimated: true, ..read }
    }

    /// The request where no provider has counted it.
    fn request(&self) -> Usage {
        self.price.unwrap_or(ModelPrice::FREE).dearest_usage(self.input.max(1))
    }

    /// All that was asked for: what counts where a report cannot be true.
    fn most(&self, open: &OpenTry, reported: &Usage) -> Usage {
        warn!(
            model = %self.model,
            ?reported,
            "the provider reports tokens that cannot be true; all that was asked for is counted"
        );
        let output_tokens = self.cap.unwrap_or_default().max(open.tokens());
        Usage { output_tokens, estimated: true, ..self.request() }
    }

    fn is_believed(&self, reported: &Usage) -> bool {
        let believed = |asked: u64| asked.saturating_mul(BELIEVED_TIMES).saturating_add(ADDED);
        let cached = reported.cache_read_tokens.saturating_add(reported.cache_write_tokens);
        let output = self.cap.map_or(REPLY_MOST, believed);
        reported.input_tokens <= believed(self.input)
            && reported.output_tokens <= output
            && cached <= reported.input_tokens
    }
}

// === impl OpenTry ===

impl OpenTry {
    fn bytes(&self) -> usize {
        self.text + self.shown.max(self.items) + self.argued.max(self.called)
    }

    fn tokens(&self) -> u64 {
        u64::try_from(self.bytes().div_ceil(BYTES_OF_TOKEN)).unwrap_or(u64::MAX)
    }
}

fn later(now: Instant, wait: Duration) -> Instant {
    now.checked_add(wait).unwrap_or(now)
}

/// Whether a provider that fails so has not begun to answer, and bills nothing.
fn is_refusal(failure: &ModelFailure) -> bool {
    is_not_sent(failure)
        || failure.status.is_some_and(|status| status >= 400)
        || matches!(
            failure.class,
            FailureClass::Unreachable
                | FailureClass::RateLimited
                | FailureClass::Overloaded
                | FailureClass::Unauthorized
                | FailureClass::Rejected
                | FailureClass::NoAgent
        )
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{llm::StopReason, tool::ToolUse};

    use super::*;

    /// Reading costs less than writing to the cache, and that less than a reply.
    const PRICE: ModelPrice = ModelPrice {
        input: 3_000_000,
        output: 15_000_000,
        cache_read: 300_000,
        cache_write: 3_750_000,
    };

    fn call(input: u64, cap: Option<u64>) -> CallTokens {
        let mut tokens = CallTokens::new("p/m".parse().unwrap(), input, cap);
        tokens.sent(Instant::now());
        tokens
    }

    fn text(text: &str) -> ModelEvent {
        ModelEvent::Text(text.to_owned())
    }

    fn done(usage: Usage) -> ModelEvent {
        ModelEvent::Done { stop: StopReason::EndTurn, usage, model: "m".to_owned() }
    }

    fn reported(input_tokens: u64, output_tokens: u64) -> Usage {
        Usage { input_tokens, output_tokens, ..Usage::default() }
    }

    fn estimated(input_tokens: u64, output_tokens: u64) -> Usage {
        Usage { input_tokens, output_tokens, ..Usage::UNREPORTED }
    }

    fn used(mut call: CallTokens, events: &[ModelEvent]) -> Usage {
        for event in events {
            call.take(event, Instant::now());
        }
        call.spent()
    }

    fn failing(class: FailureClass) -> ModelFailure {
        ModelFailure::new(class, "no")
    }

    #[test]
    fn what_is_reported_counts_and_what_is_not_is_estimated() {
        let said = text("seven b");
        for (report, counts) in [
            (reported(40, 9), reported(40, 9)),
            (Usage::UNREPORTED, estimated(100, 3)),
            // A server that says zero where it does not count.
            (reported(0, 0), estimated(100, 3)),
            (reported(40, 0), estimated(40, 3)),
            (Usage { estimated: true, ..reported(40, 1) }, estimated(40, 3)),
        ] {
            assert_eq!(
                used(call(100, Some(50)), &[said.clone(), done(report)]),
                counts,
                "{report:?}"
            );
        }
        // A reply without a word: nothing is missing.
        let empty = Usage { estimated: true, ..reported(40, 0) };
        assert_eq!(used(call(100, None), &[done(empty)]), reported(40, 0));
    }

    #[test]
    fn what_cannot_be_true_counts_as_all_that_was_asked_for() {
        let absurd = |usage: Usage| used(call(100, Some(50)), &[text("abc"), done(usage)]);
        assert_eq!(absurd(reported(u64::MAX, 1)), estimated(100, 50));
        assert_eq!(absurd(reported(100, u64::MAX)), estimated(100, 50));
        assert_eq!(absurd(reported(100, 100_201)), estimated(100, 50));
        let cached = Usage { cache_read_tokens: 101, ..reported(100, 1) };
        assert_eq!(absurd(cached), estimated(100, 50));
        // More than was asked for, and possible: it counts as it is.
        assert_eq!(absurd(reported(100_400, 100_200)), reported(100_400, 100_200));
        let long = text(&"x".repeat(600));
        let usage = used(call(100, Some(50)), &[long, done(reported(1, u64::MAX))]);
        assert_eq!(usage, estimated(100, 200), "more came than was asked for");
    }

    #[test]
    fn under_a_limit_an_estimate_costs_no_less_than_what_may_be_billed() {
        let paid = |cap| CallTokens { price: Some(PRICE), ..call(1_000, Some(cap)) };
        for absurd in [reported(u64::MAX, 1), reported(10, u64::MAX)] {
            let counts = used(paid(3_048), &[text("abc"), done(absurd)]);
            assert_eq!(PRICE.cost(&counts), PRICE.most(1_000, 3_048), "all of it is settled");
            assert_eq!((counts.input_tokens, counts.output_tokens), (1_000, 3_048));
        }
        let broken = ModelEvent::Failed(failing(FailureClass::BrokenStream));
        let counts = used(paid(50), &[text("abc"), broken.clone()]);
        assert_eq!(PRICE.cost(&counts), PRICE.most(1_000, 1), "it may all be new in the cache");
        // What the provider has counted counts at its price.
        let cached = Usage { cache_read_tokens: 900, ..reported(1_000, 1) };
        let counts = used(paid(50), &[ModelEvent::Usage(cached), text("abc"), broken]);
        assert_eq!(counts, Usage { estimated: true, ..cached });
    }

    #[test]
    fn one_more_try_is_paid_only_if_its_cost_fits_beside_that_of_those_before() {
        let paid_once = |read, written| {
            let mut tokens = CallTokens { price: Some(PRICE), ..call(1_000, Some(50)) };
            tokens.take(&ModelEvent::Usage(reported(read, written)), Instant::now());
            tokens.failed(&failing(FailureClass::BrokenStream), Instant::now());
            tokens.is_paid_once()
        };
        // For the request 3,750 micro-dollars are reserved.
        assert!(!paid_once(100, 200), "300 + 3,000 and 375 more");
        assert!(paid_once(100, 210), "410 tokens, and 3,825 micro-dollars");
        assert!(paid_once(501, 0), "1,002 tokens");
        assert!(!call(1_000, None).is_paid_once(), "nothing limits it");
    }

    #[test]
    fn a_reply_that_breaks_off_counts_by_what_came() {
        let broken = ModelEvent::Failed(failing(FailureClass::BrokenStream));
        let using = ToolUse { id: "i".into(), name: "four".into(), arguments: "12345678".into() };
        let events = [
            ModelEvent::Thought("123456".to_owned()),
            ModelEvent::Item(Item::Thinking { text: "123456".to_owned(), signature: None }),
            text("123"),
            ModelEvent::Arguments { bytes: 8 },
            ModelEvent::ToolUse(using),
            ModelEvent::Arguments { bytes: 22 },
            broken.clone(),
        ];
        assert_eq!(used(call(100, None), &events), estimated(100, 2 + 1 + 10));
        let begun = ModelEvent::Usage(reported(70, 1));
        assert_eq!(used(call(100, None), &[begun, text("1234"), broken.clone()]), estimated(70, 2));
        assert_eq!(used(call(100, None), &[broken]), estimated(100, 0), "it may have been read");
    }

    #[test]
    fn each_try_counts_and_one_that_was_refused_does_not() {
        let retry = |class| ModelEvent::Retrying {
            retry: 1,
            wait: Duration::ZERO,
            failure: failing(class),
        };
        let events = [
            retry(FailureClass::Overloaded),
            text("123"),
            retry(FailureClass::BrokenStream),
            text("123"),
            done(reported(90, 7)),
        ];
        assert_eq!(used(call(100, None), &events), estimated(190, 8));
    }

    #[test]
    fn a_call_that_never_left_uses_nothing() {
        let cancelled = failing(FailureClass::Cancelled);
        let mut unsent = CallTokens::new("p/m".parse().unwrap(), 100, None);
        unsent.failed(&cancelled, Instant::now());
        assert_eq!(unsent.spent(), Usage::default());
        for waits in [
            ModelEvent::Paced { wait: Duration::from_mins(1) },
            ModelEvent::Retrying {
                retry: 1,
                wait: Duration::from_mins(1),
                failure: failing(FailureClass::RateLimited),
            },
        ] {
            let mut waiting = call(100, None);
            waiting.take(&waits, Instant::now());
            waiting.failed(&cancelled, Instant::now());
            assert_eq!(waiting.spent(), Usage::default(), "{waits:?}");
        }
        let mut sent = call(100, None);
        sent.failed(&cancelled, Instant::now());
        assert_eq!(sent.spent(), estimated(100, 0));
        sent.failed(&cancelled, Instant::now());
        assert_eq!(sent.spent(), estimated(100, 0), "it ends once");
    }
}
