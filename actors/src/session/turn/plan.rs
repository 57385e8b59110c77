//! A turn whose tool calls are planned: what takes the place of a model call, and how it ends.
//! Pure.
//!
//! Each step is one `step_planned`, which is to the fold what a model's reply with one tool call
//! is; what follows of that (rules, people, hooks, jobs, time, stops, cancellation) knows no
//! difference. No model is asked, so nothing guards against one: the plan's steps are bounded, and
//! their arguments were judged before it was accepted. It never changes. A step may have references to
//! the outputs of steps before it: they are filled in by the fold, so that rules, people and hooks see
//! what is run, and a replay fills in the same.
//!
//! Invariant
//! - PLAN-1 steps begin in the order of the plan, each once, and none before the one before it has
//!   ended in a way that the plan goes on from.

use clawnode_kernel::Violation;
use clawnode_proto::{
    Attempt, CallId, Timestamp, ToolName, TurnId,
    execute::{Plan, PlanStep, StepPlanned},
    hook::HookTrail,
    limits::{STEP_FAILURE_CHARS, TOOL_RESULT_INLINE},
    llm::{StopReason, Text, Usage},
    session::{SessionEvent, ToolDone, ToolEnd, TurnOutcome},
    tool::{ToolFailure, ToolOutcome, ToolUse},
};
use clawnode_tool::template;

use super::{
    state::{SessionState, Step, StepEnd, Turn},
    state_parts::settled_cost::Spent,
    tools::tool_calls::ToolCall,
};

/// What begins the next step of a planned turn; nothing if it has none.
pub(in crate::session) fn begin(turn: &Turn, plan: &Plan, call: CallId) -> Option<SessionEvent> {
    let step = turn.steps.len();
    plan.steps.get(step)?;
    let step = u32::try_from(step).ok()?;
    Some(StepPlanned { turn: turn.id, call, step }.into())
}

/// How a planned turn ends, if it does now: after its last step, or one that fails and must not.
pub(in crate::session) fn over(turn: &Turn, plan: &Plan) -> Option<TurnOutcome> {
    let last = turn.steps.last()?;
    let planned = plan.steps.get(turn.steps.len() - 1)?;
    if !last.is_over() {
        return None;
    }
    match last.tools.iter().find_map(ToolCall::trouble).filter(|_| !planned.goes_on) {
        Some(detail) => {
            let step = u32::try_from(turn.steps.len()).unwrap_or(u32::MAX);
            Some(TurnOutcome::StepFailed { step, tool: planned.tool.clone(), detail })
        }
        None if turn.steps.len() == plan.steps.len() => {
            Some(TurnOutcome::Completed { stop: StopReason::EndTurn })
        }
        None => None,
    }
}

/// What ends the step that is next, if what it refers to cannot be filled in. It is not run.
pub(in crate::session) fn unfilled(turn: &Turn) -> Option<SessionEvent> {
    let last = turn.steps.len().checked_sub(1)?;
    let step = turn.plan.as_ref()?.steps.get(last)?;
    let waits =
        |tool: &&ToolCall| tool.asked.is_none() && tool.end.is_none() && tool.approval.is_none();
    let tool = turn.steps.get(last)?.tools.first().filter(waits)?;
    let why = filled(turn, step).err()?;
    let outcome = Some(ToolOutcome::failed(ToolFailure::Invalid, why));
    Some(ToolDone { turn: turn.id, call: tool.call, outcome, hooks: HookTrail::default() }.into())
}

/// The arguments of a step, with the outputs of steps before it; or why one cannot be used.
fn filled(turn: &Turn, step: &PlanStep) -> Result<String, String> {
    match &step.template {
        Some(template) => template::fill(template, |number| said(turn, number)),
        None => Ok(step.arguments.clone()),
    }
}

/// The output of the step of this number, from 1, also if it failed.
fn said(turn: &Turn, number: usize) -> Result<&str, String> {
    let tool = number.checked_sub(1).and_then(|at| turn.steps.get(at)?.tools.first());
    match tool.and_then(|tool| tool.end.as_ref()) {
        // What is in a blob is not in the state, of which the arguments are a function.
        Some(ToolEnd::Known { outcome }) => outcome.content.inline().ok_or_else(|| {
            let bytes = outcome.content.bytes();
            format!(
                "the output of step {number} has {bytes} bytes, and a later step can use at most \
                 {TOOL_RESULT_INLINE}: make it shorter, or write it to a file"
            )
        }),
        Some(ToolEnd::Uncertain { .. }) => Err(format!("the outcome of step {number} is unknown")),
        None => Err(format!("step {number} has no output yet")),
    }
}

// === impl ToolCall ===

impl ToolCall {
    /// What a plan asks for. How often does not count: a plan has an end.
    fn planned(call: CallId, tool: &ToolName, arguments: String) -> Self {
        let name = tool.to_string();
        Self {
            call: CallId::derive_tool(call, 0),
            using: ToolUse { id: String::new(), name, arguments },
            times: 0,
            warned: false,
            judged: None,
            asked: None,
            approval: None,
            overdue: false,
            late: None,
            brought: None,
            end: None,
            entry: None,
        }
    }

    /// What is wrong with its end, if something is; cut beyond a length.
    fn trouble(&self) -> Option<String> {
        let text = match self.ended()? {
            ToolEnd::Known { outcome } => {
                outcome.failure?;
                match &outcome.content {
                    Text::Inline { text } => text.clone(),
                    Text::Blob { bytes, .. } => format!("({bytes} bytes)"),
                }
            }
            ToolEnd::Uncertain { detail } => {
                format!("it is unknown whether it happened: {detail}")
            }
        };
        Some(match text.char_indices().nth(STEP_FAILURE_CHARS) {
            Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
            None => text,
        })
    }
}

// === impl SessionState ===

impl SessionState {
    /// The turn of its plan, if it was given one.
    pub fn execution(&self) -> Option<&Turn> {
        self.turns().find(|turn| turn.plan.is_some())
    }

    /// Takes note that a step is next (PLAN-1).
    pub(in crate::session) fn planned(
        &mut self,
        planned: &StepPlanned,
        now: Timestamp,
    ) -> Result<(), Violation> {
        #[cfg(feature = "test-util")]
        let other = self.planned_before(planned.turn);
        let turn = self.planned_turn(planned.turn)?;
        let done = turn.steps.len();
        let wrong = |why: &str| {
            let step = planned.step.saturating_add(1);
            Err(Violation(format!("step {step} of the plan of `{}` {why} (PLAN-1)", planned.turn)))
        };
        let Some(step) = turn.plan.as_ref().and_then(|plan| plan.steps.get(done)).cloned() else {
            return wrong("is not in it");
        };
        if done as u64 != u64::from(planned.step) || planned.call != turn.call_at(done) {
            return wrong("is not the next one");
        }
        if turn.steps.last().is_some_and(|before| !before.is_over()) {
            return wrong("begins before the previous step has ended");
        }
        if turn.plan.as_ref().is_some_and(|plan| over(turn, plan).is_some()) {
            return wrong("follows a step after which the plan does not continue");
        }
        // It ends with what is missing (`unfilled`) if it cannot be filled in.
        let arguments = filled(turn, &step);
        #[cfg(feature = "test-util")]
        let arguments = other.map_or(arguments, |other| filled(&other, &step));
        let arguments = arguments.unwrap_or_else(|_missing| step.given().to_owned());
        turn.clock.begin(now);
        let begun_ms = turn.clock.spent_ms();
        let end = StepEnd::Done {
            content: Text::from(""),
            stop: StopReason::ToolUse,
            usage: Usage::default(),
            blocks: None,
        };
        let tools = vec![ToolCall::planned(planned.call, &step.tool, arguments)];
        let attempt = Attempt(1);
        let (call, model, end) = (planned.call, None, Some(end));
        turn.steps.push(Step {
            call,
            attempt,
            model,
            estimate: None,
            route: None,
            held: None,
            spent: Spent::default(),
            begun_ms,
            gave_way: None,
            end,
            tools,
            refused: None,
        });
        Ok(())
    }

    /// A planted bug: the earlier turn whose outputs its steps get.
    #[cfg(feature = "test-util")]
    fn planned_before(&self, id: TurnId) -> Option<Turn> {
        let is_planted = clawnode_kernel::KernelBug::FillsFromAnother.is_in_folds();
        let mut before = self.closed.iter().rev().filter(|turn| turn.id != id && is_planted);
        before.find(|turn| turn.plan.is_some() && turn.steps.len() > 1).cloned()
    }

    fn planned_turn(&mut self, id: TurnId) -> Result<&mut Turn, Violation> {
        match self.open.front_mut() {
            Some(turn) if turn.id == id && turn.plan.is_some() => Ok(turn),
            Some(turn) if turn.id == id => Err(Violation(format!("`{id}` has no plan (PLAN-1)"))),
            _ => Err(Violation(format!("`{id}` is not the running turn (SES-2)"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use clawnode_cluster::Record;
    use clawnode_proto::{
        Digest,
        event::decode_record,
        policy::{Decided, Decision},
        session::{ApprovalDecided, SessionInput, ToolResult, UserMessage},
    };
    use proptest::prelude::*;

    use super::*;
    use crate::session::{Outcome, SessionJob, played::PlayedActivation};
    use clawnode_kernel::MachineInput;

    fn step(tool: &str, at: usize, goes_on: bool) -> PlanStep {
        let (tool, arguments) = (tool.parse().unwrap(), format!(r#"{{"at":{at}}}"#));
        PlanStep { tool, arguments, goes_on, template: None }
    }

    fn with_template(tool: &str, template: &str) -> PlanStep {
        let (tool, template) = (tool.parse().unwrap(), Some(template.to_owned()));
        PlanStep { tool, arguments: String::new(), goes_on: false, template }
    }

    fn execute(steps: &[PlanStep]) -> PlayedActivation {
        let mut run = PlayedActivation::new(&[], Vec::new());
        let plan = Plan { about: "a plan".to_owned(), steps: steps.to_vec() };
        run.hears("plan", &SessionInput::Execute(plan));
        run
    }

    /// Ends the tool call that was begun last, wherever it runs; its arguments.
    fn ends(run: &mut PlayedActivation, outcome: ToolOutcome) -> String {
        let end = ToolEnd::Known { outcome };
        match run.started.pop() {
            Some((key, SessionJob::Tool(job))) => {
                run.feed(MachineInput::Ended(key, Outcome::Tool(end, HookTrail::default())));
                job.arguments
            }
            Some((_, SessionJob::Publish(publish))) => {
                let (call, nonce) = (publish.job.call, publish.job.nonce);
                let result = SessionInput::ToolResult(ToolResult { call, nonce, end });
                run.hears(&format!("result-{call}"), &result);
                publish.job.arguments
            }
            other => panic!("{other:?}"),
        }
    }

    fn done(run: &mut PlayedActivation) -> String {
        ends(run, ToolOutcome::done("done"))
    }

    fn fails(run: &mut PlayedActivation) -> String {
        ends(run, ToolOutcome::failed(ToolFailure::Failed, "it broke"))
    }

    fn outcome(run: &PlayedActivation) -> TurnOutcome {
        run.machine.settled().unwrap().state.execution().unwrap().outcome.clone().unwrap()
    }

    fn completed() -> TurnOutcome {
        TurnOutcome::Completed { stop: StopReason::EndTurn }
    }

    fn failed(step: u32, tool: &str, detail: &str) -> TurnOutcome {
        let (tool, detail) = (tool.parse().unwrap(), detail.to_owned());
        TurnOutcome::StepFailed { step, tool, detail }
    }

    #[test]
    fn plan_1_steps_follow_each_other_in_one_append_each_and_no_model_is_asked() {
        let mut run = execute(&[step("look", 1, false), step("far", 2, false)]);
        assert_eq!(done(&mut run), r#"{"at":1}"#);
        assert_eq!(done(&mut run), r#"{"at":2}"#);
        assert_eq!(outcome(&run), completed());
        assert_eq!(
            run.appends[..3],
            [
                vec!["configured", "step_planned", "tool_asked"],
                vec!["tool_done", "step_planned", "tool_asked"],
                vec!["tool_done", "turn_done", "settled"],
            ]
        );
        // A model that is asked later reads what was done.
        run.says("what was that?");
        let Some((_, SessionJob::Call(call))) = run.started.pop() else { panic!("no call") };
        assert_eq!(call.request.messages.len(), 6, "{:?}", call.request.messages);
    }

    #[test]
    fn the_first_step_that_fails_ends_the_plan_unless_it_may_fail() {
        let mut run =
            execute(&[step("look", 1, true), step("look", 2, false), step("look", 3, false)]);
        fails(&mut run);
        fails(&mut run);
        assert_eq!(outcome(&run), failed(2, "look", "it broke"));
        let begun = run.appends.concat().iter().filter(|kind| **kind == "step_planned").count();
        assert_eq!(begun, 2);

        let mut run = execute(&[step("look", 1, true)]);
        fails(&mut run);
        assert_eq!(outcome(&run), completed());
    }

    #[test]
    fn a_step_that_cannot_run_fails_without_being_run() {
        let steps = [step("gone", 1, true), step("look", 2, true), step("gone", 3, false)];
        let mut run = execute(&steps);
        done(&mut run);
        assert!(matches!(
            outcome(&run),
            TurnOutcome::StepFailed { step: 3, detail, .. } if detail.contains("no tool `gone`")
        ));
        assert_eq!(run.appends.concat().iter().filter(|kind| **kind == "tool_asked").count(), 1);
    }

    fn decide(run: &mut PlayedActivation, decision: Decision) {
        let Some((_, SessionJob::Ask(ask))) = run.started.pop() else {
            panic!("no person is asked")
        };
        let (call, action) = (ask.approval.action.call, ask.approval.digest);
        let decided = Decided { decision, by: "ada".to_owned(), reason: None };
        let decided = ApprovalDecided { call, action, decided };
        run.hears(&format!("decision-{call}"), &SessionInput::ApprovalDecided(decided));
    }

    #[test]
    fn a_person_is_asked_in_the_middle_of_a_plan() {
        let steps = [step("look", 1, false), step("write", 2, false), step("look", 3, false)];
        let mut run = execute(&steps);
        done(&mut run);
        assert_eq!(run.appends.last().unwrap(), &["tool_done", "step_planned", "approval_asked"]);
        decide(&mut run, Decision::Approve);
        assert_eq!(done(&mut run), r#"{"at":2}"#);
        assert_eq!(done(&mut run), r#"{"at":3}"#);
        assert_eq!(outcome(&run), completed());

        let mut run = execute(&steps);
        done(&mut run);
        decide(&mut run, Decision::Deny);
        assert_eq!(outcome(&run), failed(2, "write", "a person denied the call"));
    }

    #[test]
    fn a_plan_that_is_cancelled_begins_nothing_more() {
        let mut run = execute(&[step("far", 1, false), step("look", 2, false)]);
        let turn = run.machine.settled().unwrap().state.execution().unwrap().id;
        run.hears("cancel", &SessionInput::Cancel { turn });
        assert_eq!(outcome(&run), TurnOutcome::Cancelled);
        // What came too late changes nothing.
        run.started.retain(|(_, job)| matches!(job, SessionJob::Publish(_)));
        done(&mut run);
        assert_eq!(outcome(&run), TurnOutcome::Cancelled);
        let asked = run.appends.concat().iter().filter(|kind| **kind == "tool_asked").count();
        assert_eq!(asked, 1);
    }

    #[test]
    fn what_a_person_approves_has_the_outputs_in_it_and_a_crash_fills_in_the_same() {
        let refers = r#"{"at":1,"text":"{{steps.1.output}}, {{steps.2.output}}"}"#;
        let steps = [
            step("look", 1, true),
            step("far", 2, false),
            with_template("write", refers),
            with_template("look", r#"{"at":2,"text":"{{steps.3.output}}!"}"#),
        ];
        let mut run = execute(&steps);
        fails(&mut run);
        ends(&mut run, ToolOutcome::done(r#"{{steps.9.output}} "x""#));
        assert!(run.appends.last().unwrap().contains(&"approval_asked"), "{:?}", run.appends);
        run = PlayedActivation::new(&[], run.journal.clone());
        let Some((_, SessionJob::Ask(ask))) = run.started.last() else {
            panic!("no person is asked")
        };
        let wanted = r#"{"at":1,"text":"it broke, {{steps.9.output}} \"x\""}"#;
        assert_eq!(ask.approval.action.arguments, wanted);
        decide(&mut run, Decision::Approve);
        assert_eq!(done(&mut run), wanted);
        assert_eq!(done(&mut run), r#"{"at":2,"text":"done!"}"#);
        assert_eq!(outcome(&run), completed());
    }

    #[test]
    fn a_step_whose_references_cannot_be_filled_in_is_not_run() {
        let long = "x".repeat(TOOL_RESULT_INLINE + 1);
        let blob = Text::Blob { digest: Digest::of(long.as_bytes()), bytes: long.len() as u64 };
        let mut run = execute(&[
            step("look", 1, false),
            with_template("write", r#"{"at":1,"text":"{{steps.1.output}}"}"#),
            step("look", 3, false),
        ]);
        ends(&mut run, ToolOutcome::done(blob));
        let TurnOutcome::StepFailed { step: 2, detail, .. } = outcome(&run) else {
            panic!("{:?}", outcome(&run))
        };
        assert!(detail.contains("at most 8192"), "{detail}");
        assert!(!run.appends.concat().contains(&"approval_asked"));
        // What no longer fits the tool is a failure of the step, too.
        let mut run = execute(&[
            step("look", 1, false),
            with_template("look", r#"{"at":"{{steps.1.output}}"}"#),
        ]);
        done(&mut run);
        assert!(matches!(outcome(&run), TurnOutcome::StepFailed { step: 2, .. }));
        assert_eq!(run.appends.concat().iter().filter(|kind| **kind == "tool_asked").count(), 1);
    }

    /// What guards against models that go round in circles is nothing to a plan.
    #[test]
    fn a_plan_may_do_the_same_over_and_over() {
        let mut run = execute(&vec![step("look", 1, false); 64]);
        for _ in 0..64 {
            done(&mut run);
        }
        assert_eq!(outcome(&run), completed());
        assert!(!run.appends.concat().contains(&"step_limit_reached"));
    }

    #[test]
    fn nothing_joins_a_plan() {
        let mut run = execute(&[step("look", 1, false)]);
        run.hears("wait", &SessionInput::Steer(UserMessage::text("wait")));
        done(&mut run);
        let state = &run.machine.settled().unwrap().state;
        assert_eq!(state.execution().unwrap().said.len(), 1);
        assert_eq!(state.open.len(), 1, "it is a turn of its own");
    }

    /// PLAN-1: a journal that says otherwise is refused.
    #[test]
    fn plan_1_the_fold_refuses_steps_out_of_order() {
        let run = execute(&[step("look", 1, false), step("look", 2, false)]);
        let state = run.machine.settled().unwrap().state.clone();
        let turn = state.execution().unwrap().id;
        let refused = |mut state: SessionState, turn, step| {
            let planned = StepPlanned { turn, call: CallId::derive(turn, step), step };
            state.planned(&planned, Timestamp(2)).unwrap_err().to_string()
        };
        assert!(refused(state.clone(), turn, 1).contains("before the previous step"));
        assert!(refused(state.clone(), turn, 0).contains("is not the next one"));
        assert!(refused(state.clone(), TurnId::from_u128(9), 1).contains("SES-2"));
        let mut talk = PlayedActivation::new(&[], Vec::new());
        talk.says("hello");
        let state = talk.machine.settled().unwrap().state.clone();
        let turn = state.running().unwrap().id;
        assert!(refused(state, turn, 0).contains("has no plan"));
    }

    fn asked(journal: &[Record]) -> Vec<CallId> {
        let events = journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap());
        let asked = events.filter_map(|event| match event.event::<SessionEvent>() {
            Ok(Some(SessionEvent::ToolAsked(asked))) => Some(asked.call),
            _ => None,
        });
        asked.collect()
    }

    proptest! {
        /// PLAN-1: a process that goes on from any point of the journal begins each step once, in order,
        /// and runs none again that has ended.
        #[test]
        fn plan_1_an_heir_goes_on_where_the_journal_ends(
            remote in proptest::collection::vec(any::<bool>(), 1..6),
            crashes in proptest::collection::vec(any::<bool>(), 6),
        ) {
            let steps: Vec<PlanStep> = remote
                .iter()
                .enumerate()
                .map(|(at, remote)| step(if *remote { "far" } else { "look" }, at, false))
                .collect();
            let mut run = execute(&steps);
            for (at, crash) in (0..steps.len()).zip(crashes) {
                if crash {
                    run = PlayedActivation::new(&[], run.journal.clone());
                }
                prop_assert_eq!(done(&mut run), format!(r#"{{"at":{at}}}"#));
            }
            prop_assert_eq!(outcome(&run), completed());
            let turn = run.machine.settled().unwrap().state.execution().unwrap().id;
            let call = |at: usize| {
                CallId::derive_tool(CallId::derive(turn, u32::try_from(at).unwrap()), 0)
            };
            let wanted: Vec<CallId> = (0..steps.len()).map(call).collect();
            prop_assert_eq!(asked(&run.journal), wanted);
            let over = PlayedActivation::new(&[], run.journal.clone());
            let again = over.started.iter().any(|(_, job)| {
                matches!(job, SessionJob::Tool(_) | SessionJob::Publish(_) | SessionJob::Call(_))
            });
            prop_assert!(!again);
        }
    }
}
