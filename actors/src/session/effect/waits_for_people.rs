//! Begins a session's waits for others: for a person's decision about a tool call, for more steps, and for the
//! results of tools that its client runs.
//!
//! No wait is endless: each begins with a timer.

use std::{sync::Arc, time::Duration};

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

use super::session_runner::{AGAIN, SessionRunner};
use crate::session::{
    clients::sessions::Sessions,
    turn::{
        prepare::{AskClientJob, AskJob, AskStepsJob, TimeJob},
        tools::approval::BY_NODE,
    },
};

impl SessionRunner {
    /// Shows a tool call to people, and sets the timer that ends the wait for them. Repeats until both
    /// are stored. False if there is nothing to ask about, because the call could not do anything.
    pub(in crate::session) async fn ask(&self, entity: EntityId, ask: &AskJob) -> bool {
        let action = &ask.approval.action;
        let options = self.parts.agents.options(&action.session.agent);
        if let Some(memory) = options.and_then(|options| options.memory) {
            let sessions = Sessions::new(self.parts.storage.clone(), Arc::clone(&self.parts.clock));
            if let Some(why) = sessions.takes_nothing(action, &memory.shared).await {
                self.refuse(entity, &ask.approval, why).await;
                return false;
            }
        }
        self.show(entity, &ask.approval).await;
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

    /// Ends a call in place of a person. Repeats until that is stored; the journal takes it once. The timer ends the wait
    /// if the denial comes after the time for one.
    async fn refuse(&self, entity: EntityId, approval: &Approval, why: String) {
        let action = &approval.action;
        let (decision, by, reason) = (Decision::Deny, BY_NODE.to_owned(), Some(why));
        let decided = Decided { decision, by, reason };
        let refused = ApprovalDecided { call: action.call, action: approval.digest, decided };
        let refused = SessionInput::ApprovalDecided(refused);
        let id = TimerId::of_approval(action.call);
        let Some(timer) = timer(entity, &action.session, id, approval.expires) else { return };
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
        loop {
            let stored = async {
                self.parts.storage.timers.set(&timer).await?;
                self.parts.storage.inbox.put(&input).await
            };
            let Err(failure) = stored.await else { return };
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

#[cfg(test)]
mod tests {
    use clawnode_proto::codec;
    use tokio_util::sync::CancellationToken;

    use super::super::model_call_tests::{Scripted, runner};
    use super::*;
    use crate::session::{
        SessionJob,
        played::{PlayedActivation, key},
    };

    /// What people are asked about a call, and its session.
    fn asked() -> (PlayedActivation, AskJob) {
        let mut run = PlayedActivation::new(&[], Vec::new());
        run.says("hello");
        run.replies(&[("write", r#"{"at":2}"#)]);
        match run.started.pop() {
            Some((_, SessionJob::Ask(ask))) => (run, *ask),
            other => panic!("{other:?}"),
        }
    }

    /// The journal takes no decision that comes too late, so without a timer its turn would wait for ever.
    #[tokio::test]
    async fn a_call_that_is_refused_in_place_of_a_person_has_a_timer() {
        let model = Scripted { pieces: Vec::new(), cancelled: CancellationToken::new() };
        let (_dir, runner, _) = runner(model).await;
        let (mut run, ask) = asked();
        let (entity, storage) = (key().entity(), &runner.parts.storage);
        // The session lives in 1970, and what is due is not pending for long.
        let expires = runner.parts.clock.now().plus(Duration::from_hours(1));
        let approval = Approval { expires, ..ask.approval.clone() };
        // A process that goes on after a crash does the same again.
        for _ in 0..2 {
            runner.refuse(entity, &approval, "there is no such point".to_owned()).await;
        }
        let timers = storage.timers.pending(entity.partition(storage.partitions)).await.unwrap();
        let due: Vec<_> = timers.iter().map(|timer| (timer.id, timer.due)).collect();
        assert_eq!(due, [(TimerId::of_approval(approval.action.call), expires)]);
        let waiting = storage.inbox.read(entity, Position(0)).await.unwrap();
        let inputs = waiting.iter().map(|one| Input::from_bytes(&one.bytes).unwrap());
        let inputs: Vec<Input> = inputs.collect();
        assert!(!inputs.is_empty() && inputs.iter().all(|one| one.id == inputs[0].id));

        let calls = |run: &PlayedActivation| {
            let is_call = |job: &SessionJob| matches!(job, SessionJob::Call(_));
            run.started.iter().filter(|(_, job)| is_call(job)).count()
        };
        let before = calls(&run);
        run.now.wall = ask.approval.expires.plus(Duration::from_millis(1));
        run.hears("late", &codec::decode(&inputs[0].body).unwrap());
        assert_eq!(calls(&run), before, "it still waits");
        run.hears("over", &codec::decode(&timers[0].input.body).unwrap());
        assert_eq!(calls(&run), before + 1, "the model goes on");
    }
}
