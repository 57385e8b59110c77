//! Runs the tool calls of a session beside it, or as jobs of a runner, and ends them.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use clawnode_cluster::{Backoff, BucketError, Peek, Storage, StoreError, Timer};
use clawnode_proto::{
    EntityId, IdempotencyKey, Input, JobId, Kind, Position, ProcessId, TimerId, codec,
    hook::HookTrail,
    job::{Job, JobState},
    json,
    limits::JOB_CLOSED_TTL,
    node::NodeRequest,
    session::{SessionInput, ToolEnd},
    skill::CREATE_SKILL,
    subject::job_key,
    tool::{ToolFailure, ToolOutcome},
};
use clawnode_tool::{Available, Executor, RunSink, ShownMedia, ToolRun};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{
    create_skill_runs::SkillRun,
    hook_calls::OfCall,
    memory_tool_runs::MemoryRun,
    session_runner::{AGAIN, SessionRunner},
};
use crate::session::{
    texts::stored_with_media,
    turn::{
        prepare::{PublishJob, SettleJob, ToolJob},
        tool_jobs::{Closing, GiveStep, Settling, closing, settling},
        tools::memory_tool_calls::is_name,
    },
};

/// How soon to look again at the state of a job whose runner is alive.
const RUNS_ON: Duration = Duration::from_secs(2);

impl SessionRunner {
    /// Runs a tool beside its session.
    pub(in crate::session) async fn tool(
        &self,
        entity: EntityId,
        mut job: ToolJob,
        cancelled: CancellationToken,
    ) -> (ToolEnd, HookTrail) {
        let after = std::mem::take(&mut job.after);
        let (session, arguments) = (job.would.session.clone(), job.arguments.clone());
        let (turn, call, tool) = (job.turn, job.call, job.tool.clone());
        let end = self.run_tool(entity, job, cancelled).await;
        let (tool, arguments) = (&tool, arguments.as_str());
        let judged_call = OfCall { session: &session, turn, call, tool, arguments };
        self.judged_end(entity, &judged_call, end, &after).await
    }

    async fn run_tool(
        &self,
        entity: EntityId,
        job: ToolJob,
        cancelled: CancellationToken,
    ) -> ToolEnd {
        let Some(arguments) = json::read_object(&job.arguments) else {
            let why = "the arguments are not a JSON object";
            return ToolEnd::Known { outcome: ToolOutcome::failed(ToolFailure::Invalid, why) };
        };
        let Available { toolbox, .. } =
            Available::having(&self.parts.available, &job.tool, &cancelled).await;
        if let Err(outcome) = toolbox.is_decided(job.would.clone(), job.action) {
            return ToolEnd::Known { outcome };
        }
        let own = self.of_session(&job);
        let shown = ShownMedia::kept();
        let run = ToolRun {
            call: job.call,
            agent: job.agent,
            tool: job.tool,
            arguments,
            idempotency_key: JobId::from(job.call).to_string(),
            timeout: job.limit.left(),
            limit: Some(job.limit),
            // Only jobs are archived.
            sink: RunSink::default(),
            shown: shown.clone(),
        };
        let end = match own {
            Some(own) => toolbox.end_by(own, run, cancelled).await,
            None => toolbox.end(run, cancelled).await,
        };
        match end {
            ToolEnd::Known { outcome } => {
                let (storage, shown) = (&self.parts.storage, shown.take());
                let outcome = stored_with_media(storage, entity, outcome, shown).await;
                ToolEnd::Known { outcome }
            }
            uncertain @ ToolEnd::Uncertain { .. } => uncertain,
        }
    }

    /// What runs a call that needs to know its session.
    fn of_session(&self, job: &ToolJob) -> Option<Arc<dyn Executor>> {
        match job.tool.as_str() {
            CREATE_SKILL => Some(Arc::new(SkillRun::of(self, job))),
            tool if job.source.is_some() && is_name(tool) => {
                Some(Arc::new(MemoryRun::of(self, job)))
            }
            _ => None,
        }
    }

    /// Puts a tool call into the queue as a job, and sets the timer that ends the wait for it. Repeats until
    /// both are stored.
    pub(in crate::session) async fn give(&self, entity: EntityId, publish: &PublishJob) {
        let job = &publish.job;
        let id = TimerId::from(job.call);
        let fired = SessionInput::TimerFired { timer: id };
        let key = IdempotencyKey::of_timer(id);
        let due = publish.asked_at.plus(self.parts.job_wait);
        let input = Input::new(Kind::SESSION, &job.session.to_string(), key, due, &fired);
        let timer = match input {
            Ok(input) => Timer { id, due, input },
            Err(failure) => {
                warn!(%entity, %failure, "a timer cannot be written");
                return;
            }
        };
        let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
        let mut again = publish.again;
        loop {
            // Both at once, because neither needs the other, and both stores ignore repeats: if the owner dies
            // between them, the next owner puts the job again. The job first: a worker begins it while
            // the timer is stored.
            match tokio::try_join!(self.put(job, again), self.parts.storage.timers.set(&timer)) {
                Ok(((), ())) => return self.awaits(job, publish.asked_at).await,
                Err(failure) => {
                    warn!(job = %job.id, %failure, "a job cannot be stored now; trying again");
                    again = true;
                    let wait = backoff.next(&mut rand::rng());
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    /// Puts a job. If it may have been put before, it is put only if it neither waits nor has a result
    /// (JOB-8).
    async fn put(&self, job: &Job, again: bool) -> Result<(), StoreError> {
        let Storage { jobs, inbox, .. } = &self.parts.storage;
        let mut next = Some(GiveStep::first(again));
        while let Some(step) = next {
            let found = match step {
                GiveStep::Waits => jobs.waits(job).await?,
                GiveStep::Result => {
                    let waiting = inbox.read(job.session.entity(), Position(0)).await?;
                    let inputs =
                        waiting.iter().filter_map(|input| Input::from_bytes(&input.bytes).ok());
                    GiveStep::has_result(job, inputs.map(|input| input.id))
                }
                GiveStep::Put => jobs.put(job).await.map(|()| true)?,
            };
            next = step.after(found);
        }
        Ok(())
    }

    /// The end of a job whose time is over, after its hooks.
    pub(in crate::session) async fn settled(
        &self,
        entity: EntityId,
        settle: &SettleJob,
    ) -> (ToolEnd, HookTrail) {
        let SettleJob { job, after, .. } = settle;
        let end = self.settle(settle).await;
        let (turn, call) = (job.turn, job.call);
        let (tool, arguments) = (&job.tool, job.arguments.as_str());
        let judged_call = OfCall { session: &job.session, turn, call, tool, arguments };
        self.judged_end(entity, &judged_call, end, after).await
    }

    /// Ends a job whose time is over: waits for its runner, and lets no other runner begin it.
    async fn settle(&self, settle: &SettleJob) -> ToolEnd {
        let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
        let job = &settle.job;
        loop {
            match self.try_settle(settle).await {
                Ok(Some(end)) => return end,
                Ok(None) => tokio::time::sleep(RUNS_ON).await,
                Err(failure) => {
                    warn!(job = %job.id, %failure, "a job cannot be settled now; trying again");
                    let wait = backoff.next(&mut rand::rng());
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    /// `None`: a runner runs it.
    async fn try_settle(&self, settle: &SettleJob) -> Result<Option<ToolEnd>, BucketError> {
        let job = settle.job.id;
        let (position, state) = self.state_of(job).await?;
        match settling(settle, state, self.parts.job_wait, |process| self.is_dead(process)) {
            Settling::Wait { cancel } => {
                if let Some(process) = cancel {
                    self.cancel_at(process, job).await;
                }
                Ok(None)
            }
            Settling::Set(state, end) => {
                self.set_state(job, position, &state, None).await?;
                Ok(Some(end))
            }
            Settling::Ended(end) => Ok(Some(end)),
        }
    }

    /// Closes the jobs of a turn that has ended: no runner begins them any more, those that run are stopped,
    /// and their states expire.
    pub(in crate::session) async fn close(&self, entity: EntityId, jobs: &[JobId]) {
        for job in jobs {
            let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
            while let Err(failure) = self.try_close(entity, *job).await {
                debug!(%job, %failure, "a job cannot be closed now; trying again");
                let wait = backoff.next(&mut rand::rng());
                tokio::time::sleep(wait).await;
            }
        }
    }

    async fn try_close(&self, entity: EntityId, job: JobId) -> Result<(), BucketError> {
        self.waits.remove(job);
        // No wait needs the timer any more. If it has just fired, its session finds nothing to do.
        self.parts.storage.timers.cancel(entity, TimerId::from(job)).await?;
        let (position, state) = match self.parts.storage.bucket.get(&job_key(job)).await? {
            // A state that cannot be read is closed like any other: it would stay for ever.
            Some(entry) => (entry.position, JobState::from_bytes(&entry.value).ok()),
            None => (Position(0), None),
        };
        let Closing::Set { cancel } = closing(state.as_ref()) else { return Ok(()) };
        if let Some(process) = cancel {
            self.cancel_at(process, job).await;
        }
        self.set_state(job, position, &JobState::Closed, Some(JOB_CLOSED_TTL)).await
    }

    /// Best effort: a run that does not get the request goes on to its end, and nothing waits for it.
    async fn cancel_at(&self, process: ProcessId, job: JobId) {
        let Ok(bytes) = codec::encode(&NodeRequest::CancelJob { job }) else { return };
        let subject = self.parts.storage.prefix.rpc(process);
        if let Err(failure) =
            self.parts.storage.bus.publish(subject, None, Bytes::from(bytes)).await
        {
            debug!(%job, %failure, "a job could not be cancelled");
        }
    }

    pub(in crate::session) async fn state_of(
        &self,
        job: JobId,
    ) -> Result<(Position, Option<JobState>), StoreError> {
        let Some(entry) = self.parts.storage.bucket.get(&job_key(job)).await? else {
            return Ok((Position(0), None));
        };
        match JobState::from_bytes(&entry.value) {
            Ok(state) => Ok((entry.position, Some(state))),
            Err(failure) => {
                Err(StoreError::Refused { store: "bucket", detail: failure.to_string() })
            }
        }
    }

    pub(in crate::session) async fn set_state(
        &self,
        job: JobId,
        expected: Position,
        state: &JobState,
        ttl: Option<Duration>,
    ) -> Result<(), BucketError> {
        let bytes = state.to_bytes().map_err(|failure| StoreError::Refused {
            store: "bucket",
            detail: failure.to_string(),
        })?;
        self.parts.storage.bucket.put(&job_key(job), expected, bytes.into(), ttl).await.map(drop)
    }

    pub(in crate::session) fn is_dead(&self, process: ProcessId) -> bool {
        !self.parts.storage.shared || self.parts.peers.peek(|peers| peers.holds_dead(process))
    }
}

#[cfg(test)]
mod tests {
    use clawnode_budget::holder::{HolderHandle, HolderOptions};
    use clawnode_cluster::{AppendAnswer, Clock, Feed, SystemClock, Write, membership::Members};
    use clawnode_local as local;
    use clawnode_proto::{
        ProcessId,
        llm::{ModelFailure, ModelRef},
        session::ToolResult,
    };
    use tokio::sync::watch;

    use super::super::session_runner::{ResolveModel, RunnerParts};
    use super::*;
    use crate::{
        agent::Agents,
        hook::Hooks,
        llm::Model,
        session::{
            FrameHub, SessionJob,
            played::{PlayedActivation, key},
        },
    };
    use clawnode_guard::kill_switch::SwitchGate;
    use clawnode_kernel::{driver::EffectRunner, supervise::Supervisor};
    use clawnode_tool::{Available, skill::SkillShelf};

    #[derive(Debug)]
    struct NoModel;

    impl ResolveModel for NoModel {
        fn resolve_model(&self, _: &ModelRef) -> Result<Arc<dyn Model>, ModelFailure> {
            unreachable!("no model is asked")
        }
    }

    /// A runner on a data directory, and a session that has asked for a job, with its journal there.
    async fn runner() -> (tempfile::TempDir, SessionRunner, Job) {
        let dir = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let options = local::LocalOptions::new("cn".parse().unwrap(), Arc::clone(&clock));
        let (storage, _control) = local::open(dir.path(), options).unwrap();
        let (bucket, switch_gate) = (Arc::clone(&storage.bucket), SwitchGate::default());
        let supervisor = Supervisor::spawn().await.unwrap();
        let budgets = HolderHandle::new(ProcessId::from_u128(1), HolderOptions::default());
        let agents =
            Agents::spawn(Vec::new(), bucket, switch_gate, budgets.clone(), supervisor).await;
        let feed = Feed::new(ProcessId::from_u128(1), "n".parse().unwrap(), Arc::clone(&clock));
        let runner = SessionRunner::new(RunnerParts {
            storage,
            agents: agents.unwrap(),
            hooks: Hooks::new(Vec::new(), None),
            models: Arc::new(NoModel),
            available: watch::channel(Available::default()).1,
            job_wait: Duration::from_mins(1),
            peers: watch::channel(Members::default()).1,
            memory: None,
            skills: SkillShelf::default(),
            hub: FrameHub::default(),
            clock,
            link: Arc::new(|_, _| {}),
            feed,
            budgets,
        });
        let mut run = PlayedActivation::new(&[], Vec::new());
        run.says("go");
        run.replies(&[("far", "{\"at\":1}")]);
        let job = run.started.into_iter().find_map(|(_, job)| match job {
            SessionJob::Publish(publish) => Some(publish.job),
            _ => None,
        });
        let mut last = Position(0);
        for record in run.journal {
            let write = Write { bytes: record.bytes, rollup: false };
            let answer = runner.parts.storage.journal.append(key().entity(), last, write).await;
            let AppendAnswer::Stored(at) = answer else { panic!("{answer:?}") };
            last = at;
        }
        // The test's session lives in 1970, and queues drop jobs whose time is over.
        let job = Job { not_after: None, ..job.unwrap() };
        (dir, runner, job)
    }

    async fn waiting(runner: &SessionRunner) -> Vec<JobId> {
        let jobs = runner.parts.storage.jobs.list().await.unwrap();
        jobs.iter().map(|bytes| Job::from_bytes(bytes).unwrap().id).collect()
    }

    /// JOB-8.
    #[tokio::test]
    async fn a_job_is_put_again_only_if_it_neither_waits_nor_has_a_result() {
        let (_dir, runner, job) = runner().await;
        runner.put(&job, true).await.unwrap();
        assert_eq!(waiting(&runner).await, [job.id], "neither the job nor a result was there");
        runner.put(&job, true).await.unwrap();
        assert_eq!(waiting(&runner).await, [job.id], "it waits");
        // It is done: its result is stored, then it leaves the queue.
        let end = ToolEnd::Known { outcome: ToolOutcome::done("did") };
        let result = ToolResult { call: job.call, nonce: job.nonce, end };
        let input = Input::new(
            Kind::SESSION,
            &job.session.to_string(),
            IdempotencyKey::of_job(job.id),
            runner.parts.clock.now(),
            &SessionInput::ToolResult(result),
        );
        runner.parts.storage.inbox.put(&input.unwrap()).await.unwrap();
        let mut consumer = runner.parts.storage.jobs.consume(&job.capability).await.unwrap();
        consumer.next().await.unwrap().handle.ack().await.unwrap();
        while !waiting(&runner).await.is_empty() {
            tokio::task::yield_now().await;
        }
        runner.put(&job, true).await.unwrap();
        assert_eq!(waiting(&runner).await, [], "its result waits");
        runner.put(&job, false).await.unwrap();
        assert_eq!(waiting(&runner).await, [job.id], "a first put does not look");
    }

    #[tokio::test]
    async fn a_job_is_closed_whatever_its_state_says() {
        let (_dir, runner, job) = runner().await;
        let name = job_key(job.id);
        let garbage = Bytes::from_static(b"\xc1 is no state");
        runner.parts.storage.bucket.put(&name, Position(0), garbage, None).await.unwrap();
        assert!(runner.state_of(job.id).await.is_err());
        runner.try_close(key().entity(), job.id).await.unwrap();
        assert_eq!(runner.state_of(job.id).await.unwrap().1, Some(JobState::Closed));
    }

    /// A session that is dropped cannot end its turns. Its jobs are closed all the same.
    #[tokio::test]
    async fn the_jobs_of_a_dropped_session_are_closed() {
        let (_dir, runner, job) = runner().await;
        assert_eq!(runner.state_of(job.id).await.unwrap().1, None);
        EffectRunner::erase(&runner, key().entity(), Vec::new()).await;
        assert_eq!(runner.state_of(job.id).await.unwrap().1, Some(JobState::Closed));
    }
}
