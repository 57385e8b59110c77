//! Reads and questions for a dispatcher, by tasks of its own.

use std::time::Duration;

use bytes::Bytes;
use clawnode_cluster::{Peek, RequestError, WaitingInput};
use clawnode_proto::{
    EntityId, ErrorChain, Input, InputId, Position, ProcessId, codec,
    envelope::InputError,
    event::decode_record,
    kernel::RELEASED,
    limits::INPUT_STORED_BYTES,
    node::{NodeReply, NodeRequest},
};
use tracing::{debug, error, warn};

use super::WorkerContext;
use crate::{
    MissingCapability, OwnerSays, dead_letters,
    partition::{Arrived, LastWriter, PartitionInput},
};

/// How long one question to an owner may take.
const ASK_TIMEOUT: Duration = Duration::from_millis(300);
/// Requests to an owner that is held alive before it counts as silent once: with the two of the
/// machine, they take as long as silence takes to make it dead.
const ASKS_OF_THE_LIVING: u32 = 10;

pub(super) async fn read_inbox(
    context: &WorkerContext,
    entity: EntityId,
    after: Position,
) -> PartitionInput {
    match context.storage.inbox.read(entity, after).await {
        Ok(waiting) => {
            let arrived = |one: WaitingInput| (one.position, arrived(context, entity, one));
            PartitionInput::Inbox(entity, after, waiting.into_iter().map(arrived).collect())
        }
        Err(failure) => {
            warn!(%entity, %failure, "inbox cannot be read now; trying again");
            PartitionInput::ReadFailed(entity)
        }
    }
}

/// Decodes an inbox entry, as far as this process can.
pub(super) fn arrived(context: &WorkerContext, entity: EntityId, waiting: WaitingInput) -> Arrived {
    let WaitingInput { position, bytes } = waiting;
    if bytes.len() > INPUT_STORED_BYTES {
        let found = bytes.len();
        let reason = format!("it has {found} bytes, and {INPUT_STORED_BYTES} fit into an append");
        return Arrived::Unreadable { bytes, reason };
    }
    let reason = match Input::read(&bytes, context.speaks) {
        Ok(input) if input.entity != entity => format!("it is for `{}`", input.entity),
        Ok(input) => match context.kinds.get(input.kind) {
            Some(kind) if kind.understands(&input) => return Arrived::Input(input),
            Some(_) => format!("its body is nothing that a {} takes", input.kind),
            None => {
                let (input, needs) = (input.id, MissingCapability::Kind(input.kind));
                return Arrived::Foreign { input, needs, bytes };
            }
        },
        Err(failure @ InputError::TooNew { input, needs, .. }) => {
            debug!(%entity, %position, %failure, "an input is for newer nodes");
            return Arrived::Foreign { input, needs: MissingCapability::Input(needs), bytes };
        }
        Err(failure) => ErrorChain(&failure).to_string(),
    };
    Arrived::Unreadable { bytes, reason }
}

/// Keeps bytes that no node can read among the dead letters.
pub(super) async fn set_aside(
    context: &WorkerContext,
    entity: EntityId,
    position: Position,
    bytes: Bytes,
    reason: String,
) -> PartitionInput {
    let at = context.clock.now();
    match dead_letters::keep(&context.storage, entity, &bytes, reason.clone(), at).await {
        Ok(()) => {
            error!(%entity, %position, reason, "an input cannot be read; it is a dead letter now");
            PartitionInput::Aside(entity, position, true)
        }
        Err(failure) => {
            error!(%entity, %position, reason, %failure,
                "an input cannot be read; it stays in the inbox");
            PartitionInput::Aside(entity, position, false)
        }
    }
}

pub(super) async fn read_tail(context: &WorkerContext, entity: EntityId) -> PartitionInput {
    match context.storage.journal.tail(entity).await {
        Ok(None) => PartitionInput::Tail(entity, None),
        Ok(Some(record)) => match decode_record(&record.bytes) {
            Ok(events) => {
                let last = events.last().map(|event| LastWriter {
                    process: event.head.incarnation.process,
                    released: event.head.kind == RELEASED,
                });
                PartitionInput::Tail(entity, last)
            }
            // No node can read it: the activation says so and names the event.
            Err(_) => PartitionInput::Tail(entity, None),
        },
        Err(failure) => {
            warn!(%entity, %failure, "journal's tail cannot be read now; trying again");
            PartitionInput::ReadFailed(entity)
        }
    }
}

/// Asks an owner for an input. An owner that is held alive and does not answer is most likely about
/// to connect again, as this process may have just done. It is asked for longer, so that it is not
/// robbed in the middle of a call. If it is held dead meanwhile, this process claims the entity at
/// once.
pub(super) async fn ask_owner(
    context: &WorkerContext,
    process: ProcessId,
    entity: EntityId,
    input: InputId,
) -> OwnerSays {
    for _ in 1..ASKS_OF_THE_LIVING {
        let says = ask_once(context, process, entity, input).await;
        let lives =
            || context.peers.peek(|peers| peers.alive.iter().any(|one| one.process == process));
        if says != OwnerSays::Silent || !lives() {
            return says;
        }
    }
    ask_once(context, process, entity, input).await
}

async fn ask_once(
    context: &WorkerContext,
    process: ProcessId,
    entity: EntityId,
    input: InputId,
) -> OwnerSays {
    let subject = context.storage.prefix.rpc(process);
    let request = NodeRequest::Ask { entity, input, asker: Some(context.process) };
    let Ok(request) = codec::encode(&request) else {
        return OwnerSays::Silent;
    };
    let asked = context.storage.bus.request(subject, Bytes::from(request), ASK_TIMEOUT).await;
    match asked.map(|bytes| codec::decode::<NodeReply>(&bytes)) {
        Ok(Ok(NodeReply::Held)) => OwnerSays::Held,
        Ok(Ok(NodeReply::Completed)) => OwnerSays::Completed,
        Ok(Ok(NodeReply::NotMine)) => OwnerSays::NotMine,
        Ok(
            Ok(
                NodeReply::Ok
                | NodeReply::Frames { .. }
                | NodeReply::Tree { .. }
                | NodeReply::KillSwitch { .. }
                | NodeReply::JobLog { .. }
                | NodeReply::Cleaned { .. }
                | NodeReply::Embedded { .. }
                | NodeReply::NotEmbedded { .. }
                | NodeReply::StoreFound { .. },
            )
            | Err(_),
        ) => OwnerSays::Silent,
        Err(failure) => {
            debug!(%process, %entity, %failure, "an owner does not answer");
            if matches!(failure, RequestError::NoResponders { .. }) {
                // No heartbeat of it was heard, and no process listens there: it ended before this
                // process knew the others. Two signs, so it need not be asked again.
                if context.peers.peek(|peers| peers.holds_dead(process)) {
                    return OwnerSays::NotMine;
                }
                // The server says so at once, also of an owner that is about to connect again: two
                // such answers in a moment would be one.
                tokio::time::sleep(ASK_TIMEOUT).await;
            }
            OwnerSays::Silent
        }
    }
}
