//! Answers `memory.forget`: masks points, has journals purged, and deletes memories and what they were learned from.

use std::collections::BTreeSet;

use clawnode_gateway::{HandlerResult, SessionRef};
use clawnode_kernel::{Entity, Service};
use clawnode_memory::{Memory, points::MemoryState, store::StoreScope};
use clawnode_proto::{
    EntityId, ErrorBody, ErrorChain, ErrorCode, Kind, MemoryPointId,
    memory::MemoryKey,
    memory_point::MemoryInput,
    memory_view::{MemoryForgetParams, MemoryForgetView},
};
use futures_util::{StreamExt as _, stream};
use tracing::warn;

use super::{
    answers::{MemoryAnswers, READS_MOST},
    view,
};
use crate::node::delete::delete;

/// Other journals that one answer names.
const SOURCES_MOST: usize = 64;

/// A journal that a point was learned from.
#[derive(Debug)]
struct PointSource {
    id: EntityId,
    /// Its key, or its id if it has none any more.
    name: String,
    /// Whether it is a session that is there.
    is_session: bool,
}

// === impl MemoryAnswers ===

impl MemoryAnswers {
    /// Answers `memory.forget`.
    pub(in crate::node) async fn forget(
        &self,
        params: MemoryForgetParams,
    ) -> HandlerResult<MemoryForgetView> {
        let MemoryForgetParams { memory: key, point, all, now, sources: deletes } = params;
        let state = match (point, all) {
            (Some(_), false) | (None, true) => self.existing(&key).await?.state,
            (None, false) | (Some(_), true) => {
                let what = "say either which `point` to forget, or `all`";
                return Err(ErrorBody::new(ErrorCode::InvalidParams, what));
            }
        };
        let sources = view::sources(&state, &key, point);
        if deletes && sources.len() > SOURCES_MOST {
            let what = format!(
                "the points of `{key}` come from {} sessions, and one request deletes {SOURCES_MOST} at most",
                sources.len()
            );
            let hint = "nothing was forgotten; forget its points one by one with `sources`";
            return Err(ErrorBody::new(ErrorCode::Conflict, what).hint(hint));
        }
        let sources = self.named(sources).await;
        let scope = StoreScope::of_memory(&key);
        let mut view = match point {
            Some(point) => self.forget_point(key, point, now, &state).await?,
            None => self.forget_all(key, &state).await?,
        };
        // The files of this node go with the journal. Those of others follow its feed.
        if let Err(failure) = self.served.catch_up(&scope).await {
            let failure = ErrorChain(&failure);
            warn!(%scope, %failure, "the store of memories forgets later");
        }
        // What else they came from is gone, or was never here.
        for source in sources.into_iter().filter(|source| source.is_session) {
            let is_deleted = deletes && self.delete_source(&source).await;
            let names = if is_deleted { &mut view.deleted_sources } else { &mut view.sources };
            names.push(source.name);
        }
        Ok(view)
    }

    /// Masks one point.
    async fn forget_point(
        &self,
        key: MemoryKey,
        point: MemoryPointId,
        now: bool,
        state: &MemoryState,
    ) -> HandlerResult<MemoryForgetView> {
        let is_there = |state: &MemoryState| {
            state.live().any(|kept| kept.id == point) || state.past().any(|past| past.id == point)
        };
        let was_there = is_there(state);
        // What was masked, or left long ago, may still be in the journal.
        let still_goes = state.is_gone(point) && (state.is_to_be_purged() || state.has_text(point));
        if !was_there && !still_goes {
            return Err(no_point(&key, point, state));
        }
        let by = format!("operator at {}", (self.node.heartbeat)().node);
        let body = MemoryInput::Forget { points: vec![point], by, now };
        let name = ulid::Ulid::generate().to_string();
        let input = self.store(&key, &name, &body).await?;
        let is_done = |memory: &Entity<Memory>| {
            let is_purged = !memory.state.is_purging() && memory.core.purging.is_none();
            memory.core.has(input) && !is_there(&memory.state) && (!now || is_purged)
        };
        let state = self.changed(&key, is_done).await?;
        if now {
            // It is acknowledged when all that was replaced is removed.
            self.acknowledged(&key, input).await?;
        }
        Ok(MemoryForgetView {
            memory: key,
            forgotten: u32::from(was_there),
            deleted: false,
            purged: now,
            purges: state.purge_due(),
            sources: Vec::new(),
            deleted_sources: Vec::new(),
        })
    }

    /// Deletes a memory.
    async fn forget_all(
        &self,
        key: MemoryKey,
        state: &MemoryState,
    ) -> HandlerResult<MemoryForgetView> {
        let live = state.live().count();
        let name = ulid::Ulid::generate().to_string();
        self.store(&key, &name, &MemoryInput::Delete {}).await?;
        // One that has begun again since is another one.
        let is_gone = |memory: Option<Entity<Memory>>| {
            memory.is_none_or(|memory| memory.state.began() != state.began()).then_some(())
        };
        self.awaited(&key, is_gone).await?;
        Ok(MemoryForgetView {
            memory: key,
            forgotten: u32::try_from(live).unwrap_or(u32::MAX),
            deleted: true,
            purged: false,
            purges: None,
            sources: Vec::new(),
            deleted_sources: Vec::new(),
        })
    }

    /// Whether the session of a point is deleted now.
    async fn delete_source(&self, source: &PointSource) -> bool {
        let session = SessionRef { id: source.id, key: source.name.parse().ok() };
        match delete(&self.sessions, &session).await {
            Ok(()) => true,
            Err(failure) => {
                warn!(session = source.name, failure = failure.message, "a session is not deleted");
                false
            }
        }
    }

    /// These journals, with their names.
    async fn named(&self, entities: BTreeSet<EntityId>) -> Vec<PointSource> {
        let name = |id: EntityId| async move {
            let core = self.sessions.entities().core(id).await.ok();
            let is_session = core.as_ref().is_some_and(|core| {
                core.kind == Some(Kind::SESSION) && core.service != Service::Deleted
            });
            let name = core.and_then(|core| core.key).unwrap_or_else(|| id.to_string());
            PointSource { id, name, is_session }
        };
        let first = entities.into_iter().take(SOURCES_MOST).map(name);
        stream::iter(first).buffered(READS_MOST).collect().await
    }
}

fn no_point(key: &MemoryKey, point: MemoryPointId, state: &MemoryState) -> ErrorBody {
    let what = if state.is_gone(point) {
        format!("the point `{point}` of `{key}` is gone already")
    } else {
        format!("the memory `{key}` has no point `{point}`")
    };
    ErrorBody::new(ErrorCode::NotFound, what)
        .hint(format!("`clawnode memory show {key} --all` shows the points that it has"))
}
