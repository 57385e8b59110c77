//! Entities out of service: what is wrong with them, what is parked for them, and the orders that put
//! them back or delete them.
//!
//! A quarantined entity is looked at by its kernel headers alone: folding it may be what killed its
//! process.

use std::time::Duration;

use clawnode_cluster::StoreError;
use clawnode_proto::{
    Cursor, CursorError, Digest, EntityId, ErrorChain, Input, Kind, Order, Position,
    api::Method,
    view::{
        ParkedList, ParkedRow, ParkedWhere, QuarantineDone, QuarantineList, QuarantineRow,
        QuarantineView,
    },
};
use futures_util::{StreamExt, TryStreamExt, future::BoxFuture, stream};
use serde_json::Value;

use super::{Entities, EntityError, EntityName, handle::READS_MAX};
use crate::{
    Core, FoldError, Service,
    dead_letters::{self, DeadLetter},
};

/// How long an order may take before the operator is asked to look again: an election of the
/// store's, and an owner that has to be found dead.
const ORDER_WITHIN: Duration = Duration::from_secs(30);
/// How often its end is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// What the cursor of a page that ended with a dead letter begins with.
const LETTER: &str = "letter:";

/// Why an entity is out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutOfService {
    /// The journal says so.
    Quarantined,
    /// The journal cannot be used.
    Corrupt,
    /// The journal is whole and this build cannot read all of it. Not in the lists: a newer one can.
    TooNew,
}

#[derive(Debug)]
struct OutOfServiceEntity {
    id: EntityId,
    out: OutOfService,
    reason: String,
    /// As much as can be read.
    core: Core,
    /// The store's position of the last record that can be read.
    position: Position,
}

impl Entities {
    /// The entities out of service among the `limit` entities after `after`, in the store's order.
    pub fn quarantined(
        &self,
        after: Option<EntityId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<QuarantineList, StoreError>> {
        Box::pin(async move {
            let (fallen, next) = self.fallen_after(after, limit).await?;
            let rows = stream::iter(fallen).map(|one| async move { self.fallen_row(&one).await });
            let sessions = rows.buffered(READS_MAX).collect().await;
            let next = next.map(|id| Cursor::new(Method::QuarantineList, id));
            Ok(QuarantineList { sessions, next })
        })
    }

    /// An entity out of service, with what is parked in its journal and what waits in its inbox.
    pub fn quarantine(&self, id: EntityId) -> BoxFuture<'_, Result<QuarantineView, EntityError>> {
        Box::pin(async move {
            let fallen = self.fallen(id).await?;
            let session = self.fallen_row(&fallen).await;
            let mut inputs = self.parked_rows(&fallen);
            for waiting in self.unread(&fallen).await? {
                inputs.push(self.input_row(&fallen, &waiting, ParkedWhere::Inbox));
            }
            Ok(QuarantineView { session, inputs })
        })
    }

    /// What was put aside whole: dead letters, then the parked inputs of the entities of one page.
    pub fn parked<'a>(
        &'a self,
        after: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<ParkedList, EntityError>> {
        Box::pin(async move {
            const LIST: Method = Method::ParkedList;
            let after = after.map(|cursor| cursor.read::<String>(LIST)).transpose()?;
            let mut parked = Vec::new();
            let mut from = None;
            match after.as_deref().map(|after| (after.strip_prefix(LETTER), after)) {
                Some((None, id)) => {
                    let id = id.parse::<EntityId>();
                    from = Some(id.map_err(|_no_id| CursorError(LIST))?);
                }
                before => {
                    let before = before.and_then(|(name, _)| name).unwrap_or_default();
                    let letters = dead_letters::list(&self.storage).await?;
                    let mut left = letters.iter().filter(|one| one.name().as_str() > before);
                    parked.extend(left.by_ref().take(limit).map(letter_row));
                    if let (Some(last), Some(_)) = (parked.last(), left.next()) {
                        let next = last.letter.as_ref();
                        let next = next.map(|name| Cursor::new(LIST, format!("{LETTER}{name}")));
                        return Ok(ParkedList { parked, next });
                    }
                }
            }
            let (fallen, next) = self.fallen_after(from, limit).await?;
            for one in fallen {
                let rows = self.parked_rows(&one).into_iter();
                parked.extend(rows.map(|row| ParkedRow { body: Value::Null, ..row }));
            }
            Ok(ParkedList { parked, next: next.map(|id| Cursor::new(LIST, id)) })
        })
    }

    /// Forgets a dead letter.
    pub async fn drop_letter(&self, name: &str) -> Result<(), EntityError> {
        if dead_letters::forget(&self.storage, name).await? {
            return Ok(());
        }
        Err(EntityError::NoLetter(name.to_owned()))
    }

    /// Puts a quarantined entity back in service; its parked inputs are served. Answers once the
    /// journal says so.
    pub fn restore(&self, id: EntityId) -> BoxFuture<'_, Result<QuarantineDone, EntityError>> {
        Box::pin(async move {
            let fallen = self.fallen(id).await?;
            let entity = fallen.name();
            match fallen.out {
                OutOfService::Quarantined => self.order(&fallen, Order::Restore).await,
                OutOfService::Corrupt => {
                    Err(EntityError::Unusable { entity, reason: fallen.reason })
                }
                OutOfService::TooNew => Err(EntityError::TooNew { entity, reason: fallen.reason }),
            }
        })
    }

    /// Deletes an entity that is out of service, with what is parked or waits for it. Answers once
    /// its tombstone is stored.
    pub fn discard(&self, id: EntityId) -> BoxFuture<'_, Result<QuarantineDone, EntityError>> {
        Box::pin(async move {
            let fallen = self.fallen(id).await?;
            self.order(&fallen, Order::Bury).await
        })
    }

    async fn order(
        &self,
        fallen: &OutOfServiceEntity,
        order: Order,
    ) -> Result<QuarantineDone, EntityError> {
        let id = fallen.id;
        let waiting = self.unread(fallen).await?;
        let now = self.clock.now();
        // If a journal's birth cannot be read, its kind is unknown. Waiting inputs may name it;
        // otherwise the order relies on the kernel headers alone, which every kind has.
        let told = fallen.core.kind.or_else(|| waiting.first().map(|one| one.kind));
        let kind = told.unwrap_or(Kind::UNTOLD);
        let input = Input::order(kind, id, fallen.digest(), now, order);
        self.storage.inbox.put(&input).await?;
        let done = async {
            loop {
                match self.fallen(id).await {
                    Err(EntityError::InService(_) | EntityError::NotFound(_)) => return Ok(()),
                    // A newer node serves the entity: it took the order, and had nothing to do.
                    Ok(now) if now.out == OutOfService::TooNew && now.core.has(input.id) => {
                        return Err(EntityError::InService(now.name()));
                    }
                    // It does not check whether the damage is still the same.
                    Ok(_) | Err(EntityError::Store(StoreError::Unavailable { .. })) => {
                        tokio::time::sleep(LOOK_AGAIN).await;
                    }
                    Err(failure) => return Err(failure),
                }
            }
        };
        match tokio::time::timeout(ORDER_WITHIN, done).await {
            Ok(Ok(())) => Ok(QuarantineDone {
                id,
                key: fallen.core.key.clone(),
                inputs: (fallen.core.parked.len() + waiting.len()) as u64,
            }),
            Ok(Err(failure)) => Err(failure),
            Err(_elapsed) => Err(EntityError::Pending(fallen.name())),
        }
    }

    /// What is wrong with an entity; `InService` if nothing is.
    async fn fallen(&self, id: EntityId) -> Result<OutOfServiceEntity, EntityError> {
        let loaded = match self.load(id).await {
            Ok(loaded) => loaded,
            Err(failure @ StoreError::Corrupt { .. }) => {
                let reason = ErrorChain(&failure).to_string();
                let (core, position) = (Core::default(), Position(0));
                return Ok(OutOfServiceEntity {
                    id,
                    out: OutOfService::Corrupt,
                    reason,
                    core,
                    position,
                });
            }
            Err(failure) => return Err(failure.into()),
        };
        let Some(last) = loaded.records.last() else {
            return Err(EntityError::NotFound(id));
        };
        let position = last.position;
        let unusable = |failure: FoldError| {
            let core = Core::salvaged(id, &loaded);
            let out = if failure.needs().is_some() {
                OutOfService::TooNew
            } else {
                OutOfService::Corrupt
            };
            let reason = ErrorChain(&failure).to_string();
            OutOfServiceEntity { id, out, reason, core, position }
        };
        // Being out of service is in the kernel's headers, which every version reads.
        let core = match Core::of(id, &loaded, &|_| true) {
            Ok(core) => core,
            Err(failure) => return Ok(unusable(failure)),
        };
        if let Service::Quarantined { reason } = &core.service {
            let reason = reason.clone();
            return Ok(OutOfServiceEntity {
                id,
                out: OutOfService::Quarantined,
                reason,
                core,
                position,
            });
        }
        match self.kinds.begin(core.kind, id).load(&loaded) {
            Ok(()) => Err(EntityError::InService(EntityName::of(id, &core))),
            Err(failure) => Ok(unusable(failure)),
        }
    }

    /// Those out of service among the `limit` entities after `after`, and where the next page
    /// begins.
    async fn fallen_after(
        &self,
        after: Option<EntityId>,
        limit: usize,
    ) -> Result<(Vec<OutOfServiceEntity>, Option<EntityId>), StoreError> {
        let ids = self.storage.journal.entities(after, limit).await?;
        let next = ids.last().copied().filter(|_| ids.len() == limit);
        let found = stream::iter(ids).map(|id| async move {
            match self.fallen(id).await {
                Ok(fallen) => Ok((fallen.out != OutOfService::TooNew).then_some(fallen)),
                Err(EntityError::Store(failure)) => Err(failure),
                Err(_) => Ok(None),
            }
        });
        let found = found.buffered(READS_MAX).try_filter_map(|one| std::future::ready(Ok(one)));
        Ok((found.try_collect().await?, next))
    }

    async fn fallen_row(&self, fallen: &OutOfServiceEntity) -> QuarantineRow {
        let OutOfServiceEntity { id, out, reason, core, .. } = fallen;
        let (mut key, mut kind) = (core.key.clone(), core.kind);
        if key.is_none() {
            // A waiting input may still name it; orders have no key.
            let waiting = self.waiting(*id).await.unwrap_or_default();
            let told = waiting.into_iter().find(|one| !one.key.is_empty());
            kind = kind.or(told.as_ref().map(|one| one.kind));
            key = told.map(|one| one.key);
        }
        QuarantineRow {
            id: *id,
            key,
            kind,
            state: out.as_str().to_owned(),
            reason: reason.clone(),
            since: (core.tail.n.0 > 0).then_some(core.tail.ts),
            events: core.tail.n.0,
            parked: core.parked.len() as u64,
            waiting: self.unread(fallen).await.unwrap_or_default().len() as u64,
        }
    }

    /// What waits in an entity's inbox and is not in its journal; what the journal has only waits for
    /// its delivery to be acknowledged.
    async fn unread(&self, fallen: &OutOfServiceEntity) -> Result<Vec<Input>, StoreError> {
        let mut waiting = self.waiting(fallen.id).await?;
        waiting.retain(|one| !fallen.core.has(one.id));
        Ok(waiting)
    }

    /// What waits in an entity's inbox and can be read.
    async fn waiting(&self, id: EntityId) -> Result<Vec<Input>, StoreError> {
        let waiting = self.storage.inbox.read(id, Position(0)).await?;
        let read = waiting.iter().filter_map(|one| Input::from_bytes(&one.bytes).ok());
        Ok(read.filter(|one| one.entity == id).collect())
    }

    fn parked_rows(&self, fallen: &OutOfServiceEntity) -> Vec<ParkedRow> {
        let parked = fallen.core.parked.iter();
        parked.map(|one| self.input_row(fallen, one, ParkedWhere::Journal)).collect()
    }

    fn input_row(&self, fallen: &OutOfServiceEntity, input: &Input, at: ParkedWhere) -> ParkedRow {
        let kind = fallen.core.kind.unwrap_or(input.kind);
        ParkedRow {
            session: fallen.id,
            key: fallen.core.key.clone(),
            kind: Some(kind),
            at,
            reason: format!("{kind} is {}: {}", fallen.out.as_str(), fallen.reason),
            ts: input.sent,
            bytes: input.body.len() as u64,
            input: Some(input.id),
            idempotency_key: Some(input.idempotency_key.clone()),
            letter: None,
            body: self.kinds.input_view(input),
        }
    }
}

impl OutOfService {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Quarantined => "quarantined",
            Self::Corrupt => "corrupt",
            Self::TooNew => "too_new",
        }
    }
}

impl OutOfServiceEntity {
    fn name(&self) -> EntityName {
        EntityName::of(self.id, &self.core)
    }

    /// Identifies the state that an order is about.
    fn digest(&self) -> Digest {
        let mut bytes = self.position.0.to_be_bytes().to_vec();
        bytes.extend(self.core.tail.hash.as_bytes());
        Digest::of(&bytes)
    }
}

fn letter_row(letter: &DeadLetter) -> ParkedRow {
    ParkedRow {
        session: letter.entity,
        key: None,
        kind: None,
        at: ParkedWhere::DeadLetter,
        reason: letter.reason.clone(),
        ts: letter.at,
        bytes: letter.bytes,
        input: None,
        idempotency_key: None,
        letter: Some(letter.name()),
        body: Value::Null,
    }
}
