//! The loop that counts what model calls used.

use std::time::Duration;

use clawnode_cluster::{Backoff, Storage};
use futures_util::future::BoxFuture;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{debug, warn};

use super::{state::Books, stopped::CountingStopped, stored::forget};
use crate::session::Sessions;

/// How often new records are looked for.
const LOOK: Duration = Duration::from_secs(1);
/// How often what was counted is saved at most: what a crash repeats.
const SAVE: Duration = Duration::from_secs(5);
/// The first and the longest wait after a store failed.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Counts what model calls use, whenever `leads` says that this process is the one to do it; never ends.
pub async fn run(sessions: Sessions, leads: impl Fn() -> bool) {
    let mut books: Option<Books> = None;
    let mut saved: Option<Instant> = None;
    let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        if !leads() {
            // The next one goes on from what is saved.
            books = None;
            continue;
        }
        let due = saved.is_none_or(|at| at.elapsed() >= SAVE);
        match round(&sessions, &mut books, due).await {
            Ok(did_save) => {
                saved = did_save.then(Instant::now).or(saved);
                backoff = Backoff::new(AGAIN.0, AGAIN.1);
            }
            Err(failure) => {
                books = None;
                let is_first = backoff.tries() == 0;
                again(sessions.storage(), failure, is_first).await;
                let wait = backoff.next(&mut rand::rng());
                look.reset_after(wait);
            }
        }
    }
}

/// Counts all that is new; says whether it was saved.
fn round<'a>(
    sessions: &'a Sessions,
    books: &'a mut Option<Books>,
    due: bool,
) -> BoxFuture<'a, Result<bool, CountingStopped>> {
    Box::pin(async move {
        let open = match books.take() {
            Some(open) => books.insert(open),
            None => books.insert(Books::open(sessions.storage().clone()).await?),
        };
        while open.count_page().await? {
            // A long way is saved on the way.
            if open.is_far() {
                open.save(sessions.now()).await?;
            }
        }
        if !due || !open.is_changed() {
            return Ok(false);
        }
        open.save(sessions.now()).await?;
        Ok(true)
    })
}

/// Sees to it that the next round can go on. A count that cannot be read is made again from the journals.
pub(super) async fn again(storage: &Storage, failure: CountingStopped, is_first: bool) {
    let key = match failure {
        CountingStopped::Unreadable { key, detail } => {
            warn!(key, detail, "a count cannot be read; it is made again from the journals");
            key
        }
        CountingStopped::Store(_) | CountingStopped::Unwritable(_) if is_first => {
            warn!(%failure, "model calls are counted later");
            return;
        }
        CountingStopped::Store(_) | CountingStopped::Another | CountingStopped::Unwritable(_) => {
            debug!(%failure, "model calls are counted later");
            return;
        }
    };
    if let Err(failure) = forget(storage, &key).await {
        debug!(%failure, "model calls are counted later");
    }
}
