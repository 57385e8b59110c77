//! The kernel in a simulated world: many seeds, each with its own faults, all invariants checked
//! after every step.
//!
//! A failure prints how to replay its seed. `CLAWNODE_SOAK` sets how many seeds `sim_soak` runs.

use clawnode_actors::durable::{
    Planted,
    sim::{Failure, Report, SimOptions, run},
};

/// Seeds of each of the tests that run in parallel.
const SEEDS: u64 = 250;

fn one(seed: u64, planted: Planted) -> Result<Report, Box<Failure>> {
    run(&SimOptions { seed, planted, trace: false })
}

/// Runs the seed again with its trace, and fails with its end.
fn replay(seed: u64, planted: Planted) -> Report {
    match run(&SimOptions { seed, planted, trace: true }) {
        Ok(report) => report,
        Err(failure) => panic!("{failure}"),
    }
}

fn sweep(seeds: std::ops::Range<u64>) {
    let mut total = (0, 0, 0, 0);
    for seed in seeds {
        match one(seed, Planted::None) {
            Ok(report) => {
                total.0 += report.turns;
                total.1 += report.calls;
                total.2 += report.quarantined;
                total.3 += report.steps;
            }
            Err(_) => {
                replay(seed, Planted::None);
            }
        }
    }
    println!(
        "{} turns, {} provider calls, {} quarantined, {} steps",
        total.0, total.1, total.2, total.3
    );
}

/// All failures of many seeds at once, by name; for long runs.
#[test]
#[ignore = "a long run: `CLAWNODE_SOAK=50000 cargo nextest run --run-ignored all -E 'test(sim_soak)'`"]
fn sim_soak() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (from, count) =
        (number("CLAWNODE_SEED").unwrap_or(1_000_000), number("CLAWNODE_SOAK").unwrap_or(50_000));
    let mut found = std::collections::BTreeMap::<&str, Vec<(u64, u64, String)>>::new();
    for seed in from..from + count {
        if let Err(failure) = one(seed, Planted::None) {
            let detail = failure.violation.detail.clone();
            found.entry(failure.violation.name).or_default().push((failure.steps, seed, detail));
        }
    }
    for (name, failures) in &mut found {
        failures.sort();
        let (steps, seed, detail) = &failures[0];
        println!("{name}: {} seeds, shortest {seed} ({steps} steps): {detail}", failures.len());
    }
    assert!(found.is_empty(), "see above");
}

#[test]
fn sim_replay() {
    let seed = std::env::var("CLAWNODE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("{:?}", replay(seed, Planted::None));
}

#[test]
fn sim_seeds_0() {
    sweep(0..SEEDS);
}
