//! Lists of sessions, the newest first.
//!
//! No store keeps sessions by time, and an index beside the journals would cost each turn one more
//! write. So a list reads the last record of every session, which says when it was written, and folds
//! only those that it shows. What was folded is remembered until the session's journal grows.
//!
//! The cursor of a page is the time and the id of the last session that was looked at: a session that
//! does not change meanwhile is on exactly one page.

use std::{
    collections::HashMap,
    fmt,
    str::FromStr,
    sync::{Arc, Mutex as Lock, PoisonError},
    time::Duration,
};

use clawnode_cluster::StoreError;
use clawnode_proto::{
    AgentName, Digest, EntityId, SessionKey, Timestamp,
    event::decode_record,
    id::KeyPart,
    kernel::KernelEvent,
    llm::{Role, Text},
    view::{SessionList, SessionRow},
    visible::is_hidden,
};
use futures_util::{StreamExt, stream};
use tokio::{sync::Mutex, time::Instant};

use super::{
    client::Sessions,
    inspect::{other_kind, state_of},
    send_error::SendError,
    state::SessionState,
};

/// Sessions whose last record one list reads at most; those that come later in the store's order are
/// left out, and the list says so.
pub const LOOK_MAX: usize = 100_000;
/// Sessions that one page folds at most, to find those that it shows.
const ROWS_MAX: usize = 5_000;
/// Ids that are asked for at once.
const IDS: usize = 1_000;
/// Last records that are read at the same time.
const TAILS_AT_ONCE: usize = 64;
/// Journals that are folded at the same time.
const ROWS_AT_ONCE: usize = 16;
/// Rows that are remembered, twice: about 10 MB.
const KEPT: usize = 10_000;
/// A look that took as long is used for ten times as long, so that lists of very many sessions spend at
/// most a tenth of the time looking. A shorter look is made for each list.
const SLOW: Duration = Duration::from_millis(200);
/// Characters of a title.
const TITLE: usize = 60;

/// The sessions that are wanted: a page of them.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// At most this many.
    pub limit: usize,
    /// Those that follow this one.
    pub after: Option<Cursor>,
    /// Of this agent.
    pub agent: Option<AgentName>,
    /// That came in here.
    pub channel: Option<KeyPart>,
    /// In this state, as [`SessionRow`] has it; without it, all that are not deleted.
    pub state: Option<String>,
    /// In which something happened since then.
    pub since: Option<Timestamp>,
    /// Also those of requests that name no user.
    pub stateless: bool,
}

/// Where a page ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    updated: Timestamp,
    id: EntityId,
}

/// What the last record of a session says.
#[derive(Clone, Copy, Debug)]
struct Head {
    at: Cursor,
    /// The last event; none can be read if absent.
    hash: Option<Digest>,
    is_tombstone: bool,
}

/// The last records of all sessions, newest first.
#[derive(Debug, Default)]
struct Heads {
    heads: Vec<Head>,
    /// There are sessions beside.
    is_cut: bool,
}

/// What lists read together, and remember.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// The last look, if it was slow: when it ended, and how long it took.
    look: Mutex<Option<(Instant, Duration, Arc<Heads>)>>,
    rows: Lock<Rows>,
}

/// Rows by entity, each with the last event that it knows; entities of other kinds have none. What was not used for `KEPT` others goes.
#[derive(Debug, Default)]
struct Rows {
    young: HashMap<EntityId, (Digest, Seen)>,
    old: HashMap<EntityId, (Digest, Seen)>,
}

/// What a journal turned out to be.
#[derive(Clone, Debug)]
struct Seen {
    /// Its row, if it is a session's.
    row: Option<SessionRow>,
}

/// What becomes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Shown,
    /// It would be shown if stateless ones were wanted.
    Hidden,
    Other,
}

impl Sessions {
    /// The sessions that are wanted, newest first. A damaged one is a row that says so, at the end.
    pub async fn list(&self, wanted: &Wanted) -> Result<SessionList, StoreError> {
        let all = self.heads().await?;
        let from = all.heads.partition_point(|head| wanted.after.is_some_and(|at| head.at >= at));
        let left = all.heads.get(from..).unwrap_or_default();
        let upto = left.partition_point(|head| wanted.since.is_none_or(|at| head.at.updated >= at));
        let left = left.get(..upto).unwrap_or_default();
        let deleted = wanted.state.as_deref() == Some("deleted");
        let follows = |head: &Head| deleted || !head.is_tombstone;
        let sought = (1..).zip(left.iter().copied()).filter(|(_, head)| follows(head));
        let sought: Vec<(usize, Head)> = sought.take(ROWS_MAX).collect();
        let mut rows = stream::iter(sought)
            .map(|(seen, head)| async move { (seen, self.row_of(head).await) })
            .buffered(ROWS_AT_ONCE);
        let (mut list, mut seen) = (SessionList::default(), 0);
        while list.sessions.len() < wanted.limit.max(1)
            && let Some((so_far, row)) = rows.next().await
        {
            seen = so_far;
            let Some(row) = row else { continue };
            match wanted.judge(&row) {
                Verdict::Shown => list.sessions.push(row),
                Verdict::Hidden => list.hidden += 1,
                Verdict::Other => {}
            }
        }
        drop(rows);
        if left.get(seen..).unwrap_or_default().iter().any(follows) {
            let end = seen.checked_sub(1).and_then(|at| left.get(at));
            list.next = end.map(|head| head.at.to_string());
        }
        list.partial = all.is_cut;
        Ok(list)
    }

    /// The last records of all sessions, as they are now, or were lately if that takes long.
    async fn heads(&self) -> Result<Arc<Heads>, StoreError> {
        let mut look = self.shared.listing.look.lock().await;
        if let Some((ended, took, heads)) = look.as_ref()
            && ended.elapsed() < *took * 10
        {
            return Ok(Arc::clone(heads));
        }
        let begun = Instant::now();
        let heads = Arc::new(self.look_at_all().await?);
        let took = begun.elapsed();
        *look = (took >= SLOW).then(|| (Instant::now(), took, Arc::clone(&heads)));
        Ok(heads)
    }

    async fn look_at_all(&self) -> Result<Heads, StoreError> {
        let mut all = Heads::default();
        let mut after = None;
        while !all.is_cut {
            let ids = self.substrate.journal.entities(after, IDS).await?;
            let Some(last) = ids.last() else { break };
            after = Some(*last);
            let mut found =
                stream::iter(ids).map(|id| self.head(id)).buffer_unordered(TAILS_AT_ONCE);
            while let Some(head) = found.next().await {
                all.heads.extend(head?);
            }
            all.is_cut = all.heads.len() > LOOK_MAX;
            // A store that answers at once would keep this thread to itself.
            tokio::task::yield_now().await;
        }
        all.heads.truncate(LOOK_MAX);
        all.heads.sort_unstable_by_key(|head| std::cmp::Reverse(head.at));
        Ok(all)
    }

    /// What the end of a journal says; nothing, if there is none any more.
    async fn head(&self, id: EntityId) -> Result<Option<Head>, StoreError> {
        let unreadable =
            Head { at: Cursor { updated: Timestamp(0), id }, hash: None, is_tombstone: false };
        let record = match self.substrate.journal.tail(id).await {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(None),
            Err(StoreError::Corrupt { .. }) => return Ok(Some(unreadable)),
            Err(failure) => return Err(failure),
        };
        let events = decode_record(&record.bytes).unwrap_or_default();
        let Some(last) = events.last() else { return Ok(Some(unreadable)) };
        // A snapshot of a session that goes on names what it replaced.
        let of_nothing = |event: KernelEvent| match event {
            KernelEvent::Snapshot(snapshot) => snapshot.archive.is_none(),
            _ => false,
        };
        let is_tombstone = last.event().ok().flatten().is_some_and(of_nothing);
        let at = Cursor { updated: last.head.ts, id };
        Ok(Some(Head { at, hash: Some(last.hash), is_tombstone }))
    }

    /// The time and the hash of a session's last event; nothing, if it was deleted or is damaged.
    pub(super) async fn last_event(
        &self,
        id: EntityId,
    ) -> Result<Option<(Timestamp, Digest)>, StoreError> {
        let head = self.head(id).await?.filter(|head| !head.is_tombstone);
        Ok(head.and_then(|head| Some((head.at.updated, head.hash?))))
    }

    /// A session's row; nothing, if the entity is of another kind.
    async fn row_of(&self, head: Head) -> Option<SessionRow> {
        let id = head.at.id;
        let kept = head.hash.and_then(|hash| self.shared.listing.rows().get(id, hash));
        if let Some(seen) = kept {
            return seen.row;
        }
        match self.read_row(id).await {
            Ok((hash, row)) => {
                self.shared.listing.rows().keep(id, hash, Seen { row: Some(row.clone()) });
                Some(row)
            }
            Err(failure) if other_kind(&failure).is_some() => {
                if let Some(hash) = head.hash {
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
        if let Some(text) = opening(&entity.state) {
            // The text of a session that is being deleted may be gone.
            row.title = self.text(text).await.ok().and_then(|text| title(&text));
        }
        debug_assert_eq!(row.state, state_of(&entity));
        Ok((entity.core.tail.hash, row))
    }
}

/// What a person said first.
fn opening(state: &SessionState) -> Option<&Text> {
    let seeded = state.seed.iter().find(|message| message.role == Role::User);
    let turn = state.closed.first().or_else(|| state.open.front());
    let said = || turn.and_then(|turn| turn.said.first()).map(|(_, text)| text);
    seeded.map(|message| &message.content).or_else(said)
}

/// The first words of a text, in one line, of characters that are seen.
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

// === impl Wanted ===

impl Wanted {
    fn judge(&self, row: &SessionRow) -> Verdict {
        let key = row.key.as_deref().and_then(|key| key.parse::<SessionKey>().ok());
        let of_agent = self
            .agent
            .as_ref()
            .is_none_or(|agent| key.as_ref().is_some_and(|key| key.agent == *agent));
        let of_channel = self
            .channel
            .as_ref()
            .is_none_or(|channel| key.as_ref().is_some_and(|key| key.channel == *channel));
        let of_state = match &self.state {
            Some(state) => row.state == *state,
            None => row.state != "deleted",
        };
        match of_agent && of_channel && of_state {
            true if row.stateless && !self.stateless => Verdict::Hidden,
            true => Verdict::Shown,
            false => Verdict::Other,
        }
    }
}

// === impl Cursor ===

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.updated.0, self.id)
    }
}

impl FromStr for Cursor {
    type Err = SendError;

    fn from_str(text: &str) -> Result<Self, SendError> {
        let parts = text.split_once('.');
        let read = parts.and_then(|(updated, id)| Some((updated.parse().ok()?, id.parse().ok()?)));
        let (updated, id) = read.ok_or_else(|| {
            let text: String = text.chars().take(80).collect();
            SendError::Cursor(format!("`{text}` is not TIME.ID"))
        })?;
        Ok(Self { updated: Timestamp(updated), id })
    }
}

// === impl Listing ===

impl Listing {
    fn rows(&self) -> std::sync::MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rows {
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
        let at = Cursor { updated: Timestamp(7), id: EntityId::from_u128(9) };
        assert_eq!(at.to_string().parse::<Cursor>().unwrap(), at);
        for wrong in ["", "7", "x.y", "ent_00000000000000000000000009"] {
            assert!(wrong.parse::<Cursor>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_more_rows_are_remembered_than_there_is_room_for() {
        let entity = crate::durable::Entity::unborn(EntityId::from_u128(0));
        let row = super::super::inspect::row(&entity);
        let mut rows = Rows::default();
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
