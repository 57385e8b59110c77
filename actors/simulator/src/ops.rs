//! What an entity's actor does: its machine's outputs, and the operations on the stores.

use bytes::Bytes;
use clawnode_actors::session::Session;
use clawnode_cluster::{AppendAnswer, Record, StoreError};
use clawnode_kernel::{
    ActivationEnd, LoadedJournal, MachineInput, MachineOutput, archive,
    core::{position_of, snapshot_blob},
    partition::{self, Gone},
};
use clawnode_proto::{
    Digest, EntityId, EventId, Head, Incarnation, Position, ProcessId, event::decode_record,
    kernel::SnapshotState,
};
use clawnode_sim::{StoreChange, StoreReply, StoreRequest, World};
use rand::Rng;
use serde_bytes::ByteBuf;

use super::{
    JudgeViolation, Sim,
    any_machine::{ActivationPlace, MachineMessage},
    kinds::{Simulated, machine_of},
    plan::Poison,
    process::{Do, PendingOp, PlannedNote, Replaced},
};

/// Records of a journal that kills the process that folds it, at least.
const POISONED_AT: usize = 3;
/// The first and the longest wait before a read that failed is tried again, in milliseconds.
const READ_AGAIN: (u64, u64) = (50, 5_000);
/// Reads of a journal whose state is not there, before that is believed.
const MISSING_MOST: u32 = 8;
/// Bytes of a state from which on it is a blob: less than in production, so that some are.
pub(super) const STATE_INLINE: usize = 4 << 10;

impl Sim {
    /// Something for the actor of a session.
    pub(super) fn feed(
        &mut self,
        to: ProcessId,
        entity: EntityId,
        counter: u64,
        input: MachineInput<Session>,
    ) -> Result<(), JudgeViolation> {
        self.feed_as(ActivationPlace { process: to, entity, counter }, input)
    }

    pub(super) fn feed_as<K: Simulated>(
        &mut self,
        at: ActivationPlace,
        input: MachineInput<K>,
    ) -> Result<(), JudgeViolation> {
        let ActivationPlace { process: to, entity, counter } = at;
        let now = self.now(to);
        let Some(process) = self.processes.get_mut(&to) else { return Ok(()) };
        let Some(actor) = process.actor(entity, counter) else { return Ok(()) };
        if let MachineInput::Ended(key, _)
        | MachineInput::Gone(key)
        | MachineInput::Confirmed(key) = &input
        {
            K::ran(actor, key);
        }
        let Some(machine) = machine_of::<K>(&mut *actor.machine) else { return Ok(()) };
        let folds = !machine.is_folded() && !matches!(input, MachineInput::Erased { .. });
        let outs = machine.handle(now, input);
        if folds && machine.is_folded() && self.kills_in_the_fold(entity) {
            self.actor_dies(to, entity);
            return Ok(());
        }
        self.perform_all::<K>(at, outs)
    }

    /// Whether the journal as it is kills the process that folds it.
    fn kills_in_the_fold(&self, entity: EntityId) -> bool {
        self.plan.poison == Some(Poison::Fold)
            && self.poisoned == Some(entity)
            && self.world.journal(entity).len() >= POISONED_AT
    }

    pub(super) fn perform_all<K: Simulated>(
        &mut self,
        at: ActivationPlace,
        outs: Vec<MachineOutput<K>>,
    ) -> Result<(), JudgeViolation> {
        outs.into_iter().try_for_each(|out| self.perform_entity::<K>(at, out))
    }

    fn perform_entity<K: Simulated>(
        &mut self,
        at: ActivationPlace,
        out: MachineOutput<K>,
    ) -> Result<(), JudgeViolation> {
        let ActivationPlace { process: to, entity, counter } = at;
        let process = self.processes.get_mut(&to);
        if process.is_none_or(|process| process.actor(entity, counter).is_none()) {
            // It panicked half-way.
            return Ok(());
        }
        match out {
            MachineOutput::Load => self.work(to, entity, counter, Do::Load { tries: 0 }),
            MachineOutput::EnterProbation => self.enter_probation(to, entity, counter),
            MachineOutput::LeaveProbation { .. } => self.leave_probation(to, entity),
            MachineOutput::Append { wait, expected, write } => {
                let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                let wait = wait.max(self.rates_first(at, &write));
                self.silent_hurries(at, &write)?;
                let work = Do::Append { expected, write };
                self.work_after(to, wait, entity, counter, work);
            }
            MachineOutput::ReadBack { after } => {
                self.work(to, entity, counter, Do::ReadBack { after, tries: 0 });
            }
            MachineOutput::Acquire(effect, want) => K::acquire(self, at, effect, &want),
            MachineOutput::Start(effect, job) => return K::start(self, at, effect, &job),
            MachineOutput::Abort(effect) => K::abort(self, at, effect),
            MachineOutput::Complete(input) => {
                self.remark(to, || format!("completes {input}"));
                self.ledger.completing(entity, input)?;
                let partition = self.partition_of(entity);
                let done = partition::PartitionInput::Completed(entity, input);
                self.mail_dispatcher(to, partition, done);
            }
            MachineOutput::Archive { upto, state } => {
                self.work(to, entity, counter, Do::Archive { upto, state });
            }
            MachineOutput::Erase { state, .. } => {
                self.work(to, entity, counter, Do::Erase { state });
            }
            MachineOutput::Purge { upto, state } => {
                self.work(to, entity, counter, Do::Purge { upto, state });
            }
            MachineOutput::Scrub(blobs) => self.work(to, entity, counter, Do::Scrub { blobs }),
            // Best effort in production; here it is done at once, the worst that can happen to a
            // reader.
            MachineOutput::Discard(blobs) => {
                for digest in blobs {
                    self.world.submit(to, StoreRequest::RemoveBlob(digest));
                }
            }
            // Best effort in production; here the append alone must do.
            MachineOutput::TellFenced { .. } => {}
            MachineOutput::Release(effect) => return K::release(self, at, effect),
            MachineOutput::Stop(stop) => return self.stopped(to, entity, counter, &stop),
        }
        Ok(())
    }

    pub(super) fn mail_dispatcher(
        &mut self,
        to: ProcessId,
        partition: u16,
        what: partition::PartitionInput,
    ) {
        self.world.mail(to, u128::from(partition), PlannedNote::Dispatch(partition, what));
    }

    fn stopped(
        &mut self,
        to: ProcessId,
        entity: EntityId,
        counter: u64,
        stop: &ActivationEnd,
    ) -> Result<(), JudgeViolation> {
        self.remark(to, || format!("{entity} {stop:?}"));
        self.leave_probation(to, entity);
        let why = match stop {
            ActivationEnd::Passivated | ActivationEnd::Quarantined(_) => Gone::Idle,
            ActivationEnd::Released => Gone::Released,
            ActivationEnd::GaveWay => Gone::GaveWay,
            ActivationEnd::Fenced => Gone::Lost,
            ActivationEnd::Corrupt(_) if self.damaged == Some(entity) => Gone::Unservable,
            // Its own append was damaged before it was read back.
            ActivationEnd::Defect(text)
                if self.damaged == Some(entity) && text == "record is not readable" =>
            {
                Gone::Lost
            }
            // Nothing else in this world is damaged, and all are of one version: these are bugs.
            ActivationEnd::Defect(_)
            | ActivationEnd::Corrupt(_)
            | ActivationEnd::TooNew(_)
            | ActivationEnd::Diverged(_) => {
                let text = format!("{stop:?}");
                let by = Incarnation { process: to, counter };
                let name = if text.contains("(I2)") || text.contains("epoch") {
                    "I2"
                } else if text.contains("(I3") {
                    "I3"
                } else {
                    "X1"
                };
                return Err(JudgeViolation::new(name, format!("`{entity}` at `{by}`: {stop:?}")));
            }
        };
        if let Some(actor) =
            self.processes.get_mut(&to).and_then(|process| process.actor(entity, counter))
        {
            actor.stopped = true;
        }
        self.mail_dispatcher(
            to,
            self.partition_of(entity),
            partition::PartitionInput::Gone(entity, why),
        );
        self.session_calls_end(ActivationPlace { process: to, entity, counter })
    }

    // === operations ===

    pub(super) fn work_after(
        &mut self,
        to: ProcessId,
        wait: u64,
        entity: EntityId,
        counter: u64,
        work: Do,
    ) {
        if wait == 0 {
            self.work(to, entity, counter, work);
        } else {
            // Between half of it and all of it, as the other driver does.
            let wait = self.world.rng.random_range(wait / 2..=wait);
            self.world.later(to, wait, PlannedNote::Do(entity, counter, work));
        }
    }

    fn again(&mut self, to: ProcessId, tries: u32, entity: EntityId, counter: u64, work: Do) {
        let (first, most) = READ_AGAIN;
        let wait = (first << tries.min(10)).min(most);
        self.work_after(to, wait, entity, counter, work);
    }

    pub(super) fn work(&mut self, to: ProcessId, entity: EntityId, counter: u64, work: Do) {
        let runs = self
            .processes
            .get_mut(&to)
            .is_some_and(|process| process.actor(entity, counter).is_some());
        if !runs {
            return;
        }
        let request = match &work {
            Do::Load { .. } | Do::Archive { .. } | Do::Purge { .. } => {
                StoreRequest::Journal(entity, Position(0))
            }
            Do::LoadBlob { digest, .. } => StoreRequest::GetBlob(*digest),
            Do::Append { expected, write } => {
                StoreRequest::Append { entity, expected: *expected, write: write.clone() }
            }
            Do::ReadBack { after, .. } => StoreRequest::Journal(entity, *after),
            Do::ReadBackTail { .. } | Do::Erase { .. } => StoreRequest::Tail(entity),
            Do::Scrub { blobs } | Do::PurgePast { past: blobs, .. } => match blobs.last() {
                Some(digest) => StoreRequest::RemoveBlob(*digest),
                None => StoreRequest::Tail(entity),
            },
            Do::ArchiveRecords { content, .. } => StoreRequest::PutBlob(content.clone()),
            Do::ArchiveState { state, .. } | Do::PurgeState { state, .. } => {
                StoreRequest::PutBlob(state.clone())
            }
        };
        let ticket = self.world.submit(to, request);
        self.expect(to, ticket, PendingOp::Entity(entity, counter, work));
    }

    pub(super) fn worked(
        &mut self,
        to: ProcessId,
        entity: EntityId,
        counter: u64,
        work: Do,
        reply: StoreReply,
    ) -> Result<(), JudgeViolation> {
        self.silent_hears(ActivationPlace { process: to, entity, counter }, &work, &reply);
        let input = match (work, reply) {
            (Do::Load { tries }, StoreReply::Records(records)) => match snapshot_blob(&records) {
                Some(digest) => {
                    self.work(to, entity, counter, Do::LoadBlob { records, digest, tries });
                    return Ok(());
                }
                None => self.loaded(to, entity, counter, records, None)?,
            },
            // The read was older than the next snapshot, perhaps.
            (Do::LoadBlob { tries, .. }, StoreReply::Blob(None)) if tries < MISSING_MOST => {
                self.again(to, tries, entity, counter, Do::Load { tries: tries + 1 });
                return Ok(());
            }
            (Do::LoadBlob { records, .. }, StoreReply::Blob(snapshot)) => {
                self.loaded(to, entity, counter, records, snapshot)?
            }
            (Do::Load { tries } | Do::LoadBlob { tries, .. }, _) => {
                self.again(to, tries, entity, counter, Do::Load { tries: tries + 1 });
                return Ok(());
            }
            (Do::Append { .. }, StoreReply::Append(answer)) => MachineMessage::Answered(answer),
            (Do::Append { .. }, _) => {
                let detail = "no answer".to_owned();
                let failure = StoreError::Unavailable { store: "journal", detail };
                MachineMessage::Answered(AppendAnswer::Unknown(failure))
            }
            (Do::ReadBack { after, .. }, StoreReply::Records(records)) => {
                let work = Do::ReadBackTail { after, records, tries: 0 };
                self.work(to, entity, counter, work);
                return Ok(());
            }
            (Do::ReadBackTail { records, .. }, StoreReply::Tail(tail)) => {
                self.sees_others(ActivationPlace { process: to, entity, counter }, &records);
                let tail = tail.map_or(Position(0), |record| record.position);
                MachineMessage::ReadBack { after_expected: records, tail }
            }
            (Do::ReadBack { after, tries } | Do::ReadBackTail { after, tries, .. }, _) => {
                let work = Do::ReadBack { after, tries: tries + 1 };
                self.again(to, tries, entity, counter, work);
                return Ok(());
            }
            (Do::Erase { state }, _) => {
                let state = SnapshotState::Inline { bytes: ByteBuf::from(state.to_vec()) };
                MachineMessage::Erased(state)
            }
            (work @ (Do::Purge { .. } | Do::PurgeState { .. } | Do::PurgePast { .. }), reply) => {
                match self.purging(ActivationPlace { process: to, entity, counter }, work, reply) {
                    Some(input) => input,
                    None => return Ok(()),
                }
            }
            (work, reply) => match self.archiving(to, entity, counter, work, reply)? {
                Some(input) => input,
                None => return Ok(()),
            },
        };
        self.tell(ActivationPlace { process: to, entity, counter }, input)
    }

    /// Continues a snapshot or a deletion; once it has ended, gives the message for its machine.
    fn archiving(
        &mut self,
        to: ProcessId,
        entity: EntityId,
        counter: u64,
        work: Do,
        reply: StoreReply,
    ) -> Result<Option<MachineMessage>, JudgeViolation> {
        let (archive, state, replaced) = match (work, reply) {
            (Do::Archive { upto, state }, StoreReply::Records(records))
                if position_of(&records) == upto =>
            {
                let content = archive::pack(&records)
                    .map_err(|error| JudgeViolation::new("X1", error.to_string()))?;
                let positions = archive::positions(&records);
                let replaced = Replaced { positions, superseded: snapshot_blob(&records) };
                self.work(to, entity, counter, Do::ArchiveRecords { content, state, replaced });
                return Ok(None);
            }
            (Do::ArchiveRecords { state, replaced, .. }, StoreReply::Stored(archive))
                if state.len() > STATE_INLINE =>
            {
                let work = Do::ArchiveState { archive, state, replaced };
                self.work(to, entity, counter, work);
                return Ok(None);
            }
            (Do::ArchiveRecords { state, replaced, .. }, StoreReply::Stored(archive)) => {
                let bytes = ByteBuf::from(state.to_vec());
                (archive, SnapshotState::Inline { bytes }, replaced)
            }
            (Do::ArchiveState { archive, replaced, .. }, StoreReply::Stored(digest)) => {
                (archive, SnapshotState::Blob { digest }, replaced)
            }
            (Do::Scrub { mut blobs }, _) => {
                blobs.pop();
                if blobs.is_empty() {
                    return Ok(Some(MachineMessage::Scrubbed));
                }
                self.work(to, entity, counter, Do::Scrub { blobs });
                return Ok(None);
            }
            _ => return Ok(Some(MachineMessage::ArchiveFailed)),
        };
        let Replaced { positions, superseded } = replaced;
        let superseded = superseded.into_iter().collect();
        Ok(Some(MachineMessage::Archived { archive, state, superseded, positions }))
    }

    /// Whether an activation reads that another process has appended after it.
    fn sees_others(&mut self, at: ActivationPlace, records: &[Record]) {
        let ActivationPlace { process: to, entity, counter } = at;
        let own = Incarnation { process: to, counter };
        let events =
            records.iter().flat_map(|record| decode_record(&record.bytes).unwrap_or_default());
        // A bit of a journal may be damaged, but no bit of an event of its own makes both of these another's.
        let is_own = |head: &Head| {
            head.incarnation == own || head.eid == EventId::derive(entity, own, head.n)
        };
        let others = events.into_iter().any(|event| !is_own(&event.head));
        let process = self.processes.get_mut(&to);
        if let Some(actor) = process.and_then(|process| process.actor(entity, counter)) {
            actor.fenced |= others;
        }
    }

    fn loaded(
        &mut self,
        to: ProcessId,
        entity: EntityId,
        counter: u64,
        records: Vec<Record>,
        snapshot: Option<Bytes>,
    ) -> Result<MachineMessage, JudgeViolation> {
        self.recall_if_planted(to, entity, counter)?;
        Ok(MachineMessage::Loaded(LoadedJournal { records, snapshot }))
    }
}

/// What a snapshot's archive holds: all that it replaced.
pub(super) fn archived<D>(world: &World<D>, digest: Digest) -> Option<LoadedJournal> {
    let records = archive::unpack(&world.blob(digest)?).ok()?;
    let snapshot = snapshot_blob(&records).and_then(|digest| world.blob(digest));
    Some(LoadedJournal { records, snapshot })
}

/// The record that replaced all others, as anyone would load it.
pub(super) fn stored<D>(world: &World<D>, change: &StoreChange) -> LoadedJournal {
    let StoreChange::Appended { record, .. } = change else { return LoadedJournal::default() };
    let records = vec![record.clone()];
    let snapshot = snapshot_blob(&records).and_then(|digest| world.blob(digest));
    LoadedJournal { records, snapshot }
}
