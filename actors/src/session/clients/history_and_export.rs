//! Looking at sessions: histories and exports. All from the journal.

use clawnode_budget::holder::HolderHandle;
use clawnode_kernel::{Entity, Service};
use clawnode_proto::{
    AgentName, EntityId, ErrorChain, ProcessId, Seq, SessionKey, Timestamp,
    block::Blocks,
    llm::{Message, Text, Usage},
    model_route::RouteView,
    view::{HistoryView, SessionRow, TurnView},
};
use serde_json::{Value, json};

use super::{progress::in_json, send_error::SendError, sessions::Sessions};
use crate::{
    agent::AgentOptions,
    session::turn::{kind::Session, model_call::next_needs::NextNeeds, state::Turn},
};

impl Sessions {
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
            for text in shown.blocks.iter_mut().flat_map(Blocks::texts_mut) {
                *text = Text::from(self.text(text).await?);
            }
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
            waits_until: turn.waits_for_provider().map(|(_, wait)| wait.until),
            lane: turn.lane,
            notes: notes.into_iter().filter_map(|at| u32::try_from(at).ok()).collect(),
            structured: turn.structured.as_deref().and_then(in_json),
        })
    }

    /// Which model the next call of a session asks, and why. Nothing if `options` does not know its agent.
    pub async fn next_route(
        &self,
        id: EntityId,
        options: impl FnOnce(&AgentName) -> Option<AgentOptions>,
    ) -> Result<Option<RouteView>, SendError> {
        let state = self.known(id).await?.state;
        let options = state.key.as_ref().and_then(|key| options(&key.agent));
        Ok(options.map(|options| state.route_view(&options)))
    }

    /// What the next call of a session would reserve. Nothing if `options` does not know its agent.
    pub async fn next_needs(
        &self,
        id: EntityId,
        options: impl FnOnce(&AgentName) -> Option<AgentOptions>,
        budgets: &HolderHandle,
    ) -> Result<Option<NextNeeds>, SendError> {
        let state = self.known(id).await?.state;
        let options = state.key.as_ref().and_then(|key| options(&key.agent));
        Ok(options.and_then(|options| state.next_needs(options, budgets)))
    }

    /// Everything known of one session, for keeping.
    pub async fn export(&self, id: EntityId) -> Result<Value, SendError> {
        let history = self.history(id).await?;
        let events = self.entities().journal(id, Seq(0), usize::MAX).await?;
        Ok(json!({ "session": history, "journal": events }))
    }
}

/// A session as a row of a list, without its title, its last error, and the time of its state.
pub(in crate::session) fn row(entity: &Entity<Session>) -> SessionRow {
    SessionRow {
        id: entity.id,
        key: entity.core.key.clone(),
        title: None,
        state: state_of(entity).to_owned(),
        turns: entity.state.turn_count(),
        events: entity.core.tail.n.0,
        updated: entity.core.tail.ts,
        since: None,
        last_error: None,
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
        since: None,
        last_error: None,
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
        (Service::Active, Some(turn))
            if turn.waits_for_person()
                || turn.waits_for_provider().is_some()
                || turn.with_client().is_some() =>
        {
            "waiting"
        }
        (Service::Active, Some(_)) => "running",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clawnode_cluster::{AppendAnswer, Clock, SystemClock, Write};
    use clawnode_kernel::{
        EntityError,
        newer::{self, Future},
    };
    use clawnode_local as local;
    use clawnode_proto::{Position, codec, view::QuarantineList};

    use super::*;
    use crate::session::played::{PlayedActivation, key};

    #[tokio::test]
    async fn what_a_newer_build_wrote_is_shown_and_neither_listed_nor_restored() {
        let dir = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let options = local::LocalOptions::new("cn".parse().unwrap(), Arc::clone(&clock));
        let (storage, _control) = local::open(dir.path(), options).unwrap();
        let sessions = Sessions::new(storage, clock);
        let mut run = PlayedActivation::new(&[], Vec::new());
        run.says("m1");
        let id = key().entity();
        let future = Future("model_done", codec::encode(&"dreams").unwrap());
        let mut records: Vec<_> = run.journal.iter().map(|one| one.bytes.clone()).collect();
        records.push(newer::record(id, &run.machine.settled().unwrap().core, &future).unwrap());
        let mut position = Position(0);
        for bytes in records {
            let write = Write { bytes, rollup: false };
            let answer = sessions.storage().journal.append(id, position, write).await;
            let AppendAnswer::Stored(stored) = answer else { panic!("{answer:?}") };
            position = stored;
        }
        let entities = sessions.entities();
        let shown = entities.quarantine(id).await.unwrap().session;
        assert_eq!((&*shown.state, shown.key), ("too_new", Some(key().to_string())));
        assert_eq!(entities.quarantined(None, 10).await.unwrap(), QuarantineList::default());
        let refused = entities.restore(id).await.unwrap_err();
        assert!(matches!(refused, EntityError::TooNew { .. }), "{refused}");
    }
}
