//! What a turn is reminded of: the search of production, at one moment of this world.

use std::{future::ready, sync::Arc};

use bytes::Bytes;
use clawnode_actors::{
    agent::Grant,
    session::{
        Effect, RecallStore,
        turn::{
            memory::recall_for_turn::{RecallAsk, RecallFinds},
            prepare::CallJob,
        },
    },
};
use clawnode_kernel::{
    MachineInput,
    archive::{snapshot_of, unpack},
    core::snapshot_blob,
};
use clawnode_memory::store::StoreScope;
use clawnode_proto::{Incarnation, recall::Recalled};
use rand::Rng;

use super::stores::{ProcessStore, StoreMood};
use crate::{
    JudgeViolation, Sim, any_machine::ActivationPlace, book::Checked, process::PlannedNote,
};

/// How long a search takes at most, in milliseconds: longer than a turn waits.
const SEARCH_MOST: u64 = 220;
/// How often the task of a search ends without an answer.
const SEARCH_DIES: f64 = 0.02;

impl Sim {
    /// A turn wants to be reminded; it is once the search has ended, or its time is over.
    pub(crate) fn recalls(
        &mut self,
        at: ActivationPlace,
        effect: Effect,
        grant: Grant,
        ask: RecallAsk,
    ) {
        if self.recall.is_none() {
            let recalled = Some(Arc::new(ask.recalled("", "sim", RecallFinds::default())));
            let granted = MachineInput::Granted(effect, Grant { recalled, ..grant });
            let note = PlannedNote::Feed(at.entity, at.counter, granted);
            self.world.mail(at.process, at.entity.as_u128(), note);
            return;
        }
        let within = u64::try_from(RecallStore::WITHIN.as_millis()).unwrap_or(u64::MAX);
        let after = self.world.rng.random_range(1..SEARCH_MOST);
        let ends = PlannedNote::own(format!("searches for {}", ask.turn), move |sim| {
            sim.search_ends(at, effect, grant, &ask, after > within)
        });
        self.world.later(at.process, after.min(within), ends);
    }

    fn search_ends(
        &mut self,
        at: ActivationPlace,
        effect: Effect,
        grant: Grant,
        ask: &RecallAsk,
        is_late: bool,
    ) -> Checked {
        let process = self.processes.get_mut(&at.process);
        if process.and_then(|process| process.actor(at.entity, at.counter)).is_none() {
            return Ok(());
        }
        if self.world.chance(SEARCH_DIES) {
            return self.feed(at.process, at.entity, at.counter, MachineInput::Forgotten(effect));
        }
        let recalled = Some(Arc::new(self.searched(at, ask, is_late)?));
        let granted = MachineInput::Granted(effect, Grant { recalled, ..grant });
        self.feed(at.process, at.entity, at.counter, granted)
    }

    /// What the search of production finds now. What comes too late was searched for all the same.
    fn searched(
        &mut self,
        at: ActivationPlace,
        ask: &RecallAsk,
        is_late: bool,
    ) -> Result<Recalled, JudgeViolation> {
        let unusable = |what: String| JudgeViolation::new("X1", what);
        let mood = StoreMood::any(&mut self.world.rng, self.calm);
        let (Some(recall), Some(process)) =
            (self.recall.as_mut(), self.processes.get_mut(&at.process))
        else {
            return Err(unusable("a turn searches without a store".to_owned()));
        };
        let (memories, sessions) = (ask.scopes.memories(), ask.scopes.sessions());
        for entity in memories.iter().chain(&sessions).map(StoreScope::entity) {
            let records = self.world.journal(entity);
            let state = snapshot_blob(&records).and_then(|digest| self.world.blob(digest));
            let mut blobs: Vec<Bytes> = state.into_iter().collect();
            // What was said is read from archives, too.
            let mut archive = snapshot_of(&records).and_then(|snapshot| snapshot.archive);
            while let Some(blob) = archive.and_then(|digest| self.world.blob(digest)) {
                let segment = unpack(&blob).unwrap_or_default();
                archive = snapshot_of(&segment).and_then(|snapshot| snapshot.archive);
                blobs.push(blob);
            }
            recall.reads.shows(entity, records, blobs);
        }
        let store = if let Some(store) = process.memory.take() {
            store
        } else {
            let script = recall.shared.clone().unwrap_or_default();
            ProcessStore::new(&recall.reads, script).map_err(|error| unusable(error.to_string()))?
        };
        let store = process.memory.insert(store);
        store.script.becomes(mood, recall.judge.ever());
        for scope in &sessions {
            store.script.hears(scope, recall.judge.said_in(scope.entity()));
        }
        recall.judge.searches(ask.turn, Incarnation { process: at.process, counter: at.counter });
        let text =
            ask.text.inline().map(str::to_owned).ok_or("the message is not in place".to_owned());
        let searched = recall.reads.run(store.recall.search(ask, ready(text)));
        Ok(store.recall.recalled(ask, Some(searched).filter(|_| !is_late)))
    }

    /// MEM-1, MEM-2, MEM-4: the recalled lines that a call shows.
    pub(crate) fn shows_recalled(&mut self, at: ActivationPlace, job: &CallJob) -> Checked {
        match &mut self.recall {
            Some(recall) if self.damaged != Some(at.entity) => {
                recall.judge.shows(at.entity, job.turn, &job.request.messages)
            }
            _ => Ok(()),
        }
    }
}
