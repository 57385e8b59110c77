//! The bugs that seeds with silent calls find.

use clawnode_kernel::KernelBug;

use crate::{RunFailure, RunReport, SimOptions, run};

/// Every second one has silent calls. The tests of recalls look whether they are made and find something.
const SEEDS: u64 = 40;
/// Seeds of bugs that need a crash at a certain moment.
const SEEDS_OF_CRASHES: u64 = 100;

fn recalled(seed: u64, planted: KernelBug) -> Result<RunReport, Box<RunFailure>> {
    run(&SimOptions { seed, planted, recalls: true, ..SimOptions::default() })
}

/// Calls of sessions reserve, too.
fn paid(seed: u64, planted: KernelBug) -> Result<RunReport, Box<RunFailure>> {
    let with = SimOptions { budgets: 1, session_budgets: true, ..SimOptions::default() };
    run(&SimOptions { seed, planted, recalls: true, ..with })
}

/// Processes die of these calls, and people delete sessions meanwhile.
fn deadly(seed: u64, planted: KernelBug) -> Result<RunReport, Box<RunFailure>> {
    let with = SimOptions { recalls: true, reflections: true, ..SimOptions::default() };
    run(&SimOptions { seed, planted, dies_reflecting: true, ..with })
}

type Runs = fn(u64, KernelBug) -> Result<RunReport, Box<RunFailure>>;

/// The planted bug is found as what it breaks, and the seed that finds it is green without.
fn finds(planted: KernelBug, runs: Runs, seeds: u64, name: &str) {
    let found = (0..seeds).find_map(|seed| Some((seed, runs(seed, planted).err()?)));
    let (seed, failure) = found.unwrap_or_else(|| panic!("{planted:?} was not found"));
    println!("{planted:?}: seed {seed}: {}", failure.violation.detail);
    assert_eq!(failure.violation.name, name, "{planted:?}: {failure}");
    runs(seed, KernelBug::None).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn finds_what_silent_calls_do_wrong() {
    finds(KernelBug::ReflectsBeforeAppend, recalled, SEEDS, "I8");
    finds(KernelBug::ReflectsAgain, recalled, SEEDS, "C6");
    finds(KernelBug::FactsTrusted, recalled, SEEDS, "REFL-2");
    finds(KernelBug::FactsByOwner, recalled, SEEDS, "MEM-3");
    finds(KernelBug::ReflectionOutstays, recalled, SEEDS, "REFL-1");
}

/// BUD-1.
#[test]
fn finds_a_silent_call_whose_hold_is_forgotten() {
    finds(KernelBug::ReflectionHoldForgotten, paid, SEEDS_OF_CRASHES, "BUD-1");
}

/// C6, REFL-1: a call is made twice at most, however often its process dies, and nothing is learned from a session that is
/// to be deleted.
#[test]
fn sim_silent_calls_that_processes_die_of() {
    for seed in 0..SEEDS {
        deadly(seed, KernelBug::None).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn finds_what_follows_from_the_death_of_a_process() {
    finds(KernelBug::ReflectsOnAndOn, deadly, SEEDS, "C6");
    finds(KernelBug::LearnsOfDeleted, deadly, SEEDS, "REFL-1");
}
