//! Tests: which model answers a turn, and how much of the conversation it is shown.

use clawnode_kernel::{Entity, EntityKind as _};
use clawnode_proto::{
    Attempt, CallId, Digest,
    event::decode_record,
    llm::Usage,
    session::{ModelBegun, SessionEvent, SessionInput, UserMessage},
};

use super::context::assemble;
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

/// Journals of earlier builds have no estimates: what they show is what they did.
#[test]
fn attempts_of_earlier_builds_are_replayed_by_bytes_alone() {
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
    let begun = |request: Digest, estimate| {
        let (call, attempt) = (CallId::derive(turn.id, 0), Attempt(1));
        let dropped_turns = 0;
        SessionEvent::from(ModelBegun {
            turn: turn.id,
            call,
            attempt,
            request,
            dropped_turns,
            estimate,
        })
    };
    let now = assemble(&state, &profile, &turn).digest();
    let mut bytes_alone = state.clone();
    bytes_alone.measured = None;
    let before = assemble(&bytes_alone, &profile, &turn).digest();
    assert_ne!(now, before, "what was reported makes a difference here");
    for (request, estimate, is_right) in
        [(now, Some(1), true), (before, None, true), (now, None, false), (before, Some(1), false)]
    {
        let found = Session::replay(&state, &begun(request, estimate)).unwrap();
        assert_eq!(found.is_ok(), is_right);
    }
}
