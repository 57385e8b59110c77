//! What the dispatcher knows of one entity.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_proto::{Input, InputId, Kind, Position, ProcessId, Timestamp};

use super::io::{AskId, HandleId};
use crate::{ShrinkToFit, machine::Activation};

/// How far an entity is on its way into memory and out of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EntityPhase {
    /// Its inbox is being read for the first time.
    Ringing,
    /// Its tail is being read.
    Admitting,
    /// Its last writer is being asked.
    Asking { process: ProcessId, tries: u32 },
    /// Another process is being asked to serve it.
    Forwarding,
    /// Its actor runs.
    Active,
    /// It is left alone until then.
    Waiting(Timestamp),
}

/// An entity with something to do, or whose actor runs.
#[derive(Debug)]
pub(super) struct EntitySlot {
    /// What the entity is, once an input of it was read.
    pub(super) kind: Option<Kind>,
    pub(super) phase: EntityPhase,
    /// How it is activated next: a process may have had one of its inputs before.
    pub(super) activation: Activation,
    /// The last writer when it was admitted.
    pub(super) last: Option<ProcessId>,
    /// Everything up to here was read.
    pub(super) seen: Position,
    /// Read, and not handed on.
    pub(super) buffered: Vec<Input>,
    /// Read and not complete; an input that was stored twice has two positions.
    pub(super) open: BTreeMap<Position, InputId>,
    /// Being put aside, because no node can read it.
    pub(super) aside: BTreeSet<Position>,
    /// Complete, but its delivery has not come yet.
    pub(super) done: BTreeSet<Position>,
    pub(super) handles: BTreeMap<Position, HandleId>,
    pub(super) reading: bool,
    /// Where the last read of the inbox began.
    pub(super) read_after: Position,
    pub(super) rung: bool,
    pub(super) losses: u32,
    pub(super) asks: Vec<(AskId, InputId)>,
    /// Asked while a read was under way, which may have begun before the input was stored: the
    /// next read answers.
    pub(super) late_asks: Vec<(AskId, InputId)>,
    /// The last process that asked, and for which input: it is notified if the entity is given up.
    pub(super) asker: Option<(ProcessId, InputId)>,
}

// === impl EntityPhase ===

impl EntityPhase {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Ringing => "ringing",
            Self::Admitting => "admitting",
            Self::Asking { .. } => "asking",
            Self::Forwarding => "forwarding",
            Self::Active => "active",
            Self::Waiting(_) => "waiting",
        }
    }
}

// === impl EntitySlot ===

impl EntitySlot {
    /// The sender of an order may not know the kind of the entity.
    pub(super) fn learn_kind(&mut self, input: &Input) {
        if input.order.is_none() || self.kind.is_none() {
            self.kind = Some(input.kind);
        }
    }

    /// How its entity is activated now. One death counts against it once.
    pub(super) fn activated(&mut self, orphan: bool) -> Activation {
        match self.activation {
            Activation::Died => std::mem::replace(&mut self.activation, Activation::Recovery),
            _ if orphan => Activation::Orphan,
            other => other,
        }
    }

    /// A process may have had one of its inputs before.
    pub(super) fn recovers(&mut self) {
        if self.activation == Activation::Fresh {
            self.activation = Activation::Recovery;
        }
    }

    /// Whether the last read of its inbox failed: it is tried again at a tick.
    pub(super) fn is_unreadable(&self) -> bool {
        self.rung && !self.reading
    }

    /// A delivered input that is not in hand: no read has shown it yet, because one was old or
    /// came from before the last actor, or its acknowledgement was lost.
    pub(super) fn unseen(&self) -> Option<Position> {
        let known = |at: &Position| self.open.contains_key(at) || self.aside.contains(at);
        self.handles.keys().find(|position| !known(position)).copied()
    }

    /// Gives back room: most slots are of entities at rest.
    pub(super) fn slim(&mut self) {
        self.buffered.slim();
        self.open.slim();
        self.aside.slim();
        self.done.slim();
        self.handles.slim();
        self.asks.slim();
    }
}
