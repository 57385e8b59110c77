//! Begins a session's waits for others: for a person's decision about a tool call, for more steps, and for the
//! results of tools that its client runs.
//!
//! No wait is endless: each begins with a timer.

use std::time::Duration;

use bytes::Bytes;
use clawnode_cluster::{Backoff, BucketError, StoreError, Timer};
use clawnode_proto::{
    CallId, EntityId, IdempotencyKey, Input, Kind, Position, SessionKey, TimerId, Timestamp,
    feed::EventBody,
    limits::APPROVAL_KEPT,
    policy::{Approval, Decided, Decision},
    session::{ApprovalDecided, SessionInput},
    subject::approval_key,
};
use tracing::{debug, warn};

use super::{
    memory_tools::forgets,
    run::{AGAIN, SessionRunner},
};
use crate::session::turn::{
    prepare::{AskClientJob, AskJob, AskStepsJob, TimeJob},
    tools::approval::BY_NODE,
};

impl SessionRunner {
    /// Shows a tool call to people, and sets the timer that ends the wait for them. Repeats until both
    /// are stored. False if there is nothing to ask about, because the call could not do anything.
    pub(in crate::session) async fn ask(&self, entity: EntityId, ask: &AskJob) -> bool {
        let about = match forgets(self, &ask.approval.action).await {
            Ok(about) => about,
            Err(why) => {
                self.refuse(entity, &ask.approval, why).await;
                return false;
            }
        };
        self.show(entity, &Approval { about, ..ask.approval.clone() }).await;
        true
    }

    async fn show(&self, entity: EntityId, approval: &Approval) {
        let action = &approval.action;
        let id = TimerId::of_approval(action.call);
        let Some(timer) = timer(entity, &action.session, id, approval.expires) else { return };
        let bytes = match approval.to_bytes() {
            Ok(bytes) => Bytes::from(bytes),
            Err(failure) => {
                warn!(%entity, %failure, "cannot encode an approval request");
                return;
            }
        };
        let kept = Duration::from_millis(approval.expires.0.saturating_sub(approval.asked.0));
        let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
        loop {
            // The timer first: otherwise the session could wait for ever for a person who sees nothing.
            let stored = async {
                self.parts.storage.timers.set(&timer).await?;
                let key = approval_key(action.call);
                let ttl = Some(kept + APPROVAL_KEPT);
                match self.parts.storage.bucket.put(&key, Position(0), bytes.clone(), ttl).await {
                    Ok(_) => Ok(true),
                    // It was stored before; a person may have decided by now.
                    Err(BucketError::Conflict { .. }) => Ok(false),
                    Err(BucketError::Store(failure)) => Err(failure),
                }
            };
            match stored.await {
                Ok(new) => {
                    if new {
                        let (session, tool) = (entity, action.tool.clone());
                        self.parts.feed.tell(EventBody::ApprovalAsked {
                            session,
                            call: action.call,
                            tool,
                        });
                    }
                    return;
                }
                Err(failure) => {
                    warn!(call = %action.call, %failure, "cannot ask for approval; trying again");
                    let wait = backoff.next(&mut rand::rng());
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    /// Ends a call in place of a person. Repeats until that is stored; the journal takes it once.
    async fn refuse(&self, entity: EntityId, approval: &Approval, why: String) {
        let action = &approval.action;
        let (decision, by, reason) = (Decision::Deny, BY_NODE.to_owned(), Some(why));
        let decided = Decided { decision, by, reason };
        let refused = ApprovalDecided { call: action.call, action: approval.digest, decided };
        let refused = SessionInput::ApprovalDecided(refused);
        let Ok(key) = format!("refused:{}", action.call).parse::<IdempotencyKey>() else { return };
        let (session, now) = (action.session.to_string(), self.parts.clock.now());
        let input = match Input::new(Kind::SESSION, &session, key, now, &refused) {
            Ok(input) => input,
            Err(failure) => {
                warn!(%entity, %failure, "a refusal cannot be written");
                return;
            }
        };
        let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
        while let Err(failure) = self.parts.storage.inbox.put(&input).await {
            warn!(call = %action.call, %failure, "cannot refuse a call now; trying again");
            let wait = backoff.next(&mut rand::rng());
            tokio::time::sleep(wait).await;
        }
    }

    /// Sets the timer that ends the wait for a client that runs tools; repeats until it is stored.
    pub(in crate::session) async fn ask_client(&self, entity: EntityId, ask: &AskClientJob) {
        let id = TimerId::of_client(ask.call);
        let Some(timer) = timer(entity, &ask.session, id, ask.calls.expires) else { return };
        let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
        while let Err(failure) = self.parts.storage.timers.set(&timer).await {
            warn!(call = %ask.call, %failure, "a timer cannot be set now; trying again");
            let wait = backoff.next(&mut rand::rng());
            tokio::time::sleep(wait).await;
        }
    }

    /// Sets the timer that ends the wait for more steps; repeats until it is stored.
    pub(in crate::session) async fn ask_steps(&self, entity: EntityId, ask: &AskStepsJob) {
        let Some(timer) = timer(entity, &ask.session, ask.timer, ask.until) else { return };
        let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
        while let Err(failure) = self.parts.storage.timers.set(&timer).await {
            warn!(turn = %ask.turn, %failure, "a timer cannot be set now; trying again");
            let wait = backoff.next(&mut rand::rng());
            tokio::time::sleep(wait).await;
        }
    }

    /// Sets the timer that ends a turn or its step; repeats until it is stored.
    pub(in crate::session) async fn time(&self, entity: EntityId, time_job: &TimeJob) {
        let Some(timer) = timer(entity, &time_job.session, time_job.timer, time_job.due) else {
            return;
        };
        let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
        while let Err(failure) = self.parts.storage.timers.set(&timer).await {
            warn!(%entity, %failure, "a timer cannot be set now; trying again");
            let wait = backoff.next(&mut rand::rng());
            tokio::time::sleep(wait).await;
        }
    }

    /// Removes the timer of a turn that has ended.
    pub(in crate::session) async fn forget_timer(&self, entity: EntityId, timer: TimerId) {
        let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
        while let Err(failure) = self.parts.storage.timers.cancel(entity, timer).await {
            debug!(%entity, %failure, "a timer cannot be taken back now; trying again");
            let wait = backoff.next(&mut rand::rng());
            tokio::time::sleep(wait).await;
        }
    }

    /// Removes these calls from the list for people.
    pub(in crate::session) async fn forget_approvals(&self, entity: EntityId, calls: &[CallId]) {
        for call in calls {
            let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
            while let Err(failure) = self.forget_approval(entity, *call).await {
                debug!(%call, %failure, "cannot delete an approval now; trying again");
                let wait = backoff.next(&mut rand::rng());
                tokio::time::sleep(wait).await;
            }
        }
    }

    async fn forget_approval(&self, entity: EntityId, call: CallId) -> Result<(), StoreError> {
        self.parts.storage.timers.cancel(entity, TimerId::of_approval(call)).await?;
        let key = approval_key(call);
        let Some(entry) = self.parts.storage.bucket.get(&key).await? else { return Ok(()) };
        match self.parts.storage.bucket.delete(&key, entry.position).await {
            Ok(()) => Ok(()),
            // Another process noted a decision; the next read has its position.
            Err(BucketError::Conflict { .. }) => Err(StoreError::Refused {
                store: "bucket",
                detail: "it has just changed".to_owned(),
            }),
            Err(BucketError::Store(failure)) => Err(failure),
        }
    }
}

/// A timer of a session.
fn timer(entity: EntityId, session: &SessionKey, id: TimerId, due: Timestamp) -> Option<Timer> {
    let fired = SessionInput::TimerFired { timer: id };
    let key = IdempotencyKey::of_timer(id);
    match Input::new(Kind::SESSION, &session.to_string(), key, due, &fired) {
        Ok(input) => Some(Timer { id, due, input }),
        Err(failure) => {
            warn!(%entity, %failure, "a timer cannot be written");
            None
        }
    }
}
