//! The arguments of steps that refer to outputs of earlier ones: filled in here from the plan that a client sent and what the
//! journal says of its calls.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_proto::{
    CallId, TurnId,
    execute::Plan,
    session::{SessionEvent, ToolEnd},
    tool::ToolOutcome,
};
use serde_json::{Map, Value};

use crate::{JudgeViolation, book::Checked};

/// How a template writes two braces that begin no reference, and what is in their place while references are looked for.
const BRACES: (&str, char) = (r#"{{"{{"}}"#, '\u{e000}');

/// A step with references.
#[derive(Debug)]
struct JudgedStep {
    template: String,
    /// The calls of all steps of its plan, in order.
    calls: Vec<CallId>,
}

/// All plans with references.
#[derive(Debug, Default)]
pub(super) struct FilledSteps {
    /// The calls of their steps.
    calls: BTreeSet<CallId>,
    steps: BTreeMap<CallId, JudgedStep>,
    /// Results in the journal, until it says that they count.
    brought: BTreeMap<CallId, ToolEnd>,
    /// What each call said, as the journal has it; nothing if that cannot be used.
    said: BTreeMap<CallId, Option<String>>,
    /// Steps that ran.
    ran: BTreeSet<CallId>,
}

// === impl FilledSteps ===

impl FilledSteps {
    /// A client sends this plan.
    pub(super) fn sent(&mut self, turn: TurnId, plan: &Plan) {
        if plan.steps.iter().all(|step| step.template.is_none()) {
            return;
        }
        let call = |step| CallId::derive_tool(CallId::derive(turn, step), 0);
        let calls: Vec<CallId> = (0..).map(call).take(plan.steps.len()).collect();
        for (call, step) in calls.iter().zip(&plan.steps) {
            if let Some(template) = step.template.clone() {
                self.steps.insert(*call, JudgedStep { template, calls: calls.clone() });
            }
        }
        self.calls.extend(calls);
    }

    /// A session takes a result.
    pub(super) fn brought(&mut self, call: CallId, end: &ToolEnd) {
        if self.calls.contains(&call) {
            self.brought.entry(call).or_insert_with(|| end.clone());
        }
    }

    /// What the journal of a session says.
    pub(super) fn says(&mut self, event: &SessionEvent) {
        match event {
            SessionEvent::ToolAsked(asked) => {
                self.brought.remove(&asked.call);
            }
            SessionEvent::ToolDone(done) if self.calls.contains(&done.call) => {
                let text = |outcome: &ToolOutcome| outcome.content.inline().map(str::to_owned);
                let said = match (&done.outcome, self.brought.get(&done.call)) {
                    (Some(outcome), _) | (None, Some(ToolEnd::Known { outcome })) => text(outcome),
                    (None, _) => None,
                };
                self.said.insert(done.call, said);
            }
            _ => {}
        }
    }

    /// PLAN-2: a call runs with these arguments.
    pub(super) fn runs(&mut self, call: CallId, arguments: &str) -> Checked {
        if self.steps.contains_key(&call) {
            self.ran.insert(call);
        }
        self.has_outputs(call, arguments)
    }

    /// How many steps ran that have references.
    pub(super) fn ran(&self) -> usize {
        self.ran.len()
    }

    /// PLAN-2: people are asked about a call with these arguments, or it runs.
    pub(super) fn has_outputs(&self, call: CallId, arguments: &str) -> Checked {
        let Some(step) = self.steps.get(&call) else { return Ok(()) };
        let output = |number: usize| {
            let call = step.calls.get(number.checked_sub(1)?)?;
            self.said.get(call)?.as_deref()
        };
        let template = serde_json::from_str::<Value>(&step.template).ok();
        let expected = template.and_then(|template| filled(&template, &output));
        let found = serde_json::from_str::<Value>(arguments).ok();
        if expected.is_some() && expected == found {
            return Ok(());
        }
        let template = &step.template;
        let text = format!("`{call}` has {arguments} in place of {expected:?} ({template})");
        Err(JudgeViolation::new("PLAN-2", text))
    }
}

/// A value with outputs in the place of references; nothing if one of them is not there.
fn filled<'a>(value: &Value, output: &impl Fn(usize) -> Option<&'a str>) -> Option<Value> {
    Some(match value {
        Value::String(text) => Value::String(text_filled(text, output)?),
        Value::Array(values) => {
            let values: Option<Vec<Value>> =
                values.iter().map(|value| filled(value, output)).collect();
            Value::Array(values?)
        }
        Value::Object(fields) => {
            let fields: Option<Map<String, Value>> = fields
                .iter()
                .map(|(name, value)| Some((name.clone(), filled(value, output)?)))
                .collect();
            Value::Object(fields?)
        }
        other => other.clone(),
    })
}

fn text_filled<'a>(text: &str, output: &impl Fn(usize) -> Option<&'a str>) -> Option<String> {
    let (written, mark) = BRACES;
    let literal = |piece: &str| piece.replace(mark, "{{");
    let text = text.replace(written, &mark.to_string());
    let mut pieces = text.split("{{");
    let mut whole = literal(pieces.next()?);
    for piece in pieces {
        let (reference, after) = piece.split_once("}}")?;
        let number = reference.trim().strip_prefix("steps.")?.strip_suffix(".output")?;
        whole.push_str(output(number.parse().ok()?)?);
        whole.push_str(&literal(after));
    }
    Some(whole)
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{execute::PlanStep, hook::HookTrail, session::ToolDone};

    use super::*;

    const TURN: TurnId = TurnId::from_u128(7);

    fn call(step: u32) -> CallId {
        CallId::derive_tool(CallId::derive(TURN, step), 0)
    }

    /// A plan of three steps, whose first one said something that looks like a reference.
    fn plan() -> FilledSteps {
        let step = |template: Option<&str>| PlanStep {
            tool: "look".parse().unwrap(),
            arguments: String::new(),
            goes_on: false,
            template: template.map(str::to_owned),
        };
        let second = r#"{"a":[{"b":"{{\"{{\"}}x}} {{ steps.1.output }}!"}],"c":1}"#;
        let third = r#"{"a":"{{steps.2.output}}"}"#;
        let mut steps = FilledSteps::default();
        let about = "a plan".to_owned();
        let all = vec![step(None), step(Some(second)), step(Some(third))];
        steps.sent(TURN, &Plan { about, steps: all });
        steps.says(&done(0, Some("{{steps.2.output}} \"q\"")));
        steps
    }

    fn done(step: u32, said: Option<&str>) -> SessionEvent {
        let outcome = said.map(ToolOutcome::done);
        ToolDone { turn: TURN, call: call(step), outcome, hooks: HookTrail::default() }.into()
    }

    #[test]
    fn plan_2_arguments_have_what_the_journal_has() {
        let mut steps = plan();
        let right = r#"{"a":[{"b":"{{x}} {{steps.2.output}} \"q\"!"}],"c":1}"#;
        steps.runs(call(1), right).unwrap();
        assert_eq!(steps.ran(), 1);
        for wrong in [r#"{"a":[{"b":"{{x}} other!"}],"c":1}"#, "{}", ""] {
            let violation = steps.runs(call(1), wrong).unwrap_err();
            assert_eq!(violation.name, "PLAN-2", "{wrong}");
        }
    }

    #[test]
    fn plan_2_no_step_runs_before_what_it_refers_to() {
        let mut steps = plan();
        assert!(steps.runs(call(2), r#"{"a":""}"#).is_err());
        // The first result counts.
        let known = |text: &str| ToolEnd::Known { outcome: ToolOutcome::done(text) };
        steps.brought(call(1), &known("first"));
        steps.brought(call(1), &known("second"));
        steps.says(&done(1, None));
        steps.runs(call(2), r#"{"a":"first"}"#).unwrap();
        steps.runs(call(0), "anything").unwrap();
    }
}
