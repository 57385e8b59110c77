//! How a job is given away, and what becomes of one whose wait is over or whose turn has ended: pure,
//! decided by what the stores say of it.

use std::time::Duration;

use clawnode_proto::{
    IdempotencyKey, InputId, ProcessId,
    job::{Job, JobState},
    session::ToolEnd,
    tool::{ToolFailure, ToolOutcome},
};

use super::prepare::SettleJob;
#[cfg(feature = "test-util")]
use clawnode_kernel::KernelBug;

/// One step of putting a job into its queue (JOB-8).
///
/// A job that may have been put before is looked for first, in this order. A job leaves its queue only
/// after its result was stored. A result leaves the inbox only after its session has recorded it, and
/// the session then aborts the put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveStep {
    /// Whether it waits in its queue.
    Waits,
    /// Whether its result waits in the inbox of its session.
    Result,
    /// To store it.
    Put,
}

/// What to do about a job whose wait is over.
#[derive(Clone, Debug, PartialEq)]
pub enum Settling {
    /// A process that is alive runs it: look again later. If it is late, tell the process to stop.
    Wait {
        /// The process that has to stop.
        cancel: Option<ProcessId>,
    },
    /// Set its state to this, at the position at which it was read; if that succeeds, it has ended so.
    Set(JobState, ToolEnd),
    /// It has ended so.
    Ended(ToolEnd),
}

/// What to do about a job whose turn has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Nothing: it is closed.
    Closed,
    /// Set its state to `closed`, at the position at which it was read.
    Set {
        /// The process that runs it and has to stop.
        cancel: Option<ProcessId>,
    },
}

// === impl GiveStep ===

impl GiveStep {
    /// The first step. `again`: the job may have been put before.
    pub const fn first(again: bool) -> Self {
        if again { Self::Waits } else { Self::Put }
    }

    /// The next step after this one has found the job, or has not; `None` when nothing is left to do.
    pub const fn after(self, found: bool) -> Option<Self> {
        match (self, found) {
            (Self::Waits, false) => Some(Self::Result),
            (Self::Result, false) => Some(Self::Put),
            (Self::Waits | Self::Result, true) | (Self::Put, _) => None,
        }
    }

    /// Whether the result of a job is among these inputs of its session.
    pub fn has_result(job: &Job, mut inputs: impl Iterator<Item = InputId>) -> bool {
        let key = IdempotencyKey::of_job(job.id);
        let result = InputId::derive(job.session.entity(), &key);
        inputs.any(|input| input == result)
    }
}

/// Decides about a job whose wait of `wait` is over and whose state is this. No runner may begin it
/// afterwards, and what may have happened is never said not to have happened.
pub fn settling(
    settle: &SettleJob,
    state: Option<JobState>,
    wait: Duration,
    is_dead: impl Fn(ProcessId) -> bool,
) -> Settling {
    let job = &settle.job;
    let is_repeatable = job.class.is_repeatable();
    #[cfg(feature = "test-util")]
    let is_repeatable = is_repeatable || KernelBug::DeniesWhatBegan.is_in_folds();
    let not_begun = |by: Option<ProcessId>| {
        let outcome = match &settle.late {
            Some(late) => {
                let why = format!("no node started the call: {late}");
                ToolOutcome::failed(ToolFailure::TimedOut, why)
            }
            None => ToolOutcome::failed(ToolFailure::Unavailable, untaken(job, by, wait)),
        };
        ToolEnd::Known { outcome }
    };
    match state {
        Some(JobState::Started { process, .. }) if !is_dead(process) => {
            Settling::Wait { cancel: settle.late.is_some().then_some(process) }
        }
        // Of one with a probe, no worker was there to probe.
        Some(JobState::Started { process, .. }) if !is_repeatable => {
            let detail = died(process);
            Settling::Set(
                JobState::Uncertain { detail: detail.clone() },
                ToolEnd::Uncertain { detail },
            )
        }
        Some(JobState::Started { process, .. }) => {
            Settling::Set(JobState::Revoked, not_begun(Some(process)))
        }
        None => Settling::Set(JobState::Revoked, not_begun(None)),
        Some(JobState::Done { outcome }) => Settling::Ended(ToolEnd::Known { outcome }),
        Some(JobState::Uncertain { detail }) => Settling::Ended(ToolEnd::Uncertain { detail }),
        Some(JobState::Revoked) => Settling::Ended(not_begun(None)),
        // The jobs of a turn are closed when it has ended, or with its session. So this one is of a turn before the
        // deletion of the session: earlier builds gave the same ids again. What that turn did is not known here.
        Some(JobState::Closed) => Settling::Ended(ToolEnd::Uncertain { detail: closed(job) }),
    }
}

/// Decides about a job whose turn has ended and whose state is this.
pub fn closing(state: Option<&JobState>) -> Closing {
    #[cfg(feature = "test-util")]
    if KernelBug::ClosesNothing.is_in_folds() {
        return Closing::Closed;
    }
    match state {
        Some(JobState::Closed) => Closing::Closed,
        Some(JobState::Started { process, .. }) => Closing::Set { cancel: Some(*process) },
        _ => Closing::Set { cancel: None },
    }
}

/// What is known of a job of class `once` with this state, if the process that ran it is dead: its
/// session need not wait longer to be told.
pub fn given_up(state: &JobState, is_dead: impl Fn(ProcessId) -> bool) -> Option<String> {
    match state {
        JobState::Started { process, .. } if is_dead(*process) => Some(died(*process)),
        _ => None,
    }
}

fn died(process: ProcessId) -> String {
    format!("the process that ran it, `{process}`, died")
}

fn closed(job: &Job) -> String {
    let tool = &job.tool;
    format!("an earlier call of `{tool}` with the same id was closed when its session was deleted")
}

/// Why a call was not run whose wait for a node is over; `began` had it, and died.
fn untaken(job: &Job, began: Option<ProcessId>, wait: Duration) -> String {
    let (capability, tool, wait) = (&job.capability, &job.tool, wait.as_secs_f64());
    let what = match began {
        None => format!("no node with `{capability}` took the call of `{tool}`"),
        Some(process) => format!(
            "the process that ran the call of `{tool}`, `{process}`, died, and no other node with \
             `{capability}` took it"
        ),
    };
    let takes = capability.takes().map(|takes| format!("; the call needs a worker with {takes}"));
    format!(
        "{what} within {wait} s{} (`clawnode providers` shows what each node has, and what is \
         wrong)",
        takes.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        CallId, EventId, JobId, Timestamp, TurnId,
        timeout::{TimeLimit, ToolTime},
        tool::EffectClass,
    };

    use super::*;

    const DEAD: ProcessId = ProcessId::from_u128(1);
    const ALIVE: ProcessId = ProcessId::from_u128(2);

    fn job(class: EffectClass) -> Job {
        Job {
            id: JobId::from_u128(1),
            capability: "ssh.db1".parse().unwrap(),
            session: "a:cli:local:p".parse().unwrap(),
            turn: TurnId::from_u128(1),
            call: CallId::from_u128(1),
            nonce: EventId::from_u128(1),
            tool: "ssh_db1".parse().unwrap(),
            arguments: "{}".to_owned(),
            class,
            timeout_ms: 1_000,
            limit: None,
            action: None,
            callbacks: None,
            traceparent: None,
            not_after: None,
        }
    }

    fn started(process: ProcessId) -> JobState {
        JobState::Started { process, run: 1, attempt: 1, at: Timestamp(1) }
    }

    fn settled(class: EffectClass, late: Option<TimeLimit>, state: Option<JobState>) -> Settling {
        let settle = SettleJob { job: job(class), late, after: Vec::new() };
        settling(&settle, state, Duration::from_mins(1), |process| process == DEAD)
    }

    /// What may have happened is never said not to have happened, and no runner may begin what is said
    /// not to have happened.
    #[test]
    fn what_is_said_of_a_job_follows_from_its_state() {
        let late = || Some(ToolTime::of_tool("t", 1_000).limit(None, Vec::new()));
        for class in [EffectClass::Safe, EffectClass::Check, EffectClass::Once] {
            let unheld = settled(class, None, None);
            let Settling::Set(JobState::Revoked, ToolEnd::Known { outcome }) = unheld else {
                panic!("{unheld:?}")
            };
            assert_eq!(outcome.failure, Some(ToolFailure::Unavailable));
            let too_late = settled(class, late(), None);
            let Settling::Set(JobState::Revoked, ToolEnd::Known { outcome }) = too_late else {
                panic!("{too_late:?}")
            };
            assert_eq!(outcome.failure, Some(ToolFailure::TimedOut));
            let runs = settled(class, None, Some(started(ALIVE)));
            assert_eq!(runs, Settling::Wait { cancel: None });
            let runs_late = settled(class, late(), Some(started(ALIVE)));
            assert_eq!(runs_late, Settling::Wait { cancel: Some(ALIVE) });
            let died = settled(class, None, Some(started(DEAD)));
            match died {
                Settling::Set(JobState::Revoked, ToolEnd::Known { .. }) => {
                    assert_eq!(class, EffectClass::Safe, "it may have happened");
                }
                Settling::Set(JobState::Uncertain { .. }, ToolEnd::Uncertain { .. }) => {
                    assert_ne!(class, EffectClass::Safe);
                }
                other => panic!("{other:?}"),
            }
            let closed = settled(class, None, Some(JobState::Closed));
            assert!(matches!(closed, Settling::Ended(ToolEnd::Uncertain { .. })), "{closed:?}");
            let revoked = settled(class, None, Some(JobState::Revoked));
            let Settling::Ended(ToolEnd::Known { outcome }) = revoked else {
                panic!("{revoked:?}")
            };
            assert_eq!(outcome.failure, Some(ToolFailure::Unavailable));
            let outcome = ToolOutcome::done("did");
            let done = settled(class, None, Some(JobState::Done { outcome: outcome.clone() }));
            assert_eq!(done, Settling::Ended(ToolEnd::Known { outcome }));
        }
    }

    #[test]
    fn who_runs_what_nobody_waits_for_is_told_to_stop() {
        assert_eq!(closing(None), Closing::Set { cancel: None });
        assert_eq!(closing(Some(&started(ALIVE))), Closing::Set { cancel: Some(ALIVE) });
        assert_eq!(closing(Some(&JobState::Revoked)), Closing::Set { cancel: None });
        assert_eq!(closing(Some(&JobState::Closed)), Closing::Closed);
    }

    #[test]
    fn who_waited_in_vain_is_told_what_is_missing() {
        let mut job = job(EffectClass::Once);
        let why = untaken(&job, None, Duration::from_mins(1));
        assert!(why.starts_with("no node with `ssh.db1` took the call of `ssh_db1` within 60 s"));
        assert!(why.contains("`db1` among its `[[ssh_hosts]]`"), "{why}");
        job.capability = "docker".parse().unwrap();
        let process = ProcessId::from_u128(7);
        let why = untaken(&job, Some(process), Duration::from_secs(1));
        assert!(why.contains(&format!("`{process}`, died, and no other node with `docker`")));
        assert!(why.contains("a Docker engine that answers"), "{why}");
        // What all workers can takes nothing.
        job.capability = "egress".parse().unwrap();
        assert!(!untaken(&job, None, Duration::from_secs(1)).contains("the call needs"));
    }
}
