//! Pages of one session: its turns, and the events of its journal.
//!
//! Both only grow at their end, so each row keeps its place. A cursor names its session, because a
//! position of another one means nothing here.

use clawnode_proto::{
    Cursor, CursorError, EntityId, Seq, TurnId,
    api::Method,
    cursor::Pair,
    view::{EventList, HistoryView},
};

use super::{client::Sessions, inspect::state_of, send_error::SendError};
use crate::session::turn::state::Turn;

impl Sessions {
    /// What was said in a session: at most `limit` turns after `after`.
    pub async fn history_page(
        &self,
        id: EntityId,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<HistoryView, SendError> {
        const LIST: Method = Method::SessionsHistory;
        let entity = self.known(id).await?;
        // Turns end in the order in which they were accepted (SES-2).
        let all: Vec<&Turn> = entity.state.closed.iter().chain(&entity.state.open).collect();
        let mut from = 0;
        if let Some(cursor) = after {
            let Pair(session, last) = cursor.read::<Pair<EntityId, TurnId>>(LIST)?;
            let at = all.iter().position(|turn| turn.id == last && session == id);
            from = at.ok_or(CursorError(LIST))? + 1;
        }
        let to = all.len().min(from.saturating_add(limit));
        let mut turns = Vec::new();
        for turn in all.get(from..to).unwrap_or_default() {
            turns.push(self.turn_view(turn).await?);
        }
        let last = turns.last().filter(|_| to < all.len());
        let next = last.map(|last| Cursor::new(LIST, Pair(id, last.turn)));
        Ok(HistoryView {
            id,
            key: entity.core.key.clone().unwrap_or_default(),
            state: state_of(&entity).to_owned(),
            turns,
            next,
        })
    }

    /// The events of a session's journal: at most `limit` after `after`.
    pub async fn journal_page(
        &self,
        id: EntityId,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<EventList, SendError> {
        const LIST: Method = Method::JournalShow;
        let after =
            match after.map(|cursor| cursor.read::<Pair<EntityId, u64>>(LIST)).transpose()? {
                None => 0,
                Some(Pair(session, last)) if session == id => last,
                Some(_) => return Err(CursorError(LIST).into()),
            };
        // One more shows whether there is another page.
        let mut events = self.journal(id, Seq(after), limit.saturating_add(1)).await?;
        let is_more = events.len() > limit;
        events.truncate(limit);
        let last = events.last().filter(|_| is_more);
        let next = last.map(|last| Cursor::new(LIST, Pair(id, last.n.0)));
        Ok(EventList { events, next })
    }
}
