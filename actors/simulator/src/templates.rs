//! Plans whose steps refer to the outputs of earlier ones. A tool says something else each time that it runs for one, so that
//! no output can be taken for another (PLAN-2).

use std::collections::BTreeSet;

use clawnode_proto::{
    CallId, Kind, TurnId, codec,
    execute::{Plan, PlanStep},
    session::SessionInput,
    tool::{ToolOutcome, ToolSpec},
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use super::{Sim, SimOptions, clients::SimClient, tools::specs};

/// In how many worlds plans have references.
const LIKELY: f64 = 0.25;
/// The steps of such a plan.
const STEPS: usize = 3;

/// The tool calls of such plans.
#[derive(Debug, Default)]
pub(super) struct TemplatedCalls {
    calls: BTreeSet<CallId>,
    /// How often tools have said something for one.
    outputs: u64,
}

/// Whether plans of this world have references. From a stream of its own, so that it does not shift what happens besides;
/// hooks would change the arguments.
pub(super) fn are_in(options: &SimOptions) -> bool {
    let mut rng = ChaCha8Rng::seed_from_u64(options.seed ^ 0x7e3a_91a7_e500);
    rng.random_bool(LIKELY) && !options.hooks && options.sessions.is_none()
}

/// A plan whose later steps refer to all that was said before, also within lists, and beside what only looks like a
/// reference.
pub(super) fn plan(number: usize) -> Plan {
    let tools = specs().into_iter().cycle().skip(number).take(STEPS);
    let step = |(at, tool): (usize, ToolSpec)| {
        let template = match at {
            0 => None,
            1 => Some(json!({ "at": at, "text": "{{steps.1.output}}!" })),
            _ => Some(json!({
                "at": at,
                "text": "{{ steps.2.output }}, {{\"{{\"}}steps.2.output}} {{steps.1.output}}",
                "more": [{ "text": "{{steps.1.output}}" }],
            })),
        };
        let template = template.map(|template| template.to_string());
        let arguments = if template.is_none() { r#"{"at":0}"# } else { "" }.to_owned();
        PlanStep { tool: tool.name, arguments, goes_on: number.is_multiple_of(2), template }
    };
    Plan { about: "a pipeline".to_owned(), steps: tools.enumerate().map(step).collect() }
}

// === impl TemplatedCalls ===

impl TemplatedCalls {
    /// From the inputs of these clients.
    pub(super) fn of(clients: &[SimClient]) -> Self {
        let mut calls = BTreeSet::new();
        for input in clients.iter().map(|client| &client.input) {
            if input.kind != Kind::SESSION {
                continue;
            }
            let Ok(SessionInput::Execute(plan)) = codec::decode(&input.body) else { continue };
            if plan.steps.iter().any(|step| step.template.is_some()) {
                calls.extend(calls_of(TurnId::from(input.id)));
            }
        }
        Self { calls, outputs: 0 }
    }
}

/// The tool calls of the plan of a turn.
fn calls_of(turn: TurnId) -> impl Iterator<Item = CallId> {
    (0..).map(move |step| CallId::derive_tool(CallId::derive(turn, step), 0)).take(STEPS)
}

impl Sim {
    /// What a tool says that has run for this call.
    pub(super) fn tool_said(&mut self, call: CallId, usual: &str) -> ToolOutcome {
        let TemplatedCalls { calls, outputs } = &mut self.templates;
        if !calls.contains(&call) {
            return ToolOutcome::done(usual);
        }
        *outputs += 1;
        let said = format!("{usual} {outputs} \"{call}\" \\ {{{{steps.1.output}}}}\n\u{e9}");
        ToolOutcome::done(said)
    }
}
