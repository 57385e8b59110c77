//! Tests: what the calls of summaries used, counted once, listed and audited.

use std::sync::Arc;

use clawnode_cluster::SystemClock;
use clawnode_proto::{
    Attempt, Timestamp,
    event::decode_record,
    llm::{FailureClass, ModelFailure},
    money::MicroUsd,
    session::{SessionInput, UserMessage},
    usage::{CallEnd, Calls, Day, UsageCall},
};

use super::{
    audit, calls,
    cost_tests::{COST, USED, with_holds},
    session_usage::{CountedEvent, Meter},
    tests::World,
};
use crate::{
    agent::{AgentOptions, Grant},
    session::{Effect, Sessions, played::PlayedActivation},
};

const SUMMARIES: &str = "sim/small";
/// Turns after which the window is full for certain.
const TURNS_MOST: usize = 60;

/// Says as much as it takes until a summary is asked for; how many calls have ended.
fn fills(run: &mut PlayedActivation) -> u64 {
    let options = (*run.grant.options).clone();
    let (compact_model, window_tokens) = (Some(SUMMARIES.parse().unwrap()), Some(10_000));
    run.grant = Grant::free(AgentOptions { compact_model, window_tokens, ..options });
    for turn in 0..TURNS_MOST {
        let text = format!("m{turn} {}", "x".repeat(3_000));
        run.hears(&format!("m{turn}"), &SessionInput::UserMessage(UserMessage::text(text)));
        if matches!(run.started.last(), Some((Effect::Compact { .. }, _))) {
            return turn as u64;
        }
        run.replies_for(USED, &[]);
    }
    panic!("no summary was asked for")
}

fn broken() -> ModelFailure {
    ModelFailure::new(FailureClass::BrokenStream, "no")
}

/// How the call of a summary ends, and what counts of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SummaryEnd {
    Done,
    Failed,
    /// The process died over it, and it was made again.
    LostOnce,
    /// The process died over both attempts.
    Lost,
}

impl SummaryEnd {
    fn play(self, world: &mut World) {
        let crash = |world: &mut World| {
            let before = std::mem::replace(&mut world.run, PlayedActivation::new(&[], Vec::new()));
            world.run = PlayedActivation::resumed(before);
        };
        match self {
            Self::Done => world.run.replies_for(USED, &[]),
            Self::Failed => world.run.fails_as(broken(), USED),
            Self::LostOnce => {
                crash(world);
                world.run.replies_for(USED, &[]);
            }
            Self::Lost => {
                crash(world);
                crash(world);
            }
        }
    }

    fn counts(self) -> Calls {
        let lost = MicroUsd(9_000);
        let costs = |cost| Calls { cost, ..Calls::default() };
        match self {
            Self::Done => Calls { done: 1, usage: USED, ..costs(COST) },
            Self::Failed => Calls { failed: 1, wasted: USED, ..costs(COST) },
            Self::LostOnce => {
                Calls { done: 1, lost: 1, usage: USED, ..costs(MicroUsd(COST.0 + lost.0)) }
            }
            Self::Lost => Calls { lost: 2, ..costs(MicroUsd(2 * lost.0)) },
        }
    }
}

/// A session with one summary that ends so; how many calls of its own model there are.
async fn played(end: SummaryEnd) -> (World, u64) {
    let mut world = World::new(u64::MAX);
    let turns = fills(&mut world.run);
    end.play(&mut world);
    // The call of the turn itself.
    world.run.replies_for(USED, &[]);
    world.store().await;
    {
        let mut tape = world.tape.records.lock().unwrap();
        *tape = with_holds(&tape, |_| true);
    }
    world.count().await;
    world.save().await;
    (world, turns + 1)
}

async fn listed(world: &World) -> Vec<UsageCall> {
    let sessions = Sessions::new(world.storage.clone(), Arc::new(SystemClock));
    let all = calls(&sessions, Timestamp(0), None, 1_000).await.unwrap();
    assert!(!all.partial && all.next.is_none());
    all.calls
}

/// USE-1: a row for each attempt, under the model that makes summaries, and the cost by the price that was held.
#[tokio::test]
async fn the_call_of_a_summary_is_counted_once_listed_and_audited() {
    for end in [SummaryEnd::Done, SummaryEnd::Failed, SummaryEnd::LostOnce, SummaryEnd::Lost] {
        let (world, own) = played(end).await;
        let expected = end.counts();
        let total = world.shown().await.total;
        assert_eq!(total.done, own + expected.done, "{end:?}");
        assert_eq!((total.failed, total.lost), (expected.failed, expected.lost), "{end:?}");
        assert_eq!(total.cost.0, own * COST.0 + expected.cost.0, "{end:?}");
        assert_eq!((total.unpriced, total.wasted), (0, expected.wasted), "{end:?}");

        let all = listed(&world).await;
        let of_summaries = |call: &&UsageCall| call.model.to_string() == SUMMARIES;
        let rows: Vec<&UsageCall> = all.iter().filter(of_summaries).collect();
        let attempts = expected.done + expected.failed + expected.lost;
        assert_eq!(rows.len() as u64, attempts, "{end:?}: {rows:?}");
        assert_eq!(all.len() as u64, own + attempts, "{end:?}");
        let cost: u64 = rows.iter().map(|row| row.cost.unwrap().0).sum();
        assert_eq!(cost, expected.cost.0, "{end:?}");
        let lost = rows.iter().filter(|row| row.end == CallEnd::Lost).count();
        assert_eq!(lost as u64, expected.lost, "{end:?}");
        assert!(rows.iter().all(|row| row.wasted == (row.end != CallEnd::Done)), "{rows:?}");
        // Its turn's own call is another one.
        let turn = rows[0].turn;
        assert!(all.iter().any(|row| row.turn == turn && row.call != rows[0].call), "{end:?}");

        let audited = audit(&world.storage, Timestamp(1), Day(0)).await.unwrap();
        assert!(audited.differences.is_empty() && audited.unproven.is_empty(), "{audited:?}");
        assert_eq!(audited.journaled, total, "{end:?}");
    }
}

/// It has an end in the journal, and was no call.
#[tokio::test]
async fn a_summary_that_is_not_made_counts_nothing() {
    let mut world = World::new(u64::MAX);
    let turns = fills(&mut world.run);
    world.run.fails_as(broken(), USED);
    world.run.replies_for(USED, &[]);
    let options = (*world.run.grant.options).clone();
    world.run.grant = Grant::free(AgentOptions { compact_model: None, ..options });
    let message = UserMessage::text("x".repeat(3_000));
    world.run.hears("last", &SessionInput::UserMessage(message));
    let last = world.run.appends.last().unwrap();
    assert_eq!(last.first(), Some(&"compaction_failed"), "{last:?}");
    world.run.replies_for(USED, &[]);
    world.store().await;
    world.count().await;
    world.save().await;
    let total = world.shown().await.total;
    assert_eq!((total.done, total.failed, total.lost), (turns + 2, 1, 0));
    assert_eq!(listed(&world).await.len() as u64, turns + 3);
}

/// A snapshot has no price of the summary that is under way: what it replaced has it.
#[test]
fn the_price_of_a_summary_is_found_before_a_snapshot() {
    let mut run = PlayedActivation::new(&[], Vec::new());
    let calls = usize::try_from(fills(&mut run)).unwrap();
    let journal = run.journal.clone();
    let mut meter = Meter::default();
    let take = |meter: &mut Meter, records: &[clawnode_cluster::Record]| {
        let events = records.iter().flat_map(|record| decode_record(&record.bytes).unwrap());
        let counted = events.flat_map(|sealed| meter.take(&sealed).unwrap());
        counted.filter_map(CountedEvent::call).collect::<Vec<_>>()
    };
    take(&mut meter, &journal);
    assert!(meter.lacks_hold());
    let without = with_holds(&journal, |attempt| attempt != calls);
    assert!(meter.find_hold(&without) && meter.lacks_hold(), "the hold is another one's");
    assert!(meter.find_hold(&with_holds(&journal, |_| true)) && !meter.lacks_hold());
    run.replies_for(USED, &[]);
    let counted = take(&mut meter, &run.journal[journal.len()..]);
    let counted: Vec<_> = counted.iter().map(|found| (found.attempt, found.cost)).collect();
    assert_eq!(counted, [(Attempt(1), Some(COST))]);
}
