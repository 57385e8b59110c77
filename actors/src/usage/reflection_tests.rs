//! Tests: what the calls of reflections used, counted once, listed and audited.

use std::sync::Arc;

use clawnode_cluster::SystemClock;
use clawnode_kernel::MachineInput;
use clawnode_proto::{
    Attempt, Timestamp, TurnId,
    agent_profile::RatingProfile,
    event::decode_record,
    llm::{FailureClass, ModelFailure, StopReason},
    reflection::ReflectInput,
    session::SessionInput,
    usage::{CallEnd, Day, UsageCall},
};

use super::{
    audit, calls,
    cost_tests::{COST, USED, with_holds},
    session_usage::{CountedEvent, Meter},
    tests::World,
};
use crate::{
    agent::{AgentMemory, AgentOptions, Grant},
    session::{SessionJob, Sessions, played::PlayedActivation},
};

const LOOKS_BACK: &str = "sim/small";

/// How the call of a reflection ends.
#[derive(Clone, Copy, Debug)]
enum ReflectionEnd {
    /// The reply is no rating.
    Failed,
    /// A message ended it, and the call said what it had used.
    Interrupted,
    /// The same, and the call said nothing.
    Lost,
    /// The process died over it, and it was made again.
    LostOnce,
}

/// One turn, and a model that looks back at it.
fn reflects(run: &mut PlayedActivation) {
    let options = (*run.grant.options).clone();
    let (compact_model, memory) = (LOOKS_BACK.parse().ok(), Some(AgentMemory::default()));
    run.grant = Grant::free(AgentOptions { memory, compact_model, ..options });
    run.says("work");
    run.replies_for(USED, &[]);
    let turn = run.machine.settled().unwrap().state.closed[0].id;
    run.hears("ask", &SessionInput::Reflect(ReflectInput { turn }));
    let Some((_, SessionJob::Call(job))) = run.started.last() else { panic!("not called") };
    assert_eq!(job.request.model.to_string(), LOOKS_BACK);
}

impl ReflectionEnd {
    fn play(self, world: &mut World) {
        match self {
            Self::Failed => world.run.replies_for(USED, &[]),
            Self::Interrupted => {
                let (effect, job) = world.run.started.pop().unwrap();
                world.run.says("and now?");
                world.run.started.push((effect, job));
                let failure = ModelFailure::new(FailureClass::Cancelled, "cancelled");
                world.run.fails_as(failure, USED);
                world.run.replies_for(USED, &[]);
            }
            Self::Lost => {
                let (effect, _) = world.run.started.pop().unwrap();
                world.run.says("and now?");
                world.run.feed(MachineInput::Gone(effect));
                world.run.replies_for(USED, &[]);
            }
            Self::LostOnce => {
                let empty = PlayedActivation::new(&[], Vec::new());
                let before = std::mem::replace(&mut world.run, empty);
                world.run = PlayedActivation::resumed(before);
                let stray = ReflectInput { turn: TurnId::from_u128(9) };
                world.run.hears("stray", &SessionInput::Reflect(stray));
                world.run.replies_for(USED, &[]);
            }
        }
    }

    /// Calls of the session's own model, then failed and lost ones of the model that looks back.
    const fn counts(self) -> [u64; 3] {
        match self {
            Self::Failed => [1, 1, 0],
            Self::Interrupted => [2, 1, 0],
            Self::Lost => [2, 0, 1],
            Self::LostOnce => [1, 1, 1],
        }
    }
}

/// USE-1: a row for each attempt, under the model that looked back.
#[tokio::test]
async fn use_1_the_call_of_a_reflection_is_counted_once() {
    for end in [
        ReflectionEnd::Failed,
        ReflectionEnd::Interrupted,
        ReflectionEnd::Lost,
        ReflectionEnd::LostOnce,
    ] {
        let mut world = World::new(u64::MAX);
        reflects(&mut world.run);
        end.play(&mut world);
        world.store().await;
        {
            let mut tape = world.tape.records.lock().unwrap();
            *tape = with_holds(&tape, |_| true);
        }
        world.count().await;
        world.save().await;
        let total = world.shown().await.total;
        let [done, failed, lost] = end.counts();
        assert_eq!([total.done, total.failed, total.lost], [done, failed, lost], "{end:?}");
        assert_eq!(total.unpriced, 0, "{end:?}");

        let sessions = Sessions::new(world.storage.clone(), Arc::new(SystemClock));
        let all = calls(&sessions, Timestamp(0), None, 1_000).await.unwrap().calls;
        let looks_back = |call: &&UsageCall| call.model.to_string() == LOOKS_BACK;
        let rows: Vec<&UsageCall> = all.iter().filter(looks_back).collect();
        assert_eq!(rows.len() as u64, failed + lost, "{end:?}: {rows:?}");
        let is_lost = |row: &&&UsageCall| row.end == CallEnd::Lost;
        assert_eq!(rows.iter().filter(is_lost).count() as u64, lost, "{end:?}");
        assert_eq!(all.len() as u64, done + failed + lost, "{end:?}");

        let audited = audit(&world.storage, Timestamp(1), Day(0)).await.unwrap();
        assert!(audited.differences.is_empty() && audited.unproven.is_empty(), "{audited:?}");
        assert_eq!(audited.journaled, total, "{end:?}");
    }
}

#[tokio::test]
async fn the_ratings_of_models_are_counted_apart_from_the_thumbs_of_people() {
    let mut world = World::new(u64::MAX);
    let rates = |run: &mut PlayedActivation, rating: u8| {
        run.replies_text(&format!(r#"{{"rating":{rating},"lessons":[]}}"#), StopReason::EndTurn);
    };
    reflects(&mut world.run);
    rates(&mut world.run, 4);
    for (text, rating) in [("more", 1), ("and more", 9)] {
        world.run.says(text);
        world.run.replies_for(USED, &[]);
        let turn = world.run.machine.settled().unwrap().state.closed.last().unwrap().id;
        world.run.hears(&format!("of {text}"), &SessionInput::Reflect(ReflectInput { turn }));
        rates(&mut world.run, rating);
    }
    world.store().await;
    world.count().await;
    world.save().await;
    let profile = world.profile().await;
    let RatingProfile { count, mean } = profile.ratings;
    assert_eq!((count, mean), (2, Some(2.5)), "a reply that is no rating counts as none");
    assert_eq!((profile.feedback.up, profile.feedback.down), (0, 0));
    assert_eq!(profile.turns.succeeded, 3, "and a reflection is no turn");
}

/// A snapshot has no price of the reflection that is under way: what it replaced has it.
#[test]
fn the_price_of_a_reflection_is_found_before_a_snapshot() {
    let mut run = PlayedActivation::new(&[], Vec::new());
    reflects(&mut run);
    let journal = run.journal.clone();
    let mut meter = Meter::default();
    let take = |meter: &mut Meter, records: &[clawnode_cluster::Record]| {
        let events = records.iter().flat_map(|record| decode_record(&record.bytes).unwrap());
        let counted = events.flat_map(|sealed| meter.take(&sealed).unwrap());
        counted.filter_map(CountedEvent::call).collect::<Vec<_>>()
    };
    take(&mut meter, &journal);
    assert!(meter.lacks_hold());
    assert!(meter.find_hold(&with_holds(&journal, |_| true)) && !meter.lacks_hold());
    run.replies_for(USED, &[]);
    let counted = take(&mut meter, &run.journal[journal.len()..]);
    let counted: Vec<_> = counted.iter().map(|found| (found.attempt, found.cost)).collect();
    assert_eq!(counted, [(Attempt(1), Some(COST))]);
}
