//! The bytes of the events that accounts record, and of the messages that they get and send.

use clawnode_proto::{
    Attempt, Timestamp,
    budget::{
        AskAnswer, AskVerdict, BudgetAllowed, BudgetAsked, BudgetEvent, BudgetGranted, BudgetHeld,
        BudgetInput, BudgetLimit, BudgetOver, BudgetSet, BudgetUnit, BudgetView, BudgetWarned,
        GrantedSlice, Hold, LimitKey, LimitSource, ProcessStanding, SliceAsk, SliceReport,
        SpendLimits, WindowBegun, WindowLength, WindowNumber,
    },
    llm::{FailureClass, Usage},
    model::ModelPrice,
    money::MicroUsd,
    session::{Profile, SessionEvent, Settled, TurnDone, TurnOutcome},
};

use crate::{
    goldens::{all, events},
    samples::{call, model, name, process, profile, turn},
};

const LIMIT: LimitKey = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Day };
const WINDOW: WindowNumber = WindowNumber(20_783);
const BEGUN: Option<Timestamp> = Some(Timestamp(1_795_651_200_000));

fn limits() -> Vec<BudgetLimit> {
    vec![
        BudgetLimit::new(LIMIT.unit, LIMIT.window, 5_000_000),
        BudgetLimit { ask_at: 100, ..BudgetLimit::new(BudgetUnit::Loops, WindowLength::Hour, 50) },
        BudgetLimit::new(BudgetUnit::Tokens, WindowLength::Month, 2_000_000),
        BudgetLimit::new(BudgetUnit::Tokens, WindowLength::Forever, 0),
    ]
}

fn ada() -> LimitSource {
    LimitSource::Person { name: "ada".to_owned() }
}

pub(crate) fn budget_events() -> Vec<BudgetEvent> {
    let (limit, window, spent, amount) = (LIMIT, WINDOW, 3_750_000, 5_000_000);
    vec![
        BudgetSet { source: LimitSource::Configured, limits: Some(limits()), decides: None }.into(),
        BudgetSet { source: LimitSource::BuiltIn, limits: Some(limits()), decides: None }.into(),
        BudgetSet { source: ada(), limits: None, decides: None }.into(),
        BudgetSet { source: ada(), limits: Some(limits()), decides: Some(vec![LIMIT]) }.into(),
        BudgetAllowed { by: "ada".to_owned(), limit, window }.into(),
        BudgetGranted { process: process(), number: 7, limit, window, amount: 50_000 }.into(),
        BudgetWarned { limit, window, spent, amount }.into(),
        BudgetAsked { limit, window, spent, amount }.into(),
        BudgetOver { limit, window, excess: 12 }.into(),
        WindowBegun { limit, window, ended: WindowNumber(20_782), spent, open: 9 }.into(),
    ]
}

fn report(over: u64) -> SliceReport {
    let (number, window, seq, spent, held) = (7, WINDOW, 2, 40_000, 5_000);
    SliceReport { number, window, seq, spent, held, returned: 1_000, over, closed: false }
}

fn inputs() -> Vec<BudgetInput> {
    let wants = SliceAsk { number: 8, limit: LIMIT, call: 30_000, least: 400, waits: 90_000 };
    let process = process();
    vec![
        BudgetInput::Set { source: ada(), limits: Some(limits()), decides: None },
        BudgetInput::Set { source: ada(), limits: Some(limits()), decides: Some(vec![LIMIT]) },
        BudgetInput::Ask { process, asks: vec![wants], reports: vec![], dead: vec![] },
        BudgetInput::Ask { process, asks: vec![wants], reports: vec![report(0)], dead: vec![] },
        BudgetInput::Ask { process, asks: vec![wants], reports: vec![], dead: vec![process] },
        BudgetInput::Report { process, reports: vec![report(12)] },
        BudgetInput::Allow { by: "ada".to_owned(), limit: LIMIT, window: WINDOW },
        BudgetInput::TimerFired { due: Timestamp(1_795_651_200_000) },
    ]
}

pub(crate) fn standing() -> ProcessStanding {
    let (spent, limit) = (4_999_000, 5_000_000);
    let answer = |(number, verdict)| AskAnswer {
        number,
        limit: LIMIT,
        verdict,
        holder: (verdict == AskVerdict::Waits).then(process),
    };
    let verdicts = [
        AskVerdict::Waits,
        AskVerdict::NeedsPerson { spent, limit },
        AskVerdict::SpentOut { spent, limit },
        AskVerdict::NoLimit,
    ];
    let amount = 50_000;
    ProcessStanding {
        account: name("user:web:bot:ada"),
        version: 42,
        begun: None,
        slices: vec![GrantedSlice {
            number: 7,
            limit: LIMIT,
            window: WINDOW,
            amount,
            recalled: true,
        }],
        answers: (8..).zip(verdicts).map(answer).collect(),
    }
}

/// Of an owner that does not say when the account began, and of one that does.
fn standings() -> Vec<ProcessStanding> {
    vec![standing(), ProcessStanding { begun: BEGUN, ..standing() }]
}

fn views() -> Vec<BudgetView> {
    let view = |account, (is_default, by_person)| BudgetView {
        account: name(account),
        limits: limits(),
        is_default,
        by_person,
        version: 42,
        begun: None,
    };
    vec![
        view("cluster", (true, false)),
        view("agent:research", (false, false)),
        view("agent:main", (false, true)),
        BudgetView { begun: BEGUN, ..view("agent:main", (false, true)) },
    ]
}

#[test]
fn budgets() {
    let golden = events(&budget_events()) + &all(&inputs()) + &all(&standings()) + &all(&views());
    insta::assert_snapshot!(golden + &all(&[MicroUsd(5_000_000)]));
}

/// What sessions record about the cost of their calls.
fn spending_events() -> Vec<SessionEvent> {
    let price =
        ModelPrice { input: 3_000_000, output: 15_000_000, cache_read: 300_000, cache_write: 0 };
    let account = name("cluster");
    let hold = Hold { account, limit: LIMIT, number: 7, window: WINDOW, amount: 19_000 };
    let reserved = BudgetHeld {
        call: call(),
        attempt: Attempt(2),
        process: process(),
        model: model(),
        price,
        input: 5_000,
        max_output: 256,
        holds: Vec::new(),
    };
    let (turn, used, limit) = (turn(), 4_999_000, 5_000_000);
    let bankrupt = |account: &str, unit, window| {
        let account = account.to_owned();
        let outcome = TurnOutcome::Bankrupt { account, unit, used, limit, needed: 18_840, window };
        SessionEvent::from(TurnDone { turn, outcome })
    };
    let limits = SpendLimits {
        turn_usd: Some(MicroUsd(250_000)),
        turn_tokens: Some(100_000),
        session_usd: Some(MicroUsd(1_000_000)),
        session_tokens: Some(500_000),
    };
    let cost = Some(MicroUsd(19_000));
    vec![
        BudgetHeld { holds: vec![hold], ..reserved.clone() }.into(),
        reserved.into(),
        bankrupt("cluster", BudgetUnit::Usd, Some(WindowLength::Day)),
        bankrupt("session", BudgetUnit::Tokens, None),
        Settled { turn, usage: Usage::default(), lost_attempts: 1, cost }.into(),
        Profile { limits, ..profile() }.into(),
    ]
}

#[test]
fn spending() {
    let classes = [FailureClass::BudgetNotAllowed, FailureClass::BudgetUnavailable];
    insta::assert_snapshot!(events(&spending_events()) + &all(&classes));
}
