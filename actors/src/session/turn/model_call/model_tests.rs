//! Tests: which model answers a turn, and how much of the conversation it is shown.

use clawnode_kernel::{Entity, EntityKind as _, LoadedJournal, MachineOptions};
use clawnode_proto::{
    Attempt, CallId, Digest,
    event::decode_record,
    llm::{FailureClass, Sampling, Usage},
    media::{Media, MediaType},
    model_route::{InputKind, ModelRoute, RouteReason, RouteTaken},
    money::MicroUsd,
    reasoning::Reasoning,
    session::{KeptChoice, ModelBegun, SessionEvent, SessionInput, UserMessage},
    tool_choice::ToolChoice,
};

use super::super::{
    context::attachments::AttachmentRule,
    context::dropping::Recorded,
    context::model_input::{Assembled, assemble, draft},
};
use crate::{
    agent::{AgentOptions, Grant},
    llm::{Wire, profile::ProviderPlace},
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
pub(in crate::session::turn) fn replayed(run: &PlayedActivation) -> usize {
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
    let models: Vec<String> = job.calls.iter().map(|call| call.model.to_string()).collect();
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
        SessionEvent::from(ModelBegun {
            turn,
            call,
            attempt,
            request,
            dropped_turns,
            closes_upto: None,
            estimate,
            route: None,
        })
    };
    let now = assemble(&state, &profile, &turn);
    let fewer = now.dropped_turns - 1;
    let (dropped_turns, attachments) = (fewer, AttachmentRule::Newest);
    let recorded = Recorded { dropped_turns, closes_upto: None, attachments };
    let before = draft(&state, &profile, &turn, Some(recorded)).request;
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

/// A session of an agent with these routes, as `MODEL` and what it asks for.
fn routed(rows: Vec<ModelRoute>, fallback: &[&str]) -> PlayedActivation {
    let mut run = PlayedActivation::new(&[], Vec::new());
    let mut options = (*run.grant.options).clone();
    options.routes = rows;
    options.fallback = fallback.iter().map(|name| name.parse().unwrap()).collect();
    run.grant = Grant::free(options);
    run
}

fn large(tokens: u64) -> ModelRoute {
    ModelRoute {
        model: "sim/large".parse().unwrap(),
        min_prompt_tokens: Some(tokens),
        max_prompt_tokens: None,
        input: Vec::new(),
        max_usd: None,
    }
}

fn sees() -> ModelRoute {
    let model = "sim/sees".parse().unwrap();
    ModelRoute { model, min_prompt_tokens: None, input: vec![InputKind::Image], ..large(0) }
}

fn with_picture(text: &str) -> UserMessage {
    let (media_type, blob) = (MediaType::Png, Digest::of(b"p"));
    let picture = Media { media_type, blob, bytes: 9, name: None, at: None };
    UserMessage { attachments: vec![picture], ..UserMessage::text(text) }
}

/// The model that is asked now.
fn asked(run: &PlayedActivation) -> String {
    let Some((_, SessionJob::Call(job))) = run.started.last() else { panic!("not called") };
    job.request.model.to_string()
}

/// The rows that decided, by the journal.
fn rows(run: &PlayedActivation) -> Vec<Option<u32>> {
    let events = run.journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap());
    let begun = events.filter_map(|sealed| match sealed.event().unwrap() {
        Some(SessionEvent::ModelBegun(begun)) => Some(begun.route.and_then(|route| route.row)),
        _ => None,
    });
    begun.collect()
}

#[test]
fn the_first_route_that_fits_the_whole_conversation_decides() {
    let mut run = routed(vec![sees(), large(700)], &[]);
    run.says("short");
    assert_eq!(asked(&run), "sim/model");
    run.replies(&[]);
    let long = UserMessage::text("x".repeat(3_000));
    run.hears("long", &SessionInput::UserMessage(long));
    assert_eq!(asked(&run), "sim/large", "the conversation has grown");
    run.replies(&[]);
    run.says("short again");
    assert_eq!(asked(&run), "sim/large", "the conversation is what it was");
    run.replies(&[]);
    run.hears("p", &SessionInput::UserMessage(with_picture("what is it?")));
    assert_eq!(asked(&run), "sim/sees");
    run.replies(&[]);
    run.says("and its colour?");
    assert_eq!(asked(&run), "sim/sees", "the picture is still in the conversation");
    run.replies(&[]);
    // What a message chooses is stronger.
    asks(&mut run, "chosen", "sim/model");
    assert_eq!(asked(&run), "sim/model");
    run.replies(&[]);
    assert_eq!(rows(&run), [None, Some(2), Some(2), Some(1), Some(1), None]);
    assert_eq!(replayed(&run), 6, "each choice is what the journal gives");
}

#[test]
fn a_route_with_a_limit_is_taken_while_the_call_costs_no_more() {
    let limited = |model: &str, usd| ModelRoute {
        model: model.parse().unwrap(),
        min_prompt_tokens: None,
        max_usd: Some(MicroUsd(usd)),
        ..large(0)
    };
    // 700 tokens in and 1,000 out of this model cost 105 + 600 micro-dollars.
    let limits = vec![limited("sim/unpriced", u64::MAX), limited("openai/gpt-4o-mini", 705)];
    let mut run = routed(limits, &[]);
    let mut options = (*run.grant.options).clone();
    options.sampling.max_tokens = Some(1_000);
    run.grant = Grant::free(options);
    run.says("short");
    assert_eq!(asked(&run), "openai/gpt-4o-mini");
    run.replies(&[]);
    let long = UserMessage::text("x".repeat(3_000));
    run.hears("long", &SessionInput::UserMessage(long));
    assert_eq!(asked(&run), "sim/model", "the prompt alone costs more than before");
    run.replies(&[]);
    // The cap on its reply counts, which a message may lower.
    let sampling = Sampling { max_tokens: Some(100), ..Sampling::default() };
    let brief = UserMessage { sampling, ..UserMessage::text("in a word") };
    run.hears("brief", &SessionInput::UserMessage(brief));
    assert_eq!(asked(&run), "openai/gpt-4o-mini");
    run.replies(&[]);
    assert_eq!(rows(&run), [Some(2), None, Some(2)]);
    assert_eq!(
        replayed(&run),
        3,
        "each choice is what the journal gives, without a table of prices"
    );
}

#[test]
fn a_row_whose_model_does_not_take_a_setting_of_the_turn_does_not_fit() {
    let other = ModelRoute { model: "b/two".parse().unwrap(), ..large(0) };
    let mut run = routed(vec![other, large(0)], &["b/two", "c/three"]);
    let wires = [("sim", Wire::Openai), ("b", Wire::Ollama), ("c", Wire::Gemini)];
    let place = |(name, wire): (&str, Wire)| (name.to_owned(), ProviderPlace::new(wire, None));
    let mut options = (*run.grant.options).clone();
    options.profiles = options.profiles.with_providers(wires.map(place).into());
    run.grant = Grant::free(options);
    run.says("free");
    assert_eq!(asked(&run), "b/two");
    run.replies(&[]);
    let sampling = Sampling { tool_choice: Some(ToolChoice::Required), ..Sampling::default() };
    let message = UserMessage { sampling, ..UserMessage::text("forced") };
    run.hears("forced", &SessionInput::UserMessage(message));
    assert_eq!(asked(&run), "sim/large", "Ollama's API has no choice of tools");
    let view = run.machine.settled().unwrap().state.route_view(&run.grant.options);
    assert_eq!((view.model.to_string().as_str(), view.reason), ("sim/large", RouteReason::Route));
    assert_eq!(
        view.rows[0].misfit.as_deref(),
        Some("its model does not take `tool_choice`"),
        "people can read it"
    );
    assert_eq!(view.fallback.iter().map(ToString::to_string).collect::<Vec<_>>(), ["c/three"]);
    // The choice holds for the first call. The turn keeps its model all the same.
    run.replies(&[("look", "{}")]);
    assert_eq!(asked(&run), "sim/large");
    run.replies(&[]);
    run.says("free again");
    assert_eq!(asked(&run), "b/two");
    run.replies(&[]);
    assert_eq!(rows(&run), [Some(1), Some(2), Some(2), Some(1)]);
    assert_eq!(replayed(&run), 4, "each choice is what the journal gives, without the wires");
}

#[test]
fn a_turn_changes_its_model_only_for_another_row() {
    let mut run = routed(vec![sees()], &["b/two"]);
    run.says("one");
    run.fails(FailureClass::Overloaded);
    assert_eq!(asked(&run), "b/two");
    run.replies(&[("look", "{}")]);
    assert_eq!(asked(&run), "b/two", "the turn stays with the model that answered");
    // A picture joins while the call runs: the call keeps its model, the next one needs another.
    run.hears("s", &SessionInput::Steer(with_picture("see")));
    run.fails(FailureClass::Overloaded);
    assert_eq!(asked(&run), "sim/model", "no row decides about another attempt");
    run.replies(&[("look", "[1")]);
    assert_eq!(asked(&run), "sim/sees");
    run.fails(FailureClass::Overloaded);
    assert_eq!(asked(&run), "b/two", "then the chain");
    let state = &run.machine.settled().unwrap().state;
    let view = state.route_view(&run.grant.options);
    assert_eq!((view.model.to_string().as_str(), view.reason), ("b/two", RouteReason::Fallback));
    assert_eq!(view.rows.iter().map(|row| row.fits).collect::<Vec<_>>(), [true]);
    run.replies(&[]);
    replayed(&run);
}

#[test]
fn a_replay_refuses_a_route_that_the_configuration_does_not_give() {
    let mut run = routed(vec![large(700)], &[]);
    run.says("short");
    let state = run.machine.settled().unwrap().state.clone();
    let begun = run.journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap());
    let begun = begun.filter_map(|sealed| match sealed.event().unwrap() {
        Some(SessionEvent::ModelBegun(begun)) => Some(begun),
        _ => None,
    });
    let begun = begun.last().unwrap();
    let mut route = begun.route.clone().unwrap();
    let found = |route: &RouteTaken| {
        let begun = ModelBegun { route: Some(route.clone()), ..begun.clone() };
        Session::replay(&state, &begun.into()).unwrap()
    };
    assert!(found(&route).is_ok());
    route.prompt.tokens = 700;
    assert!(found(&route).unwrap_err().0.contains("the route of"), "row 1 fits");
}

#[test]
fn a_session_keeps_what_a_message_chose_for_it_as_long_as_the_agent_allows_it() {
    let mut run = routed(vec![large(1)], &[]);
    let mut options = (*run.grant.options).clone();
    options.models = vec!["sim/other".to_owned()];
    run.grant = Grant::free(options.clone());
    let thinks = |run: &PlayedActivation| {
        let Some((_, SessionJob::Call(job))) = run.started.last() else { panic!("not called") };
        job.request.sampling.reasoning
    };
    let keep = vec![KeptChoice::Model, KeptChoice::Reasoning];
    let model = Some("sim/other".parse().unwrap());
    let sampling = Sampling { reasoning: Some(Reasoning::High), ..Sampling::default() };
    let message = UserMessage { keep: keep.clone(), model, sampling, ..UserMessage::text("one") };
    run.hears("one", &SessionInput::UserMessage(message));
    assert_eq!((asked(&run).as_str(), thinks(&run)), ("sim/other", Some(Reasoning::High)));
    run.replies(&[]);
    run.says("two");
    assert_eq!((asked(&run).as_str(), thinks(&run)), ("sim/other", Some(Reasoning::High)));
    run.replies(&[]);
    // One message may have another, and the session keeps its own.
    asks(&mut run, "three", "sim/model");
    assert_eq!((asked(&run).as_str(), thinks(&run)), ("sim/model", Some(Reasoning::High)));
    run.replies(&[]);
    let reason = |run: &PlayedActivation| {
        let state = &run.machine.settled().unwrap().state;
        let view = state.route_view(&run.grant.options);
        (view.model.to_string(), view.reason)
    };
    assert_eq!(reason(&run), ("sim/other".to_owned(), RouteReason::Session));
    // The operator allows it no more.
    run.grant = Grant::free(AgentOptions { models: Vec::new(), ..options.clone() });
    assert_eq!(reason(&run), ("sim/large".to_owned(), RouteReason::Route));
    run.says("four");
    assert_eq!(asked(&run), "sim/large");
    run.replies(&[]);
    run.grant = Grant::free(options);
    let message = UserMessage { keep, ..UserMessage::text("five") };
    run.hears("five", &SessionInput::UserMessage(message));
    assert_eq!((asked(&run).as_str(), thinks(&run)), ("sim/large", None), "the agent's again");
    run.replies(&[]);
    assert_eq!(replayed(&run), 5);
}
