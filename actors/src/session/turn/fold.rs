//! The session's own events, taken into its state.

use clawnode_proto::{
    Attempt, CallId, Head, Timestamp, TurnId,
    budget::BudgetHeld,
    session::{ModelBegun, Profile, SessionEvent, Settled, ToolEnd, TurnOutcome},
    tool::{Risk, ToolSpec, ToolUse},
};

use super::{
    context::dropping::LeftOut,
    context::measured_tokens::Measured,
    model_call::reservation_size::{asks_hooks, begins_alike},
    state::{LimitReached, SessionState, Step, StepEnd},
    state_parts::settled_cost::{AttemptBill, HeldAttempt, MeasuredPrefix, Spent},
    tools::approval::ApprovalState,
    tools::memory_tool_calls::is_of_memory,
    tools::tool_calls::{BegunToolCall, ToolCall},
};
use clawnode_kernel::{ShrinkToFit, Violation};

impl SessionState {
    /// Takes one of the session's own events.
    pub(in crate::session) fn fold(
        &mut self,
        head: &Head,
        event: &SessionEvent,
    ) -> Result<(), Violation> {
        self.see(head.ts);
        self.fold_event(head, event)?;
        self.see(head.ts);
        Ok(())
    }

    fn fold_event(&mut self, head: &Head, event: &SessionEvent) -> Result<(), Violation> {
        match event {
            SessionEvent::BegunAgain(again) => self.begun_again(*again),
            SessionEvent::Configured(profile) => {
                self.configured(profile);
                Ok(())
            }
            SessionEvent::SkillsActivated(activated) => self.activated(activated),
            SessionEvent::Recalled(recalled) => self.recalled(recalled),
            SessionEvent::ModelBegun(begun) => self.model_begun(begun, head.ts),
            SessionEvent::ModelHooked(hooked) => match self.open.front_mut() {
                Some(turn) if turn.id == hooked.turn => turn.hooked(hooked),
                _ => Err(Violation(format!("`{}` is not the running turn (SES-2)", hooked.turn))),
            },
            SessionEvent::ModelDone(done) => {
                let end = StepEnd::Done {
                    content: done.content.clone(),
                    stop: done.stop.clone(),
                    usage: done.usage,
                    blocks: done.blocks.clone(),
                };
                self.ended(done.call, done.attempt, end)?;
                self.wanted(done.call, &done.tool_uses);
                Ok(())
            }
            SessionEvent::ModelFailed(failed) => {
                let end = StepEnd::Failed {
                    failure: failed.failure.clone(),
                    partial: failed.partial.clone(),
                    usage: failed.usage,
                };
                self.ended(failed.call, failed.attempt, end)
            }
            SessionEvent::CompactionBegun(begun) => self.compaction_begun(begun),
            SessionEvent::Compacted(compacted) => self.compacted(compacted),
            SessionEvent::CompactionFailed(failed) => self.compaction_failed(failed),
            SessionEvent::BudgetHeld(reserved) => self.held(reserved),
            SessionEvent::ModelGaveWay(gave_way) => self.gave_way(gave_way, head.ts),
            SessionEvent::StepLimitReached(reached) => {
                let (limit, at) = (reached.limit, head.ts);
                match self.open.front_mut() {
                    Some(turn) if turn.id == reached.turn => {
                        turn.limit_reached = Some(LimitReached { limit, at, overdue: false });
                        Ok(())
                    }
                    _ => Err(Violation(format!("`{}` is not the running turn", reached.turn))),
                }
            }
            SessionEvent::StepPlanned(planned) => self.planned(planned, head.ts),
            SessionEvent::LedgerEntry(entry) => self.written(head, entry),
            event @ (SessionEvent::ToolHooked(_)
            | SessionEvent::ApprovalAsked(_)
            | SessionEvent::ApprovalGiven(_)
            | SessionEvent::ToolAsked(_)
            | SessionEvent::ToolDone(_)
            | SessionEvent::ToolUncertain(_)) => self.fold_tool(head, event),
            SessionEvent::ReplyRefused(refused) => self.refused(refused),
            // A pointer for readers; the content is the call's.
            SessionEvent::Reply(reply) => {
                if let Some(turn) = self.open.front_mut().filter(|turn| turn.id == reply.turn) {
                    turn.structured.clone_from(&reply.structured);
                }
                Ok(())
            }
            SessionEvent::TurnDone(done) => self.close(done.turn, &done.outcome),
            SessionEvent::Settled(settled) => self.settled(settled),
            SessionEvent::FeedbackGiven(given) => self.feedback_given(given),
            SessionEvent::ReflectionBegun(begun) => self.reflection_begun(begun),
            SessionEvent::Reflected(done) => self.reflected(head, done),
            SessionEvent::ReflectionFailed(failed) => self.reflection_failed(head, failed),
        }
    }

    fn configured(&mut self, profile: &Profile) {
        if !self.profile.as_ref().is_some_and(|before| begins_alike(before, profile)) {
            self.prefix = None;
        }
        self.profile = Some(profile.clone());
        // What was judged was judged by others.
        if let Some(turn) = self.open.front_mut() {
            turn.judged = None;
        }
    }

    fn model_begun(&mut self, begun: &ModelBegun, now: Timestamp) -> Result<(), Violation> {
        if let Some(turn) = self.open.front_mut().filter(|turn| turn.id == begun.turn)
            && turn.closes_upto != begun.closes_upto
        {
            turn.closes_upto = begun.closes_upto;
            // Requests do not begin any more with what a provider counted.
            self.prefix = None;
        }
        let held = self.reserved(begun)?;
        self.begun(begun.turn, begun.call, begun.attempt, now)?;
        let running = self.open.front_mut().and_then(|turn| turn.steps.last_mut());
        if let Some(step) = running {
            step.held = held;
            step.estimate = begun.estimate;
            step.route = begun.route.as_ref().and_then(|route| route.row);
        }
        let cut = self.profile.as_ref().filter(|_| begun.dropped_turns > 0);
        self.left_out = cut.map(|cut| LeftOut::of(cut, begun.dropped_turns));
        Ok(())
    }

    /// Something is reserved for the attempt that begins with the next event.
    fn held(&mut self, held: &BudgetHeld) -> Result<(), Violation> {
        if self.reflections.takes(held) {
            return Ok(());
        }
        let Some(turn) = self.open.front_mut() else {
            return Err(Violation(format!("no turn runs that `{}` is of", held.call)));
        };
        turn.held = Some(Box::new(held.clone()));
        Ok(())
    }

    /// The turn is closed; what it used is known.
    fn settled(&mut self, settled: &Settled) -> Result<(), Violation> {
        self.usage = self.usage.plus(settled.usage);
        let turn = self
            .closed
            .iter_mut()
            .rev()
            .find(|turn| turn.id == settled.turn)
            .ok_or_else(|| Violation(format!("`{}` has not ended", settled.turn)))?;
        turn.usage = settled.usage;
        turn.lost_attempts = settled.lost_attempts;
        self.spent = self.spent.plus(turn.spending());
        self.reflects_on(settled.turn);
        self.prune();
        Ok(())
    }

    /// Takes one of those about tools.
    fn fold_tool(&mut self, head: &Head, event: &SessionEvent) -> Result<(), Violation> {
        match event {
            SessionEvent::ToolHooked(hooked) => self.waiting_tool(hooked.call)?.hooked(hooked),
            SessionEvent::ApprovalAsked(asked) => {
                let profile = self.profile.clone();
                let wait = profile.as_ref().map_or(0, |profile| profile.policy.approval_wait_ms);
                let tool = self.waiting_tool(asked.call)?;
                let spec = profile.as_ref().and_then(|profile| profile.tool(&tool.using.name));
                let risk = spec.map_or(Risk::Admin, |spec| spec.risk);
                if tool.asked.is_some() || tool.approval.is_some() {
                    return Err(Violation(format!(
                        "a person is asked late about `{}`",
                        asked.call
                    )));
                }
                tool.may_begin(profile.as_ref())?;
                tool.approval = Some(ApprovalState::asked(asked, risk, head.ts, wait));
                Ok(())
            }
            SessionEvent::ApprovalGiven(given) => self.waiting_tool(given.call)?.given(given),
            SessionEvent::ToolAsked(asked) => {
                let profile = self.profile.as_ref();
                let spec = profile.and_then(|profile| profile.tool(asked.tool.as_str()));
                let capability = spec.and_then(|spec| spec.capability.clone());
                let (time, teaches) = (spec.map(ToolSpec::time), spec.is_some_and(is_of_memory));
                let left = self.running().zip(profile);
                let left = left
                    .map(|(turn, left_turn)| turn.left(left_turn.time, left_turn.agent.as_str()));
                let profile = self.profile.take();
                let tool = self.waiting_tool(asked.call);
                let may = tool.and_then(|tool| tool.may_begin(profile.as_ref()));
                self.profile = profile;
                may?;
                let tool = self.waiting_tool(asked.call)?;
                let limit = time.zip(left);
                let limit =
                    limit.map(|(time, left)| time.limit(time.asked_s(tool.arguments()), left));
                if tool.asked.is_some() {
                    return Err(Violation(format!("`{}` is begun twice (I3)", asked.call)));
                }
                if tool.approval.as_ref().is_some_and(|approval| !approval.is_approved()) {
                    return Err(Violation(format!("no person approved `{}` (APR-1)", asked.call)));
                }
                let by_client = asked.by_client;
                let (nonce, at) = (head.eid, head.ts);
                let event = teaches.then_some(head.n.0);
                tool.asked = Some(BegunToolCall { nonce, at, capability, limit, by_client, event });
                Ok(())
            }
            SessionEvent::ToolDone(done) => {
                let tool = self.waiting_tool(done.call)?;
                tool.end = match (&done.outcome, tool.brought.take()) {
                    (Some(outcome), _) => Some(ToolEnd::Known { outcome: outcome.clone() }),
                    (None, Some(end @ ToolEnd::Known { .. })) => Some(end),
                    (None, _) => return Err(Violation(format!("nothing brought `{}`", done.call))),
                };
                Ok(())
            }
            SessionEvent::ToolUncertain(uncertain) => {
                let tool = self.waiting_tool(uncertain.call)?;
                tool.end = match (&uncertain.detail, tool.brought.take()) {
                    (Some(detail), _) => Some(ToolEnd::Uncertain { detail: detail.clone() }),
                    (None, Some(end @ ToolEnd::Uncertain { .. })) => Some(end),
                    _ => return Err(Violation(format!("nothing brought `{}`", uncertain.call))),
                };
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn begun(
        &mut self,
        turn: TurnId,
        call: CallId,
        attempt: Attempt,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let running = match self.open.front_mut() {
            Some(running) if running.id == turn => running,
            _ => return Err(Violation(format!("`{turn}` is not the running turn (SES-2)"))),
        };
        if running.plan.is_some() {
            return Err(Violation(format!(
                "a model is asked in `{turn}`, which is planned (PLAN-1)"
            )));
        }
        running.may_begin(self.profile.as_ref(), call)?;
        let model = self.profile.as_ref().map(|profile| profile.model.clone());
        match running.steps.iter_mut().find(|step| step.call == call) {
            Some(step) if step.end.is_some() => {
                Err(Violation(format!("`{call}` has ended and was begun again (I3, SES-1)")))
            }
            Some(step) if attempt != step.attempt.next() => Err(Violation(format!(
                "attempt {attempt} at `{call}` follows attempt {} (SES-1)",
                step.attempt
            ))),
            Some(step) => {
                step.may_go_on()?;
                // The end of the one before is not known.
                let lost = step.held.take().map(|held| held.most());
                step.spent = step.spent.plus(lost.unwrap_or_default());
                (step.attempt, step.model) = (attempt, model);
                Ok(())
            }
            None if attempt != Attempt(1) => {
                Err(Violation(format!("`{call}` begins with attempt {attempt} (SES-1)")))
            }
            None => {
                let index = u32::try_from(running.steps.len()).unwrap_or(u32::MAX);
                let tools = self.profile.as_ref().map_or(&[][..], |profile| &profile.tools);
                if running.nudge(tools).is_some() {
                    running.nudges.push(index);
                }
                running.hear_steers(index);
                running.clock.begin(now);
                let begun_ms = running.clock.spent_ms();
                let (end, tools) = (None, Vec::new());
                running.steps.push(Step {
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
        }
    }

    fn ended(&mut self, call: CallId, attempt: Attempt, end: StepEnd) -> Result<(), Violation> {
        let turn = self.running().map_or(TurnId::from_u128(0), |turn| turn.id);
        let step = self
            .open
            .front_mut()
            .and_then(|turn| turn.steps.iter_mut().find(|step| step.call == call))
            .ok_or_else(|| Violation(format!("`{call}` was not begun (I3, SES-1)")))?;
        if step.end.is_some() {
            return Err(Violation(format!("`{call}` has two outcomes (I3, SES-1)")));
        }
        if step.attempt != attempt {
            return Err(Violation(format!(
                "outcome of attempt {attempt} at `{call}`, but attempt {} is under way (SES-1)",
                step.attempt
            )));
        }
        if step.has_given_way(attempt) {
            return Err(Violation(format!(
                "outcome of attempt {attempt} at `{call}`, which gave way (GIVE-1)"
            )));
        }
        let (estimate, held) = (step.estimate.take(), step.held.take());
        if let Some(held) = &held {
            let (usage, failure) = match &end {
                StepEnd::Done { usage, .. } => (usage, None),
                StepEnd::Failed { usage, failure, .. } => (usage, Some(failure)),
            };
            let bill = AttemptBill::of(usage, failure);
            step.spent = step.spent.plus(held.spent(bill, usage));
        }
        if let (StepEnd::Done { usage, .. }, Some(model)) = (&end, &step.model) {
            // An estimate measures nothing.
            let reported = if usage.estimated { 0 } else { usage.input_tokens };
            let measured = estimate.and_then(|estimate| Measured::of(model, estimate, reported));
            let counted = measured.as_ref().map_or(0, |measured| measured.reported).max(reported);
            self.measured = measured.or_else(|| self.measured.take());
            let hooks = self.profile.as_ref().is_some_and(asks_hooks);
            if let Some(held) = held.filter(|_| usage.input_tokens > 0 && !hooks) {
                let HeldAttempt { messages, dropped_turns, .. } = *held;
                let (model, tokens) = (model.clone(), counted);
                self.prefix = Some(MeasuredPrefix { model, turn, messages, dropped_turns, tokens });
            }
        }
        step.end = Some(end);
        Ok(())
    }

    /// What the attempt has reserved that begins, if a limit holds.
    fn reserved(&mut self, begun: &ModelBegun) -> Result<Option<Box<HeldAttempt>>, Violation> {
        let turn = self.open.front_mut();
        let Some((turn, held)) = turn.and_then(|turn| turn.held.take().map(|held| (turn, held)))
        else {
            return Ok(None);
        };
        if (held.call, held.attempt) != (begun.call, begun.attempt) {
            let (call, other) = (begun.call, held.call);
            return Err(Violation(format!(
                "`{call}` begins, and what is reserved is for attempt {} at `{other}` (BUD-1)",
                held.attempt
            )));
        }
        let tools = self.profile.as_ref().map_or(&[][..], |profile| &profile.tools);
        let added = turn.joining().len() + usize::from(turn.nudge(tools).is_some());
        let messages = turn.messages_running().len() + added;
        Ok(Some(Box::new(HeldAttempt::of(&held, messages, begun.dropped_turns))))
    }

    /// Takes note of the tools that a model's reply asks for.
    fn wanted(&mut self, call: CallId, uses: &[ToolUse]) {
        let warn = self.profile.as_ref().map_or(u32::MAX, |profile| profile.loop_guard.warn);
        let Some(turn) = self.open.front_mut() else { return };
        let mut digests: Vec<_> = turn
            .steps
            .iter()
            .flat_map(|step| &step.tools)
            .map(|tool| tool.using.digest())
            .collect();
        let Some(step) = turn.steps.iter_mut().find(|step| step.call == call) else { return };
        for (index, using) in uses.iter().enumerate() {
            let digest = using.digest();
            digests.push(digest);
            let times = digests.iter().filter(|one| **one == digest).count();
            let times = u32::try_from(times).unwrap_or(u32::MAX);
            step.tools.push(ToolCall {
                call: CallId::derive_tool(call, u32::try_from(index).unwrap_or(u32::MAX)),
                using: using.clone(),
                times,
                warned: times >= warn,
                overdue: false,
                late: None,
                judged: None,
                asked: None,
                approval: None,
                brought: None,
                end: None,
                entry: None,
            });
        }
    }

    /// A tool call of the running turn that has no end.
    pub(super) fn waiting_tool(&mut self, call: CallId) -> Result<&mut ToolCall, Violation> {
        let tools = self.open.front_mut().map(|turn| &mut turn.steps);
        let tool = tools
            .into_iter()
            .flatten()
            .flat_map(|step| &mut step.tools)
            .find(|tool| tool.call == call)
            .ok_or_else(|| Violation(format!("no model asked for `{call}` (I3)")))?;
        if tool.end.is_some() {
            return Err(Violation(format!("`{call}` has two outcomes (I3)")));
        }
        Ok(tool)
    }

    fn close(&mut self, id: TurnId, outcome: &TurnOutcome) -> Result<(), Violation> {
        let at = self.open.iter().position(|turn| turn.id == id);
        let Some(mut turn) = at.and_then(|at| self.open.remove(at)) else {
            return Err(Violation(format!("`{id}` is not open (SES-2)")));
        };
        if at != Some(0) && !turn.cancelled {
            return Err(Violation(format!("`{id}` ends before the turns before it (SES-2)")));
        }
        turn.outcome = Some(outcome.clone());
        self.begin_late_steers(&mut turn);
        turn.judged = None;
        turn.forget_skills();
        turn.forget_recalled();
        turn.said.slim();
        turn.attached.slim();
        turn.steers.slim();
        turn.joined.slim();
        turn.heard.slim();
        turn.steps.slim();
        self.unemitted.push(turn.id);
        self.closed.push(turn);
        Ok(())
    }
}

/// What no owner writes is refused: a journal that breaks a rule shows a defect, and is not folded into
/// a state that looks right.
#[cfg(test)]
mod tests {
    use clawnode_cluster::Record;
    use clawnode_proto::{
        event::decode_record,
        hook::HookTrail,
        llm::{StopReason, Usage},
        session::{ToolDone, ToolUncertain},
        tool::ToolOutcome,
    };

    use super::*;
    use crate::session::played::PlayedActivation;

    const NOW: Timestamp = Timestamp(1);

    fn state(run: &PlayedActivation) -> SessionState {
        run.machine.settled().unwrap().state.clone()
    }

    fn head(run: &PlayedActivation) -> Head {
        let Record { bytes, .. } = run.journal.last().unwrap();
        decode_record(bytes).unwrap().pop().unwrap().head
    }

    /// A session whose model was asked once; with that call, of its running turn.
    fn asked() -> (PlayedActivation, TurnId, CallId) {
        let mut run = PlayedActivation::new(&[], Vec::new());
        run.says("hi");
        let state = state(&run);
        let turn = state.running().unwrap();
        let (turn, call) = (turn.id, turn.steps[0].call);
        (run, turn, call)
    }

    /// The same, whose model wants a tool that waits for its result; with that call of a tool.
    fn waits_for_a_tool() -> (PlayedActivation, TurnId, CallId) {
        let (mut run, turn, _) = asked();
        run.replies(&[("far", r#"{"at":1}"#)]);
        let call = state(&run).running().unwrap().steps[0].tools[0].call;
        (run, turn, call)
    }

    #[test]
    fn a_call_begins_in_the_running_turn_and_its_attempts_count_up() {
        let (run, turn, call) = asked();
        let other = TurnId::from_u128(9);
        for (turn, attempt, good) in
            [(turn, 2, true), (turn, 1, false), (turn, 3, false), (other, 2, false)]
        {
            let begun = state(&run).begun(turn, call, Attempt(attempt), NOW);
            assert_eq!(begun.is_ok(), good, "{turn} {attempt}");
        }
        let mut ended = state(&run);
        let end = StepEnd::Done {
            content: "so".into(),
            stop: StopReason::EndTurn,
            usage: Usage::default(),
            blocks: None,
        };
        ended.open.front_mut().unwrap().steps[0].end = Some(end);
        assert!(ended.begun(turn, call, Attempt(2), NOW).is_err(), "it has ended (I3)");
    }

    #[test]
    fn the_first_attempt_at_a_call_is_1() {
        let (mut state, turn, call) = {
            let (run, turn, call) = asked();
            (state(&run), turn, call)
        };
        state.open.front_mut().unwrap().steps.clear();
        assert!(state.clone().begun(turn, call, Attempt(2), NOW).is_err());
        state.begun(turn, call, Attempt(1), NOW).unwrap();
    }

    #[test]
    fn an_uncertain_end_is_what_its_event_says_or_what_an_input_brought() {
        let (run, turn, call) = waits_for_a_tool();
        let detail = Some("its node died".to_owned());
        let brought = || Some(ToolEnd::Uncertain { detail: "the node is lost".to_owned() });
        for (says, brought, expected) in [
            (detail.clone(), None, Some("its node died")),
            (None, brought(), Some("the node is lost")),
            (None, None, None),
            (None, Some(ToolEnd::Known { outcome: ToolOutcome::done("1") }), None),
        ] {
            let mut state = state(&run);
            state.waiting_tool(call).unwrap().brought = brought;
            let event = SessionEvent::ToolUncertain(ToolUncertain { turn, call, detail: says });
            let folded = state.fold_tool(&head(&run), &event);
            assert_eq!(folded.is_ok(), expected.is_some());
            let end = &state.running().unwrap().steps[0].tools[0].end;
            let told = match end {
                Some(ToolEnd::Uncertain { detail }) => Some(detail.as_str()),
                _ => None,
            };
            assert_eq!(told, expected);
        }
        let mut state = state(&run);
        let outcome = Some(ToolOutcome::done("1"));
        let done =
            SessionEvent::ToolDone(ToolDone { turn, call, outcome, hooks: HookTrail::default() });
        state.fold_tool(&head(&run), &done).unwrap();
        assert!(state.fold_tool(&head(&run), &done).is_err(), "two outcomes (I3)");
    }

    #[test]
    fn a_person_is_asked_once_and_before_the_tool_begins() {
        let mut run = {
            let (mut run, ..) = asked();
            run.replies(&[("write", r#"{"at":1}"#)]);
            run
        };
        let asked = run
            .journal
            .iter()
            .flat_map(|record| decode_record(&record.bytes).unwrap())
            .find_map(|sealed| match sealed.event::<SessionEvent>() {
                Ok(Some(event @ SessionEvent::ApprovalAsked(_))) => Some(event),
                _ => None,
            })
            .unwrap();
        let head = head(&run);
        assert!(state(&run).fold_tool(&head, &asked).is_err(), "asked twice");
        run.started.clear();
        let mut state = state(&run);
        let turn = state.open.front_mut().unwrap();
        let tool = &mut turn.steps[0].tools[0];
        tool.approval = None;
        tool.asked = Some(BegunToolCall {
            nonce: head.eid,
            at: NOW,
            capability: None,
            limit: None,
            by_client: false,
            event: None,
        });
        assert!(state.fold_tool(&head, &asked).is_err(), "it has begun");
    }

    #[test]
    fn equal_calls_of_a_turn_are_counted() {
        let (mut run, ..) = asked();
        run.replies(&[("far", r#"{"at":1}"#), ("far", r#"{"at":2}"#), ("far", r#"{"at":1}"#)]);
        let state = state(&run);
        let tools = &state.running().unwrap().steps[0].tools;
        assert_eq!(tools.iter().map(|tool| tool.times).collect::<Vec<_>>(), [1, 1, 2]);
    }

    #[test]
    fn turns_end_in_order_unless_they_are_cancelled() {
        let (mut run, ..) = asked();
        run.says("and another");
        let mut state = state(&run);
        let second = state.open.get(1).unwrap().id;
        assert!(state.clone().close(second, &TurnOutcome::Cancelled).is_err());
        state.open.get_mut(1).unwrap().cancelled = true;
        state.close(second, &TurnOutcome::Cancelled).unwrap();
        assert_eq!(state.open.len(), 1);
    }
}
