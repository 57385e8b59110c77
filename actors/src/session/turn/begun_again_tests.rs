//! Sessions that begin again after they were deleted: a message that comes again gives other ids.

#[cfg(feature = "test-util")]
use clawnode_kernel::{Entity, KernelBug};
use clawnode_kernel::{LoadedJournal, MachineOptions, core::SnapshotBody};
use clawnode_proto::{
    CallId, IdempotencyKey, InputId, Seq, Timestamp, TurnId,
    after_deletion::{AfterDeletion, BegunAgain},
    codec,
    event::decode_record,
    job::Job,
    limits::{DEDUP_AGE, DEDUP_MIN},
    session::{SessionEvent, SessionInput, ToolEnd, ToolResult, TurnOutcome},
    tool::ToolOutcome,
};

#[cfg(feature = "test-util")]
use super::kind::Session;
use super::{
    prepare::SessionJob,
    state::{SessionState, Turn},
};
use crate::session::played::{PlayedActivation, key};

const MESSAGE: &str = "go";
/// Later than the message, and no turn has so little time.
const RESULT_AT: Timestamp = Timestamp(2_001);

fn state(run: &PlayedActivation) -> SessionState {
    run.machine.settled().unwrap().state.clone()
}

fn turn(run: &PlayedActivation) -> Turn {
    let state = state(run);
    state.running().cloned().unwrap_or_else(|| panic!("no turn runs: {:?}", state.closed))
}

fn resumed(run: PlayedActivation) -> PlayedActivation {
    let loaded = LoadedJournal { records: run.journal, snapshot: None };
    PlayedActivation::with(&[], loaded, MachineOptions::default(), true)
}

/// What the events are, and their numbers.
fn events(run: &PlayedActivation) -> Vec<(String, u64)> {
    let records = run.journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap());
    records.map(|event| (event.head.kind, event.head.n.0)).collect()
}

/// A message whose turn waits for a tool.
fn asks(run: &mut PlayedActivation, message: &str) -> Job {
    run.says(message);
    run.replies(&[("far", r#"{"at":1}"#)]);
    let published = run.started.iter().rev().find_map(|(_, job)| match job {
        SessionJob::Publish(publish) => Some(publish.job.clone()),
        _ => None,
    });
    published.unwrap()
}

fn brings(run: &mut PlayedActivation, job: &Job) {
    let end = ToolEnd::Known { outcome: ToolOutcome::done("seen") };
    let result = ToolResult { call: job.call, nonce: job.nonce, end };
    run.hears(IdempotencyKey::of_job(job.id).as_str(), &SessionInput::ToolResult(result));
}

/// A session with this turn was deleted; with the job of the turn.
fn deleted(message: &str) -> (PlayedActivation, Job) {
    let mut run =
        PlayedActivation::with(&[], LoadedJournal::default(), MachineOptions::default(), true);
    let job = asks(&mut run, message);
    run.now.wall = RESULT_AT;
    brings(&mut run, &job);
    run.replies(&[]);
    assert_eq!(state(&run).closed.len(), 1);
    run.hears("delete", &SessionInput::Delete);
    let mut run = resumed(run);
    run.now.wall = RESULT_AT;
    (run, job)
}

/// The same, and a message of the turn is forgotten, but not what came after it.
fn forgets_the_message() -> (PlayedActivation, Job) {
    let (mut run, job) = deleted(MESSAGE);
    let age = u64::try_from(DEDUP_AGE.as_millis()).unwrap();
    run.now.wall = Timestamp(age + RESULT_AT.0 / 2);
    for n in 0..DEDUP_MIN {
        run.hears(&format!("late-{n}"), &SessionInput::Cancel { turn: job.turn });
    }
    let core = &run.machine.settled().unwrap().core;
    let id = |name: &IdempotencyKey| InputId::derive(key().entity(), name);
    assert!(!core.has(id(&MESSAGE.parse().unwrap())));
    assert!(core.has(id(&IdempotencyKey::of_job(job.id))));
    (run, job)
}

#[test]
fn a_message_that_comes_again_waits_for_a_result_of_its_own() {
    let (mut run, before) = forgets_the_message();
    let job = asks(&mut run, MESSAGE);
    assert_eq!(job.turn, before.turn);
    assert_ne!((job.id, job.call), (before.id, before.call));
    let call = turn(&run).steps[0].call;
    assert_ne!(call, CallId::derive(job.turn, 0));
    assert!(call.is_at(job.turn, 0));
    brings(&mut run, &job);
    assert!(turn(&run).steps[1].call.is_at(job.turn, 1));
    run.replies(&[]);
    let outcome = state(&run).closed[0].outcome.clone();
    assert!(matches!(outcome, Some(TurnOutcome::Completed { .. })), "{outcome:?}");
}

#[cfg(feature = "test-util")]
#[test]
fn with_the_ids_of_before_it_would_wait_for_ever() {
    let bug = KernelBug::GivesIdsAgain.in_folds();
    let (mut run, before) = forgets_the_message();
    let job = asks(&mut run, MESSAGE);
    assert_eq!((job.id, job.call), (before.id, before.call));
    brings(&mut run, &job);
    assert!(turn(&run).steps[0].tools[0].brought.is_none());
    drop(bug);
}

#[test]
fn a_session_records_what_its_ids_follow_from_and_keeps_it_in_snapshots() {
    let (mut run, _) = deleted(MESSAGE);
    let (tombstone, deletion) = events(&run)[0].clone();
    assert_eq!(tombstone, "snapshot");
    run.says("more");
    let kinds: Vec<String> = events(&run).into_iter().map(|(kind, _)| kind).collect();
    let at = kinds.iter().position(|kind| kind == "born").unwrap();
    assert_eq!(&kinds[at..at + 3], ["born", "begun_again", "accepted"]);
    let entity = run.machine.settled().unwrap();
    let after = AfterDeletion::of(Seq(deletion));
    assert_eq!((entity.state.after, turn(&run).after), (after, after));
    let bytes = entity.snapshot().unwrap();
    let body: SnapshotBody<'_> = codec::decode_part(&bytes).unwrap();
    assert!(body.needs.contains(&"begun_again".to_owned()), "builds that do not know it stay away");
    let kept: SessionState = codec::decode(&body.kind).unwrap();
    assert_eq!(kept.after, after);
    assert_eq!(kept.running().unwrap().next_call(), after.call(turn(&run).id, 0));
}

#[test]
fn no_two_deletions_give_the_same_ids() {
    let (mut run, first) = deleted(MESSAGE);
    let mut calls = vec![first.call];
    for n in 0..3 {
        // As if the tombstone had lost all that it knew.
        let turn = TurnId::from(InputId::derive(key().entity(), &MESSAGE.parse().unwrap()));
        run.says(&format!("more-{n}"));
        let after = state(&run).after;
        calls.push(CallId::derive_tool(after.call(turn, 0), 0));
        run.replies(&[]);
        run.hears(&format!("delete-{n}"), &SessionInput::Delete);
        run = resumed(run);
        run.now.wall = RESULT_AT;
    }
    let mut once = calls.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), 4, "{calls:?}");
}

/// An earlier build let it begin again, and gave the ids of a session that was never deleted.
#[cfg(feature = "test-util")]
#[test]
fn what_an_earlier_build_began_goes_on_with_its_ids() {
    let bug = KernelBug::GivesIdsAgain.in_folds();
    let (mut run, _) = deleted(MESSAGE);
    let job = asks(&mut run, "more");
    drop(bug);
    assert!(!events(&run).iter().any(|(kind, _)| kind == "begun_again"));
    let loaded = LoadedJournal { records: run.journal.clone(), snapshot: None };
    let read = Entity::<Session>::of(key().entity(), &loaded).unwrap();
    assert_eq!(read.state, state(&run), "as this build reads it");
    let running = turn(&run);
    assert_eq!(running.steps[0].call, CallId::derive(running.id, 0));
    assert_eq!(job.call, CallId::derive_tool(running.steps[0].call, 0));
    brings(&mut run, &job);
    assert_eq!(turn(&run).steps[1].call, CallId::derive(running.id, 1));
    run.replies(&[]);
    assert!(matches!(state(&run).closed[0].outcome, Some(TurnOutcome::Completed { .. })));
}

#[test]
fn a_session_that_has_begun_does_not_begin_again() {
    let again =
        |state: &mut SessionState, after| state.begun_again(BegunAgain { after: Seq(after) });
    let mut fresh = SessionState::default();
    assert!(again(&mut fresh, 0).is_err(), "after nothing");
    again(&mut fresh, 7).unwrap();
    assert!(again(&mut fresh, 8).is_err(), "twice");
    let mut run = PlayedActivation::new(&[], Vec::new());
    run.says(MESSAGE);
    assert!(again(&mut state(&run), 7).is_err());
    assert!(!events(&run).iter().any(|(kind, _)| kind == "begun_again"));
    let event = SessionEvent::from(BegunAgain { after: Seq(7) });
    assert!(clawnode_proto::Grammar::required(&event));
}
