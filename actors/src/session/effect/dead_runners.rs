//! Ends waits for jobs of class `once` when the process that runs the job dies. No process runs such a job
//! again, so its session need not wait until the queue delivers the job again, or its timer fires.
//!
//! Best effort: the next delivery of the job, or the timer of the wait, finds jobs that are missed here. The
//! queue gives jobs of other classes to another process that can run them.

use std::time::Duration;

use clawnode_cluster::{Backoff, BucketError, PeekSeen, membership::Members};
use clawnode_proto::{
    JobId, Timestamp,
    job::{Job, JobState},
    session::ToolEnd,
    tool::EffectClass,
};
use futures_util::future::BoxFuture;
use tracing::{debug, warn};

use super::{
    awaited_jobs::Awaited,
    session_runner::{AGAIN, SessionRunner},
};
use crate::session::turn::tool_jobs::given_up;

/// The owner of a call that is this old may have died together with its runner, before this process
/// knew either of them.
const ASKED_BEFORE: Duration = Duration::from_secs(2);
/// Tries to store a result. After that, the timer of the wait delivers it.
const TRIES: u32 = 10;

impl SessionRunner {
    /// A job was put into the queue at `asked_at` or, after a crash, is put there again.
    pub(in crate::session) async fn awaits(&self, job: &Job, asked_at: Timestamp) {
        if job.class != EffectClass::Once || !self.parts.storage.shared {
            return;
        }
        let awaited = Awaited::from(job);
        self.waits.add(awaited.clone());
        if asked_at.plus(ASKED_BEFORE) < self.parts.clock.now() {
            self.look_after(awaited).await;
        }
    }

    /// Follows the members of the cluster until this process ends. After each death, it ends the waits for the
    /// jobs that the dead process ran.
    pub fn follow_runners(self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
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
        })
    }

    /// Tells its session that the end of a job is unknown, if the process that ran it is dead.
    async fn look_after(&self, awaited: Awaited) {
        let job = awaited.id;
        let detail = match self.record_unknown(job).await {
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
        while let Err(failure) = self.parts.storage.inbox.put(&input).await {
            if backoff.tries() >= TRIES {
                warn!(%job, %failure, "cannot store the result of a job; its timer delivers it");
                return;
            }
            let wait = backoff.next(&mut rand::rng());
            tokio::time::sleep(wait).await;
        }
    }

    /// Stores that the end of a job of class `once` is unknown, if a dead process ran it.
    async fn record_unknown(&self, job: JobId) -> Result<Option<String>, BucketError> {
        let (position, state) = self.state_of(job).await?;
        let Some(state) = state else { return Ok(None) };
        let is_dead = |process| self.is_dead(process);
        if let Some(detail) = given_up(&state, is_dead) {
            let state = JobState::Uncertain { detail: detail.clone() };
            self.set_state(job, position, &state, None).await?;
            return Ok(Some(detail));
        }
        if !matches!(state, JobState::Started { .. }) {
            // The process that set it tells the session.
            self.waits.remove(job);
        }
        Ok(None)
    }
}
