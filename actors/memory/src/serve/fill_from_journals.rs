//! The loop that follows the feed of journals and fills the store of its process.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clawnode_cluster::{Backoff, Record};
use clawnode_kernel::{Service, recent::RecentEntities};
use clawnode_proto::{
    AgentName, EntityId, ErrorChain, Kind, Position, SessionKey,
    event::decode_record,
    kernel::{DELETED, SNAPSHOT},
    memory::MemoryKey,
};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{debug, info, warn};

use super::{error::FillError, fill_sessions::NextMessage, said::is_deletion, served::ServedStore};
use crate::store::{MemoryStoreError, StoreScope};

/// How often new records are looked for.
const LOOK: Duration = Duration::from_secs(1);
/// How often it is kept how far the feed was followed: what a crash repeats.
const SAVE: Duration = Duration::from_secs(5);
/// The first and the longest wait after a store failed.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// The first and the longest wait after scopes with damaged files were filled again: a disk that damages them again and
/// again is not written to all the time.
const MENDED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(5));
/// Records that are read at once.
const PAGE: usize = 256;
/// Entities whose part in the store is remembered, up to twice as many.
const PLACES: usize = 10_000;
/// The wire name of the event that ends a turn: from then on, what was said in it can be found.
const TURN_DONE: &str = "turn_done";
/// The file that says how far the feed was followed. Where it is missing, the store is.
const FOLLOWED: &str = "followed.json";

/// What is kept of how far the store is filled.
#[derive(Debug, Serialize, Deserialize)]
struct FollowedFeed {
    position: Position,
    /// The agents whose conversations it has. With others, the feed is read from its beginning.
    conversations: BTreeSet<AgentName>,
    /// The scopes that are to be filled again.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    damaged: BTreeSet<StoreScope>,
    /// Which store it is about. Another one has nothing of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    store: String,
}

/// What an entity is to the store.
#[derive(Clone, Debug)]
enum FollowedEntity {
    /// Nothing that it holds.
    Other,
    /// A memory or a session. The last event that was looked at, and the position of the session's next message.
    Scope { scope: StoreScope, seen: u64, next: Option<NextMessage> },
}

/// A store that is filled.
#[derive(Debug)]
pub(super) struct StoreFiller {
    served: ServedStore,
    /// The feed was followed up to here.
    upto: Position,
    /// Up to here that is kept, since when. None: nothing is kept.
    saved: Option<(Position, Instant)>,
    /// The store that what is kept is about.
    store: String,
    /// The scopes that are kept as those to be filled again.
    saved_damaged: BTreeSet<StoreScope>,
    places: RecentEntities<FollowedEntity>,
    /// Whose files have changed since it was kept.
    changed: BTreeSet<EntityId>,
    /// How long to wait before damaged files are looked at again, and when that is over.
    pub(super) mending: (Backoff, Instant),
}

/// Fills the store, for ever, and gives its documents their vectors.
pub async fn run(served: ServedStore) {
    futures_util::future::join(fill(served.clone()), served.make_vectors()).await;
}

async fn fill(served: ServedStore) {
    let mut filler: Option<StoreFiller> = None;
    let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        let mut open = match filler.take() {
            Some(open) => open,
            None => StoreFiller::open(served.clone()).await,
        };
        match open.round().await {
            Ok(()) => {
                filler = Some(open);
                backoff = Backoff::new(AGAIN.0, AGAIN.1);
            }
            Err(failure) => {
                let failure = ErrorChain(&failure);
                if backoff.tries() == 0 {
                    warn!(%failure, "the store of memories is filled later");
                } else {
                    debug!(%failure, "the store of memories is filled later");
                }
                look.reset_after(backoff.next(&mut rand::rng()));
            }
        }
    }
}

// === impl StoreFiller ===

impl StoreFiller {
    /// Goes on from what is kept.
    pub(super) async fn open(served: ServedStore) -> Self {
        let path = path(&served);
        let kept = tokio::task::spawn_blocking(move || fs::read(path).ok()).await;
        let kept = kept.ok().flatten();
        let kept = kept.and_then(|bytes| serde_json::from_slice::<FollowedFeed>(&bytes).ok());
        let kept = kept.filter(|saved| saved.conversations == served.shared.conversations);
        let upto = kept.as_ref().map(|saved| saved.position);
        let store = kept.as_ref().map(|saved| saved.store.clone()).unwrap_or_default();
        let saved_damaged = kept.map(|saved| saved.damaged).unwrap_or_default();
        served.mark_damaged(&saved_damaged.iter().cloned().collect::<Vec<_>>());
        Self {
            served,
            upto: upto.unwrap_or(Position(0)),
            saved: upto.map(|upto| (upto, Instant::now())),
            store,
            saved_damaged,
            places: RecentEntities::new(PLACES),
            changed: BTreeSet::new(),
            mending: (Backoff::new(MENDED.0, MENDED.1), Instant::now()),
        }
    }

    /// Puts all that is new.
    pub(super) async fn round(&mut self) -> Result<(), FillError> {
        if self.served.shared.ranks.get().is_some_and(|ranks| !ranks.are_known()) {
            // What other workers hold is not to be filled here.
            return Ok(());
        }
        let end = self.served.storage().journal.end().await?;
        self.begin_again_if_lost(end).await?;
        self.mend().await?;
        let is_rebuilding = self.saved.is_none();
        self.tell(end, is_rebuilding);
        loop {
            let page = self.served.storage().journal.follow(self.upto, PAGE).await?;
            let mut ends: BTreeMap<EntityId, Vec<Record>> = BTreeMap::new();
            for (entity, record) in page.records {
                ends.entry(entity).or_default().push(record);
            }
            for (entity, records) in ends {
                self.take(entity, &records).await?;
            }
            if page.upto <= self.upto {
                break;
            }
            self.upto = page.upto;
            self.tell(end.max(page.upto), is_rebuilding);
            // A long way is kept on the way, if not everything is to be read again after a crash anyway.
            if self.saved.is_some_and(|(_, at)| at.elapsed() >= SAVE) {
                self.save().await?;
            }
        }
        let now = self.served.shared.entities.now();
        let end = self.upto;
        self.served.set_progress(|progress| {
            (progress.upto, progress.end, progress.whole_at) = (end, end, now);
        });
        let is_due = self.saved.is_none_or(|(upto, at)| upto < end && at.elapsed() >= SAVE);
        if is_due || self.saved_damaged != self.served.damaged() {
            self.save().await?;
        }
        if is_rebuilding {
            info!(upto = %end, "the store of memories has all that journals have");
            self.tell(end, false);
        }
        Ok(())
    }

    /// Goes to the beginning of the feed if the files are lost, if an operator wants it, or if the feed is another one.
    async fn begin_again_if_lost(&mut self, end: Position) -> Result<(), FillError> {
        let store = Arc::clone(&self.served.shared.store);
        let identity = store.identity().await?;
        let path = path(&self.served);
        let shown = path.display().to_string();
        let is_kept = fs_work(&path, Path::exists).await?;
        let is_lost = self.saved.is_some() && (!is_kept || self.store != identity);
        if is_lost {
            warn!(
                "the store of memories is not the one from before; what it lacks is put from journals"
            );
        }
        if is_lost || (self.saved.is_none() && self.upto == Position(0)) {
            // Its folder may also have gone before anything was kept.
            store.look_again().await?;
        }
        self.store = identity;
        if !is_lost && !self.served.is_to_begin_again() && self.upto <= end {
            return Ok(());
        }
        // Without it, what fails or dies on the way begins there again, too.
        let removed = fs_work(&path, |path| fs::remove_file(path)).await?;
        if let Err(source) = removed
            && source.kind() != io::ErrorKind::NotFound
        {
            return Err(FillError::Followed { path: shown, source });
        }
        self.served.begins_again();
        self.upto = Position(0);
        self.saved = None;
        self.places.clear();
        Ok(())
    }

    /// Fills scopes again whose files were damaged.
    async fn mend(&mut self) -> Result<(), FillError> {
        let now = Instant::now();
        if now < self.mending.1 {
            return Ok(());
        }
        let damaged = self.served.damaged();
        if damaged.is_empty() {
            if now.saturating_duration_since(self.mending.1) > MENDED.1 {
                self.mending.0 = Backoff::new(MENDED.0, MENDED.1);
            }
            return Ok(());
        }
        self.mending.1 = now + self.mending.0.next(&mut rand::rng());
        for scope in damaged {
            self.changed.insert(scope.entity());
            match self.served.refill(&scope).await {
                Ok(()) => info!(%scope, "a damaged index was filled again from its journal"),
                Err(failure) => skip(scope.entity(), failure)?,
            }
        }
        Ok(())
    }

    fn tell(&self, end: Position, is_rebuilding: bool) {
        let upto = self.upto;
        self.served.set_progress(|progress| {
            let is_rebuilding = is_rebuilding || self.served.is_to_begin_again();
            (progress.upto, progress.end, progress.is_rebuilding) = (upto, end, is_rebuilding);
        });
    }

    /// Takes new records of one journal.
    async fn take(&mut self, id: EntityId, records: &[Record]) -> Result<(), FillError> {
        let known = match self.places.take(id) {
            Some(known) => known,
            None => match self.place(id).await {
                Ok(Some(place)) => place,
                Ok(None) => return Ok(()),
                Err(failure) => return skip(id, failure),
            },
        };
        let FollowedEntity::Scope { scope, mut seen, mut next } = known else {
            self.places.put(id, FollowedEntity::Other);
            return Ok(());
        };
        if !self.served.holds(&scope) {
            self.served.lets_go(&scope).await?;
            self.places.put(id, FollowedEntity::Scope { scope, seen: 0, next: None });
            return Ok(());
        }
        let is_new = seen == 0 || matters(&scope, records, &mut seen);
        let filled = if !is_new {
            Ok(())
        } else if scope.memory().is_some() {
            self.changed.insert(id);
            self.served.catch_up(&scope).await
        } else {
            self.changed.insert(id);
            let _reading = self.served.shared.reading.lock(id).await;
            self.served.fill_session(&scope, &mut next).await
        };
        let is_gone = match self.served.last_event(id).await? {
            // The journal of a memory begins so after a purge, too.
            Some(last) if scope.memory().is_some() => last.head.kind == DELETED,
            Some(last) => is_deletion(&last)?,
            None => true,
        };
        if !is_new || !is_gone {
            // The next records are looked at one by one.
            self.places.put(id, FollowedEntity::Scope { scope, seen: seen.max(1), next });
        }
        filled.or_else(|failure| skip(id, failure))
    }

    /// What an entity is to the store; none if it is deleted, and may begin again. What is deleted, or not kept any more,
    /// goes from the store.
    async fn place(&self, id: EntityId) -> Result<Option<FollowedEntity>, FillError> {
        let core = self.served.shared.entities.core(id).await?;
        let key = core.key.as_deref().unwrap_or_default();
        let is_deleted = core.service == Service::Deleted;
        let scope = match core.kind {
            _ if is_deleted => None,
            Some(Kind::MEMORY) => {
                key.parse().ok().map(|key: MemoryKey| StoreScope::of_memory(&key))
            }
            Some(Kind::SESSION) => {
                let session = key.parse().ok();
                let kept = session.filter(|session: &SessionKey| self.served.keeps(session));
                kept.map(|session| StoreScope::of_session(&session))
            }
            _ => return Ok(Some(FollowedEntity::Other)),
        };
        let Some(scope) = scope else {
            if is_deleted {
                self.served.drops_deleted(id).await?;
            } else {
                self.served.removes(id).await?;
            }
            return Ok((!is_deleted).then_some(FollowedEntity::Other));
        };
        Ok(Some(FollowedEntity::Scope { scope, seen: 0, next: None }))
    }

    /// Keeps how far the feed was followed, after the files that have what came before.
    async fn save(&mut self) -> Result<(), FillError> {
        let changed = std::mem::take(&mut self.changed);
        self.served.store().sync(&changed).await?;
        let conversations = self.served.shared.conversations.clone();
        let damaged = self.served.damaged();
        let (position, store) = (self.upto, self.store.clone());
        let followed = FollowedFeed { position, conversations, damaged: damaged.clone(), store };
        let path = path(&self.served);
        let shown = path.display().to_string();
        let written = tokio::task::spawn_blocking(move || write(&path, &followed)).await;
        match written {
            Ok(Ok(())) => {}
            Ok(Err(source)) => return Err(FillError::Followed { path: shown, source }),
            Err(_ended) => return Err(MemoryStoreError::Closed.into()),
        }
        self.saved = Some((self.upto, Instant::now()));
        self.saved_damaged = damaged;
        Ok(())
    }
}

fn path(served: &ServedStore) -> PathBuf {
    served.shared.folder.join(FOLLOWED)
}

/// Works on a file, where it may block.
async fn fs_work<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce(&Path) -> T + Send + 'static,
) -> Result<T, MemoryStoreError> {
    let path = path.to_owned();
    let worked = tokio::task::spawn_blocking(move || work(&path)).await;
    worked.map_err(|_ended| MemoryStoreError::Closed)
}

fn write(path: &PathBuf, followed: &FollowedFeed) -> io::Result<()> {
    let bytes = serde_json::to_vec(followed).map_err(io::Error::other)?;
    let temporary = path.with_extension("json.new");
    let mut file = fs::File::create(&temporary)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}

/// What is wrong with one entity is no reason to leave out the others.
fn skip(id: EntityId, failure: FillError) -> Result<(), FillError> {
    if !failure.is_of_entity() {
        return Err(failure);
    }
    let failure = ErrorChain(&failure);
    warn!(entity = %id, %failure, "the store of memories lacks this one");
    Ok(())
}

/// Whether these records have something for the scope; goes on with `seen`.
fn matters(scope: &StoreScope, records: &[Record], seen: &mut u64) -> bool {
    let mut matters = false;
    for record in records {
        let Ok(events) = decode_record(&record.bytes) else {
            // Who reads the journal says what is wrong with it.
            return true;
        };
        for event in events.iter().filter(|event| event.head.n.0 > *seen) {
            let kind = event.head.kind.as_str();
            let is_end = kind == TURN_DONE || [DELETED, SNAPSHOT].contains(&kind);
            matters |= is_end || scope.memory().is_some();
        }
        *seen = events.last().map_or(*seen, |last| (*seen).max(last.head.n.0));
    }
    matters
}
