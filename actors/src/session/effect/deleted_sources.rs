//! Tells memories that a session is deleted, so that they mask what they learned from it.

use std::ops::RangeInclusive;

use clawnode_cluster::StoreError;
use clawnode_kernel::{Core, Entity, EntityError, Service};
use clawnode_memory::Memory;
use clawnode_proto::{
    EntityId, IdempotencyKey, Input, Kind, Position, SessionKey, Timestamp, codec,
    memory::MemoryKey, memory_point::MemoryInput, memory_view::ListedMemory, subject::MEMORY_KEYS,
};
use tracing::warn;

use crate::session::clients::{send_error::SendError, sessions::Sessions};

/// Sends each memory that may know something of a session an input. It is the same if the deletion is tried again by the
/// same owner. What was learned at other times than `lifetime` is of a session of another cluster, if that is known.
pub(super) async fn forget_learned(
    sessions: &Sessions,
    entity: EntityId,
    lifetime: Option<RangeInclusive<Timestamp>>,
) -> Result<(), SendError> {
    // Also of a journal that is damaged, or of a newer build: its key is at its beginning.
    let core = match sessions.entities().load(entity).await {
        Ok(loaded) => Core::salvaged(entity, &loaded),
        Err(StoreError::Corrupt { .. }) => return Ok(()),
        Err(failure) => return Err(EntityError::from(failure).into()),
    };
    let Some(session) = core.key.and_then(|key| key.parse::<SessionKey>().ok()) else {
        return Ok(());
    };
    let Ok(name) = format!("forgets:{entity}:{}", core.tail.n.0).parse::<IdempotencyKey>() else {
        return Ok(());
    };
    let (since, until) = lifetime.map(RangeInclusive::into_inner).unzip();
    let by = format!("deletion of {entity}");
    let body = MemoryInput::ForgetSource { source: entity, by, since, until };
    for memory in memories(sessions, &session).await? {
        if !may_know(sessions, &memory, entity).await? {
            continue;
        }
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

/// Whether a memory may have learned something of this entity. Most have not, and each input that they take is remembered
/// for days.
async fn may_know(
    sessions: &Sessions,
    memory: &MemoryKey,
    source: EntityId,
) -> Result<bool, SendError> {
    let (storage, id) = (sessions.storage(), memory.entity());
    // What waits for it may be what was learned.
    if storage.inbox.pending(id).await.map_err(EntityError::from)? > 0 {
        return Ok(true);
    }
    if storage.journal.position(id).await.map_err(EntityError::from)? == Position(0) {
        return Ok(false);
    }
    let loaded = match sessions.entities().load(id).await {
        Ok(loaded) => loaded,
        Err(StoreError::Corrupt { .. }) => return Ok(true),
        Err(failure) => return Err(EntityError::from(failure).into()),
    };
    // One that this build cannot read reads the input later.
    Ok(Entity::<Memory>::of(id, &loaded).map_or(true, |memory| {
        memory.core.service != Service::Deleted && memory.state.may_know_of(source)
    }))
}

/// The memories that a session can have taught something: those of its agent and its peer, and all that are shared and
/// listed.
async fn memories(sessions: &Sessions, session: &SessionKey) -> Result<Vec<MemoryKey>, SendError> {
    let storage = sessions.storage();
    let mut memories = vec![MemoryKey::of_peer(session), MemoryKey::Agent(session.agent.clone())];
    let listed = storage.bucket.list(MEMORY_KEYS).await.map_err(EntityError::from)?;
    let listed = listed.into_iter().filter_map(|(_, entry)| {
        codec::decode::<ListedMemory>(&entry.value).ok().map(|listed| listed.memory)
    });
    memories.extend(listed.filter(|memory| matches!(memory, MemoryKey::Shared(_))));
    Ok(memories)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clawnode_cluster::{AppendAnswer, Clock, SystemClock, Write};
    use clawnode_local::LocalOptions;

    use super::*;
    use crate::session::{
        effect::erase::erase,
        played::{PlayedActivation, key},
    };

    /// A session with the same key may have taught something on another cluster, at other times.
    #[tokio::test]
    async fn a_memory_hears_when_a_deleted_session_lived() {
        let dir = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let options = LocalOptions::new("cn".parse().unwrap(), Arc::clone(&clock));
        let (storage, _control) = clawnode_local::open(dir.path(), options).unwrap();
        let sessions = Sessions::new(storage.clone(), clock);
        let mut run = PlayedActivation::new(&[], Vec::new());
        run.says("hi");
        run.now.wall = Timestamp(9);
        run.replies(&[]);
        let (session, mut expected) = (key().entity(), Position(0));
        for record in &run.journal {
            let write = Write { bytes: record.bytes.clone(), rollup: false };
            match storage.journal.append(session, expected, write).await {
                AppendAnswer::Stored(position) => expected = position,
                answer => panic!("{answer:?}"),
            }
        }
        // What waits for a memory may be what it learns of the session.
        let memory = MemoryKey::of_peer(&key());
        let put = MemoryInput::Put { points: Vec::new() };
        let put = Memory::input(&memory, "put".parse().unwrap(), Timestamp(1), &put).unwrap();
        storage.inbox.put(&put).await.unwrap();
        erase(&sessions, session, &[]).await.unwrap();
        let waiting = storage.inbox.read(memory.entity(), Position(0)).await.unwrap();
        let input: Input = codec::decode(&waiting.last().unwrap().bytes).unwrap();
        let body: MemoryInput = codec::decode(&input.body).unwrap();
        let MemoryInput::ForgetSource { source, since, until, .. } = body else {
            panic!("{body:?}")
        };
        assert_eq!((source, since, until), (session, Some(Timestamp(1)), Some(Timestamp(9))));
    }
}
