//! The judge: what senders, models, people and tools saw, held against what was promised to them.
//!
//! It knows what was put into inboxes, in which order, what each model call was shown, what people
//! were asked and said, which tools ran, and what befell whom. Of the journal it reads when what was
//! written, never what that adds up to: neither the kernel's fold nor the session's state is asked,
//! so what those get wrong the same way every time is seen here.
//!
//! - **MSG-1** a text is new in one turn, and in one place: no turn is about another's text, no call
//!   shows one twice, and what has ended is shown as it went, without holes.
//! - **MSG-2** messages are shown in the order of their inbox; what joins a running turn may come
//!   earlier, never later.
//! - **MSG-3** nothing accepted is lost: it is shown to a model, unless somebody cancelled or deleted
//!   it, or its turn had no time, agent or permission. What came too late to join a turn is a message.
//! - **MSG-4** nothing is deleted unasked, and what was deleted is shown to nobody.
//! - **APR-1** a call that changes something runs only if a person approved of that very action, in
//!   time, before anything else was decided.
//! - **OWN-1** a call is made again only if something befell whoever made it before, or nobody could
//!   reach them.

mod consent;
mod effort;
mod heard;

use std::collections::BTreeMap;

use clawnode_cluster::sim::Change;
use clawnode_proto::{
    CallId, Digest, EntityId, Incarnation, Input, InputId, Order, ProcessId, Sealed, ToolName,
    TurnId, codec,
    event::decode_record,
    kernel::KernelEvent,
    llm::Message,
    session::{SessionEvent, SessionInput, TurnOutcome},
};

use self::{consent::Consent, effort::Effort, heard::Heard};
use super::Violation;

pub(super) type Checked = Result<(), Violation>;

/// What a sender put into an inbox.
#[derive(Clone, Debug)]
struct Sent {
    order: Option<Order>,
    body: Option<SessionInput>,
}

/// What was seen from outside.
#[derive(Debug)]
pub(super) struct Judge {
    sent: BTreeMap<InputId, Sent>,
    heard: BTreeMap<EntityId, Heard>,
    consent: Consent,
    effort: Effort,
    /// Who wrote last.
    writers: BTreeMap<EntityId, Incarnation>,
    /// The places of inputs, over all inboxes.
    places: u64,
}

/// One model call, as its provider sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown<'a> {
    pub(super) turn: TurnId,
    pub(super) call: CallId,
    pub(super) messages: &'a [Message],
    /// Whether older turns were left out.
    pub(super) cut: bool,
}

// === impl Judge ===

impl Judge {
    /// Of sessions in which people have so many milliseconds to decide about these tools.
    pub(super) fn new(approval_wait: u64, changing: Vec<ToolName>) -> Self {
        Self {
            sent: BTreeMap::new(),
            heard: BTreeMap::new(),
            consent: Consent::new(approval_wait, changing),
            effort: Effort::default(),
            writers: BTreeMap::new(),
            places: 0,
        }
    }

    fn heard(&mut self, entity: EntityId) -> &mut Heard {
        self.heard.entry(entity).or_default()
    }

    // === inboxes ===

    /// Somebody sends this; it may or may not arrive.
    pub(super) fn sends(&mut self, input: &Input) {
        if self.sent.contains_key(&input.id) {
            return;
        }
        let body = codec::decode(&input.body).ok().filter(|_| input.order.is_none());
        self.sent.insert(input.id, Sent { order: input.order, body });
    }

    /// The stores changed.
    pub(super) fn change(&mut self, now: u64, change: &Change) -> Checked {
        match change {
            Change::Put(entity, input) => {
                self.places += 1;
                let place = self.places;
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
            Change::Appended { entity, record, .. } => {
                // What cannot be read was damaged on purpose, or the ledger says so.
                for sealed in decode_record(&record.bytes).unwrap_or_default() {
                    self.written(now, *entity, &sealed)?;
                }
                Ok(())
            }
            Change::Removed(..) | Change::JobPut(_) | Change::JobRemoved(_) => Ok(()),
        }
    }

    fn written(&mut self, now: u64, entity: EntityId, sealed: &Sealed) -> Checked {
        let head = &sealed.head;
        self.writers.insert(entity, head.incarnation);
        if let Ok(Some(event)) = sealed.event::<KernelEvent>() {
            match event {
                KernelEvent::Accepted(it) => self.consent.takes(head.ts, &it.input),
                KernelEvent::Parked(it) => self.consent.parked(entity, it.input),
                KernelEvent::Restored(_) => self.consent.restored(entity, head.ts),
                _ => {}
            }
            return Ok(());
        }
        match sealed.event::<SessionEvent>() {
            Ok(Some(SessionEvent::ApprovalAsked(it))) => {
                self.consent.asks(head.ts, it.call, it.action);
                Ok(())
            }
            Ok(Some(SessionEvent::ModelBegun(it))) => {
                self.effort.begins(now, entity, (it.call, it.attempt), head.incarnation)
            }
            _ => Ok(()),
        }
    }

    /// The session was deleted.
    pub(super) fn deleted(&mut self, entity: EntityId) -> Checked {
        self.heard(entity).deleted(entity)
    }

    /// Its journal was damaged: what it did since is not judged, until it was buried.
    pub(super) fn damaged(&mut self, entity: EntityId) {
        self.heard(entity).damaged();
    }

    // === turns ===

    /// A model is called.
    pub(super) fn calls(
        &mut self,
        entity: EntityId,
        by: Incarnation,
        shown: &Shown<'_>,
    ) -> Checked {
        // Who lost the entity and does not know it shows what was so then.
        if self.writers.get(&entity) != Some(&by) {
            return Ok(());
        }
        self.heard(entity).shows(shown)
    }

    /// A turn gets no place: its agent is not there, or a hook does not let it.
    pub(super) fn refused(&mut self, entity: EntityId, turn: TurnId) {
        self.heard(entity).refused(turn);
    }

    /// A turn's end is told.
    pub(super) fn ends(
        &mut self,
        entity: EntityId,
        turn: TurnId,
        outcome: &TurnOutcome,
    ) -> Checked {
        self.heard(entity).ends(turn, outcome)
    }

    /// A tool runs, and this is what it does.
    pub(super) fn runs(
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

    // === what befell whom ===

    /// Something befell a process: what it makes may be made again by others.
    pub(super) fn befalls(&mut self, now: u64, process: ProcessId) {
        self.effort.befalls(now, process);
    }

    /// Something happened around an entity that lets others believe that nobody has it.
    pub(super) fn troubles(&mut self, now: u64, entity: EntityId) {
        self.effort.troubles(now, entity);
    }

    /// What must hold once all is quiet, of sessions that are in service.
    pub(super) fn at_the_end(&self, serves: impl Fn(EntityId) -> bool) -> Checked {
        let mut all = self.heard.iter().filter(|(entity, _)| serves(**entity));
        all.try_for_each(|(entity, heard)| heard.at_the_end(*entity))
    }
}
