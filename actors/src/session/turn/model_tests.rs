//! Tests: which model answers a turn, and how much of the conversation it is shown.

use clawnode_kernel::{Entity, EntityKind as _, LoadedJournal, MachineOptions};
use clawnode_proto::{
    Attempt, CallId, Digest,
    event::decode_record,
    llm::{FailureClass, Usage},
    session::{ModelBegun, SessionEvent, SessionInput, UserMessage},
};

use super::{
    attachments::AttachmentRule,
    context::{Assembled, assemble, assemble_by},
    dropping::Recorded,
};
use crate::{
    agent::{AgentOptions, Grant},
    session::{
        Session, SessionJob,
        played::{PlayedActivation, key},
    },
};

/// The models that were configured, in order.
fn configured(run: &PlayedActivation) -> Vec<String> {
    let events = run.journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap());
    let configured = events.filter_map(|sealed| match sealed.event().unwrap() {
        Some(SessionEvent::Configured(profile)) => Some(profile.model.to_string()),
        _ => None,
    });
    configured.collect()
}

/// Compares what models were shown with what the journal gives; how many calls there were.
fn replayed(run: &PlayedActivation) -> usize {
    let mut entity = Entity::<Session>::unborn(key().entity());
    let mut calls = 0;
    for sealed in run.journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap()) {
        let event = sealed.event::<SessionEvent>().unwrap();
        if let Some(found) = event.and_then(|event| Session::replay(&entity.state, &event)) {
            found.unwrap();
            calls += 1;
        }
        entity.apply(&sealed).unwrap();
    }
    calls
}

fn asks(run: &mut PlayedActivation, name: &str, model: &str) {
    let model = Some(model.parse().unwrap());
    let message = UserMessage { model, ..UserMessage::text(name) };
    run.hears(name, &SessionInput::UserMessage(message));
}

#[test]
fn a_turn_is_answered_by_the_model_that_it_chose_and_the_next_by_the_agents() {
    let mut run = PlayedActivation::new(&[], Vec::new());
    run.says("one");
    run.replies(&[]);
    asks(&mut run, "two", "ollama/llama2");
    let Some((_, SessionJob::Call(job))) = run.started.last() else { panic!("not called") };
    assert_eq!(job.request.model.to_string(), "ollama/llama2");
    assert!(job.request.tools.is_empty(), "it calls no tools");
    let state = &run.machine.settled().unwrap().state;
    assert_eq!(state.profile.as_ref().unwrap().window_tokens, 4_096);
    run.replies(&[]);
    run.says("three");
    run.replies(&[]);
    assert_eq!(configured(&run), ["sim/model", "ollama/llama2", "sim/model"]);
    assert_eq!(replayed(&run), 3);
}

#[test]
fn usage_records_name_the_model_that_was_asked() {
    let mut run = PlayedActivation::new(&[], Vec::new());
    run.says("hi");
    run.reload("sim/other");
    // No tool takes that, so the model is asked again.
    run.replies(&[("look", "{}")]);
    run.replies(&[]);
    let Some((_, SessionJob::Emit(job))) = run.started.last() else { panic!("not told") };
    let models: Vec<String> = job.calls.iter().map(|it| it.model.to_string()).collect();
    assert_eq!(models, ["sim/model", "sim/other"]);
    assert_eq!(replayed(&run), 2);
}

/// A session in a window of 1,500 tokens, whose model reports so many times the estimate.
fn in_a_small_window(numerator: u64, denominator: u64) -> (PlayedActivation, Vec<u32>) {
    let mut run = PlayedActivation::new(&[], Vec::new());
    let options = AgentOptions { window_tokens: Some(1_500), ..(*run.grant.options).clone() };
    run.grant = Grant::free(options);
    let mut dropped = Vec::new();
    for turn in 0..12 {
        run.says(&format!("m{turn} {}", "x".repeat(190)));
        let Some((_, SessionJob::Call(job))) = run.started.last() else { panic!("not called") };
        dropped.push(job.request.dropped_turns);
        let input_tokens = job.request.estimate() * numerator / denominator;
        run.replies_for(Usage { input_tokens, ..Usage::default() }, &[]);
    }
    (run, dropped)
}

#[test]
fn what_a_provider_counts_decides_how_much_a_model_is_shown() {
    let last = |(run, dropped): (PlayedActivation, Vec<u32>)| {
        assert_eq!(replayed(&run), 12, "every request is what the journal gives");
        *dropped.last().unwrap()
    };
    let (as_estimated, fewer, more) = (
        last(in_a_small_window(1, 1)),
        last(in_a_small_window(1, 2)),
        last(in_a_small_window(2, 1)),
    );
    assert!(fewer < as_estimated && as_estimated < more, "{fewer} {as_estimated} {more}");
}

/// Earlier builds left out what did not fit, and no more: what they show is what they did.
#[test]
fn a_replay_leaves_out_as_many_turns_as_the_attempt_did() {
    let (run, _) = in_a_small_window(2, 1);
    let mut entity = Entity::<Session>::unborn(key().entity());
    for sealed in run.journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap()) {
        entity.apply(&sealed).unwrap();
    }
    let mut state = entity.state;
    state.open.push_back(state.closed.pop().unwrap());
    let turn = state.open.front_mut().unwrap();
    turn.steps.clear();
    let (turn, profile) = (turn.clone(), state.profile.clone().unwrap());
    let begun = |request: Digest, dropped_turns, estimate| {
        let (call, attempt) = (CallId::derive(turn.id, 0), Attempt(1));
        let turn = turn.id;
        SessionEvent::from(ModelBegun { turn, call, attempt, request, dropped_turns, estimate })
    };
    let now = assemble(&state, &profile, &turn);
    let fewer = now.dropped_turns - 1;
    let recorded = Recorded { dropped_turns: fewer, attachments: AttachmentRule::Newest };
    let before = assemble_by(&state, &profile, &turn, Some(recorded));
    let (now, dropped) = (now.digest(), now.dropped_turns);
    let before = before.digest();
    assert_ne!(now, before);
    for estimate in [None, Some(1)] {
        for (request, dropped, is_right) in
            [(now, dropped, true), (before, fewer, true), (now, fewer, false), (before, 0, false)]
        {
            let found = Session::replay(&state, &begun(request, dropped, estimate)).unwrap();
            assert_eq!(found.is_ok(), is_right, "{dropped}");
        }
    }
}

/// A request, and how many of its messages are of turns before the running one.
struct Shown {
    request: Assembled,
    earlier: usize,
}

/// The request that was begun last.
fn shown(run: &PlayedActivation) -> Shown {
    let Some((_, SessionJob::Call(job))) = run.started.last() else { panic!("not called") };
    let running = run.machine.settled().unwrap().state.running().unwrap().messages().len();
    let request = job.request.clone();
    Shown { earlier: request.messages.len() - running, request }
}

/// Plays a session of so many turns, which `chance` (numbers below 100) decides, in a window of 4,000 tokens.
fn played(turns: usize, mut chance: impl FnMut() -> usize) -> (PlayedActivation, Vec<Shown>) {
    // No snapshot, so that the whole journal can be replayed.
    let machine = MachineOptions { snapshot_every: u64::MAX, ..MachineOptions::default() };
    let unborn = LoadedJournal { records: Vec::new(), snapshot: None };
    let mut run = PlayedActivation::with(&[], unborn, machine, false);
    let options = AgentOptions { window_tokens: Some(4_000), ..(*run.grant.options).clone() };
    run.grant = Grant::free(options);
    let mut requests = Vec::new();
    for turn in 0..turns {
        let message = UserMessage::text(format!("m{turn} {}", "x".repeat(chance() * 5)));
        run.hears(&format!("m{turn}"), &SessionInput::UserMessage(message));
        // Calls of tools that are refused at once, so that the model is asked again; a third time ends the turn.
        for round in 0..chance() % 3 {
            requests.push(shown(&run));
            if chance() < 20 {
                let steer = UserMessage::text(format!("s{round}"));
                run.hears(&format!("m{turn}s{round}"), &SessionInput::Steer(steer));
            }
            let estimate = requests.last().unwrap().request.estimate();
            let input_tokens = estimate * (50 + chance() as u64) / 100;
            let usage = Usage { input_tokens, ..Usage::default() };
            run.replies_for(usage, &[("look", "{}"), ("look", "[1")]);
        }
        requests.push(shown(&run));
        if chance() < 10 { run.fails(FailureClass::Rejected) } else { run.replies(&[]) }
    }
    (run, requests)
}

#[test]
fn cache_1_each_request_begins_with_the_one_before_it() {
    let mut blocks = 0;
    for seed in 0..8_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let (run, requests) = played(40, || {
            // xorshift64
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % 100).unwrap()
        });
        assert_eq!(replayed(&run), requests.len(), "every request is what the journal gives");
        for (before, after) in requests.iter().zip(&requests[1..]) {
            let (one, other) = (&before.request, &after.request);
            assert_eq!((&one.system, &one.tools), (&other.system, &other.tools));
            if one.dropped_turns == other.dropped_turns {
                let common = before.earlier;
                assert_eq!(one.messages[..common], other.messages[..common], "CACHE-1");
                // And here, where nothing is withheld of a turn that is over, beyond it.
                assert!(other.messages.starts_with(&one.messages));
            } else {
                assert!(one.dropped_turns < other.dropped_turns, "nothing comes back");
                blocks += 1;
            }
        }
        let last = requests.last().unwrap().request.dropped_turns;
        assert!(last > 10, "the window was full: {last}");
    }
    // Of 320 turns; without blocks, most requests would leave out more than the one before.
    assert!((8..=64).contains(&blocks), "{blocks}");
}

#[test]
fn a_new_window_leaves_out_what_it_must_and_no_more() {
    let (mut run, dropped) = in_a_small_window(1, 1);
    assert!(*dropped.last().unwrap() > 0);
    let options = AgentOptions { window_tokens: Some(90_000), ..(*run.grant.options).clone() };
    run.grant = Grant::free(options);
    run.says("all of it");
    assert_eq!(shown(&run).request.dropped_turns, 0, "there is room");
    run.replies(&[]);
    assert_eq!(replayed(&run), 13);
}
