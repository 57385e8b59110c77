//! How the run of a tool ends that an operator stops (`panic`), that is cancelled, or whose time is over. Pure.
//!
//! An operator stops any run. So a tool of class `once` or `check` that was stopped half-way is uncertain: it is unknown
//! what it has done.

use std::time::Duration;

use clawnode_guard::kill_switch::WorkStopped;
use clawnode_proto::{
    session::ToolEnd,
    timeout::TimeLimit,
    tool::{EffectClass, ToolFailure, ToolOutcome},
};

/// How long an executor that was asked to stop may take to clean up.
const GRACE: Duration = Duration::from_secs(5);
/// The same where an operator stopped it, who waits to hear that it is dead.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// Why a run is stopped.
#[derive(Clone, Debug)]
pub(super) enum RunStop {
    TimedOut(Duration, Option<TimeLimit>),
    Cancelled,
    Stopped(WorkStopped),
}

// === impl RunStop ===

impl RunStop {
    pub(super) const fn grace(&self) -> Duration {
        match self {
            Self::Stopped(_) => STOP_GRACE,
            Self::TimedOut(..) | Self::Cancelled => GRACE,
        }
    }

    const fn failure(&self) -> ToolFailure {
        match self {
            Self::TimedOut(..) => ToolFailure::TimedOut,
            Self::Cancelled | Self::Stopped(_) => ToolFailure::Cancelled,
        }
    }

    /// What is known of a run that was stopped and ended so. An operator stops any run, so it is
    /// unknown whether this tool may be stopped half-way.
    pub(super) fn end(&self, class: EffectClass, outcome: ToolOutcome) -> ToolEnd {
        let outcome = self.settle(outcome);
        let unknown =
            matches!(outcome.failure, Some(ToolFailure::Cancelled | ToolFailure::Crashed));
        match (self, class) {
            (Self::Stopped(why), EffectClass::Once | EffectClass::Check) if unknown => {
                ToolEnd::Uncertain { detail: format!("it was stopped while it ran: {why}") }
            }
            _ => ToolEnd::Known { outcome },
        }
    }

    pub(super) fn outcome(&self) -> ToolOutcome {
        let why = match self {
            Self::TimedOut(longest, limit) => {
                let said = format!("stopped: it ran longer than {} s", longest.as_secs_f64());
                limit.as_ref().map_or_else(|| said.clone(), |limit| format!("{said}: {limit}"))
            }
            Self::Cancelled => "stopped: the call was cancelled".to_owned(),
            Self::Stopped(why) => format!("stopped while it ran: {why}"),
        };
        ToolOutcome::failed(self.failure(), why)
    }

    /// What an outcome means that came after the executor was asked to stop. An outcome that says
    /// how the call ended counts; "cancelled" only repeats the request.
    fn settle(&self, outcome: ToolOutcome) -> ToolOutcome {
        match outcome.failure {
            Some(ToolFailure::Cancelled) if outcome.content.bytes() == 0 => self.outcome(),
            Some(ToolFailure::Cancelled) => {
                ToolOutcome { failure: Some(self.failure()), ..outcome }
            }
            _ => outcome,
        }
    }
}
