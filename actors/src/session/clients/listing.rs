//! Lists of sessions, the newest first.
//!
//! No store sorts sessions by time, and an index beside the journals would cost each turn one more
//! write. [`SessionDirectory`] knows the last event of every journal, and a list folds only the journals that
//! it shows. It keeps each row until the session's journal grows.
//!
//! The cursor of a page is the time and the id of the last session on it. So a session that does not
//! change meanwhile is on exactly one page.

use std::{
    collections::HashMap,
    sync::{Mutex as Lock, PoisonError},
};

use clawnode_cluster::StoreError;
use clawnode_proto::{
    AgentName, Cursor, CursorError, Digest, EntityId, SessionKey, Timestamp,
    api::Method,
    cursor::Pair,
    id::KeyPart,
    view::{SessionList, SessionRow},
    visible::is_hidden,
};
use futures_util::{StreamExt, future::BoxFuture, stream};

use super::{
    directory::{self, Facts, JournalEnd, KnownEnds, SessionDirectory},
    inspect::state_of,
    send_error::SendError,
    sessions::Sessions,
};

/// Sessions that one page folds at most, to find those that it shows.
const ROWS_MAX: usize = 5_000;
/// Journals that are folded at the same time.
const ROWS_AT_ONCE: usize = 16;
/// Rows that are remembered, twice: about 10 MB.
const KEPT: usize = 10_000;
/// Characters of a title.
const TITLE: usize = 60;

/// A request for one page of sessions.
#[derive(Clone, Debug, Default)]
pub struct SessionQuery {
    /// At most this many.
    pub limit: usize,
    /// Only sessions after this one.
    pub after: Option<PageEnd>,
    /// Only sessions of this agent.
    pub agent: Option<AgentName>,
    /// Only sessions of this channel.
    pub channel: Option<KeyPart>,
    /// Only sessions in this state, as [`SessionRow`] has it. Default: all that are not deleted.
    pub state: Option<String>,
    /// Only sessions with an event since this time.
    pub since: Option<Timestamp>,
    /// Also sessions of requests that name no user.
    pub stateless: bool,
}

/// Where a page of sessions ends, in the order of the list. The next page begins after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageEnd {
    pub(in crate::session) updated: Timestamp,
    pub(in crate::session) id: EntityId,
}

/// Shared by all lists of a process: the reads under way, and the rows that it keeps.
#[derive(Debug, Default)]
pub(in crate::session) struct SessionListing {
    directory: SessionDirectory,
    rows: Lock<SessionRows>,
}

/// Rows by entity, each with the last event that it includes; entities of other kinds have none. A row goes if
/// `KEPT` others were used since its last use.
#[derive(Debug, Default)]
struct SessionRows {
    young: HashMap<EntityId, (Digest, Seen)>,
    old: HashMap<EntityId, (Digest, Seen)>,
}

/// A journal after its fold.
#[derive(Clone, Debug)]
struct Seen {
    /// Its row, if it is a session's.
    row: Option<SessionRow>,
}

/// Whether a page shows a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowVerdict {
    Shown,
    /// The request leaves out stateless sessions, and it is one.
    Hidden,
    Other,
}

/// A journal that a page may show.
#[derive(Debug)]
struct Candidate {
    end: JournalEnd,
    /// Sessions before it that the page leaves out because they are stateless.
    hidden: u64,
}

/// The journals that a page looks at, in order.
#[derive(Debug, Default)]
struct Sought {
    candidates: Vec<Candidate>,
    /// Stateless sessions after the last of them.
    hidden: u64,
    /// The end of this page, if there may be more sessions.
    next: Option<PageEnd>,
    is_cut: bool,
}

impl Sessions {
    /// The sessions that match, newest first. A damaged one is a row at the end that says so.
    pub fn list<'a>(
        &'a self,
        wanted: &'a SessionQuery,
    ) -> BoxFuture<'a, Result<SessionList, StoreError>> {
        Box::pin(async move {
            let directory = &self.shared.listing.directory;
            let journal = &*self.storage().journal;
            let sought = directory.now(journal, |known| wanted.sought(known)).await?;
            let Sought { candidates, hidden, mut next, is_cut } = sought;
            let count = candidates.len();
            let mut rows = stream::iter(candidates)
                .map(|candidate| async move { (self.row_of(&candidate.end).await, candidate) })
                .buffered(ROWS_AT_ONCE);
            let (mut list, mut seen, mut reached) = (SessionList::default(), 0, None);
            let mut found = Vec::new();
            while list.sessions.len() < wanted.limit.max(1)
                && let Some((row, candidate)) = rows.next().await
            {
                (seen, reached) = (seen + 1, Some(candidate.end.at));
                list.hidden += candidate.hidden;
                // One that could not be read now may be read next time.
                if row.as_ref().is_none_or(|row| row.state != "corrupt") {
                    found.push((candidate.end, Facts::of(row.as_ref())));
                }
                let Some(row) = row else { continue };
                match wanted.judge(&Facts::of(Some(&row))) {
                    RowVerdict::Shown => list.sessions.push(row),
                    RowVerdict::Hidden => list.hidden += 1,
                    RowVerdict::Other => {}
                }
            }
            drop(rows);
            directory.note(found);
            if seen < count {
                next = reached;
            } else if next.is_none() {
                list.hidden += hidden;
            }
            list.next = next.map(PageEnd::cursor);
            list.partial = is_cut;
            Ok(list)
        })
    }

    /// The journals with an event since a time, the newest first, `most` at most, each with the time of its last
    /// event; and whether there may be more. Those that were deleted are left out.
    pub(crate) async fn active_since(
        &self,
        since: Timestamp,
        most: usize,
    ) -> Result<(Vec<(Timestamp, EntityId)>, bool), StoreError> {
        let read = |known: &KnownEnds| {
            let recent = known.behind(None).take_while(|end| end.at.updated >= since);
            let recent = recent.filter(|end| !end.is_tombstone);
            let mut ends: Vec<_> =
                recent.take(most + 1).map(|end| (end.at.updated, end.at.id)).collect();
            let is_cut = known.is_cut() || ends.len() > most;
            ends.truncate(most);
            (ends, is_cut)
        };
        self.shared.listing.directory.now(&*self.storage().journal, read).await
    }

    /// The time and the hash of a session's last event. `None` if it was deleted or is damaged.
    pub(in crate::session) async fn last_event(
        &self,
        id: EntityId,
    ) -> Result<Option<(Timestamp, Digest)>, StoreError> {
        let end = directory::read(&*self.storage().journal, id).await?;
        let end = end.filter(|end| !end.is_tombstone);
        Ok(end.and_then(|end| Some((end.at.updated, end.hash?))))
    }

    /// A session's row. `None` if the entity is of another kind.
    async fn row_of(&self, end: &JournalEnd) -> Option<SessionRow> {
        let id = end.at.id;
        let kept = end.hash.and_then(|hash| self.shared.listing.rows().get(id, hash));
        if let Some(seen) = kept {
            return seen.row;
        }
        match self.read_row(id).await {
            Ok((hash, row)) => {
                self.shared.listing.rows().keep(id, hash, Seen { row: Some(row.clone()) });
                Some(row)
            }
            Err(SendError::OtherKind { .. }) => {
                if let Some(hash) = end.hash {
                    self.shared.listing.rows().keep(id, hash, Seen { row: None });
                }
                None
            }
            Err(failure) => Some(super::inspect::damaged_row(id, &failure)),
        }
    }

    async fn read_row(&self, id: EntityId) -> Result<(Digest, SessionRow), SendError> {
        let entity = self.read(id).await?;
        let mut row = super::inspect::row(&entity);
        if let Some(text) = entity.state.opening() {
            // The text of a session that is being deleted may be gone.
            row.title = self.text(text).await.ok().and_then(|text| title(&text));
        }
        debug_assert_eq!(row.state, state_of(&entity));
        Ok((entity.core.tail.hash, row))
    }
}

/// The first words of a text, in one line, without invisible characters.
fn title(text: &str) -> Option<String> {
    let mut title = String::new();
    let mut left = TITLE;
    for word in text.split_whitespace() {
        let room = left.saturating_sub(usize::from(!title.is_empty()));
        let mut seen = word.chars().filter(|c| !is_hidden(*c)).peekable();
        if seen.peek().is_none() {
            continue;
        }
        if room == 0 {
            title.push('…');
            break;
        }
        if !title.is_empty() {
            title.push(' ');
        }
        let before = title.chars().count();
        title.extend(seen.by_ref().take(room));
        left = room - (title.chars().count() - before);
        if seen.next().is_some() {
            title.push('…');
            break;
        }
    }
    (!title.is_empty()).then_some(title)
}

// === impl SessionQuery ===

impl SessionQuery {
    /// The journals that a page may show: all but those of other kinds.
    fn sought(&self, known: &KnownEnds) -> Sought {
        let mut sought = Sought { is_cut: known.is_cut(), ..Sought::default() };
        let (mut shown, mut last) = (0, None);
        let is_recent = |end: &&JournalEnd| self.since.is_none_or(|at| end.at.updated >= at);
        let deleted = self.state.as_deref() == Some("deleted");
        for end in known.behind(self.after).take_while(is_recent) {
            if end.is_tombstone && !deleted {
                continue;
            }
            match end.facts.as_ref().map(|facts| self.judge(facts)) {
                Some(RowVerdict::Other) => continue,
                Some(RowVerdict::Hidden) => {
                    sought.hidden += 1;
                    continue;
                }
                Some(RowVerdict::Shown) => shown += 1,
                None => {}
            }
            if sought.candidates.len() == ROWS_MAX || shown > self.limit.max(1) {
                sought.next = last;
                break;
            }
            last = Some(end.at);
            let hidden = std::mem::take(&mut sought.hidden);
            sought.candidates.push(Candidate { end: end.clone(), hidden });
        }
        sought
    }

    fn judge(&self, facts: &Facts) -> RowVerdict {
        let origin = facts.of.as_ref();
        let answers = |agent: &AgentName| origin.is_some_and(|(own, _)| own == agent);
        let came_by = |channel: &KeyPart| origin.is_some_and(|(_, own)| own == channel);
        let is_wanted = self.agent.as_ref().is_none_or(answers)
            && self.channel.as_ref().is_none_or(came_by)
            && match &self.state {
                Some(state) => facts.state == *state,
                None => facts.state != "deleted",
            };
        match is_wanted && !facts.state.is_empty() {
            true if facts.is_stateless && !self.stateless => RowVerdict::Hidden,
            true => RowVerdict::Shown,
            false => RowVerdict::Other,
        }
    }
}

// === impl Facts ===

impl Facts {
    /// Whether the request wants a row. An entity without a row is in no list.
    fn of(row: Option<&SessionRow>) -> Self {
        let key = row.and_then(|row| row.key.as_deref()?.parse::<SessionKey>().ok());
        Self {
            of: key.map(|key| (key.agent, key.channel)),
            state: row.map(|row| row.state.clone()).unwrap_or_default(),
            is_stateless: row.is_some_and(|row| row.stateless),
        }
    }
}

// === impl PageEnd ===

impl PageEnd {
    fn cursor(self) -> Cursor {
        Cursor::new(Method::SessionsList, Pair(self.updated.0, self.id))
    }
}

impl TryFrom<&Cursor> for PageEnd {
    type Error = CursorError;

    fn try_from(cursor: &Cursor) -> Result<Self, CursorError> {
        let Pair(updated, id) = cursor.read(Method::SessionsList)?;
        Ok(Self { updated: Timestamp(updated), id })
    }
}

// === impl SessionListing ===

impl SessionListing {
    fn rows(&self) -> std::sync::MutexGuard<'_, SessionRows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionRows {
    fn get(&mut self, id: EntityId, hash: Digest) -> Option<Seen> {
        if let Some((known, row)) = self.young.get(&id) {
            return (*known == hash).then(|| row.clone());
        }
        let (known, row) = self.old.remove(&id)?;
        if known != hash {
            return None;
        }
        self.keep(id, hash, row.clone());
        Some(row)
    }

    fn keep(&mut self, id: EntityId, hash: Digest, seen: Seen) {
        if self.young.len() >= KEPT {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id, (hash, seen));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_short_line_of_visible_characters() {
        for (text, expected) in [
            ("", None),
            (" \u{200b} \n", None),
            ("Hello,  wörld\n\nmore", Some("Hello, wörld more".to_owned())),
            ("a\u{1b}[2Jb \u{202e} c", Some("a[2Jb c".to_owned())),
            (&"x".repeat(61), Some(format!("{}…", "x".repeat(60)))),
            (&"x".repeat(60), Some("x".repeat(60))),
            (&format!("{} y", "x".repeat(60)), Some(format!("{}…", "x".repeat(60)))),
            (&format!("{} yz", "x".repeat(58)), Some(format!("{} y…", "x".repeat(58)))),
        ] {
            assert_eq!(title(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_cursor_is_read_back() {
        let at = PageEnd { updated: Timestamp(7), id: EntityId::from_u128(9) };
        assert_eq!(PageEnd::try_from(&at.cursor()), Ok(at));
        let foreign = Cursor::new(Method::ApprovalsList, Pair(7, at.id));
        assert!(PageEnd::try_from(&foreign).is_err());
    }

    #[test]
    fn no_more_rows_are_remembered_than_there_is_room_for() {
        let entity = clawnode_kernel::Entity::unborn(EntityId::from_u128(0));
        let row = super::super::inspect::row(&entity);
        let mut rows = SessionRows::default();
        for n in 0..3 * KEPT as u128 {
            rows.keep(EntityId::from_u128(n), Digest::ZERO, Seen { row: Some(row.clone()) });
        }
        assert!(rows.young.len() + rows.old.len() <= 2 * KEPT);
        let newest = EntityId::from_u128(3 * KEPT as u128 - 1);
        assert!(rows.get(newest, Digest::ZERO).is_some());
        assert!(rows.get(newest, Digest::of(b"grown")).is_none(), "its journal has grown");
        assert!(rows.get(EntityId::from_u128(1), Digest::ZERO).is_none());
    }
}
