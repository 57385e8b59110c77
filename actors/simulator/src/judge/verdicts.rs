//! The judge itself: what it records, and which of its parts checks it.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_budget::holder::CallUsage;
use clawnode_proto::{
    CallId, Digest, EntityId, Incarnation, Input, InputId, Order, ProcessId, Sealed, Timestamp,
    ToolName, TurnId, codec,
    event::decode_record,
    kernel::KernelEvent,
    policy::Action,
    session::{SessionEvent, SessionInput, ToolEnd, TurnOutcome},
    tool::ToolSpec,
};
use clawnode_sim::StoreChange;

use super::{
    client::ClientDeeds,
    consent::Consent,
    costs::{CallMade, Costs},
    deeds::Deeds,
    effort::Effort,
    filled::FilledSteps,
    heard::{SessionTexts, ShownCall},
    structured::StructuredReplies,
};
use crate::book::Checked;

/// What a sender put into an inbox.
#[derive(Clone, Debug)]
struct SentInput {
    order: Option<Order>,
    body: Option<SessionInput>,
}

/// What was seen from outside.
#[derive(Debug)]
pub(crate) struct OutsideJudge {
    sent: BTreeMap<InputId, SentInput>,
    heard: BTreeMap<EntityId, SessionTexts>,
    consent: Consent,
    effort: Effort,
    deeds: Deeds,
    costs: Costs,
    clients: ClientDeeds,
    replies: StructuredReplies,
    filled: FilledSteps,
    /// What came for sessions that are out of service, in its order.
    parked: BTreeMap<EntityId, Vec<Input>>,
    /// Sessions whose journal was damaged: what they asked for before may be asked for again.
    damaged: BTreeSet<EntityId>,
    /// When a process read an inbox as it was a while before.
    misread: BTreeMap<EntityId, u64>,
    /// Who wrote last.
    writers: BTreeMap<EntityId, Incarnation>,
    /// The places of inputs, over all inboxes.
    places: u64,
}

// === impl OutsideJudge ===

impl OutsideJudge {
    /// Of sessions in which people have so many milliseconds to decide about these tools.
    pub(crate) fn new(approval_wait: u64, changing: Vec<ToolName>, specs: &[ToolSpec]) -> Self {
        Self {
            sent: BTreeMap::new(),
            heard: BTreeMap::new(),
            consent: Consent::new(approval_wait, changing),
            effort: Effort::default(),
            deeds: Deeds::new(specs),
            costs: Costs::default(),
            clients: ClientDeeds::default(),
            replies: StructuredReplies::default(),
            filled: FilledSteps::default(),
            parked: BTreeMap::new(),
            damaged: BTreeSet::new(),
            misread: BTreeMap::new(),
            writers: BTreeMap::new(),
            places: 0,
        }
    }

    fn heard(&mut self, entity: EntityId) -> &mut SessionTexts {
        self.heard.entry(entity).or_default()
    }

    // === inboxes ===

    /// A client sends this; it may or may not arrive.
    pub(crate) fn sends(&mut self, input: &Input) {
        if self.sent.contains_key(&input.id) {
            return;
        }
        let body = codec::decode(&input.body).ok().filter(|_| input.order.is_none());
        if let Some(SessionInput::UserMessage(message) | SessionInput::Steer(message)) = &body {
            self.replies.sent(TurnId::from(input.id), message);
        }
        if let Some(SessionInput::Execute(plan)) = &body {
            self.filled.sent(TurnId::from(input.id), plan);
        }
        self.sent.insert(input.id, SentInput { order: input.order, body });
    }

    /// The stores changed.
    pub(crate) fn change(&mut self, now: u64, change: &StoreChange) -> Checked {
        match change {
            StoreChange::Put(entity, input) => {
                self.places += 1;
                let place = self.places;
                self.deeds.stored(now, *input);
                if let Some(sent) = self.sent.get(input).cloned() {
                    let heard = self.heard(*entity);
                    match (&sent.order, &sent.body) {
                        (Some(order), _) => heard.ordered(*order),
                        (None, Some(body)) => heard.put(TurnId::from(*input), place, body),
                        (None, None) => {}
                    }
                }
                Ok(())
            }
            StoreChange::Appended { entity, record, .. } => {
                // What cannot be read was damaged on purpose, or the ledger says so.
                for sealed in decode_record(&record.bytes).unwrap_or_default() {
                    self.written(now, *entity, &sealed)?;
                }
                Ok(())
            }
            StoreChange::Removed(entity, input) => {
                self.heard(*entity).removed(TurnId::from(*input));
                Ok(())
            }
            StoreChange::JobPut(_) | StoreChange::JobRemoved(_) => Ok(()),
        }
    }

    /// An activation stores a job, having begun to look for it at `since`. An activation that has
    /// lost the entity meanwhile cannot know better.
    pub(crate) fn gives(
        &self,
        entity: EntityId,
        by: Incarnation,
        call: CallId,
        since: u64,
    ) -> Checked {
        let owns = self.writers.get(&entity) == Some(&by);
        let misread = self.misread.get(&entity).is_some_and(|at| *at >= since);
        if !owns || misread || self.damaged.contains(&entity) {
            return Ok(());
        }
        self.deeds.gives(call, since)
    }

    fn written(&mut self, now: u64, entity: EntityId, sealed: &Sealed) -> Checked {
        let head = &sealed.head;
        self.writers.insert(entity, head.incarnation);
        if let Ok(Some(event)) = sealed.event::<KernelEvent>() {
            match event {
                KernelEvent::Accepted(accepted) => return self.takes(head.ts, &accepted.input),
                KernelEvent::Parked(parked) => {
                    self.parked.entry(entity).or_default().push(parked.input);
                }
                KernelEvent::Restored(_) => {
                    let parked = self.parked.remove(&entity).unwrap_or_default();
                    return parked.iter().try_for_each(|input| self.takes(head.ts, input));
                }
                KernelEvent::Deleted(_) => drop(self.parked.remove(&entity)),
                _ => {}
            }
            return Ok(());
        }
        let Ok(Some(event)) = sealed.event::<SessionEvent>() else { return Ok(()) };
        self.costs_of(entity, &event)?;
        if !self.damaged.contains(&entity) {
            self.filled.says(&event);
        }
        match event {
            SessionEvent::ApprovalAsked(approval) => {
                self.consent.asks(head.ts, approval.call, approval.action);
                Ok(())
            }
            SessionEvent::ToolAsked(tool) if !self.damaged.contains(&entity) => {
                self.deeds.asked(entity, head.ts, &tool);
                self.clients.asked(&tool);
                Ok(())
            }
            SessionEvent::ToolDone(tool) => {
                self.clients.ended(&tool)?;
                match tool.outcome {
                    // What hooks made of it is not what it was.
                    Some(outcome) if tool.hooks.is_empty() => {
                        self.deeds.says(tool.call, &ToolEnd::Known { outcome })
                    }
                    Some(_) | None => Ok(()),
                }
            }
            SessionEvent::TurnDone(turn) => {
                self.clients.over(turn.turn);
                if self.damaged.contains(&entity) { Ok(()) } else { self.replies.over(&turn) }
            }
            SessionEvent::ModelDone(model) => {
                self.replies.done(&model);
                Ok(())
            }
            SessionEvent::ReplyRefused(refusal) if !self.damaged.contains(&entity) => {
                self.replies.refused(&refusal)
            }
            SessionEvent::Reply(reply) => {
                self.replies.replied(&reply);
                Ok(())
            }
            SessionEvent::ModelGaveWay(gave_way) => {
                self.effort.gives_way(gave_way.call);
                Ok(())
            }
            SessionEvent::ModelBegun(begun) => {
                self.replies.begun(begun.turn, begun.call);
                self.effort.begins(now, entity, begun.call, begun.attempt, head.incarnation)
            }
            _ => Ok(()),
        }
    }

    /// A session takes an input at this time.
    fn takes(&mut self, at: Timestamp, input: &Input) -> Checked {
        let Ok(body) = codec::decode(&input.body) else { return Ok(()) };
        self.consent.takes(at, &body);
        match body {
            SessionInput::ToolResult(result) => {
                self.filled.brought(result.call, &result.end);
                self.deeds.says(result.call, &result.end)
            }
            SessionInput::ClientResults(results) => {
                self.clients.brings(&results);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// PRICE-1: what the journal says of costs.
    fn costs_of(&mut self, entity: EntityId, event: &SessionEvent) -> Checked {
        match event {
            _ if self.damaged.contains(&entity) => Ok(()),
            SessionEvent::BudgetHeld(held) => self.costs.held(held),
            SessionEvent::ModelBegun(begun) => {
                self.costs.begun(begun.turn, begun.call);
                Ok(())
            }
            SessionEvent::CompactionBegun(begun) => {
                self.costs.begun(begun.turn, begun.call);
                Ok(())
            }
            SessionEvent::ModelDone(done) => {
                self.costs.ended(done.call, done.attempt, &done.usage, None)
            }
            SessionEvent::Compacted(done) => {
                self.costs.ended(done.call, done.attempt, &done.usage, None)
            }
            SessionEvent::Reflected(done) => {
                self.costs.ended(done.call, done.attempt, &done.usage, None)
            }
            SessionEvent::ReflectionFailed(failed) => self.costs.ended(
                failed.call,
                failed.attempt,
                &failed.usage,
                Some(failed.failure.class),
            ),
            SessionEvent::CompactionFailed(failed) => self.costs.ended(
                failed.call,
                failed.attempt,
                &failed.usage,
                Some(failed.failure.class),
            ),
            SessionEvent::ModelFailed(failed) => self.costs.ended(
                failed.call,
                failed.attempt,
                &failed.usage,
                Some(failed.failure.class),
            ),
            SessionEvent::ModelGaveWay(gave_way) => self.costs.ended(
                gave_way.call,
                gave_way.attempt,
                &gave_way.usage,
                Some(gave_way.why.class),
            ),
            SessionEvent::Settled(settled) => self.costs.turn_settled(settled),
            _ => Ok(()),
        }
    }

    /// A process settles what it had reserved for a call, which is billed so.
    pub(crate) fn settles(
        &mut self,
        made: CallMade,
        usage: CallUsage,
        bill: Option<u128>,
    ) -> Checked {
        self.costs.settles(made, usage, bill)
    }

    /// The session was deleted.
    pub(crate) fn deleted(&mut self, entity: EntityId) -> Checked {
        self.parked.remove(&entity);
        self.heard(entity).deleted(entity)
    }

    /// Its journal was damaged: what it did since is not judged, until it was deleted.
    pub(crate) fn damaged(&mut self, entity: EntityId) {
        self.damaged.insert(entity);
        self.heard(entity).damaged();
    }

    // === turns ===

    /// A model is called.
    pub(crate) fn calls(
        &mut self,
        entity: EntityId,
        by: Incarnation,
        shown: &ShownCall<'_>,
    ) -> Checked {
        // Who lost the entity and does not know it shows what was so then.
        if self.writers.get(&entity) != Some(&by) {
            return Ok(());
        }
        if !self.damaged.contains(&entity) {
            self.clients.shows(shown.turn, shown.messages)?;
            self.replies.shows(shown)?;
        }
        self.heard(entity).shows(shown)
    }

    /// A turn gets no place: its agent is not there, or a hook does not let it.
    pub(crate) fn refused(&mut self, entity: EntityId, turn: TurnId) {
        self.heard(entity).refused(turn);
    }

    /// A turn's end is published.
    pub(crate) fn ends(
        &mut self,
        entity: EntityId,
        turn: TurnId,
        outcome: &TurnOutcome,
    ) -> Checked {
        self.heard(entity).ends(turn, outcome)
    }

    /// A turn's end was published, and its jobs are closed.
    pub(crate) fn told(&mut self, now: u64, turn: TurnId) {
        self.deeds.told(now, turn);
    }

    /// A tool runs, and this is what it does.
    pub(crate) fn runs(
        &self,
        call: CallId,
        tool: &ToolName,
        action: impl FnOnce() -> Option<Digest>,
    ) -> Checked {
        if self.consent.changing.contains(tool) {
            self.consent.runs(call, action())
        } else {
            Ok(())
        }
    }

    /// PLAN-2: a tool call of this session runs with these arguments.
    pub(crate) fn is_filled(&mut self, entity: EntityId, call: CallId, arguments: &str) -> Checked {
        if self.damaged.contains(&entity) {
            return Ok(());
        }
        self.filled.runs(call, arguments)
    }

    /// PLAN-2: people are asked about a tool call of this session.
    pub(crate) fn is_asked_about(&self, entity: EntityId, action: &Action) -> Checked {
        if self.damaged.contains(&entity) {
            return Ok(());
        }
        self.filled.has_outputs(action.call, &action.arguments)
    }

    /// Steps of plans that ran with outputs of earlier steps.
    pub(crate) fn templated(&self) -> usize {
        self.filled.ran()
    }

    /// A tool call is run by the cluster.
    pub(crate) fn runs_here(&self, call: CallId) -> Checked {
        self.clients.runs(call)
    }

    /// A job begins to run.
    pub(crate) fn begins(&self, now: u64, call: CallId) -> Checked {
        self.deeds.begins(now, call)
    }

    /// A job has its effect.
    pub(crate) fn does(&mut self, by: ProcessId, call: CallId) -> Checked {
        self.deeds.does(by, call)
    }

    // === what befell whom ===

    /// A process is held dead, and is not.
    pub(crate) fn wrongs(&mut self, process: ProcessId) {
        self.deeds.wrongs(process);
    }

    /// Something befell a process: what it makes may be made again by others.
    pub(crate) fn befalls(&mut self, now: u64, process: ProcessId) {
        self.effort.befalls(now, process);
    }

    /// Something happened around an entity that lets others believe that it has no owner.
    pub(crate) fn troubles(&mut self, now: u64, entity: EntityId) {
        self.effort.troubles(now, entity);
    }

    /// A process reads an inbox as it was a while ago.
    pub(crate) fn misreads(&mut self, now: u64, entity: EntityId) {
        self.misread.insert(entity, now);
        self.troubles(now, entity);
    }

    /// What must hold once all is quiet, of sessions that are in service.
    pub(crate) fn at_the_end(&self, serves: impl Fn(EntityId) -> bool) -> Checked {
        let mut all = self.heard.iter().filter(|(entity, _)| serves(**entity));
        all.try_for_each(|(entity, heard)| heard.at_the_end(*entity))
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        Epoch, EventId, Grammar, Head, Kind, Seq,
        client_tool::{ClientResult, ClientResults},
        event::VERSION,
        hook::HookTrail,
        kernel::{Parked, Restored},
        llm::Sampling,
        session::{ToolAsked, ToolDone},
    };

    use super::*;

    const SESSION: EntityId = EntityId::from_u128(1);
    const TURN: TurnId = TurnId::from_u128(2);
    const CALL: CallId = CallId::from_u128(3);

    fn writes(judge: &mut OutsideJudge, event: &impl Grammar) -> Checked {
        let incarnation = Incarnation { process: ProcessId::from_u128(4), counter: 1 };
        let n = Seq(1);
        let head = Head {
            entity: SESSION,
            n,
            v: VERSION,
            eid: EventId::derive(SESSION, incarnation, n),
            epoch: Epoch(1),
            incarnation,
            ts: Timestamp(5),
            kind: event.kind().to_owned(),
            required: event.required(),
            progress: event.progress(),
        };
        judge.written(0, SESSION, &Sealed::seal(head, event, Digest::ZERO).unwrap())
    }

    fn results() -> Input {
        let results = ClientResults {
            turn: TURN,
            results: vec![ClientResult::done(CALL, "seen")],
            system: None,
            sampling: Sampling::default(),
            tools: Vec::new(),
            metadata: BTreeMap::new(),
        };
        let (name, body) = ("k".parse().unwrap(), SessionInput::ClientResults(results));
        Input::new(Kind::SESSION, "main:web:a:b", name, Timestamp(0), &body).unwrap()
    }

    /// What a client brings a session that is out of service is brought when that is back, and not if it is deleted.
    #[test]
    fn client_1_parked_results_are_brought_when_their_session_is_restored() {
        let restored = || {
            let order =
                Input::order(Kind::SESSION, SESSION, Digest::ZERO, Timestamp(0), Order::Restore);
            KernelEvent::from(Restored { input: order })
        };
        let ends = |is_deleted: bool, is_restored: bool| {
            let mut judge = OutsideJudge::new(0, Vec::new(), &[]);
            let tool = "mine".parse().unwrap();
            let asked = ToolAsked { turn: TURN, call: CALL, tool, by_client: true };
            writes(&mut judge, &SessionEvent::from(asked)).unwrap();
            writes(&mut judge, &KernelEvent::from(Parked { input: results() })).unwrap();
            if is_deleted {
                judge.heard(SESSION).ordered(Order::Bury);
                judge.deleted(SESSION).unwrap();
            }
            if is_restored {
                writes(&mut judge, &restored()).unwrap();
            }
            let done =
                ToolDone { turn: TURN, call: CALL, outcome: None, hooks: HookTrail::default() };
            writes(&mut judge, &SessionEvent::from(done)).err().map(|violation| violation.name)
        };
        assert_eq!(ends(false, true), None);
        assert_eq!(ends(false, false), Some("CLIENT-1"));
        assert_eq!(ends(true, true), Some("CLIENT-1"));
    }
}
