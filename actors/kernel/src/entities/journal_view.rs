//! Journals for people, event by event.

use std::ops::ControlFlow;

use clawnode_proto::{
    Cursor, CursorError, EntityId, Grammar as _, Sealed, Seq,
    api::Method,
    cursor::Pair,
    kernel::{KernelEvent, SnapshotState},
    view::{EventList, EventView},
};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::{Entities, EntityError, KnownKinds};

impl Entities {
    /// A journal, event by event, archived ones included: at most `limit` after `after`.
    pub fn journal(
        &self,
        id: EntityId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<EventView>, EntityError>> {
        Box::pin(async move {
            let mut views = Vec::new();
            let visit = |sealed: Sealed| {
                if views.len() == limit {
                    return ControlFlow::Break(());
                }
                views.push(event_view(&self.kinds, &sealed));
                ControlFlow::Continue(())
            };
            self.each_event(id, after, visit).await?;
            if views.is_empty() && self.storage.journal.tail(id).await?.is_none() {
                return Err(EntityError::NotFound(id));
            }
            Ok(views)
        })
    }

    /// One page of a journal: at most `limit` events after `after`. A cursor names its entity, because a
    /// position in another journal means nothing here.
    pub fn journal_page<'a>(
        &'a self,
        id: EntityId,
        after: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<EventList, EntityError>> {
        Box::pin(async move {
            const LIST: Method = Method::JournalShow;
            let after =
                match after.map(|cursor| cursor.read::<Pair<EntityId, u64>>(LIST)).transpose()? {
                    None => 0,
                    Some(Pair(entity, last)) if entity == id => last,
                    Some(_) => return Err(CursorError(LIST).into()),
                };
            // One more shows whether there is another page.
            let mut events = self.journal(id, Seq(after), limit.saturating_add(1)).await?;
            let is_more = events.len() > limit;
            events.truncate(limit);
            let last = events.last().filter(|_| is_more);
            let next = last.map(|last| Cursor::new(LIST, Pair(id, last.n.0)));
            Ok(EventList { events, next })
        })
    }
}

fn event_view(kinds: &KnownKinds, sealed: &Sealed) -> EventView {
    let head = &sealed.head;
    EventView {
        n: head.n,
        kind: head.kind.clone(),
        eid: head.eid,
        epoch: head.epoch,
        incarnation: head.incarnation,
        ts: head.ts,
        hash: sealed.hash,
        body: body_view(kinds, sealed),
    }
}

/// What an event says, readable: inputs and snapshots are decoded as far as this build knows them.
fn body_view(kinds: &KnownKinds, sealed: &Sealed) -> Value {
    let kernel = KernelEvent::decode_body(&sealed.head.kind, &sealed.body);
    match kernel {
        Ok(Some(KernelEvent::Accepted(accepted))) => json!({
            "input": accepted.input.id,
            "v": accepted.input.v,
            "idempotency_key": accepted.input.idempotency_key,
            "body": kinds.input_view(&accepted.input),
        }),
        Ok(Some(KernelEvent::Snapshot(snapshot))) => {
            let state = match snapshot.state {
                SnapshotState::Inline { bytes } => json!({ "inline_bytes": bytes.len() }),
                SnapshotState::Blob { digest } => json!({ "blob": digest }),
            };
            json!({ "stands_for": snapshot.tail.n, "archive": snapshot.archive, "state": state })
        }
        Ok(Some(other)) => other.view(),
        Ok(None) | Err(_) => kinds.event_view(sealed),
    }
}
