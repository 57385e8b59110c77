//! Looking at sessions: histories, journals and their verification. All from the journal.

use std::ops::ControlFlow;

use clawnode_cluster::{StoreError, Substrate};
use clawnode_kernel::{Core, Entity, FoldError, Service, Violation};
use clawnode_proto::{
    Digest, EntityId, ErrorChain, Grammar, Input, Kind, ProcessId, Sealed, Seq, SessionKey, Tail,
    Timestamp, codec,
    event::decode_record,
    kernel::{Accepted, KernelEvent, PARKED, Parked, QUARANTINED, SNAPSHOT, SnapshotState},
    llm::{Message, Text, Usage},
    session::{SessionEvent, SessionInput, ToolEnd},
    view::{EventView, HistoryView, SessionRow, TurnView, VerifyRow, VerifyView},
};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tracing::debug;

use super::{client::Sessions, send_error::SendError};
use crate::session::turn::{kind::Session, state::Turn};

/// Journals that are read at the same time for one list.
const READS_MAX: usize = 16;

/// Sessions that were looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// How many.
    pub sessions: usize,
    /// The last of them; none if there was none.
    pub last: Option<EntityId>,
    /// Those of them that are out of service.
    pub quarantined: Vec<EntityId>,
}

impl Sessions {
    /// Which of at most `limit` sessions after `after` are out of service. Reads last records only,
    /// and folds none.
    pub async fn look(&self, after: Option<EntityId>, limit: usize) -> Result<Looked, StoreError> {
        let ids = self.substrate.journal.entities(after, limit).await?;
        let (looked, last) = (ids.len(), ids.last().copied());
        let quarantined = stream::iter(ids)
            .map(|id| async move { self.is_quarantined(id).await.then_some(id) })
            .buffered(READS_MAX)
            .filter_map(std::future::ready)
            .collect()
            .await;
        Ok(Looked { sessions: looked, last, quarantined })
    }

    /// Out of service, nothing follows but parked inputs.
    async fn is_quarantined(&self, id: EntityId) -> bool {
        let record = match self.substrate.journal.tail(id).await {
            Ok(Some(record)) => record,
            Ok(None) => return false,
            Err(failure) => {
                debug!(entity = %id, %failure, "cannot read a session");
                return false;
            }
        };
        let events = decode_record(&record.bytes).unwrap_or_default();
        events.last().is_some_and(|last| [QUARANTINED, PARKED].contains(&last.head.kind.as_str()))
    }

    /// What was said in a session.
    pub async fn history(&self, id: EntityId) -> Result<HistoryView, SendError> {
        self.history_page(id, None, usize::MAX).await
    }

    pub(super) async fn known(&self, id: EntityId) -> Result<Entity<Session>, SendError> {
        let entity = self.read(id).await?;
        if entity.core.tail.n == Seq(0) {
            return Err(SendError::NotFound { session: id.to_string() });
        }
        Ok(entity)
    }

    pub(super) async fn turn_view(&self, turn: &Turn) -> Result<TurnView, SendError> {
        let mut messages = Vec::new();
        let (told, notes) = turn.shown();
        for message in told {
            let content = Text::from(self.text(&message.content).await?);
            let mut shown = Message { content, ..message };
            for reply in &mut shown.tool_replies {
                reply.content = Text::from(self.text(&reply.content).await?);
            }
            messages.push(shown);
        }
        Ok(TurnView {
            turn: turn.id,
            messages,
            outcome: turn.outcome.clone(),
            usage: turn.usage,
            lost_attempts: turn.lost_attempts,
            asks: turn.asks().collect(),
            wants_steps: turn.wants_steps(),
            notes: notes.into_iter().filter_map(|at| u32::try_from(at).ok()).collect(),
        })
    }

    /// A session's journal, event by event, archived ones included: at most `limit` after `after`.
    pub async fn journal(
        &self,
        id: EntityId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<EventView>, SendError> {
        let mut views = Vec::new();
        let visit = |sealed: Sealed| {
            if views.len() == limit {
                return ControlFlow::Break(());
            }
            views.push(event_view(&sealed));
            ControlFlow::Continue(())
        };
        self.each_event(id, after, visit).await?;
        if views.is_empty() && self.substrate.journal.tail(id).await?.is_none() {
            return Err(SendError::NotFound { session: id.to_string() });
        }
        Ok(views)
    }

    /// Everything known of one session, for keeping.
    pub async fn export(&self, id: EntityId) -> Result<Value, SendError> {
        let history = self.history(id).await?;
        let mut events = Vec::new();
        let visit = |sealed: Sealed| {
            events.push(event_view(&sealed));
            ControlFlow::Continue(())
        };
        self.each_event(id, Seq(0), visit).await?;
        Ok(json!({ "session": history, "journal": events }))
    }

    /// Verifies hash chains and invariants, of one session or of all.
    pub async fn verify(&self, only: Option<EntityId>) -> Result<VerifyView, StoreError> {
        let mut journals = Vec::new();
        if let Some(id) = only {
            journals.push(self.verify_one(id).await);
            return Ok(VerifyView { journals });
        }
        let mut after = None;
        loop {
            let ids = self.substrate.journal.entities(after, 1_000).await?;
            let Some(last) = ids.last() else { break };
            after = Some(*last);
            for id in ids {
                journals.push(self.verify_one(id).await);
            }
        }
        Ok(VerifyView { journals })
    }

    async fn verify_one(&self, id: EntityId) -> VerifyRow {
        let row = |key, kind, tail: Tail| VerifyRow {
            id,
            key,
            kind: Some(kind),
            events: tail.n.0,
            head: Some(tail.hash),
            problem: None,
        };
        let checked = match self.check(id).await {
            Ok((key, tail)) => Ok(row(key, Kind::SESSION, tail)),
            // Its hashes and heads can be checked without knowing the kind.
            Err(failure) if let Some(kind) = other_kind(&failure) => {
                self.load(id).await.and_then(|loaded| {
                    let core = Core::of(id, &loaded, &|_| true)?;
                    Ok(row(core.key.clone(), kind, core.tail))
                })
            }
            Err(failure) => Err(failure),
        };
        match checked {
            Ok(row) => row,
            Err(failure) => VerifyRow {
                id,
                key: None,
                kind: None,
                events: 0,
                head: None,
                problem: Some(ErrorChain(&failure).to_string()),
            },
        }
    }

    /// Loads what is in the journal as an activation does, and folds the whole past up to it.
    async fn check(&self, id: EntityId) -> Result<(Option<String>, Tail), SendError> {
        // One after the other, so that one state is in memory at a time; the journal may grow
        // meanwhile.
        let loaded = self.read(id).await?.core.tail;
        let (key, tail) = self.play(id, &mut 0).await?;
        if tail.n < loaded.n || (tail.n == loaded.n && tail != loaded) {
            let text = "the snapshot differs from the state that the journal gives".to_owned();
            let (kind, source) = (SNAPSHOT.to_owned(), Violation(text));
            return Err(FoldError::Violation { entity: id, n: tail.n, kind, source }.into());
        }
        Ok((key, tail))
    }

    /// Plays a session's turns again without a model; how many requests were compared, and the
    /// first that differs. There are none in entities of other kinds.
    pub async fn replay(&self, id: EntityId) -> (u64, Option<String>) {
        let mut compared = 0;
        let problem = self.play(id, &mut compared).await.err();
        let problem = problem.filter(|failure| other_kind(failure).is_none());
        (compared, problem.map(|failure| ErrorChain(&failure).to_string()))
    }

    /// What it stands on.
    pub const fn substrate(&self) -> &Substrate {
        &self.substrate
    }
}

/// A session as a row of a list, without its title.
pub(in crate::session) fn row(entity: &Entity<Session>) -> SessionRow {
    SessionRow {
        id: entity.id,
        key: entity.core.key.clone(),
        title: None,
        state: state_of(entity).to_owned(),
        turns: (entity.state.closed.len() + entity.state.open.len()) as u64,
        events: entity.core.tail.n.0,
        updated: entity.core.tail.ts,
        usage: entity.state.usage,
        owner: owner_of(entity),
        node: None,
        stateless: entity.state.key.as_ref().is_some_and(SessionKey::is_stateless),
        detail: match &entity.core.service {
            Service::Quarantined { reason } => Some(reason.clone()),
            Service::Active | Service::Deleted => None,
        },
    }
}

/// The row of a session that cannot be read.
pub(in crate::session) fn damaged_row(id: EntityId, failure: &SendError) -> SessionRow {
    SessionRow {
        id,
        key: None,
        title: None,
        state: "corrupt".to_owned(),
        turns: 0,
        events: 0,
        updated: Timestamp(0),
        usage: Usage::default(),
        owner: None,
        node: None,
        stateless: false,
        detail: Some(ErrorChain(failure).to_string()),
    }
}

/// Who wrote the journal last, unless that gave the session up.
fn owner_of(entity: &Entity<Session>) -> Option<ProcessId> {
    let writer = entity.core.incarnation.filter(|_| !entity.core.released)?;
    matches!(entity.core.service, Service::Active).then_some(writer.process)
}

pub(in crate::session) fn state_of(entity: &Entity<Session>) -> &'static str {
    match (&entity.core.service, entity.state.running()) {
        (Service::Quarantined { .. }, _) => "quarantined",
        (Service::Deleted, _) => "deleted",
        (Service::Active, None) => "idle",
        (Service::Active, Some(turn)) if turn.waits_for_person() => "waiting",
        (Service::Active, Some(_)) => "running",
    }
}

fn event_view(sealed: &Sealed) -> EventView {
    let head = &sealed.head;
    EventView {
        n: head.n,
        kind: head.kind.clone(),
        eid: head.eid,
        epoch: head.epoch,
        incarnation: head.incarnation,
        ts: head.ts,
        hash: sealed.hash,
        body: body_view(sealed),
    }
}

/// What an event says, readable: inputs and snapshots are decoded as far as this build knows them.
fn body_view(sealed: &Sealed) -> Value {
    let kernel = KernelEvent::decode_body(&sealed.head.kind, &sealed.body);
    match kernel {
        Ok(Some(KernelEvent::Accepted(accepted))) => {
            let input: Option<SessionInput> = codec::decode(&accepted.input.body).ok();
            json!({
                "input": accepted.input.id,
                "v": accepted.input.v,
                "idempotency_key": accepted.input.idempotency_key,
                "body": input,
            })
        }
        Ok(Some(KernelEvent::Snapshot(snapshot))) => {
            let state = match snapshot.state {
                SnapshotState::Inline { bytes } => json!({ "inline_bytes": bytes.len() }),
                SnapshotState::Blob { digest } => json!({ "blob": digest }),
            };
            json!({ "stands_for": snapshot.tail.n, "archive": snapshot.archive, "state": state })
        }
        Ok(Some(other)) => other.view(),
        Ok(None) | Err(_) => match sealed.event::<SessionEvent>() {
            Ok(Some(event)) => event.view(),
            Ok(None) | Err(_) => Value::Null,
        },
    }
}

/// The kind of an entity that is no session.
pub(in crate::session) const fn other_kind(failure: &SendError) -> Option<Kind> {
    match failure {
        SendError::Corrupt(FoldError::Kind { kind, .. }) => Some(*kind),
        _ => None,
    }
}

/// Whether a failure is damage, which does not go away by waiting.
pub(in crate::session) fn is_damage(failure: &SendError) -> bool {
    match failure {
        SendError::Store(failure) => {
            matches!(failure, StoreError::Corrupt { .. } | StoreError::Refused { .. })
        }
        SendError::Corrupt(failure) => failure.needs().is_none(),
        SendError::Codec(_) => true,
        _ => false,
    }
}

fn blob_of(text: &Text) -> Option<Digest> {
    match text {
        Text::Blob { digest, .. } => Some(*digest),
        Text::Inline { .. } => None,
    }
}

/// The blobs that hold an input's texts.
pub(in crate::session) fn texts_of_input(input: &Input) -> Vec<Digest> {
    match codec::decode(&input.body) {
        Ok(SessionInput::UserMessage(message) | SessionInput::Steer(message)) => {
            let history = message.history.iter().filter_map(|one| blob_of(&one.content));
            blob_of(&message.content).into_iter().chain(history).collect()
        }
        Ok(SessionInput::ToolResult(result)) => match &result.end {
            ToolEnd::Known { outcome } => blob_of(&outcome.content).into_iter().collect(),
            ToolEnd::Uncertain { .. } => Vec::new(),
        },
        Ok(
            SessionInput::Execute(_)
            | SessionInput::Cancel { .. }
            | SessionInput::ApprovalDecided(_)
            | SessionInput::Continue { .. }
            | SessionInput::TimerFired { .. }
            | SessionInput::Delete,
        )
        | Err(_) => Vec::new(),
    }
}

pub(in crate::session) fn texts_of(sealed: &Sealed) -> Vec<Digest> {
    if let Ok(Some(
        KernelEvent::Accepted(Accepted { input }) | KernelEvent::Parked(Parked { input }),
    )) = sealed.event::<KernelEvent>()
    {
        return texts_of_input(&input);
    }
    match sealed.event::<SessionEvent>() {
        Ok(Some(SessionEvent::ModelDone(done))) => blob_of(&done.content).into_iter().collect(),
        Ok(Some(SessionEvent::ModelFailed(failed))) => {
            blob_of(&failed.partial).into_iter().collect()
        }
        Ok(Some(SessionEvent::ToolDone(done))) => {
            done.outcome.iter().filter_map(|outcome| blob_of(&outcome.content)).collect()
        }
        _ => Vec::new(),
    }
}
