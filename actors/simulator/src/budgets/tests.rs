//! Seeds with budgets, and bugs that are found in them.

use clawnode_budget::holder::{CallHold, GrantedHolds, Reservation};
use clawnode_kernel::KernelBug;
use clawnode_sim::Happening;

use crate::{
    CrashPoints, JudgeViolation, LimitChanges, RunFailure, RunReport, Sim, SimOptions,
    process::PlannedNote, run,
};

/// Seeds of each run of the tests.
const SEEDS: u64 = 40;

fn one(seed: u64, planted: KernelBug, trace: bool) -> Result<RunReport, Box<RunFailure>> {
    let budgets = 1 + usize::from(seed % 3 == 2);
    run(&SimOptions { seed, planted, trace, budgets, ..SimOptions::default() })
}

/// It is found within so many seeds, by one of these invariants; the seed that finds it is green
/// without it.
fn finds(planted: KernelBug, seeds: u64, names: &[&str]) {
    for seed in 0..seeds {
        if let Err(failure) = one(seed, planted, false) {
            let name = failure.violation.name;
            assert!(names.contains(&name), "{planted:?} was found as {name}: {failure}");
            one(seed, KernelBug::None, true).unwrap_or_else(|failure| panic!("{failure}"));
            return;
        }
    }
    panic!("{planted:?} was not found in {seeds} seeds");
}

fn with_sessions(seed: u64, planted: KernelBug, trace: bool) -> Result<RunReport, Box<RunFailure>> {
    let (budgets, session_budgets) = (1 + usize::from(seed % 3 == 2), true);
    run(&SimOptions { seed, planted, trace, budgets, session_budgets, ..SimOptions::default() })
}

/// The calls of sessions reserve, too, beside synthetic ones: whatever befalls the world, what they reserve
/// ends with them, and no limit is passed.
#[test]
fn bud_1_sessions_begin_calls_with_what_they_have_reserved() {
    let mut holds = 0;
    for seed in 0..SEEDS {
        match with_sessions(seed, KernelBug::None, false) {
            Ok(report) => holds += report.session_holds,
            Err(_) => match with_sessions(seed, KernelBug::None, true) {
                Ok(report) => panic!("seed {seed} is not the same twice: {report:?}"),
                Err(failure) => panic!("{failure}"),
            },
        }
    }
    assert!(holds > 60, "sessions reserved {holds} times");
}

/// BUD-2: what a call had reserved ends with the next step of its process, also if no other
/// call of a session comes there.
#[test]
fn bud_2_a_hold_that_is_dropped_ends_by_itself() {
    let options = SimOptions { budgets: 1, session_budgets: true, ..SimOptions::default() };
    let mut sim = Sim::new(&options);
    sim.fate(&PlannedNote::Spawn).unwrap();
    let (process, ends) = {
        let (process, running) = sim.processes.first_key_value().unwrap();
        (*process, running.holder.as_ref().unwrap().ends.clone())
    };
    let call = Reservation(1);
    sim.bills.wants(process, call);
    sim.bills.begins(process, call, Vec::new()).unwrap();
    let granted = GrantedHolds { reservation: call, output: 1, holds: Vec::new() };
    let hold = CallHold::of(granted, Box::new(ends));
    let ticks = |sim: &mut Sim| sim.happens_to(process, Happening::Own(PlannedNote::Tick)).unwrap();
    ticks(&mut sim);
    assert!(sim.bills.is_open(process, call), "its call may still begin");
    drop(hold);
    ticks(&mut sim);
    assert_eq!(sim.bills.unfinished(), None);
}

/// Bugs that are found in what sessions do.
#[test]
fn finds_what_sessions_forget() {
    for (planted, names) in [
        (KernelBug::ForgetsHold, &["BUD-1"][..]),
        (KernelBug::RoundsDown, &["I6", "BUD-3", "PRICE-1"]),
        (KernelBug::SettlesAtNewPrice, &["PRICE-1"]),
        (KernelBug::RoundsPerTurn, &["PRICE-1"]),
    ] {
        let found =
            (0..60).find_map(|seed| Some((seed, with_sessions(seed, planted, false).err()?)));
        let (seed, failure) = found.unwrap_or_else(|| panic!("{planted:?} was not found"));
        let name = failure.violation.name;
        assert!(names.contains(&name), "{planted:?} was found as {name}: {failure}");
        with_sessions(seed, KernelBug::None, true).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn i6_no_limit_is_passed_whatever_befalls_the_world() {
    let mut calls = 0;
    for seed in 0..SEEDS {
        match one(seed, KernelBug::None, false) {
            Ok(report) => calls += report.budget_calls,
            Err(_) => match one(seed, KernelBug::None, true) {
                Ok(report) => panic!("seed {seed} is not the same twice: {report:?}"),
                Err(failure) => panic!("{failure}"),
            },
        }
    }
    assert!(calls > 200, "{calls} calls were made under budgets");
}

/// C18 to C22: each of them happens, and neither a limit nor a bill is wrong by it.
#[test]
fn c18_c19_c20_c21_and_c22_cost_no_more_than_they_may() {
    let mut points = CrashPoints::default();
    for seed in SEEDS..2 * SEEDS {
        let report = one(seed, KernelBug::None, true).unwrap_or_else(|failure| panic!("{failure}"));
        points = points.plus(report.crash_points);
    }
    let CrashPoints { owners_died, answered_again, stranded, settled_late, exceeded, .. } = points;
    let all = [owners_died, answered_again, stranded, settled_late, exceeded];
    assert!(all.iter().all(|count| *count > 2), "{points:?}");
}

fn with_changes(seed: u64, planted: KernelBug, trace: bool) -> Result<RunReport, Box<RunFailure>> {
    let (budgets, limits_change) = (1 + usize::from(seed % 3 == 2), true);
    run(&SimOptions { seed, planted, trace, budgets, limits_change, ..SimOptions::default() })
}

/// I6: people raise limits, lower them below what is spent, and allow more where they are asked, while calls run.
#[test]
fn i6_holds_while_people_change_limits() {
    let (mut calls, mut changes) = (0, LimitChanges::default());
    for seed in 0..SEEDS {
        let report = with_changes(seed, KernelBug::None, true);
        let report = report.unwrap_or_else(|failure| panic!("{failure}"));
        calls += report.budget_calls;
        changes = changes.plus(report.limit_changes);
    }
    let LimitChanges { raised, below_spent, allowed } = changes;
    assert!(calls > 100, "{calls} calls were made");
    assert!(raised > 10 && below_spent > 2 && allowed > 2, "{changes:?}");
}

/// I6: a limit that is not lowered, and a grant that no person has allowed, are found by the limits that journals have.
#[test]
fn i6_finds_grants_that_changed_limits_do_not_allow() {
    for planted in [KernelBug::KeepsHigherLimit, KernelBug::GrantsUnallowed] {
        let found =
            (0..60).find_map(|seed| Some((seed, with_changes(seed, planted, false).err()?)));
        let (seed, failure) = found.unwrap_or_else(|| panic!("{planted:?} was not found"));
        let JudgeViolation { name, detail } = &failure.violation;
        assert_eq!(*name, "I6", "{planted:?}: {failure}");
        assert!(detail.contains("is in force"), "{planted:?}: {failure}");
        with_changes(seed, KernelBug::None, true).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// C5 and C5b: processes die while their calls have reserved and are not sent. What they had reserved counts in their
/// slices, the next attempts reserve for themselves (BUD-1), and no limit is passed.
#[test]
fn c5_and_c5b_what_was_reserved_for_a_call_that_is_not_sent_counts_once() {
    let mut points = CrashPoints::default();
    for seed in 0..SEEDS {
        let (budgets, session_budgets) = (1 + usize::from(seed % 3 == 2), true);
        let options = SimOptions { seed, budgets, session_budgets, ..SimOptions::default() };
        let report = run(&SimOptions { dies_holding: true, trace: true, ..options });
        let report = report.unwrap_or_else(|failure| panic!("{failure}"));
        points = points.plus(report.crash_points);
    }
    assert!(points.unappended > 2 && points.unsent > 2, "{points:?}");
}

/// LANE-1, I6: turns of the background have reserved while those of people come, and end for them; each takes what it
/// had reserved back once.
#[test]
fn lane_1_calls_that_have_reserved_end_for_others() {
    let (mut preempted, mut holds) = (0, 0);
    for seed in 0..SEEDS {
        let (lanes, budgets, session_budgets) = (true, 2, true);
        let options = SimOptions { seed, budgets, lanes, session_budgets, ..SimOptions::default() };
        let report = run(&SimOptions { trace: true, ..options });
        let report = report.unwrap_or_else(|failure| panic!("{failure}"));
        preempted += report.preempted;
        holds += report.session_holds;
    }
    assert!(preempted > 5 && holds > 60, "{preempted} were ended, of {holds}");
}

/// I5: accounts alone answer before their append is stored, and what they say is what finds it.
#[test]
fn finds_answers_before_the_append() {
    let planted = KernelBug::AnswersBeforeAppend;
    let found = (0..SEEDS).find_map(|seed| Some((seed, one(seed, planted, false).err()?)));
    let (seed, failure) = found.unwrap_or_else(|| panic!("it was not found"));
    let JudgeViolation { name, detail } = &failure.violation;
    assert_eq!(*name, "I5", "{failure}");
    assert!(detail.contains("says what its journal has not"), "{failure}");
    one(seed, KernelBug::None, true).unwrap_or_else(|failure| panic!("{failure}"));
}

/// One test for each planted bug: how many seeds it may take, and which invariant catches it.
macro_rules! planted {
    ($($test:ident: $bug:ident in $seeds:literal by [$($name:literal),*];)*) => {
        $(
            #[test]
            fn $test() {
                finds(KernelBug::$bug, $seeds, &[$($name),*]);
            }
        )*
    };
}

planted! {
    finds_checks_then_spends: ChecksThenSpends in 40 by ["I6"];
    finds_rounds_down: RoundsDown in 40 by ["I6", "BUD-3"];
    finds_loses_release: LosesRelease in 40 by ["BUD-2"];
    finds_asks_as_another: AsksAsAnother in 40 by ["E1"];
    finds_gives_back_for_the_dead: GivesBackForTheDead in 200 by ["I6", "BUD-3"];
    finds_settles_into_current_window: SettlesIntoCurrentWindow in 40 by ["BUD-3", "BUD-4"];
    finds_reports_differences: ReportsDifferences in 40 by ["I6", "BUD-3"];
    finds_an_estimate_of_nothing: EstimatesNothing in 40 by ["I6", "BUD-3"];
}
