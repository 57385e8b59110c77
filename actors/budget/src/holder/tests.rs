//! Unit tests of holders.

use clawnode_proto::{
    ProcessId, Timestamp,
    budget::{
        AccountKey, AskAnswer, AskVerdict, BudgetInput, BudgetUnit, GrantedSlice, LimitKey,
        ProcessStanding, WindowLength, WindowNumber,
    },
};

use super::{
    CallCost, CallNeeds, CallUsage, GrantedHolds, Holder, HolderInput, HolderOptions, HolderOutput,
    Need, Refusal, Reservation, WaitReason,
};

pub(super) const USD: LimitKey = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Hour };
pub(super) const LOOPS: LimitKey = LimitKey { unit: BudgetUnit::Loops, window: WindowLength::Day };

pub(super) fn cluster() -> AccountKey {
    AccountKey::Cluster
}

pub(super) fn agent() -> AccountKey {
    "agent:research".parse().unwrap()
}

pub(super) fn need(account: AccountKey, limit: LimitKey, fixed: u64, per_million: u64) -> Need {
    Need { account, limit, cost: CallCost { fixed, per_million }, beside: 0 }
}

/// A call that costs 10, and one more for each token of output.
pub(super) fn call() -> CallNeeds {
    let needs = vec![need(cluster(), USD, 10, 1_000_000)];
    CallNeeds { needs, least_output: 5, most_output: 40 }
}

/// A holder at a time, with what it did.
pub(super) struct One {
    pub(super) holder: Holder,
    now: u64,
    pub(super) version: u64,
}

impl One {
    pub(super) fn new() -> Self {
        let holder = Holder::new(ProcessId::from_u128(1), HolderOptions::default());
        Self { holder, now: 1_000_000, version: 0 }
    }

    pub(super) fn does(&mut self, input: HolderInput) -> Vec<HolderOutput> {
        self.holder.handle(Timestamp(self.now), input)
    }

    pub(super) fn reserve(&mut self, number: u64, needs: CallNeeds) -> Vec<HolderOutput> {
        self.does(HolderInput::Reserve(Reservation(number), needs))
    }

    pub(super) fn after(&mut self, millis: u64) -> Vec<HolderOutput> {
        self.now += millis;
        self.does(HolderInput::Tick)
    }

    pub(super) fn stored(&mut self) -> Vec<HolderOutput> {
        self.does(HolderInput::Stored(cluster(), true))
    }

    pub(super) fn told(
        &mut self,
        slices: &[(u64, u64, bool)],
        answers: &[(u64, AskVerdict)],
    ) -> Vec<HolderOutput> {
        self.version += 1;
        let slice = |&(number, amount, recalled): &(u64, u64, bool)| {
            let window = WindowNumber(7);
            GrantedSlice { number, limit: USD, window, amount, recalled }
        };
        let answer = |&(number, verdict): &(u64, AskVerdict)| AskAnswer {
            number,
            limit: USD,
            verdict,
            holder: None,
        };
        self.does(HolderInput::Told(ProcessStanding {
            account: cluster(),
            version: self.version,
            begun: None,
            slices: slices.iter().map(slice).collect(),
            answers: answers.iter().map(answer).collect(),
        }))
    }
}

/// Which calls were granted, with what cap.
pub(super) fn granted(out: &[HolderOutput]) -> Vec<(u64, u64)> {
    let granted = out.iter().filter_map(|one| match one {
        HolderOutput::Granted(granted) => Some((granted.reservation.0, granted.output)),
        _ => None,
    });
    granted.collect()
}

/// The totals of a slice as the last input says them: spent, held, returned, closed.
pub(super) fn said(out: &[HolderOutput], number: u64) -> Option<(u64, u64, u64, bool)> {
    out.iter().rev().find_map(|one| {
        let HolderOutput::Send(
            _,
            BudgetInput::Ask { reports, .. } | BudgetInput::Report { reports, .. },
        ) = one
        else {
            return None;
        };
        let report = reports.iter().find(|report| report.number == number)?;
        Some((report.spent, report.held, report.returned, report.closed))
    })
}

pub(super) fn asked(out: &[HolderOutput]) -> Vec<(u64, u64, u64, u64)> {
    let asks = out.iter().filter_map(|one| match one {
        HolderOutput::Send(_, BudgetInput::Ask { asks, .. }) => Some(asks),
        _ => None,
    });
    asks.flatten().map(|ask| (ask.number, ask.call, ask.least, ask.waits)).collect()
}

#[test]
fn calls_reserve_from_a_slice_in_memory_and_settle_there() {
    let mut one = One::new();
    assert_eq!(asked(&one.reserve(1, call())), [(1, 50, 15, 50)]);
    one.stored();
    assert_eq!(granted(&one.told(&[(1, 120, false)], &[])), [(1, 40)]);
    assert_eq!(granted(&one.reserve(2, call())), [(2, 40)]);
    let out =
        one.does(HolderInput::Settle(Reservation(1), CallUsage::Known { usd: 30, tokens: 9 }));
    assert_eq!(said(&out, 1), None, "it reports once a second");
    assert_eq!(said(&one.after(1_000), 1), Some((30, 50, 0, false)));
}

#[test]
fn bud_2_what_was_reserved_ends_once() {
    let mut one = One::new();
    one.reserve(1, call());
    one.stored();
    one.told(&[(1, 200, false)], &[]);
    one.reserve(2, call());
    one.reserve(3, call());
    one.does(HolderInput::Settle(Reservation(1), CallUsage::Known { usd: 20, tokens: 9 }));
    for again in [CallUsage::Unknown, CallUsage::Known { usd: 50, tokens: 9 }] {
        one.does(HolderInput::Settle(Reservation(1), again));
    }
    one.does(HolderInput::Release(Reservation(1)));
    one.does(HolderInput::Settle(Reservation(2), CallUsage::Unknown));
    one.does(HolderInput::Release(Reservation(3)));
    one.does(HolderInput::Settle(Reservation(3), CallUsage::Unknown));
    assert_eq!(said(&one.after(1_000), 1), Some((70, 0, 0, false)), "BUD-2");
    assert_eq!(one.holder.holds().count(), 0, "BUD-2");
}

#[test]
fn an_answer_that_was_lost_is_asked_for_under_the_same_number() {
    let mut one = One::new();
    one.reserve(1, call());
    one.does(HolderInput::Stored(cluster(), false));
    assert_eq!(asked(&one.after(300)), [(1, 50, 15, 50)], "it may not be stored");
    one.stored();
    assert_eq!(asked(&one.after(1_000)), []);
    assert_eq!(asked(&one.after(1_000)), [(1, 50, 15, 50)]);
    one.stored();
    one.told(&[(1, 100, false)], &[]);
    // The same again, and one that nothing here has asked for.
    let out = one.told(&[(1, 100, false), (9, 70, false)], &[]);
    assert_eq!(granted(&out), []);
    assert_eq!(said(&one.after(250), 9), Some((0, 0, 0, true)), "it goes back unused");
}

#[test]
fn who_waits_is_served_in_order_and_an_account_hears_little() {
    let mut one = One::new();
    let mut sent = 0;
    for number in 1..=5 {
        sent += asked(&one.reserve(number, call())).len();
    }
    assert_eq!(sent, 1);
    one.stored();
    let out = one.told(&[(1, 130, false)], &[]);
    assert_eq!(granted(&out), [(1, 40), (2, 40)]);
    // The third does not fit: what is left goes back, and a slice for the three is asked for at once.
    assert_eq!(asked(&out), [(2, 50, 15, 150)]);
    assert_eq!(said(&out, 1), Some((0, 100, 30, false)));
    one.stored();
    let small = CallNeeds { most_output: 5, ..call() };
    assert_eq!(granted(&one.reserve(6, small)), [], "a small call does not overtake");
}

#[test]
fn an_account_hears_of_a_busy_process_five_times_a_second() {
    let mut one = One::new();
    for number in 1..=5 {
        assert_eq!(asked(&one.reserve(number, call())).len(), 1, "at once");
        one.stored();
        // Enough for one call and no more, so that the next one asks again.
        one.told(&[(number, 50, false)], &[]);
        one.does(HolderInput::Settle(Reservation(number), CallUsage::Known { usd: 50, tokens: 1 }));
    }
    assert_eq!(asked(&one.reserve(6, call())), []);
    assert_eq!(asked(&one.after(999)), []);
    assert_eq!(asked(&one.after(1)).len(), 1, "a second after the first of them");
}

#[test]
fn the_last_of_it_makes_a_call_smaller() {
    let mut one = One::new();
    one.reserve(1, call());
    one.stored();
    assert_eq!(granted(&one.told(&[(1, 22, false)], &[])), [(1, 12)]);
}

#[test]
fn what_was_got_is_given_back_while_a_call_waits_for_another_account() {
    let mut one = One::new();
    one.reserve(1, call());
    one.stored();
    one.told(&[(1, 60, false)], &[]);
    one.does(HolderInput::Release(Reservation(1)));
    let needs = vec![need(cluster(), USD, 10, 1_000_000), need(agent(), USD, 10, 1_000_000)];
    let out = one.reserve(2, CallNeeds { needs, ..call() });
    assert!(matches!(&out[..], [HolderOutput::Send(account, _)] if *account == agent()), "{out:?}");
    assert_eq!(one.holder.holds().count(), 0);
    assert_eq!(granted(&one.reserve(3, call())), [(3, 40)], "others may have it meanwhile");
}

#[test]
fn only_what_is_spent_ends_a_call() {
    let mut one = One::new();
    one.reserve(1, call());
    one.reserve(2, CallNeeds { least_output: 1, ..call() });
    one.stored();
    let out = one.told(&[], &[(1, AskVerdict::Waits)]);
    assert!(matches!(out[0], HolderOutput::Waits(Reservation(1), ..)), "{out:?}");
    assert_eq!(one.holder.waiting(), 2);
    let out = one.told(&[], &[(1, AskVerdict::SpentOut { spent: 87, limit: 100 })]);
    let (account, limit) = (cluster(), USD);
    let refusal = Refusal::Bankrupt { account, limit, used: 87, most: 100, needed: 15 };
    assert_eq!(out[0], HolderOutput::Refused(Reservation(1), refusal));
    assert_eq!(one.holder.waiting(), 1, "the other one needs 11, and 13 are left");
    assert_eq!(asked(&out), [(1, 50, 11, 50)], "at once: it waits for that");
}

#[test]
fn it_never_fails_open() {
    let mut one = One::new();
    one.reserve(1, call());
    let mut out = Vec::new();
    for _ in 0..59 {
        out.extend(one.after(1_000));
        out.extend(one.does(HolderInput::Stored(cluster(), false)));
    }
    assert!(out.iter().all(|one| matches!(one, HolderOutput::Send(..))), "{out:?}");
    let out = one.after(1_000);
    let unavailable = Refusal::Unavailable { account: cluster() };
    assert!(out.contains(&HolderOutput::Refused(Reservation(1), unavailable)), "{out:?}");
}

#[test]
fn a_call_waits_so_long_for_a_person() {
    let mut one = One::new();
    one.reserve(1, call());
    let needs_person = AskVerdict::NeedsPerson { spent: 0, limit: 100 };
    for _ in 0..30 {
        one.stored();
        one.told(&[], &[(1, needs_person)]);
        assert_eq!(one.holder.waiting(), 1);
        one.after(10_000);
    }
    assert_eq!(one.holder.waiting(), 0);
}

#[test]
fn what_is_idle_or_recalled_goes_back() {
    let mut one = One::new();
    one.reserve(1, call());
    one.stored();
    one.told(&[(1, 200, false)], &[]);
    let out = one.told(&[(1, 200, true)], &[]);
    let out = if said(&out, 1).is_some() { out } else { one.after(250) };
    assert_eq!(said(&out, 1), Some((0, 50, 150, false)), "all but what runs");
    one.stored();
    one.does(HolderInput::Settle(Reservation(1), CallUsage::Known { usd: 20, tokens: 9 }));
    let out = one.after(1_000);
    assert_eq!(said(&out, 1).map(|(spent, .., closed)| (spent, closed)), Some((20, true)));
    assert!(!one.holder.is_at_rest());
    one.stored();
    assert!(one.holder.is_at_rest());

    one.reserve(2, call());
    one.stored();
    one.told(&[(2, 200, false)], &[]);
    one.does(HolderInput::Settle(Reservation(2), CallUsage::Known { usd: 5, tokens: 1 }));
    one.after(1_000);
    one.stored();
    let out = one.after(60_000);
    assert_eq!(said(&out, 2).map(|(spent, .., closed)| (spent, closed)), Some((5, true)));
}

#[test]
fn what_an_account_does_not_know_is_not_spent() {
    let mut one = One::new();
    one.reserve(1, call());
    one.stored();
    one.told(&[(1, 200, false)], &[]);
    // The account was deleted, and starts again from its beginning.
    one.told(&[], &[]);
    assert_eq!(granted(&one.reserve(2, call())), []);
}

#[test]
fn a_process_that_ends_in_order_leaves_nothing_spent_that_was_not_used() {
    let mut one = One::new();
    one.reserve(1, call());
    one.stored();
    one.told(&[(1, 200, false)], &[]);
    one.after(1_000);
    one.stored();
    let out = one.does(HolderInput::Leave);
    assert_eq!(said(&out, 1), None, "at most four inputs a second");
    let out = one.after(250);
    assert_eq!(said(&out, 1), Some((0, 50, 150, false)), "before a second is over");
    one.stored();
    assert!(asked(&one.reserve(2, call())).is_empty(), "nothing new is asked for");
    one.does(HolderInput::Settle(Reservation(1), CallUsage::Known { usd: 30, tokens: 9 }));
    assert_eq!(said(&one.after(250), 1), Some((30, 0, 170, true)));
    one.stored();
    one.does(HolderInput::Release(Reservation(2)));
    assert!(one.holder.is_at_rest());
}

/// What is said while something is on its way has to be answered, too.
#[test]
fn a_slice_that_comes_to_light_while_a_report_is_under_way_goes_back() {
    let mut one = One::new();
    one.told(&[(8, 70, false)], &[]);
    // It is sent; before that is known to be stored, the account names another one.
    assert_eq!(said(&one.told(&[(8, 70, false), (9, 70, false)], &[]), 9), None);
    one.after(300);
    assert_eq!(said(&one.stored(), 9), Some((0, 0, 0, true)));
    assert!(!one.holder.is_at_rest());
    one.stored();
    assert!(one.holder.is_at_rest());
}

#[test]
fn what_costs_nothing_is_not_reserved() {
    let mut one = One::new();
    let free = CallNeeds { needs: vec![need(cluster(), USD, 0, 0)], ..call() };
    let out = one.reserve(1, free);
    let granted = GrantedHolds { reservation: Reservation(1), output: 40, holds: Vec::new() };
    assert_eq!(out, [HolderOutput::Granted(granted)]);
    // Output alone costs something.
    let output = CallNeeds { needs: vec![need(cluster(), USD, 0, 1_000_000)], ..call() };
    assert_eq!(asked(&one.reserve(2, output)), [(1, 40, 5, 40)]);
}

/// A larger call behind it does not take what a call has got that waits for another limit.
#[test]
fn a_call_that_waits_elsewhere_keeps_what_it_has_got() {
    let mut one = One::new();
    one.reserve(1, call());
    one.stored();
    one.told(&[(1, 60, false)], &[]);
    one.does(HolderInput::Release(Reservation(1)));
    let user: AccountKey = "user:web:bot:ada".parse().unwrap();
    let needs = vec![need(cluster(), USD, 10, 1_000_000), need(user.clone(), USD, 1, 0)];
    one.reserve(2, CallNeeds { needs, ..call() });
    // It needs 80, and 60 are there, of which the one before needs 50.
    let mut out = one.reserve(3, CallNeeds { most_output: 70, ..call() });
    out.extend(one.after(300));
    assert_eq!(asked(&out), [(3, 80, 15, 80)]);
    assert_eq!(said(&out, 1), Some((0, 0, 10, false)), "the rest goes back");
    assert_eq!(one.holder.waiting(), 2);
    one.stored();
    // The slice for both comes.
    assert_eq!(granted(&one.told(&[(1, 60, false), (3, 80, false)], &[])), [(3, 70)]);
}

#[test]
fn a_call_behind_a_dead_process_says_so_and_does_not_wait_until_the_window_ends() {
    let mut one = One::new();
    let other = ProcessId::from_u128(9);
    let waits = |one: &mut One| {
        one.version += 1;
        let (limit, verdict) = (USD, AskVerdict::Waits);
        one.does(HolderInput::Told(ProcessStanding {
            account: cluster(),
            version: one.version,
            begun: None,
            slices: Vec::new(),
            answers: vec![AskAnswer { number: 1, limit, verdict, holder: Some(other) }],
        }))
    };
    let said = |out: &[HolderOutput]| {
        let why = |one: &HolderOutput| match one {
            HolderOutput::Waits(.., why) => Some(*why),
            _ => None,
        };
        out.iter().filter_map(why).collect::<Vec<_>>()
    };
    one.reserve(1, call());
    one.stored();
    assert_eq!(said(&waits(&mut one)), [WaitReason::Calls]);
    assert_eq!(said(&waits(&mut one)), [], "it is said once");
    assert_eq!(one.holder.waits_for(), [other].into());
    one.holder.set_dead([other].into());
    // The account hears of that first: what is left may be enough for the call.
    let out = one.after(1_000);
    let dead = |one: &HolderOutput| match one {
        HolderOutput::Send(_, BudgetInput::Ask { dead, .. }) => Some(dead.clone()),
        _ => None,
    };
    assert_eq!((said(&out), out.iter().find_map(dead)), (vec![], Some(vec![other])));
    one.stored();
    assert_eq!(said(&waits(&mut one)), [WaitReason::Stranded(other)]);
    // The account answers all the time, so it is not silent.
    let mut refused = None;
    for second in 0..300 {
        one.does(HolderInput::Stored(cluster(), true));
        waits(&mut one);
        let ended = |one: &HolderOutput| matches!(one, HolderOutput::Refused(..));
        if let Some(end) = one.after(1_000).into_iter().find(ended) {
            refused = Some((second, end));
            break;
        }
    }
    let (second, end) = refused.expect("it does not wait for a month");
    let refusal = Refusal::Stranded { account: cluster(), limit: USD, process: other };
    assert_eq!(end, HolderOutput::Refused(Reservation(1), refusal));
    assert!((295..300).contains(&second), "after `ask_wait`, not before: {second}");
}

#[test]
fn a_call_that_needs_a_person_says_so_once() {
    let mut one = One::new();
    one.reserve(1, call());
    one.stored();
    let asks = AskVerdict::NeedsPerson { spent: 80, limit: 100 };
    let person = |out: &[HolderOutput]| {
        out.iter().any(|output| matches!(output, HolderOutput::Waits(.., WaitReason::Person)))
    };
    assert!(person(&one.told(&[], &[(1, asks)])));
    assert!(!person(&one.told(&[], &[(1, asks)])));
}

/// How things stand with the account of the agent: it has this slice of 60.
fn agent_says(one: &mut One, recalled: bool) -> Vec<HolderOutput> {
    one.version += 1;
    let (number, amount, window) = (1, 60, WindowNumber(7));
    let slices = vec![GrantedSlice { number, limit: USD, window, amount, recalled }];
    let (account, version, answers) = (agent(), one.version, Vec::new());
    one.does(HolderInput::Told(ProcessStanding { account, version, begun: None, slices, answers }))
}

/// A process may have accounts of thousands of users: a call looks at its own.
#[test]
fn what_other_accounts_have_to_hear_waits_for_the_next_tick() {
    let mut one = One::new();
    one.reserve(1, CallNeeds { needs: vec![need(agent(), USD, 10, 1_000_000)], ..call() });
    one.does(HolderInput::Stored(agent(), true));
    assert_eq!(granted(&agent_says(&mut one, false)), [(1, 40)]);
    one.does(HolderInput::Settle(Reservation(1), CallUsage::Known { usd: 30, tokens: 9 }));
    one.now += 1_000;
    let accounts = |out: &[HolderOutput]| {
        let account = |one: &HolderOutput| match one {
            HolderOutput::Send(account, _) => Some(account.clone()),
            _ => None,
        };
        out.iter().filter_map(account).collect::<Vec<_>>()
    };
    assert_eq!(accounts(&one.reserve(2, call())), [cluster()]);
    assert_eq!(accounts(&one.after(0)), [agent()]);
}

/// Another process waits for what the call has kept.
#[test]
fn what_a_call_has_kept_goes_back_as_soon_as_it_waits_no_more() {
    let mut one = One::new();
    let needs = vec![need(agent(), USD, 10, 1_000_000), need(cluster(), USD, 10, 1_000_000)];
    one.reserve(1, CallNeeds { needs, ..call() });
    one.does(HolderInput::Stored(agent(), true));
    assert_eq!(asked(&agent_says(&mut one, false)), [(2, 50, 15, 50)]);
    one.stored();
    one.now += 300;
    let out = agent_says(&mut one, true);
    assert_eq!(said(&out, 1), Some((0, 0, 10, false)), "all but what the call counts on");
    one.does(HolderInput::Stored(agent(), true));
    one.now += 300;
    let out = one.does(HolderInput::Release(Reservation(1)));
    assert_eq!(said(&out, 1), Some((0, 0, 60, true)), "at once");
}
