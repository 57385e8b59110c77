//! A model call under way: what was received, and where the next frame goes.

use std::{sync::Arc, time::Duration};

use clawnode_cluster::Peek;
use clawnode_guard::kill_switch::{StoppableWork, WorkStopped};
use clawnode_proto::{
    Attempt, EntityId, Frame, FrameBody, FrameKey, Traceparent,
    feed::EventBody,
    frame::Notice,
    lane::Lane,
    limits::INLINE_BYTES,
    llm::{FailureClass, Message, ModelFailure, StopReason, Text},
    provider::ProviderKind,
    tool::ToolUse,
};
use clawnode_tool::ProviderWork;
use futures_util::StreamExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    admission::{out_of_time, preempted, stopped},
    reported_tokens::CallTokens,
    session_runner::SessionRunner,
};
use crate::{
    agent::{pool::PoolRequest, preemption::Yielding, provider_slots::Slot},
    llm::{ModelEvent, ReplyBlocks, circuit::is_not_sent},
    session::{
        texts::{stored_blocks, stored_text},
        turn::{
            context::model_input::FullContext, effect::Outcome, prepare::CallJob,
            state_parts::settled_cost::settles,
        },
    },
};

/// Stream pieces that are taken at once if they are ready. Room for so many is made for each piece
/// that comes alone.
const BATCH_MAX: usize = 16;
/// How close two messages of a call's frames may follow each other. The first leaves at once; what
/// comes sooner than this after it waits and leaves together, because a message costs more on its
/// way to the reader than the token in it. More saves work, less is smoother to read.
const FRAME_GAP: Duration = Duration::from_millis(10);

/// How long a provider may ask to wait before its one retry, if another model can be asked instead.
const RETRY_SOON: Duration = Duration::from_secs(1);

/// What people read when a call is tried again.
fn retrying(why: &str, retry: u32, wait: Duration) -> String {
    let tenths = wait.as_millis().div_ceil(100);
    let when = if tenths == 0 {
        "now".to_owned()
    } else {
        format!("in {}.{} s", tenths / 10, tenths % 10)
    };
    format!("{why}; retry {retry} {when}")
}

/// What people read while a call waits for its provider's limit.
fn paced(wait: Duration) -> Notice {
    let seconds = wait.as_millis().div_ceil(1_000);
    let message = format!("the provider allows no call yet; this one is sent in {seconds} s");
    Notice { name: "paced".to_owned(), message }
}

/// What people read while a call waits because its provider has as many in hand as it may.
fn crowded(provider: &str, most: u32) -> Notice {
    let message = format!(
        "this node makes {most} calls of `{provider}` at a time, and all are under way; this one waits"
    );
    Notice { name: "provider_busy".to_owned(), message }
}

/// Whether a provider is asked once more though another model can be asked at once: one that is there,
/// once, and soon.
fn is_worth_a_retry(retry: u32, wait: Duration, failure: &ModelFailure) -> bool {
    retry == 1 && wait <= RETRY_SOON && failure.class != FailureClass::Unreachable
}

/// How a call's stream ended.
enum CallStreamEnd {
    Done { stop: StopReason, model: String },
    Failed(ModelFailure),
}

/// A call under way: what was received, and where the next frame goes.
#[expect(clippy::struct_excessive_bools, reason = "each is known at another time")]
struct RunningCall<'a> {
    runner: &'a SessionRunner,
    entity: EntityId,
    key: FrameKey,
    trace: Option<Traceparent>,
    text: String,
    tokens: CallTokens,
    tool_uses: Vec<ToolUse>,
    blocks: ReplyBlocks,
    /// Thoughts were shown.
    has_thought: bool,
    /// Another model can be asked instead.
    has_other: bool,
    /// Clients are shown nothing of it.
    is_silent: bool,
    /// Its provider may bill it.
    is_sent: bool,
    /// Shown before the text, and no part of it.
    seam: &'static str,
    /// What a more urgent call ends it by, if it may be ended.
    yielding: Option<Arc<Yielding>>,
    /// What its provider has in hand, from when it is sent on.
    work: ProviderWork,
    /// What waits to be sent: at most what a stream brings within [`FRAME_GAP`].
    gathered: Vec<FrameBody>,
    /// From when on it may be.
    due: Instant,
}

// === impl SessionRunner ===

impl SessionRunner {
    /// Makes a model call; `None` if it was given up without an outcome, because this process is
    /// out of touch with the store.
    pub(in crate::session) async fn call(
        self,
        entity: EntityId,
        trace: Option<Traceparent>,
        mut job: CallJob,
        cancelled: CancellationToken,
    ) -> Option<Outcome> {
        if job.call.is_at(job.turn, 0) && job.attempt == Attempt(1) {
            self.parts.feed.tell(EventBody::TurnStarted { session: entity, turn: job.turn });
        }
        let mut call = RunningCall::new(&self, entity, trace, &job);
        let messages = std::mem::take(&mut job.request.messages);
        let mut end = tokio::select! {
            biased;
            () = cancelled.cancelled() => CallStreamEnd::Failed(ModelFailure::new(FailureClass::Cancelled, "cancelled".to_owned())),
            end = self.unless_stopped(&mut call, &job, messages) => end?,
        };
        call.flush().await;
        if let CallStreamEnd::Failed(failure) = &mut end {
            // A request that was answered was not too long.
            failure.too_long.take_if(|_| !call.text.is_empty() || !call.tool_uses.is_empty());
            self.learn_window(&job, failure);
            // Of a call that was given up here: what a provider bills does not depend on who ends it.
            call.tokens.failed(failure, Instant::now());
        }
        let usage = call.tokens.spent();
        call.settle(&job, &end);
        let RunningCall { text, tool_uses, blocks, work, .. } = call;
        work.called(match &end {
            CallStreamEnd::Done { .. } => None,
            CallStreamEnd::Failed(failure) if is_not_sent(failure) => Some(FailureClass::Cancelled),
            CallStreamEnd::Failed(failure) => Some(failure.class),
        });
        let attempt = job.attempt;
        let storage = &self.parts.storage;
        // No event has what a silent call says, so a blob of it would stay after its session.
        let (content, mut refused) = if job.is_silent {
            (Text::from(text), None)
        } else {
            stored_text(storage, entity, text, INLINE_BYTES).await
        };
        let mut kept = None;
        // What nothing names would stay after its session.
        if matches!(end, CallStreamEnd::Done { .. }) && !job.is_silent {
            let model = job.request.model;
            let (blocks, why) = stored_blocks(storage, entity, model, blocks.done()).await;
            (kept, refused) = (blocks, refused.or(why));
        }
        let end = refused
            .map_or(end, |why| CallStreamEnd::Failed(ModelFailure::new(FailureClass::Lost, why)));
        Some(match end {
            CallStreamEnd::Done { stop, model } => {
                Outcome::Done { attempt, content, stop, usage, model, tool_uses, blocks: kept }
            }
            CallStreamEnd::Failed(failure) => {
                Outcome::Failed { attempt, failure, partial: content, usage }
            }
        })
    }

    /// Remembers how much a model really reads, for all sessions of this process.
    fn learn_window(&self, job: &CallJob, failure: &ModelFailure) {
        let window = failure.too_long.and_then(|size| size.window);
        let Some(window) = window.and_then(|tokens| u32::try_from(tokens).ok()) else { return };
        if let Some(options) = self.parts.agents.options(&job.agent) {
            options.profiles.learn_window(&job.request.model, window);
        }
    }

    /// Makes a call that the kill switch permits.
    async fn unless_stopped(
        &self,
        call: &mut RunningCall<'_>,
        job: &CallJob,
        messages: Vec<Message>,
    ) -> Option<CallStreamEnd> {
        let work = StoppableWork::Call { agent: job.agent.clone() };
        let pass = match self.parts.agents.switch_gate().pass(work).await {
            Ok(pass) => pass,
            Err(switch) => return Some(CallStreamEnd::Failed(stopped(&switch))),
        };
        tokio::select! {
            biased;
            why = pass.stopped() => match why {
                WorkStopped::KillSwitch(switch) => Some(CallStreamEnd::Failed(stopped(&switch))),
                WorkStopped::OutOfTouch => None,
            },
            // Before the call: what has no time left is not asked of the provider.
            failure = out_of_time(job) => Some(CallStreamEnd::Failed(failure)),
            () = yields(call.yielding.clone()) => {
                call.withdraw();
                Some(CallStreamEnd::Failed(preempted()))
            }
            end = call.run(job, messages) => Some(end),
        }
    }
}

/// Returns once a more urgent call ends this one, if it may be ended.
pub(super) async fn yields(yielding: Option<Arc<Yielding>>) {
    match yielding {
        Some(yielding) => yielding.ended().await,
        None => std::future::pending().await,
    }
}

// === impl RunningCall ===

impl<'a> RunningCall<'a> {
    fn new(
        runner: &'a SessionRunner,
        entity: EntityId,
        trace: Option<Traceparent>,
        job: &CallJob,
    ) -> Self {
        let key = FrameKey { turn: job.turn, call: job.call, attempt: job.attempt, index: 0 };
        let providers = runner.parts.available.peek(|available| available.providers.clone());
        let work = providers.begin(ProviderKind::Model, &job.request.model.provider);
        let may_yield = job.may_yield && job.permit.lane() == Lane::Background;
        let yielding = may_yield.then(Arc::<Yielding>::default);
        if let Some(yielding) = &yielding {
            job.permit.may_yield(yielding);
        }
        Self {
            runner,
            entity,
            key,
            trace,
            text: String::new(),
            tokens: CallTokens::of(job),
            tool_uses: Vec::new(),
            blocks: ReplyBlocks::default(),
            has_thought: false,
            has_other: job.has_other,
            is_silent: job.is_silent,
            is_sent: false,
            seam: job.seam,
            yielding,
            work,
            gathered: Vec::new(),
            due: Instant::now(),
        }
    }

    async fn run(&mut self, job: &CallJob, messages: Vec<Message>) -> CallStreamEnd {
        self.gathered.extend(job.notice.clone().map(FrameBody::Notice));
        if let Some(full) = job.request.full {
            let full = match full {
                FullContext::Window => "the model's window is full",
                FullContext::Budget => "the context is full",
            };
            let left_out = job.request.dropped_turns.saturating_sub(job.request.summarized_turns);
            let message = format!("{full}: the oldest {left_out} turns are left out");
            let body = FrameBody::Notice(Notice { name: "history_dropped".to_owned(), message });
            self.gathered.push(body);
        }
        if job.request.withheld_thoughts {
            let message = "the model has changed: the thoughts of the other one are left out";
            let (name, message) = ("thoughts_withheld".to_owned(), message.to_owned());
            self.gathered.push(FrameBody::Notice(Notice { name, message }));
        }
        if job.corrects {
            self.gathered.push(FrameBody::Reset { whole: true });
            let message =
                "the reply did not fit `response_schema`; the model is asked to correct it";
            let (name, message) = ("reply_refused".to_owned(), message.to_owned());
            self.gathered.push(FrameBody::Notice(Notice { name, message }));
        }
        let model = match self.runner.parts.models.resolve_model(&job.request.model) {
            Ok(model) => model,
            Err(failure) => return CallStreamEnd::Failed(failure),
        };
        let request = match self.runner.request(self.entity, job, messages).await {
            Ok(request) => request,
            Err(failure) => return CallStreamEnd::Failed(failure),
        };
        // Held until the stream has ended.
        let _slot = self.slot(job).await;
        if let Some(hold) = job.paid.as_ref().and_then(|paid| paid.hold.as_ref()) {
            hold.sent();
        }
        self.is_sent = true;
        self.tokens.sent(Instant::now());
        let mut pieces = model.stream(request).ready_chunks(BATCH_MAX);
        loop {
            let batch = tokio::select! {
                biased;
                batch = pieces.next() => batch,
                () = tokio::time::sleep_until(self.due), if !self.gathered.is_empty() => {
                    self.flush().await;
                    continue;
                }
            };
            let Some(batch) = batch else { break };
            for piece in batch {
                if let Some(end) = self.piece(piece) {
                    return end;
                }
            }
            // A stream that never pauses must not hold frames back.
            if Instant::now() >= self.due {
                self.flush().await;
            }
        }
        CallStreamEnd::Failed(ModelFailure::new(
            FailureClass::BrokenStream,
            "the model's stream ended before the reply was complete".to_owned(),
        ))
    }

    /// Takes one of the slots of the call's provider, or waits for it.
    async fn slot(&mut self, job: &CallJob) -> Slot {
        let parts = &self.runner.parts;
        let provider = job.request.model.provider.as_str();
        let most = parts.models.max_calls(provider);
        let (agent, lane) = (job.agent.clone(), job.permit.lane());
        let request = PoolRequest { agent, weight: job.weight, lane };
        let answer = parts.agents.slots().ask(provider, most, &request, self.yielding.as_ref());
        if answer.waits() {
            self.gathered.push(FrameBody::Notice(crowded(provider, most)));
            self.flush().await;
        }
        let slot = answer.slot().await;
        self.work.begins();
        slot
    }

    /// What it has said is void: a more urgent call comes first, and it is made again.
    fn withdraw(&mut self) {
        self.gathered.push(FrameBody::Reset { whole: false });
        let message = format!("{}; it is made again when there is room", preempted().message);
        self.gathered.push(FrameBody::Notice(Notice { name: "preempted".to_owned(), message }));
    }

    /// Counts what the model has said, for who chooses the call that is ended.
    fn says(&self, bytes: usize) {
        if let Some(yielding) = &self.yielding {
            yielding.says(bytes);
        }
    }

    /// BUD-2: ends what the call has reserved, before anything is written down: what a provider bills does
    /// not depend on that. What was never sent costs nothing.
    fn settle(&self, job: &CallJob, end: &CallStreamEnd) {
        let Some(paid) = &job.paid else { return };
        let Some(hold) = &paid.hold else { return };
        let failure = match end {
            CallStreamEnd::Done { .. } => None,
            CallStreamEnd::Failed(failure) => Some(failure),
        };
        if !self.is_sent || failure.is_some_and(is_not_sent) {
            hold.release();
            return;
        }
        hold.settle(settles(paid, &self.tokens.spent(), failure));
    }

    fn piece(&mut self, piece: ModelEvent) -> Option<CallStreamEnd> {
        self.tokens.take(&piece, Instant::now());
        match piece {
            ModelEvent::Text(delta) => {
                let begins = self.text.is_empty() && !delta.is_empty();
                let seam = if begins { self.seam } else { "" };
                self.says(delta.len());
                self.text.push_str(&delta);
                self.blocks.text(delta.len());
                if let Some(FrameBody::Text { delta: last }) = self.gathered.last_mut() {
                    last.push_str(seam);
                    last.push_str(&delta);
                } else {
                    let delta = if seam.is_empty() { delta } else { format!("{seam}{delta}") };
                    self.gathered.push(FrameBody::Text { delta });
                }
                None
            }
            ModelEvent::ToolUse(using) => {
                self.says(using.arguments.len());
                self.tool_uses.push(using);
                self.blocks.tool_use();
                None
            }
            ModelEvent::Item(item) => {
                self.blocks.item(item);
                None
            }
            ModelEvent::Thought(delta) => {
                self.says(delta.len());
                self.has_thought |= !delta.is_empty();
                if let Some(FrameBody::Thought { delta: last }) = self.gathered.last_mut() {
                    last.push_str(&delta);
                } else {
                    self.gathered.push(FrameBody::Thought { delta });
                }
                None
            }
            ModelEvent::Arguments { .. } | ModelEvent::Usage(_) => None,
            ModelEvent::Paced { wait } => {
                self.gathered.push(FrameBody::Notice(paced(wait)));
                None
            }
            ModelEvent::Retrying { retry, wait, mut failure }
                if self.tokens.is_paid_once()
                    || (self.has_other && !is_worth_a_retry(retry, wait, &failure)) =>
            {
                self.tokens.given_up();
                let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                failure.retry_after_ms.get_or_insert(wait);
                Some(CallStreamEnd::Failed(failure))
            }
            ModelEvent::Retrying { retry, wait, failure } => {
                if !self.text.is_empty() || std::mem::take(&mut self.has_thought) {
                    self.gathered.push(FrameBody::Reset { whole: false });
                }
                self.text.clear();
                self.tool_uses.clear();
                self.blocks = ReplyBlocks::default();
                let message = retrying(&failure.message, retry, wait);
                self.gathered
                    .push(FrameBody::Notice(Notice { name: "retrying".to_owned(), message }));
                None
            }
            ModelEvent::Done { stop, model, .. } => {
                self.gathered.push(FrameBody::Usage { usage: self.tokens.spent() });
                Some(CallStreamEnd::Done { stop, model })
            }
            ModelEvent::Failed(failure) => Some(CallStreamEnd::Failed(failure)),
        }
    }

    /// Sends what waits. Frames are provisional: one that is lost is made good when the turn ends.
    async fn flush(&mut self) {
        if self.gathered.is_empty() {
            return;
        }
        let bodies = std::mem::take(&mut self.gathered);
        if self.is_silent {
            return;
        }
        let mut frames = Vec::with_capacity(bodies.len());
        for body in bodies {
            frames.push(Frame { key: self.key, body });
            self.key.index = self.key.index.saturating_add(1);
        }
        self.runner.parts.hub.keep(self.entity, &frames);
        self.due = Instant::now() + FRAME_GAP;
        let sent = self.runner.publish(self.entity, self.trace.as_ref(), frames).await;
        if let Err(failure) = sent {
            debug!(entity = %self.entity, %failure, "cannot publish frames");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_before_a_retry_is_never_told_as_nothing() {
        for (millis, told) in
            [(0, "now"), (30, "in 0.1 s"), (1_000, "in 1.0 s"), (1_230, "in 1.3 s")]
        {
            let words = retrying("refused", 2, Duration::from_millis(millis));
            assert_eq!(words, format!("refused; retry 2 {told}"));
        }
    }
}
