//! One step: what happens to a process, given to its machines; what a dispatcher then does.

use std::collections::BTreeMap;

use clawnode_actors::session::Outcome;
use clawnode_kernel::{
    Activation, KernelBug, Machine, MachineInput, Now, OwnerSays, PreviousOwner,
    job_machine::JobIn,
    partition::{self, Arrived, HandleId, LastWriter, PartitionOutput},
};
use clawnode_proto::{
    EntityId, Incarnation, Input, InputId, Kind, ProcessId, Timestamp, event::decode_record,
    hook::HookTrail, kernel::RELEASED,
};
use clawnode_sim::{Delivered, RequestTicket, StoreReply, StoreRequest, Token};

use super::{
    CLIENTS, JudgeViolation, Sim,
    any_machine::{ActivationPlace, MachineMessage},
    jobs::AGAIN,
    kinds::{KINDS, Simulated},
    process::{Actor, PendingOp, PlannedNote},
};

/// Milliseconds between two ticks.
const TICK: u64 = 1_000;
/// Every how many ticks the entities hear of it.
const ENTITY_TICKS: u64 = 5;
/// How long one question to an owner may take, in milliseconds.
const ASK_TIMEOUT: u64 = 300;

impl Sim {
    /// The time, as the process's clock has it, and as it passes.
    pub(super) fn now(&self, process: ProcessId) -> Now {
        let skew = self.processes.get(&process).map_or(0, |one| one.skew);
        let steady = self.world.now();
        Now { wall: Timestamp(steady.0.saturating_add_signed(skew)), steady }
    }

    pub(super) fn partition_of(&self, entity: EntityId) -> u16 {
        entity.partition(self.plan.partitions).0
    }

    /// Remembers whose answer a ticket brings.
    pub(super) fn expect(&mut self, process: ProcessId, ticket: RequestTicket, op: PendingOp) {
        if process == CLIENTS {
            self.client_ops.insert(ticket, op);
        } else if let Some(process) = self.processes.get_mut(&process) {
            process.ops.insert(ticket, op);
        }
    }

    #[expect(clippy::too_many_lines, reason = "one flat match over what is planned")]
    pub(super) fn noted(&mut self, to: ProcessId, note: PlannedNote) -> Result<(), JudgeViolation> {
        match note {
            PlannedNote::Tick => self.tick(to),
            PlannedNote::Dispatch(partition, input) => self.dispatch(to, partition, input),
            PlannedNote::Feed(entity, counter, input) => self.feed(to, entity, counter, input),
            PlannedNote::Own(deed) => (deed.act)(self),
            PlannedNote::Tell(entity, counter, told) => {
                self.tell(ActivationPlace { process: to, entity, counter }, told)
            }
            PlannedNote::AskActor(entity, counter, ask, input) => {
                self.ask_actor(to, entity, counter, ask, input);
                Ok(())
            }
            PlannedNote::Do(entity, counter, work) => {
                self.work(to, entity, counter, work);
                Ok(())
            }
            PlannedNote::CallEnds(entity, counter, call, attempt) => {
                self.call_ends(to, entity, counter, call, attempt)
            }
            PlannedNote::ToolEnds(entity, counter, call) => {
                self.tool_ends(to, entity, counter, call)
            }
            PlannedNote::GiveAgain(giving) => self.give_again(to, *giving),
            PlannedNote::ReadJob(job) => {
                self.read_job(to, job);
                Ok(())
            }
            PlannedNote::JobLasts(job) => self.job_step(to, JobIn::Lasts(job)),
            PlannedNote::JobEnds(job, run) => self.job_ends(to, job, run),
            PlannedNote::Probes(job) => self.probes(to, &job),
            PlannedNote::Settles(entity, counter, key, settle) => {
                self.settles(ActivationPlace { process: to, entity, counter }, key, settle)
            }
            PlannedNote::CancelJob(job) => self.job_step(to, JobIn::Cancel(job)),
            PlannedNote::SendAgain(job, end) => {
                self.send_result(to, *job, end);
                Ok(())
            }
            PlannedNote::SetsTimer(entity, counter, key, timer) => {
                self.sets_timer(ActivationPlace { process: to, entity, counter }, key, &timer)
            }
            PlannedNote::Closes(ending) => self.closes(to, *ending),
            PlannedNote::Asked { by, number, entity, input } => {
                let Some(process) = self.processes.get_mut(&to) else { return Ok(()) };
                let ask = partition::AskId(process.number());
                process.asks.insert(ask, (by, number));
                let partition = self.partition_of(entity);
                self.dispatch(
                    to,
                    partition,
                    partition::PartitionInput::Asked(ask, entity, input, Some(by)),
                )
            }
            PlannedNote::Rung(entity, input) => {
                let Some(process) = self.processes.get_mut(&to) else { return Ok(()) };
                let ask = partition::AskId(process.number());
                let partition = self.partition_of(entity);
                self.dispatch(to, partition, partition::PartitionInput::Rung(ask, entity, input))
            }
            PlannedNote::Says(number, says) => self.owner_said(to, number, says),
            PlannedNote::Silent(number) => {
                let asked = self.processes.get(&to).and_then(|process| process.asked.get(&number));
                if let Some(entity) = asked.copied() {
                    self.judge.troubles(self.world.now().0, entity);
                }
                self.owner_said(to, number, OwnerSays::Silent)
            }
            PlannedNote::Fenced(entity, epoch) => {
                let actor = self.processes.get(&to).and_then(|process| process.actors.get(&entity));
                match actor.map(|actor| actor.counter) {
                    Some(counter) => self.tell(
                        ActivationPlace { process: to, entity, counter },
                        MachineMessage::Fenced(epoch),
                    ),
                    None => Ok(()),
                }
            }
            PlannedNote::GiveUp => {
                self.judge.befalls(self.world.now().0, to);
                if let Some(process) = self.processes.get_mut(&to) {
                    process.gave_up = true;
                }
                self.tell_all(to, || MachineMessage::GiveUp)
            }
            PlannedNote::Send(client) => {
                self.send(client);
                Ok(())
            }
            PlannedNote::Fate
            | PlannedNote::Spawn
            | PlannedNote::Declare(..)
            | PlannedNote::Returns
            | PlannedNote::Thaw(_)
            | PlannedNote::Operate
            | PlannedNote::LoseNodes
            | PlannedNote::LoseLeader
            | PlannedNote::LeaderSettles
            | PlannedNote::Calm
            | PlannedNote::Watch => self.fate(&note),
        }
    }

    pub(super) fn answered(
        &mut self,
        to: ProcessId,
        ticket: RequestTicket,
        reply: StoreReply,
    ) -> Result<(), JudgeViolation> {
        let ops = match self.processes.get_mut(&to) {
            Some(process) => &mut process.ops,
            None => &mut self.client_ops,
        };
        match ops.remove(&ticket) {
            Some(PendingOp::Put(client)) => {
                self.sent(client, &reply);
                Ok(())
            }
            Some(PendingOp::Inbox(entity, after)) => {
                let input = match reply {
                    StoreReply::Waiting(waiting) => {
                        let arrived = |(at, input)| (at, Arrived::Input(input));
                        let waiting = waiting.into_iter().map(arrived).collect();
                        partition::PartitionInput::Inbox(entity, after, waiting)
                    }
                    _ => partition::PartitionInput::ReadFailed(entity),
                };
                self.dispatch(to, self.partition_of(entity), input)
            }
            Some(PendingOp::Tail(entity)) => {
                let input = match reply {
                    StoreReply::Tail(record) => {
                        let events = record.and_then(|record| decode_record(&record.bytes).ok());
                        let last = events.as_ref().and_then(|events| events.last());
                        let last = last.map(|event| LastWriter {
                            process: event.head.incarnation.process,
                            released: event.head.kind == RELEASED,
                        });
                        partition::PartitionInput::Tail(entity, last)
                    }
                    _ => partition::PartitionInput::ReadFailed(entity),
                };
                self.dispatch(to, self.partition_of(entity), input)
            }
            Some(PendingOp::Scan(partition)) => match reply {
                StoreReply::Entities(entities) => {
                    self.dispatch(to, partition, partition::PartitionInput::Scanned(entities))
                }
                _ => Ok(()),
            },
            Some(PendingOp::Give(giving, step)) => self.given(to, giving, step, &reply),
            Some(PendingOp::JobState(job)) => self.job_state(to, job, reply),
            Some(PendingOp::JobSet(job)) => self.job_set(to, job, &reply),
            Some(PendingOp::Settle(entity, counter, key, _, end))
                if matches!(reply, StoreReply::Changed(Some(_))) =>
            {
                let outcome = Outcome::Tool(end, HookTrail::default());
                self.feed(to, entity, counter, MachineInput::Ended(key, outcome))
            }
            // Another process was faster, or it is unknown: it is looked at again.
            Some(PendingOp::Settle(entity, counter, key, settle, _)) => {
                self.world.later(to, AGAIN, PlannedNote::Settles(entity, counter, key, settle));
                Ok(())
            }
            Some(PendingOp::Close(ending)) => {
                self.closed(to, ending, &reply);
                Ok(())
            }
            Some(PendingOp::JobSent(job, end)) => self.job_sent(to, job, end, &reply),
            Some(PendingOp::HolderPut(account, input)) => {
                self.stored_for_holder(to, account, *input, &reply)
            }
            Some(PendingOp::Entity(entity, counter, work)) => {
                self.worked(to, entity, counter, work, reply)
            }
            None => Ok(()),
        }
    }

    pub(super) fn delivered(
        &mut self,
        to: ProcessId,
        delivered: Delivered,
    ) -> Result<(), JudgeViolation> {
        let Some(process) = self.processes.get_mut(&to) else { return Ok(()) };
        let handle = HandleId(process.number());
        process.handles.insert(handle, delivered.token);
        let Delivered { entity, token: Token(position), redelivered, foremost } = delivered;
        let foremost = foremost.map(|input| Arrived::Input(*input));
        let input = partition::PartitionInput::Delivered {
            entity,
            position,
            handle,
            redelivered,
            foremost,
        };
        self.dispatch(to, self.partition_of(entity), input)
    }

    fn tick(&mut self, to: ProcessId) -> Result<(), JudgeViolation> {
        let tick = self.long_tick().unwrap_or(TICK);
        self.world.later(to, tick, PlannedNote::Tick);
        let Some(process) = self.processes.get_mut(&to) else { return Ok(()) };
        process.ticks += 1;
        let (ticks, scans) = (process.ticks, process.ticks <= process.scans_until);
        for partition in 0..self.plan.partitions {
            self.dispatch(to, partition, partition::PartitionInput::Tick)?;
            let id = clawnode_proto::Partition(partition);
            if scans && self.world.first_of(id) == Some(to) {
                self.scan(to, partition);
            }
        }
        if ticks.is_multiple_of(ENTITY_TICKS) {
            self.job_progress(to);
            self.tell_all(to, || MachineMessage::Tick)?;
        }
        Ok(())
    }

    pub(super) fn scan(&mut self, process: ProcessId, partition: u16) {
        let id = clawnode_proto::Partition(partition);
        let ticket = self.world.submit(process, StoreRequest::Scan(id));
        self.expect(process, ticket, PendingOp::Scan(partition));
    }

    pub(super) fn tell_all(
        &mut self,
        to: ProcessId,
        what: impl Fn() -> MachineMessage,
    ) -> Result<(), JudgeViolation> {
        let Some(process) = self.processes.get(&to) else { return Ok(()) };
        let all: Vec<(EntityId, u64)> =
            process.actors.iter().map(|(entity, actor)| (*entity, actor.counter)).collect();
        let at = |(entity, counter)| ActivationPlace { process: to, entity, counter };
        all.into_iter().try_for_each(|one| self.tell(at(one), what()))
    }

    // === the dispatcher ===

    pub(super) fn dispatch(
        &mut self,
        to: ProcessId,
        partition: u16,
        input: partition::PartitionInput,
    ) -> Result<(), JudgeViolation> {
        // Waits are measured, so they do not depend on the clock.
        let now = self.world.now();
        let Some(process) = self.processes.get_mut(&to) else { return Ok(()) };
        if let partition::PartitionInput::Gone(entity, _) = &input {
            process.actors.remove(entity);
        }
        let Some(machine) = process.partitions.get_mut(usize::from(partition)) else {
            return Ok(());
        };
        for out in machine.handle(now, input) {
            self.perform(to, partition, out)?;
        }
        Ok(())
    }

    fn perform(
        &mut self,
        to: ProcessId,
        partition: u16,
        out: PartitionOutput,
    ) -> Result<(), JudgeViolation> {
        match out {
            PartitionOutput::ReadInbox(entity, after) => {
                self.ask_store(
                    to,
                    StoreRequest::Inbox(entity, after),
                    PendingOp::Inbox(entity, after),
                );
            }
            PartitionOutput::ReadTail(entity) => {
                self.ask_store(to, StoreRequest::Tail(entity), PendingOp::Tail(entity));
            }
            PartitionOutput::AskOwner(owner, entity, input) => {
                self.ask_owner(to, owner, entity, input);
            }
            // Everything in this world can be read.
            PartitionOutput::SetAside(entity, position, ..) => {
                let text = format!("input {position} of `{entity}` is put aside");
                return Err(JudgeViolation::new("X1", text));
            }
            PartitionOutput::Activate(entity, kind, activation, previous_owner) => {
                return self.activates(to, entity, kind, activation, previous_owner);
            }
            PartitionOutput::Deliver(entity, inputs) => {
                self.deliver(to, partition, entity, inputs);
            }
            PartitionOutput::AskActor(ask, entity, input) => {
                let known = self.mail_actor(to, entity, |counter| {
                    PlannedNote::AskActor(entity, counter, ask, input)
                });
                if !known {
                    self.says(to, ask, OwnerSays::NotMine);
                }
            }
            PartitionOutput::AnswerHeld(ask) => self.says(to, ask, OwnerSays::Held),
            PartitionOutput::AnswerNotMine(ask) => self.says(to, ask, OwnerSays::NotMine),
            // Best effort: no process waits for the answer to a ring.
            PartitionOutput::AnswerRung(_) => {}
            PartitionOutput::Ring(process, entity, input) => {
                self.world.send(process, PlannedNote::Rung(entity, input));
            }
            // Best effort, too, and placement may be wrong: any other one.
            PartitionOutput::RingNext(entity, input) => {
                let other = self.processes.keys().find(|other| **other != to).copied();
                if let Some(other) = other {
                    self.world.send(other, PlannedNote::Rung(entity, input));
                }
            }
            // All processes of this world are of one version.
            PartitionOutput::Forward(entity, ..) => {
                let came =
                    partition::PartitionInput::Forwarded(entity, partition::Forwarded::NotNow);
                self.mail_dispatcher(to, partition, came);
            }
            PartitionOutput::Ack(handle) => {
                self.answer_delivery(to, handle, true, StoreRequest::Ack);
            }
            PartitionOutput::Progress(handle) => {
                self.answer_delivery(to, handle, false, StoreRequest::Progress);
            }
            PartitionOutput::Nak(handle, wait) => {
                self.answer_delivery(to, handle, true, |token| StoreRequest::Nak(token, wait));
            }
            PartitionOutput::Forget(handle) => {
                if let Some(process) = self.processes.get_mut(&to) {
                    process.handles.remove(&handle);
                }
            }
            PartitionOutput::Drained => self.drained(to),
        }
        Ok(())
    }

    fn deliver(&mut self, to: ProcessId, partition: u16, entity: EntityId, inputs: Vec<Input>) {
        if self.planted == KernelBug::AckBeforeJournal {
            for input in &inputs {
                let done = partition::PartitionInput::Completed(entity, input.id);
                let note = PlannedNote::Dispatch(partition, done);
                self.world.mail(to, u128::from(partition), note);
            }
        }
        self.mail_actor(to, entity, |counter| {
            PlannedNote::Tell(entity, counter, MachineMessage::Deliver(inputs))
        });
    }

    fn ask_owner(&mut self, by: ProcessId, owner: ProcessId, entity: EntityId, input: InputId) {
        let Some(process) = self.processes.get_mut(&by) else { return };
        let number = process.number();
        process.asked.insert(number, entity);
        self.world.send(owner, PlannedNote::Asked { by, number, entity, input });
        self.world.later(by, ASK_TIMEOUT, PlannedNote::Silent(number));
    }

    fn ask_store(&mut self, from: ProcessId, request: StoreRequest, op: PendingOp) {
        let ticket = self.world.submit(from, request);
        self.expect(from, ticket, op);
    }

    fn answer_delivery(
        &mut self,
        from: ProcessId,
        handle: HandleId,
        last: bool,
        request: impl FnOnce(Token) -> StoreRequest,
    ) {
        let Some(process) = self.processes.get_mut(&from) else { return };
        let token = if last {
            process.handles.remove(&handle)
        } else {
            process.handles.get(&handle).copied()
        };
        if let Some(token) = token {
            self.world.submit(from, request(token));
        }
    }

    /// Puts something into the mailbox of an entity's actor; says whether there is one.
    fn mail_actor(
        &mut self,
        process: ProcessId,
        entity: EntityId,
        what: impl FnOnce(u64) -> PlannedNote,
    ) -> bool {
        let actor = self.processes.get(&process).and_then(|process| process.actors.get(&entity));
        let Some(counter) = actor.map(|actor| actor.counter) else { return false };
        self.world.mail(process, entity.as_u128(), what(counter));
        true
    }

    fn activates(
        &mut self,
        to: ProcessId,
        entity: EntityId,
        kind: Kind,
        activation: Activation,
        previous_owner: PreviousOwner,
    ) -> Result<(), JudgeViolation> {
        let row = KINDS.iter().find(|row| row.kind == kind);
        row.map_or(Ok(()), |row| (row.activate)(self, to, entity, activation, previous_owner))
    }

    pub(super) fn activate<K: Simulated>(
        &mut self,
        to: ProcessId,
        entity: EntityId,
        activation: Activation,
        previous_owner: PreviousOwner,
    ) -> Result<(), JudgeViolation> {
        let now = self.now(to);
        let mut options = self.plan.machine;
        if options.planted == KernelBug::AnswersBeforeAppend && K::KIND != Kind::BUDGET {
            options.planted = KernelBug::None;
        }
        let Some(process) = self.processes.get_mut(&to) else { return Ok(()) };
        let counter = process.number();
        let incarnation = Incarnation { process: to, counter };
        let (machine, outs) = Machine::new(entity, incarnation, activation, options, now);
        let machine = Box::new(machine.after(previous_owner));
        let actor =
            Actor { counter, machine, stopped: false, fenced: false, running: BTreeMap::new() };
        process.actors.insert(entity, actor);
        self.perform_all::<K>(ActivationPlace { process: to, entity, counter }, outs)
    }
}
