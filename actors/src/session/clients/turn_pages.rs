//! Pages of the turns of one session.
//!
//! Turns are only added at the end, so each row keeps its place. A cursor names its session, because a
//! position in another one means nothing here. Turns that left the session's state are read from its archives.

use clawnode_proto::{
    Cursor, CursorError, EntityId, TurnId, api::Method, cursor::Pair, view::HistoryView,
};
use futures_util::future::BoxFuture;

use super::{
    archived_turns::Sifted, history_and_export::state_of, send_error::SendError, sessions::Sessions,
};
use crate::session::turn::state::{SessionState, Turn};

const LIST: Method = Method::SessionsHistory;

/// The turns of one page, while they are looked for.
#[derive(Debug)]
struct TurnPage {
    /// The last turn of the page before, until it is found.
    after: Option<TurnId>,
    limit: usize,
    /// How many turns were found.
    found: usize,
    turns: Vec<Turn>,
    /// There are more.
    is_full: bool,
}

impl Sessions {
    /// What was said in a session: at most `limit` turns after `after`.
    pub fn history_page<'a>(
        &'a self,
        id: EntityId,
        after: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<HistoryView, SendError>> {
        Box::pin(async move {
            let entity = self.known(id).await?;
            let after = match after
                .map(|cursor| cursor.read::<Pair<EntityId, TurnId>>(LIST))
                .transpose()?
            {
                Some(Pair(session, _)) if session != id => return Err(CursorError(LIST).into()),
                Some(Pair(_, last)) => Some(last),
                None => None,
            };
            let page = self.turn_page(id, &entity.state, after, limit).await?;
            if page.after.is_some() {
                return Err(CursorError(LIST).into());
            }
            let mut turns = Vec::new();
            for turn in &page.turns {
                turns.push(self.turn_view(turn).await?);
            }
            let last = turns.last().filter(|_| page.is_full);
            let next = last.map(|last| Cursor::new(LIST, Pair(id, last.turn)));
            Ok(HistoryView {
                id,
                key: entity.core.key.clone().unwrap_or_default(),
                state: state_of(&entity).to_owned(),
                turns,
                next,
            })
        })
    }

    /// The turns after this one, from the state if it has all of them.
    async fn turn_page(
        &self,
        id: EntityId,
        state: &SessionState,
        after: Option<TurnId>,
        limit: usize,
    ) -> Result<TurnPage, SendError> {
        let mut page = TurnPage { after, limit, found: 0, turns: Vec::new(), is_full: false };
        let is_here = after.is_some_and(|last| state.turns().any(|turn| turn.id == last));
        if is_here || state.has_all_turns() {
            page.take_rest(state);
            return Ok(page);
        }
        let mut past = self.past(id, |turn| page.sift(turn)).await?.state;
        page.turns = past.collected().map(std::mem::take).unwrap_or_default();
        page.take_rest(&past);
        Ok(page)
    }
}

// === impl TurnPage ===

impl TurnPage {
    /// Looks at the next turn of the session.
    fn sift(&mut self, turn: &Turn) -> Sifted {
        if let Some(last) = self.after {
            self.after = (turn.id != last).then_some(last);
            return Sifted::Skipped;
        }
        if self.found == self.limit {
            self.is_full = true;
            return Sifted::Over;
        }
        self.found += 1;
        Sifted::Kept
    }

    /// Takes the turns that are in a state, which follow those that left it.
    fn take_rest(&mut self, state: &SessionState) {
        // Turns end in the order in which they were accepted (SES-2).
        for turn in state.closed.iter().chain(&state.open) {
            match self.sift(turn) {
                Sifted::Kept => self.turns.push(turn.clone()),
                Sifted::Skipped => {}
                Sifted::Over => return,
            }
        }
    }
}
