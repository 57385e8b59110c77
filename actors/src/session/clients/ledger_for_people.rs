//! The work ledger of a session, for people: from its state, and what left that from the journal's archives.

use std::{collections::VecDeque, ops::ControlFlow};

use clawnode_kernel::Service;
use clawnode_proto::{
    EntityId, Seq,
    ledger::{LedgerRow, LedgerShow, LedgerView},
    session::SessionEvent,
};

use super::{send_error::SendError, sessions::Sessions};

/// Entries of one answer unless another number is asked for.
const ROWS: u32 = 100;

/// The entries that were asked for, while they are looked for.
#[derive(Debug)]
struct LedgerPage<'a> {
    wanted: &'a LedgerShow,
    rows: VecDeque<LedgerRow>,
}

impl Sessions {
    /// What the agent of a session has written into its work ledger: the newest entries that are wanted.
    pub async fn ledger(&self, id: EntityId, wanted: &LedgerShow) -> Result<LedgerView, SendError> {
        let known = self.known(id).await?;
        let session = known.core.key.clone().unwrap_or_else(|| id.to_string());
        if matches!(known.core.service, Service::Deleted) {
            return Err(SendError::NotFound { session });
        }
        let ledger = &known.state.ledger;
        let mut page = LedgerPage::new(wanted);
        ledger.entries.iter().for_each(|row| page.see(row));
        // The first entry is 1: if that is here, all of them are.
        let has_all = ledger.entries.front().is_none_or(|row| row.number == 1);
        if !has_all && !page.is_full() {
            page = self.whole_ledger(id, wanted).await?;
        }
        let (total, entries) = (ledger.total, page.rows.into());
        Ok(LedgerView { session, total, entries })
    }

    /// The same from the whole journal, archives included.
    async fn whole_ledger<'a>(
        &self,
        id: EntityId,
        wanted: &'a LedgerShow,
    ) -> Result<LedgerPage<'a>, SendError> {
        let mut page = LedgerPage::new(wanted);
        let visit = |sealed: clawnode_proto::Sealed| {
            if let Ok(Some(SessionEvent::LedgerEntry(entry))) = sealed.event::<SessionEvent>() {
                if entry.number == 1 {
                    // What is before is of a session that was deleted.
                    page.rows.clear();
                }
                let (turn, call, at) = (entry.turn, entry.call, sealed.head.ts);
                let (number, entry, text) = (entry.number, entry.entry, entry.text);
                page.see(&LedgerRow { number, entry, text, turn, call, at });
            }
            ControlFlow::Continue(())
        };
        self.entities().each_event(id, Seq(0), visit).await?;
        Ok(page)
    }
}

// === impl LedgerPage ===

impl<'a> LedgerPage<'a> {
    const fn new(wanted: &'a LedgerShow) -> Self {
        Self { wanted, rows: VecDeque::new() }
    }

    fn most(&self) -> usize {
        usize::try_from(self.wanted.last.unwrap_or(ROWS)).unwrap_or(usize::MAX)
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= self.most()
    }

    /// Takes the next entry, if it is wanted. Of too many, the oldest goes.
    fn see(&mut self, row: &LedgerRow) {
        let is_wanted = self.wanted.entry.is_none_or(|entry| row.entry == entry)
            && self.wanted.before.is_none_or(|before| row.number < before);
        if !is_wanted || self.most() == 0 {
            return;
        }
        if self.is_full() {
            self.rows.pop_front();
        }
        self.rows.push_back(row.clone());
    }
}
