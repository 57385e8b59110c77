//! Sessions that do not grow: what their states keep, when turns leave them, and that replays agree.

use clawnode_cluster::Record;
use clawnode_kernel::{
    Entity, EntityKind as _, LoadedJournal, MachineInput, MachineOptions, archive, kept::keep_few,
};
use clawnode_proto::{
    Digest, codec,
    context::{ContextMode, ContextRules, ContextSettings},
    event::decode_record,
    limits::{KEPT_TURN_BYTES, KEPT_TURNS},
    session::{SessionEvent, SessionInput, UserMessage},
};

use crate::session::{
    Effect, Session, SessionState,
    played::{PlayedActivation, key},
};

/// The rules under which a state keeps the last turns only.
pub(in crate::session) fn bounded() -> ContextSettings {
    let (rules, mode) = (ContextRules::V2, ContextMode::Auto);
    ContextSettings { rules, mode, tokens: 5_000, recent_turns: 5 }
}

/// A session under these rules, with snapshots after so many events.
pub(in crate::session) fn begin(context: Option<ContextSettings>, every: u64) -> PlayedActivation {
    let options = MachineOptions { snapshot_every: every, ..MachineOptions::default() };
    let mut run = PlayedActivation::with(&[], LoadedJournal::default(), options, true);
    run.reload_context(context);
    run
}

/// A turn of this number, with a tool call in every third one.
pub(in crate::session) fn turn(run: &mut PlayedActivation, n: usize) {
    run.says(&format!("message {n:04} of this conversation"));
    if n.is_multiple_of(3) {
        run.replies(&[("none", "{}")]);
    }
    run.replies(&[]);
}

fn state(run: &PlayedActivation) -> &SessionState {
    &run.machine.settled().unwrap().state
}

fn size(run: &PlayedActivation) -> usize {
    codec::encode(state(run)).unwrap().len()
}

/// All records that there ever were.
fn past(run: &PlayedActivation) -> Vec<Record> {
    run.archives.iter().flat_map(|(records, _)| records).chain(&run.journal).cloned().collect()
}

/// Folds the past from its beginning, and compares each request that a model was shown; returns how many.
fn replayed(run: &PlayedActivation) -> usize {
    let mut entity = Entity::<Session>::unborn(key().entity());
    let mut compared = 0;
    for record in past(run) {
        for sealed in decode_record(&record.bytes).unwrap() {
            if let Ok(Some(event)) = sealed.event::<SessionEvent>()
                && let Some(found) = Session::replay(&entity.state, &event)
            {
                found.unwrap();
                compared += 1;
            }
            entity.apply(&sealed).unwrap();
        }
    }
    assert_eq!(entity.state, *state(run), "the past adds up to the state");
    compared
}

#[test]
fn a_session_of_500_turns_is_as_large_as_one_of_100() {
    let mut run = begin(Some(bounded()), 200);
    let mut sizes = Vec::new();
    for n in 0..500 {
        turn(&mut run, n);
        assert!(state(&run).closed.len() <= KEPT_TURNS);
        // At the same place between two blocks.
        if [99, 499].contains(&n) {
            sizes.push(size(&run));
        }
    }
    assert_eq!(state(&run).turn_count(), 500);
    assert!(sizes[1] <= 64 << 10, "{sizes:?}");
    assert!(sizes[0].abs_diff(sizes[1]) <= 512, "{sizes:?}");
    let (_, snapshot) = run.archives.last().unwrap();
    assert!(snapshot.len() <= 64 << 10, "{} with the ids of inputs", snapshot.len());
    assert_eq!(replayed(&run), 667);
    let mut whole = begin(None, 200);
    (0..100).for_each(|n| turn(&mut whole, n));
    assert_eq!(state(&whole).closed.len(), 100, "rules of version 1 may show any turn");
}

#[test]
fn turns_leave_in_blocks_and_by_their_size() {
    let mut run = begin(Some(bounded()), 10_000);
    let mut kept = Vec::new();
    for n in 0..KEPT_TURNS + 6 {
        turn(&mut run, n);
        kept.push(state(&run).closed.len());
    }
    let block = KEPT_TURNS / 4;
    assert_eq!(kept[KEPT_TURNS - 1], KEPT_TURNS);
    assert_eq!(kept[KEPT_TURNS], KEPT_TURNS - block);
    assert_eq!(kept[KEPT_TURNS + block], KEPT_TURNS);
    // A few long texts are as much as many short ones, and the last turn stays whatever its size.
    for n in 0..3 {
        let text = UserMessage::text("x".repeat(KEPT_TURN_BYTES / 2 + n));
        run.hears(&format!("long {n}"), &SessionInput::UserMessage(text));
        run.replies(&[]);
    }
    assert_eq!(state(&run).closed.len(), 1);
    assert_eq!(state(&run).turn_count(), KEPT_TURNS as u64 + 9);
}

#[test]
fn a_session_takes_the_new_rules_with_its_next_turn() {
    let mut run = begin(None, 50);
    (0..40).for_each(|n| turn(&mut run, n));
    assert_eq!(state(&run).closed.len(), 40);
    let opening = state(&run).opening().cloned();
    run.reload_context(Some(bounded()));
    run.says("under new rules");
    assert_eq!(state(&run).closed.len(), 40, "its call is under way, and may be made again");
    run.replies(&[]);
    assert!(state(&run).closed.len() <= KEPT_TURNS);
    assert_eq!((state(&run).turn_count(), state(&run).opening()), (41, opening.as_ref()));
    // With the rules of before, nothing leaves any more, and what left does not come back.
    run.reload_context(None);
    let kept = state(&run).closed.len();
    (50..70).for_each(|n| turn(&mut run, n));
    assert_eq!(state(&run).closed.len(), kept + 20);
    replayed(&run);
}

#[test]
fn a_turn_stays_until_its_end_is_published() {
    let options = MachineOptions::default();
    let mut run = PlayedActivation::with(&[], LoadedJournal::default(), options, false);
    run.reload_context(Some(bounded()));
    let mut ends = Vec::new();
    for n in 0..KEPT_TURNS + 4 {
        run.says(&format!("m{n}"));
        run.replies(&[]);
        let started = run.started.drain(..).map(|(effect, _)| effect);
        ends.extend(started.filter(|it| matches!(it, Effect::Emit { .. })));
    }
    assert_eq!(state(&run).closed.len(), KEPT_TURNS + 4, "no end is published");
    for end in ends {
        run.feed(MachineInput::Confirmed(end));
    }
    turn(&mut run, 99);
    assert!(state(&run).closed.len() <= KEPT_TURNS, "{}", state(&run).closed.len());
}

#[test]
fn no_turn_leaves_while_a_call_is_under_way() {
    let _few = keep_few(4);
    let mut run = begin(Some(bounded()), 10_000);
    (0..4).for_each(|n| turn(&mut run, n));
    run.says("runs");
    run.says("waits behind it");
    let first = state(&run).closed[0].id;
    let waiting = state(&run).open[1].id;
    run.hears("cancel", &SessionInput::Cancel { turn: waiting });
    assert_eq!(state(&run).closed.len(), 5, "the cancelled turn has ended");
    assert_eq!(state(&run).closed[0].id, first, "and the call may be made again");
    run.replies(&[]);
    assert!(state(&run).closed.len() <= 4);
    replayed(&run);
}

#[test]
fn what_a_session_began_with_leaves_with_its_first_turn() {
    use clawnode_proto::llm::{Message, Role};

    let mut run = begin(Some(bounded()), 30);
    let history =
        vec![Message::text(Role::User, "  long ago"), Message::text(Role::Assistant, "so")];
    let message = UserMessage { history, ..UserMessage::text("now") };
    run.hears("first", &SessionInput::UserMessage(message));
    run.replies(&[]);
    (1..30).for_each(|n| turn(&mut run, n));
    let state = state(&run);
    assert!(state.seed.is_empty());
    assert_eq!(state.opening().and_then(|text| text.inline()), Some("long ago"));
    let left_out = state.left_out.as_ref().map(|it| it.turns as usize);
    let kept = state.closed.len();
    assert!(left_out.unwrap() + kept >= 30, "{left_out:?} and {kept}: the seed counts as a turn");
    replayed(&run);
}

/// The owner dies while it stores a snapshot, after turns have left the state: who takes over folds the same state,
/// and finds what the snapshot left in the stores.
#[test]
fn a_death_over_a_snapshot_changes_nothing_of_what_is_kept() {
    let mut run = begin(Some(bounded()), 250);
    run.dies = true;
    let mut turns = 0;
    while run.archives.is_empty() {
        assert!(turns < 100, "no snapshot");
        turn(&mut run, turns);
        turns += 1;
    }
    let [(records, _)] = &run.archives[..] else { panic!("{}", run.archives.len()) };
    let archived = LoadedJournal { records: records.clone(), snapshot: None };
    let before = Entity::<Session>::of(key().entity(), &archived).unwrap();
    assert!(before.state.turn_count() > KEPT_TURNS as u64, "turns had left the state");
    let options = MachineOptions { snapshot_every: 10_000, ..MachineOptions::default() };
    let loaded = LoadedJournal { records: run.journal.clone(), snapshot: None };
    let mut successor = PlayedActivation::with(&[], loaded, options, true);
    successor.reload_context(Some(bounded()));
    turn(&mut successor, turns);
    assert_eq!(state(&successor).turn_count(), before.state.turn_count() + 1);
    let loaded = LoadedJournal { records: successor.journal.clone(), snapshot: None };
    let left = archive::leftovers::<Session>(key().entity(), &loaded);
    assert_eq!(left, [Digest::of(&archive::pack(records).unwrap())]);
    replayed(&successor);
}
