//! Answers the methods `memory.…`: reads journals of memories, and stores inputs for them.

use std::{collections::BTreeSet, time::Duration};

use clawnode_actors::{
    agent::Agents,
    session::{SendError, Sessions},
};
use clawnode_cluster::{Peek as _, WaitingInput};
use clawnode_gateway::HandlerResult;
use clawnode_kernel::{Entity, EntityError, Service};
use clawnode_memory::{
    Memory,
    points::{MemoryState, points_most},
    serve::{FillError, ServedStore},
    store::{MemoryStore as _, StoreScope},
};
use clawnode_proto::{
    AgentName, Cursor, ErrorBody, ErrorCode, IdempotencyKey, Input, InputId, Position,
    api::Method,
    codec,
    limits::{MEMORY_BYTES, MEMORY_FOUND},
    memory::MemoryKey,
    memory_point::{MemoryInput, PointRefusal},
    memory_view::{
        ListedMemory, MemoryList, MemoryPoints, MemoryPutParams, MemoryPutView,
        MemoryReindexParams, MemorySearchParams, MemorySearchView, MemoryShowParams,
        MemoryStoreView,
    },
    subject::MEMORY_KEYS,
    view::WarningView,
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tracing::warn;

use super::{embedding_model, listed_points, memory_search};
use crate::{config::nearest, node::overview::NodeInfo};

/// Journals that are read at the same time.
pub(super) const READS_MOST: usize = 16;
/// How long a change may take before the person is asked to look again: an owner may have to be found
/// dead first.
const CHANGED_WITHIN: Duration = Duration::from_secs(20);
/// How often its end is looked for, at first and at most.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

/// The memories of a cluster, for people.
#[derive(Clone, Debug)]
pub struct MemoryAnswers {
    pub(super) sessions: Sessions,
    agents: Agents,
    pub(super) node: NodeInfo,
    pub(super) served: ServedStore,
}

// === impl MemoryAnswers ===

impl MemoryAnswers {
    /// At the node of these.
    pub(in crate::node) fn new(
        sessions: Sessions,
        agents: Agents,
        node: NodeInfo,
        served: ServedStore,
    ) -> Self {
        Self { sessions, agents, node, served }
    }

    // === Looking ===

    /// Answers `memory.list`.
    pub(in crate::node) async fn list(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> HandlerResult<MemoryList> {
        const LIST: Method = Method::MemoryList;
        let after = after.map(|cursor| cursor.read::<MemoryKey>(LIST)).transpose()?;
        let keys = self.keys().await?.into_iter();
        let mut keys = keys.filter(|key| after.as_ref().is_none_or(|after| key > after));
        let page: Vec<MemoryKey> = keys.by_ref().take(limit).collect();
        let last = page.last().cloned().filter(|_| keys.next().is_some());
        let next = last.map(|key| Cursor::new(LIST, key));
        let read = |key: MemoryKey| async move {
            match self.load(&key).await {
                Err(failure) if failure.code != ErrorCode::Unavailable => {
                    warn!(%key, failure = failure.message, "cannot read a memory");
                    Ok(None)
                }
                memory => Ok::<_, ErrorBody>(memory?.map(|memory| memory.state.stats(key))),
            }
        };
        let read = stream::iter(page.into_iter().map(read)).buffered(READS_MOST);
        let memories = read.try_filter_map(|view| async move { Ok(view) }).try_collect().await?;
        Ok(MemoryList { memories, next })
    }

    /// Answers `memory.show`.
    pub(in crate::node) async fn show(
        &self,
        params: &MemoryShowParams,
    ) -> HandlerResult<MemoryPoints> {
        let memory = self.existing(&params.memory).await?;
        Ok(listed_points::page(&memory.state, params, self.sessions.now())?)
    }

    // === Searching ===

    /// Warns if the store of this node cannot be used, or lacks what journals have for a while, or vectors.
    pub(in crate::node) fn behind(&self) -> impl Iterator<Item = WarningView> {
        let behind = || memory_search::behind(self.served.progress(), self.sessions.now());
        let behind = self.served.away().map(memory_search::away).or_else(behind);
        behind.into_iter().chain(embedding_model::failing(&self.served))
    }

    /// Answers `memory.search`.
    pub(in crate::node) async fn search(
        &self,
        params: MemorySearchParams,
    ) -> HandlerResult<MemorySearchView> {
        let scopes = memory_search::scopes(&params)?;
        if let Some(memory) = &params.memory {
            self.existing(memory).await?;
        }
        let k = usize::try_from(params.limit.unwrap_or(MEMORY_FOUND)).unwrap_or(usize::MAX);
        let query = memory_search::query(params.query);
        let found = self.served.search(&scopes, &query, k).await.map_err(FillError::from)?;
        Ok(memory_search::view(found, self.served.name()))
    }

    /// Answers `memory.reindex`.
    pub(in crate::node) async fn reindex(
        &self,
        params: MemoryReindexParams,
    ) -> HandlerResult<MemoryStoreView> {
        if params.all {
            self.served.refill_all();
        } else {
            for scope in memory_search::to_refill(&params)? {
                let holder = self.served.held_by(&scope);
                let missing = self.missing(&params, &scope).await?;
                // What this node has of it goes in any case.
                self.served.refill(&scope).await?;
                if let Some(missing) = missing {
                    return Err(missing);
                }
                if let Some(holder) = holder {
                    return Err(self.node.members.peek(|members| {
                        let known = members.alive.iter().find(|alive| alive.process == holder);
                        memory_search::held_elsewhere(&scope, holder, known)
                    }));
                }
            }
        }
        let now = self.sessions.now();
        Ok(memory_search::progress(self.served.progress(), now, self.served.name()))
    }

    /// Why there is nothing that this scope could be filled from, if there is nothing.
    async fn missing(
        &self,
        params: &MemoryReindexParams,
        scope: &StoreScope,
    ) -> HandlerResult<Option<ErrorBody>> {
        if let Some(memory) = params.memory.as_ref().filter(|_| scope.memory().is_some()) {
            let found = self.existing(memory).await.map(drop);
            return Ok(found.err().filter(|failure| failure.code == ErrorCode::NotFound));
        }
        let core = self.sessions.entities().core(scope.entity()).await?;
        let session = params.session.clone().unwrap_or_default();
        Ok(core.key.is_none().then(|| SendError::NotFound { session }.into()))
    }

    // === Changing ===

    /// Answers `memory.put`.
    pub(in crate::node) async fn put(
        &self,
        params: MemoryPutParams,
    ) -> HandlerResult<MemoryPutView> {
        let MemoryPutParams { memory: key, points, key: name } = params;
        let points = listed_points::learned(points)?;
        if self.load(&key).await?.is_none() {
            self.may_begin(&key)?;
        }
        let name = name.unwrap_or_else(|| ulid::Ulid::generate().to_string());
        // Points of an export may be of another cluster, where their sources are other events.
        let are_exported = points.iter().any(|point| point.source.is_some());
        let body =
            if are_exported { MemoryInput::Import { points } } else { MemoryInput::Put { points } };
        let input = self.store(&key, &name, &body).await?;
        let has_all =
            |memory: &Entity<Memory>| memory.core.has(input) && !memory.state.is_waiting(input);
        let state = self.changed(&key, has_all).await?;
        let Some(answer) = state.answer(input) else {
            // It is a repeat of a request that is long past.
            return Ok(MemoryPutView::default());
        };
        let answer = answer.clone();
        if answer.added.is_empty()
            && answer.known.is_empty()
            && answer.refused.iter().any(|refused| refused.reason == PointRefusal::Full)
        {
            return Err(full(&key));
        }
        let (added, known, refused) = (answer.added, answer.known, answer.refused);
        Ok(MemoryPutView { added, known, refused })
    }

    /// Stores an input for a memory.
    pub(super) async fn store(
        &self,
        key: &MemoryKey,
        name: &str,
        body: &MemoryInput,
    ) -> HandlerResult<InputId> {
        let name: IdempotencyKey = format!("memory:{name}").parse().map_err(|error| {
            ErrorBody::new(ErrorCode::InvalidParams, format!("parameter `key`: {error}"))
        })?;
        let input = Memory::input(key, name, self.sessions.now(), body)
            .map_err(|error| ErrorBody::new(ErrorCode::Internal, error.to_string()))?;
        self.sessions.storage().inbox.put(&input).await.map_err(EntityError::from)?;
        Ok(input.id)
    }

    /// The memory once this is so.
    pub(super) async fn changed(
        &self,
        key: &MemoryKey,
        is_so: impl Fn(&Entity<Memory>) -> bool,
    ) -> HandlerResult<MemoryState> {
        let find =
            |memory: Option<Entity<Memory>>| memory.filter(&is_so).map(|memory| memory.state);
        self.awaited(key, find).await
    }

    /// Waits until something is found in a memory.
    pub(super) async fn awaited<T>(
        &self,
        key: &MemoryKey,
        find: impl Fn(Option<Entity<Memory>>) -> Option<T>,
    ) -> HandlerResult<T> {
        let done = async {
            let mut wait = LOOK_AGAIN.0;
            loop {
                match self.load(key).await {
                    Ok(memory) => {
                        if let Some(found) = find(memory) {
                            return Ok(found);
                        }
                    }
                    Err(failure) if failure.code == ErrorCode::Unavailable => {}
                    Err(failure) => return Err(failure),
                }
                tokio::time::sleep(wait).await;
                wait = LOOK_AGAIN.1.min(wait * 2);
            }
        };
        let done = tokio::time::timeout(CHANGED_WITHIN, done).await;
        done.unwrap_or_else(|_elapsed| Err(without_effect(key)))
    }

    /// Waits until the owner of a memory has acknowledged an input: all that follows from it is done then.
    pub(super) async fn acknowledged(&self, key: &MemoryKey, input: InputId) -> HandlerResult<()> {
        let inbox = &self.sessions.storage().inbox;
        let done = async {
            loop {
                // A store that fails is asked again.
                let waiting = inbox.read(key.entity(), Position(0)).await;
                let is_it = |waiting: &WaitingInput| {
                    codec::decode::<Input>(&waiting.bytes).is_ok_and(|waiting| waiting.id == input)
                };
                if waiting.is_ok_and(|all| !all.iter().any(is_it)) {
                    return;
                }
                tokio::time::sleep(LOOK_AGAIN.1).await;
            }
        };
        let done = tokio::time::timeout(CHANGED_WITHIN, done).await;
        done.map_err(|_elapsed| without_effect(key))
    }

    /// Refuses the memory of an agent that the configuration does not have.
    fn may_begin(&self, key: &MemoryKey) -> HandlerResult<()> {
        let (MemoryKey::Agent(agent) | MemoryKey::Peer { agent, .. }) = key else { return Ok(()) };
        let names = self.agents.names();
        if names.contains(agent) {
            return Ok(());
        }
        let near = nearest(agent.as_str(), names.iter().map(AgentName::as_str));
        let meant = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
        let what = format!("the configuration has no agent `{agent}`");
        Err(ErrorBody::new(ErrorCode::NotFound, what)
            .hint(format!("{meant}`clawnode agents list` shows the agents there are")))
    }

    // === Reading ===

    /// The memory as its journal has it; nothing if it has none.
    async fn load(&self, key: &MemoryKey) -> HandlerResult<Option<Entity<Memory>>> {
        let id = key.entity();
        let loaded = self.sessions.entities().load(id).await.map_err(EntityError::from)?;
        if loaded.records.is_empty() {
            return Ok(None);
        }
        let memory = Entity::<Memory>::of(id, &loaded).map_err(EntityError::from)?;
        match &memory.core.service {
            Service::Active => Ok(Some(memory)),
            Service::Deleted => Ok(None),
            Service::Quarantined { reason } => {
                let what = format!("the memory `{key}` is out of service: {reason}");
                Err(ErrorBody::new(ErrorCode::Quarantined, what)
                    .hint(format!("`clawnode quarantine show {id}` shows why, and what waits")))
            }
        }
    }

    pub(super) async fn existing(&self, key: &MemoryKey) -> HandlerResult<Entity<Memory>> {
        if let Some(memory) = self.load(key).await? {
            return Ok(memory);
        }
        let names: Vec<String> = self.keys().await?.iter().map(ToString::to_string).collect();
        let key = key.to_string();
        let near = nearest(&key, names.iter().map(String::as_str)).filter(|near| *near != key);
        let meant = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
        let what = format!("the memory `{key}` has no points");
        Err(ErrorBody::new(ErrorCode::NotFound, what)
            .hint(format!("{meant}`clawnode memory list` shows the memories there are")))
    }

    /// The memories that the bucket lists.
    async fn keys(&self) -> HandlerResult<BTreeSet<MemoryKey>> {
        let bucket = &self.sessions.storage().bucket;
        let mut keys = BTreeSet::new();
        for (name, entry) in bucket.list(MEMORY_KEYS).await.map_err(EntityError::from)? {
            match codec::decode::<ListedMemory>(&entry.value) {
                Ok(listed) => {
                    keys.insert(listed.memory);
                }
                Err(error) => warn!(name, %error, "cannot read which memory this is"),
            }
        }
        Ok(keys)
    }
}

fn without_effect(key: &MemoryKey) -> ErrorBody {
    let what = format!("the change of `{key}` is stored, and has no effect yet");
    let hint =
        format!("a worker makes it: see `clawnode status`, then `clawnode memory show {key}`");
    ErrorBody::new(ErrorCode::Unavailable, what).hint(hint)
}

fn full(key: &MemoryKey) -> ErrorBody {
    let points = points_most();
    let what = format!(
        "the memory `{key}` is full: what persons and operators said fills its {points} points or {MEMORY_BYTES} bytes"
    );
    ErrorBody::new(ErrorCode::Conflict, what).hint(format!(
        "forget some of it (`clawnode memory show {key}`, then `clawnode memory forget {key} POINT`), or \
         raise `[memory] points`, if that is the limit that it has reached"
    ))
}
