//! Snapshots of sessions: when they are made, what they leave, and what a crash over one leaves.

use clawnode_cluster::Record;
use clawnode_kernel::{
    Entity, LoadedJournal, MachineOptions,
    archive::{self, leftovers, snapshot_of},
};
use clawnode_proto::{
    Digest,
    kernel::{KernelEvent, SnapshotState},
    limits::INLINE_BYTES,
    session::{SessionInput, UserMessage},
};

use crate::session::{
    Session,
    played::{PlayedActivation, key},
};

fn every(events: u64) -> MachineOptions {
    MachineOptions { snapshot_every: events, ..MachineOptions::default() }
}

fn begin(events: u64) -> PlayedActivation {
    resume(LoadedJournal::default(), every(events))
}

fn resume(loaded: LoadedJournal, options: MachineOptions) -> PlayedActivation {
    PlayedActivation::with(&[], loaded, options, true)
}

/// A message of so many bytes, and its reply.
fn turn(run: &mut PlayedActivation, n: usize, bytes: usize) {
    let text = UserMessage::text("x".repeat(bytes));
    run.hears(&format!("m{n}"), &SessionInput::UserMessage(text));
    run.replies(&[]);
}

fn loaded(run: &PlayedActivation) -> LoadedJournal {
    let state = run.archives.last().map(|(_, state)| state.clone());
    LoadedJournal { records: run.journal.clone(), snapshot: state }
}

fn bytes(records: &[Record]) -> usize {
    records.iter().map(|record| record.bytes.len()).sum()
}

#[test]
fn a_session_that_never_rests_is_snapshotted() {
    let mut run = begin(20);
    run.says("m0");
    for n in 1..40 {
        // The next message is there before the reply to the last one is.
        run.says(&format!("m{n}"));
        run.replies(&[]);
        assert_eq!(run.started.len(), 1, "a call is under way, always");
    }
    assert!(run.archives.len() >= 2, "{}", run.archives.len());
    // What is in the journal and what was archived is the whole past, and each state is its sum.
    let whole = Entity::<Session>::of(key().entity(), &loaded(&run)).unwrap();
    assert_eq!(whole.state.closed.len(), 39);
    assert_eq!(whole.state.open.len(), 1);
    for (records, state) in &run.archives {
        let first = snapshot_of(records).map(|snapshot| snapshot.state);
        assert!(!matches!(first, Some(SnapshotState::Blob { .. })));
        let part = LoadedJournal { records: records.clone(), snapshot: None };
        let folded = Entity::<Session>::of(key().entity(), &part).unwrap();
        assert_eq!(&folded.snapshot().unwrap()[..], &state[..]);
    }
    // Who takes over makes the call that was under way once more, and goes on.
    let mut successor = resume(loaded(&run), every(20));
    assert_eq!(successor.started.len(), 1);
    successor.replies(&[]);
    assert_eq!(successor.machine.settled().unwrap().state.closed.len(), 40);
}

#[test]
fn what_snapshots_store_is_in_proportion_to_what_was_said() {
    let stored = |turns: usize| {
        let mut run = begin(20);
        for n in 0..turns {
            turn(&mut run, n, 20_000);
        }
        let archives: usize = run.archives.iter().map(|(records, _)| bytes(records)).sum();
        let states: Vec<Digest> = run
            .archives
            .iter()
            .filter(|(_, state)| state.len() > INLINE_BYTES)
            .map(|(_, state)| Digest::of(state))
            .collect();
        // All states but the one that the journal loads from are removed, each once.
        let (newest, earlier) = states.split_last().unwrap();
        assert_eq!(run.discarded, earlier);
        assert_eq!(clawnode_kernel::core::snapshot_blob(&run.journal), Some(*newest));
        let kept = run.archives.last().unwrap().1.len();
        assert!(archives + kept <= 3 * turns * 20_000, "{archives} + {kept}");
        archives + kept
    };
    let (few, many) = (stored(100), stored(400));
    assert!(many < 5 * few, "{few} {many}");
}

#[test]
fn what_a_death_over_a_snapshot_left_is_found_by_who_comes_after() {
    let mut run = begin(20);
    run.dies = true;
    for n in 0..9 {
        let text = UserMessage::text("x".repeat(120_000));
        run.hears(&format!("m{n}"), &SessionInput::UserMessage(text));
        if !run.archives.is_empty() {
            break;
        }
        run.replies(&[]);
        if !run.archives.is_empty() {
            break;
        }
    }
    let [(records, state)] = &run.archives[..] else { panic!("{}", run.archives.len()) };
    assert!(state.len() > INLINE_BYTES);
    let left = [Digest::of(&archive::pack(records).unwrap()), Digest::of(state)];
    let id = key().entity();
    assert!(leftovers::<Session>(id, &loaded(&run)).is_empty(), "its owner may still be at it");
    let options = every(10_000);
    let mut successor =
        resume(LoadedJournal { records: run.journal.clone(), snapshot: None }, options);
    let found = |run: &PlayedActivation| {
        leftovers::<Session>(id, &LoadedJournal { records: run.journal.clone(), snapshot: None })
    };
    assert_eq!(found(&successor), left);
    // Also when much has happened since.
    if !successor.started.is_empty() {
        successor.replies(&[]);
    }
    turn(&mut successor, 99, 10);
    assert_eq!(found(&successor), left);
}

#[test]
fn a_deletion_is_over_once_nothing_is_left() {
    let mut run = begin(20);
    for n in 0..4 {
        turn(&mut run, n, 120_000);
    }
    let state = clawnode_kernel::core::snapshot_blob(&run.journal).unwrap();
    let done = run.completed.len();
    run.hears("delete", &SessionInput::Delete);
    assert_eq!(run.scrubbed, [vec![state]]);
    assert_eq!(run.completed.len(), done, "who ordered it is not told before");
    // Its owner dies here: the order comes again, and so does what is left to do.
    let records = run.journal.clone();
    let tombstone = snapshot_of(&records).unwrap();
    assert_eq!(tombstone.superseded, Some(vec![state]));
    let mut successor = resume(LoadedJournal { records, snapshot: None }, every(20));
    successor.hears("delete", &SessionInput::Delete);
    assert_eq!(successor.scrubbed, [vec![state]]);
    assert!(successor.completed.is_empty());
    successor.feed(clawnode_kernel::MachineInput::Scrubbed);
    assert_eq!(successor.completed.len(), 1);
    let last = successor.journal.last().unwrap();
    let events = clawnode_proto::event::decode_record(&last.bytes).unwrap();
    assert!(matches!(events[0].event::<KernelEvent>(), Ok(Some(KernelEvent::Claim(_)))));
}
