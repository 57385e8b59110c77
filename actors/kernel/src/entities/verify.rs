//! Whether journals are sound: hash chains, the kernel's invariants, and those of the entity's kind.

use clawnode_cluster::StoreError;
use clawnode_proto::{
    EntityId, ErrorChain, Kind, Tail,
    kernel::SNAPSHOT,
    view::{VerifyRow, VerifyView},
};
use futures_util::future::BoxFuture;

use super::{Entities, EntityError};
use crate::{Core, FoldError, Violation};

/// What a check has found, or found so far.
#[derive(Debug, Default)]
struct CheckedJournal {
    kind: Option<Kind>,
    key: Option<String>,
    tail: Option<Tail>,
}

impl Entities {
    /// Verifies hash chains and invariants, of one entity or of all.
    pub fn verify(&self, only: Option<EntityId>) -> BoxFuture<'_, Result<VerifyView, StoreError>> {
        Box::pin(async move {
            let ids = match only {
                Some(id) => vec![id],
                None => self.all().await?,
            };
            let mut journals = Vec::with_capacity(ids.len());
            for id in ids {
                journals.push(self.verify_one(id).await);
            }
            Ok(VerifyView { journals })
        })
    }

    async fn verify_one(&self, id: EntityId) -> VerifyRow {
        let mut found = CheckedJournal::default();
        let problem = self.check(id, &mut found).await.err();
        let CheckedJournal { kind, key, tail } = found;
        VerifyRow {
            id,
            key,
            kind,
            events: tail.map_or(0, |tail| tail.n.0),
            head: tail.map(|tail| tail.hash),
            partial: problem.is_none() && kind.is_some_and(|kind| !self.kinds.has(kind)),
            problem: problem.map(|failure| ErrorChain(&failure).to_string()),
        }
    }

    /// Loads what is in the journal as an activation does, and folds the whole past up to it.
    async fn check(&self, id: EntityId, found: &mut CheckedJournal) -> Result<(), EntityError> {
        // One after the other, so that one state is in memory at a time; the journal may grow
        // meanwhile.
        let loaded = self.load(id).await?;
        let kind = Core::salvaged(id, &loaded).kind;
        found.kind = kind;
        let mut fold = self.kinds.begin(kind, id);
        fold.load(&loaded)?;
        let at = fold.core().tail;
        drop((loaded, fold));
        let (key, tail) = self.play(id, kind, &mut 0).await?;
        if tail.n < at.n || (tail.n == at.n && tail != at) {
            let text = "the snapshot differs from the state that the journal gives".to_owned();
            let (kind, source) = (SNAPSHOT.to_owned(), Violation(text));
            return Err(FoldError::Violation { entity: id, n: tail.n, kind, source }.into());
        }
        (found.key, found.tail) = (key, Some(tail));
        Ok(())
    }

    /// Replays a journal without its effects. Answers how many things that people were
    /// shown it compared, and the first difference. It skips kinds that show people nothing.
    pub fn replay(&self, id: EntityId) -> BoxFuture<'_, Option<(u64, Option<String>)>> {
        Box::pin(async move {
            let kind = match self.kind(id).await {
                Ok(kind) => kind,
                Err(failure) => return Some((0, Some(ErrorChain(&failure).to_string()))),
            };
            if kind
                .is_some_and(|kind| self.kinds.get(kind).is_none_or(|known| !known.is_replayed()))
            {
                return None;
            }
            let mut compared = 0;
            let problem = self.play(id, kind, &mut compared).await.err();
            Some((compared, problem.map(|failure| ErrorChain(&failure).to_string())))
        })
    }
}

#[cfg(test)]
#[cfg(feature = "test-util")]
mod tests {
    use std::sync::Arc;

    use clawnode_cluster::{Clock, Storage, SystemClock};
    use clawnode_local::LocalOptions;
    use clawnode_proto::{
        Digest, EntityId, Position, Timestamp,
        kernel::{Born, Deleted, KernelEvent, PurgeBegun, Snapshot, SnapshotState},
    };
    use serde_bytes::ByteBuf;

    use super::Entities;
    use crate::{
        Entity, EntityKind as _, KnownKinds, LoadedJournal, archive, counter::Counter,
        written::Written,
    };

    fn entities(storage: &Storage) -> Entities {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        Entities::new(storage.clone(), clock, KnownKinds::default().with::<Counter>())
    }

    async fn problem(storage: &Storage, id: EntityId) -> Option<String> {
        let view = entities(storage).verify(Some(id)).await.unwrap();
        view.journals.into_iter().next().unwrap().problem
    }

    /// A snapshot of all that is there.
    async fn snapshot(written: &Written, archive: Option<Digest>) -> KernelEvent {
        let records = written.storage.journal.read(written.id, Position(0)).await.unwrap();
        let loaded = LoadedJournal { records, snapshot: None };
        let bytes = Entity::<Counter>::of(written.id, &loaded).unwrap().snapshot().unwrap();
        let state = SnapshotState::Inline { bytes: ByteBuf::from(bytes) };
        Snapshot { tail: written.tail, archive, state, superseded: None, positions: Vec::new() }
            .into()
    }

    #[tokio::test]
    async fn a_lifetime_begins_after_the_last_deletion_also_in_an_archive() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = LocalOptions::new("cn".parse().unwrap(), Arc::new(SystemClock));
        options.head_room = 0;
        let (storage, _control) = clawnode_local::open(dir.path(), options).unwrap();
        let mut written = Written::born(&storage, Counter::KIND, "lives", 100).await.unwrap();
        let id = written.id;
        let lifetime = async || {
            let lifetime = entities(&storage).lifetime(id).await.ok().flatten();
            lifetime.map(|times| (times.start().0, times.end().0))
        };
        assert_eq!(lifetime().await, Some((100, 100)));
        let archived =
            archive::pack(&storage.journal.read(id, Position(0)).await.unwrap()).unwrap();
        let archived = storage.blobs.put(archived).await.unwrap();
        let with_archive = snapshot(&written, Some(archived)).await;
        written.replace(200, with_archive).await.unwrap();
        assert_eq!(lifetime().await, Some((100, 200)));
        storage.blobs.delete(archived).await.unwrap();
        assert_eq!(lifetime().await, None, "its beginning is not known any more");
        written.append::<KernelEvent>(300, &[PurgeBegun {}.into()]).await.unwrap();
        let purged = snapshot(&written, None).await;
        written.replace(400, purged).await.unwrap();
        assert_eq!(lifetime().await, None, "it was purged");

        let deleted = Deleted { at: Timestamp(500), dropped: Vec::new() };
        written.append::<KernelEvent>(500, &[deleted.into()]).await.unwrap();
        assert_eq!(lifetime().await, None, "it is deleted");
        let born = Born { kind: Counter::KIND, key: "lives".to_owned() };
        written.append::<KernelEvent>(600, &[born.into()]).await.unwrap();
        assert_eq!(lifetime().await, Some((600, 600)), "it has begun again");
    }

    #[tokio::test]
    async fn a_journal_begins_later_only_if_its_state_says_that_it_was_purged() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = LocalOptions::new("cn".parse().unwrap(), Arc::new(SystemClock));
        options.head_room = 0;
        let (storage, _control) = clawnode_local::open(dir.path(), options).unwrap();
        let born = async |key| Written::born(&storage, Counter::KIND, key, 100).await.unwrap();

        // Its first records are cut off, and nothing says why.
        let mut cut = born("cut").await;
        let without_archive = snapshot(&cut, None).await;
        cut.replace(200, without_archive).await.unwrap();
        let found = problem(&storage, cut.id).await.unwrap();
        assert!(found.contains("no purge removed them"), "{found}");

        let mut lost = born("lost").await;
        let missing = Digest::of(b"an archive that is not there");
        let with_archive = snapshot(&lost, Some(missing)).await;
        lost.replace(200, with_archive).await.unwrap();
        let found = problem(&storage, lost.id).await.unwrap();
        assert!(found.contains("is missing"), "{found}");

        // A purge may have removed it (C27), and its end replaces what is left.
        lost.append::<KernelEvent>(300, &[PurgeBegun {}.into()]).await.unwrap();
        assert_eq!(problem(&storage, lost.id).await, None, "in mid-purge");
        let purged = snapshot(&lost, None).await;
        lost.replace(400, purged).await.unwrap();
        assert_eq!(problem(&storage, lost.id).await, None, "purged");

        // A purge is a reason once: what was cut off later has none.
        let cut_later = snapshot(&lost, None).await;
        lost.replace(500, cut_later).await.unwrap();
        let found = problem(&storage, lost.id).await.unwrap();
        assert!(found.contains("no purge removed them"), "{found}");
    }
}
