//! Fills the scopes of sessions with what was said in them.

use std::{ops::ControlFlow, sync::Arc};

use clawnode_proto::{EntityId, Position, Sealed, Seq, llm::Text};

use super::{
    error::FillError,
    lacking_points,
    said::{SaidReader, SaidText, SaidTruth, is_deletion},
    served::ServedStore,
};
use crate::store::{
    Document, DocumentBatch, MemoryStoreError, StoreScope,
    passage::{ConversationMessage, passages},
};

/// Messages that are put at once.
const MESSAGES_AT_ONCE: usize = 1_024;
/// Bytes of a message that can be found. What follows them is not looked at.
const MESSAGE_BYTES: usize = 64 << 10;
/// How often a part of a session is tried again that other processes fill at the same time.
const FILL_TRIES: u32 = 4;

/// Where the next message of a session goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextMessage {
    /// True of a scope that is filled up to this event. Another one was filled by something else since.
    upto: u64,
    /// How many messages precede it.
    position: u64,
}

// === impl ServedStore ===

impl ServedStore {
    /// Puts what the scope of a session lacks. `next` is the position of the next message where it is known; the whole
    /// journal is read if it is not. The caller has its lock of `reading`.
    pub(super) async fn fill_session(
        &self,
        scope: &StoreScope,
        next: &mut Option<NextMessage>,
    ) -> Result<(), FillError> {
        let mut tries = 0;
        loop {
            match self.fill_part(scope, next).await {
                Ok(true) => {}
                Ok(false) => {
                    self.is_followed_from_now(scope);
                    return Ok(());
                }
                // Another process has filled the scope from its beginning meanwhile.
                Err(FillError::Store(MemoryStoreError::Behind { .. })) if tries < FILL_TRIES => {
                    tries += 1;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Puts a part of it; says whether there may be more.
    async fn fill_part(
        &self,
        scope: &StoreScope,
        next: &mut Option<NextMessage>,
    ) -> Result<bool, FillError> {
        let (store, id) = (self.store(), scope.entity());
        let mut upto = store.upto(scope).await?;
        let end = match self.last_event(id).await? {
            Some(last) if !is_deletion(&last)? => last.head.n.0,
            Some(_) | None => {
                store.drop(scope).await?;
                return Ok(false);
            }
        };
        if upto > end {
            store.drop(scope).await?;
            upto = 0;
        }
        if upto == end {
            return Ok(false);
        }
        // Another process may have filled the store beyond the place that this one knows.
        let known = next.filter(|next| 0 < next.upto && next.upto <= upto && upto > 0);
        let known = known.unwrap_or(NextMessage { upto: 0, position: 0 });
        let mut reader = self.read(id, known.upto, upto).await?;
        let earlier = reader.said.iter().take_while(|said| said.event <= upto).count();
        let new = reader.said.split_off(earlier);
        // Positions begin again after a deletion.
        let before = if reader.deleted_at > known.upto { 0 } else { known.position };
        let first = before.saturating_add(u64::try_from(earlier).unwrap_or(u64::MAX));
        if reader.deleted_at > upto {
            store.drop(scope).await?;
            // It has begun again since, and is read from there.
            let upto = reader.upto.max(reader.deleted_at);
            return self.put_said(scope, 0, upto, 0, &new, next).await;
        }
        if reader.upto <= upto {
            *next = Some(NextMessage { upto, position: first });
            return Ok(false);
        }
        self.put_said(scope, upto, reader.upto, first, &new, next).await
    }

    /// Puts messages; says whether there may be more.
    async fn put_said(
        &self,
        scope: &StoreScope,
        after: u64,
        upto: u64,
        first: u64,
        said: &[SaidText],
        next: &mut Option<NextMessage>,
    ) -> Result<bool, FillError> {
        let documents = self.documents(scope.entity(), first, said).await?;
        let last = documents.last().and_then(|document| document.position);
        self.store().put(scope, DocumentBatch { after, upto, documents }).await?;
        self.lacks_vectors(scope);
        let position = last.map_or(first, |last| last.saturating_add(1));
        *next = Some(NextMessage { upto, position });
        Ok(said.len() >= MESSAGES_AT_ONCE)
    }

    /// Whether the store has all that was said in the turns of a session that have ended.
    pub(super) async fn has_all_said(&self, scope: &StoreScope) -> Result<bool, FillError> {
        let upto = self.store().upto(scope).await?;
        if upto == 0 {
            return Ok(false);
        }
        let reader = self.read(scope.entity(), upto, upto).await?;
        Ok(reader.upto == 0 && reader.deleted_at == 0)
    }

    /// What the journal of a session says of its passages, for what comes from a store elsewhere.
    pub(super) async fn said_in(&self, scope: &StoreScope) -> Result<Arc<SaidTruth>, FillError> {
        let (served, session) = (self.clone(), scope.entity());
        let place = Arc::clone(&self.shared.reads).acquire_owned().await;
        let place = place.map_err(|_closed| MemoryStoreError::Closed)?;
        // Detached: what a search has begun that gives up is there for the next one.
        let read = tokio::spawn(async move {
            let _place = place;
            served.read_said(session).await
        });
        read.await.unwrap_or_else(|_ended| Err(MemoryStoreError::Closed.into()))
    }

    async fn read_said(&self, session: EntityId) -> Result<Arc<SaidTruth>, FillError> {
        let before = self.said().of(session);
        let mut said = Arc::clone(&before);
        loop {
            let (reader, position) = self.read_behind(session, said.position, said.upto).await?;
            let begins_again = reader.deleted_at > said.upto;
            let upto = reader.upto.max(reader.deleted_at);
            if upto <= said.upto {
                break;
            }
            let passages = self.documents(session, 0, &reader.said).await?;
            Arc::make_mut(&mut said).adds(upto, position, begins_again, &passages);
            if reader.said.len() < MESSAGES_AT_ONCE {
                break;
            }
        }
        if said.upto > before.upto {
            self.said().put(session, &before, Arc::clone(&said));
        }
        Ok(said)
    }

    /// What was said in turns that ended, in the events after `after`, until there is enough of it that comes after
    /// `upto`.
    async fn read(&self, id: EntityId, after: u64, upto: u64) -> Result<SaidReader, FillError> {
        let records = self.storage().journal.read(id, Position(0)).await?;
        self.read_said_in(id, lacking_points::events(id, &records)?, after, upto).await
    }

    /// The same, where all events after `after` are in records behind `from`. Also gives the record behind which all events
    /// are that come after those that were read.
    async fn read_behind(
        &self,
        id: EntityId,
        from: Position,
        after: u64,
    ) -> Result<(SaidReader, Position), FillError> {
        let records = self.storage().journal.read(id, from).await?;
        let (mut events, mut ends) = (Vec::<Sealed>::new(), Vec::with_capacity(records.len()));
        for record in &records {
            events.extend(lacking_points::events(id, std::slice::from_ref(record))?);
            let end = events.last().map_or(0, |last| last.head.n.0);
            ends.push((end, record.position));
        }
        let reader = self.read_said_in(id, events, after, after).await?;
        let upto = after.max(reader.upto).max(reader.deleted_at);
        let last = ends.into_iter().rev().find(|(end, _)| *end <= upto);
        Ok((reader, last.map_or(from, |(_, position)| position)))
    }

    /// What was said in these events of a journal and, if events after `after` precede them, in its archives.
    async fn read_said_in(
        &self,
        id: EntityId,
        events: Vec<Sealed>,
        after: u64,
        upto: u64,
    ) -> Result<SaidReader, FillError> {
        let mut reader = SaidReader::default();
        if events.first().is_none_or(|first| first.head.n.0 <= after.saturating_add(1)) {
            for event in events.iter().filter(|event| event.head.n.0 > after) {
                reader.take(event)?;
            }
            return Ok(reader);
        }
        drop(events);
        let mut failed = None;
        let visit = |sealed: Sealed| {
            if let Err(failure) = reader.take(&sealed) {
                failed = Some(failure);
                return ControlFlow::Break(());
            }
            let is_new = reader.said.iter().rev().take_while(|said| said.event > upto);
            let is_end = reader.upto == sealed.head.n.0;
            if is_end && is_new.count() >= MESSAGES_AT_ONCE {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        };
        self.shared.entities.each_event(id, Seq(after), visit).await?;
        failed.map_or(Ok(reader), Err)
    }

    async fn documents(
        &self,
        session: EntityId,
        first: u64,
        said: &[SaidText],
    ) -> Result<Vec<Document>, FillError> {
        let mut texts = Vec::with_capacity(said.len());
        for said in said {
            texts.push(self.text(&said.text).await?);
        }
        let messages = said.iter().zip(&texts).filter_map(|(said, text)| {
            Some(ConversationMessage {
                event: said.event,
                speaker: None,
                trust: said.trust,
                at: said.at,
                text: text.as_deref()?,
            })
        });
        let messages: Vec<ConversationMessage<'_>> = messages.collect();
        Ok(passages(session, first, &messages))
    }

    /// The beginning of a text; none if it is gone from the blobs.
    async fn text(&self, text: &Text) -> Result<Option<String>, FillError> {
        let mut text = match text {
            Text::Inline { text } => text.clone(),
            Text::Blob { digest, .. } => {
                let Some(bytes) = self.storage().blobs.get(*digest).await? else {
                    return Ok(None);
                };
                let (start, _) = bytes.split_at_checked(MESSAGE_BYTES).unwrap_or((&bytes, &[]));
                String::from_utf8_lossy(start).into_owned()
            }
        };
        text.truncate(text.floor_char_boundary(MESSAGE_BYTES));
        Ok(Some(text))
    }
}
