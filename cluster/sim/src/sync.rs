//! What is written and not synced yet, and what a power cut takes of it.

use clawnode_proto::{EntityId, Position, ProcessId};

use super::{
    request::{Happening, RequestTicket, StoreReply, StoreRequest},
    world::{TIMEOUT, World, WorldEvent},
};

/// A write that is not synced.
#[derive(Debug)]
pub(super) enum Unsynced {
    /// Not visible yet.
    Pending { from: ProcessId, ticket: RequestTicket, request: Box<StoreRequest> },
    /// Visible and answered too early: a record.
    Record(EntityId, Position),
    /// Visible and answered too early: an input.
    Input(Position),
    /// Visible and answered too early: a job.
    Job(Position),
}

impl<D> World<D> {
    /// The power fails: what was not synced is lost. The caller kills the processes.
    pub fn power_cut(&mut self) {
        for write in std::mem::take(&mut self.unsynced).into_iter().rev() {
            match write {
                // A process that outlives the power cut gets no answer in time.
                Unsynced::Pending { from, ticket, .. } => {
                    let failed = Happening::Answer(ticket, StoreReply::Failed);
                    self.schedule.plan(TIMEOUT, WorldEvent::Happen(from, failed));
                }
                Unsynced::Record(entity, position) => self.journals.undo(entity, position),
                Unsynced::Input(position) => self.inboxes.undo(position),
                Unsynced::Job(position) => drop(self.jobs.remove(position)),
            }
        }
    }

    /// Keeps a write back that is to be synced with others; `None` if it is.
    pub(super) fn keep_back(
        &mut self,
        from: ProcessId,
        ticket: RequestTicket,
        request: StoreRequest,
    ) -> Option<StoreRequest> {
        let writes = matches!(
            request,
            StoreRequest::Append { .. } | StoreRequest::Put(_) | StoreRequest::PutJob(_)
        );
        if !writes || !self.synced_in_groups || self.bugs.acknowledge_before_sync {
            return Some(request);
        }
        // Before it is synced, it is invisible and unanswered.
        self.unsynced.push(Unsynced::Pending { from, ticket, request: Box::new(request) });
        let soon = rand::Rng::random_range(&mut self.rng, 1..10);
        self.schedule.plan(soon, WorldEvent::Commit);
        None
    }

    pub(super) fn commit(&mut self) {
        for write in std::mem::take(&mut self.unsynced) {
            if let Unsynced::Pending { from, ticket, request } = write {
                let reply = self.serve(*request);
                self.answer(from, ticket, reply);
            }
        }
        self.unsynced.clear();
    }

    /// Only a store that answers too early has anything to sync after it answered.
    pub(super) fn sync_later(&mut self, write: Unsynced) {
        if self.synced_in_groups && self.bugs.acknowledge_before_sync {
            self.unsynced.push(write);
            self.schedule.plan(500, WorldEvent::Commit);
        }
    }
}
