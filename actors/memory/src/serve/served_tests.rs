//! Stores beside journals that grow: what is found, and what is not.

use std::{
    borrow::Cow, collections::BTreeSet, fs, fs::File, path::Path, sync::Arc, time::Duration,
};

use clawnode_cluster::{AppendAnswer, Backoff, Storage, SystemClock, Write};
use clawnode_kernel::{Core, Entity, EntityKind as _, archive, core::SnapshotBody};
use clawnode_local as local;
use clawnode_proto::{
    EntityId, Epoch, EventId, IdempotencyKey, Incarnation, Input, InputId, Kind, Position,
    ProcessId, Sealed, SessionKey, Tail, Timestamp, TurnId, codec,
    event::{Grammar, Head, VERSION, encode_record},
    kernel::{Accepted, Born, Claim, Deleted, KernelEvent, Snapshot, SnapshotState},
    memory::{MemoryKey, MemoryLayer, MemorySource, MemoryTrust},
    memory_point::{LearnedPoint, MemoryEvent, MemoryInput, PointContent, PointsRating},
    session::UserMessage,
    session::{SessionEvent, SessionInput, TurnDone, TurnOutcome},
};

use super::{ServedStore, fill_from_journals::StoreFiller};
use crate::{
    points::Memory,
    store::{LocalStore, MemoryStore as _, RecallAnswer, RecallQuery, StoreScope},
};

/// A journal, as its owner writes it.
pub(super) struct Owner {
    storage: Storage,
    id: EntityId,
    kind: Kind,
    key: String,
    pub(super) tail: Tail,
    position: Position,
    epoch: Epoch,
    inputs: u64,
    written: Vec<Sealed>,
}

impl Owner {
    pub(super) async fn new(storage: &Storage, kind: Kind, key: &str) -> Self {
        let id = EntityId::derive(kind, key);
        let (storage, key) = (storage.clone(), key.to_owned());
        let (tail, position, epoch) = (Tail::START, Position(0), Epoch(0));
        let (inputs, written) = (0, Vec::new());
        let mut owner = Self { storage, id, kind, key, tail, position, epoch, inputs, written };
        owner.begins().await;
        owner
    }

    pub(super) async fn begins(&mut self) {
        self.epoch = Epoch(self.epoch.0 + 1);
        let born = Born { kind: self.kind, key: self.key.clone() };
        let claim = self.sealed(&KernelEvent::from(Claim::default()));
        let born = self.sealed(&KernelEvent::from(born));
        self.append(vec![claim, born]).await;
    }

    fn sealed<G: Grammar>(&mut self, event: &G) -> Sealed {
        let (n, incarnation) =
            (self.tail.n.next(), Incarnation { process: ProcessId::from_u128(1), counter: 1 });
        let head = Head {
            entity: self.id,
            n,
            v: VERSION,
            eid: EventId::derive(self.id, incarnation, n),
            epoch: self.epoch,
            incarnation,
            ts: Timestamp(n.0),
            kind: event.kind().to_owned(),
            required: event.required(),
            progress: event.progress(),
        };
        let sealed = Sealed::seal(head, event, self.tail.hash).unwrap();
        self.tail = self.tail.follow(&sealed).unwrap();
        sealed
    }

    async fn append(&mut self, events: Vec<Sealed>) {
        self.write(events, false).await;
    }

    async fn write(&mut self, events: Vec<Sealed>, rollup: bool) {
        let bytes = encode_record(&events).unwrap().into();
        let write = Write { bytes, rollup };
        match self.storage.journal.append(self.id, self.position, write).await {
            AppendAnswer::Stored(position) => self.position = position,
            other => panic!("{other:?}"),
        }
        self.written.extend(events);
    }

    fn accepted<B: serde::Serialize>(&mut self, body: &B) -> Sealed {
        self.inputs += 1;
        let name: IdempotencyKey = format!("input:{}", self.inputs).parse().unwrap();
        let input = Input::new(self.kind, &self.key, name, Timestamp(1), body).unwrap();
        self.sealed(&KernelEvent::from(Accepted { input }))
    }

    /// A memory takes an input, and records what follows.
    async fn tell(&mut self, input: &MemoryInput) {
        let accepted = self.accepted(input);
        self.append(vec![accepted]).await;
        loop {
            let mut memory = Entity::<Memory>::unborn(self.id);
            for sealed in &self.written {
                memory.apply(sealed).unwrap();
            }
            let events: Vec<MemoryEvent> = Memory::advance(&memory.state);
            if events.is_empty() {
                return;
            }
            let sealed = events.iter().map(|event| self.sealed(event)).collect();
            self.append(sealed).await;
        }
    }

    pub(super) async fn learns(&mut self, text: &str, about: &str) {
        let content = PointContent {
            layer: MemoryLayer::Semantic,
            text: text.to_owned(),
            subject: Some(about.to_owned()),
            predicate: Some("is".to_owned()),
            object: None,
            confidence: 100,
            importance: 5,
            trust: MemoryTrust::Person,
        };
        let points = vec![LearnedPoint { content, source: None }];
        self.tell(&MemoryInput::Put { points }).await;
    }

    pub(super) async fn forgets(&mut self, text: &str) {
        let mut memory = Entity::<Memory>::unborn(self.id);
        self.written.iter().for_each(|sealed| memory.apply(sealed).unwrap());
        let found = memory.state.live().find(|kept| kept.point.content.text == text).unwrap();
        let (points, by) = (vec![found.id], "a test".to_owned());
        self.tell(&MemoryInput::Forget { points, by, now: false }).await;
    }

    /// Feedback moves the importance of a point.
    pub(super) async fn rates(&mut self, text: &str, step: i8) {
        let mut memory = Entity::<Memory>::unborn(self.id);
        self.written.iter().for_each(|sealed| memory.apply(sealed).unwrap());
        let found = memory.state.live().find(|kept| kept.point.content.text == text).unwrap();
        let feedback = InputId::from_u128(u128::from(self.inputs));
        let (session, turn, points) =
            (EntityId::from_u128(7), TurnId::from_u128(8), vec![found.id]);
        self.tell(&MemoryInput::Rate(PointsRating { feedback, session, turn, step, points })).await;
    }

    /// A person says something, in a turn that ends.
    pub(super) async fn hears(&mut self, text: &str) {
        let said = self.accepted(&SessionInput::UserMessage(UserMessage::text(text)));
        let turn = TurnId::from_u128(u128::from(self.inputs));
        let outcome = TurnOutcome::Cancelled;
        let done = self.sealed(&SessionEvent::from(TurnDone { turn, outcome }));
        self.append(vec![said, done]).await;
    }

    /// A session is deleted: one snapshot without an archive takes the place of its journal.
    pub(super) async fn is_removed(&mut self) {
        let state = SnapshotState::Inline { bytes: Vec::new().into() };
        let (tail, positions) = (self.tail, Vec::new());
        let gone = Snapshot { tail, archive: None, state, superseded: None, positions };
        let gone = self.sealed(&KernelEvent::from(gone));
        self.write(vec![gone], true).await;
    }

    /// A snapshot takes the place of its journal, which is archived.
    pub(super) async fn is_compacted(&mut self) {
        let mut core = Core::default();
        self.written.iter().for_each(|sealed| core.apply(self.id, sealed).unwrap());
        let body = SnapshotBody { core, kind: Cow::Borrowed(&[]), needs: Vec::new() };
        let state = SnapshotState::Inline { bytes: codec::encode(&body).unwrap().into() };
        let records = self.storage.journal.read(self.id, Position(0)).await.unwrap();
        let archive = archive::pack(&records).unwrap();
        let archive = Some(self.storage.blobs.put(archive).await.unwrap());
        let (tail, positions) = (self.tail, Vec::new());
        let snapshot = Snapshot { tail, archive, state, superseded: None, positions };
        let snapshot = self.sealed(&KernelEvent::from(snapshot));
        self.write(vec![snapshot], true).await;
    }

    pub(super) async fn is_deleted(&mut self) {
        let gone = KernelEvent::from(Deleted { at: Timestamp(1), dropped: Vec::new() });
        let gone = self.sealed(&gone);
        self.append(vec![gone]).await;
    }
}

fn served(folder: &Path, storage: &Storage) -> ServedStore {
    served_with(folder, storage, None)
}

pub(super) fn served_with(
    folder: &Path,
    storage: &Storage,
    model: Option<(&str, usize)>,
) -> ServedStore {
    let store = LocalStore::open(folder, model).unwrap();
    let lock = File::create(folder.join("lock")).unwrap();
    let conversations = BTreeSet::from(["default".parse().unwrap()]);
    ServedStore::new(store, lock, storage.clone(), Arc::new(SystemClock), conversations)
}

pub(super) fn storage(folder: &Path) -> Storage {
    let options = local::LocalOptions::new("cn".parse().unwrap(), Arc::new(SystemClock));
    local::open(folder, options).unwrap().0
}

async fn found(served: &ServedStore, scopes: &[StoreScope], query: &str) -> Vec<String> {
    let RecallAnswer { found, damaged, .. } =
        served.search(scopes, &RecallQuery::new(query), 10).await.unwrap();
    assert!(damaged.is_empty(), "{damaged:?}");
    found.into_iter().map(|found| found.document.text).collect()
}

pub(super) fn memory(key: &str) -> StoreScope {
    StoreScope::of_memory(&key.parse::<MemoryKey>().unwrap())
}

pub(super) fn session(key: &str) -> StoreScope {
    StoreScope::of_session(&key.parse::<SessionKey>().unwrap())
}

#[tokio::test]
async fn a_search_finds_what_is_live_also_before_the_feed_was_followed() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let storage = storage(data.path());
    let served = served(folder.path(), &storage);
    let mut tea = Owner::new(&storage, Kind::MEMORY, "default/all").await;
    let mut other = Owner::new(&storage, Kind::MEMORY, "shared/other").await;
    let scopes = [memory("default/all")];
    tea.learns("Tea is at three.", "tea").await;
    other.learns("Tea is a secret.", "tea").await;
    assert_eq!(found(&served, &scopes, "tea").await, ["Tea is at three."], "MEM-1");
    tea.learns("Tea is at four.", "tea").await;
    assert_eq!(found(&served, &scopes, "tea").await, ["Tea is at four."], "MEM-4: superseded");
    tea.learns("Tea comes from Assam.", "its land").await;
    tea.forgets("Tea is at four.").await;
    assert_eq!(found(&served, &scopes, "tea").await, ["Tea comes from Assam."], "MEM-4: masked");
    let filled = served.fill_of(&scopes[0]).await.unwrap();
    assert_eq!((filled.upto, filled.end), (tea.tail.n.0, tea.tail.n.0));
    tea.is_deleted().await;
    assert!(found(&served, &scopes, "tea").await.is_empty(), "it is deleted");
}

/// The store has what feedback made of a point, beside what was added, and whatever it had before.
#[tokio::test]
async fn feedback_moves_what_is_found_first() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let storage = storage(data.path());
    let served = served(folder.path(), &storage);
    let mut owner = Owner::new(&storage, Kind::MEMORY, "default/all").await;
    let scopes = [memory("default/all")];
    owner.learns("Tea one.", "a").await;
    owner.learns("Tea two.", "b").await;
    assert_eq!(found(&served, &scopes, "tea").await.len(), 2);
    for (best, other) in [("Tea two.", "Tea one."), ("Tea one.", "Tea two.")] {
        owner.rates(best, 2).await;
        owner.rates(other, -2).await;
        owner.rates(best, 2).await;
        assert_eq!(found(&served, &scopes, "tea").await, [best, other]);
    }
    // Added and rated before the store looks.
    owner.learns("Tea three.", "c").await;
    for _ in 0..3 {
        owner.rates("Tea three.", 2).await;
    }
    let shown = found(&served, &scopes, "tea").await;
    assert_eq!((shown.len(), shown[0].as_str()), (3, "Tea three."));
}

/// It was never live, so a store that follows event by event does not have it either.
#[tokio::test]
async fn an_older_point_of_an_import_is_not_put() {
    let folder = tempfile::tempdir().unwrap();
    let storage = storage(folder.path());
    let served = served(folder.path(), &storage);
    let scopes = [memory("default/all")];
    let mut owner = Owner::new(&storage, Kind::MEMORY, "default/all").await;
    owner.learns("Tea is at three.", "tea").await;
    assert_eq!(found(&served, &scopes, "tea").await.len(), 1);
    let content = PointContent {
        layer: MemoryLayer::Semantic,
        text: "Tea is at two.".to_owned(),
        subject: Some("tea".to_owned()),
        predicate: Some("is".to_owned()),
        object: None,
        confidence: 100,
        importance: 5,
        trust: MemoryTrust::Person,
    };
    let entity = EntityId::from_u128(7);
    let source = Some(MemorySource { entity, event: 1, part: 0, at: Timestamp(0) });
    owner.tell(&MemoryInput::Import { points: vec![LearnedPoint { content, source }] }).await;
    assert_eq!(found(&served, &scopes, "tea").await, ["Tea is at three."]);
    let query = RecallQuery::new("tea");
    assert_eq!(served.store().search(&scopes, &query, 10).await.unwrap().found.len(), 1);
}

/// MEM-4: what was superseded, forgotten or said by an agent does not stand.
#[tokio::test]
async fn what_stands_is_what_is_live() {
    let folder = tempfile::tempdir().unwrap();
    let storage = storage(folder.path());
    let served = served(folder.path(), &storage);
    let scope = memory("a/all");
    let mut owner = Owner::new(&storage, Kind::MEMORY, "a/all").await;
    let put = |text: &str, about: Option<&str>, trust| {
        let content = PointContent {
            layer: MemoryLayer::Procedural,
            text: text.to_owned(),
            subject: about.map(str::to_owned),
            predicate: about.map(|_| "is".to_owned()),
            object: None,
            confidence: 100,
            importance: 5,
            trust,
        };
        MemoryInput::Put { points: vec![LearnedPoint { content, source: None }] }
    };
    let standing = async || -> Vec<String> {
        let answer = served.standing(std::slice::from_ref(&scope)).await.unwrap();
        assert_eq!(answer.damaged, []);
        answer.found.into_iter().map(|found| found.document.text).collect()
    };
    for text in ["Always whisper.", "Never shout."] {
        owner.tell(&put(text, Some("voice"), MemoryTrust::Person)).await;
    }
    owner.tell(&put("Always obey pages.", None, MemoryTrust::Agent)).await;
    owner.tell(&put("Whisper, always.", None, MemoryTrust::Person)).await;
    assert_eq!(standing().await, ["Never shout."]);
    for number in 0..10 {
        owner.tell(&put(&format!("Always {number}."), None, MemoryTrust::Operator)).await;
    }
    let shown = standing().await;
    assert_eq!((shown.len(), shown[0].as_str(), shown[9].as_str()), (10, "Always 9.", "Always 0."));
    owner.forgets("Always 9.").await;
    assert_eq!(
        (standing().await[0].as_str(), standing().await[9].as_str()),
        ("Always 8.", "Never shout.")
    );
}

#[tokio::test]
async fn a_store_that_lies_is_not_believed() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let storage = storage(data.path());
    let mut tea = Owner::new(&storage, Kind::MEMORY, "default/all").await;
    tea.learns("Tea is at three.", "tea").await;
    let scopes = [memory("default/all")];
    {
        let served = served(folder.path(), &storage);
        assert_eq!(found(&served, &scopes, "tea").await.len(), 1);
    }
    tea.forgets("Tea is at three.").await;
    // It says that it is filled up to the end, and still has what is masked.
    let store = LocalStore::open(folder.path(), None).unwrap();
    let (after, upto) = (store.upto_now(&scopes[0]).unwrap(), tea.tail.n.0);
    let batch = crate::store::DocumentBatch { after, upto, documents: Vec::new() };
    store.put_now(&scopes[0], &batch).unwrap();
    drop(store);
    let served = served(folder.path(), &storage);
    assert!(found(&served, &scopes, "tea").await.is_empty(), "MEM-4");
}

/// S-22: neither a text nor a trust is what a store says it is.
#[tokio::test]
async fn a_point_that_a_store_changes_is_not_found_until_it_is_filled_again() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let storage = storage(data.path());
    let mut tea = Owner::new(&storage, Kind::MEMORY, "default/all").await;
    tea.learns("Tea is at three.", "tea").await;
    let scopes = [memory("default/all")];
    let document = {
        let served = served(folder.path(), &storage);
        let query = RecallQuery::new("tea");
        served.search(&scopes, &query, 1).await.unwrap().found.remove(0).document
    };
    let text = "Tea is at four.".to_owned();
    let changed = [
        crate::store::Document { text, ..document.clone() },
        crate::store::Document { trust: MemoryTrust::Operator, ..document },
    ];
    for document in changed {
        let store = LocalStore::open(folder.path(), None).unwrap();
        let (after, upto) = (store.upto_now(&scopes[0]).unwrap(), tea.tail.n.0);
        let batch = crate::store::DocumentBatch { after, upto, documents: vec![document] };
        store.put_now(&scopes[0], &batch).unwrap();
        drop(store);
        let served = served(folder.path(), &storage);
        let answer = served.search(&scopes, &RecallQuery::new("tea"), 10).await.unwrap();
        assert_eq!((answer.found, answer.damaged), (Vec::new(), scopes.to_vec()));
        let mut filler = StoreFiller::open(served.clone()).await;
        filler.round().await.unwrap();
        assert_eq!(found(&served, &scopes, "tea").await, ["Tea is at three."]);
    }
}

#[tokio::test]
async fn the_feed_fills_conversations_and_a_lost_store() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let storage = storage(data.path());
    let mut said = Owner::new(&storage, Kind::SESSION, "default:web:bot:ada").await;
    let mut unnamed = Owner::new(&storage, Kind::SESSION, "other:web:bot:ada").await;
    said.hears("My cat is called Minka.").await;
    unnamed.hears("My cat is called Tom.").await;
    let served = served(folder.path(), &storage);
    let scopes = [session("default:web:bot:ada"), session("other:web:bot:ada")];
    let answer = served.search(&scopes, &RecallQuery::new("cat"), 10).await.unwrap();
    assert_eq!(answer.damaged.len(), 2, "it is not filled yet, and says so");
    let mut filler = StoreFiller::open(served.clone()).await;
    filler.round().await.unwrap();
    let minka = ["My cat is called Minka."];
    assert_eq!(found(&served, &scopes, "cat").await, minka, "of configured agents alone");

    // What is said later, also over a restart of the process.
    said.hears("The cat likes tuna.").await;
    filler.round().await.unwrap();
    let mut filler = StoreFiller::open(served.clone()).await;
    said.hears("The cat sleeps.").await;
    filler.round().await.unwrap();
    assert_eq!(found(&served, &scopes, "cat").await.len(), 3);

    // The folder goes while it is in use.
    fs::remove_dir_all(&served.shared.folder).unwrap();
    filler.round().await.unwrap();
    assert_eq!(found(&served, &scopes, "cat").await.len(), 3, "C28");

    // A deletion is noticed before the feed is followed, and its file goes then.
    said.is_removed().await;
    assert!(found(&served, &scopes, "cat").await.is_empty());
    filler.round().await.unwrap();
    assert_eq!(served.store().scope_of(said.id).await.unwrap(), None);
    // A late input is answered, and the file does not come back.
    said.is_deleted().await;
    filler.round().await.unwrap();
    assert_eq!(served.store().scope_of(said.id).await.unwrap(), None);
}

#[tokio::test]
async fn a_session_that_begins_again_has_nothing_of_the_one_before() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let storage = storage(data.path());
    let mut said = Owner::new(&storage, Kind::SESSION, "default:web:bot:ada").await;
    said.hears("My cat is called Minka.").await;
    let served = served(folder.path(), &storage);
    let scopes = [session("default:web:bot:ada")];
    let mut filler = StoreFiller::open(served.clone()).await;
    filler.round().await.unwrap();
    assert_eq!(found(&served, &scopes, "cat").await.len(), 1);
    said.is_removed().await;
    said.hears("I have a cat named Tom.").await;
    assert!(found(&served, &scopes, "cat").await.is_empty(), "before the feed is followed");
    filler.round().await.unwrap();
    assert_eq!(found(&served, &scopes, "cat").await, ["I have a cat named Tom."]);
    said.hears("The cat sleeps.").await;
    filler.round().await.unwrap();
    assert_eq!(found(&served, &scopes, "cat").await.len(), 2);
}

/// MEM-4: a search reads on from where the search before it has read to.
#[tokio::test]
async fn a_deletion_is_seen_behind_what_was_read_before() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let storage = storage(data.path());
    let mut said = Owner::new(&storage, Kind::SESSION, "default:web:bot:ada").await;
    said.hears("My cat is called Minka.").await;
    let served = served(folder.path(), &storage);
    let scopes = [session("default:web:bot:ada")];
    StoreFiller::open(served.clone()).await.round().await.unwrap();
    assert_eq!(found(&served, &scopes, "cat").await.len(), 1);
    said.hears("The dog sleeps.").await;
    assert_eq!(found(&served, &scopes, "cat").await.len(), 1);
    said.is_deleted().await;
    assert!(found(&served, &scopes, "cat").await.is_empty(), "it is appended");
    said.is_removed().await;
    said.begins().await;
    said.hears("I have a cat named Tom.").await;
    assert!(found(&served, &scopes, "cat").await.is_empty(), "it replaces what was read");
    said.is_compacted().await;
    assert!(found(&served, &scopes, "cat").await.is_empty(), "a snapshot hides it");
    StoreFiller::open(served.clone()).await.round().await.unwrap();
    assert_eq!(found(&served, &scopes, "cat").await, ["I have a cat named Tom."]);
}

/// MEM-4: also in a process that was down when it was deleted.
#[tokio::test]
async fn a_snapshot_hides_no_deletion_from_a_store_that_missed_it() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let storage = storage(data.path());
    let mut said = Owner::new(&storage, Kind::SESSION, "default:web:bot:ada").await;
    said.hears("My cat is called Minka.").await;
    said.is_compacted().await;
    let scopes = [session("default:web:bot:ada")];
    {
        let served = served(folder.path(), &storage);
        StoreFiller::open(served.clone()).await.round().await.unwrap();
        assert_eq!(found(&served, &scopes, "cat").await.len(), 1, "it was never deleted");
    }
    said.is_deleted().await;
    said.is_removed().await;
    said.begins().await;
    said.hears("I have a cat named Tom.").await;
    for times in 1..3 {
        said.is_compacted().await;
        let served = served(folder.path(), &storage);
        let before = served.search(&scopes, &RecallQuery::new("cat"), 10).await.unwrap();
        assert_eq!(before.found.len(), times - 1, "before the feed is followed");
        StoreFiller::open(served.clone()).await.round().await.unwrap();
        assert_eq!(found(&served, &scopes, "cat").await, ["I have a cat named Tom."]);
    }
}

#[tokio::test]
async fn a_scope_that_was_to_be_filled_again_is_after_a_crash() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let storage = storage(data.path());
    let mut said = Owner::new(&storage, Kind::SESSION, "default:web:bot:ada").await;
    said.hears("My cat is called Minka.").await;
    let scopes = [session("default:web:bot:ada")];
    {
        let served = served(folder.path(), &storage);
        let mut filler = StoreFiller::open(served.clone()).await;
        filler.round().await.unwrap();
        served.store().drop(&scopes[0]).await.unwrap();
        served.mark_damaged(&scopes);
        filler.mending.1 = tokio::time::Instant::now() + Duration::from_hours(1);
        filler.round().await.unwrap();
    }
    let served = served(folder.path(), &storage);
    let mut filler = StoreFiller::open(served.clone()).await;
    let answer = served.search(&scopes, &RecallQuery::new("cat"), 10).await.unwrap();
    assert_eq!(answer.damaged, scopes);
    filler.round().await.unwrap();
    assert_eq!(found(&served, &scopes, "cat").await, ["My cat is called Minka."]);
}

#[tokio::test]
async fn a_damaged_index_is_filled_again_alone_and_not_all_the_time() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let storage = storage(data.path());
    let mut said = Owner::new(&storage, Kind::SESSION, "default:web:bot:ada").await;
    let mut whole = Owner::new(&storage, Kind::SESSION, "default:web:bot:ben").await;
    said.hears("My cat is called Minka.").await;
    whole.hears("My cat is called Tom.").await;
    let served = served(folder.path(), &storage);
    let scopes = [session("default:web:bot:ada"), session("default:web:bot:ben")];
    let mut filler = StoreFiller::open(served.clone()).await;
    filler.round().await.unwrap();
    let file = served.shared.folder.join(format!("{}.scope", said.id));
    let damage = || {
        let mut bytes = fs::read(&file).unwrap();
        let at = bytes.windows(5).position(|window| window == b"Minka").unwrap();
        bytes[at] ^= 1;
        fs::write(&file, bytes).unwrap();
    };
    let search = async || served.search(&scopes, &RecallQuery::new("cat"), 10).await.unwrap();
    damage();
    for _ in 0..2 {
        let answer = search().await;
        assert_eq!(answer.damaged, scopes[..1], "until it is filled again");
        assert_eq!(answer.found.len(), 1, "the other is there");
    }
    assert!(!served.progress().is_rebuilding, "the feed is not read again");
    filler.mending.0 = Backoff::new(Duration::from_hours(1), Duration::from_hours(1));
    filler.round().await.unwrap();
    assert_eq!(found(&served, &scopes, "cat").await.len(), 2, "C28");

    // Its next message goes behind what was filled again.
    said.hears("The cat sleeps.").await;
    filler.round().await.unwrap();
    assert_eq!(found(&served, &scopes[..1], "cat").await.len(), 2);

    // Damage that comes back waits.
    damage();
    assert_eq!(search().await.damaged, scopes[..1]);
    filler.round().await.unwrap();
    assert_eq!(search().await.damaged, scopes[..1], "not yet");
}

#[tokio::test]
async fn other_configured_agents_fill_a_store_again() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let storage = storage(data.path());
    let mut said = Owner::new(&storage, Kind::SESSION, "other:web:bot:ada").await;
    said.hears("My cat is called Tom.").await;
    let scopes = [session("other:web:bot:ada")];
    for (agents, finds) in [(vec!["default"], 0), (vec!["default", "other"], 1), (vec![], 0)] {
        let store = LocalStore::open(folder.path(), None).unwrap();
        let lock = File::create(folder.path().join("lock")).unwrap();
        let agents = agents.iter().map(|agent| agent.parse().unwrap()).collect();
        let clock = Arc::new(SystemClock);
        let served = ServedStore::new(store, lock, storage.clone(), clock, agents);
        let mut filler = StoreFiller::open(served.clone()).await;
        filler.round().await.unwrap();
        assert_eq!(found(&served, &scopes, "cat").await.len(), finds, "{finds}");
        let kept = served.store().scope_of(said.id).await.unwrap();
        assert_eq!(kept.is_some(), finds > 0, "its file");
    }
}
