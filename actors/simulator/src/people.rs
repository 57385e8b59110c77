//! People in the simulated world: they are asked, and decide, or do not, or say what is not to the
//! point.

use clawnode_actors::session::{
    Effect,
    turn::prepare::{AskJob, AskStepsJob, TimeJob},
};
use clawnode_kernel::MachineInput;
use clawnode_proto::{
    Digest, IdempotencyKey, Input, Kind, SessionKey, TimerId, Timestamp,
    policy::{Decided, Decision},
    session::{ApprovalDecided, SessionInput},
};
use rand::Rng;

use super::{
    JudgeViolation, Sim, any_machine::ActivationPlace, clients::SimClient, process::PlannedNote,
};

/// People say what they have to say within this, in milliseconds.
const SOON: u64 = 30_000;
/// How long it takes to store a timer, at most, in milliseconds.
const SET_LATE: u64 = 6_000;
/// How late a timer is, or a person, at most.
const LATE: u64 = 20_000;

impl Sim {
    /// A person is asked about a tool call. What they say follows from the call, so that asking
    /// again changes nothing.
    pub(super) fn asked(
        &mut self,
        at: ActivationPlace,
        key: Effect,
        ask: &AskJob,
    ) -> Result<(), JudgeViolation> {
        let approval = &ask.approval;
        let (call, session) = (approval.action.call, approval.action.session.clone());
        if approval.action.digest().ok() != Some(approval.digest) {
            let text = format!("a person is shown another action than they approve of: `{call}`");
            return Err(JudgeViolation::new("APR-2", text));
        }
        let decide = |action, decision| {
            let decided = Decided { decision, by: "sim".to_owned(), reason: None };
            SessionInput::ApprovalDecided(ApprovalDecided { call, action, decided })
        };
        let other = Digest::of(b"another action");
        let chance = call.as_u128() % 10;
        let says = match chance {
            0..=4 => vec![decide(approval.digest, Decision::Approve)],
            5..=6 => vec![decide(approval.digest, Decision::Deny)],
            7 => vec![
                decide(other, Decision::Approve),
                decide(approval.digest, Decision::Deny),
                decide(approval.digest, Decision::Approve),
            ],
            8 => vec![decide(other, Decision::Approve)],
            // No decision, or too late.
            _ => Vec::new(),
        };
        for (number, said) in says.iter().enumerate() {
            self.hears_of(&session, &format!("says-{call}-{number}"), said);
        }
        if chance == 9 {
            // A person who thought about it for too long.
            let late = self.plan.approval_wait + self.world.rng.random_range(0..LATE);
            let approves = decide(approval.digest, Decision::Approve);
            self.hears_after(&session, &format!("says-{call}-late"), &approves, late);
        }
        self.timer(&session, TimerId::of_approval(call), self.plan.approval_wait);
        self.confirms(at, key);
        Ok(())
    }

    /// A person is asked whether a turn shall go on.
    pub(super) fn asked_for_steps(&mut self, at: ActivationPlace, key: Effect, ask: &AskStepsJob) {
        if ask.turn.as_u128().is_multiple_of(3) && ask.limit < 50 {
            let name = format!("continue-{}-{}", ask.turn, ask.limit);
            self.hears_of(&ask.session, &name, &SessionInput::Continue { turn: ask.turn });
        }
        self.timer(&ask.session, ask.timer, SOON);
        self.confirms(at, key);
    }

    /// The timer of a turn's time: when it is due by the world's clock, or, because an owner whose
    /// clock is ahead has set it, before that.
    pub(super) fn timed(&mut self, at: ActivationPlace, key: Effect, time_job: &TimeJob) {
        let ActivationPlace { process: to, entity, counter } = at;
        // Set when that is confirmed: it is lost if the process dies before.
        self.runs(to, entity, counter, key, None);
        let most = if self.world.chance(0.2) { SET_LATE } else { 200 };
        let after = self.world.rng.random_range(1..most);
        let sets = PlannedNote::SetsTimer(entity, counter, key, Box::new(time_job.clone()));
        self.world.later(to, after, sets);
    }

    pub(super) fn sets_timer(
        &mut self,
        at: ActivationPlace,
        key: Effect,
        time_job: &TimeJob,
    ) -> Result<(), JudgeViolation> {
        let ActivationPlace { process: to, entity, counter } = at;
        let process = self.processes.get_mut(&to);
        if process.and_then(|process| process.actor(entity, counter)).is_none() {
            return Ok(());
        }
        let fired = SessionInput::TimerFired { timer: time_job.timer };
        let name = IdempotencyKey::of_timer(time_job.timer);
        let left = time_job.due.0.saturating_sub(self.world.now().0).min(SOON);
        let late = self.world.rng.random_range(0..2_000);
        self.hears_after(&time_job.session, name.as_str(), &fired, left + late);
        self.feed(to, entity, counter, MachineInput::Confirmed(key))
    }

    pub(super) fn confirms(&mut self, at: ActivationPlace, key: Effect) {
        let ActivationPlace { process: to, entity, counter } = at;
        self.runs(to, entity, counter, key, None);
        let after = self.world.rng.random_range(1..200);
        self.world.later(
            to,
            after,
            PlannedNote::Feed(entity, counter, MachineInput::Confirmed(key)),
        );
    }

    /// A timer that is due after so long; by whose clock is chance, and it may come late.
    pub(super) fn timer(&mut self, session: &SessionKey, timer: TimerId, wait: u64) {
        let fired = SessionInput::TimerFired { timer };
        let after = if self.world.chance(0.5) {
            self.world.rng.random_range(10..wait.max(11))
        } else {
            wait + self.world.rng.random_range(0..LATE)
        };
        self.hears_after(session, IdempotencyKey::of_timer(timer).as_str(), &fired, after);
    }

    /// Something is said to a session, some time later, once.
    pub(super) fn hears_of(&mut self, session: &SessionKey, name: &str, body: &SessionInput) {
        let after = self.world.rng.random_range(10..SOON);
        self.hears_after(session, name, body, after);
    }

    /// The same so much later.
    pub(super) fn hears_after(
        &mut self,
        session: &SessionKey,
        name: &str,
        body: &SessionInput,
        after: u64,
    ) {
        let Ok(name) = name.parse::<IdempotencyKey>() else { return };
        let input = Input::new(Kind::SESSION, &session.to_string(), name, Timestamp(0), body);
        let Ok(input) = input else { return };
        self.hears(input, after);
    }

    /// An input comes some time later, once; says whether it is new.
    pub(super) fn hears(&mut self, input: Input, after: u64) -> bool {
        if self.clients.iter().any(|client| client.input.id == input.id) {
            return false;
        }
        self.clients.push(SimClient { after, input, answered: false });
        let client = self.clients.len() - 1;
        self.world.later(super::CLIENTS, after, PlannedNote::Send(client));
        true
    }
}
