//! Jobs that no node took in time: never begun, and not kept for ever.
//!
//! Method: the real store on a clock that the test moves, and the real job machine in place of a
//! runner, whose runs are only counted.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use clawnode_cluster::{Clock, JobDelivery, Storage};
use clawnode_kernel::job_machine::{JobIn, JobMachine, JobOut, Liveness};
use clawnode_local::open;
use clawnode_proto::{
    Position, ProcessId, Timestamp,
    job::{Job, JobState},
    limits::{JOB_AGE_MAX, JOB_CLOSED_TTL},
    subject::job_key,
    tool::{EffectClass, ToolOutcome},
};

use crate::support::{Home, Result, job, options};

const DAY: Duration = Duration::from_hours(24);
/// When the job is asked for, by the test's clock.
const ASKED: Timestamp = Timestamp(1_000_000);

/// Time that the test moves.
#[derive(Debug)]
struct Hand(AtomicU64);

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

impl Hand {
    fn set(&self, after: Duration) {
        self.0.store(ASKED.plus(after).0, Ordering::SeqCst);
    }
}

struct Nobody;

impl Liveness for Nobody {
    fn is_dead(&self, _: ProcessId) -> bool {
        true
    }
}

fn store(home: &Home) -> Result<(Storage, Arc<Hand>)> {
    let clock = Arc::new(Hand(AtomicU64::new(ASKED.0)));
    let mut options = options();
    options.clock = Arc::<Hand>::clone(&clock);
    Ok((open(home.path(), options)?.0, clock))
}

/// A job of class `once` that is asked for at the beginning.
fn once(number: u128) -> Result<Job> {
    let not_after = Some(ASKED.plus(JOB_AGE_MAX));
    Ok(Job { class: EffectClass::Once, not_after, ..job(number)? })
}

/// Takes the job as a runner that has just started does; says whether it ran.
async fn runs(store: &Storage, clock: &Hand, delivery: &JobDelivery) -> Result<bool> {
    let (mut machine, id) = (JobMachine::new(ProcessId::from_u128(9), 0), delivery.job_id);
    let mut inputs = vec![JobIn::Delivered(Box::new(Job::from_bytes(&delivery.bytes)?))];
    let mut ran = false;
    while let Some(input) = inputs.pop() {
        for out in machine.handle(clock.now(), input, &Nobody) {
            inputs.push(match out {
                JobOut::Read { .. } => {
                    let found = store.bucket.get(&job_key(id)).await?;
                    let state = match found {
                        Some(entry) => Some((entry.position, JobState::from_bytes(&entry.value)?)),
                        None => None,
                    };
                    JobIn::Read(id, state)
                }
                JobOut::Set { expected, state, .. } => {
                    let bytes = state.to_bytes()?.into();
                    match store.bucket.put(&job_key(id), expected, bytes, None).await {
                        Ok(position) => JobIn::Stored(id, position),
                        Err(_conflict) => JobIn::Conflict(id),
                    }
                }
                JobOut::Run(_) => {
                    ran = true;
                    JobIn::Ended(id, ToolOutcome::done("did"))
                }
                JobOut::Send(..) => JobIn::Sent(id),
                JobOut::Acknowledge(_) => {
                    delivery.handle.ack().await?;
                    return Ok(ran);
                }
                other => return Err(format!("{other:?}").into()),
            });
        }
    }
    Err("the job was neither run nor acknowledged".into())
}

/// What the session of a job does when no runner takes it, and when the turn has ended.
async fn given_up(store: &Storage, job: &Job) -> Result {
    let (key, revoked) = (job_key(job.id), JobState::Revoked.to_bytes()?);
    let at = store.bucket.put(&key, Position(0), revoked.into(), None).await?;
    let closed = JobState::Closed.to_bytes()?;
    store.bucket.put(&key, at, closed.into(), Some(JOB_CLOSED_TTL)).await?;
    Ok(())
}

/// A host was down, and the session gave the job up; on day 9 the host is back and pulls. By then
/// the state key is forgotten, so only the job itself can tell (JOB-5).
#[tokio::test]
async fn a_job_that_was_called_off_does_not_run_when_its_node_comes_back_late() -> Result {
    for after in [Duration::from_mins(2), DAY, JOB_AGE_MAX + DAY, 9 * DAY, 400 * DAY] {
        let home = Home::new()?;
        let (store, clock) = store(&home)?;
        let job = once(1)?;
        store.jobs.put(&job).await?;
        clock.set(Duration::from_mins(1));
        given_up(&store, &job).await?;
        clock.set(after);
        let mut consumer = store.jobs.consume(&job.capability).await?;
        let delivery = consumer.next().await?;
        assert!(!runs(&store, &clock, &delivery).await?, "it ran after {after:?}");
        assert_eq!(store.jobs.pending(&job.capability).await?, 0, "after {after:?}");
        store.health.close().await;
    }
    Ok(())
}

/// A job whose runner died after its result was stored and before its acknowledgement.
#[tokio::test]
async fn a_job_that_was_done_does_not_run_again_after_its_state_is_forgotten() -> Result {
    let home = Home::new()?;
    let (store, clock) = store(&home)?;
    let job = once(1)?;
    store.jobs.put(&job).await?;
    let mut consumer = store.jobs.consume(&job.capability).await?;
    let delivery = consumer.next().await?;
    assert!(runs(&store, &clock, &delivery).await?, "a job in time runs");
    let done = store.bucket.get(&job_key(job.id)).await?.ok_or("its state")?;
    let closed = JobState::Closed.to_bytes()?;
    store.bucket.put(&job_key(job.id), done.position, closed.into(), Some(JOB_CLOSED_TTL)).await?;
    // As if the acknowledgement had been lost.
    store.jobs.put(&job).await?;
    clock.set(8 * DAY);
    let delivery = consumer.next().await?;
    assert!(!runs(&store, &clock, &delivery).await?);
    store.health.close().await;
    Ok(())
}

/// No runner has the capability: a job goes once it is too old, and nothing else does.
#[tokio::test]
async fn jobs_that_nobody_can_do_go_once_they_are_too_old() -> Result {
    let home = Home::new()?;
    let (first, clock) = store(&home)?;
    // One of an older build, which says nothing about its age, is left alone.
    first.jobs.put(&job(1)?).await?;
    for number in 2..=200 {
        first.jobs.put(&once(number)?).await?;
    }
    let young = Job { not_after: Some(ASKED.plus(2 * JOB_AGE_MAX)), ..once(201)? };
    first.jobs.put(&young).await?;
    clock.set(JOB_AGE_MAX);
    assert_eq!(first.jobs.list().await?.len(), 201, "in time to the last moment");
    clock.set(JOB_AGE_MAX + Duration::from_secs(1));
    let left = |all: Vec<bytes::Bytes>| {
        all.iter().map(|bytes| Ok(Job::from_bytes(bytes)?.id)).collect::<Result<Vec<_>>>()
    };
    let kept = vec![job(1)?.id, young.id];
    assert_eq!(left(first.jobs.list().await?)?, kept);
    // Also after a restart.
    first.health.close().await;
    let (again, clock) = store(&home)?;
    clock.set(JOB_AGE_MAX + Duration::from_secs(2));
    assert_eq!(left(again.jobs.list().await?)?, kept);
    again.health.close().await;
    Ok(())
}
