//! Pages of the turns of one session.
//!
//! Turns are only added at the end, so each row keeps its place. A cursor names its session, because a
//! position in another one means nothing here.

use clawnode_proto::{
    Cursor, CursorError, EntityId, TurnId, api::Method, cursor::Pair, view::HistoryView,
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
}
