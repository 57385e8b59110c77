//! A group commit: check, write, sync, answer, index.

use std::{collections::HashMap, ops::Bound, sync::PoisonError, time::Instant};

use bytes::Bytes;
use clawnode_cluster::{AppendAnswer, BucketEntry, BucketError, StoreError};
use clawnode_proto::{Capability, EntityId, JobId, Partition, Position, TimerId};
use tokio::sync::oneshot;
use tracing::{error, warn};

use super::{
    checkpoint::Cleaning,
    engine::{FOLLOWS, Fatal, WriteEngine},
    inbox,
    index::{Index, keys},
    jobs,
    log::WriteError,
    queue::{EngineOp, Queued},
    record::{RecordKind, split_due, split_timer},
    reply::{WriteReply, answer},
    staged::{InputChange, JobChange, Staged},
    timers,
};

/// Timers and expiries in one group at most; the rest are due in the next.
const DUE_AT_ONCE: usize = 256;
/// Journals whose last record is remembered (about 1 MiB); then it begins again.
const TAILS_MOST: usize = 16_384;
/// How long due timers wait after the disk refused them, in milliseconds.
const DUE_RETRY_MS: u64 = 1_000;

/// One group that is being put together.
#[derive(Debug, Default)]
struct CommitGroup {
    staged: Staged,
    replies: Vec<WriteReply>,
    /// Values that were set, for watchers.
    values: HashMap<String, BucketEntry>,
    /// Entities whose past was replaced.
    healed: Vec<EntityId>,
    /// The last record of each journal that the group extends.
    tails: HashMap<EntityId, Position>,
    /// Inputs to deliver before the group is written.
    puts: HashMap<Position, Bytes>,
    /// Inputs that were delivered so.
    early: Vec<Position>,
}

impl WriteEngine {
    /// Commits all waiting operations, and due timers.
    pub(super) fn commit(
        &mut self,
        ops: Vec<Queued>,
        acks: Vec<(EntityId, Position)>,
    ) -> Result<(), Fatal> {
        self.owed_acks.extend(acks);
        let now = self.shared.clock.now().0;
        let is_due = self.next_due.is_some_and(|due| due <= now);
        if ops.is_empty() && self.owed_acks.is_empty() && !is_due {
            return Ok(());
        }
        if self.log.wants_rotation() {
            match self.rotate() {
                Ok(()) => self.maybe_clean(),
                // The segment keeps growing meanwhile.
                Err(WriteError::Clean(error)) => warn!(%error, "cannot begin a new log segment"),
                Err(WriteError::Fatal(source)) => {
                    return Err(Fatal::Disk { action: "begin a segment of", source });
                }
            }
        }
        let mut group = CommitGroup::default();
        let mut came = ops.len();
        let mut acks = std::mem::take(&mut self.owed_acks);
        self.prepare(&mut group, ops, &acks, is_due.then_some(now))?;
        if self.log.staged_bytes() == 0 {
            return Ok(());
        }
        let is_alone = came == 1 && !self.crowd.is_there();
        if is_alone && self.hand_out(&mut group) {
            let followed = self.shared.queue.follow(Instant::now() + FOLLOWS);
            // The operations that follow from the input are of the same writer.
            came = followed.ops.len().max(came);
            self.prepare(&mut group, followed.ops, &followed.acks, None)?;
            acks.extend(followed.acks);
            self.hand_out(&mut group);
        }
        self.crowd.saw(came);
        if self.owes_sync {
            self.sync()?;
        }
        match self.log.write() {
            Ok(()) => {}
            Err(WriteError::Clean(error)) => {
                self.refuse(group, &error);
                self.owed_acks = acks;
                return Ok(());
            }
            Err(WriteError::Fatal(source)) => {
                return Err(Fatal::Disk { action: "take back a failed write to", source });
            }
        }
        if self.answer_before_sync {
            self.owes_sync = true;
        } else {
            self.sync()?;
        }
        self.publish(group)
    }

    /// Delivers the inputs of a group before it is written; says whether there are any.
    ///
    /// The records of their actors come after them in the log: those are durable only if the inputs
    /// are.
    fn hand_out(&self, group: &mut CommitGroup) -> bool {
        if group.puts.is_empty() {
            return false;
        }
        let mut deliveries = self.shared.deliveries();
        let mut rings = Vec::new();
        group.staged.inputs.retain(|change| {
            let InputChange::Added { entity, position, loc } = *change else { return true };
            let Some(bytes) = group.puts.remove(&position) else { return true };
            rings.push(deliveries.add_early(entity, position, loc, bytes));
            group.early.push(position);
            false
        });
        drop(deliveries);
        for partition in &rings {
            self.shared.ring(*partition);
        }
        !rings.is_empty()
    }

    fn sync(&mut self) -> Result<(), Fatal> {
        self.owes_sync = false;
        self.log.sync().map_err(|source| Fatal::Disk { action: "sync", source })
    }

    /// Checks operations in order and stages what is allowed.
    fn prepare(
        &mut self,
        group: &mut CommitGroup,
        ops: Vec<Queued>,
        acks: &[(EntityId, Position)],
        due: Option<u64>,
    ) -> Result<(), Fatal> {
        let shared = std::sync::Arc::clone(&self.shared);
        let guard = shared.index();
        let Some(index) = guard.as_ref() else { return Ok(()) };
        if let Some(now) = due {
            self.fire(index, group, now)?;
        }
        // First, because a caller that knows of the acknowledgement may put the job again.
        for &(entity, target) in acks {
            self.stage(index, group, RecordKind::Ack, entity, target, &[])?;
        }
        for queued in ops {
            self.prepare_one(index, group, queued.op)?;
        }
        Ok(())
    }

    /// Refuses new work if there is no room for it.
    fn check_room(&mut self, store: &'static str) -> Result<(), StoreError> {
        if self.has_room() {
            return Ok(());
        }
        let mib = self.shared.head_room >> 20;
        let detail = format!("less than {mib} MiB are free; make room on the disk");
        Err(StoreError::Full { store, detail })
    }

    fn prepare_one(
        &mut self,
        index: &Index,
        group: &mut CommitGroup,
        op: EngineOp,
    ) -> Result<(), Fatal> {
        match op {
            EngineOp::Append { entity, expected, write, reply } => {
                if self.tail(index, group, entity)? != expected {
                    answer(reply, AppendAnswer::Refused);
                    return Ok(());
                }
                let kind = if write.rollup {
                    group.healed.push(entity);
                    RecordKind::Rollup
                } else {
                    RecordKind::Append
                };
                let at = self.stage(index, group, kind, entity, Position(0), &[&write.bytes])?;
                group.tails.insert(entity, at);
                group.replies.push(WriteReply::Append(reply, at));
            }
            EngineOp::Put { entity, bytes, reply } => {
                if let Err(full) = self.check_room(inbox::STORE) {
                    answer(reply, Err(full));
                    return Ok(());
                }
                let kind = RecordKind::Put;
                let at = self.stage(index, group, kind, entity, Position(0), &[&bytes])?;
                group.puts.insert(at, bytes);
                group.replies.push(WriteReply::Position(reply, at, inbox::STORE));
            }
            EngineOp::JobPut { job, capability, bytes, reply } => {
                self.put_job(index, group, job, &capability, &bytes, reply)?;
            }
            EngineOp::ValuePut { key, expected, value, expires, reply } => {
                if self.value_position(index, group, &key)? != expected {
                    answer(reply, Err(BucketError::Conflict { key }));
                    return Ok(());
                }
                let key_len = u16::try_from(key.len()).unwrap_or(u16::MAX).to_be_bytes();
                let parts: [&[u8]; 4] = [&expires.to_be_bytes(), &key_len, key.as_bytes(), &value];
                let (kind, no_entity) = (RecordKind::BucketPut, EntityId::from_u128(0));
                let at = self.stage(index, group, kind, no_entity, Position(0), &parts)?;
                group.values.insert(key, BucketEntry { position: at, value });
                group.replies.push(WriteReply::Value(reply, at));
            }
            EngineOp::ValueDelete { key, expected, reply } => {
                if self.value_position(index, group, &key)? != expected {
                    answer(reply, Err(BucketError::Conflict { key }));
                    return Ok(());
                }
                let at = self.stage_value_delete(index, group, &key)?;
                group.replies.push(WriteReply::Value(reply, at));
            }
            EngineOp::TimerSet { entity, timer, due, input, reply } => {
                let parts: [&[u8]; 3] =
                    [&timer.as_u128().to_be_bytes(), &due.to_be_bytes(), &input];
                let kind = RecordKind::TimerSet;
                let at = self.stage(index, group, kind, entity, Position(0), &parts)?;
                group.replies.push(WriteReply::Position(reply, at, timers::STORE));
            }
            EngineOp::TimerCancel { entity, timer, reply } => {
                if group.staged.timer(index, entity, timer)?.is_none() {
                    answer(reply, Ok(Position(0)));
                    return Ok(());
                }
                let parts: [&[u8]; 1] = [&timer.as_u128().to_be_bytes()];
                let kind = RecordKind::TimerCancel;
                let at = self.stage(index, group, kind, entity, Position(0), &parts)?;
                group.replies.push(WriteReply::Position(reply, at, timers::STORE));
            }
            EngineOp::Checkpoint { reply } => self.checkpoints.push(reply),
            EngineOp::Scrub { reply } => self.ask_scrub(reply),
        }
        Ok(())
    }

    /// The position of a journal's last record, 0 for none.
    fn tail(
        &self,
        index: &Index,
        group: &CommitGroup,
        entity: EntityId,
    ) -> Result<Position, Fatal> {
        let known = group.tails.get(&entity).or_else(|| self.tails.get(&entity));
        Ok(known.map_or_else(|| group.staged.tail(index, entity), |at| Ok(*at))?)
    }

    /// Adds a record to the group.
    fn stage(
        &mut self,
        index: &Index,
        group: &mut CommitGroup,
        kind: RecordKind,
        entity: EntityId,
        target: Position,
        parts: &[&[u8]],
    ) -> Result<Position, Fatal> {
        let position = Position(self.next_position);
        let staged = self.log.stage(kind, entity, position, target, parts);
        // Only a log segment beyond 4 GiB cannot be counted in.
        let (header, loc) = staged.map_err(|source| Fatal::Disk { action: "extend", source })?;
        self.next_position += 1;
        // The header alone is enough for journals and inputs.
        let body = match kind {
            RecordKind::Append | RecordKind::Rollup | RecordKind::Put | RecordKind::Ack => None,
            _ => Some(parts.concat()),
        };
        group.staged.apply(index, &header, body.as_deref(), loc)?;
        Ok(position)
    }

    fn put_job(
        &mut self,
        index: &Index,
        group: &mut CommitGroup,
        job: JobId,
        capability: &Capability,
        bytes: &[u8],
        reply: oneshot::Sender<Result<Position, StoreError>>,
    ) -> Result<(), Fatal> {
        match group.staged.place_of_job(index, job, capability)? {
            // It waits in this group: that is true once the group is stored.
            Some((at, true)) => group.replies.push(WriteReply::Position(reply, at, jobs::STORE)),
            Some((at, false)) => answer(reply, Ok(at)),
            None => {
                if let Err(full) = self.check_room(jobs::STORE) {
                    answer(reply, Err(full));
                    return Ok(());
                }
                let name = capability.as_str().as_bytes();
                let len = [u8::try_from(name.len()).unwrap_or(u8::MAX)];
                let (kind, whose) = (RecordKind::JobPut, jobs::as_entity(job));
                let parts = [&len[..], name, bytes];
                let at = self.stage(index, group, kind, whose, Position(0), &parts)?;
                group.replies.push(WriteReply::Position(reply, at, jobs::STORE));
            }
        }
        Ok(())
    }

    fn stage_value_delete(
        &mut self,
        index: &Index,
        group: &mut CommitGroup,
        key: &str,
    ) -> Result<Position, Fatal> {
        group.values.remove(key);
        let no_entity = EntityId::from_u128(0);
        let parts: [&[u8]; 1] = [key.as_bytes()];
        self.stage(index, group, RecordKind::BucketDelete, no_entity, Position(0), &parts)
    }

    /// Where a value is, 0 if it is absent or has expired.
    fn value_position(
        &self,
        index: &Index,
        group: &CommitGroup,
        key: &str,
    ) -> Result<Position, Fatal> {
        let now = self.shared.lifetime();
        let value = group.staged.value(index, key)?;
        Ok(value
            .filter(|(expires, _, _)| *expires == 0 || *expires > now)
            .map_or(Position(0), |(_, position, _)| position))
    }

    /// Turns timers that are due into inputs, and removes values that have expired.
    fn fire(&mut self, index: &Index, group: &mut CommitGroup, now: u64) -> Result<(), Fatal> {
        let mut next = None;
        let mut soon = |moment: u64| next = Some(next.map_or(moment, |at: u64| at.min(moment)));
        let mut timers = Vec::new();
        index.each(keys::DUE, Bound::Unbounded, &mut |key, _| {
            let Some((due, entity, timer)) = keys::split_due(key) else { return true };
            if due > now || timers.len() == DUE_AT_ONCE {
                soon(due);
                return false;
            }
            timers.push((due, entity, timer));
            true
        })?;
        let mut expired = Vec::new();
        let lifetime = self.shared.lifetime();
        index.each(keys::EXPIRIES, Bound::Unbounded, &mut |key, _| {
            let Some((at, key)) = keys::split_expiry(key) else { return true };
            if at > lifetime || expired.len() == DUE_AT_ONCE {
                // By the clock, which may be ahead of the lifetime.
                soon(at.max(lifetime).saturating_add(now.saturating_sub(lifetime)));
                return false;
            }
            expired.push(key.to_owned());
            true
        })?;
        self.next_due = next;
        for (due, entity, timer) in timers {
            self.fire_one(index, group, due, entity, timer)?;
        }
        for key in expired {
            self.stage_value_delete(index, group, &key)?;
        }
        Ok(())
    }

    fn fire_one(
        &mut self,
        index: &Index,
        group: &mut CommitGroup,
        due: u64,
        entity: EntityId,
        timer: TimerId,
    ) -> Result<(), Fatal> {
        let Some((_, position, loc)) = group.staged.timer(index, entity, timer)? else {
            return Ok(());
        };
        let read = match self.shared.read(entity, position, loc) {
            // Tried again with the next due timer, or at the next start.
            Err(StoreError::Unavailable { .. }) => {
                group.staged.next_due = Some(due + DUE_RETRY_MS);
                return Ok(());
            }
            read => read,
        };
        let body = read.as_ref().ok().and_then(|(_, body)| split_timer(body));
        if let Some((_, input)) = body.and_then(|(_, rest)| split_due(rest)) {
            let parts: [&[u8]; 2] = [&timer.as_u128().to_be_bytes(), input];
            self.stage(index, group, RecordKind::Fired, entity, Position(0), &parts)?;
        } else {
            error!(%entity, %timer, "a stored timer is damaged and cannot fire");
            group.staged.set(keys::due(due, entity, timer), None);
        }
        Ok(())
    }

    /// The group was not written: none of it has happened.
    fn refuse(&mut self, group: CommitGroup, error: &std::io::Error) {
        warn!(%error, "the disk refused a write to the log; it was taken back");
        let mut deliveries = self.shared.deliveries();
        for position in &group.early {
            deliveries.remove(*position);
        }
        drop(deliveries);
        for reply in group.replies {
            reply.refused(error, &group.early);
        }
        self.room.read = None;
        if self.next_due.is_some() || group.staged.next_due.is_some() {
            self.next_due = Some(self.shared.clock.now().0 + DUE_RETRY_MS);
        }
    }

    /// The group is durable: answers, and makes the changes visible before a reader can look.
    fn publish(&mut self, group: CommitGroup) -> Result<(), Fatal> {
        let CommitGroup { mut staged, replies, mut values, healed, tails, early, .. } = group;
        if self.tails.len() >= TAILS_MOST {
            self.tails.clear();
        }
        self.tails.extend(tails);
        self.next_due = self.next_due.into_iter().chain(staged.next_due).min();
        self.log.count_live(std::mem::take(&mut staged.live));
        staged.set(keys::applied(), Some(self.applied().encode()));
        let shared = std::sync::Arc::clone(&self.shared);
        let mut guard = shared.index.write().unwrap_or_else(PoisonError::into_inner);
        for entity in healed {
            shared.heal(entity);
        }
        self.shared.deliveries().are_stored(&early);
        let rings = self.take_inputs(std::mem::take(&mut staged.inputs));
        self.take_jobs(std::mem::take(&mut staged.jobs));
        replies.into_iter().for_each(WriteReply::stored);
        for partition in rings {
            shared.ring(partition);
        }
        if let Some(index) = guard.as_mut() {
            index.accept(staged.take());
        }
        if !shared.watchers.is_empty() {
            for key in &staged.values {
                shared.watchers.tell(key, values.remove(key).as_ref());
            }
        }
        drop(guard);
        self.write_index()
    }

    /// Updates the waiting inputs; says which partitions can deliver something.
    pub(super) fn take_inputs(&self, changes: Vec<InputChange>) -> Vec<Partition> {
        let mut rings = Vec::new();
        let mut deliveries = self.shared.deliveries();
        for change in changes {
            match change {
                InputChange::Added { entity, position, loc } => {
                    rings.push(deliveries.add(entity, position, loc, false));
                }
                // A holder that acknowledged it has removed it already; a replayed one has not.
                InputChange::Removed { position } => drop(deliveries.remove(position)),
                InputChange::Moved { position, loc } => deliveries.relocate(position, loc),
            }
        }
        rings
    }

    /// Updates the waiting jobs.
    pub(super) fn take_jobs(&self, changes: Vec<JobChange>) {
        if changes.is_empty() {
            return;
        }
        let mut jobs = self.shared.jobs();
        for change in changes {
            match change {
                JobChange::Added { job, capability, position, loc } => {
                    jobs.hands.add(capability.clone(), job, position, loc, false);
                    jobs.ring_if_ready(&capability);
                }
                JobChange::Removed { position } => drop(jobs.hands.remove(position)),
                JobChange::Moved { position, loc } => jobs.hands.relocate(position, loc),
            }
        }
    }

    /// Begins a cleaning if it would free space or if a handle asked for one.
    pub(super) fn maybe_clean(&mut self) {
        if self.cleaning.is_none() {
            self.cleaning = Cleaning::plan(&self.log, !self.checkpoints.is_empty());
        }
    }
}
