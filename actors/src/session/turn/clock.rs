//! The time that a turn has had: pure, by the time of events alone.
//!
//! It runs from the moment at which the turn's first model call is begun: what a message waits for
//! before that (messages before it, the agent's places, a stop) is no time of its turn. It stops
//! while a person is waited for, about a tool call or about more steps, or a client that runs
//! tools, while no provider is available, and while a call that was ended for a more urgent one waits to be
//! made again. Whatever else happens counts, the outage of a node among it.
//!
//! Invariant
//! - TIME-1 a turn ends by its time only after so much of it, by the time of events.

use std::time::Duration;

use clawnode_proto::{
    CallId, TimerId, Timestamp, TurnId,
    session::TurnOutcome,
    timeout::{TimeLevel, TimeLimit, TurnTime},
};
use serde::{Deserialize, Serialize};

use super::{
    state::{SessionState, Step, Turn},
    tools::tool_calls::ToolCall,
};

/// How much later than the time itself its timer is: a run ends by its own limit, and what it has
/// said until then is kept. The timer is for what does not end.
const SLACK: Duration = Duration::from_secs(5);
/// The longest that a timer is set for later, which came too early by the clock of who was woken.
const EARLY_MOST: Duration = Duration::from_mins(1);

/// The time that a turn has had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnClock {
    /// When its first model call was begun.
    begun: Option<Timestamp>,
    /// The last event, from the first call on.
    seen: Timestamp,
    /// Since when a person is waited for.
    waits: Option<Timestamp>,
    /// How long people were waited for before, in milliseconds.
    waited_ms: u64,
    /// How many of its timers have fired.
    fired: u32,
}

// === impl TurnClock ===

impl TurnClock {
    /// An event at this time, after which a person is waited for, or is not.
    pub(crate) fn see(&mut self, now: Timestamp, waits: bool) {
        if self.begun.is_none() {
            return;
        }
        self.seen = self.seen.max(now);
        match (self.waits, waits) {
            (None, true) => self.waits = Some(self.seen),
            (Some(since), false) => {
                self.waited_ms = self.waited_ms.saturating_add(self.seen.0 - since.0);
                self.waits = None;
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    /// A model call is begun.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        if self.begun.is_none() {
            self.begun = Some(now);
            self.seen = now;
        }
    }

    /// When the first model call was begun.
    pub const fn begun(&self) -> Option<Timestamp> {
        self.begun
    }

    /// When the last event was.
    pub(in crate::session) const fn seen(&self) -> Timestamp {
        self.seen
    }

    /// What the turn has had by the last event, in milliseconds.
    pub(crate) fn spent_ms(&self) -> u64 {
        let Some(begun) = self.begun else { return 0 };
        let until = self.waits.unwrap_or(self.seen);
        until.0.saturating_sub(begun.0).saturating_sub(self.waited_ms)
    }

    /// When it will have had so much, if it waits for no person any more.
    fn due(&self, spent_ms: u64) -> Option<Timestamp> {
        let begun = self.begun.filter(|_| self.waits.is_none())?;
        Some(Timestamp(begun.0.saturating_add(self.waited_ms).saturating_add(spent_ms)))
    }
}

// === impl ToolCall ===

impl ToolCall {
    /// Whether a person or its client is waited for.
    pub(crate) fn is_with_others(&self) -> bool {
        self.is_asked_about() || self.is_with_client()
    }
}

// === impl Turn ===

impl Turn {
    /// Whether a person, its client or a provider is waited for.
    fn waits_for_others(&self) -> bool {
        let mut tools = self.steps.iter().flat_map(|step| &step.tools);
        self.is_held_up() || tools.any(ToolCall::is_with_others)
    }

    /// Whether its next call waits: for a provider, after a more urgent call, or for a person to allow more steps.
    pub(crate) fn is_held_up(&self) -> bool {
        self.waits_for_provider().is_some()
            || self.steps.last().is_some_and(Step::waits_after_yielding)
            || self.limit_reached.is_some_and(|reached| !reached.overdue)
    }

    /// An event at this time; what follows is judged by it.
    pub(in crate::session) fn see(&mut self, now: Timestamp) {
        let waits = self.waits_for_others();
        self.clock.see(now, waits);
    }

    /// A timer has come that is about its time, if it is this one.
    pub(in crate::session) fn fired(&mut self, timer: TimerId) {
        if self.time_timer(self.clock.fired) == timer {
            self.clock.fired = self.clock.fired.saturating_add(1);
        }
    }

    /// What it and its last step have had, in milliseconds.
    fn spent(&self) -> (u64, u64) {
        let spent = self.clock.spent_ms();
        let of_step = match self.steps.last() {
            Some(step) if !step.is_over() => spent.saturating_sub(step.begun_ms),
            Some(_) | None => 0,
        };
        (spent, of_step)
    }

    /// What is left of the limits that hold for it and its last step.
    pub(in crate::session) fn left(&self, time: TurnTime, agent: &str) -> Vec<TimeLimit> {
        let (spent, of_step) = self.spent();
        time.left(agent, spent, of_step)
    }

    fn is_out_of_time(&self, time: TurnTime) -> bool {
        let (spent, of_step) = self.spent();
        time.is_over(spent, of_step)
    }

    /// The timer of its time, while that may have to wake its session.
    pub(in crate::session) fn timer(&self, time: TurnTime) -> Option<(u32, Timestamp)> {
        let step = self.steps.last()?;
        let global = (time.global_ms > 0).then_some(u64::from(time.global_ms));
        let own = (time.step_ms > 0).then(|| step.begun_ms.saturating_add(u64::from(time.step_ms)));
        let due = self.clock.due(global.into_iter().chain(own).min()?)?;
        // One that came too early, by the clock of who was woken, is set again for a bit later.
        let early = match self.clock.fired {
            0 => Duration::ZERO,
            fired => Duration::from_secs(1 << (fired - 1).min(6)).min(EARLY_MOST),
        };
        Some((self.clock.fired, due.plus(SLACK + early)))
    }

    /// The timer that may still be set for it.
    pub(in crate::session) fn last_timer(&self) -> Option<(TurnId, TimerId)> {
        let mut tools = self.steps.iter().flat_map(|step| &step.tools);
        tools.any(|tool| tool.job().is_some()).then(|| (self.id, self.time_timer(self.clock.fired)))
    }

    /// The timer of its time after so many have fired.
    pub(super) fn time_timer(&self, fired: u32) -> TimerId {
        TimerId::of_time(self.timers(), fired)
    }
}

// === impl SessionState ===

impl SessionState {
    /// The limits of the running turn that are over.
    fn over(&self) -> impl Iterator<Item = TimeLimit> {
        // Asked at each event, and seldom so: limits name where they are set.
        let over = self.running().zip(self.profile.as_ref());
        let over = over.filter(|(turn, profile)| turn.is_out_of_time(profile.time));
        let left = over.map(|(turn, profile)| turn.left(profile.time, profile.agent.as_str()));
        left.into_iter().flatten().filter(|limit| limit.left_ms == 0)
    }

    /// How the running turn ends, if its time is over.
    pub(in crate::session) fn timed_out(&self) -> Option<TurnOutcome> {
        let limit = self.over().find(|limit| limit.level == TimeLevel::Global)?;
        Some(TurnOutcome::TimedOut { level: limit.level, detail: limit.to_string() })
    }

    /// The limit that ends what runs of the last step, if its time is over.
    pub(in crate::session) fn step_over(&self) -> Option<TimeLimit> {
        TimeLimit::least(self.over())
    }

    /// An event at this time. Jobs of a step whose time is over are brought to an end.
    pub(in crate::session) fn see(&mut self, now: Timestamp) {
        if let Some(turn) = self.open.front_mut() {
            turn.see(now);
        }
        let Some(over) = self.step_over() else { return };
        let Some(step) = self.open.front_mut().and_then(|turn| turn.steps.last_mut()) else {
            return;
        };
        let ends =
            |tool: &&mut ToolCall| tool.is_open() && tool.late.is_none() && !tool.is_of_client();
        for tool in step.tools.iter_mut().filter(ends) {
            tool.overdue = true;
            tool.late = Some(over.clone());
        }
    }

    /// What is left for a model call of the running turn, which is a new one or has been begun before.
    pub(in crate::session) fn left_for(
        &self,
        call: CallId,
        time: TurnTime,
        agent: &str,
    ) -> Option<TimeLimit> {
        let turn = self.running()?;
        let left = match turn.steps.last() {
            Some(step) if step.call == call => turn.left(time, agent),
            Some(_) | None => time.left(agent, turn.clock.spent_ms(), 0),
        };
        TimeLimit::least(left)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clawnode_proto::{
        hook::HookTrail,
        session::{SessionInput, ToolEnd},
        tool::ToolOutcome,
    };
    use proptest::prelude::*;

    use super::*;
    use crate::session::{Outcome, SessionJob, played::PlayedActivation};
    use clawnode_kernel::MachineInput;

    /// A job that hangs on its runner is stopped once the time of its step is over, though its
    /// session waits for it since no runner took it in time.
    #[test]
    fn what_is_waited_for_is_stopped_when_its_time_is_over() {
        let mut run = PlayedActivation::new(&[], Vec::new());
        Arc::make_mut(&mut run.grant.profile).time = TurnTime { global_ms: 0, step_ms: 10_000 };
        run.says("go");
        run.replies(&[("far", r#"{"at":1}"#)]);
        let call = run.started.iter().find_map(|(_, job)| match job {
            SessionJob::Publish(publish) => Some(publish.job.call),
            _ => None,
        });
        let timer = TimerId::from(call.unwrap());
        run.hears("wait", &SessionInput::TimerFired { timer });
        // Who takes over sets the timer again.
        let mut run = PlayedActivation::new(&[], run.journal.clone());
        let timer = run.started.iter().find_map(|(_, job)| match job {
            SessionJob::Time(time_job) => Some(time_job.timer),
            _ => None,
        });
        let is_late = |job: &SessionJob| match job {
            SessionJob::Settle(settle) => settle.late.is_some(),
            other => panic!("{other:?}"),
        };
        let (waits, job) = run.started.pop().unwrap();
        assert!(!is_late(&job));
        run.now.wall = Timestamp(60_000);
        run.hears("time", &SessionInput::TimerFired { timer: timer.unwrap() });
        let (stops, job) = run.started.pop().unwrap();
        assert!(is_late(&job), "it is stopped");
        // Both hear how it ends; it has ended once.
        let ends = |key| {
            let end = ToolEnd::Known { outcome: ToolOutcome::done("did") };
            MachineInput::Ended(key, Outcome::Tool(end, HookTrail::default()))
        };
        run.feed(ends(stops));
        run.feed(ends(waits));
        let ended = run.appends.concat().iter().filter(|kind| **kind == "tool_done").count();
        assert_eq!(ended, 1);
    }

    proptest! {
        /// TIME-1: what is counted is all but the waits, whatever the clocks of the writers do.
        #[test]
        fn all_counts_but_the_waits_for_people(
            begun in 0_u64..1_000,
            events in proptest::collection::vec((0_u64..100, any::<bool>()), 0..40),
        ) {
            let mut clock = TurnClock::default();
            clock.see(Timestamp(begun / 2), false);
            prop_assert_eq!(clock.spent_ms(), 0);
            clock.begin(Timestamp(begun));
            let (mut now, mut spent, mut waiting) = (begun, 0, false);
            for (after, waits) in events {
                now += after;
                spent += if waiting { 0 } else { after };
                waiting = waits;
                clock.see(Timestamp(now), waits);
                prop_assert_eq!(clock.spent_ms(), spent);
                // An event of a clock that is behind takes nothing back.
                clock.see(Timestamp(begun), waits);
                prop_assert_eq!(clock.spent_ms(), spent);
                let due = clock.due(spent + 7);
                prop_assert_eq!(due, (!waits).then_some(Timestamp(now + 7)));
            }
        }
    }
}
