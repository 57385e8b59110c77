//! The journals with a snapshot behind what was followed: records that it replaced may be missing in the pages so far.

use std::collections::BTreeMap;

use clawnode_cluster::{FeedPage, Storage, StoreError};
use clawnode_proto::{EntityId, Position};

use super::{history, stopped::CountingStopped};

/// How often a page is asked for that has nothing, before a later page is waited for.
const TRIES: usize = 3;

/// What is known of snapshots that are still to be followed.
#[derive(Debug, Default)]
pub(super) struct SnapshotsAhead {
    /// They were looked for up to here.
    upto: Position,
    journals: BTreeMap<EntityId, JournalAhead>,
}

/// A journal with such a snapshot.
#[derive(Clone, Copy, Debug)]
struct JournalAhead {
    /// The newest snapshot that was found.
    newest: Position,
    /// All its records before this one are counted, also those that were replaced. 0 if that is not known.
    next: Position,
}

// === impl SnapshotsAhead ===

impl SnapshotsAhead {
    /// Looks for snapshots behind `followed`, from where it looked last.
    ///
    /// A record that was missing in a page has its snapshot in the store already. While this looks for it, a further
    /// snapshot of the same journal may replace that one; so it looks until the way that is left is one page. A page is
    /// read in milliseconds, and between two snapshots of a session are hundreds of events.
    pub(super) async fn look(
        &mut self,
        storage: &Storage,
        followed: Position,
        limit: usize,
    ) -> Result<(), CountingStopped> {
        // What those replaced was counted when they were followed.
        self.journals.retain(|_, ahead| ahead.newest > followed);
        self.upto = self.upto.max(followed);
        loop {
            let end = storage.journal.end().await?;
            let mut pages = 0_usize;
            while self.upto < end {
                let Some(page) = page_after(storage, self.upto, limit).await? else {
                    return Ok(());
                };
                for (id, record) in &page.records {
                    if history::is_snapshot(record) {
                        let unknown = JournalAhead { newest: Position(0), next: Position(0) };
                        self.journals.entry(*id).or_insert(unknown).newest = record.position;
                    }
                }
                self.upto = page.upto;
                pages += 1;
            }
            if pages <= 1 {
                return Ok(());
            }
        }
    }

    /// The journals that may have records up to here that are not counted.
    pub(super) fn uncounted(&self, followed: Position) -> Vec<EntityId> {
        let uncounted = self.journals.iter().filter(|(_, ahead)| ahead.next <= followed);
        uncounted.map(|(id, _)| *id).collect()
    }

    /// All records of this journal before `next` are counted; without one, it has no others that can be counted.
    pub(super) fn is_counted(&mut self, id: EntityId, next: Option<Position>) {
        let Some(next) = next else {
            self.journals.remove(&id);
            return;
        };
        if let Some(ahead) = self.journals.get_mut(&id) {
            ahead.next = next;
        }
    }
}

/// The page after this position. That there is none is believed if it is said twice while the feed does not grow: a
/// leader of the store that was deposed may say so, too.
async fn page_after(
    storage: &Storage,
    after: Position,
    limit: usize,
) -> Result<Option<FeedPage>, StoreError> {
    let mut before = None;
    for _ in 0..TRIES {
        let page = storage.journal.follow(after, limit).await?;
        if page.upto > after {
            return Ok(Some(page));
        }
        let end = storage.journal.end().await?;
        if before == Some(end) {
            return Ok(None);
        }
        before = Some(end);
    }
    let detail = format!("it grows, and has nothing after {after}");
    Err(StoreError::Unavailable { store: "feed of journals", detail })
}
