//! Sessions that do not grow: what their states keep, when turns leave them, and that replays agree.

use clawnode_cluster::Record;
use clawnode_kernel::{
    Entity, EntityKind as _, LoadedJournal, MachineInput, MachineOptions, archive,
    fewer_kept_turns::keep_few,
};
use clawnode_proto::{
    Digest, codec,
    context::{ContextMode, ContextRules, ContextSettings},
    event::decode_record,
    limits::{KEPT_RECENT_TURNS, KEPT_TURN_BYTES},
    session::{SessionEvent, SessionInput, UserMessage},
};

use crate::agent::{AgentOptions, Grant};
use crate::session::{
    Effect, Session, SessionState,
    played::{PlayedActivation, key},
};

/// How many turns a state keeps at most under the rules of version 2.
const LAST_TURNS: usize = 16;
/// The rules of today, by default.
const AUTO: ContextSettings = shown_turns(ContextMode::Auto, 5_000);
/// The same with room for a few short turns.
pub(in crate::session) const TIGHT: ContextSettings = shown_turns(ContextMode::Bounded, 256);

/// The rules under which a state keeps the last turns only.
fn last_turns() -> ContextSettings {
    ContextSettings { rules: ContextRules::V2, ..AUTO }
}

/// The rules under which a state keeps what requests may show.
const fn shown_turns(mode: ContextMode, tokens: u32) -> ContextSettings {
    ContextSettings { rules: ContextRules::V3, mode, tokens, recent_turns: 5 }
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
    let mut run = begin(Some(last_turns()), 200);
    let mut sizes = Vec::new();
    for n in 0..500 {
        turn(&mut run, n);
        assert!(state(&run).closed.len() <= LAST_TURNS);
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
    let mut run = begin(Some(last_turns()), 10_000);
    let mut kept = Vec::new();
    for n in 0..LAST_TURNS + 6 {
        turn(&mut run, n);
        kept.push(state(&run).closed.len());
    }
    let block = LAST_TURNS / 4;
    assert_eq!(kept[LAST_TURNS - 1], LAST_TURNS);
    assert_eq!(kept[LAST_TURNS], LAST_TURNS - block);
    assert_eq!(kept[LAST_TURNS + block], LAST_TURNS);
    // A few long texts are as much as many short ones, and the last turn stays whatever its size.
    for n in 0..3 {
        let text = UserMessage::text("x".repeat(KEPT_TURN_BYTES / 2 + n));
        run.hears(&format!("long {n}"), &SessionInput::UserMessage(text));
        run.replies(&[]);
    }
    assert_eq!(state(&run).closed.len(), 1);
    assert_eq!(state(&run).turn_count(), LAST_TURNS as u64 + 9);
}

#[test]
fn a_session_takes_the_new_rules_with_its_next_turn() {
    let mut run = begin(None, 50);
    (0..40).for_each(|n| turn(&mut run, n));
    assert_eq!(state(&run).closed.len(), 40);
    let opening = state(&run).opening().cloned();
    run.reload_context(Some(last_turns()));
    run.says("under new rules");
    assert_eq!(state(&run).closed.len(), 40, "its call is under way, and may be made again");
    run.replies(&[]);
    assert!(state(&run).closed.len() <= LAST_TURNS);
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
    run.reload_context(Some(last_turns()));
    let mut ends = Vec::new();
    for n in 0..LAST_TURNS + 4 {
        run.says(&format!("m{n}"));
        run.replies(&[]);
        let started = run.started.drain(..).map(|(effect, _)| effect);
        ends.extend(started.filter(|effect| matches!(effect, Effect::Emit { .. })));
    }
    assert_eq!(state(&run).closed.len(), LAST_TURNS + 4, "no end is published");
    for end in ends {
        run.feed(MachineInput::Confirmed(end));
    }
    turn(&mut run, 99);
    assert!(state(&run).closed.len() <= LAST_TURNS, "{}", state(&run).closed.len());
}

#[test]
fn no_turn_leaves_while_a_call_is_under_way() {
    let _few = keep_few(4);
    for context in [last_turns(), AUTO] {
        let mut run = begin(Some(context), 10_000);
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
}

#[test]
fn what_a_session_began_with_leaves_with_its_first_turn() {
    use clawnode_proto::llm::{Message, Role};

    for context in [last_turns(), TIGHT] {
        let mut run = begin(Some(context), 30);
        let history =
            vec![Message::text(Role::User, "  long ago"), Message::text(Role::Assistant, "so")];
        let message = UserMessage { history, ..UserMessage::text("now") };
        run.hears("first", &SessionInput::UserMessage(message));
        run.replies(&[]);
        (1..30).for_each(|n| turn(&mut run, n));
        let state = state(&run);
        assert!(state.seed.is_empty());
        assert_eq!(state.opening().and_then(|text| text.inline()), Some("long ago"));
        let left_out = state.left_out.as_ref().map(|left_out| left_out.turns as usize);
        let kept = state.closed.len();
        assert!(left_out.unwrap() + kept >= 30, "{left_out:?} and {kept}: the seed is a turn");
        replayed(&run);
    }
}

/// The owner dies while it stores a snapshot, after turns have left the state: who takes over folds the same state,
/// and finds what the snapshot left in the stores.
#[test]
fn a_death_over_a_snapshot_changes_nothing_of_what_is_kept() {
    let mut run = begin(Some(last_turns()), 250);
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
    assert!(before.state.turn_count() > LAST_TURNS as u64, "turns had left the state");
    let options = MachineOptions { snapshot_every: 10_000, ..MachineOptions::default() };
    let loaded = LoadedJournal { records: run.journal.clone(), snapshot: None };
    let mut successor = PlayedActivation::with(&[], loaded, options, true);
    successor.reload_context(Some(last_turns()));
    turn(&mut successor, turns);
    assert_eq!(state(&successor).turn_count(), before.state.turn_count() + 1);
    let loaded = LoadedJournal { records: successor.journal.clone(), snapshot: None };
    let left = archive::leftovers::<Session>(key().entity(), &loaded);
    assert_eq!(left, [Digest::of(&archive::pack(records).unwrap())]);
    replayed(&successor);
}

// === the rules of version 3 ===

/// A turn of usual size, with a call of a tool: more than 500 tokens.
fn usual_turn(run: &mut PlayedActivation, n: usize) {
    let text = format!("message {n:04}: {}", "what is new? ".repeat(100));
    run.hears(&format!("usual {n}"), &SessionInput::UserMessage(UserMessage::text(text)));
    run.replies(&[("none", &format!("{{\"about\":\"{}\"}}", "x".repeat(400)))]);
    run.replies(&[]);
}

/// How many turns the last request left out.
fn left_out(run: &PlayedActivation) -> usize {
    state(run).left_out.as_ref().map_or(0, |left_out| left_out.turns as usize)
}

#[test]
fn ctx_3_a_short_history_stays_in_the_state_as_a_whole() {
    let mut run = begin(Some(AUTO), 200);
    for n in 0..100 {
        turn(&mut run, n);
        assert_eq!((state(&run).closed.len(), left_out(&run)), (n + 1, 0));
    }
    assert!(!run.archives.is_empty(), "over snapshots, too");
    assert_eq!(replayed(&run), 134);
}

#[test]
fn a_long_session_of_usual_turns_is_as_large_as_one_of_ten() {
    let mut run = begin(Some(AUTO), 200);
    let mut young = 0;
    for n in 0..500 {
        usual_turn(&mut run, n);
        if n == 9 {
            young = size(&run);
        }
        assert!(size(&run) < 256 << 10, "{}", size(&run));
    }
    let old = size(&run);
    assert!(old * 2 <= young * 3, "{young} {old}");
    let (_, snapshot) = run.archives.last().unwrap();
    assert!(snapshot.len() <= 64 << 10, "{} with the ids of inputs", snapshot.len());
    assert_eq!(replayed(&run), 1_000);
}

/// CTX-3: what left the state was left out before, and nothing else leaves but what no request shows.
#[test]
fn turns_leave_once_no_request_shows_them() {
    let mut run = begin(Some(AUTO), 10_000);
    let (mut is_long, mut peak) = (false, 0);
    for n in 0..150 {
        usual_turn(&mut run, n);
        is_long |= left_out(&run) > 0;
        assert_eq!(is_long, left_out(&run) > 0, "a long history stays long: turn {n}");
        let kept = state(&run).closed.len();
        let gone = usize::try_from(state(&run).earlier.turns).unwrap();
        assert!(gone <= left_out(&run), "turn {n}");
        let is_rest = gone == left_out(&run) || kept == KEPT_RECENT_TURNS;
        assert!(gone == 0 || is_rest, "turn {n}: {gone} have left, {kept} stay");
        peak = peak.max(kept);
    }
    assert!(is_long && peak > 50, "{peak}");
    assert!(state(&run).closed.len() <= KEPT_RECENT_TURNS + 5);
    replayed(&run);
}

/// CTX-3: the model that a message or a route chooses, or that answers instead of another, may have a small window.
#[test]
fn one_request_to_a_small_model_makes_no_session_forget() {
    let mut run = begin(Some(AUTO), 10_000);
    (0..20).for_each(|n| usual_turn(&mut run, n));
    let usual = run.grant.clone();
    let window_tokens = Some(3_000);
    run.grant = Grant::free(AgentOptions { window_tokens, ..(*usual.options).clone() });
    usual_turn(&mut run, 20);
    assert!(left_out(&run) > 10, "{}", left_out(&run));
    run.grant = usual;
    usual_turn(&mut run, 21);
    assert_eq!((left_out(&run), state(&run).closed.len()), (0, 22));
    replayed(&run);
}

/// A state that is full lets a part go at once, and the session is long from then on.
#[test]
fn a_history_of_very_many_turns_is_long() {
    let _few = keep_few(40);
    let mut run = begin(Some(ContextSettings { tokens: 600, ..AUTO }), 10_000);
    (0..40).for_each(|n| turn(&mut run, n));
    assert_eq!((state(&run).closed.len(), left_out(&run)), (40, 0));
    turn(&mut run, 40);
    assert_eq!((state(&run).closed.len(), left_out(&run)), (30, 0));
    turn(&mut run, 41);
    assert!(left_out(&run) > 11, "{}: what is left in the state is bounded", left_out(&run));
    assert_eq!(state(&run).earlier.turns, left_out(&run) as u64);
    replayed(&run);
}

#[test]
fn sessions_of_earlier_rules_take_those_of_today() {
    for before in [None, Some(last_turns())] {
        let mut run = begin(before, 50);
        (0..40).for_each(|n| turn(&mut run, n));
        let (kept, gone) = (state(&run).closed.len(), state(&run).earlier.turns);
        assert_eq!(gone == 0, before.is_none());
        run.reload_context(Some(AUTO));
        (40..60).for_each(|n| turn(&mut run, n));
        assert_eq!(state(&run).closed.len(), kept + 20, "the history is short, or a few tokens");
        assert_eq!((state(&run).earlier.turns, state(&run).turn_count()), (gone, 60));
        replayed(&run);
    }
}
