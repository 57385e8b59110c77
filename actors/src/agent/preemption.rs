//! A call that may be ended for a more urgent one: how much it has said, and whether it has to end. One that waits for
//! money has not begun, and gives its place back instead.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio_util::sync::CancellationToken;

use super::{fair_queue::PoolTicket, pool::Pool};

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
