//! Tests: which replies are refused, how they are corrected, and what people read in the end.

use clawnode_kernel::{Entity, EntityKind as _};
use clawnode_proto::{
    Attempt, CallId, TurnId,
    event::decode_record,
    llm::{Role, StopReason},
    response::ResponseSchema,
    session::{ReplyRefused, SessionEvent, SessionInput, TurnOutcome, UserMessage},
};
use serde_json::json;

use super::super::{
    prepare::{CallJob, EmitJob},
    state::Turn,
};
use crate::session::{
    Session, SessionJob,
    played::{PlayedActivation, key},
};

const FITS: &str = r#"{"age": 36}"#;
const MISFIT: &str = r#"{"age": "old"}"#;

fn schema() -> ResponseSchema {
    let properties = json!({"age": {"type": "integer"}});
    let schema = json!({"type": "object", "properties": properties, "required": ["age"]});
    ResponseSchema::new(None, &schema)
}

/// A session that was asked for a reply that fits.
fn asked() -> PlayedActivation {
    let mut run = PlayedActivation::new(&[], Vec::new());
    asks(&mut run, "how old?");
    run
}

fn asks(run: &mut PlayedActivation, text: &str) {
    let response_schema = Some(schema());
    let message = UserMessage { response_schema, ..UserMessage::text(text) };
    run.hears(text, &SessionInput::UserMessage(message));
}

fn says(run: &mut PlayedActivation, text: &str) {
    run.replies_text(text, StopReason::EndTurn);
}

fn job(run: &PlayedActivation) -> &CallJob {
    match run.started.last() {
        Some((_, SessionJob::Call(job))) => job,
        other => panic!("{other:?}"),
    }
}

fn told(run: &PlayedActivation) -> &EmitJob {
    match run.started.last() {
        Some((_, SessionJob::Emit(job))) => job,
        other => panic!("{other:?}"),
    }
}

fn ended(run: &PlayedActivation) -> Turn {
    run.machine.settled().unwrap().state.closed.last().unwrap().clone()
}

/// Compares what models were shown with what the journal gives.
fn assert_replayed(run: &PlayedActivation) {
    let mut entity = Entity::<Session>::unborn(key().entity());
    for sealed in run.journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap()) {
        let event = sealed.event::<SessionEvent>().unwrap();
        if let Some(found) = event.and_then(|event| Session::replay(&entity.state, &event)) {
            found.unwrap();
        }
        entity.apply(&sealed).unwrap();
    }
}

#[test]
fn a_reply_that_fits_is_the_turns_json() {
    let mut run = asked();
    assert_eq!(job(&run).request.response_schema, Some(schema()));
    assert!(!job(&run).corrects);
    says(&mut run, &format!("```json\n{FITS}\n```"));
    assert_eq!(told(&run).structured.as_deref(), Some(FITS));
    let turn = ended(&run);
    assert_eq!(turn.structured.as_deref(), Some(FITS));
    assert_eq!(turn.outcome, Some(TurnOutcome::Completed { stop: StopReason::EndTurn }));
    run.says("and now?");
    assert_eq!(job(&run).request.response_schema, None, "it was of that message");
    says(&mut run, "any words");
    assert_eq!(told(&run).structured, None);
    assert_replayed(&run);
}

#[test]
fn the_model_is_told_what_to_correct_and_people_see_the_correction_alone() {
    let mut run = asked();
    says(&mut run, MISFIT);
    assert!(run.appends.last().unwrap().starts_with(&["model_done", "reply_refused"]));
    assert!(job(&run).corrects);
    assert_eq!(job(&run).seam, "", "what was shown is void");
    let messages = &job(&run).request.messages;
    let words: Vec<_> =
        messages.iter().map(|message| (message.role, message.content.inline().unwrap())).collect();
    assert_eq!(words[1], (Role::Assistant, MISFIT));
    assert_eq!(words[2].0, Role::User);
    assert!(words[2].1.contains("`age` must be of type integer, but is a string"), "{words:?}");
    says(&mut run, "none");
    assert!(job(&run).corrects);
    says(&mut run, FITS);

    assert_eq!(told(&run).structured.as_deref(), Some(FITS));
    assert_eq!(told(&run).text_bytes, FITS.len() as u64);
    assert_eq!(told(&run).calls.len(), 3, "each is paid for");
    let (shown, notes) = ended(&run).shown();
    assert_eq!((shown.len(), notes), (6, vec![2, 4]), "history keeps what happened");
    run.says("thanks");
    let said: Vec<_> = job(&run)
        .request
        .messages
        .iter()
        .map(|message| message.content.inline().unwrap())
        .collect();
    assert_eq!(said, ["how old?", FITS, "thanks"], "later turns are shown how it ended");
    assert_replayed(&run);
}

#[test]
fn a_reply_that_never_fits_ends_its_turn_with_what_it_was() {
    let mut run = asked();
    for text in [MISFIT, "none", "{}"] {
        says(&mut run, text);
    }
    let Some(TurnOutcome::SchemaFailed { detail }) = ended(&run).outcome else {
        panic!("{:?}", ended(&run).outcome)
    };
    assert_eq!(detail, "- `age` is required, but missing");
    assert_eq!(told(&run).structured, None);
    assert_eq!(told(&run).text_bytes, 2, "the last reply is what people see");
    let events = ["model_done", "reply", "turn_done", "settled"];
    assert!(run.appends.iter().any(|append| append.starts_with(&events)), "{:?}", run.appends);
}

/// C6 and C17: between a reply that was refused and its correction.
#[test]
fn the_next_owner_goes_on_with_the_correction() {
    let mut run = asked();
    says(&mut run, MISFIT);
    let call = job(&run).call;
    let mut next = PlayedActivation::new(&[], run.journal.clone());
    assert_eq!((job(&next).call, job(&next).attempt), (call, Attempt(2)));
    assert!(job(&next).corrects, "what people were shown is withdrawn once more");
    assert_eq!(job(&next).request, job(&run).request);
    says(&mut next, FITS);
    assert_eq!(told(&next).structured.as_deref(), Some(FITS));
}

#[test]
fn tools_run_as_always_and_only_the_last_reply_is_judged() {
    let mut run = PlayedActivation::new(&[], Vec::new());
    run.reload_schema(schema());
    run.says("how old?");
    assert_eq!(job(&run).request.response_schema, Some(schema()), "the agent's");
    // Its text fits nothing, but it is not the last.
    run.replies(&[("look", "{}")]);
    assert!(!job(&run).corrects);
    says(&mut run, FITS);
    assert_eq!(told(&run).structured.as_deref(), Some(FITS));

    let list = ResponseSchema::new(None, &json!({"type": "array"}));
    let message = UserMessage { response_schema: Some(list), ..UserMessage::text("list") };
    run.hears("list", &SessionInput::UserMessage(message));
    says(&mut run, "[]");
    assert_eq!(told(&run).structured.as_deref(), Some("[]"), "the message's goes before");
}

#[test]
fn a_message_that_joins_is_answered_before_the_reply_is_judged() {
    let mut run = asked();
    run.hears("steer", &SessionInput::Steer(UserMessage::text("in years")));
    says(&mut run, MISFIT);
    assert!(!job(&run).corrects, "it was not the last reply");
    says(&mut run, FITS);
    assert_eq!(told(&run).structured.as_deref(), Some(FITS));
}

#[test]
fn limits_hold_for_corrections_too() {
    for (limit, calls) in [(1, 1), (2, 2)] {
        let mut run = asked_with_steps(limit);
        for _ in 0..calls {
            says(&mut run, MISFIT);
        }
        assert_eq!(ended(&run).outcome, Some(TurnOutcome::StepLimit { limit }));
    }
    let mut cut = asked();
    cut.replies_text(r#"{"age": 3"#, StopReason::MaxTokens);
    let last = job(&cut).request.messages.last().unwrap().content.inline().unwrap();
    assert!(last.contains("cut off") && last.contains("write less"), "{last}");
    let mut withheld = asked();
    withheld.replies_text("I cannot", StopReason::Refusal);
    let refusal = TurnOutcome::Completed { stop: StopReason::Refusal };
    assert_eq!(ended(&withheld).outcome, Some(refusal), "asking again does not help");
    assert_eq!(told(&withheld).structured, None);
}

fn asked_with_steps(limit: u32) -> PlayedActivation {
    let mut run = PlayedActivation::new(&[], Vec::new());
    run.reload_steps(limit);
    asks(&mut run, "how old?");
    run
}

#[test]
fn only_a_reply_that_was_given_can_be_refused() {
    let run = asked();
    let state = run.machine.settled().unwrap().state.clone();
    let (turn, call) = (job(&run).turn, job(&run).call);
    let refused = |turn, call| ReplyRefused { turn, call, told: "no".to_owned() };
    assert!(state.clone().refused(&refused(turn, call)).is_err(), "it is not there yet");
    let mut run = run;
    says(&mut run, MISFIT);
    let state = run.machine.settled().unwrap().state.clone();
    for (turn, call) in [(turn, call), (TurnId::from_u128(1), call), (turn, CallId::from_u128(1))] {
        assert!(state.clone().refused(&refused(turn, call)).is_err(), "{turn} {call}");
    }
}
