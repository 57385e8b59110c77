//! Sessions: how their effects happen, and what the ledger knows of them: turns and calls, and when an
//! input has come to its end.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_actors::session::{Effect, EffectJob, Session, SessionState, Want};
use clawnode_kernel::MachineInput;
use clawnode_proto::{
    Attempt, CallId, Head, Incarnation, Input, InputId, Timestamp, TurnId,
    after_deletion::AfterDeletion,
    llm::FailureClass,
    session::{Profile, SessionEvent, SessionInput, TurnDone, TurnOutcome},
};

use super::{
    JudgeViolation, Sim,
    any_machine::ActivationPlace,
    book::{AnyBook as _, Book, Booked, Checked},
    clients::SimClient,
    kinds::Simulated,
    known::{KnownCall, KnownTurn},
    places::WantedPlace,
    plan::SeedPlan,
    process::{Actor, PlannedNote},
    recall::feedback,
    tools::ToolBook,
};

/// Attempts at a reflection: one more if a crash interrupts the first.
const REFLECTED_MOST: usize = 2;

/// What happened in a session.
#[derive(Debug, Default)]
pub(super) struct SessionHistory {
    pub(super) turns: BTreeMap<TurnId, KnownTurn>,
    pub(super) calls: BTreeMap<CallId, KnownCall>,
    /// The deletion that it began after.
    pub(super) after: AfterDeletion,
    /// The calls that it had made when it was deleted.
    deleted: BTreeSet<CallId>,
    /// Attempts of a journal that was damaged and deleted: begun and not yet made, each by its owner.
    pub(super) begun_before: BTreeSet<(CallId, Attempt, Incarnation)>,
    pub(super) tools: ToolBook,
    /// The summaries that took the place of turns.
    pub(super) summaries: BTreeSet<String>,
    /// Inputs that joined a turn that has ended since.
    joined: BTreeSet<TurnId>,
    /// Feedback and lessons that memories have, by the ids under which effects of turns are known.
    pub(super) sent_beside: BTreeSet<TurnId>,
    /// The turn whose call was begun last.
    last_turn: Option<TurnId>,
    /// The configuration that was journaled last.
    profile: Option<Profile>,
}

impl Simulated for Session {
    fn clients(plan: &SeedPlan, _: u64) -> Vec<SimClient> {
        let mut clients = SimClient::all(plan);
        clients.extend(feedback::clients(plan, &clients));
        clients
    }

    fn ran(actor: &mut Actor, effect: &Effect) {
        actor.running.remove(effect);
    }

    fn acquire(sim: &mut Sim, at: ActivationPlace, effect: Effect, want: &Want) {
        match want {
            Want::Place { turn, agent, lane, is_new, .. } => {
                let (agent, lane) = (agent.clone(), lane.unwrap_or_default());
                let wants = WantedPlace { turn: *turn, is_new: *is_new, agent, lane };
                sim.acquire(at, effect, &wants);
            }
            Want::Recall { grant, ask, .. } => {
                sim.recalls(at, effect, (**grant).clone(), (**ask).clone());
            }
            Want::Prompt(wanted) => {
                // As if the store refused it: the prompts of this world are short.
                let grant = wanted.grant.clone().with_prompt(wanted.text.clone(), None);
                let granted = MachineInput::Granted(effect, grant);
                let note = PlannedNote::Feed(at.entity, at.counter, granted);
                sim.world.mail(at.process, at.entity.as_u128(), note);
            }
            Want::Hold(wanted) => sim.session_reserves(at, effect, (**wanted).clone()),
        }
    }

    fn start(sim: &mut Sim, at: ActivationPlace, effect: Effect, job: &EffectJob) -> Checked {
        sim.start(at, effect, &job.job)
    }

    fn abort(sim: &mut Sim, at: ActivationPlace, effect: Effect) {
        sim.abort(at.process, at.entity, at.counter, effect);
    }

    fn release(sim: &mut Sim, at: ActivationPlace, effect: Effect) -> Checked {
        sim.session_call_released(at, effect)
    }
}

impl Booked for Session {
    type Body = SessionInput;
    type Own = SessionHistory;

    fn note(own: &mut SessionHistory, head: &Head, event: SessionEvent) -> Checked {
        match event {
            SessionEvent::BegunAgain(again) => own.after = AfterDeletion::of(again.after),
            SessionEvent::ModelBegun(begun) => {
                own.is_new(begun.call)?;
                let turn = own.turns.entry(begun.turn).or_default();
                turn.begun.get_or_insert(head.ts);
                turn.last_call = Some(begun.call);
                own.last_turn = Some(begun.turn);
                let call = own.calls.entry(begun.call).or_default();
                let model = own.profile.as_ref().map(|profile| profile.model.clone());
                call.asked.extend(model.map(|model| (begun.attempt, model)));
                let gave_way = |attempt: &Attempt| call.gave_way.contains_key(attempt);
                let mut open = call.begun.iter().filter(|(attempt, ..)| !gave_way(attempt));
                if open.any(|(_, _, epoch)| *epoch == head.epoch) {
                    let text = format!("`{}` is begun twice by one owner", begun.call);
                    return Err(JudgeViolation::new("C6", text));
                }
                call.begun.push((begun.attempt, head.incarnation, head.epoch));
            }
            SessionEvent::ModelDone(done) => {
                let call = own.calls.entry(done.call).or_default();
                (call.recorded, call.blocks) = (true, done.blocks);
            }
            SessionEvent::CompactionBegun(_)
            | SessionEvent::Compacted(_)
            | SessionEvent::CompactionFailed(_)
            | SessionEvent::ReflectionBegun(_)
            | SessionEvent::Reflected(_)
            | SessionEvent::ReflectionFailed(_) => own.notes_call_beside(head, event)?,
            SessionEvent::Configured(profile) => own.profile = Some(profile),
            SessionEvent::ModelGaveWay(gave_way) => {
                let chain =
                    own.profile.as_ref().map(|profile| &profile.chain[..]).unwrap_or_default();
                own.calls.entry(gave_way.call).or_default().gives_way(&gave_way, chain)?;
            }
            SessionEvent::ModelFailed(failed) => {
                let call = own.calls.entry(failed.call).or_default();
                call.recorded = true;
                let chain =
                    own.profile.as_ref().map(|profile| &profile.chain[..]).unwrap_or_default();
                call.failed_early =
                    failed.failure.class.gives_way() && !call.was_asked_of_all(chain);
                let by_time = [FailureClass::GlobalTime, FailureClass::StepTime];
                if let Some(turn) = own.last_turn {
                    own.turns.entry(turn).or_default().late_call =
                        by_time.contains(&failed.failure.class);
                }
            }
            SessionEvent::Reply(reply) => {
                own.turns.entry(reply.turn).or_default().replies += 1;
            }
            SessionEvent::TurnDone(done) => own.ends(done, head.ts)?,
            SessionEvent::Settled(settled) => {
                own.turns.entry(settled.turn).or_default().settled += 1;
            }
            SessionEvent::StepPlanned(planned) => {
                own.turns.entry(planned.turn).or_default().step(planned.step, head.ts)?;
            }
            event => own.tools.event(&event)?,
        }
        Ok(())
    }

    fn keep(own: &mut SessionHistory, state: &SessionState) {
        own.joined.extend(state.closed.iter().flat_map(|turn| &turn.joined));
    }

    fn is_told(own: &SessionHistory, turn: TurnId) -> bool {
        own.turns.get(&turn).is_some_and(|turn| turn.emitted) || own.sent_beside.contains(&turn)
    }

    fn forget(own: &mut SessionHistory) {
        for (call, known) in std::mem::take(&mut own.calls) {
            let not_made = known.begun.iter().filter(|(attempt, ..)| !known.made.contains(attempt));
            own.begun_before.extend(not_made.map(|(attempt, by, _)| (call, *attempt, *by)));
        }
        own.summaries.clear();
        own.sent_beside.clear();
        own.profile = None;
        own.tools = ToolBook::default();
    }

    fn is_deleted(own: &mut SessionHistory) {
        own.deleted.extend(own.calls.keys());
    }

    fn told_by_deletion(own: &mut SessionHistory) {
        own.turns.values_mut().for_each(|turn| turn.emitted = true);
    }

    fn again(own: &mut SessionHistory, input: InputId) {
        own.turns.remove(&TurnId::from(input));
    }

    fn unfinished(book: &Book<Self>, input: InputId, body: &SessionInput) -> Option<String> {
        match body {
            SessionInput::Cancel { .. }
            | SessionInput::ToolResult(_)
            | SessionInput::ClientResults(_)
            | SessionInput::ApprovalDecided(_)
            | SessionInput::Continue { .. }
            | SessionInput::Feedback(_)
            | SessionInput::Reflect(_)
            | SessionInput::TimerFired { .. } => None,
            SessionInput::Delete => {
                (book.deletions == 0).then(|| format!("`{input}` deleted nothing"))
            }
            SessionInput::UserMessage(_) | SessionInput::Steer(_) | SessionInput::Execute(_) => {
                let turn = TurnId::from(input);
                let joined = || book.own.joined.contains(&turn);
                let ended = book.own.turns.get(&turn).is_some_and(|turn| turn.outcome.is_some());
                // If a message joined a turn that was deleted since, the deletion alone reports its
                // end.
                let over = ended || joined() || book.deletions > 0;
                (!over).then(|| format!("`{turn}` has no end"))
            }
        }
    }

    fn at_the_end(book: &Book<Self>, _: &BTreeMap<InputId, Input>) -> Checked {
        for (id, turn) in &book.own.turns {
            let Some(outcome) = &turn.outcome else { continue };
            if turn.replies != turn.replies_due(outcome) || turn.settled != 1 {
                let text = format!(
                    "`{id}` ({}) has {} replies and is settled {} times",
                    outcome.name(),
                    turn.replies,
                    turn.settled
                );
                return Err(JudgeViolation::new("E2", text));
            }
            if !turn.emitted && !book.is_quarantined() {
                return Err(JudgeViolation::new(
                    "E3",
                    format!("the end of `{id}` was never shown"),
                ));
            }
        }
        for (id, call) in &book.own.calls {
            if call.made.len() > call.begun.len() {
                let text = format!("`{id}` was made more often than it was begun");
                return Err(JudgeViolation::new("C6", text));
            }
        }
        Ok(())
    }
}

impl SessionHistory {
    /// A session that begins again gives no call the id of an earlier one (I3).
    fn is_new(&self, call: CallId) -> Checked {
        if !self.deleted.contains(&call) {
            return Ok(());
        }
        let text = format!("`{call}` was made before its session was deleted, and is begun again");
        Err(JudgeViolation::new("I3", text))
    }

    /// Takes what the journal says of a summary or a reflection: its call is made as others are (C6, I8).
    fn notes_call_beside(&mut self, head: &Head, event: SessionEvent) -> Checked {
        let is_reflection = matches!(event, SessionEvent::ReflectionBegun(_));
        let (id, begun) = match event {
            SessionEvent::CompactionBegun(begun) => (begun.call, Some(begun.attempt)),
            SessionEvent::ReflectionBegun(begun) => (begun.call, Some(begun.attempt)),
            SessionEvent::Compacted(compacted) => {
                self.summaries.insert(compacted.text);
                (compacted.call, None)
            }
            SessionEvent::CompactionFailed(failed) => (failed.call, None),
            SessionEvent::Reflected(done) => (done.call, None),
            SessionEvent::ReflectionFailed(failed) => (failed.call, None),
            _ => return Ok(()),
        };
        self.is_new(id)?;
        let call = self.calls.entry(id).or_default();
        let Some(attempt) = begun else {
            call.recorded = true;
            return Ok(());
        };
        if is_reflection && call.begun.len() == REFLECTED_MOST {
            let text = format!("`{id}` is begun {} times", REFLECTED_MOST + 1);
            return Err(JudgeViolation::new("C6", text));
        }
        if call.recorded || call.begun.iter().any(|(_, _, epoch)| *epoch == head.epoch) {
            return Err(JudgeViolation::new("C6", format!("`{id}` is begun again")));
        }
        call.begun.push((attempt, head.incarnation, head.epoch));
        Ok(())
    }

    fn ends(&mut self, done: TurnDone, at: Timestamp) -> Checked {
        let turn = self.turns.entry(done.turn).or_default();
        turn.in_time(&done.outcome, at)?;
        let failed = matches!(&done.outcome, TurnOutcome::Failed { failure }
            if failure.class.gives_way());
        let dropped = matches!(&done.outcome, TurnOutcome::Failed { failure }
            if failure.class == FailureClass::Preempted);
        if dropped {
            let text = format!("a call of `{}` was ended for another, and dropped", done.turn);
            return Err(JudgeViolation::new("GIVE-1", text));
        }
        let call = turn.last_call.and_then(|call| self.calls.get(&call));
        // A turn that was cancelled or whose time is over asks no other model.
        if failed && call.is_some_and(|call| call.failed_early) {
            let text = format!("`{}` failed, and other models could be asked", done.turn);
            return Err(JudgeViolation::new("GIVE-1", text));
        }
        if failed && call.is_some_and(|call| !call.recorded) {
            let text = format!("`{}` failed, and its call has no outcome", done.turn);
            return Err(JudgeViolation::new("GIVE-1", text));
        }
        if turn.outcome.replace(done.outcome).is_some() {
            let text = format!("`{}` has ended twice", done.turn);
            return Err(JudgeViolation::new("E2", text));
        }
        Ok(())
    }
}
