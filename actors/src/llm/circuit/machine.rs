//! The circuit of one provider: pure, time is an argument.
//!
//! An attempt asks for a [`CircuitTicket`] and tells what became of it. Tickets from before the last change
//! of state have no say any more, so an old call that fails late opens nothing. A reply that has begun proves nothing
//! yet: a provider that breaks off each of its replies is as good as down.

use std::{collections::VecDeque, time::Duration};

use clawnode_proto::{Timestamp, circuit::CircuitState};

/// Failures that open a circuit. A whole reply in between takes one back, so that a provider that mostly
/// works stays in use.
const FAILURES: usize = 5;
/// How long a failure counts.
const WINDOW: Duration = Duration::from_secs(30);
/// How long a circuit is open at first; it doubles each time that the trial fails.
const OPEN_FIRST: Duration = Duration::from_secs(10);
/// The longest that it is open unless the provider says when.
const OPEN_MOST: Duration = Duration::from_mins(5);
/// The shortest and the longest wait that a provider may ask for: less would not be a pause, and
/// after an hour one call costs little.
pub(super) const ASKED_LEAST: Duration = Duration::from_secs(1);
pub(super) const ASKED_MOST: Duration = Duration::from_hours(1);
/// When to ask again while a trial is under way: most answer sooner.
const TRIAL_WAIT: Duration = Duration::from_secs(2);

/// The circuit of one provider.
#[derive(Clone, Debug)]
pub struct Circuit {
    state: State,
    /// Counts changes of state.
    era: u64,
    since: Timestamp,
    /// The latest time that it has seen; time never goes back here.
    now: Timestamp,
    /// At most [`FAILURES`], the oldest first.
    failures: VecDeque<Timestamp>,
    /// How often it opened without a whole reply in between.
    opened: u32,
}

/// Permission for one attempt.
#[derive(Debug, PartialEq, Eq)]
pub struct CircuitTicket {
    era: u64,
    /// The trial of a half-open circuit. If it fails, the circuit opens, also if its reply had begun.
    is_trial: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open { until: Timestamp },
    HalfOpen { is_tried: bool },
}

// === impl Circuit ===

impl Circuit {
    /// A closed one.
    pub const fn new(now: Timestamp) -> Self {
        Self { state: State::Closed, era: 0, since: now, now, failures: VecDeque::new(), opened: 0 }
    }

    /// Its state now, and since when.
    pub fn state(&mut self, now: Timestamp) -> (CircuitState, Timestamp) {
        self.advance(now);
        let state = match self.state {
            State::Closed => CircuitState::Closed,
            State::Open { .. } => CircuitState::Open,
            State::HalfOpen { .. } => CircuitState::HalfOpen,
        };
        (state, self.since)
    }

    /// How long no call is permitted; nothing if one is.
    pub fn refuses(&mut self, now: Timestamp) -> Option<Duration> {
        self.advance(now);
        match self.state {
            State::Closed | State::HalfOpen { is_tried: false } => None,
            State::Open { until } => Some(until.since(self.now)),
            State::HalfOpen { is_tried: true } => Some(TRIAL_WAIT),
        }
    }

    /// Permits an attempt, or says how long to wait before one may be permitted.
    pub fn admit(&mut self, now: Timestamp) -> Result<CircuitTicket, Duration> {
        if let Some(wait) = self.refuses(now) {
            return Err(wait);
        }
        let mut is_trial = false;
        if let State::HalfOpen { is_tried } = &mut self.state {
            debug_assert!(!*is_tried, "CIRC-1");
            *is_tried = true;
            is_trial = true;
        }
        Ok(CircuitTicket { era: self.era, is_trial })
    }

    /// The provider has begun a reply, which may take minutes: other calls need not wait for the end of a trial. The
    /// ticket stays valid, for the reply may still break off.
    pub fn begun(&mut self, ticket: &mut CircuitTicket, now: Timestamp) {
        self.advance(now);
        if ticket.era == self.era && matches!(self.state, State::HalfOpen { .. }) {
            self.failures.clear();
            self.become_state(State::Closed);
            ticket.era = self.era;
        }
    }

    /// The provider has answered; the reply is whole.
    pub fn answered(&mut self, mut ticket: CircuitTicket, now: Timestamp) {
        self.begun(&mut ticket, now);
        if ticket.era == self.era {
            self.failures.pop_front();
            self.opened = 0;
        }
    }

    /// The attempt failed, and the provider `asked` to wait. Says whether the circuit opened.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket ends once")]
    pub fn failed(
        &mut self,
        ticket: CircuitTicket,
        asked: Option<Duration>,
        now: Timestamp,
    ) -> bool {
        self.advance(now);
        if ticket.era != self.era {
            return false;
        }
        if self.state == State::Closed && !ticket.is_trial {
            while self.failures.len() >= FAILURES {
                self.failures.pop_front();
            }
            self.failures.push_back(self.now);
            let recent = |at: &&Timestamp| self.now.since(**at) <= WINDOW;
            if self.failures.iter().filter(recent).count() < FAILURES {
                return false;
            }
        }
        let own = OPEN_FIRST.saturating_mul(1 << self.opened.min(8)).min(OPEN_MOST);
        let length = asked.map_or(own, |asked| asked.clamp(ASKED_LEAST, ASKED_MOST));
        self.opened = self.opened.saturating_add(1);
        self.become_state(State::Open { until: self.now.plus(length) });
        true
    }

    /// The provider can be reached again: an open circuit becomes half-open before its time. Says whether it
    /// did.
    pub fn half_open(&mut self, now: Timestamp) -> bool {
        self.advance(now);
        let is_open = matches!(self.state, State::Open { .. });
        if is_open {
            self.become_state(State::HalfOpen { is_tried: false });
        }
        is_open
    }

    /// The attempt ended without a verdict on the provider.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket ends once")]
    pub fn gave_up(&mut self, ticket: CircuitTicket, now: Timestamp) {
        self.advance(now);
        if ticket.era == self.era
            && let State::HalfOpen { is_tried } = &mut self.state
        {
            *is_tried = false;
        }
    }

    fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        #[cfg(feature = "test-util")]
        if clawnode_kernel::KernelBug::CircuitStaysOpen.is_in_folds() {
            return;
        }
        if let State::Open { until } = self.state {
            debug_assert!(until.since(self.since) <= ASKED_MOST, "CIRC-2");
            if self.now >= until {
                self.become_state(State::HalfOpen { is_tried: false });
            }
        }
    }

    fn become_state(&mut self, state: State) {
        self.state = state;
        self.era += 1;
        self.since = self.now;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp(seconds * 1_000)
    }

    fn fail(circuit: &mut Circuit, now: Timestamp, asked: Option<u64>) -> bool {
        let ticket = circuit.admit(now).unwrap();
        circuit.failed(ticket, asked.map(Duration::from_secs), now)
    }

    fn opened(asked: Option<u64>) -> Circuit {
        let mut circuit = Circuit::new(at(0));
        let opens: Vec<bool> = (0..5).map(|n| fail(&mut circuit, at(n), asked)).collect();
        assert_eq!(opens, [false, false, false, false, true]);
        circuit
    }

    #[test]
    fn five_failures_in_thirty_seconds_open_it_and_slower_ones_do_not() {
        assert_eq!(opened(None).state(at(4)), (CircuitState::Open, at(4)));
        let mut circuit = Circuit::new(at(0));
        for n in 0..100 {
            assert!(!fail(&mut circuit, at(n * 8), None), "failure {n}");
        }
    }

    #[test]
    fn a_reply_takes_a_failure_back() {
        let mut circuit = Circuit::new(at(0));
        for _ in 0..50 {
            assert!(!fail(&mut circuit, at(1), None));
            let ticket = circuit.admit(at(1)).unwrap();
            circuit.answered(ticket, at(1));
        }
        let opens: Vec<bool> = (0..5).map(|_| fail(&mut circuit, at(1), None)).collect();
        assert_eq!(opens, [false, false, false, false, true]);
    }

    #[test]
    fn it_is_open_ten_seconds_and_twice_as_long_after_each_failed_trial() {
        let mut circuit = opened(None);
        let mut now = at(4);
        for length in [10, 20, 40, 80, 160, 300, 300, 300] {
            let wait = circuit.admit(now).unwrap_err();
            assert_eq!(wait, Duration::from_secs(length));
            let early = Timestamp(now.plus(wait).0 - 1);
            assert!(circuit.admit(early).is_err());
            now = now.plus(wait);
            assert_eq!(circuit.state(now), (CircuitState::HalfOpen, now));
            assert!(fail(&mut circuit, now, None));
        }
        // After a reply it is as new.
        now = now.plus(OPEN_MOST);
        let ticket = circuit.admit(now).unwrap();
        circuit.answered(ticket, now);
        assert_eq!(circuit.state(now).0, CircuitState::Closed);
        for _ in 0..5 {
            fail(&mut circuit, now, None);
        }
        assert_eq!(circuit.refuses(now), Some(OPEN_FIRST));
    }

    #[test]
    fn what_the_provider_asks_for_wins_within_bounds() {
        for (asked, open) in [(3, 3), (120, 120), (0, 1), (1_000_000, 3_600)] {
            let wait = opened(Some(asked)).refuses(at(4));
            assert_eq!(wait, Some(Duration::from_secs(open)), "asked for {asked} s");
        }
    }

    #[test]
    fn one_call_tries_and_the_next_one_if_it_is_given_up() {
        let mut circuit = opened(None);
        let trial = circuit.admit(at(14)).unwrap();
        assert_eq!(circuit.admit(at(14)), Err(TRIAL_WAIT));
        circuit.gave_up(trial, at(15));
        let mut trial = circuit.admit(at(15)).unwrap();
        assert!(circuit.admit(at(15)).is_err());
        circuit.begun(&mut trial, at(16));
        assert!(circuit.admit(at(16)).is_ok(), "its reply may take minutes");
        // The reply of the trial breaks off: nothing shows that the provider works again.
        assert!(circuit.failed(trial, None, at(17)));
        assert_eq!(circuit.refuses(at(17)), Some(2 * OPEN_FIRST));
    }

    /// A call that follows one of these would pay for half a reply each time.
    #[test]
    fn replies_that_all_break_off_open_it() {
        let mut circuit = Circuit::new(at(0));
        let mut breaks_off = |now| {
            let mut ticket = circuit.admit(now).unwrap();
            circuit.begun(&mut ticket, now);
            circuit.failed(ticket, None, now)
        };
        let opens: Vec<bool> = (0..5).map(|n| breaks_off(at(n))).collect();
        assert_eq!(opens, [false, false, false, false, true]);
    }

    #[test]
    fn calls_from_before_it_opened_have_no_say() {
        let mut circuit = Circuit::new(at(0));
        let mut old: Vec<CircuitTicket> = (0..3).map(|_| circuit.admit(at(0)).unwrap()).collect();
        for n in 0..5 {
            fail(&mut circuit, at(n), None);
        }
        circuit.begun(&mut old[0], at(5));
        circuit.answered(old.remove(0), at(5));
        assert!(!circuit.failed(old.pop().unwrap(), Some(Duration::from_mins(15)), at(5)));
        assert_eq!(circuit.refuses(at(5)), Some(Duration::from_secs(9)));
        let _trial = circuit.admit(at(14)).unwrap();
        circuit.gave_up(old.pop().unwrap(), at(14));
        assert!(circuit.admit(at(14)).is_err(), "CIRC-1: only the trial ends the trial");
    }

    #[test]
    fn it_half_opens_early_for_one_call() {
        let mut circuit = opened(None);
        assert!(circuit.half_open(at(5)));
        assert!(!circuit.half_open(at(5)), "only an open one");
        let trial = circuit.admit(at(5)).unwrap();
        assert!(!circuit.half_open(at(5)));
        assert_eq!(circuit.admit(at(5)), Err(TRIAL_WAIT), "CIRC-1");
        // What a trial says still counts: it is open for longer than at first.
        assert!(circuit.failed(trial, None, at(5)));
        assert_eq!(circuit.refuses(at(5)), Some(2 * OPEN_FIRST));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Admit,
        Begun(usize),
        /// What becomes of the nth call that is under way.
        Answered(usize),
        Failed(usize, Option<u64>),
        GaveUp(usize),
        HalfOpen,
    }

    fn step() -> impl Strategy<Value = Step> {
        let asked = prop::option::weighted(0.2, 0_u64..10_000_000);
        prop_oneof![
            3 => Just(Step::Admit),
            1 => any::<usize>().prop_map(Step::Begun),
            1 => any::<usize>().prop_map(Step::Answered),
            4 => (any::<usize>(), asked).prop_map(|(n, asked)| Step::Failed(n, asked)),
            1 => any::<usize>().prop_map(Step::GaveUp),
            1 => Just(Step::HalfOpen),
        ]
    }

    proptest! {
        /// Any order of events at any times, also such that go back.
        #[test]
        fn any_history_keeps_it_bounded_and_it_half_opens_in_the_end(
            steps in prop::collection::vec((step(), 0_u64..40_000, 0_u64..5_000), 1..200),
        ) {
            let mut circuit = Circuit::new(Timestamp(0));
            let (mut now, mut calls) = (0_u64, Vec::new());
            let mut trials = 0_usize;
            for (step, forth, back) in steps {
                now = (now + forth).saturating_sub(back);
                let time = Timestamp(now);
                let before = circuit.state(time).0;
                let pick = |n: usize, tickets: &Vec<CircuitTicket>| (!tickets.is_empty()).then(|| n % tickets.len());
                match step {
                    Step::Admit => match circuit.admit(time) {
                        Ok(ticket) => calls.push(ticket),
                        Err(wait) => prop_assert!(wait <= ASKED_MOST && !wait.is_zero()),
                    },
                    Step::Begun(n) => if let Some(n) = pick(n, &calls) {
                        circuit.begun(&mut calls[n], time);
                    },
                    Step::Answered(n) => if let Some(n) = pick(n, &calls) {
                        circuit.answered(calls.swap_remove(n), time);
                    },
                    Step::Failed(n, asked) => if let Some(n) = pick(n, &calls) {
                        let asked = asked.map(Duration::from_millis);
                        circuit.failed(calls.swap_remove(n), asked, time);
                    },
                    Step::GaveUp(n) => if let Some(n) = pick(n, &calls) {
                        circuit.gave_up(calls.swap_remove(n), time);
                    },
                    Step::HalfOpen => {
                        circuit.half_open(time);
                    }
                }
                prop_assert!(circuit.failures.len() <= FAILURES);
                if circuit.state(time).0 == CircuitState::HalfOpen {
                    let era = circuit.era;
                    trials = calls.iter().filter(|ticket| ticket.era == era).count();
                    prop_assert!(trials <= 1, "CIRC-1: {} trials", trials);
                }
                prop_assert!(
                    !(before == CircuitState::Open && circuit.state(time).0 == CircuitState::Closed)
                );
            }
            prop_assert!(trials <= 1);
            // All calls end; after the longest time that it may be open, one is permitted.
            for ticket in calls {
                circuit.gave_up(ticket, Timestamp(now));
            }
            let end = circuit.now.plus(ASKED_MOST);
            prop_assert!(circuit.admit(end).is_ok(), "CIRC-2: {circuit:?}");
        }

        #[test]
        fn without_a_word_of_the_provider_it_is_open_at_most_five_minutes(
            gaps in prop::collection::vec(0_u64..400_000, 1..100),
        ) {
            let (mut circuit, mut now) = (Circuit::new(Timestamp(0)), 0);
            for gap in gaps {
                now += gap;
                match circuit.admit(Timestamp(now)) {
                    Ok(ticket) => {
                        circuit.failed(ticket, None, Timestamp(now));
                    }
                    Err(wait) => prop_assert!(wait <= OPEN_MOST),
                }
            }
        }
    }
}
