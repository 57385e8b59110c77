//! Tests: what model calls reserve, what the journal says of it, and how turns end by limits.

use clawnode_kernel::{Entity, EntityKind as _, MachineInput};
use clawnode_proto::{
    Attempt,
    budget::{BudgetHeld, BudgetUnit, LimitKey, SpendLimits, WindowLength},
    event::decode_record,
    hook::{HookPoint, HookTrail, ModelPatch},
    llm::{FailureClass, ModelFailure, Usage},
    model::ModelPrice,
    money::MicroUsd,
    reasoning::Reasoning,
    session::{SessionEvent, SessionInput, Settled, ToolEnd, TurnOutcome, UserMessage},
    tool::ToolOutcome,
};
use proptest::prelude::*;

use super::super::{prepare::CallJob, state_parts::settled_cost::AttemptBill};
use super::reservation_size::whole;
use crate::{
    agent::{AgentOptions, Grant},
    llm::profile::{ModelOverride, ModelProfiles},
    session::{
        Outcome, Session, SessionJob, SessionState,
        played::{PlayedActivation, key},
        played_budgets::PlayedBudgets,
    },
};

/// $3 and $15 for a million tokens.
const PRICE: ModelPrice = ModelPrice {
    input: 3_000_000,
    output: 15_000_000,
    cache_read: 300_000,
    cache_write: 3_750_000,
};
const DAILY_USD: LimitKey = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Day };
const DAILY_TOKENS: LimitKey = LimitKey { unit: BudgetUnit::Tokens, window: WindowLength::Day };
const PLENTY: u64 = 1_000_000_000;

fn options(run: &PlayedActivation) -> AgentOptions {
    let price = ModelOverride { price: Some(PRICE), ..ModelOverride::default() };
    let profiles = ModelProfiles::new([("sim/*".to_owned(), price)].into());
    AgentOptions { profiles, ..(*run.grant.options).clone() }
}

/// A session whose cluster has this limit.
fn under(limit: LimitKey, amount: u64) -> PlayedActivation {
    let mut run = PlayedActivation::new(&[], Vec::new());
    run.grant = Grant::free(options(&run));
    run.budgets = Some(PlayedBudgets::new(limit, amount, false));
    run
}

/// A session whose agent has these limits, and no account.
fn limited(limits: SpendLimits) -> PlayedActivation {
    let mut run = PlayedActivation::new(&[], Vec::new());
    run.grant = Grant::free(AgentOptions { spend: limits, ..options(&run) });
    run
}

fn events(run: &PlayedActivation) -> Vec<SessionEvent> {
    let sealed = run.journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap());
    sealed.filter_map(|sealed| sealed.event().unwrap()).collect()
}

fn holds(run: &PlayedActivation) -> Vec<BudgetHeld> {
    let held = events(run).into_iter().filter_map(|event| match event {
        SessionEvent::BudgetHeld(held) => Some(held),
        _ => None,
    });
    held.collect()
}

fn settled(run: &PlayedActivation) -> Settled {
    let settled = events(run).into_iter().rev().find_map(|event| match event {
        SessionEvent::Settled(settled) => Some(settled),
        _ => None,
    });
    settled.expect("a turn has ended")
}

fn outcome(run: &PlayedActivation) -> TurnOutcome {
    state(run).closed.last().unwrap().outcome.clone().unwrap()
}

fn state(run: &PlayedActivation) -> SessionState {
    run.machine.settled().unwrap().state.clone()
}

fn call(run: &PlayedActivation) -> &CallJob {
    match run.started.last() {
        Some((_, SessionJob::Call(job))) => job,
        other => panic!("{other:?}"),
    }
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

fn usage(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage { input_tokens, output_tokens, ..Usage::default() }
}

#[test]
fn what_people_read_of_the_next_call_is_what_it_reserves() {
    let mut run = under(DAILY_USD, PLENTY);
    let budgets = run.budgets.as_ref().unwrap().holder.clone();
    let next = |run: &PlayedActivation| {
        let next = state(run).next_needs((*run.grant.options).clone(), &budgets);
        next.expect("the session was used")
    };
    let reserved = |run: &PlayedActivation| run.budgets.as_ref().unwrap().needs.clone();
    let text = |text: String| SessionInput::UserMessage(UserMessage::text(text));
    run.hears("long", &text("long ".repeat(500)));
    run.replies_for(usage(100, 10), &[]);
    let before = next(&run);
    assert!(before.priced && before.input < 1_000, "by the provider's count: {}", before.input);
    run.hears("empty", &text(String::new()));
    assert_eq!(Some(&before.needs), reserved(&run).last());
    // While the call runs, it is what the next attempt would reserve.
    assert_eq!(next(&run).needs, before.needs);
    run.replies_for(usage(120, 10), &[]);
    run.says("word");
    let (with_word, without) = (reserved(&run).pop().unwrap(), next(&run).needs);
    assert_eq!(with_word, without, "an open turn has its own text in it");
}

/// BUD-1: no call begins before the append that has its hold, also after a lost attempt.
#[test]
fn under_a_limit_each_call_begins_in_the_append_of_its_hold() {
    let mut run = under(DAILY_USD, PLENTY);
    run.says("one");
    run.replies_for(usage(100, 10), &[("look", r#"{"at":1}"#)]);
    run.says("two");
    let mut appends = run.appends.clone();
    let mut again = PlayedActivation::resumed(run);
    let (effect, _) = again.started.pop().expect("the tool runs again");
    let end = ToolEnd::Known { outcome: ToolOutcome::done("seen") };
    again.feed(MachineInput::Ended(effect, Outcome::Tool(end, HookTrail::default())));
    // The process dies over the second call, and it is made once more.
    appends.extend(again.appends.clone());
    let last = PlayedActivation::resumed(again);
    appends.extend(last.appends.clone());
    let mut calls = 0;
    for append in &appends {
        for (at, kind) in append.iter().enumerate() {
            if *kind == "model_begun" {
                assert_eq!(append[at - 1], "budget_held", "{append:?}");
                calls += 1;
            }
        }
    }
    assert_eq!((calls, holds(&last).len()), (3, 3), "{appends:?}");
    assert_eq!(replayed(&last), 3);
}

#[test]
fn without_a_limit_nothing_is_held_and_no_cap_is_sent() {
    let mut run = PlayedActivation::new(&[], Vec::new());
    run.grant = Grant::free(options(&run));
    run.says("one");
    assert_eq!(call(&run).request.sampling.max_tokens, None);
    assert!(call(&run).paid.is_none());
    run.replies_for(usage(100, 10), &[]);
    assert_eq!(holds(&run), []);
    assert_eq!(settled(&run).cost, None);
}

#[test]
fn a_call_is_held_at_its_price_and_sent_with_the_cap_that_was_paid() {
    let mut run = under(DAILY_USD, PLENTY);
    run.says("one");
    let held = holds(&run).remove(0);
    let job = call(&run);
    // Nothing is known of the model, and no setting says a cap.
    assert_eq!((held.price, held.max_output), (PRICE, 8_192));
    assert_eq!(job.request.sampling.max_tokens, Some(8_192));
    assert_eq!(held.input, whole(&job.request), "nothing was reported yet");
    assert!(held.holds[0].amount >= held.most().0);
    assert_eq!(held.attempt, Attempt(1));
    run.replies_for(usage(1_000, 100), &[]);
    // 1,000 * $3 / million and 100 * $15 / million.
    assert_eq!(settled(&run).cost, Some(MicroUsd(4_500)));
    assert_eq!(state(&run).spent.usd, MicroUsd(4_500));
    assert_eq!(replayed(&run), 1);
}

#[test]
fn the_last_cents_pay_for_a_smaller_reply_and_then_the_turn_is_bankrupt() {
    let mut run = under(DAILY_USD, PLENTY);
    run.says("one");
    let input = holds(&run)[0].input;
    let for_input = PRICE.most(input, 0).0;
    // Enough for 1,000 tokens of output.
    let mut run = under(DAILY_USD, for_input + 15_000);
    run.says("one");
    assert_eq!(call(&run).request.sampling.max_tokens, Some(1_000));
    assert_eq!(replayed(&run), 1);
    // Not enough for 256.
    let least = for_input + 256 * 15;
    let mut run = under(DAILY_USD, least - 1);
    run.says("one");
    assert!(run.started.iter().all(|(_, job)| !matches!(job, SessionJob::Call(_))));
    let TurnOutcome::Bankrupt { account, unit, used, limit, needed, window } = outcome(&run) else {
        panic!("{:?}", outcome(&run))
    };
    assert_eq!(
        (account.as_str(), unit, window),
        ("cluster", BudgetUnit::Usd, Some(WindowLength::Day))
    );
    assert_eq!((used, limit, needed), (0, least - 1, least));
    assert_eq!(settled(&run).cost, None, "no call was made");
}

#[test]
fn a_request_counts_as_its_provider_counted_what_it_begins_with() {
    let mut run = under(DAILY_TOKENS, PLENTY);
    let long = "x".repeat(20_000);
    run.hears("long", &SessionInput::UserMessage(UserMessage::text(long)));
    let first = holds(&run)[0].input;
    assert!(first >= 20_000, "one token for each byte");
    run.replies_for(usage(7_000, 5), &[("look", r#"{"at":1}"#)]);
    let (effect, _) = run.started.pop().unwrap();
    let end = ToolEnd::Known { outcome: ToolOutcome::done("y".repeat(500)) };
    run.feed(MachineInput::Ended(effect, Outcome::Tool(end, HookTrail::default())));
    // Within a turn: what was reported, the reply and the tool's result.
    let second = holds(&run)[1].input;
    assert!((7_500..9_000).contains(&second), "{second}");
    run.replies_for(usage(7_200, 5), &[]);
    // In the next turn: what was reported, the last reply and the message.
    run.says("short");
    let third = holds(&run)[2].input;
    assert!((7_200..8_000).contains(&third), "{third}");
    run.replies_for(usage(7_300, 5), &[]);
    // Another system text comes before it all.
    let system = "z".repeat(3_000);
    run.grant = Grant::free(AgentOptions { system, ..(*run.grant.options).clone() });
    run.says("and now");
    assert!(holds(&run)[3].input >= 23_000);
    assert_eq!(replayed(&run), 4);
}

/// What a model did not report, and what a provider did not bill.
#[test]
fn an_attempt_costs_what_it_used_or_all_that_it_had_reserved() {
    let most = |run: &PlayedActivation| holds(run)[0].most();
    let mut run = under(DAILY_USD, PLENTY);
    run.says("absent");
    run.replies_for(Usage::default(), &[]);
    assert_eq!(settled(&run).cost, Some(most(&run)), "no usage is no usage of 0");

    let mut run = under(DAILY_USD, PLENTY);
    run.says("broken");
    run.fails(FailureClass::BrokenStream);
    assert_eq!(settled(&run).cost, Some(most(&run)));

    let mut run = under(DAILY_USD, PLENTY);
    run.says("refused");
    run.fails(FailureClass::Rejected);
    assert_eq!(settled(&run).cost, Some(MicroUsd(0)), "a request that is refused costs nothing");

    let mut run = under(DAILY_USD, PLENTY);
    run.says("cut");
    run.fails_as(ModelFailure::new(FailureClass::BrokenStream, "cut"), usage(1_000, 0));
    assert_eq!(settled(&run).cost, Some(MicroUsd(3_000)), "as far as it was reported");
}

#[test]
fn a_lost_attempt_costs_all_that_it_had_reserved() {
    let mut run = under(DAILY_USD, PLENTY);
    run.says("hi");
    let most = holds(&run)[0].most();
    let mut next = PlayedActivation::resumed(run);
    next.says("then");
    assert_eq!(call(&next).attempt, Attempt(2));
    next.replies_for(usage(1_000, 0), &[]);
    let first = events(&next).into_iter().find_map(|event| match event {
        SessionEvent::Settled(settled) => settled.cost,
        _ => None,
    });
    assert_eq!(first, Some(MicroUsd(most.0 + 3_000)));
    assert_eq!(holds(&next).iter().map(|held| held.attempt.0).collect::<Vec<_>>(), [1, 2, 1]);
    assert_eq!(replayed(&next), 3);
}

#[test]
fn limits_of_a_turn_lower_the_cap_and_end_it_with_what_it_has() {
    let turn_usd = Some(MicroUsd(40_000));
    let mut run = limited(SpendLimits { turn_usd, ..SpendLimits::default() });
    run.says("one");
    let held = holds(&run).remove(0);
    assert_eq!(held.holds, [], "no account holds anything");
    let cap = (40_000 - PRICE.most(held.input, 0).0) / 15;
    assert_eq!(call(&run).request.sampling.max_tokens.map(u64::from), Some(cap));
    assert!(cap < 8_192);
    // The tool ends at once, with an error that the model reads.
    run.replies_for(usage(2_000, 2_200), &[("look", "{}")]);
    assert!(matches!(
        outcome(&run),
        TurnOutcome::Bankrupt { account, used: 39_000, limit: 40_000, .. } if account == "turn"
    ));
    let kinds = run.appends.concat();
    assert!(kinds.ends_with(&["reply", "turn_done", "settled"]), "with what it has: {kinds:?}");
    assert_eq!(settled(&run).cost, Some(MicroUsd(39_000)));
    // The next turn has a limit of its own.
    run.says("two");
    assert_eq!(holds(&run).len(), 2);
    assert_eq!(replayed(&run), 2);
}

#[test]
fn the_limit_of_a_session_counts_all_turns_and_raising_it_lets_it_go_on() {
    let session_tokens = Some(10_000);
    let mut run = limited(SpendLimits { session_tokens, ..SpendLimits::default() });
    run.says("one");
    run.replies_for(usage(7_000, 2_500), &[]);
    run.says("two");
    let ended = outcome(&run);
    let TurnOutcome::Bankrupt { account, unit, used, limit, .. } = &ended else {
        panic!("{ended:?}")
    };
    assert_eq!((account.as_str(), *unit), ("session", BudgetUnit::Tokens));
    assert_eq!((*used, *limit), (9_500, 10_000));
    let error = ended.error().unwrap();
    assert!(error.message.starts_with("token budget exceeded (session: 9500/10000)"), "{error:?}");
    let limits = SpendLimits { session_tokens: Some(PLENTY), ..SpendLimits::default() };
    run.grant = Grant::free(AgentOptions { spend: limits, ..(*run.grant.options).clone() });
    run.says("three");
    run.replies_for(usage(7_100, 5), &[]);
    assert!(matches!(outcome(&run), TurnOutcome::Completed { .. }));
}

#[test]
fn a_model_without_a_price_is_refused_where_a_person_set_a_limit_in_money() {
    for (limit, is_default, is_refused) in
        [(DAILY_USD, false, true), (DAILY_USD, true, false), (DAILY_TOKENS, false, false)]
    {
        let mut run = PlayedActivation::new(&[], Vec::new());
        run.budgets = Some(PlayedBudgets::new(limit, PLENTY, is_default));
        run.says("one");
        if !is_refused {
            assert!(holds(&run)[0].price.output > 0, "the dearest known price counts");
            continue;
        }
        let TurnOutcome::Failed { failure } = outcome(&run) else { panic!("{:?}", outcome(&run)) };
        assert_eq!(failure.class, FailureClass::BudgetNotAllowed);
        assert!(failure.message.contains("[prices.\"sim/model\"]"), "{failure:?}");
    }
}

/// HOOK-2: what hooks judge is the request without the cap; the hold is for what they made of it.
#[test]
fn the_hold_is_for_the_request_that_hooks_have_changed() {
    let mut run = PlayedActivation::new(&[HookPoint::BeforeLlmCall], Vec::new());
    run.grant = Grant::free(options(&run));
    run.budgets = Some(PlayedBudgets::new(DAILY_USD, PLENTY, false));
    run.says("one");
    assert_eq!(holds(&run), [], "hooks are asked first");
    let append = Some("y".repeat(5_000));
    let patch = ModelPatch { append, ..Default::default() };
    run.judged(vec![patch]);
    assert_eq!(holds(&run).len(), 1);
    assert!(holds(&run)[0].input > 5_000);
    assert_eq!(replayed(&run), 1);
}

#[test]
fn the_cap_of_an_agent_and_thoughts_beside_it_are_reserved() {
    let mut run = under(DAILY_TOKENS, PLENTY);
    let mut options = (*run.grant.options).clone();
    options.sampling.max_tokens = Some(100);
    options.sampling.reasoning = Some(Reasoning::Low);
    run.grant = Grant::free(options);
    run.says("one");
    let held = holds(&run).remove(0);
    assert_eq!((held.max_output, held.holds[0].amount), (2_148, held.input + 2_148));
    assert_eq!(call(&run).request.sampling.max_tokens, Some(100));
    let needs = &run.budgets.as_ref().unwrap().needs[0];
    assert_eq!(needs.least_output, 2_148, "an agent's cap is not lowered below what it is");
}

/// What joins while the call waits for money was not reserved for.
#[test]
fn a_message_that_joins_before_the_call_begins_is_reserved_for() {
    let mut run = under(DAILY_TOKENS, PLENTY);
    run.says("one");
    run.hears("more", &SessionInput::Steer(UserMessage::text("w".repeat(2_000))));
    run.replies_for(usage(1_000, 5), &[("look", "{}")]);
    let held = holds(&run);
    assert!(held[1].input >= 3_000, "{held:?}");
    assert_eq!(replayed(&run), 2);
}

#[test]
fn what_is_reserved_for_another_call_is_no_hold() {
    let mut run = under(DAILY_USD, PLENTY);
    run.says("one");
    let sealed = run.journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap());
    let mut entity = Entity::<Session>::unborn(key().entity());
    for sealed in sealed {
        if let Ok(Some(event @ SessionEvent::ModelBegun(_))) = sealed.event::<SessionEvent>() {
            let mut state = entity.state.clone();
            let held = state.open.front_mut().unwrap().held.as_mut().unwrap();
            held.attempt = Attempt(2);
            let refused = Session::fold(&mut state, &sealed.head, &event).unwrap_err();
            assert!(refused.0.contains("BUD-1"), "{refused}");
        }
        entity.apply(&sealed).unwrap();
    }
}

proptest! {
    /// The hold is at least the cost of any usage within the input and the cap.
    #[test]
    fn no_usage_within_the_input_and_the_cap_costs_more_than_the_hold(
        price in proptest::array::uniform4(0..100_000_000_u64),
        input in 0..2_000_000_u64,
        output in 0..200_000_u64,
        thousandths in proptest::array::uniform4(0..=1_000_u64),
    ) {
        let [of_input, of_output, cache_read, cache_write] = price;
        let price = ModelPrice { input: of_input, output: of_output, cache_read, cache_write };
        let part = |most: u64, of_1000: u64| most * of_1000 / 1_000;
        let input_tokens = part(input, thousandths[0]);
        let read = part(input_tokens, thousandths[1]);
        let used = Usage {
            input_tokens,
            output_tokens: part(output, thousandths[2]),
            cache_read_tokens: read,
            cache_write_tokens: part(input_tokens - read, thousandths[3]),
            cache_write_hour_tokens: 0,
            reasoning_tokens: 0,
            estimated: false,
        };
        let cost = clawnode_budget::holder::CallCost {
            fixed: price.most(input, 0).0,
            per_million: price.output,
        };
        prop_assert!(price.cost(&used).0 <= cost.at(output));
        prop_assert!(price.most(input, output).0 <= cost.at(output));
    }
}

#[test]
fn only_what_a_provider_has_not_billed_for_certain_costs_nothing() {
    let failed = |class| ModelFailure::new(class, "no");
    for (class, bill) in [
        (FailureClass::Unreachable, AttemptBill::Nothing),
        (FailureClass::Overloaded, AttemptBill::Nothing),
        (FailureClass::Timeout, AttemptBill::Unknown),
        (FailureClass::BrokenStream, AttemptBill::Unknown),
        (FailureClass::Cancelled, AttemptBill::Nothing),
        (FailureClass::StepTime, AttemptBill::Nothing),
    ] {
        assert_eq!(AttemptBill::of(&Usage::default(), Some(&failed(class))), bill, "{class:?}");
        assert_eq!(AttemptBill::of(&usage(1, 0), Some(&failed(class))), AttemptBill::Usage);
    }
    assert_eq!(AttemptBill::of(&Usage::default(), None), AttemptBill::Unknown);
}
