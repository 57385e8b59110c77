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
use clawnode_kernel::Entity;
use clawnode_proto::{
    AgentName, Cursor, CursorError, Digest, EntityId, Sealed, SessionKey, Timestamp,
    api::Method,
    cursor::Pair,
    id::KeyPart,
    kernel::SNAPSHOT,
    limits::LAST_ERROR_CHARS,
    view::{SessionList, SessionRow},
    visible::is_hidden,
};
use futures_util::{StreamExt, future::BoxFuture, stream};

use super::{
    directory::{self, Facts, JournalEnd, KnownEnds, SessionDirectory},
    history_and_export::state_of,
    send_error::SendError,
    sessions::Sessions,
};
use crate::session::turn::{kind::Session, state::SessionState};

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

/// Rows by session, each with the last event that it includes. A row goes if `KEPT` others were used since its last
/// use.
#[derive(Debug, Default)]
struct SessionRows {
    young: HashMap<EntityId, (Digest, SessionRow)>,
    old: HashMap<EntityId, (Digest, SessionRow)>,
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
                let facts = row.as_ref().map(Facts::of);
                if row.as_ref().is_none_or(|row| row.state != "corrupt") {
                    found.push((candidate.end, facts.clone()));
                }
                let Some((row, facts)) = row.zip(facts) else { continue };
                match wanted.judge(&facts) {
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
    /// event; and whether there may be more. Those that were deleted are left out, and those that are known to be of
    /// other kinds.
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
        if kept.is_some() {
            return kept;
        }
        match self.read_row(id).await {
            Ok((hash, row)) => {
                self.shared.listing.rows().keep(id, hash, row.clone());
                Some(row)
            }
            Err(SendError::OtherKind { .. }) => None,
            Err(failure) => Some(super::history_and_export::damaged_row(id, &failure)),
        }
    }

    async fn read_row(&self, id: EntityId) -> Result<(Digest, SessionRow), SendError> {
        let (mut state, mut since) = ("", None);
        let after = |entity: &Entity<Session>, sealed: &Sealed| {
            let now = state_of(entity);
            if now != state {
                // A snapshot at the beginning does not say how long it was so.
                let is_known = !state.is_empty() || sealed.head.kind != SNAPSHOT;
                since = is_known.then_some(sealed.head.ts);
                state = now;
            }
        };
        let entity = self.read_each(id, after).await?;
        let mut row = super::history_and_export::row(&entity);
        row.since = since.or_else(|| rests_since(&entity));
        row.last_error = last_error(&entity.state);
        if let Some(text) = entity.state.opening() {
            // The text of a session that is being deleted may be gone.
            let text = self.text(text).await.ok();
            row.title = text.and_then(|text| one_line(&text, TITLE));
        }
        debug_assert_eq!(row.state, state_of(&entity));
        Ok((entity.core.tail.hash, row))
    }
}

/// When the last turn ended of a session that has nothing to do.
fn rests_since(entity: &Entity<Session>) -> Option<Timestamp> {
    let last = entity.state.closed.last().filter(|_| state_of(entity) == "idle")?;
    Some(last.clock.seen()).filter(|at| *at > Timestamp(0))
}

/// How the newest turn ended, if not well.
fn last_error(state: &SessionState) -> Option<String> {
    let newest = state.closed.last().filter(|_| state.open.is_empty())?;
    let outcome = newest.outcome.as_ref()?;
    let error = format!("{}: {}", outcome.name(), outcome.error()?.message);
    one_line(&error, LAST_ERROR_CHARS)
}

/// The first words of a text, in one line of so many characters, without invisible ones.
fn one_line(text: &str, most: usize) -> Option<String> {
    let mut line = String::new();
    let mut left = most;
    for word in text.split_whitespace() {
        let room = left.saturating_sub(usize::from(!line.is_empty()));
        let mut seen = word.chars().filter(|c| !is_hidden(*c)).peekable();
        if seen.peek().is_none() {
            continue;
        }
        if room == 0 {
            line.push('…');
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        let before = line.chars().count();
        line.extend(seen.by_ref().take(room));
        left = room - (line.chars().count() - before);
        if seen.next().is_some() {
            line.push('…');
            break;
        }
    }
    (!line.is_empty()).then_some(line)
}

// === impl SessionQuery ===

impl SessionQuery {
    /// The journals that a page may show: all but those that are known to be of other kinds.
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
        match is_wanted {
            true if facts.is_stateless && !self.stateless => RowVerdict::Hidden,
            true => RowVerdict::Shown,
            false => RowVerdict::Other,
        }
    }
}

// === impl Facts ===

impl Facts {
    fn of(row: &SessionRow) -> Self {
        let key = row.key.as_deref().and_then(|key| key.parse::<SessionKey>().ok());
        Self {
            of: key.map(|key| (key.agent, key.channel)),
            state: row.state.clone(),
            is_stateless: row.stateless,
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
    fn get(&mut self, id: EntityId, hash: Digest) -> Option<SessionRow> {
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

    fn keep(&mut self, id: EntityId, hash: Digest, row: SessionRow) {
        if self.young.len() >= KEPT {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id, (hash, row));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clawnode_cluster::SystemClock;
    use clawnode_kernel::{
        EntityKind as _,
        counter::{Counted, Counter, CounterEvent, CounterInput},
        written::Written,
    };
    use clawnode_local as local;
    use clawnode_proto::{
        Kind,
        kernel::{Accepted, KernelEvent},
    };

    use super::*;

    /// How many journals the directory has, after it read what was written since.
    async fn ends(sessions: &Sessions) -> Result<usize, StoreError> {
        let journal = &*sessions.storage().journal;
        let counted = |known: &KnownEnds| known.behind(None).count();
        sessions.shared.listing.directory.now(journal, counted).await
    }

    fn total(total: u64) -> CounterEvent {
        Counted { total }.into()
    }

    #[tokio::test]
    async fn an_entity_of_another_kind_is_folded_once_at_most_and_takes_no_place() {
        let dir = tempfile::tempdir().unwrap();
        let options = local::LocalOptions::new("cn".parse().unwrap(), Arc::new(SystemClock));
        let (storage, _control) = local::open(dir.path(), options).unwrap();
        let session =
            Written::born(&storage, Kind::SESSION, "main:cli:local:ada", 100).await.unwrap();
        // Its last record names no kind.
        let mut folded = Written::born(&storage, Counter::KIND, "team/one", 200).await.unwrap();
        folded.append(200, &[total(1)]).await.unwrap();
        let mut named = Written::born(&storage, Counter::KIND, "team/two", 300).await.unwrap();
        let sessions = Sessions::new(storage.clone(), Arc::new(SystemClock));
        assert_eq!(ends(&sessions).await.unwrap(), 2, "the session, and what may be one");
        let query = SessionQuery { limit: 10, ..SessionQuery::default() };
        for n in 2..5 {
            let list = sessions.list(&query).await.unwrap();
            let shown: Vec<EntityId> = list.sessions.iter().map(|row| row.id).collect();
            assert_eq!((shown, list.next), (vec![session.id], None));
            assert_eq!(ends(&sessions).await.unwrap(), 1, "round {n}");
            // What they write later changes nothing.
            folded.append(100 * n, &[total(n)]).await.unwrap();
            named.append(100 * n, &[total(n)]).await.unwrap();
        }
        // An input names the kind, too, and a birth in the feed.
        let input =
            CounterInput::Add { by: 1 }.to("team/two", "one".parse().unwrap(), Timestamp(1));
        let input = input.unwrap();
        named.append::<KernelEvent>(900, &[Accepted { input }.into()]).await.unwrap();
        Written::born(&storage, Counter::KIND, "team/three", 900).await.unwrap();
        assert_eq!(ends(&sessions).await.unwrap(), 1);
        let new = Sessions::new(storage, Arc::new(SystemClock));
        assert_eq!(ends(&new).await.unwrap(), 2, "a new process");
    }

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
            assert_eq!(one_line(text, TITLE), expected, "{text:?}");
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
        let entity = Entity::unborn(EntityId::from_u128(0));
        let row = super::super::history_and_export::row(&entity);
        let mut rows = SessionRows::default();
        for n in 0..3 * KEPT as u128 {
            rows.keep(EntityId::from_u128(n), Digest::ZERO, row.clone());
        }
        assert!(rows.young.len() + rows.old.len() <= 2 * KEPT);
        let newest = EntityId::from_u128(3 * KEPT as u128 - 1);
        assert!(rows.get(newest, Digest::ZERO).is_some());
        assert!(rows.get(newest, Digest::of(b"grown")).is_none(), "its journal has grown");
        assert!(rows.get(EntityId::from_u128(1), Digest::ZERO).is_none());
    }
}
