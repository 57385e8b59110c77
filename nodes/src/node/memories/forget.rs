//! Answers `memory.forget`: masks points, has journals purged, and deletes memories and what they were learned from.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
};

use clawnode_gateway::{HandlerResult, SessionRef};
use clawnode_kernel::{Core, Entity, EntityError, Service};
use clawnode_memory::{Memory, points::MemoryState, store::StoreScope};
use clawnode_proto::{
    EntityId, ErrorBody, ErrorChain, ErrorCode, Kind, MemoryPointId, Sealed, Seq, Timestamp,
    memory::MemoryKey,
    memory_point::MemoryInput,
    memory_view::{MemoryForgetParams, MemoryForgetView},
};
use futures_util::{StreamExt as _, stream};
use tracing::warn;

use super::{
    listed_points,
    memory_answers::{MemoryAnswers, READS_MOST},
};
use crate::node::session_deletion::delete;

/// Other journals that one answer names.
const SOURCES_MOST: usize = 64;

/// A journal that a point was learned from.
#[derive(Debug)]
struct PointSource {
    id: EntityId,
    /// Its key, or its id if it has none any more.
    name: String,
    place: SourcePlace,
}

/// Whether a session here has the event that a point was learned from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourcePlace {
    /// It has.
    Here,
    /// None has it: it was deleted, or it is of another cluster. A session with its key may be here, which is another one.
    Elsewhere,
    /// It is no session: another memory, from which the point was copied.
    NoSession,
    /// Its journal cannot be read.
    Unknown,
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
            (None, false) if now && !deletes => return self.purge(key).await,
            (None, false) | (Some(_), true) => {
                let what = "say either which `point` to forget, or `all`";
                return Err(ErrorBody::new(ErrorCode::InvalidParams, what));
            }
        };
        let sources = listed_points::sources(&state, &key, point);
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
        for source in sources {
            let is_here = source.place == SourcePlace::Here;
            let goes = deletes && is_here;
            // Its journal says it before it is deleted.
            let lives =
                if goes { self.sessions.entities().lifetime(source.id).await } else { Ok(None) };
            let is_deleted = goes && self.delete_source(&source).await;
            if is_deleted && !view.deleted {
                let lifetime = lives.ok().flatten();
                let also = listed_points::taught(&state, source.id, lifetime.as_ref(), point);
                view.forgotten_with_sources = view.forgotten_with_sources.saturating_add(also);
            }
            let names = match source.place {
                _ if is_deleted => &mut view.deleted_sources,
                SourcePlace::Here | SourcePlace::Unknown => &mut view.sources,
                SourcePlace::Elsewhere => &mut view.sources_elsewhere,
                SourcePlace::NoSession => continue,
            };
            names.push(source.name);
        }
        Ok(view)
    }

    /// Purges the journal of a memory, if it still has a text that was forgotten.
    async fn purge(&self, key: MemoryKey) -> HandlerResult<MemoryForgetView> {
        if self.existing(&key).await?.state.is_to_be_purged() {
            self.masked(&key, None, true).await?;
        }
        Ok(MemoryForgetView {
            memory: key,
            forgotten: 0,
            deleted: false,
            purged: true,
            purges: None,
            sources: Vec::new(),
            deleted_sources: Vec::new(),
            forgotten_with_sources: 0,
            sources_elsewhere: Vec::new(),
        })
    }

    /// Masks one point.
    async fn forget_point(
        &self,
        key: MemoryKey,
        point: MemoryPointId,
        now: bool,
        state: &MemoryState,
    ) -> HandlerResult<MemoryForgetView> {
        let was_there = has_point(state, point);
        // What was masked, or left long ago, may still be in the journal.
        let still_goes = state.is_gone(point) && (state.is_to_be_purged() || state.has_text(point));
        if !was_there && !still_goes {
            return Err(no_point(&key, point, state));
        }
        let state = self.masked(&key, Some(point), now).await?;
        Ok(MemoryForgetView {
            memory: key,
            forgotten: u32::from(was_there),
            deleted: false,
            purged: now,
            purges: state.purge_due(),
            sources: Vec::new(),
            deleted_sources: Vec::new(),
            forgotten_with_sources: 0,
            sources_elsewhere: Vec::new(),
        })
    }

    /// The memory once this point is masked, if there is one, and once its journal is purged, if that is wanted.
    async fn masked(
        &self,
        key: &MemoryKey,
        point: Option<MemoryPointId>,
        now: bool,
    ) -> HandlerResult<MemoryState> {
        let by = format!("operator at {}", (self.node.heartbeat)().node);
        let body = MemoryInput::Forget { points: point.into_iter().collect(), by, now };
        let name = ulid::Ulid::generate().to_string();
        let input = self.store(key, &name, &body).await?;
        let is_done = |memory: &Entity<Memory>| {
            let is_purged = !memory.state.is_purging() && memory.core.purging.is_none();
            let lives = point.is_some_and(|point| has_point(&memory.state, point));
            memory.core.has(input) && !lives && (!now || is_purged)
        };
        let state = self.changed(key, is_done).await?;
        if now {
            // It is acknowledged when all that was replaced is removed.
            self.acknowledged(key, input).await?;
        }
        Ok(state)
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
            forgotten_with_sources: 0,
            sources_elsewhere: Vec::new(),
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

    /// These journals, with their names, and whether they have these events.
    async fn named(
        &self,
        sources: BTreeMap<EntityId, BTreeSet<(u64, Timestamp)>>,
    ) -> Vec<PointSource> {
        let name = |(id, events): (EntityId, BTreeSet<(u64, Timestamp)>)| async move {
            let core = self.sessions.entities().core(id).await;
            let place = match &core {
                Ok(core) => self.place(id, core, &events).await,
                Err(failure) => Err(ErrorChain(failure).to_string()),
            };
            let place = place.unwrap_or_else(|failure| {
                warn!(source = %id, failure, "what a point was learned from cannot be read");
                SourcePlace::Unknown
            });
            let name = core.ok().and_then(|core| core.key).unwrap_or_else(|| id.to_string());
            PointSource { id, name, place }
        };
        let first = sources.into_iter().take(SOURCES_MOST).map(name);
        stream::iter(first).buffered(READS_MOST).collect().await
    }

    /// Whether an entity has one of these events, at its time, since it began. What a point says of its source is not
    /// enough: it may come from another cluster, where a session with the same key has other events.
    async fn place(
        &self,
        id: EntityId,
        core: &Core,
        events: &BTreeSet<(u64, Timestamp)>,
    ) -> Result<SourcePlace, String> {
        if core.kind.is_some_and(|kind| kind != Kind::SESSION) {
            return Ok(SourcePlace::NoSession);
        }
        let lives = core.kind.is_some() && core.service != Service::Deleted;
        let began = core.deleted_at.map_or(0, |deleted| deleted.0);
        let mut lasting = events.iter().filter(|(event, _)| *event > began);
        let bounds = (lasting.clone().next(), lasting.next_back());
        let (true, (Some((first, _)), Some((last, _)))) = (lives, bounds) else {
            return Ok(SourcePlace::Elsewhere);
        };
        let mut is_here = false;
        let visit = |sealed: Sealed| {
            let event = sealed.head.n.0;
            is_here = events.contains(&(event, sealed.head.ts));
            if is_here || event >= *last {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let read = self.sessions.entities().each_event(id, Seq(first.saturating_sub(1)), visit);
        read.await.map_err(|failure: EntityError| ErrorChain(&failure).to_string())?;
        Ok(if is_here { SourcePlace::Here } else { SourcePlace::Elsewhere })
    }
}

/// Whether people are shown this point.
fn has_point(state: &MemoryState, point: MemoryPointId) -> bool {
    state.live().any(|kept| kept.id == point) || state.past().any(|past| past.id == point)
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
