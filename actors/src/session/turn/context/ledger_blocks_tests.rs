//! Tests: the work ledger of a session, and what a model is shown of the work that it wrote down.

use clawnode_kernel::{Entity, LoadedJournal, MachineInput, MachineOptions};
use clawnode_proto::{
    CallId, Timestamp, TurnId,
    budget::{BudgetUnit, LimitKey, WindowLength},
    context::{ContextMode, ContextRules, ContextSettings},
    event::decode_record,
    hook::{HookPoint, HookTrail},
    ledger::{EntryType, LedgerRow},
    limits::{LEDGER_BYTES, LEDGER_CALLS, LEDGER_ENTRIES, LEDGER_READ_BYTES},
    llm::{FailureClass, Message, ModelFailure, PromptTooLong, Role, Usage},
    session::{ModelBegun, SessionEvent, SessionInput, ToolEnd, TurnOutcome, UserMessage},
    tool::{EffectClass, Risk, ToolFailure, ToolOutcome, ToolSpec},
};
use proptest::prelude::*;
use serde_json::json;

use super::super::{
    explain_context::ContextReader,
    model_call::model_tests::replayed,
    model_call::reservation_size::whole,
    state::{SessionState, Turn},
    tools::ledger_entries::{EntryMark, SessionLedger},
};
use super::{
    attachments::AttachmentRule,
    bounded_tests::{are_tools_paired, cases},
    dropping::{LeftOut, Recorded},
    model_input::{Assembled, assemble, draft},
};
use crate::{
    agent::{AgentOptions, Grant},
    session::{
        Outcome, Session, SessionJob,
        played::{PlayedActivation, key},
        played_budgets::PlayedBudgets,
    },
};

fn spec(name: &str, input_schema: &serde_json::Value) -> ToolSpec {
    ToolSpec {
        name: name.parse().unwrap(),
        description: String::new(),
        input_schema: input_schema.to_string(),
        class: EffectClass::Idempotent,
        risk: Risk::ReadOnly,
        capability: None,
        timeout_ms: 1_000,
        time: None,
        pin: None,
    }
}

/// An agent with a ledger, whose journal gets no snapshots, so that all of it can be replayed.
fn writer(points: &[HookPoint]) -> PlayedActivation {
    let machine = MachineOptions { snapshot_every: u64::MAX, ..MachineOptions::default() };
    let loaded = LoadedJournal { records: Vec::new(), snapshot: None };
    let mut run = PlayedActivation::with(points, loaded, machine, true);
    let types = EntryType::ALL.map(EntryType::as_str);
    let append = json!({
        "type": "object",
        "properties": {
            "type": { "type": "string", "enum": types },
            "text": { "type": "string", "maxLength": 2_000 },
        },
        "required": ["type", "text"],
    });
    let read = json!({
        "type": "object",
        "properties": { "type": { "type": "string" }, "last_n": { "type": "integer" } },
    });
    let options = (*run.grant.options).clone();
    let mut tools = options.tools.clone();
    tools.extend([spec("ledger_append", &append), spec("ledger_read", &read)]);
    run.grant = Grant::free(AgentOptions { tools, ..options });
    run
}

fn entry(entry: &str, text: &str) -> String {
    json!({ "type": entry, "text": text }).to_string()
}

fn writes(run: &mut PlayedActivation, kind: &str, text: &str) {
    run.replies(&[("ledger_append", &entry(kind, text))]);
}

/// The model calls a tool that runs beside the session, and gets its result.
fn looks(run: &mut PlayedActivation, at: usize) {
    run.replies(&[("look", &json!({ "at": at }).to_string())]);
    ends_look(run, at);
}

fn ends_look(run: &mut PlayedActivation, at: usize) {
    ends_tool(run, &format!("saw {at}"));
}

fn ends_tool(run: &mut PlayedActivation, result: &str) {
    let Some((key, SessionJob::Tool(_))) = run.started.pop() else { panic!("no tool runs") };
    let end = ToolEnd::Known { outcome: ToolOutcome::done(result) };
    run.feed(MachineInput::Ended(key, Outcome::Tool(end, HookTrail::default())));
}

/// The model calls a tool that has a long result.
fn reads(run: &mut PlayedActivation, at: usize, bytes: usize) {
    run.replies(&[("look", &json!({ "at": at }).to_string())]);
    ends_tool(run, &format!("read {at} {}", "y".repeat(bytes)));
}

fn request(run: &PlayedActivation) -> Assembled {
    let Some((_, SessionJob::Call(job))) = run.started.last() else { panic!("not called") };
    job.request.clone()
}

fn texts(messages: &[Message]) -> Vec<String> {
    let text = |message: &Message| {
        let replies = message.tool_replies.iter().map(|reply| reply.content.inline().unwrap());
        let all: Vec<&str> = std::iter::once(message.content.inline().unwrap())
            .chain(replies)
            .filter(|text| !text.is_empty())
            .collect();
        all.join("|")
    };
    messages.iter().map(text).collect()
}

fn state(run: &PlayedActivation) -> SessionState {
    run.machine.settled().unwrap().state.clone()
}

fn running(run: &PlayedActivation) -> Turn {
    state(run).running().unwrap().clone()
}

fn is_reminder(message: &Message) -> bool {
    message.content.inline().is_some_and(|text| text.contains("without writing into"))
}

// === entries ===

#[test]
fn an_entry_is_written_once_and_with_the_end_of_its_call() {
    let mut run = writer(&[]);
    run.says("go");
    let before = run.journal.clone();
    writes(&mut run, "finding", "the gate is open");
    let last = run.appends.last().unwrap();
    assert_eq!(last, &["model_done", "tool_asked", "ledger_entry", "tool_done", "model_begun"]);
    let ledger = state(&run).ledger;
    let row = ledger.entries.back().unwrap();
    assert_eq!((ledger.total, row.number, row.entry), (1, 1, EntryType::Finding));
    assert_eq!(row.text, "the gate is open");
    assert_eq!(texts(&request(&run).messages).last().unwrap(), "written as entry 1");

    // The next owner has it, and writes it no second time.
    let successor = PlayedActivation::new(&[], run.journal.clone());
    assert_eq!(state(&successor).ledger, ledger);
    assert!(matches!(successor.started.last(), Some((_, SessionJob::Call(_)))));
    // One that died before the append knows of no call of a tool.
    let successor = PlayedActivation::new(&[], before);
    assert_eq!(state(&successor).ledger.total, 0);
}

#[test]
fn calls_of_one_reply_read_what_those_before_them_wrote() {
    let mut run = writer(&[]);
    run.says("go");
    run.replies(&[
        ("ledger_append", &entry("plan", "look")),
        ("ledger_read", "{}"),
        ("ledger_append", &entry("note", "looked")),
        ("ledger_read", r#"{"type":"note"}"#),
        ("ledger_read", r#"{"last_n":1}"#),
        ("ledger_read", r#"{"type":"error"}"#),
    ]);
    let told = texts(&request(&run).messages).pop().unwrap();
    let expected = [
        "written as entry 1",
        "1 of 1 entries, oldest first\n#1 plan: look",
        "written as entry 2",
        "1 of 1 entries of type `note`, oldest first\n#2 note: looked",
        "1 of 2 entries, oldest first\n#2 note: looked",
        "no entries of type `error`",
    ];
    assert_eq!(told, expected.join("|"));
}

#[test]
fn what_is_no_entry_is_refused_with_what_to_do() {
    let mut run = writer(&[]);
    run.says("go");
    run.replies(&[
        ("ledger_append", r#"{"type":"todo","text":"x"}"#),
        ("ledger_append", r#"{"type":"note","text":"  "}"#),
    ]);
    let told = texts(&request(&run).messages).pop().unwrap();
    assert!(told.contains("finding") && told.contains("the text is empty"), "{told}");
    assert_eq!(state(&run).ledger.total, 0);

    // Each of them is a call that cannot be run, so the next one ends the turn.
    let uses: Vec<String> = (0..=LEDGER_CALLS).map(|n| entry("note", &n.to_string())).collect();
    let uses: Vec<(&str, &str)> =
        uses.iter().map(|arguments| ("ledger_append", arguments.as_str())).collect();
    run.replies(&uses);
    let tools = running(&run).steps[1].tools.clone();
    let failed = tools.iter().filter_map(|tool| match &tool.end {
        Some(ToolEnd::Known { outcome }) => outcome.failure,
        _ => None,
    });
    assert_eq!(failed.collect::<Vec<_>>(), [ToolFailure::Refused], "one too many");
    assert_eq!(state(&run).ledger.total, LEDGER_CALLS as u64);
}

/// HOOK-1: what a hook does not let through is not written.
#[test]
fn hook_1_an_entry_waits_for_hooks() {
    let mut run = writer(&[HookPoint::BeforeToolCall]);
    run.says("go");
    writes(&mut run, "note", "x");
    assert_eq!(run.appends.last().unwrap(), &["model_done"]);
    let (key, _) = run.judge();
    let arguments = Some(entry("note", "y"));
    let judged = Outcome::ToolJudged { arguments, trail: HookTrail::default() };
    run.feed(MachineInput::Ended(key, judged));
    let last = run.appends.last().unwrap();
    assert_eq!(last, &["tool_hooked", "tool_asked", "ledger_entry", "tool_done", "model_begun"]);
    assert_eq!(state(&run).ledger.entries[0].text, "y");
}

#[test]
fn a_tool_of_that_name_that_needs_a_node_is_another_one() {
    let mut run = writer(&[]);
    let options = (*run.grant.options).clone();
    let mut tools = options.tools.clone();
    for tool in &mut tools {
        tool.capability = Some("sim".parse().unwrap());
    }
    run.grant = Grant::free(AgentOptions { tools, ..options });
    run.says("go");
    writes(&mut run, "step", "x");
    assert!(matches!(run.started.last(), Some((_, SessionJob::Publish(_)))));
    assert_eq!(state(&run).ledger.total, 0);
}

#[test]
fn a_state_keeps_the_newest_entries() {
    let row = |number: u64, bytes: usize| LedgerRow {
        number,
        entry: EntryType::Note,
        text: "x".repeat(bytes),
        turn: TurnId::from_u128(1),
        call: CallId::from_u128(2),
        at: Timestamp(3),
    };
    let mut ledger = SessionLedger::default();
    let many = LEDGER_ENTRIES as u64 + 5;
    (1..=many).for_each(|number| ledger.push(row(number, 1)));
    assert_eq!((ledger.total, ledger.entries.len()), (many, LEDGER_ENTRIES));
    assert_eq!(ledger.entries[0].number, 6);
    ledger.push(row(many + 1, LEDGER_BYTES - 2));
    assert_eq!(ledger.entries.len(), 3, "as many as there is room for");
    ledger.push(row(many + 2, LEDGER_BYTES + 1));
    assert_eq!(ledger.entries.len(), 1, "the last one stays, whatever it has");
}

#[test]
fn what_is_read_fits_into_its_append() {
    let mut run = writer(&[]);
    run.says("go");
    for n in 0..9 {
        writes(&mut run, "note", &format!("{n}{}", "x".repeat(1_500)));
    }
    run.replies(&[("ledger_read", "{}")]);
    let told = texts(&request(&run).messages).pop().unwrap();
    assert!(told.starts_with("4 of 9 entries, oldest first\n#6 note: 5xx"), "{told}");
    assert!(told.len() <= LEDGER_READ_BYTES + 100);
}

// === blocks ===

#[test]
fn a_step_takes_the_place_of_the_calls_before_it() {
    let mut run = writer(&[]);
    run.says("go");
    looks(&mut run, 1);
    writes(&mut run, "finding", "one is red");
    looks(&mut run, 2);
    let open = request(&run);
    assert!(open.messages.iter().any(|message| texts(std::slice::from_ref(message))[0] == "saw 1"));
    run.hears("steer", &SessionInput::Steer(UserMessage::text("hurry")));
    writes(&mut run, "step", "looked at both");

    let shown = request(&run).messages;
    let calls: Vec<String> = running(&run)
        .steps
        .iter()
        .flat_map(|step| &step.tools)
        .filter(|tool| tool.using.name == "look")
        .map(|tool| format!("look {}", tool.call))
        .collect();
    let stub = format!(
        "[Your work ledger, in place of 4 calls that you made in this turn:]\n#1 finding: one is \
         red\n#2 step: looked at both\nCalls: {}",
        calls.join(", ")
    );
    assert_eq!(texts(&shown), ["go", &stub, "hurry"]);
    assert!(shown.iter().all(|message| message.role == Role::User && message.tool_uses.is_empty()));

    // People see all of it.
    let (told, _) = running(&run).shown();
    assert!(texts(&told).contains(&"saw 1".to_owned()));
    // What follows is shown as it happens, and the stub stays where it is (LED-1, CACHE-1).
    looks(&mut run, 3);
    let later = request(&run).messages;
    assert!(later.starts_with(&shown));
    assert_eq!(texts(&later[3..]), ["so", "saw 3"]);
    run.replies(&[]);
    run.says("and now?");
    let next = request(&run).messages;
    assert!(next.starts_with(&later), "the turn is shown so once it is over");
    assert_eq!(replayed(&run), 7, "CTX-1");
}

/// LED-1: the model has not seen what else it asked for.
#[test]
fn led_1_a_reply_that_also_asks_for_something_else_stays() {
    let mut run = writer(&[]);
    run.says("go");
    looks(&mut run, 1);
    run.replies(&[("look", r#"{"at":2}"#), ("ledger_append", &entry("step", "saw one"))]);
    ends_look(&mut run, 2);
    let shown = request(&run).messages;
    let told = texts(&shown);
    assert!(told[1].contains("in place of 1 call that") && told[1].contains("#1 step: saw one"));
    assert_eq!(told[2..], ["so", "saw 2|written as entry 1"]);
    assert!(are_tools_paired(&shown));
    // So does one whose other entry was refused.
    looks(&mut run, 3);
    run.replies(&[
        ("ledger_append", &entry("step", "saw two and three")),
        ("ledger_append", r#"{"type":"todo","text":"x"}"#),
    ]);
    let told = texts(&request(&run).messages);
    assert!(told[2].contains("in place of 2 calls"), "{told:?}");
    assert!(told.last().unwrap().contains("was not run"), "{told:?}");
    assert_eq!(told.len(), 5);
}

/// What calls reserve follows from what they are sent, and that no longer begins with what was counted.
#[test]
fn what_a_provider_counted_does_not_hold_for_other_messages() {
    let mut run = writer(&[]);
    let limit = LimitKey { unit: BudgetUnit::Tokens, window: WindowLength::Day };
    run.budgets = Some(PlayedBudgets::new(limit, 1_000_000_000, false));
    let usage = Usage { input_tokens: 10, output_tokens: 1, ..Usage::default() };
    run.says("go");
    run.replies_for(usage, &[("ledger_append", &entry("note", "n"))]);
    let held = |run: &PlayedActivation| {
        let sealed = run.journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap());
        let held = sealed.filter_map(|event| match event.event().unwrap() {
            Some(SessionEvent::BudgetHeld(held)) => Some(held.input),
            _ => None,
        });
        held.last().unwrap()
    };
    assert!(held(&run) < whole(&request(&run)), "the provider's count holds");
    run.replies_for(usage, &[("ledger_append", &entry("step", &"s".repeat(1_900)))]);
    assert_eq!(held(&run), whole(&request(&run)));
    assert!(held(&run) > 1_900);
}

#[test]
fn a_model_is_reminded_once_in_a_block() {
    let mut run = writer(&[]);
    run.says("go");
    let mut reminded = Vec::new();
    let mut before: Vec<Message> = Vec::new();
    for at in 0..20 {
        let shown = request(&run).messages;
        assert!(shown.starts_with(&before), "CACHE-1: {at}");
        reminded.push(shown.iter().filter(|message| is_reminder(message)).count());
        assert_eq!(shown.last().is_some_and(is_reminder), at == 8, "{at}");
        looks(&mut run, at);
        before = shown;
    }
    assert_eq!(reminded, [[0; 8].as_slice(), [1; 12].as_slice()].concat());
    let (shown, notes) = running(&run).shown();
    assert_eq!(notes.iter().filter(|at| is_reminder(&shown[**at])).count(), 1, "for people");

    // The next block begins from 0; an entry of another type counts as well.
    run.reload_steps(60);
    writes(&mut run, "step", "looked");
    for at in 20..25 {
        looks(&mut run, at);
    }
    writes(&mut run, "note", "tired");
    for at in 25..40 {
        let is_due = request(&run).messages.last().is_some_and(is_reminder);
        assert_eq!(is_due, at == 33, "{at}");
        looks(&mut run, at);
    }
    assert_eq!(replayed(&run), 43, "CTX-1");
}

#[test]
fn without_the_tool_nothing_reminds_of_it() {
    let mut run = PlayedActivation::new(&[], Vec::new());
    run.says("go");
    for at in 0..12 {
        looks(&mut run, at);
        assert!(!request(&run).messages.iter().any(is_reminder));
    }
}

// === a full window ===

/// Tokens of a small window, and those of them that are kept for a reply.
const WINDOW: u64 = 8_000;
const REPLY: u64 = 1_024;

fn narrow(run: &mut PlayedActivation) {
    let window_tokens = Some(u32::try_from(WINDOW).unwrap());
    run.grant = Grant::free(AgentOptions { window_tokens, ..(*run.grant.options).clone() });
    run.reload_steps(200);
}

/// The blocks of the last request, as people are shown them: their calls, and the entries that closed them.
fn stubs_shown(run: &PlayedActivation) -> Vec<((u32, u32), u64)> {
    let mut entity = Entity::<Session>::unborn(key().entity());
    let mut reader = ContextReader::new("1".parse().unwrap());
    for sealed in run.journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap()) {
        if let Some(event) = sealed.event::<SessionEvent>().unwrap() {
            reader.see(&entity.state, &event);
        }
        entity.apply(&sealed).unwrap();
    }
    let view = reader.found().unwrap();
    assert!(view.verified, "CTX-1");
    let stubs = view.parts.iter().flat_map(|part| &part.stubs);
    stubs.map(|stub| (stub.calls, stub.entry)).collect()
}

/// A turn writes findings and reads on, until a request has no room for all of it.
#[test]
fn a_nearly_full_window_closes_what_is_written_down() {
    let mut run = writer(&[]);
    narrow(&mut run);
    run.says("go");
    let (mut at, mut before) = (0, request(&run));
    while request(&run).closes_upto.is_none() {
        before = request(&run);
        assert!(stubs_shown(&run).is_empty(), "there is room");
        reads(&mut run, at, 1_200);
        if request(&run).closes_upto.is_none() {
            before = request(&run);
            writes(&mut run, "finding", &format!("{at} is red"));
        }
        at += 1;
        assert!(at < 40, "the window is full");
    }
    let closed = request(&run);
    let newest = state(&run).ledger.total;
    assert!(newest > 5 && before.estimate() > WINDOW / 2, "{newest} {}", before.estimate());
    assert_eq!(closed.closes_upto, Some(newest));
    assert!(closed.estimate() < before.estimate() / 2, "{}", closed.estimate());
    let told = texts(&closed.messages);
    assert!(told[1].starts_with("[Your work ledger, in place of "), "{told:?}");
    assert!(told[1].contains("#1 finding: 0 is red") && told[1].contains(&format!("#{newest} ")));
    // LED-1: what follows the newest entry is shown as it happened.
    assert!(running(&run).shown().0.ends_with(&closed.messages[2..]));
    assert!(are_tools_paired(&closed.messages));
    let stubs = stubs_shown(&run);
    assert!(matches!(stubs[..], [((1, _), entry)] if entry == newest), "{stubs:?}");

    // It stays so while there is room, also for the next owner and in later turns.
    reads(&mut run, at, 30);
    let later = request(&run);
    assert!(later.messages.starts_with(&closed.messages), "CACHE-1");
    assert_eq!(later.closes_upto, Some(newest));
    assert!(replayed(&run) > 2 * at - 2, "CTX-1");
    let mut run = PlayedActivation::resumed(run);
    assert_eq!(request(&run).digest(), later.digest());
    run.replies(&[]);
    run.says("and now?");
    let next = request(&run);
    assert!(next.messages.starts_with(&later.messages) && next.closes_upto.is_none());
}

/// The model would lose what it has just read, and a provider its cache, for nothing.
#[test]
fn a_full_window_closes_nothing_for_little() {
    let mut run = writer(&[]);
    narrow(&mut run);
    let message = UserMessage::text("x".repeat(3 * 5_400));
    run.hears("go", &SessionInput::UserMessage(message));
    reads(&mut run, 1, 300);
    writes(&mut run, "finding", "it is red");
    let (mut at, mut was_full) = (1, false);
    while request(&run).closes_upto.is_none() {
        let size = request(&run).estimate();
        assert!(size <= WINDOW - REPLY, "what has no room at all is closed: {size}");
        was_full |= size >= WINDOW * 8 / 10;
        at += 1;
        reads(&mut run, at, 300);
    }
    assert!(was_full, "an eighth of the window is more than those two calls have");
    assert_eq!(request(&run).closes_upto, Some(1));
    let told = texts(&request(&run).messages);
    let is_told = |at: usize| told.iter().any(|text| text.starts_with(&format!("read {at} ")));
    assert!(!is_told(1) && (2..=at).all(is_told), "LED-1");
    assert_eq!(replayed(&run), at + 2, "CTX-1");
}

#[test]
fn a_request_that_is_too_long_is_sent_again_with_entries_in_place_of_calls() {
    let too_long = |window, request| {
        let too_long = Some(PromptTooLong { window, request });
        ModelFailure { too_long, ..ModelFailure::new(FailureClass::Rejected, "too long") }
    };
    for (window, size) in [(None, None), (Some(900), None), (Some(900), Some(1_800))] {
        let mut run = writer(&[]);
        run.says("go");
        reads(&mut run, 1, 3_000);
        writes(&mut run, "decision", "it is red");
        reads(&mut run, 2, 60);
        let before = request(&run);
        assert_eq!(before.closes_upto, None);
        run.fails_as(too_long(window, size), Usage::default());
        let Some((_, SessionJob::Call(job))) = run.started.last() else { panic!("not called") };
        assert_eq!((job.attempt.0, job.request.closes_upto), (2, Some(1)));
        assert_eq!(job.notice.as_ref().unwrap().name, "prompt_too_long");
        let shorter = request(&run);
        assert!(shorter.estimate() + 800 < before.estimate());
        assert_eq!(shorter.messages[2..], before.messages[5..], "LED-1");
        assert_eq!(replayed(&run), 5, "CTX-1");
        // Once a call; and there is nothing else to close.
        run.fails_as(too_long(window, size), Usage::default());
        let outcome = state(&run).closed.last().and_then(|turn| turn.outcome.clone());
        assert!(matches!(outcome, Some(TurnOutcome::Failed { .. })), "{outcome:?}");
    }
}

/// Calls reserve what they are sent, and that no longer begins with what was counted.
#[test]
fn what_was_counted_before_a_block_was_closed_for_room_does_not_hold() {
    let mut run = writer(&[]);
    let limit = LimitKey { unit: BudgetUnit::Tokens, window: WindowLength::Day };
    run.budgets = Some(PlayedBudgets::new(limit, 1_000_000_000, false));
    let usage = Usage { input_tokens: 10, output_tokens: 1, ..Usage::default() };
    run.says("go");
    run.replies_for(usage, &[("ledger_append", &entry("note", &"n".repeat(1_500)))]);
    assert!(state(&run).prefix.is_some());
    let mut state = state(&run);
    let record = run.journal.last().unwrap();
    let sealed = decode_record(&record.bytes).unwrap();
    let begun = sealed.iter().rev().find_map(|sealed| match sealed.event().unwrap() {
        Some(SessionEvent::ModelBegun(begun)) => Some(begun),
        _ => None,
    });
    let begun = begun.unwrap();
    let head = &sealed.last().unwrap().head;
    // The next attempt at the call.
    let (attempt, same) = (begun.attempt.next(), begun.closes_upto);
    let again =
        |closes_upto| SessionEvent::from(ModelBegun { attempt, closes_upto, ..begun.clone() });
    let mut alike = state.clone();
    alike.fold(head, &again(same)).unwrap();
    assert!(alike.prefix.is_some());
    state.fold(head, &again(Some(1))).unwrap();
    assert_eq!((state.prefix, state.open[0].closes_upto), (None, Some(1)));
}

// === any ledger ===

/// Makes calls of tools to calls that wrote entries: the type of each, by its place; `None` leaves it.
fn mark(turn: &mut Turn, marks: &[Option<EntryType>], number: &mut u64) {
    let mut marks = marks.iter().cycle();
    for tool in turn.steps.iter_mut().flat_map(|step| &mut step.tools) {
        let Some(Some(kind)) = marks.next() else { continue };
        *number += 1;
        tool.using.name = "ledger_append".to_owned();
        tool.using.arguments = entry(kind.as_str(), &format!("entry {number}"));
        tool.entry = Some(EntryMark { number: *number, entry: *kind });
    }
}

fn marks() -> impl Strategy<Value = Vec<Option<EntryType>>> {
    let types = prop::sample::select(EntryType::ALL.to_vec());
    prop::collection::vec(prop::option::of(types), 1..9)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    /// LED-1, CTX-1, CTX-2 and pairs of calls and results, for any entries, any cut and any sizes.
    #[test]
    fn led_1_any_ledger_leaves_a_conversation(
        case in cases(),
        marks in marks(),
        upto in prop::option::of(0_u64..40),
    ) {
        let (mut state, profile) = (case.state(), case.profile());
        let mut number = 0;
        for turn in state.closed.iter_mut().chain(&mut state.open) {
            mark(turn, &marks, &mut number);
            // That of no entry, or of another turn's, closes nothing.
            turn.closes_upto = upto;
        }
        let made = draft(&state, &profile, state.running().unwrap(), None);
        let request = &made.request;
        // What the window has no room for is closed, too.
        let shown = state.running().unwrap().closed_upto(request.closes_upto);
        let turn = &*shown;
        prop_assert!(are_tools_paired(&request.messages));
        prop_assert_eq!(request.messages[0].role, Role::User);

        // What is not in a closed block is shown as it would be without a ledger.
        let blocks = turn.blocks();
        let open = blocks.last().map_or(0, |block| block.calls.end);
        let mut rest = Turn { said: Vec::new(), steps: turn.steps[open..].to_vec(), ..turn.clone() };
        for tool in rest.steps.iter_mut().flat_map(|step| &mut step.tools) {
            tool.entry = None;
        }
        let verbatim = rest.messages();
        prop_assert!(turn.messages().ends_with(&verbatim), "LED-1");
        // A result is shown unless a block has it, and a block shows its entries.
        let told = texts(&turn.messages()).join("\n");
        for block in &blocks {
            for tool in turn.steps[block.calls.clone()].iter().flat_map(|step| &step.tools) {
                let is_there = told.contains(&tool.call.to_string());
                prop_assert_eq!(is_there, tool.entry.is_none());
                let number = tool.entry.map(|mark| format!("#{} ", mark.number));
                prop_assert!(number.is_none_or(|number| told.contains(&number)));
            }
        }

        // CTX-2.
        let alone = SessionState { open: state.open.clone(), ..SessionState::default() };
        let (closes_upto, attachments) = (request.closes_upto, AttachmentRule::Blocks);
        let recorded = Recorded { dropped_turns: 0, closes_upto, attachments };
        let alone = draft(&alone, &profile, turn, Some(recorded)).request;
        let fixed = Assembled { messages: Vec::new(), ..request.clone() }.estimate();
        let beside = request.estimate() - (alone.estimate() - fixed);
        if made.is_bounded && request.messages.len() > alone.messages.len() {
            prop_assert!(beside <= u64::from(case.tokens), "CTX-2: {beside}");
        }

        // CTX-1: what is decided once is not decided otherwise once the journal has it.
        let mut begun = state.clone();
        begun.open[0].closes_upto = closes_upto;
        let left_out = request.dropped_turns;
        begun.left_out = (left_out > 0).then(|| LeftOut::of(&profile, left_out));
        let again = assemble(&begun, &profile, begun.running().unwrap());
        prop_assert_eq!(again.digest(), request.digest());
    }
}

/// A bounded context has room for more turns if their work is written down.
#[test]
fn what_was_written_down_takes_less_of_a_context() {
    let shown = |has_step: bool| {
        let mut run = writer(&[]);
        let context = ContextSettings {
            rules: ContextRules::V2,
            mode: ContextMode::Bounded,
            tokens: 2_000,
            recent_turns: 2,
        };
        run.reload_context(Some(context));
        for turn in 0..6 {
            run.says(&format!("m{turn}"));
            run.replies(&[("look", r#"{"at":1}"#)]);
            let Some((key, SessionJob::Tool(_))) = run.started.pop() else { panic!("no tool") };
            let end = ToolEnd::Known { outcome: ToolOutcome::done("y".repeat(3_000)) };
            run.feed(MachineInput::Ended(key, Outcome::Tool(end, HookTrail::default())));
            if has_step {
                writes(&mut run, "step", "saw it");
            }
            run.replies(&[]);
        }
        run.says("and?");
        request(&run).dropped_turns
    };
    assert!(shown(false) >= 4);
    assert_eq!(shown(true), 0);
}
