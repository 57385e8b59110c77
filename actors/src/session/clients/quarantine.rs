//! Sessions out of service: what is wrong with them, what is parked for them, and the orders that put
//! them back or bury them.
//!
//! A quarantined session is looked at by its kernel headers alone: folding it may be what killed
//! its process.

use std::time::Duration;

use clawnode_cluster::StoreError;
use clawnode_kernel::{
    Core, Entity, EntityKind, FoldError, Service,
    letters::{self, DeadLetter},
};
use clawnode_proto::{
    Cursor, CursorError, Digest, EntityId, ErrorChain, Input, Order, Position,
    api::Method,
    codec,
    session::SessionInput,
    view::{
        ParkedList, ParkedRow, ParkedWhere, QuarantineDone, QuarantineList, QuarantineRow,
        QuarantineView,
    },
};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::Value;

use super::{client::Sessions, send_error::SendError};
use crate::session::turn::kind::Session;

/// Journals that are read at the same time for one list.
const READS_MAX: usize = 16;
/// How long an order may take before whoever gave it is told to look again: an election of the
/// store's, and an owner that has to be found dead.
const ORDER_WITHIN: Duration = Duration::from_secs(30);
/// How often its end is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// What the cursor of a page that ended with a dead letter begins with.
const LETTER: &str = "letter:";

/// Why a session is out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Out {
    /// The journal says so.
    Quarantined,
    /// The journal cannot be used.
    Corrupt,
    /// The journal is whole and this build cannot read all of it. Not in the lists: a newer one can.
    TooNew,
}

/// A session out of service.
#[derive(Debug)]
struct Fallen {
    id: EntityId,
    out: Out,
    reason: String,
    /// As much as can be read.
    core: Core,
    /// The store's position of the last record that can be read.
    position: Position,
}

impl Sessions {
    /// The sessions out of service among the `limit` sessions after `after`, in the
    /// store's order.
    pub async fn quarantined(
        &self,
        after: Option<EntityId>,
        limit: usize,
    ) -> Result<QuarantineList, StoreError> {
        let (fallen, next) = self.fallen_after(after, limit).await?;
        let rows = stream::iter(fallen).map(|one| async move { self.fallen_row(&one).await });
        let sessions = rows.buffered(READS_MAX).collect().await;
        let next = next.map(|id| Cursor::new(Method::QuarantineList, id));
        Ok(QuarantineList { sessions, next })
    }

    /// A session out of service, with what is parked in its journal and what waits in its inbox.
    pub async fn quarantine(&self, id: EntityId) -> Result<QuarantineView, SendError> {
        let fallen = self.fallen(id).await?;
        let session = self.fallen_row(&fallen).await;
        let mut inputs = fallen.parked_rows();
        for waiting in self.unread(&fallen).await? {
            inputs.push(fallen.input_row(&waiting, ParkedWhere::Inbox));
        }
        Ok(QuarantineView { session, inputs })
    }

    /// What was put aside whole: dead letters, then the parked inputs of the sessions of one page.
    pub async fn parked(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<ParkedList, SendError> {
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
                let letters = letters::list(&self.substrate).await?;
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
            let rows = one.parked_rows().into_iter();
            parked.extend(rows.map(|row| ParkedRow { body: Value::Null, ..row }));
        }
        Ok(ParkedList { parked, next: next.map(|id| Cursor::new(LIST, id)) })
    }

    /// Forgets a dead letter.
    pub async fn drop_letter(&self, name: &str) -> Result<(), SendError> {
        if letters::forget(&self.substrate, name).await? {
            return Ok(());
        }
        Err(SendError::NoLetter { letter: name.to_owned() })
    }

    /// Puts a quarantined session back in service; its parked inputs are served. Answers once the
    /// journal says so.
    pub async fn restore(&self, id: EntityId) -> Result<QuarantineDone, SendError> {
        let fallen = self.fallen(id).await?;
        let session = fallen.name();
        match fallen.out {
            Out::Quarantined => self.order(&fallen, Order::Restore).await,
            Out::Corrupt => Err(SendError::Unusable { session, reason: fallen.reason }),
            Out::TooNew => Err(SendError::TooNew { session, reason: fallen.reason }),
        }
    }

    /// Deletes a session that is out of service, with what is parked or waits for it. Answers once
    /// its tombstone is stored.
    pub async fn bury(&self, id: EntityId) -> Result<QuarantineDone, SendError> {
        let fallen = self.fallen(id).await?;
        self.order(&fallen, Order::Bury).await
    }

    async fn order(&self, fallen: &Fallen, order: Order) -> Result<QuarantineDone, SendError> {
        let id = fallen.id;
        let waiting = self.unread(fallen).await?.len();
        let now = self.clock.now();
        // A journal whose birth cannot be read does not tell its kind.
        let kind = fallen.core.kind.unwrap_or(Session::KIND);
        let input = Input::order(kind, id, fallen.digest(), now, order);
        self.substrate.inbox.put(&input).await?;
        let done = async {
            loop {
                match self.fallen(id).await {
                    Err(SendError::InService { .. } | SendError::NotFound { .. }) => return Ok(()),
                    // A newer node took the order for one that it serves, which is nothing to do.
                    Ok(now) if now.out == Out::TooNew && now.core.has(input.id) => {
                        return Err(SendError::InService { session: now.name() });
                    }
                    // Another damage than the one it was about is not looked for.
                    Ok(_) | Err(SendError::Store(StoreError::Unavailable { .. })) => {
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
                inputs: (fallen.core.parked.len() + waiting) as u64,
            }),
            Ok(Err(failure)) => Err(failure),
            Err(_elapsed) => Err(SendError::Pending { session: fallen.name() }),
        }
    }

    /// What is wrong with a session; `InService` if nothing is.
    async fn fallen(&self, id: EntityId) -> Result<Fallen, SendError> {
        let loaded = match self.load(id).await {
            Ok(loaded) => loaded,
            Err(failure @ SendError::Store(StoreError::Corrupt { .. })) => {
                let reason = ErrorChain(&failure).to_string();
                let (core, position) = (Core::default(), Position(0));
                return Ok(Fallen { id, out: Out::Corrupt, reason, core, position });
            }
            Err(failure) => return Err(failure),
        };
        let Some(last) = loaded.records.last() else {
            return Err(SendError::NotFound { session: id.to_string() });
        };
        let position = last.position;
        let unusable = |failure: FoldError| {
            let core = Core::salvaged(id, &loaded);
            let out = if failure.needs().is_some() { Out::TooNew } else { Out::Corrupt };
            let reason = ErrorChain(&failure).to_string();
            Fallen { id, out, reason, core, position }
        };
        // Being out of service is in the kernel's headers, which every version reads.
        let core = match Core::of(id, &loaded, &|_| true) {
            Ok(core) => core,
            Err(failure) => return Ok(unusable(failure)),
        };
        if let Service::Quarantined { reason } = &core.service {
            let reason = reason.clone();
            return Ok(Fallen { id, out: Out::Quarantined, reason, core, position });
        }
        match Entity::<Session>::of(id, &loaded) {
            Ok(_) => {
                let session = core.key.unwrap_or_else(|| id.to_string());
                Err(SendError::InService { session })
            }
            Err(failure @ FoldError::Kind { .. }) => Err(SendError::Corrupt(failure)),
            Err(failure) => Ok(unusable(failure)),
        }
    }

    /// Those out of service among the `limit` sessions after `after`, and where to go on.
    async fn fallen_after(
        &self,
        after: Option<EntityId>,
        limit: usize,
    ) -> Result<(Vec<Fallen>, Option<EntityId>), StoreError> {
        let ids = self.substrate.journal.entities(after, limit).await?;
        let next = ids.last().copied().filter(|_| ids.len() == limit);
        let found = stream::iter(ids).map(|id| async move {
            match self.fallen(id).await {
                Ok(fallen) => Ok((fallen.out != Out::TooNew).then_some(fallen)),
                Err(SendError::Store(failure)) => Err(failure),
                Err(_) => Ok(None),
            }
        });
        let found = found.buffered(READS_MAX).try_filter_map(|one| std::future::ready(Ok(one)));
        Ok((found.try_collect().await?, next))
    }

    async fn fallen_row(&self, fallen: &Fallen) -> QuarantineRow {
        let Fallen { id, out, reason, core, .. } = fallen;
        let mut key = core.key.clone();
        if key.is_none() {
            // What waits may still tell it.
            let waiting = self.waiting(*id).await.unwrap_or_default();
            key = waiting.into_iter().map(|one| one.key).find(|key| !key.is_empty());
        }
        QuarantineRow {
            id: *id,
            key,
            state: out.as_str().to_owned(),
            reason: reason.clone(),
            since: (core.tail.n.0 > 0).then_some(core.tail.ts),
            events: core.tail.n.0,
            parked: core.parked.len() as u64,
            waiting: self.unread(fallen).await.unwrap_or_default().len() as u64,
        }
    }

    /// What waits in a session's inbox and is not in its journal; what the journal has only waits for
    /// its delivery to be acknowledged.
    async fn unread(&self, fallen: &Fallen) -> Result<Vec<Input>, StoreError> {
        let mut waiting = self.waiting(fallen.id).await?;
        waiting.retain(|one| !fallen.core.has(one.id));
        Ok(waiting)
    }

    /// What waits in a session's inbox and can be read.
    async fn waiting(&self, id: EntityId) -> Result<Vec<Input>, StoreError> {
        let waiting = self.substrate.inbox.read(id, Position(0)).await?;
        Ok(waiting.iter().filter_map(|one| Input::from_bytes(&one.bytes).ok()).collect())
    }
}

impl Out {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Quarantined => "quarantined",
            Self::Corrupt => "corrupt",
            Self::TooNew => "too_new",
        }
    }
}

impl Fallen {
    fn name(&self) -> String {
        self.core.key.clone().unwrap_or_else(|| self.id.to_string())
    }

    /// Stands for the state that an order is about.
    fn digest(&self) -> Digest {
        let mut bytes = self.position.0.to_be_bytes().to_vec();
        bytes.extend(self.core.tail.hash.as_bytes());
        Digest::of(&bytes)
    }

    fn parked_rows(&self) -> Vec<ParkedRow> {
        self.core.parked.iter().map(|one| self.input_row(one, ParkedWhere::Journal)).collect()
    }

    fn input_row(&self, input: &Input, at: ParkedWhere) -> ParkedRow {
        let body = codec::decode::<SessionInput>(&input.body)
            .ok()
            .and_then(|body| serde_json::to_value(body).ok());
        ParkedRow {
            session: self.id,
            key: self.core.key.clone(),
            at,
            reason: format!("session is {}: {}", self.out.as_str(), self.reason),
            ts: input.sent,
            bytes: input.body.len() as u64,
            input: Some(input.id),
            idempotency_key: Some(input.idempotency_key.clone()),
            letter: None,
            body: body.unwrap_or(Value::Null),
        }
    }
}

fn letter_row(letter: &DeadLetter) -> ParkedRow {
    ParkedRow {
        session: letter.entity,
        key: None,
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clawnode_cluster::{AppendAnswer, Clock, SystemClock, Write};
    use clawnode_local as local;

    use super::*;
    use crate::session::played::{Run, key};
    use clawnode_kernel::newer::{self, Future};

    #[tokio::test]
    async fn what_a_newer_build_wrote_is_shown_and_neither_listed_nor_restored() {
        let dir = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let options = local::LocalOptions::new("cn".parse().unwrap(), Arc::clone(&clock));
        let (substrate, _control) = local::open(dir.path(), options).unwrap();
        let sessions = Sessions::new(substrate, clock);
        let mut run = Run::new(&[], Vec::new());
        run.says("m1");
        let id = key().entity();
        let future = Future("model_done", codec::encode(&"dreams").unwrap());
        let mut records: Vec<_> = run.journal.iter().map(|one| one.bytes.clone()).collect();
        records.push(newer::record(id, &run.machine.settled().unwrap().core, &future).unwrap());
        let mut position = Position(0);
        for bytes in records {
            let write = Write { bytes, rollup: false };
            let answer = sessions.substrate.journal.append(id, position, write).await;
            let AppendAnswer::Stored(stored) = answer else { panic!("{answer:?}") };
            position = stored;
        }
        let shown = sessions.quarantine(id).await.unwrap().session;
        assert_eq!((&*shown.state, shown.key), ("too_new", Some(key().to_string())));
        assert_eq!(sessions.quarantined(None, 10).await.unwrap(), QuarantineList::default());
        let refused = sessions.restore(id).await.unwrap_err();
        assert!(matches!(refused, SendError::TooNew { .. }), "{refused}");
    }
}
