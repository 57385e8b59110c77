//! Workers that share scopes: who holds what, what is asked for, and what is believed.

use std::{collections::BTreeSet, fs::File, sync::Arc, time::Duration};

use clawnode_cluster::{BusEvent, Storage, SystemClock, membership::Members};
use clawnode_proto::{
    Digest, Kind, Partition, ProcessId, codec,
    memory::MemoryTrust,
    node::{Heartbeat, NodeReply, NodeRequest},
    recall::{StoreFound, StoreSearch},
};
use futures_util::StreamExt as _;
use serde_json::json;
use tempfile::TempDir;
use tokio::{sync::watch, task::JoinHandle};

use super::{
    ServedStore,
    fill_from_journals::StoreFiller,
    fill_locks::FILLED_AT_ONCE,
    scope_ranks::ScopeRanks,
    served::SESSIONS_AT_ONCE,
    served_tests::{Owner, memory, served_with, session, storage},
};
use crate::store::{
    Document, DocumentBatch, LocalStore, MemoryStore as _, RecallAnswer, RecallQuery, StoreScope,
};

const ADA: &str = "default/peer/web:bot:ada";
const TALK: &str = "default:web:bot:ada";

/// Two workers with a store each, and the journals of a person.
struct TwoWorkers {
    storage: Storage,
    /// The one that ranks first for the person, and the other one.
    stores: [ServedStore; 2],
    processes: [ProcessId; 2],
    view: watch::Sender<Members>,
    tea: Owner,
    said: Owner,
    /// Removed last.
    _folders: [TempDir; 3],
}

fn members(processes: &[ProcessId]) -> Members {
    let heartbeat = |process: &ProcessId| -> Heartbeat {
        let heartbeat = json!({
            "process": process, "node": "n", "version": "0", "roles": ["worker"], "started": 0,
            "draining": false, "entities": 0, "config": Digest::ZERO,
        });
        serde_json::from_value(heartbeat).unwrap()
    };
    let alive = processes.iter().map(heartbeat).collect();
    Members { alive, settled: true, ..Members::default() }
}

fn scopes() -> [StoreScope; 2] {
    [memory(ADA), session(TALK)]
}

impl TwoWorkers {
    async fn new() -> Self {
        let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let storage = storage(folders[2].path());
        let mut processes = [1, 2].map(ProcessId::from_u128);
        let (view, heard) = watch::channel(members(&processes));
        let mut stores = [0, 1].map(|at: usize| {
            let served = served_with(folders[at].path(), &storage, None);
            served.shares_scopes(processes[at], heard.clone());
            served
        });
        if !stores[0].holds(&memory(ADA)) {
            stores.reverse();
            processes.reverse();
        }
        let mut tea = Owner::new(&storage, Kind::MEMORY, ADA).await;
        tea.learns("Tea is at three.", "tea").await;
        tea.learns("The tea is from Assam.", "its land").await;
        let mut said = Owner::new(&storage, Kind::SESSION, TALK).await;
        said.hears("I drink tea in the garden.").await;
        Self { storage, stores, processes, view, tea, said, _folders: folders }
    }

    /// The first worker answers searches, after this was made of its answer.
    async fn answers(
        &self,
        lies: impl Fn(StoreFound) -> StoreFound + Send + 'static,
    ) -> JoinHandle<()> {
        let subject = self.storage.prefix.rpc(self.processes[0]);
        let mut requests = self.storage.bus.subscribe(subject).await.unwrap();
        let (bus, served) = (Arc::clone(&self.storage.bus), self.stores[0].clone());
        tokio::spawn(async move {
            while let Some(BusEvent::Message(message)) = requests.next().await {
                let request = codec::decode::<NodeRequest>(&message.payload).unwrap();
                let NodeRequest::SearchStore { search } = request else { continue };
                let found = served.answer_search(search).await.unwrap();
                let found = lies(found);
                let reply = codec::encode(&NodeReply::StoreFound { found }).unwrap();
                bus.publish(message.reply.unwrap(), None, reply.into()).await.unwrap();
            }
        })
    }

    /// Which of the scopes of the person each worker has files of.
    async fn files(&self) -> [Vec<StoreScope>; 2] {
        let mut files = [Vec::new(), Vec::new()];
        for (store, files) in self.stores.iter().zip(&mut files) {
            for scope in scopes() {
                files.extend(store.store().scope_of(scope.entity()).await.unwrap());
            }
        }
        files
    }
}

fn query() -> RecallQuery {
    // A busy machine may take its time.
    RecallQuery { meaning_within: Duration::from_secs(20), ..RecallQuery::new("tea") }
}

/// The same, as one process asks another one.
fn search_for() -> StoreSearch {
    StoreSearch {
        scopes: scopes().iter().map(ToString::to_string).collect(),
        text: "tea".to_owned(),
        within_ms: 20_000,
        layers: query().layers,
        passages: true,
        least_trust: MemoryTrust::Agent,
        most: 10,
    }
}

async fn search(served: &ServedStore) -> RecallAnswer {
    served.search(&scopes(), &query(), 10).await.unwrap()
}

/// What was found, with its trust and score, and what was not searched whole.
fn shown(answer: RecallAnswer) -> (Vec<(String, MemoryTrust, u64)>, Vec<StoreScope>) {
    let found = answer
        .found
        .into_iter()
        .map(|found| (found.document.text, found.document.trust, found.score.total.to_bits()));
    (found.collect(), answer.damaged)
}

fn texts(answer: &RecallAnswer) -> BTreeSet<&str> {
    answer.found.iter().map(|found| found.document.text.as_str()).collect()
}

#[tokio::test]
async fn workers_recall_the_same_and_another_one_goes_on() {
    let two = TwoWorkers::new().await;
    let [first, other] = &two.stores;
    assert!(!other.holds(&memory(ADA)) && !other.holds(&session(TALK)));
    assert!(other.holds(&memory("default/all")) && first.holds(&memory("default/all")));
    let answering = two.answers(|found| found).await;
    let (asked, held) = (shown(search(other).await), shown(search(first).await));
    assert_eq!((asked.0.len(), &asked.1), (3, &Vec::new()));
    assert_eq!(asked, held, "the same, in the same order, with the same scores");
    let upto = search(other).await.upto;
    assert_eq!(upto[&memory(ADA)], two.tea.tail.n.0, "it also says how far its store was");
    assert_eq!(upto, search(first).await.upto);
    assert_eq!(two.files().await, [scopes().to_vec(), Vec::new()]);

    // It is gone: the other one fills the scopes from journals and answers for itself.
    answering.abort();
    answering.await.unwrap_err();
    assert_eq!(shown(search(other).await), held);
    assert_eq!(two.files().await, [scopes().to_vec(), scopes().to_vec()]);
    two.view.send_replace(members(&two.processes[1..]));
    assert!(other.holds(&memory(ADA)));
    assert_eq!(shown(search(other).await), held, "also when all know that it is gone");
}

/// A worker of an older version gets the request and does not answer.
#[tokio::test]
async fn a_process_searches_for_itself_if_the_other_one_is_silent() {
    let two = TwoWorkers::new().await;
    let subject = two.storage.prefix.rpc(two.processes[0]);
    let mut requests = two.storage.bus.subscribe(subject).await.unwrap();
    let query = RecallQuery { meaning_within: Duration::from_millis(10), ..query() };
    let answer = two.stores[1].search(&scopes()[..1], &query, 10).await.unwrap();
    assert_eq!((answer.found.len(), answer.damaged), (2, Vec::new()));
    assert!(matches!(requests.next().await, Some(BusEvent::Message(_))), "it was asked first");
}

#[tokio::test]
async fn the_feed_fills_what_this_worker_holds_and_lets_go_of_the_rest() {
    let mut two = TwoWorkers::new().await;
    let mut all = Owner::new(&two.storage, Kind::MEMORY, "default/all").await;
    all.learns("Tea is for all.", "tea").await;
    let mut fillers = Vec::new();
    for store in &two.stores {
        let mut filler = StoreFiller::open(store.clone()).await;
        filler.round().await.unwrap();
        fillers.push(filler);
        let shared = store.store().scope_of(memory("default/all").entity()).await.unwrap();
        assert!(shared.is_some(), "what persons share is in each process");
    }
    assert_eq!(two.files().await, [scopes().to_vec(), Vec::new()]);

    // The other one has them while the first one is away, and no longer.
    two.view.send_replace(members(&two.processes[1..]));
    two.tea.learns("The tea is green.", "its colour").await;
    two.said.hears("The tea was cold.").await;
    fillers[1].round().await.unwrap();
    assert_eq!(two.files().await[1], scopes());
    let found = search(&two.stores[1]).await;
    assert_eq!((found.found.len(), found.damaged), (5, Vec::new()), "also what came before");
    two.view.send_replace(members(&two.processes));
    two.tea.forgets("Tea is at three.").await;
    two.said.hears("The tea is hot.").await;
    for filler in &mut fillers {
        filler.round().await.unwrap();
    }
    assert_eq!(two.files().await, [scopes().to_vec(), Vec::new()]);
    let found = search(&two.stores[0]).await;
    assert_eq!((found.found.len(), found.damaged), (5, Vec::new()), "it has missed nothing");
}

/// A worker that is behind with the feed, such as a new one, does not miss what was said since it filled a session.
#[tokio::test]
async fn a_session_is_looked_at_again_while_the_feed_is_behind() {
    let mut two = TwoWorkers::new().await;
    let first = two.stores[0].clone();
    assert_eq!(search(&first).await.found.len(), 3);
    two.said.hears("The tea was cold.").await;
    let answer = search(&first).await;
    assert_eq!((answer.found.len(), &answer.damaged), (4, &Vec::new()));
    // Once it is not, the feed brings what is new.
    StoreFiller::open(first.clone()).await.round().await.unwrap();
    assert!(first.is_followed(&session(TALK)));
    search(&first).await;
    assert!(first.is_followed(&session(TALK)));
}

/// A session or a memory that takes long to be filled makes no search wait for another one.
#[tokio::test]
async fn what_is_filled_slowly_keeps_nothing_else_from_being_filled() {
    let two = TwoWorkers::new().await;
    let first = two.stores[0].clone();
    let (talk, facts) = (session(&format!("{TALK}~1")), memory("default/peer/web:bot:eve"));
    let _talk = first.shared.reading.lock(talk.entity()).await;
    let _facts = first.shared.filling.lock(facts.entity()).await;
    let answer = search(&first).await;
    assert_eq!((answer.found.len(), answer.damaged), (3, Vec::new()));
    assert!(first.is_followed(&session(TALK)));
}

/// While sessions take long to be filled, searches end in time, and few tasks wait.
#[tokio::test]
async fn few_sessions_wait_to_be_filled() {
    let two = TwoWorkers::new().await;
    let first = two.stores[0].clone();
    let talks = 0..SESSIONS_AT_ONCE + 8;
    let talks: Vec<StoreScope> = talks.map(|number| session(&format!("{TALK}~{number}"))).collect();
    let query = RecallQuery { meaning_within: Duration::from_millis(2), ..query() };
    let most = u32::try_from(FILLED_AT_ONCE).unwrap();
    let reading = first.shared.reading.places.acquire_many(most).await.unwrap();
    for _ in 0..2 {
        let answer = first.search(&talks, &query, 10).await.unwrap();
        assert_eq!(answer.damaged.len(), talks.len());
        assert_eq!(first.shared.fills.available_permits(), 0);
    }
    drop(reading);
    let all = u32::try_from(SESSIONS_AT_ONCE).unwrap();
    let _all_done = first.shared.fills.acquire_many(all).await.unwrap();
    let filled = talks.iter().filter(|talk| first.is_followed(talk)).count();
    assert_eq!(filled, SESSIONS_AT_ONCE);
}

/// MEM-4: what a search is filling when a session is deleted does not stay on the disk.
#[tokio::test]
async fn what_is_filled_while_a_session_is_deleted_goes() {
    let mut two = TwoWorkers::new().await;
    let first = two.stores[0].clone();
    let scope = session(TALK);
    assert_eq!(search(&first).await.found.len(), 3);
    let upto = first.store().upto(&scope).await.unwrap();
    let said = RecallQuery::new("garden");
    let found = first.search(std::slice::from_ref(&scope), &said, 1).await.unwrap();
    let found = found.found[0].document.clone();
    // A search that has read the journal, and has put nothing yet.
    let reading = first.shared.reading.lock(scope.entity()).await;
    two.said.is_deleted().await;
    let mut filler = StoreFiller::open(first.clone()).await;
    tokio::time::timeout(Duration::from_millis(200), filler.round()).await.unwrap_err();
    first.store().drop(&scope).await.unwrap();
    let batch = DocumentBatch { after: 0, upto, documents: vec![found] };
    first.store().put(&scope, batch).await.unwrap();
    drop(reading);
    StoreFiller::open(first.clone()).await.round().await.unwrap();
    assert_eq!(first.store().scope_of(scope.entity()).await.unwrap(), None);
    assert!(!first.is_followed(&scope), "it is filled again if it begins again");
}

/// A worker of an older version never answers. What was built in its place does not go each time that it is asked.
#[tokio::test(start_paused = true)]
async fn what_a_silent_process_held_is_kept_until_it_was_asked_again() {
    let [me, other] = [1, 2].map(ProcessId::from_u128);
    let (_members, heard) = watch::channel(members(&[me, other]));
    let ranks = ScopeRanks::new(me, heard);
    let mut partitions = (0..64).map(Partition);
    let theirs = partitions.find(|partition| ranks.holder(*partition).is_some()).unwrap();
    assert!(!ranks.holds(theirs));
    ranks.is_late(other);
    assert!(ranks.holds(theirs) && ranks.holder(theirs).is_none());
    tokio::time::advance(Duration::from_millis(1_500)).await;
    assert_eq!((ranks.holds(theirs), ranks.holder(theirs)), (true, Some(other)));
    tokio::time::advance(Duration::from_millis(500)).await;
    assert!(!ranks.holds(theirs), "nothing asked it meanwhile");
    ranks.is_late(other);
    ranks.answers(other);
    assert!(!ranks.holds(theirs), "it has answered");
}

/// How an answer is changed.
type Lie = fn(&mut StoreFound);

/// MEM-1, MEM-4, S-22: whatever another process answers.
#[tokio::test]
async fn a_process_that_lies_is_not_believed() {
    let mut two = TwoWorkers::new().await;
    let before = two.stores[0].answer_search(search_for()).await.unwrap();
    assert_eq!((before.found.len(), before.damaged.len()), (3, 0));
    let too_many = StoreSearch { scopes: vec![scopes()[0].to_string(); 257], ..search_for() };
    assert_eq!(two.stores[0].answer_search(too_many).await, None);

    let lies: [(&str, Lie, bool); 5] = [
        ("a text", |said| said.found.iter_mut().for_each(|one| one.text.push('!')), true),
        (
            "a trust",
            |said| said.found.iter_mut().for_each(|one| one.trust = MemoryTrust::Operator),
            true,
        ),
        (
            "a scope",
            |said| {
                for one in &mut said.found {
                    one.scope = "memory/default/peer/web:bot:ben".to_owned();
                }
                said.damaged.push("session/default:web:bot:ben".to_owned());
            },
            false,
        ),
        ("an event", |said| said.found.iter_mut().for_each(|one| one.event += 100), false),
        (
            "a score",
            |said| said.found.iter_mut().for_each(|one| one.score.total = f64::NAN.to_bits()),
            false,
        ),
    ];
    for (what, lie, shows) in lies {
        let answering = two
            .answers(move |mut found| {
                lie(&mut found);
                found
            })
            .await;
        let answer = search(&two.stores[1]).await;
        let damaged = if shows { scopes().to_vec() } else { Vec::new() };
        assert_eq!((answer.found, answer.damaged), (Vec::new(), damaged), "{what}");
        answering.abort();
        answering.await.unwrap_err();
    }
    let answering = two
        .answers(|mut found| {
            found.found.extend(found.found.clone());
            found
        })
        .await;
    assert_eq!(search(&two.stores[1]).await.found.len(), 3, "each once");
    answering.abort();
    answering.await.unwrap_err();

    // What was forgotten is still in its answer.
    two.tea.forgets("Tea is at three.").await;
    let _answering = two.answers(move |_| before.clone()).await;
    let answer = search(&two.stores[1]).await;
    let left = BTreeSet::from(["The tea is from Assam.", "I drink tea in the garden."]);
    assert_eq!(texts(&answer), left, "MEM-4");
    assert_eq!(two.files().await[1], [], "it was asked each time");
}

/// MEM-4: a process that missed the deletion of a session answers what it has.
#[tokio::test]
async fn what_was_said_before_a_deletion_is_not_believed() {
    let mut two = TwoWorkers::new().await;
    let other = two.stores[1].clone();
    let before = two.stores[0].answer_search(search_for()).await.unwrap();
    let _answering = two.answers(move |_| before.clone()).await;
    assert_eq!(search(&other).await.found.len(), 3);
    two.said.hears("It was cold.").await;
    assert_eq!(search(&other).await.found.len(), 3, "more was said since it was read");
    two.said.is_deleted().await;
    let points = BTreeSet::from(["Tea is at three.", "The tea is from Assam."]);
    assert_eq!(texts(&search(&other).await), points, "it is deleted");
    two.said.is_removed().await;
    assert_eq!(texts(&search(&other).await), points, "a snapshot says so");
    two.said.begins().await;
    two.said.hears("I drink tea in the garden.").await;
    let answer = search(&other).await;
    assert_eq!((texts(&answer), &answer.damaged), (points, &Vec::new()), "it is another event");
}

/// S-22: what a server says that a person said is compared with the journal, also with its archives.
#[tokio::test]
async fn a_passage_that_a_server_changes_is_not_found_until_it_is_filled_again() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let storage = storage(data.path());
    let mut said = Owner::new(&storage, Kind::SESSION, TALK).await;
    said.hears("My cat is called Minka.").await;
    said.is_compacted().await;
    let store = LocalStore::open(folder.path(), None).unwrap();
    let served = || {
        let lock = File::create(folder.path().join("lock")).unwrap();
        let (server, folder) = (Arc::new(store.clone()), folder.path().to_owned());
        let conversations = BTreeSet::from(["default".parse().unwrap()]);
        let clock = Arc::new(SystemClock);
        ServedStore::over(server, folder, lock, storage.clone(), clock, conversations)
    };
    let scopes = [session(TALK)];
    StoreFiller::open(served()).await.round().await.unwrap();
    let search = async |served: &ServedStore| {
        let mut filler = StoreFiller::open(served.clone()).await;
        filler.round().await.unwrap();
        served.search(&scopes, &RecallQuery::new("cat"), 10).await.unwrap()
    };
    let found = search(&served()).await;
    assert_eq!((texts(&found).len(), &found.damaged), (1, &Vec::new()));
    let document = found.found[0].document.clone();
    for altered in [
        Document { text: "My cat is called Tom.".to_owned(), ..document.clone() },
        Document { trust: MemoryTrust::Operator, ..document.clone() },
    ] {
        let upto = store.upto_now(&scopes[0]).unwrap();
        let batch = DocumentBatch { after: upto, upto, documents: vec![altered] };
        store.put_now(&scopes[0], &batch).unwrap();
        let served = served();
        let answer = search(&served).await;
        assert_eq!((answer.found, answer.damaged), (Vec::new(), scopes.to_vec()));
        let again = search(&served).await;
        assert_eq!(again.found[0].document, document, "it was filled again");
        assert!(again.damaged.is_empty());
    }
    // An event that has no message.
    let id = crate::store::DocumentId { event: 2, ..document.id };
    let upto = store.upto_now(&scopes[0]).unwrap();
    let invented = Document { id, text: "The cat is mine.".to_owned(), ..document };
    let batch = DocumentBatch { after: upto, upto, documents: vec![invented] };
    store.put_now(&scopes[0], &batch).unwrap();
    let served = served();
    assert_eq!(texts(&search(&served).await), ["My cat is called Minka."].into());
    said.hears("The cat sleeps.").await;
    assert_eq!(texts(&search(&served).await).len(), 2, "what came since is read, too");
}
