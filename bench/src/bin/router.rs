//! `route::resolve/bindings=N`: what it costs to find the agent of a message.
//!
//! Half of the bindings name a peer, the rest a guild, a team, an account or a channel each, and
//! one in ten two conditions. The messages hit every kind and none, in a fixed shuffled order.
//! Run with `cargo run --release -p clawnode-bench --bin router`.
#![expect(clippy::print_stdout, reason = "figures are this program's output")]

use std::{
    hint::black_box,
    num::NonZeroU32,
    time::{Duration, Instant},
};

use clawnode_actors::session::clients::bindings::{Binding, RouteError, Routes};
use clawnode_proto::{AgentName, id::ParseIdError, route::Inbound};

/// Bindings per run.
const SIZES: [usize; 3] = [100, 1_000, 10_000];
/// Look-ups per round, and rounds per size; the figure is the median round.
const LOOKUPS: NonZeroU32 = NonZeroU32::new(100_000).expect("100,000 is not 0");
const ROUNDS: usize = 11;
/// What a look-up may take at 10,000 bindings.
const TARGET: Duration = Duration::from_micros(1);

#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error(transparent)]
    Route(#[from] RouteError),
    #[error(transparent)]
    Id(#[from] ParseIdError),
}

/// A message's fields, owned.
struct Sample([String; 5]);

fn main() -> Result<(), BenchError> {
    println!("{:<32} {:>10} {:>10} {:>12}", "route::resolve", "p50", "worst", "build");
    for size in SIZES {
        let bindings = bindings(size)?;
        let began = Instant::now();
        let routes = Routes::build("default".parse()?, &bindings)?;
        let built = began.elapsed();
        let mut rounds = rounds(&routes, &samples(size));
        rounds.sort_unstable();
        let (median, worst) = (rounds[ROUNDS / 2], rounds[ROUNDS - 1]);
        let name = format!("bindings={size}");
        println!("{name:<32} {median:>10.1?} {worst:>10.1?} {built:>12.1?}");
        if size == SIZES[SIZES.len() - 1] {
            let verdict = if median < TARGET { "met" } else { "missed" };
            println!("target: under {TARGET:?} at {size} bindings: {verdict}");
        }
    }
    Ok(())
}

/// Time of one look-up, by round.
fn rounds(routes: &Routes, samples: &[Sample]) -> Vec<Duration> {
    let lookups: Vec<Inbound<'_>> = samples.iter().map(Sample::inbound).collect();
    (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            for inbound in lookups.iter().cycle().take(LOOKUPS.get() as usize) {
                black_box(routes.resolve(black_box(inbound)));
            }
            began.elapsed() / LOOKUPS.get()
        })
        .collect()
}

fn bindings(count: usize) -> Result<Vec<Binding>, BenchError> {
    (0..count)
        .map(|at| {
            let agent: AgentName = format!("agent-{}", at % 100).parse()?;
            let mut binding = Binding::new(agent);
            let value = |field: &str| Some(format!("{field}-{at}"));
            match at % 10 {
                0..=4 => binding.peer = value("peer"),
                5 => binding.guild = value("guild"),
                6 => binding.team = value("team"),
                7 => binding.account = value("account"),
                8 => binding.channel = value("channel"),
                _ => {
                    binding.peer = value("peer");
                    binding.channel = value("channel");
                }
            }
            Ok(binding)
        })
        .collect()
}

/// One message per binding that hits it, and one in eight that hits nothing.
fn samples(count: usize) -> Vec<Sample> {
    // A fixed stride through all indexes: a shuffle without chance, prime to every size.
    let stride = 7_919;
    (0..count)
        .map(|at| {
            let at = at * stride % count;
            let hit = |field: &str, kinds: &[usize]| {
                let hits = kinds.contains(&(at % 10)) && !at.is_multiple_of(8);
                format!("{field}-{}", if hits { at } else { usize::MAX })
            };
            Sample([
                hit("peer", &[0, 1, 2, 3, 4, 9]),
                hit("guild", &[5]),
                hit("team", &[6]),
                hit("account", &[7]),
                hit("channel", &[8, 9]),
            ])
        })
        .collect()
}

// === impl Sample ===

impl Sample {
    fn inbound(&self) -> Inbound<'_> {
        let [peer, guild, team, account, channel] = &self.0;
        Inbound { channel, account, peer, guild: Some(guild), team: Some(team) }
    }
}
