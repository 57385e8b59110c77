//! Performs a job: it first sends clients the recorded frames, then does what the kind of job needs.

use clawnode_kernel::driver::{Performing, Port};
use clawnode_proto::{EntityId, Traceparent};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, info_span};

use super::session_runner::SessionRunner;
use crate::session::turn::{
    effect::{Effect, Outcome},
    kind::Session,
    prepare::{EffectJob, EmitJob, SessionJob, TimeJob},
    tools::tool_frames::ToolFrames,
};

/// The effect that is performed, and where its result is reported.
struct EffectRun {
    entity: EntityId,
    effect: Effect,
    trace: Option<Traceparent>,
    port: Port<Session>,
    cancelled: CancellationToken,
}

// === impl SessionRunner ===

impl SessionRunner {
    /// Performs an effect to its end, after it has sent clients the recorded events of the turn's tools.
    pub(in crate::session) fn performing(
        &self,
        entity: EntityId,
        effect: Effect,
        job: EffectJob,
        port: Port<Session>,
        cancelled: CancellationToken,
    ) -> Performing {
        let EffectJob { mut told, trace, job } = job;
        let (runner, stops) = (self.clone(), cancelled.clone());
        let run = EffectRun { entity, effect, trace: trace.clone(), port, cancelled };
        let done = self.clone().perform(run, job, &mut told);
        let Some(told) = told else { return done };
        Box::pin(async move {
            tokio::select! {
                biased;
                () = stops.cancelled() => {}
                () = runner.tell(entity, trace.as_ref(), told) => {}
            }
            done.await;
        })
    }

    /// The span, as a part of its turn's trace.
    fn linked(&self, span: Span, trace: Option<&Traceparent>) -> Span {
        if let Some(trace) = trace {
            (self.parts.link)(&span, trace);
        }
        span
    }

    fn perform(self, run: EffectRun, job: SessionJob, told: &mut Option<ToolFrames>) -> Performing {
        let EffectRun { entity, effect, trace, port, cancelled } = run;
        match job {
            SessionJob::Call(job) => {
                let span = info_span!(
                    "session.call", session = %entity, turn = %job.turn, call = %job.call,
                    attempt = job.attempt.0
                );
                let span = self.linked(span, trace.as_ref());
                ending(port, effect, self.call(entity, trace, job, cancelled).instrument(span))
            }
            SessionJob::Judge(job) => {
                let span = info_span!(
                    "session.hooks", session = %entity, turn = %job.turn, call = %job.call
                );
                let span = self.linked(span, trace.as_ref());
                let run = async move { self.judge(entity, *job, cancelled).await };
                ending(port, effect, run.instrument(span))
            }
            SessionJob::Tool(job) => {
                let span = info_span!(
                    "session.tool", session = %entity, turn = %job.turn, call = %job.call,
                    tool = %job.tool
                );
                let span = self.linked(span, trace.as_ref());
                let run = async move {
                    let (end, trail) = self.tool(entity, job, cancelled).await;
                    Some(Outcome::Tool(end, trail))
                };
                ending(port, effect, run.instrument(span))
            }
            SessionJob::Settle(job) => ending(port, effect, async move {
                tokio::select! {
                    biased;
                    () = cancelled.cancelled() => None,
                    (end, trail) = self.settled(entity, &job) => Some(Outcome::Tool(end, trail)),
                }
            }),
            SessionJob::Ask(job) => {
                // Sent after it is stored: a person who sees the question may decide at once.
                let told = told.take();
                unless(cancelled, port, effect, async move {
                    let are_asked = self.ask(entity, &job).await;
                    if let Some(told) = told.filter(|_| are_asked) {
                        self.tell(entity, trace.as_ref(), told).await;
                    }
                })
            }
            SessionJob::AskClient(job) => {
                // Sent after it is stored: a client that gets the calls may bring the results at once.
                let told = told.take();
                unless(cancelled, port, effect, async move {
                    self.ask_client(entity, &job).await;
                    if let Some(told) = told {
                        self.tell(entity, trace.as_ref(), told).await;
                    }
                })
            }
            SessionJob::Publish(job) => {
                unless(cancelled, port, effect, async move { self.give(entity, &job).await })
            }
            SessionJob::AskSteps(job) => {
                unless(cancelled, port, effect, async move { self.ask_steps(entity, &job).await })
            }
            SessionJob::Time(job) => {
                unless(cancelled, port, effect, self.set_timer(entity, job, effect))
            }
            SessionJob::Emit(job) => self.emitting(entity, job, port, effect),
            SessionJob::Rate(ratings) => self.rating(entity, ratings, port, effect),
            SessionJob::Teach(job) => self.lessons(entity, *job, port, effect),
        }
    }
}

impl SessionRunner {
    /// Publishes the end of a turn, and confirms the effect once that is done.
    fn emitting(
        self,
        entity: EntityId,
        job: EmitJob,
        port: Port<Session>,
        effect: Effect,
    ) -> Performing {
        Box::pin(async move {
            self.emit(entity, &job).await;
            port.confirmed(effect);
        })
    }

    /// Sets a timer, and notes that the call waits for a provider until then.
    async fn set_timer(self, entity: EntityId, job: TimeJob, effect: Effect) {
        self.time(entity, &job).await;
        if let Effect::Outage { call, until, .. } = effect {
            self.note_outage(call, until).await;
        }
    }
}

/// Reports how a call ended, or that it was interrupted and has to be made again.
fn ending(
    port: Port<Session>,
    effect: Effect,
    work: impl Future<Output = Option<Outcome>> + Send + 'static,
) -> Performing {
    Box::pin(async move {
        match work.await {
            Some(outcome) => port.ended(effect, outcome),
            None => port.gone(effect),
        }
    })
}

/// Runs work until it ends or is cancelled.
fn unless(
    cancelled: CancellationToken,
    port: Port<Session>,
    effect: Effect,
    work: impl Future<Output = ()> + Send + 'static,
) -> Performing {
    Box::pin(async move {
        tokio::select! {
            biased;
            () = cancelled.cancelled() => port.gone(effect),
            () = work => port.confirmed(effect),
        }
    })
}
