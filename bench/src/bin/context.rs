//! `context::tokens` and `context::assemble`: what a session of many turns is sent, and how long its request takes to make.
//!
//! One session, played without a node: each turn has a message, a call of a tool and a reply, of the sizes of real ones.
//! The tokens of a turn are those of its two calls, by the estimate of agents. The part that a cache can serve is what a
//! request has in common with the one before it, from its beginning on. Run with
//! `cargo run --release -p clawnode-bench --bin context`.

#![expect(clippy::cast_precision_loss, reason = "tokens are far below 2^52")]

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use clap::Parser;
use clawnode_actors::{
    agent::AgentOptions,
    session::{
        Assembled, SessionState, Step, StepEnd, Turn,
        turn::{
            clock::TurnClock, context::dropping::LeftOut, context::model_input::assemble,
            memory::turn_feedback::TurnFeedback, state_parts::settled_cost::Spent,
            tools::client_tools::ClientOffer, tools::tool_calls::ToolCall,
        },
    },
};
use clawnode_bench::{Error, Row, Table, percentile};
use clawnode_proto::{
    Attempt, CallId, TurnId,
    after_deletion::AfterDeletion,
    context::{ContextMode, ContextRules, ContextSettings},
    llm::{Sampling, StopReason, Usage},
    session::{Profile, ToolEnd, TurnOutcome},
    tool::{EffectClass, Risk, ToolOutcome, ToolSpec, ToolUse},
};

/// The longest that the request of a late turn may take to make, in milliseconds.
const ASSEMBLY_MS: f64 = 1.0;
/// How many times fewer tokens a bounded session is sent than one that sends everything.
const FEWER: f64 = 10.0;
/// Requests that are timed.
const TIMED: usize = 2_000;

/// Measures what a session of many turns is sent
#[derive(Debug, Parser)]
struct Args {
    /// Turns of the session
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(20..))]
    turns: u16,
}

/// What the calls of a session were sent.
#[derive(Debug, Default)]
struct Counted {
    tokens: u64,
    /// Of these, those that the call before had sent, too.
    repeated: u64,
    /// The tokens of each turn.
    turns: Vec<u64>,
    before: Option<Assembled>,
}

fn main() -> Result<(), Error> {
    let turns = usize::from(Args::parse().turns);
    let settings = |mode| {
        Some(ContextSettings { rules: ContextRules::V3, mode, tokens: 5_000, recent_turns: 5 })
    };
    let whole = played(turns, None)?;
    let mut table = Table::default();
    for (name, context) in [
        ("everything", None),
        ("bounded", settings(ContextMode::Bounded)),
        ("auto", settings(ContextMode::Auto)),
    ] {
        let (counted, times) = played(turns, context)?;
        let of_turn = |at: usize| counted.turns.get(at).map_or(0.0, |tokens| *tokens as f64);
        let fewer = whole.0.tokens as f64 / counted.tokens as f64;
        let row = Row::new(format!("context::tokens/{name}"))
            .figure("tokens_a_turn", counted.tokens as f64 / turns as f64)
            .figure("turn_10", of_turn(9))
            .figure("last_turn", of_turn(turns - 1))
            .figure("cached_percent", 100.0 * counted.repeated as f64 / counted.tokens as f64)
            .figure("times_fewer", fewer);
        let is_bounded = name == "bounded";
        table.add(if is_bounded { row.at_least("times fewer", fewer, FEWER) } else { row });
        let p50 = percentile(&times, 500).as_secs_f64() * 1_000.0;
        let row = Row::new(format!("context::assemble/{name}"))
            .figure("p50_ms", p50)
            .figure("p99_ms", percentile(&times, 990).as_secs_f64() * 1_000.0);
        table.add(if context.is_some() { row.at_most("p50", p50, ASSEMBLY_MS) } else { row });
    }
    Ok(table.json()?)
}

/// Plays a session of so many turns: what it was sent, and how long the last request takes to make, sorted.
fn played(
    turns: usize,
    context: Option<ContextSettings>,
) -> Result<(Counted, Vec<Duration>), Error> {
    let profile = profile(context)?;
    let mut state = SessionState::default();
    let (mut counted, mut times) = (Counted::default(), Vec::new());
    for number in 0..turns {
        let mut turn = begun(number);
        let before = counted.tokens;
        for step in 0..2 {
            let request = assemble(&state, &profile, &turn);
            state.left_out = (request.dropped_turns > 0).then(|| LeftOut {
                model: profile.model.clone(),
                window_tokens: profile.window_tokens,
                turns: request.dropped_turns,
                context: profile.context,
            });
            counted.add(request);
            if number + 1 == turns && step == 1 {
                for _ in 0..TIMED {
                    let began = Instant::now();
                    black_box(assemble(&state, &profile, &turn));
                    times.push(began.elapsed());
                }
            }
            turn.steps.push(ended(turn.id, number, step));
        }
        counted.turns.push(counted.tokens - before);
        let stop = StopReason::EndTurn;
        turn.outcome = Some(TurnOutcome::Completed { stop });
        state.closed.push(turn);
    }
    times.sort_unstable();
    Ok((counted, times))
}

fn profile(context: Option<ContextSettings>) -> Result<Profile, Error> {
    let (name, model) = ("default".parse()?, "demo/large".parse()?);
    let tool = |name: &str| -> Result<ToolSpec, Error> {
        Ok(ToolSpec {
            name: name.parse()?,
            description: "d".repeat(200),
            input_schema: format!("{{\"type\":\"object\",\"d\":\"{}\"}}", "s".repeat(300)),
            class: EffectClass::Safe,
            risk: Risk::ReadOnly,
            capability: None,
            timeout_ms: 1_000,
            time: None,
            pin: None,
        })
    };
    let mut options = AgentOptions::new(name, model);
    options.system = "s".repeat(3_000);
    options.tools = ["time_now", "calculate", "http_fetch", "file_read"]
        .into_iter()
        .map(tool)
        .collect::<Result<_, _>>()?;
    // Whatever a conversation has fits.
    options.window_tokens = Some(u32::MAX);
    options.context = context;
    Ok(options.profile())
}

/// A text of so many bytes that no other turn has.
fn words(number: usize, bytes: usize) -> String {
    let text = format!("turn {number}: what is new? ");
    text.chars().cycle().take(bytes).collect()
}

fn begun(number: usize) -> Turn {
    Turn {
        id: TurnId::from_u128(number as u128 + 1),
        after: AfterDeletion::default(),
        said: vec![(0, words(number, 60 + number * 37 % 400).into())],
        attached: Vec::new(),
        steers: Vec::new(),
        joined: Vec::new(),
        heard: Vec::new(),
        system: None,
        sampling: Sampling::default(),
        model: None,
        model_is_kept: false,
        offer: ClientOffer::default(),
        response_schema: None,
        metadata: Vec::new(),
        lane: None,
        trace: None,
        steps: Vec::new(),
        skills: Vec::new(),
        recalled: None,
        feedback: TurnFeedback::default(),
        nudges: Vec::new(),
        closes_upto: None,
        compaction: None,
        plan: None,
        judged: None,
        held: None,
        cancelled: false,
        more_steps: 0,
        limit_reached: None,
        clock: TurnClock::default(),
        outcome: None,
        structured: None,
        usage: Usage::default(),
        lost_attempts: 0,
    }
}

/// A call that has ended: the first one asks for a tool, the second one answers.
fn ended(turn: TurnId, number: usize, step: u32) -> Step {
    let call = CallId::derive(turn, step);
    let result = words(number, 200 + number * 91 % 2_000);
    let tool = ToolCall {
        call: CallId::derive_tool(call, 0),
        using: ToolUse {
            id: "1".to_owned(),
            name: "http_fetch".to_owned(),
            arguments: r#"{"url":"http://example.org"}"#.to_owned(),
        },
        times: 1,
        warned: false,
        overdue: false,
        late: None,
        judged: None,
        asked: None,
        approval: None,
        brought: None,
        end: Some(ToolEnd::Known { outcome: ToolOutcome::done(result) }),
        entry: None,
    };
    let content = words(number, if step == 0 { 40 } else { 500 }).into();
    let (reason, usage, blocks) = (StopReason::EndTurn, Usage::default(), None);
    Step {
        call,
        attempt: Attempt(1),
        model: None,
        estimate: None,
        route: None,
        held: None,
        spent: Spent::default(),
        begun_ms: 0,
        gave_way: None,
        end: Some(StepEnd::Done { content, stop: reason, usage, blocks }),
        tools: if step == 0 { vec![tool] } else { Vec::new() },
        refused: None,
    }
}

impl Counted {
    /// Counts a request.
    fn add(&mut self, request: Assembled) {
        let tokens = request.estimate();
        self.tokens += tokens;
        if let Some(before) = &self.before {
            let pairs = request.messages.iter().zip(&before.messages);
            let common = pairs.take_while(|(one, other)| one == other).count();
            let messages = request.messages.iter().take(common).cloned().collect();
            self.repeated += Assembled { messages, ..request.clone() }.estimate();
        }
        self.before = Some(request);
    }
}
