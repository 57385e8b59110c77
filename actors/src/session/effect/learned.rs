//! Tells memories that a session is deleted, so that they mask what they learned from it.

use clawnode_kernel::EntityError;
use clawnode_proto::{
    EntityId, IdempotencyKey, Input, Kind, SessionKey, codec, memory::MemoryKey,
    memory_point::MemoryInput, memory_view::ListedMemory, subject::MEMORY_KEYS,
};
use tracing::warn;

use crate::session::clients::{client::Sessions, send_error::SendError};

/// Sends each memory that may know something of a session an input. A deletion that is tried again sends the same.
pub(super) async fn forget_learned(sessions: &Sessions, entity: EntityId) -> Result<(), SendError> {
    let core = match sessions.entities().core(entity).await {
        Ok(core) => core,
        // Its key is not known any more.
        Err(failure) if failure.is_damage() => return Ok(()),
        Err(failure) => return Err(failure.into()),
    };
    let Some(session) = core.key.and_then(|key| key.parse::<SessionKey>().ok()) else {
        return Ok(());
    };
    let Ok(name) = format!("forgets:{entity}:{}", core.tail.n.0).parse::<IdempotencyKey>() else {
        return Ok(());
    };
    let body = MemoryInput::ForgetSource { source: entity, by: format!("deletion of {entity}") };
    for memory in memories(sessions, &session).await? {
        let sent = sessions.now();
        match Input::new(Kind::MEMORY, &memory.to_string(), name.clone(), sent, &body) {
            Ok(input) => {
                sessions.storage().inbox.put(&input).await.map_err(EntityError::from)?;
            }
            Err(error) => warn!(%memory, %error, "cannot tell a memory of a deletion"),
        }
    }
    Ok(())
}

/// The memories that a session can have taught something: those of its agent and its peer, if they are there, and all
/// that are shared.
async fn memories(sessions: &Sessions, session: &SessionKey) -> Result<Vec<MemoryKey>, SendError> {
    let storage = sessions.storage();
    let mut memories = Vec::new();
    for memory in [MemoryKey::of_peer(session), MemoryKey::Agent(session.agent.clone())] {
        let position = storage.journal.position(memory.entity()).await;
        if position.map_err(EntityError::from)?.0 > 0 {
            memories.push(memory);
        }
    }
    let listed = storage.bucket.list(MEMORY_KEYS).await.map_err(EntityError::from)?;
    let listed = listed.into_iter().filter_map(|(_, entry)| {
        codec::decode::<ListedMemory>(&entry.value).ok().map(|listed| listed.memory)
    });
    memories.extend(listed.filter(|memory| matches!(memory, MemoryKey::Shared(_))));
    Ok(memories)
}
