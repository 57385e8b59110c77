//! What a scenario leaves behind for the judge.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_proto::{
    ProcessId, Timestamp, TurnId,
    kernel::{CLAIM, RELEASED},
    view::{EventView, HistoryView},
};
use tokio::time::Instant;

use super::{errands::Errand, transcript::Transcript};
use crate::model::Logged;

/// All that the judge is shown.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// What the clients saw that talked.
    pub transcripts: Vec<Transcript>,
    /// What those saw that followed the turns of others.
    pub followed: Vec<Transcript>,
    /// What clients with errands know of them.
    pub errands: Vec<Errand>,
    /// How often each effect of a call happened, by its job.
    pub effects: BTreeMap<String, usize>,
    /// What is stored, by session key.
    pub sessions: BTreeMap<String, Stored>,
    /// What the model server was asked: the effect counter.
    pub asked: Vec<Logged>,
    /// What was done to the stage.
    pub faults: Vec<Fault>,
    /// What `journal verify` found wrong.
    pub unsound: Vec<String>,
    /// Owners that found themselves fenced since the first fault, as the nodes' logs have it.
    pub fenced: u64,
    /// Those before it: nodes that start together trade sessions.
    pub fenced_before: u64,
    /// What is left at the end and should not be: processes, inputs, nodes that do not stop.
    pub leftovers: Vec<String>,
    /// What a scenario itself holds to be wrong.
    pub complaints: Vec<String>,
    /// Sessions that were poisoned, and are judged by their scenario.
    pub excused: BTreeSet<String>,
    /// Pieces of each reply.
    pub tokens: u32,
}

/// One session as the journal has it.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its transcript.
    pub history: HistoryView,
    /// Its journal.
    pub events: Vec<EventView>,
}

/// Something that was done to the stage.
#[derive(Clone, Debug)]
pub struct Fault {
    pub at: Instant,
    /// When by the clock that nodes write into events.
    pub wall: Timestamp,
    /// What, for people.
    pub what: String,
    /// The turns that it keeps waiting.
    pub hits: Hits,
}

/// The turns that a fault keeps waiting.
#[derive(Clone, Debug)]
pub enum Hits {
    /// Turns that these processes own.
    Owners(Vec<ProcessId>),
    /// Clients of a gateway.
    Clients,
    /// Every turn.
    Everyone,
    /// No turn, if all is well.
    Nothing,
}

impl Evidence {
    /// Whether something was done to this process that owners lose their sessions by.
    pub fn is_victim(&self, process: ProcessId) -> bool {
        self.faults.iter().any(|fault| match &fault.hits {
            Hits::Owners(owners) => owners.contains(&process),
            Hits::Clients | Hits::Everyone | Hits::Nothing => false,
        })
    }

    /// Whether a journal has an event that is so many milliseconds later than the last fault, or earlier
    /// than the first.
    pub fn has_jumped(&self, by: u64) -> bool {
        let walls = || self.faults.iter().map(|fault| fault.wall.0);
        let (first, last) = (walls().min().unwrap_or(0), walls().max().unwrap_or(0));
        let mut events = self.sessions.values().flat_map(|stored| &stored.events);
        events.any(|event| event.ts.0 > last + by || event.ts.0 + by < first)
    }

    /// The claims since the first fault by which a session was taken over.
    pub fn takeovers(&self) -> Vec<Takeover> {
        let first = self.faults.iter().map(|fault| fault.wall).min();
        let all = self.sessions.values().flat_map(Stored::takeovers);
        all.filter(|one| first.is_some_and(|first| one.ts >= first)).collect()
    }
}

/// A claim by which a session was taken from a process that had not given it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Takeover {
    /// The previous owner.
    pub from: ProcessId,
    /// Whether a turn was under way, which went on elsewhere.
    pub in_mid_turn: bool,
    pub ts: Timestamp,
}

impl Stored {
    /// The claims by which it was taken over.
    pub fn takeovers(&self) -> Vec<Takeover> {
        let (mut open, mut found) = (0_usize, Vec::new());
        let mut before: Option<&EventView> = None;
        for event in &self.events {
            let taken = before.filter(|before| {
                event.kind == CLAIM
                    && before.kind != RELEASED
                    && before.incarnation.process != event.incarnation.process
            });
            if let Some(before) = taken {
                let from = before.incarnation.process;
                found.push(Takeover { from, in_mid_turn: open > 0, ts: event.ts });
            }
            match event.kind.as_str() {
                "accepted" => open += 1,
                "turn_done" => open = open.saturating_sub(1),
                _ => {}
            }
            before = Some(event);
        }
        found
    }

    /// Whether one of these processes worked on the turn, or was taken the session from.
    pub fn was_with(&self, turn: TurnId, processes: &[ProcessId]) -> bool {
        let turn = turn.to_string();
        let begun = self.events.iter().any(|event| {
            event.kind == "model_begun"
                && event.body["turn"] == turn.as_str()
                && processes.contains(&event.incarnation.process)
        });
        begun || self.takeovers().iter().any(|one| processes.contains(&one.from))
    }
}
