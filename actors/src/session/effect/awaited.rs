//! Jobs that sessions of this process wait for, and what becomes of them when whoever runs one
//! dies: a run of class `once` is never taken up again, so its session need not wait until the
//! queue, or its timer, brings it up.
//!
//! Best effort: what is forgotten here is found by the next delivery of the job, or by the timer of
//! the wait. Jobs of other classes are left to the queue, which gives them to who can run them.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use clawnode_cluster::{Backoff, BucketError, PeekSeen, membership::Members};
use clawnode_proto::{
    CallId, EventId, IdempotencyKey, Input, JobId, Kind, SessionKey, Timestamp, Traceparent,
    codec::CodecError,
    job::{Job, JobState},
    session::{SessionInput, ToolEnd, ToolResult},
    tool::EffectClass,
};
use tracing::{debug, warn};

use super::run::{AGAIN, SessionRunner};
use crate::session::turn::settle::given_up;

/// Jobs that are remembered; beyond that, the oldest is forgotten.
const AWAITED_MAX: usize = 65_536;
/// A call that was asked for this long ago may be one whose owner has died, perhaps with its
/// runner: nobody heard of that death here.
const ASKED_BEFORE: Duration = Duration::from_secs(2);
/// Tries to store a result; after that the timer of the wait brings it.
const TRIES: u32 = 10;

/// For whom a job runs: all that its result has to say beside the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Awaited {
    id: JobId,
    session: SessionKey,
    call: CallId,
    nonce: EventId,
    traceparent: Option<Traceparent>,
}

/// Jobs of class `once` that sessions of this process wait for.
#[derive(Debug, Default)]
pub(in crate::session) struct Waits(Mutex<BTreeMap<JobId, Awaited>>);

// === impl Awaited ===

impl From<&Job> for Awaited {
    fn from(job: &Job) -> Self {
        Self {
            id: job.id,
            session: job.session.clone(),
            call: job.call,
            nonce: job.nonce,
            traceparent: job.traceparent.clone(),
        }
    }
}

impl Awaited {
    /// What its session is told of its end; the same input, whoever tells it.
    ///
    /// # Errors
    /// If it cannot be encoded.
    pub(crate) fn result(self, end: ToolEnd, now: Timestamp) -> Result<Input, CodecError> {
        let result =
            SessionInput::ToolResult(ToolResult { call: self.call, nonce: self.nonce, end });
        let key = IdempotencyKey::of_job(self.id);
        let input = Input::new(Kind::SESSION, &self.session.to_string(), key, now, &result)?;
        Ok(Input { traceparent: self.traceparent, ..input })
    }
}

// === impl Waits ===

impl Waits {
    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<JobId, Awaited>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, awaited: Awaited) {
        self.with(|all| {
            all.insert(awaited.id, awaited);
            if all.len() > AWAITED_MAX {
                all.pop_first();
            }
        });
    }

    pub(in crate::session) fn remove(&self, job: JobId) {
        self.with(|all| all.remove(&job));
    }

    fn all(&self) -> Vec<Awaited> {
        self.with(|all| all.values().cloned().collect())
    }
}

// === impl SessionRunner ===

impl SessionRunner {
    /// A job was given away at `asked_at` or, after a crash, is given away again.
    pub(in crate::session) async fn awaits(&self, job: &Job, asked_at: Timestamp) {
        if job.class != EffectClass::Once || !self.parts.substrate.shared {
            return;
        }
        let awaited = Awaited::from(job);
        self.waits.add(awaited.clone());
        if asked_at.plus(ASKED_BEFORE) < self.parts.clock.now() {
            self.look_after(awaited).await;
        }
    }

    /// Follows who is there, until the process ends; after each death, brings to an end what the
    /// dead one ran.
    pub async fn follow_runners(self) {
        let mut peers = self.parts.peers.clone();
        let dead_now = |members: &Members| (members.dead.clone(), members.heard_all);
        let mut known = peers.peek_seen(dead_now);
        while peers.changed().await.is_ok() {
            let now = peers.peek_seen(dead_now);
            let more = now.0.difference(&known.0).next().is_some() || now.1 && !known.1;
            known = now;
            if more {
                for awaited in self.waits.all() {
                    self.look_after(awaited).await;
                }
            }
        }
    }

    /// Tells its session that nobody knows what came of a job, if whoever ran it is dead.
    async fn look_after(&self, awaited: Awaited) {
        let job = awaited.id;
        let detail = match self.bury(job).await {
            Ok(Some(detail)) => detail,
            Ok(None) => return,
            Err(failure) => {
                debug!(%job, %failure, "the state of a job cannot be read or set now");
                return;
            }
        };
        warn!(%job, session = %awaited.session, "the outcome of a tool call is unknown: {detail}");
        let input = match awaited.result(ToolEnd::Uncertain { detail }, self.parts.clock.now()) {
            Ok(input) => input,
            Err(failure) => {
                warn!(%job, %failure, "the result of a job cannot be written");
                return;
            }
        };
        let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
        while let Err(failure) = self.parts.substrate.inbox.put(&input).await {
            if backoff.tries() >= TRIES {
                warn!(%job, %failure, "cannot store the result of a job; its timer delivers it");
                return;
            }
            let wait = backoff.next(&mut rand::rng());
            tokio::time::sleep(wait).await;
        }
    }

    /// Writes down that nobody knows what came of a job of class `once`, if a dead process ran it.
    async fn bury(&self, job: JobId) -> Result<Option<String>, BucketError> {
        let (position, state) = self.state_of(job).await?;
        let Some(state) = state else { return Ok(None) };
        let is_dead = |process| self.is_dead(process);
        if let Some(detail) = given_up(&state, is_dead) {
            let state = JobState::Uncertain { detail: detail.clone() };
            self.set_state(job, position, &state, None).await?;
            return Ok(Some(detail));
        }
        if !matches!(state, JobState::Started { .. }) {
            // Whoever set it tells the session.
            self.waits.remove(job);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::TurnId;

    use super::*;

    fn awaited(n: u128) -> Awaited {
        Awaited::from(&Job {
            id: JobId::from_u128(n),
            capability: "docker".parse().unwrap(),
            session: "main:cli:local:ada".parse().unwrap(),
            turn: TurnId::from_u128(1),
            call: CallId::from_u128(n),
            nonce: EventId::from_u128(1),
            tool: "shell".parse().unwrap(),
            arguments: "{}".to_owned(),
            class: EffectClass::Once,
            timeout_ms: 1_000,
            action: None,
            limit: None,
            callbacks: None,
            traceparent: None,
            not_after: None,
        })
    }

    #[test]
    fn the_oldest_is_forgotten_when_there_are_too_many() {
        let waits = Waits::default();
        let most = u128::try_from(AWAITED_MAX).unwrap();
        (1..=most + 1).for_each(|n| waits.add(awaited(n)));
        let all = waits.all();
        assert_eq!(all.len(), AWAITED_MAX);
        assert_eq!(all[0], awaited(2));
        waits.remove(JobId::from_u128(2));
        assert_eq!(waits.all()[0], awaited(3));
    }

    #[test]
    fn a_result_is_the_same_whoever_tells_it() {
        let end = || ToolEnd::Uncertain { detail: "died".to_owned() };
        let one = awaited(7).result(end(), Timestamp(1)).unwrap();
        let other = awaited(7).result(end(), Timestamp(2)).unwrap();
        assert_eq!(
            (&one.key, one.idempotency_key, &one.body),
            (&other.key, other.idempotency_key, &other.body)
        );
    }
}
