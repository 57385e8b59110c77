//! Inputs and outputs of the job machine, and what it asks about the world.

use std::time::Duration;

use clawnode_proto::{
    JobId, Position, ProcessId,
    job::{Job, JobState},
    session::ToolEnd,
    tool::ToolOutcome,
};
use serde_json::Value;

/// What the machine asks about the world to judge a state.
pub trait Liveness {
    /// Whether this process is held dead.
    fn is_dead(&self, process: ProcessId) -> bool;
}

/// An input of the job machine.
#[derive(Debug)]
pub enum JobIn {
    /// A job was delivered. The driver holds its handle; a handle for the same job replaces it.
    Delivered(Box<Job>),
    /// The state key, as asked by [`JobOut::Read`].
    Read(JobId, Option<(Position, JobState)>),
    /// The state key could not be read, or it is unknown whether it was set.
    Unknown(JobId),
    /// The state key was set, as asked by [`JobOut::Set`].
    Stored(JobId, Position),
    /// Another process has changed the state key.
    Conflict(JobId),
    /// The time that [`JobOut::Watch`] asked for is over.
    Lasts(JobId),
    /// A run has ended, as asked by [`JobOut::Run`].
    Ended(JobId, ToolOutcome),
    /// The result of the probe that [`JobOut::Probe`] asked for: how the job ended, that it did not
    /// happen, or that it cannot be known.
    Probed(JobId, Probe),
    /// The result is in the session's inbox, as asked by [`JobOut::Send`].
    Sent(JobId),
    /// The job shall not run on.
    Cancel(JobId),
}

/// What a probe has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It happened, with this outcome.
    Happened(ToolOutcome),
    /// It did not happen.
    Absent,
    /// It cannot be known; what is known about it.
    Unclear(String),
}

impl Probe {
    /// Reads the answer of a probe that is a tool: a JSON object with the boolean `happened`. If that is
    /// `true`, the earlier result is the text `result`, or else the whole answer.
    pub fn told(answer: Option<&Value>, whole: impl FnOnce() -> ToolOutcome) -> Self {
        match answer.and_then(|answer| answer.get("happened")) {
            Some(Value::Bool(false)) => Self::Absent,
            Some(Value::Bool(true)) => {
                let result = answer.and_then(|answer| answer.get("result")?.as_str());
                Self::Happened(result.map_or_else(whole, ToolOutcome::done))
            }
            _ => Self::Unclear("its probe did not answer with `happened`".to_owned()),
        }
    }
}

/// An output of the job machine: work for its driver.
#[derive(Debug, PartialEq)]
pub enum JobOut {
    /// Read the state key, after a wait.
    Read {
        job: JobId,
        /// How long to wait before.
        wait: Duration,
    },
    /// Set the state key if it is at `expected` (0: absent).
    Set { job: JobId, expected: Position, state: JobState },
    /// Run it, once; answer `Ended`.
    Run(Box<Job>),
    /// Answer `Lasts` after this time.
    Watch {
        job: JobId,
        /// How long it may run unwritten.
        after: Duration,
    },
    /// Find out whether it has happened; answer `Probed`.
    Probe(Box<Job>),
    /// Abort its run; it still answers `Ended`.
    Abort(JobId),
    /// Store this in the session's inbox, until it is there; answer `Sent`.
    Send(Box<Job>, ToolEnd),
    /// The job is done with: acknowledge its delivery.
    Acknowledge(JobId),
    /// Not now: give its delivery back for this long.
    GiveBack {
        job: JobId,
        /// For how long.
        delay: Duration,
    },
}
