//! Moving the entities of a data directory into a cluster, of every kind: ids, events, batches and hash
//! chains as they are, and everything that is not finished: inputs, timers, jobs and their states.
//!
//! No event names a stream position and no id a partition, so records are copied byte for byte. An
//! entity's blobs go first, then its journal, then its waiting inputs: no worker can act on an
//! input before the journal behind it is whole. Nothing is overwritten: each append is fenced like
//! any other, and conflicts are refused by name. What is there and equal is left alone, so an
//! import that was cut off is run again.
//!
//! The cluster remembers which directory it takes, and then the directory is marked, before
//! anything is copied: from there on no node starts on it, and it goes nowhere else.

use std::{collections::BTreeSet, path::PathBuf};

use bytes::Bytes;
use clawnode_cluster::{BucketError, StoreError};
use clawnode_kernel::Entities;
use clawnode_local as local;
use clawnode_local::Moved;
use clawnode_proto::{
    EntityId, ErrorChain, Kind, Position,
    envelope::VERSIONS,
    job::{Job, JobState},
    limits::JOB_CLOSED_TTL,
    offline::{ImportRefusal, ImportView},
    subject::{BUDGET_KEYS, JOB_KEYS, UNJOURNALED_KEYS, USAGE_KEYS},
};
use futures_util::{StreamExt, stream};

use super::{
    copy_entity::{self, Copied, patiently},
    storage::refused,
};
use crate::start_error::StartError;

/// Entities and blobs that are copied at the same time.
const AT_ONCE: usize = 8;
/// The prefix of the keys under which a cluster remembers the directories that it took.
const KEYS: &str = "import.";
/// The source and the target of an import.
#[derive(Debug)]
pub struct Import {
    /// The directory.
    pub from: PathBuf,
    /// The cluster, for people; no secret.
    pub to: String,
    /// The directory's entities, open for reading.
    pub source: Entities,
    /// The cluster's.
    pub target: Entities,
}

/// Moves everything that can be moved. The view names what cannot.
pub async fn run(import: Import) -> Result<ImportView, StartError> {
    let was_complete = begin(&import).await?;
    let mut view = ImportView {
        from: import.from.display().to_string(),
        to: import.to.clone(),
        ..ImportView::default()
    };
    blobs(&import, &mut view).await?;
    // Before entities, whose owners ask for their jobs again: who takes one looks at its state first.
    if !was_complete {
        values(&import, &mut view, true).await?;
    }
    let left = entities(&import, &mut view).await?;
    // Once they are there, they are the cluster's to change.
    if !was_complete {
        timers(&import, &mut view).await?;
        values(&import, &mut view, false).await?;
        jobs(&import, &left, &mut view).await?;
    }
    if view.refused.is_empty() {
        mark(&import, true)?;
    }
    Ok(view)
}

/// Remembers on both sides that the directory goes there, unless it went elsewhere. Returns whether all of
/// it has gone there before.
async fn begin(import: &Import) -> Result<bool, StartError> {
    let id = local::identity(&import.from).map_err(|error| refused(&error))?;
    let marked = local::moved(&import.from).map_err(|error| refused(&error))?;
    let key = format!("{KEYS}{}", ulid::Ulid(id));
    let bucket = &import.target.storage().bucket;
    let known = patiently(|| bucket.get(&key)).await.map_err(|error| unreached(&error))?;
    if let (Some(Moved { to, .. }), None) = (&marked, &known) {
        let message = format!(
            "the sessions of `{}` were moved to {to}, which is not {}",
            import.from.display(),
            import.to
        );
        return Err(StartError::failed("data_dir_moved", message)
            .hint("name that cluster; or take the directory back first: `up --take-back`"));
    }
    if known.is_none() {
        let put = bucket.put(&key, Position(0), Bytes::from_static(b"{}"), None).await;
        match put {
            // Another process imports the same directory at the same time, which is harmless.
            Ok(_) | Err(BucketError::Conflict { .. }) => {}
            Err(BucketError::Store(error)) => return Err(unreached(&error)),
        }
    }
    match marked {
        // Run again, to look: what is complete stays so.
        Some(Moved { complete: true, .. }) => Ok(true),
        _ => mark(import, false).map(|()| false),
    }
}

fn mark(import: &Import, complete: bool) -> Result<(), StartError> {
    let moved = Moved { to: import.to.clone(), complete };
    local::set_moved(&import.from, &moved).map_err(|error| refused(&error))
}

/// All of them: which entity needs which is known to be the same on both sides only once it is
/// there.
async fn blobs(import: &Import, view: &mut ImportView) -> Result<(), StartError> {
    let (source, target) = (&import.source.storage().blobs, &import.target.storage().blobs);
    let there = patiently(|| target.list()).await.map_err(|error| unreached(&error))?;
    let there: BTreeSet<_> = there.into_iter().collect();
    let all = source.list().await.map_err(|error| unread(&error))?;
    let missing = all.into_iter().filter(|digest| !there.contains(digest));
    let mut copies = stream::iter(missing)
        .map(|digest| async move {
            let content = source.get(digest).await.map_err(Trouble::Source)?;
            if let Some(content) = content {
                patiently(|| target.put(content.clone())).await.map_err(Trouble::Target)?;
            }
            Ok(digest)
        })
        .buffer_unordered(AT_ONCE);
    while let Some(outcome) = copies.next().await {
        match outcome {
            Ok(_) => view.blobs += 1,
            Err(Trouble::Target(error)) => return Err(unreached(&error)),
            // An entity that needs it is refused by name.
            Err(Trouble::Source(error)) => tracing::warn!(%error, "a blob cannot be read"),
        }
    }
    Ok(())
}

/// On which side a store failed.
enum Trouble {
    Source(StoreError),
    Target(StoreError),
}

/// Says which of them stay.
async fn entities(
    import: &Import,
    view: &mut ImportView,
) -> Result<BTreeSet<EntityId>, StartError> {
    let mut left = BTreeSet::new();
    let ids = ids(&import.source).await.map_err(|error| unread(&error))?;
    let mut copies = stream::iter(ids)
        .map(|id| async move { (id, copy_entity::copy(&import.source, &import.target, id).await) })
        .buffer_unordered(AT_ONCE);
    while let Some((id, outcome)) = copies.next().await {
        match outcome {
            Ok(Copied { kind, records, inputs }) => {
                let is_session = kind.is_none_or(|kind| kind == Kind::SESSION);
                view.sessions += u64::from(is_session);
                view.others += u64::from(!is_session);
                view.moved += u64::from(records > 0);
                view.inputs += inputs;
            }
            // Each side has an account of the cluster: the one that is there limits what is spent there.
            Err(_) if is_kept(import, id).await => view.kept += 1,
            Err(why) => {
                left.insert(id);
                let key = import.source.core(id).await.ok().and_then(|core| core.key);
                let what = key.map_or_else(|| id.to_string(), |key| format!("{key} ({id})"));
                view.refused.push(ImportRefusal { what, why });
            }
        }
    }
    view.refused.sort_by(|a, b| a.what.cmp(&b.what));
    Ok(left)
}

/// Whether both sides have this budget.
async fn is_kept(import: &Import, id: EntityId) -> bool {
    let core = import.source.core(id).await;
    let is_budget = core.is_ok_and(|core| core.kind == Some(Kind::BUDGET));
    is_budget && import.target.core(id).await.is_ok()
}

/// All entities with a journal, or with inputs that no journal has yet.
async fn ids(source: &Entities) -> Result<BTreeSet<EntityId>, StoreError> {
    let storage = source.storage();
    let mut all: BTreeSet<EntityId> = source.all().await?.into_iter().collect();
    for partition in storage.all_partitions() {
        all.extend(storage.inbox.scan(partition).await?);
    }
    Ok(all)
}

/// Setting a timer that is set already changes nothing, and one that has fired is recognised by
/// its generation.
async fn timers(import: &Import, view: &mut ImportView) -> Result<(), StartError> {
    let source = import.source.storage();
    let target = &import.target.storage().timers;
    for partition in source.all_partitions() {
        let pending = source.timers.pending(partition).await.map_err(|error| unread(&error))?;
        for timer in pending {
            // To set it would leave out what this build does not know of its input.
            if timer.input.v_min > *VERSIONS.end() {
                let (what, needs) =
                    (format!("a timer of {}", timer.input.entity), timer.input.v_min);
                let why = format!(
                    "its input needs a build that reads version {needs}; import with that build"
                );
                view.refused.push(ImportRefusal { what, why });
                continue;
            }
            patiently(|| target.set(&timer)).await.map_err(|error| unreached(&error))?;
            view.timers += 1;
        }
    }
    Ok(())
}

/// The states of jobs, and values that all nodes share, such as which agents are paused.
async fn values(import: &Import, view: &mut ImportView, of_jobs: bool) -> Result<(), StartError> {
    let source = &import.source.storage().bucket;
    let target = &import.target.storage().bucket;
    for (key, entry) in source.list("").await.map_err(|error| unread(&error))? {
        // What model calls used is counted again, from the journals, at positions of the cluster. In a cluster, a person
        // says which processes are gone.
        let stays = key.starts_with(USAGE_KEYS) || key.starts_with(UNJOURNALED_KEYS);
        if key.starts_with(JOB_KEYS) != of_jobs || stays {
            continue;
        }
        // Of all values only these have an end, which the list does not tell.
        let is_closed =
            of_jobs && matches!(JobState::from_bytes(&entry.value), Ok(JobState::Closed));
        let ttl = is_closed.then_some(JOB_CLOSED_TTL);
        match target.put(&key, Position(0), entry.value.clone(), ttl).await {
            Ok(_) => view.values += 1,
            Err(BucketError::Store(error)) => return Err(unreached(&error)),
            // An import that was cut off before has moved it, and the cluster has gone on with it.
            // The limits that its own account shows hold in the cluster.
            Err(BucketError::Conflict { .. }) if of_jobs || key.starts_with(BUDGET_KEYS) => {}
            Err(BucketError::Conflict { .. }) => {
                let there = patiently(|| target.get(&key)).await;
                let there = there.map_err(|error| unreached(&error))?;
                if there.is_none_or(|there| there.value != entry.value) {
                    let why = "the cluster has a different value and keeps it".to_owned();
                    view.refused.push(ImportRefusal { what: format!("setting `{key}`"), why });
                }
            }
        }
    }
    Ok(())
}

/// The unfinished jobs. The state key of a finished one says so.
async fn jobs(
    import: &Import,
    left: &BTreeSet<EntityId>,
    view: &mut ImportView,
) -> Result<(), StartError> {
    let source = &import.source.storage().jobs;
    let target = &import.target.storage().jobs;
    for bytes in source.list().await.map_err(|error| unread(&error))? {
        let job = match Job::from_bytes(&bytes) {
            Ok(job) => job,
            Err(error) => {
                let why = ErrorChain(&error).to_string();
                view.refused.push(ImportRefusal { what: "a job that waits".to_owned(), why });
                continue;
            }
        };
        // It goes with its session.
        if !left.contains(&job.session.entity()) {
            patiently(|| target.put(&job)).await.map_err(|error| unreached(&error))?;
            view.jobs += 1;
        }
    }
    Ok(())
}

fn unread(error: &StoreError) -> StartError {
    StartError::of(error.code(), format!("cannot read the directory: {}", ErrorChain(error)))
        .hint("`clawnode doctor` looks for causes")
}

fn unreached(error: &StoreError) -> StartError {
    StartError::of(error.code(), format!("cannot write to the cluster: {}", ErrorChain(error)))
        .hint("run the same import again: it continues where it stopped")
}

#[cfg(test)]
#[cfg(feature = "test-util")]
mod tests {
    use std::{path::Path, sync::Arc};

    use clawnode_actors::session::Session;
    use clawnode_cluster::{Clock, Storage, SystemClock};
    use clawnode_kernel::{
        EntityKind, KnownKinds,
        counter::{Counted, Counter, CounterEvent, CounterInput},
        written::Written,
    };
    use clawnode_local::{LocalControl, LocalOptions};
    use clawnode_proto::{
        Input, Timestamp,
        kernel::{Accepted, KernelEvent},
        view::VerifyRow,
    };

    use super::*;
    use crate::node::{kinds, offline::DataDirectory};

    fn open(dir: &Path) -> (Storage, LocalControl) {
        let mut options = LocalOptions::new("cn".parse().unwrap(), Arc::new(SystemClock));
        options.head_room = 0;
        local::open(dir, options).unwrap()
    }

    fn add(key: &str, name: &str, by: u64) -> Input {
        CounterInput::Add { by }.to(key, name.parse().unwrap(), Timestamp(1)).unwrap()
    }

    /// The journals of a store, read by a build that knows counters.
    async fn read(storage: &Storage) -> Vec<VerifyRow> {
        let kinds = KnownKinds::default().with::<Session>().with::<Counter>();
        let entities = Entities::new(storage.clone(), Arc::new(SystemClock), kinds);
        let mut rows = entities.verify(None).await.unwrap().journals;
        rows.sort_by_key(|row| row.id);
        rows
    }

    /// This build knows only sessions, and still moves the entities of other kinds in the directory.
    #[tokio::test]
    async fn entities_of_kinds_that_are_not_known_move_with_the_sessions() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (source, control) = open(from.path());
        let session = "default:cli:local:ada";
        Written::born(&source, Kind::SESSION, session, 100).await.unwrap();
        let mut counter = Written::born(&source, Counter::KIND, "team/one", 100).await.unwrap();
        let input = add("team/one", "five", 5);
        counter.append::<KernelEvent>(200, &[Accepted { input }.into()]).await.unwrap();
        counter.append::<CounterEvent>(200, &[Counted { total: 5 }.into()]).await.unwrap();
        // What waits moves as well, also where there is no journal yet.
        for key in ["team/one", "team/two"] {
            source.inbox.put(&add(key, "two", 2)).await.unwrap();
        }
        let before = read(&source).await;
        assert!(before.len() == 2 && before.iter().all(|row| row.problem.is_none()), "{before:?}");
        source.health.close().await;
        drop((source, control, counter));

        let directory = DataDirectory::at(from.path().to_owned()).await.unwrap();
        let replayed = directory.replay(None).await.unwrap().sessions;
        assert_eq!(replayed.iter().map(|row| &*row.session).collect::<Vec<_>>(), [session]);
        let (target, _control) = open(to.path());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        for moved in [2, 0] {
            let view = run(Import {
                from: from.path().to_owned(),
                to: "elsewhere".to_owned(),
                source: directory.entities().clone(),
                target: kinds::entities(target.clone(), Arc::clone(&clock)),
            });
            let view = view.await.unwrap();
            assert_eq!(view.refused, []);
            assert_eq!((view.sessions, view.others, view.moved, view.inputs), (1, 2, moved, moved));
        }
        assert_eq!(read(&target).await, before, "the same chains on both sides");
        for key in ["team/one", "team/two"] {
            let id = EntityId::derive(Counter::KIND, key);
            assert_eq!(target.inbox.pending(id).await.unwrap(), 1, "{key}");
        }
    }
}
