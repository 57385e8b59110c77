//! Tests: summaries of older turns, and what requests show of them.

use clawnode_kernel::{LoadedJournal, MachineInput, MachineOptions};
use clawnode_proto::{
    Attempt, TurnId,
    budget::{BudgetUnit, LimitKey, SpendLimits, WindowLength},
    event::decode_record,
    hook::{HookPoint, HookTrail},
    lane::Lane,
    limits::SUMMARY_CHARS,
    llm::{FailureClass, ModelFailure, Role, StopReason, Text, Usage},
    model::ModelPrice,
    session::{SessionEvent, SessionInput, TurnOutcome, UserMessage},
    tool::ToolUse,
};
use proptest::prelude::*;

use super::super::{
    context::bounded_tests::{are_tools_paired, cases},
    context::model_input::{Assembled, PartOf, assemble, draft},
    context::size_bound,
    effect::Effect,
    model_call::model_tests::replayed,
    prepare::CallJob,
    state::SessionState,
    state_parts::compaction_state::HistorySummary,
};
use super::compaction_call::{is_surely_small, lacks_room};
use crate::{
    agent::{AgentOptions, Grant},
    llm::profile::{ModelOverride, ModelProfiles},
    session::{Outcome, SessionJob, played::PlayedActivation, played_budgets::PlayedBudgets},
};

/// Tokens of the window. Seven turns and a message of [`said`] fill 80 % of it.
const WINDOW: u32 = 10_000;
/// The first turn whose request is too large.
const FULL: usize = 8;

/// A session with a small window, whose journal gets no snapshots, so that all of it can be replayed.
fn session(compact_model: Option<&str>, points: &[HookPoint]) -> PlayedActivation {
    let machine = MachineOptions { snapshot_every: u64::MAX, ..MachineOptions::default() };
    let loaded = LoadedJournal { records: Vec::new(), snapshot: None };
    let mut run = PlayedActivation::with(points, loaded, machine, true);
    let options = (*run.grant.options).clone();
    let compact_model = compact_model.map(|model| model.parse().unwrap());
    let window_tokens = Some(WINDOW);
    run.grant = Grant::free(AgentOptions { compact_model, window_tokens, ..options });
    run
}

fn said(turn: usize) -> String {
    format!("m{turn} {}", "x".repeat(3_000))
}

fn hears(run: &mut PlayedActivation, turn: usize) {
    let message = SessionInput::UserMessage(UserMessage::text(said(turn)));
    run.hears(&format!("m{turn}"), &message);
}

/// The same after all turns before it, up to the first one that a summary is asked for in.
fn filled(compact_model: Option<&str>) -> PlayedActivation {
    let mut run = session(compact_model, &[]);
    for turn in 1..FULL {
        hears(&mut run, turn);
        assert!(matches!(run.started.last(), Some((Effect::Call { .. }, _))), "turn {turn}");
        run.replies(&[]);
    }
    hears(&mut run, FULL);
    run
}

fn job(run: &PlayedActivation) -> &CallJob {
    let Some((_, SessionJob::Call(job))) = run.started.last() else { panic!("not called") };
    job
}

fn is_compacting(run: &PlayedActivation) -> bool {
    matches!(run.started.last(), Some((Effect::Compact { .. }, _)))
}

fn summarizes(run: &mut PlayedActivation, text: &str) {
    assert!(is_compacting(run));
    run.replies_text(text, StopReason::EndTurn);
}

fn state(run: &PlayedActivation) -> SessionState {
    run.machine.settled().unwrap().state.clone()
}

fn all_text(request: &Assembled) -> String {
    let texts = request.messages.iter().map(|message| message.content.inline().unwrap().to_owned());
    texts.collect::<Vec<_>>().join("\n")
}

/// Which turns a request shows.
fn shown(request: &Assembled) -> Vec<usize> {
    let text = all_text(request);
    (1..30).filter(|turn| text.contains(&format!("m{turn} x"))).collect()
}

/// How many calls the journal has.
fn calls_of(run: &PlayedActivation) -> usize {
    let begun = |kind: &&&str| matches!(**kind, "compaction_begun" | "model_begun");
    run.appends.iter().flatten().filter(begun).count()
}

fn last_events(run: &PlayedActivation) -> Vec<&'static str> {
    run.appends.last().unwrap().clone()
}

#[test]
fn a_summary_takes_the_place_of_the_oldest_turns() {
    let mut run = filled(Some("sim/small"));
    assert!(is_compacting(&run));
    assert_eq!(last_events(&run), ["compaction_begun"], "the call waits for it");
    let asked = job(&run).request.clone();
    assert_eq!((asked.model.to_string().as_str(), job(&run).is_silent), ("sim/small", true));
    // All but the newest turns, which a quarter of the window has room for.
    assert_eq!(shown(&asked), [1, 2, 3, 4, 5]);
    assert!(asked.tools.is_empty() && asked.messages[0].role == Role::User);
    summarizes(&mut run, " Ada likes tea \n");
    assert_eq!(last_events(&run), ["compacted", "model_begun"]);
    let request = job(&run).request.clone();
    assert!(request.messages[0].content.inline().unwrap().ends_with("Ada likes tea"));
    assert_eq!(shown(&request), [6, 7, 8]);
    assert_eq!((request.dropped_turns, request.full), (5, None));
    let notice = job(&run).notice.clone().unwrap();
    assert_eq!(notice.name, "history_compacted");
    run.replies(&[("look", r#"{"at":1}"#)]);
    // Requests after it begin with it.
    run.started.clear();
    let mut run = PlayedActivation::resumed(run);
    assert_eq!(replayed(&run), 9, "CTX-1");
    let (key, _) = run.started.pop().unwrap();
    let outcome = clawnode_proto::tool::ToolOutcome::done("seen");
    let end = clawnode_proto::session::ToolEnd::Known { outcome };
    run.feed(MachineInput::Ended(key, Outcome::Tool(end, HookTrail::default())));
    assert_eq!(job(&run).request.messages[..2], request.messages[..2]);
    assert_eq!(job(&run).notice, None, "it is said once");
    run.replies(&[]);
    hears(&mut run, 9);
    assert_eq!(shown(&job(&run).request), [6, 7, 8, 9]);
    assert_eq!(job(&run).request.messages[0], request.messages[0]);
    assert_eq!(replayed(&run), 11, "CTX-1");
}

#[test]
fn a_second_summary_has_the_first_one_in_it() {
    let mut run = filled(Some("sim/small"));
    summarizes(&mut run, "Ada likes tea");
    let mut turn = FULL;
    loop {
        run.replies(&[]);
        turn += 1;
        hears(&mut run, turn);
        if is_compacting(&run) {
            break;
        }
    }
    let asked = job(&run).request.clone();
    assert!(asked.messages[0].content.inline().unwrap().ends_with("Ada likes tea"));
    assert_eq!(shown(&asked)[0], 6, "what is summarized is not summarized twice");
    let before = state(&run).summary.unwrap().turns;
    summarizes(&mut run, "Ada likes tea, and coffee");
    let text = all_text(&job(&run).request);
    assert!(text.contains("and coffee") && text.matches("[A summary").count() == 1);
    assert!(state(&run).summary.unwrap().turns > before);
    assert_eq!(job(&run).request.dropped_turns, state(&run).summary.unwrap().turns);
    assert_eq!(replayed(&run), turn + 2, "CTX-1");
}

/// COMP-1: the request is the one that is made without a model for summaries.
#[test]
fn comp_1_a_compaction_that_fails_changes_nothing() {
    let mut without = filled(None);
    let plain = job(&without).request.clone();
    without.replies(&[]);
    hears(&mut without, FULL + 1);
    let later = job(&without).request.clone();
    let done = |text: &str, stop, tool_uses| Outcome::Done {
        attempt: Attempt(1),
        content: Text::from(text),
        stop,
        usage: Usage { input_tokens: 50, output_tokens: 5, ..Usage::default() },
        model: "m".to_owned(),
        tool_uses,
        blocks: None,
    };
    let fails = |class| Outcome::Failed {
        attempt: Attempt(1),
        failure: ModelFailure::new(class, "no"),
        partial: "half a".into(),
        usage: Usage::default(),
    };
    let using = ToolUse { id: "1".into(), name: "look".into(), arguments: "{}".into() };
    let blob = Outcome::Done {
        attempt: Attempt(1),
        content: Text::Blob { digest: clawnode_proto::Digest::ZERO, bytes: 300_000 },
        stop: StopReason::EndTurn,
        usage: Usage::default(),
        model: "m".to_owned(),
        tool_uses: Vec::new(),
        blocks: None,
    };
    for (outcome, why) in [
        (fails(FailureClass::Unreachable), "no"),
        (fails(FailureClass::Rejected), "no"),
        (fails(FailureClass::StepTime), "no"),
        (fails(FailureClass::Stopped), "no"),
        (done("  \n", StopReason::EndTurn, Vec::new()), "empty"),
        (done(&"é".repeat(SUMMARY_CHARS + 1), StopReason::EndTurn, Vec::new()), "longer"),
        (done("cut", StopReason::MaxTokens, Vec::new()), "more tokens"),
        (done("I may not", StopReason::Refusal, Vec::new()), "to its end"),
        (done("ok", StopReason::ToolUse, vec![using]), "asked for a tool"),
        (blob, "longer"),
    ] {
        let mut run = filled(Some("sim/small"));
        let (key, _) = run.started.pop().unwrap();
        run.feed(MachineInput::Ended(key, outcome));
        assert_eq!(last_events(&run), ["compaction_failed", "model_begun"], "{why}");
        assert_eq!(job(&run).request, plain, "{why}");
        let notice = job(&run).notice.clone().unwrap();
        assert!(notice.message.contains(why), "{notice:?}");
        assert_eq!(state(&run).summary, None);
        // It is tried once in a turn, and again in the next one.
        run.replies(&[]);
        hears(&mut run, FULL + 1);
        assert!(is_compacting(&run));
        run.fails(FailureClass::Unreachable);
        assert_eq!(job(&run).request, later, "{why}");
        assert_eq!(replayed(&run), FULL + 3, "CTX-1");
    }
}

#[test]
fn the_longest_summary_is_taken() {
    let mut run = filled(Some("sim/small"));
    let text = "é".repeat(SUMMARY_CHARS);
    summarizes(&mut run, &text);
    assert_eq!(state(&run).summary.unwrap().text, text);
}

/// The process dies over it: the same summary is asked for once more, and then the turn goes on without one.
#[test]
fn a_crash_over_a_summary_asks_once_more() {
    let first = filled(Some("sim/small"));
    let asked = job(&first).request.clone();
    let mut second = PlayedActivation::resumed(first);
    assert_eq!((job(&second).attempt, &job(&second).request), (Attempt(2), &asked));
    let unchanged = second.journal.clone();
    summarizes(&mut second, "Ada likes tea");
    assert_eq!(shown(&job(&second).request), [6, 7, 8]);
    second.replies(&[]);
    assert_eq!(state(&second).closed.last().unwrap().lost_attempts, 1);
    // What was recorded is not asked for again.
    let calls = |run: &PlayedActivation| {
        run.appends.iter().flatten().filter(|kind| **kind == "compaction_begun").count()
    };
    assert_eq!(calls(&PlayedActivation::resumed(second)), 0);

    let mut again = session(Some("sim/small"), &[]);
    again.journal = unchanged;
    let third = PlayedActivation::resumed(again);
    assert!(!is_compacting(&third), "two attempts were enough");
    assert_eq!(shown(&job(&third).request), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(replayed(&third), FULL + 2, "CTX-1");
    let mut third = third;
    third.replies(&[]);
    assert_eq!(state(&third).closed.last().unwrap().lost_attempts, 2);
}

#[test]
fn what_a_summary_used_is_of_its_turn() {
    let mut run = filled(Some("sim/small"));
    let used =
        |input_tokens, output_tokens| Usage { input_tokens, output_tokens, ..Usage::default() };
    run.replies_for(used(700, 30), &[]);
    run.replies_for(used(100, 7), &[]);
    let turn = state(&run).closed.last().unwrap().clone();
    assert_eq!((turn.usage.input_tokens, turn.usage.output_tokens), (800, 37));
    let of_summary = super::super::ending::emitted_summary(&turn).unwrap();
    assert_eq!(
        (of_summary.model.to_string().as_str(), of_summary.attempt),
        ("sim/small", Attempt(1))
    );
    assert_eq!(of_summary.usage.input_tokens, 700);
}

/// The model of the agent costs nothing here, and the one for summaries too much in the second case.
#[test]
fn a_summary_reserves_what_it_can_cost_and_a_turn_goes_on_without() {
    let daily = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Day };
    let price = |usd| {
        let price = ModelPrice { input: usd, output: usd, cache_read: usd, cache_write: usd };
        ModelOverride { price: Some(price), ..ModelOverride::default() }
    };
    let prices = [("sim/model", price(0)), ("sim/small", price(3_000_000))];
    let profiles = ModelProfiles::new(prices.map(|(name, price)| (name.to_owned(), price)).into());
    for (amount, has_room) in [(1_000_000, true), (10_000, false)] {
        let mut run = session(Some("sim/small"), &[]);
        let options = (*run.grant.options).clone();
        run.grant = Grant::free(AgentOptions { profiles: profiles.clone(), ..options });
        run.budgets = Some(PlayedBudgets::new(daily, amount, false));
        for turn in 1..FULL {
            hears(&mut run, turn);
            run.replies(&[]);
        }
        hears(&mut run, FULL);
        assert_eq!(is_compacting(&run), has_room, "{amount}");
        if has_room {
            assert_eq!(last_events(&run), ["budget_held", "compaction_begun"], "BUD-1");
            let held = state(&run).running().unwrap().compaction.clone().unwrap().held.unwrap();
            assert!(held.max_output <= 4_096 && held.input > 15_000, "{held:?}");
            let used = Usage { input_tokens: 9_000, output_tokens: 100, ..Usage::default() };
            run.replies_for(used, &[]);
            assert_eq!(last_events(&run), ["compacted", "budget_held", "model_begun"]);
            run.replies(&[]);
            let spent = state(&run).spent.usd.0;
            assert_eq!(spent, 9_100 * 3, "PRICE-1");
        } else {
            let wanted = ["compaction_failed", "budget_held", "model_begun"];
            assert_eq!(last_events(&run), wanted);
            let notice = job(&run).notice.clone().unwrap();
            assert!(notice.message.contains("budget of cluster"), "{notice:?}");
            assert_eq!(shown(&job(&run).request).len(), FULL);
        }
        assert_eq!(replayed(&run), calls_of(&run), "CTX-1");
    }
}

/// What limits the calls of the first turn that a summary is asked for in, in tokens.
#[derive(Clone, Copy, Debug)]
enum Limited {
    Turn,
    Session,
    Account,
}

/// The same session, whose last turn has so many tokens.
fn limited(compact_model: Option<&str>, kind: Limited, tokens: u64) -> PlayedActivation {
    let mut run = session(compact_model, &[]);
    for turn in 1..FULL {
        hears(&mut run, turn);
        run.replies(&[]);
    }
    let options = (*run.grant.options).clone();
    let (turn_tokens, session_tokens) = match kind {
        Limited::Turn => (Some(tokens), None),
        Limited::Session => (None, Some(tokens)),
        Limited::Account => (None, None),
    };
    let spend = SpendLimits { turn_tokens, session_tokens, ..options.spend };
    run.grant = Grant::free(AgentOptions { spend, ..options });
    if let Limited::Account = kind {
        let daily = LimitKey { unit: BudgetUnit::Tokens, window: WindowLength::Day };
        run.budgets = Some(PlayedBudgets::new(daily, tokens, false));
    }
    hears(&mut run, FULL);
    run
}

fn is_calling(run: &PlayedActivation) -> bool {
    matches!(run.started.last(), Some((Effect::Call { .. }, _)))
}

/// COMP-1: a turn that can be paid for without a summary can be paid for, however the call of one ends, and if that uses
/// all that it had reserved.
#[test]
fn comp_1_a_summary_never_makes_its_own_turn_bankrupt() {
    let longest = "\u{1d11e}".repeat(SUMMARY_CHARS);
    for kind in [Limited::Turn, Limited::Session, Limited::Account] {
        let (mut without_room, mut made) = (0, 0);
        for tokens in (16_000..96_000).step_by(4_000) {
            if !is_calling(&limited(None, kind, tokens)) {
                continue;
            }
            let mut run = limited(Some("sim/small"), kind, tokens);
            if !is_compacting(&run) {
                without_room += 1;
                assert_eq!(last_events(&run)[0], "compaction_failed");
                assert!(is_calling(&run), "{kind:?} {tokens}");
                let notice = job(&run).notice.clone().unwrap();
                assert!(notice.message.contains("has no room for it"), "{notice:?}");
                assert_eq!(replayed(&run), calls_of(&run), "CTX-1");
                continue;
            }
            made += 1;
            // No usage is reported, so all of it counts.
            summarizes(&mut run, &longest);
            assert!(is_calling(&run), "{kind:?} {tokens}: {:?}", last_events(&run));
            let mut run = limited(Some("sim/small"), kind, tokens);
            run.fails(FailureClass::BrokenStream);
            assert!(is_calling(&run), "{kind:?} {tokens}: {:?}", last_events(&run));
        }
        assert!(without_room > 2 && made > 2, "{kind:?}: {without_room} and {made}");
    }
}

/// What the call of its turn needs is only to be there, and is not reserved with the summary.
#[test]
fn a_summary_reserves_only_what_it_can_cost_itself() {
    let run = limited(Some("sim/small"), Limited::Account, 1_000_000);
    let held = state(&run).running().unwrap().compaction.clone().unwrap().held.unwrap();
    let needs = run.budgets.as_ref().unwrap().needs.clone();
    let need = &needs[0].needs[0];
    assert_eq!(need.cost.fixed, held.input);
    assert!(need.beside > 32_000, "the longest summary is read: {need:?}");
    let sealed = run.journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap());
    let journaled = sealed.filter_map(|sealed| match sealed.event().unwrap() {
        Some(SessionEvent::BudgetHeld(held)) => Some(held),
        _ => None,
    });
    let journaled = journaled.last().unwrap();
    assert_eq!(journaled.holds[0].amount, held.input + held.max_output);
}

#[test]
fn a_turn_that_is_cancelled_over_it_leaves_no_summary() {
    let mut run = filled(Some("sim/small"));
    let turn = state(&run).running().unwrap().id;
    run.hears("cancel", &SessionInput::Cancel { turn });
    run.fails(FailureClass::Cancelled);
    let state = state(&run);
    assert_eq!(state.closed.last().unwrap().outcome, Some(TurnOutcome::Cancelled));
    assert_eq!((state.summary, state.open.len()), (None, 0));
}

/// Whether a summary is due is asked with each input: a conversation is not copied for the answer while it is short.
#[test]
fn a_short_conversation_is_known_to_be_small_without_its_request() {
    let mut run = session(Some("sim/small"), &[]);
    let small: Vec<bool> = (1..=FULL)
        .map(|turn| {
            hears(&mut run, turn);
            let state = state(&run);
            let mut turn = state.running().unwrap().clone();
            turn.steps.clear();
            let is_small = is_surely_small(&state, state.profile.as_ref().unwrap(), &turn);
            run.replies(&[]);
            is_small
        })
        .collect();
    let known = small.iter().take_while(|is_small| **is_small).count();
    assert!(known >= 6, "seven turns fill it: {small:?}");
    assert!(!small[FULL - 1], "{small:?}");
}

#[test]
fn no_summary_is_asked_for_without_need() {
    // Hooks judge what models are sent.
    let mut hooked = session(Some("sim/small"), &[HookPoint::BeforeLlmCall]);
    for turn in 1..=FULL {
        hears(&mut hooked, turn);
        hooked.judged(Vec::new());
        assert!(!is_compacting(&hooked), "turn {turn}");
        hooked.replies(&[]);
    }
    // One message is too large: there is nothing older that would make room.
    let mut run = session(Some("sim/small"), &[]);
    run.says("hi");
    run.replies(&[]);
    let message = SessionInput::UserMessage(UserMessage::text("y".repeat(29_000)));
    run.hears("long", &message);
    assert!(!is_compacting(&run));
    // It was taken out of the configuration.
    let mut run = filled(Some("sim/small"));
    run.fails(FailureClass::Unreachable);
    run.replies(&[]);
    let options = (*run.grant.options).clone();
    run.grant = Grant::free(AgentOptions { compact_model: None, ..options });
    hears(&mut run, FULL + 1);
    assert!(!is_compacting(&run));
}

#[test]
fn the_call_of_a_summary_waits_for_a_place_in_its_own_lane() {
    let run = filled(Some("sim/small"));
    let state = state(&run);
    let (effect, _) = run.started.last().unwrap();
    let want = super::compaction_call::want(&state, effect, None);
    let Some(super::super::effect::Want::Place { lane, is_new, .. }) = want else {
        panic!("{want:?}")
    };
    assert_eq!((lane, is_new), (Some(Lane::System), false), "its turn has begun");
}

/// The journal says what was not asked for, or twice: it is refused.
#[test]
fn a_summary_is_of_what_was_asked() {
    let mut run = filled(Some("sim/small"));
    let begun = state(&run);
    summarizes(&mut run, "Ada likes tea");
    let sealed: Vec<_> =
        run.journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap()).collect();
    let found = sealed.iter().find_map(|sealed| match sealed.event().unwrap() {
        Some(SessionEvent::Compacted(compacted)) => Some((sealed.head.clone(), compacted)),
        _ => None,
    });
    let (head, compacted) = found.unwrap();
    let folds = |state: &SessionState, compacted: &clawnode_proto::session::Compacted| {
        state.clone().fold(&head, &SessionEvent::Compacted(compacted.clone())).is_ok()
    };
    assert!(folds(&begun, &compacted));
    assert!(!folds(&state(&run), &compacted), "two outcomes");
    let mut other = compacted.clone();
    other.upto = begun.closed[0].id;
    assert!(!folds(&begun, &other));
    let mut other = compacted.clone();
    other.attempt = Attempt(2);
    assert!(!folds(&begun, &other));
    let mut other = compacted;
    other.turn = TurnId::from_u128(5);
    assert!(!folds(&begun, &other));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    /// The quick answer is never another one than that of the whole request, and never below its size.
    #[test]
    fn what_is_surely_small_lacks_no_room(
        case in cases(),
        upto in prop::option::of(any::<prop::sample::Index>()),
        is_bounded in any::<bool>(),
        has_seed in any::<bool>(),
    ) {
        let (mut state, mut profile) = (case.state(), case.profile());
        if !has_seed {
            state.seed.clear();
        }
        if !is_bounded {
            profile.context = None;
        }
        if let Some(upto) = upto.filter(|_| !state.closed.is_empty()) {
            let upto = state.closed[upto.index(state.closed.len())].id;
            state.summarize(upto, "s".repeat(3_000), profile.model.clone()).unwrap();
        }
        let mut turn = state.running().unwrap().clone();
        turn.steps.clear();
        let older = state.closed.iter();
        if let Some(most) = size_bound::most_tokens(&state, &profile, &turn, older) {
            prop_assert!(most >= assemble(&state, &profile, &turn).estimate());
        }
        let is_small = is_surely_small(&state, &profile, &turn);
        prop_assert!(!(is_small && lacks_room(&state, &profile, &turn)));
    }

    /// CTX-2 and pairs of calls and results, for a summary of any turns and any size.
    #[test]
    fn comp_1_any_summary_leaves_a_conversation(
        case in cases(),
        upto in any::<prop::sample::Index>(),
        size in 1_usize..SUMMARY_CHARS,
    ) {
        let (mut state, profile) = (case.state(), case.profile());
        prop_assume!(!state.closed.is_empty());
        let at = upto.index(state.closed.len());
        let turns = u32::try_from(at + 1 + usize::from(!state.seed.is_empty())).unwrap();
        let (upto, text, by) = (state.closed[at].id, "s".repeat(size), profile.model.clone());
        let summary = HistorySummary { upto, turns, text, by };
        state.summary = Some(Box::new(summary.clone()));
        let turn = state.running().unwrap();
        let made = draft(&state, &profile, turn, None);
        let request = &made.request;
        prop_assert!(are_tools_paired(&request.messages));
        prop_assert_eq!(&request.messages[0], &summary.message());
        // What it is about is not shown, and the rest without a gap.
        let shown: Vec<PartOf> = made.spans.iter().map(|(part, _)| *part).collect();
        let mut all = vec![PartOf::Summary];
        let skipped = request.dropped_turns as usize - usize::from(!state.seed.is_empty());
        prop_assert!(skipped > at);
        all.extend(state.closed[skipped..].iter().map(|turn| PartOf::Earlier(turn.id)));
        all.push(PartOf::Running);
        prop_assert_eq!(shown, all);
        // The running turn is whole.
        let alone = SessionState { open: state.open.clone(), ..SessionState::default() };
        let alone = assemble(&alone, &profile, turn);
        prop_assert!(request.messages.ends_with(&alone.messages));
        // CTX-2.
        let fixed = Assembled { messages: Vec::new(), ..request.clone() }.estimate();
        let beside = request.estimate() - (alone.estimate() - fixed);
        if made.is_bounded && skipped < state.closed.len() {
            prop_assert!(beside <= u64::from(profile.context.unwrap().tokens), "CTX-2: {beside}");
        }
    }
}
