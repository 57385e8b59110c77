//! Which call is ended for a more urgent one, and such a call's side: how much it has said, and whether it has to end.
//! One that waits for money has not begun, and gives its place back instead.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use clawnode_proto::lane::Lane;
use tokio_util::sync::CancellationToken;

use super::{
    fair_queue::PoolTicket,
    pool::{Pool, PoolHolder},
};

/// Tokens that a call may have said and still be ended for another: what a person has waited for, and paid
/// for, is not thrown away beyond it.
pub(super) const SAID_MOST: u64 = 1_000;

/// Bytes that count as a token while a reply comes: providers report tokens when it has ended.
const TOKEN_BYTES: usize = 4;

/// What a call and the pools that it takes from share.
#[derive(Debug, Default)]
pub(crate) struct Yielding {
    said_bytes: AtomicU64,
    ended: CancellationToken,
    /// It has not begun: it waits for money.
    waits: bool,
}

/// The calls with something of one pool that may be ended.
pub(super) type YieldingCalls = BTreeMap<PoolTicket, Arc<Yielding>>;

/// Ends the calls for which more urgent ones wait, so far as any may be ended.
pub(super) fn preempt(pool: &mut Pool, size: u32, calls: &YieldingCalls) {
    // To end a call that has not begun costs nothing.
    let waits = |ticket| calls.get(&ticket).filter(|call| call.waits).map(|_| 0);
    let said = |ticket| calls.get(&ticket).map(|call| call.said());
    while let Some(ticket) = pool.preempt(size, waits).or_else(|| pool.preempt(size, said)) {
        if let Some(call) = calls.get(&ticket) {
            call.ended.cancel();
        }
    }
}

// === impl Pool ===

impl Pool {
    /// A call that ends now, because one of a higher lane waits: the one that has said least, and of several the
    /// one that came last. `said` is what a call has said, in tokens; nothing if it cannot be ended now.
    pub fn preempt(
        &mut self,
        size: u32,
        said: impl Fn(PoolTicket) -> Option<u64>,
    ) -> Option<PoolTicket> {
        if self.running() < size {
            return None;
        }
        let waiting: usize =
            self.lanes.range(..Lane::Background).map(|(_, queue)| queue.len()).sum();
        let ending = self.running.values().filter(|holder| holder.is_ending).count();
        if ending >= waiting {
            return None;
        }
        let may_end = |(ticket, holder): (&PoolTicket, &PoolHolder)| {
            let is_background = holder.lane == Lane::Background && !holder.is_ending;
            let said = said(*ticket).filter(|said| is_background && *said <= SAID_MOST)?;
            Some((said, std::cmp::Reverse(*ticket)))
        };
        let (_, std::cmp::Reverse(ticket)) = self.running.iter().filter_map(may_end).min()?;
        self.running.get_mut(&ticket)?.is_ending = true;
        Some(ticket)
    }
}

// === impl Yielding ===

impl Yielding {
    /// Of a call that has its place and waits for money.
    pub(crate) fn waiting() -> Self {
        Self { waits: true, ..Self::default() }
    }

    /// The model has said so many bytes more.
    pub(crate) fn says(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.said_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What it has said, in tokens.
    fn said(&self) -> u64 {
        let token = u64::try_from(TOKEN_BYTES).unwrap_or(1);
        self.said_bytes.load(Ordering::Relaxed).div_ceil(token)
    }

    /// Returns once it has to end.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }
}
