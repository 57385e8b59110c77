//! Tests: how what a model call has reserved ends with it, and what it leaves.

use std::{sync::Arc, time::Duration};

use clawnode_cluster::{BusEvent, Clock, Feed, SystemClock, membership::Members};
use clawnode_guard::kill_switch::SwitchGate;
use clawnode_kernel::supervise::Supervisor;
use clawnode_proto::{
    Attempt, ProcessId,
    budget::{BudgetUnit, LimitKey, WindowLength},
    codec,
    feed::{EventBatch, EventBody},
    limits::{INLINE_BYTES, SYSTEM_PROMPT_INLINE},
    llm::{FailureClass, ModelFailure, ModelRef, Sampling, StopReason, Usage},
    model::{ModelPrice, SchemaStyle},
};
use clawnode_tool::{Available, skill::SkillShelf};
use futures_util::{
    StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::session_runner::{ResolveModel, RunnerParts, SessionRunner};
use crate::{
    agent::{AgentOptions, Agents, CallBill, Grant},
    hook::Hooks,
    llm::{
        EmbedReply, EmbedRequest, Model, ModelEvent, ModelRequest,
        profile::{ModelOverride, ModelProfiles},
    },
    session::{
        FrameHub, Outcome, SessionJob,
        played::{PlayedActivation, key},
        played_budgets::PlayedBudgets,
        texts::packed_text,
        turn::prepare::CallJob,
    },
};

pub(super) const DAILY_USD: LimitKey =
    LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Day };
const PRICE: ModelPrice = ModelPrice {
    input: 3_000_000,
    output: 15_000_000,
    cache_read: 300_000,
    cache_write: 3_750_000,
};

/// Says these pieces. Then it is silent, and cancels its own call.
#[derive(Clone, Debug)]
pub(super) struct Scripted {
    pub(super) pieces: Vec<ModelEvent>,
    pub(super) cancelled: CancellationToken,
}

impl ResolveModel for Scripted {
    fn resolve_model(&self, _: &ModelRef) -> Result<Arc<dyn Model>, ModelFailure> {
        Ok(Arc::new(self.clone()))
    }
}

impl Model for Scripted {
    fn stream(&self, _: ModelRequest) -> BoxStream<'static, ModelEvent> {
        let cancelled = self.cancelled.clone();
        let silent = stream::once(async move {
            cancelled.cancel();
            std::future::pending().await
        });
        stream::iter(self.pieces.clone()).chain(silent).boxed()
    }

    fn refused(&self, _: &str, _: &Sampling) -> Option<&'static str> {
        None
    }

    fn probe(&self) -> Option<BoxFuture<'static, Result<(), ModelFailure>>> {
        None
    }

    fn schema_style(&self, _: &str) -> Option<SchemaStyle> {
        None
    }

    fn embed(
        &self,
        _: EmbedRequest,
    ) -> Option<BoxFuture<'static, Result<EmbedReply, ModelFailure>>> {
        None
    }
}

pub(super) async fn runner(
    model: Scripted,
) -> (tempfile::TempDir, SessionRunner, PlayedActivation) {
    let mut run = PlayedActivation::new(&[], Vec::new());
    let price = ModelOverride { price: Some(PRICE), ..ModelOverride::default() };
    let profiles = ModelProfiles::new([("sim/*".to_owned(), price)].into());
    run.grant = Grant::free(AgentOptions { profiles, ..(*run.grant.options).clone() });
    let budgets = PlayedBudgets::new(DAILY_USD, 1_000_000_000, false);
    let dir = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let options = clawnode_local::LocalOptions::new("cn".parse().unwrap(), Arc::clone(&clock));
    let (storage, _control) = clawnode_local::open(dir.path(), options).unwrap();
    let (bucket, switch_gate) = (Arc::clone(&storage.bucket), SwitchGate::default());
    let supervisor = Supervisor::spawn().await.unwrap();
    let holder = budgets.holder.clone();
    let agents = Agents::spawn(Vec::new(), bucket, switch_gate, holder, supervisor).await.unwrap();
    let feed = Feed::new(ProcessId::from_u128(1), "n".parse().unwrap(), Arc::clone(&clock));
    let runner = SessionRunner::new(RunnerParts {
        storage,
        agents,
        budgets: budgets.holder.clone(),
        hooks: Hooks::new(Vec::new(), None),
        models: Arc::new(model),
        available: watch::channel(Available::default()).1,
        job_wait: Duration::from_mins(1),
        peers: watch::channel(Members::default()).1,
        memory: None,
        skills: SkillShelf::default(),
        hub: FrameHub::default(),
        clock,
        link: Arc::new(|_, _| {}),
        feed,
    });
    run.budgets = Some(budgets);
    (dir, runner, run)
}

fn begun(run: &mut PlayedActivation) -> CallJob {
    run.says("hi");
    match run.started.pop() {
        Some((_, SessionJob::Call(job))) => job,
        other => panic!("{other:?}"),
    }
}

/// What a call that goes so has spent of its account, once it has ended, and what it had reserved.
async fn spent(pieces: Vec<ModelEvent>, is_cancelled: bool) -> (u64, CallBill) {
    let cancelled = CancellationToken::new();
    if is_cancelled {
        cancelled.cancel();
    }
    let model = Scripted { pieces, cancelled: cancelled.clone() };
    let (_dir, runner, mut run) = runner(model).await;
    let job = begun(&mut run);
    let paid = job.paid.clone().unwrap();
    runner.call(key().entity(), None, job, cancelled).await.unwrap();
    tokio::time::pause();
    let budgets = run.budgets.as_mut().unwrap();
    let mut last = None;
    // A report that is under way is older.
    for _ in 0..3 {
        tokio::time::advance(Duration::from_secs(2)).await;
        last = budgets.reported().or(last);
    }
    tokio::time::resume();
    let (spent, held) = last.unwrap();
    assert_eq!(held, 0, "what was reserved has ended (BUD-2)");
    (spent, paid)
}

fn done(usage: Usage) -> ModelEvent {
    ModelEvent::Done { stop: StopReason::EndTurn, usage, model: "m".to_owned() }
}

fn failed(class: FailureClass) -> ModelEvent {
    ModelEvent::Failed(ModelFailure::new(class, "no"))
}

fn text() -> ModelEvent {
    ModelEvent::Text("hello".to_owned())
}

#[tokio::test]
async fn a_call_settles_at_its_reported_usage() {
    let usage = Usage { input_tokens: 1_000, output_tokens: 100, ..Usage::default() };
    assert_eq!(spent(vec![text(), done(usage)], false).await.0, 4_500);
}

/// Absent is never 0: the request counts as it was reserved, and the reply by its bytes.
#[tokio::test]
async fn a_call_without_usage_settles_at_an_estimate() {
    for pieces in [
        vec![text(), done(Usage::default())],
        vec![text(), failed(FailureClass::BrokenStream)],
        // Cancelled while it runs.
        vec![text()],
    ] {
        let (spent, paid) = spent(pieces, false).await;
        assert_eq!(spent, paid.price.most(paid.input, 2).0, "all of it may be new in the cache");
    }
}

#[tokio::test]
async fn a_report_that_cannot_be_true_settles_all_that_was_reserved() {
    let absurd = Usage { input_tokens: 1_000, output_tokens: u64::MAX, ..Usage::default() };
    let (spent, paid) = spent(vec![text(), done(absurd)], false).await;
    let held: u64 = paid.hold.as_ref().unwrap().holds.iter().map(|hold| hold.amount).sum();
    // Input and output of a reservation are rounded up on their own.
    assert!((held - 1..=held).contains(&spent), "{spent} of {held}");
}

#[tokio::test]
async fn a_call_that_was_refused_or_never_sent_costs_nothing() {
    assert_eq!(spent(vec![failed(FailureClass::RateLimited)], false).await.0, 0);
    assert_eq!(spent(vec![done(Usage::default())], true).await.0, 0, "cancelled before it began");
}

/// What is reserved pays for one reading of the request.
#[tokio::test]
async fn a_try_that_broke_off_is_not_repeated_within_what_is_reserved() {
    let read = Usage { input_tokens: 1_000, ..Usage::default() };
    let failure = ModelFailure::new(FailureClass::Overloaded, "later");
    let retrying = ModelEvent::Retrying { retry: 1, wait: Duration::ZERO, failure };
    let usage = Usage { input_tokens: 1_000, output_tokens: 100, ..Usage::default() };
    let pieces = |read: Usage| vec![ModelEvent::Usage(read), retrying.clone(), done(usage)];
    let (spent_once, _) = spent(pieces(Usage { input_tokens: 60_000, ..read }), false).await;
    assert_eq!(spent_once, 180_000, "the second try was not made");
    let small = Usage { input_tokens: 10, ..read };
    let (spent_twice, _) = spent(pieces(small), false).await;
    assert_eq!(spent_twice, 4_530);
    // A few tokens that cost as much as the request.
    let written = Usage { output_tokens: 500, ..small };
    let (spent_once, paid) = spent(pieces(written), false).await;
    assert!(paid.input > 520, "as tokens, a second try would fit");
    assert_eq!(spent_once, 7_530, "the second try was not made");
}

/// C27: a deletion finds the blobs that events name, and none names what a silent call says.
#[tokio::test]
async fn a_long_reply_to_a_silent_call_leaves_no_blob() {
    let reply = "x".repeat(INLINE_BYTES + 1);
    let used = Usage { input_tokens: 1_000, output_tokens: 100, ..Usage::default() };
    for is_silent in [false, true] {
        let cancelled = CancellationToken::new();
        let pieces = vec![ModelEvent::Text(reply.clone()), done(used)];
        let model = Scripted { pieces, cancelled: cancelled.clone() };
        let (_dir, runner, mut run) = runner(model).await;
        let storage = runner.parts.storage.clone();
        let job = CallJob { is_silent, ..begun(&mut run) };
        let ended = runner.call(key().entity(), None, job, cancelled).await.unwrap();
        let Outcome::Done { content, .. } = ended else { panic!("{ended:?}") };
        assert_eq!(content.bytes(), reply.len() as u64);
        assert_eq!(content.inline().is_some(), is_silent);
        let blobs = storage.blobs.list().await.unwrap();
        assert_eq!(blobs.is_empty(), is_silent, "{blobs:?}");
    }
}

/// What the agent has now is another prompt: the request has the one that its configuration names.
#[tokio::test]
async fn a_request_has_the_system_prompt_that_its_session_has_in_the_blob_store() {
    let model = Scripted { pieces: Vec::new(), cancelled: CancellationToken::new() };
    let (_dir, runner, mut run) = runner(model).await;
    let system = "s".repeat(SYSTEM_PROMPT_INLINE + 1);
    let (_, content) = packed_text(key().entity(), &system);
    run.grant =
        Grant::free(AgentOptions { system: system.clone(), ..(*run.grant.options).clone() });
    let job = begun(&mut run);
    assert_eq!(job.request.system, "");
    let request = async || {
        let messages = job.request.messages.clone();
        runner.request(key().entity(), &job, messages).await
    };
    let missing = request().await.unwrap_err();
    assert!(missing.message.contains("send the message again"), "{missing:?}");
    runner.parts.storage.blobs.put(content).await.unwrap();
    assert_eq!(request().await.unwrap().system, system);
}

/// Metrics count turns by this event.
#[tokio::test]
async fn a_turn_starts_once_though_its_first_call_is_made_again() {
    for attempt in [1, 2, 3] {
        let cancelled = CancellationToken::new();
        let model = Scripted { pieces: vec![done(Usage::default())], cancelled: cancelled.clone() };
        let (_dir, runner, mut run) = runner(model).await;
        let (storage, feed) = (runner.parts.storage.clone(), runner.parts.feed.clone());
        let mut heard = storage.bus.subscribe(storage.prefix.events()).await.unwrap();
        let job = CallJob { attempt: Attempt(attempt), ..begun(&mut run) };
        runner.call(key().entity(), None, job, cancelled).await.unwrap();
        feed.tell(EventBody::NodeDraining);
        let sending = tokio::spawn(feed.run(storage));
        let mut started = 0;
        'heard: loop {
            let Some(BusEvent::Message(message)) = heard.next().await else { panic!("no events") };
            let batch: EventBatch = codec::decode(&message.payload).unwrap();
            for event in batch.events {
                match event.what {
                    EventBody::TurnStarted { .. } => started += 1,
                    EventBody::NodeDraining => break 'heard,
                    _ => {}
                }
            }
        }
        sending.abort();
        assert_eq!(started, usize::from(attempt == 1), "attempt {attempt}");
    }
}
