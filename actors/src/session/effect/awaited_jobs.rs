//! The jobs that sessions of this process wait for.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use clawnode_proto::{
    CallId, EventId, IdempotencyKey, Input, JobId, Kind, SessionKey, Timestamp, Traceparent,
    codec::CodecError,
    job::Job,
    session::{SessionInput, ToolEnd, ToolResult},
};

/// How many jobs are remembered. Beyond that, the oldest is forgotten.
const AWAITED_MAX: usize = 65_536;

/// The session and the call that a job is for: what its result contains beside the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Awaited {
    pub(super) id: JobId,
    pub(super) session: SessionKey,
    call: CallId,
    nonce: EventId,
    traceparent: Option<Traceparent>,
}

/// Jobs of class `once` that sessions of this process wait for.
#[derive(Debug, Default)]
pub(in crate::session) struct AwaitedJobs(Mutex<BTreeMap<JobId, Awaited>>);

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
    /// The input that tells its session the end of the job. It is the same from every sender.
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

// === impl AwaitedJobs ===

impl AwaitedJobs {
    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<JobId, Awaited>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn add(&self, awaited: Awaited) {
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

    pub(super) fn all(&self) -> Vec<Awaited> {
        self.with(|all| all.values().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{TurnId, tool::EffectClass};

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
        let waits = AwaitedJobs::default();
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
