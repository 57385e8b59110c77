//! Sessions whose states keep their last few turns only: nothing that clients or models see depends on it.

use clawnode_kernel::KernelBug;

use super::{RunFailure, RunReport, SimOptions, run};

const SEEDS: u64 = 60;

fn pruned(seed: u64, planted: KernelBug) -> Result<RunReport, Box<RunFailure>> {
    let trace = planted == KernelBug::None;
    run(&SimOptions { seed, planted, trace, few_turns: true, ..SimOptions::default() })
}

#[test]
fn sim_few_turns() {
    let turns_of =
        |seed| pruned(seed, KernelBug::None).unwrap_or_else(|failure| panic!("{failure}")).turns;
    let turns: usize = (0..SEEDS).map(turns_of).sum();
    assert!(turns as u64 > 6 * SEEDS, "{turns} turns");
}

/// A turn that leaves the state before its end is published is found, and the seed is green without.
#[test]
fn finds_prunes_unpublished() {
    let early = |seed| Some((seed, pruned(seed, KernelBug::PrunesUnpublished).err()?));
    let (seed, failure) = (0..SEEDS).find_map(early).unwrap();
    assert_eq!(failure.violation.name, "MSG-1", "{failure}");
    pruned(seed, KernelBug::None).unwrap_or_else(|failure| panic!("{failure}"));
}
