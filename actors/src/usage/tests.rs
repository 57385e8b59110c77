//! Counting beside a session's machine: whatever is replaced, saved, lost and done again in between.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::{
    Bucket, BucketChange, BucketEntry, BucketError, Journal, Record, Storage, StoreError,
    SystemClock,
};
use clawnode_kernel::{LoadedJournal, MachineOptions, archive};
use clawnode_local as local;
use clawnode_proto::{
    Position, Timestamp,
    event::decode_record,
    kernel::SNAPSHOT,
    llm::Usage,
    session::SessionInput,
    usage::{Day, UsageBy, UsageView},
};
use futures_util::stream::BoxStream;
use proptest::prelude::*;

use super::{
    actor::again,
    audit, show,
    state::Books,
    stopped::{CountingStopped, HEAD},
    tape::Tape,
};
use crate::session::played::PlayedActivation;

/// A bucket that may fail to take how far the feed is counted, when it has taken the days.
#[derive(Debug)]
struct Torn(Arc<dyn Bucket>, AtomicBool);

#[async_trait]
impl Bucket for Torn {
    async fn get(&self, key: &str) -> Result<Option<BucketEntry>, StoreError> {
        self.0.get(key).await
    }

    async fn put(
        &self,
        key: &str,
        expected: Position,
        value: Bytes,
        ttl: Option<std::time::Duration>,
    ) -> Result<Position, BucketError> {
        if key == HEAD && self.1.load(Ordering::SeqCst) {
            let (store, detail) = ("bucket", "away".to_owned());
            return Err(StoreError::Unavailable { store, detail }.into());
        }
        self.0.put(key, expected, value, ttl).await
    }

    async fn delete(&self, key: &str, expected: Position) -> Result<(), BucketError> {
        self.0.delete(key, expected).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, BucketEntry)>, StoreError> {
        self.0.list(prefix).await
    }

    async fn watch(&self, prefix: &str) -> Result<BoxStream<'static, BucketChange>, StoreError> {
        self.0.watch(prefix).await
    }
}

/// A session and who counts its calls.
pub(super) struct World {
    pub(super) run: PlayedActivation,
    /// How many of its archives are stored.
    stored: usize,
    pub(super) tape: Arc<Tape>,
    torn: Arc<Torn>,
    pub(super) storage: Storage,
    pub(super) books: Option<Books>,
    _dir: tempfile::TempDir,
}

impl World {
    pub(super) fn new(snapshot_every: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = local::LocalOptions::new("cn".parse().unwrap(), Arc::new(SystemClock));
        let (mut storage, _control) = local::open(dir.path(), options).unwrap();
        let tape = Arc::new(Tape::default());
        let torn = Arc::new(Torn(Arc::clone(&storage.bucket), AtomicBool::new(false)));
        storage.journal = Arc::clone(&tape) as Arc<dyn Journal>;
        storage.bucket = Arc::clone(&torn) as Arc<dyn Bucket>;
        let options = MachineOptions { snapshot_every, ..MachineOptions::default() };
        let mut run = PlayedActivation::with(&[], LoadedJournal::default(), options, true);
        run.stride = 2;
        Self { run, stored: 0, tape, torn, storage, books: None, _dir: dir }
    }

    /// Stores what the machine wrote.
    pub(super) async fn store(&mut self) {
        let seen = self.tape.end_of_session().unwrap_or_default();
        let mut written = Vec::new();
        for (records, state) in
            self.run.archives.split_off(self.stored.min(self.run.archives.len()))
        {
            self.storage.blobs.put(archive::pack(&records).unwrap()).await.unwrap();
            self.storage.blobs.put(state.clone()).await.unwrap();
            written.extend(records.clone());
            self.run.archives.push((records, state));
        }
        self.stored = self.run.archives.len();
        written.extend(self.run.journal.clone());
        for record in written {
            let last = self.tape.end_of_session().unwrap_or(seen);
            if record.position <= last.max(seen) {
                continue;
            }
            let events = decode_record(&record.bytes).unwrap();
            if events.first().is_some_and(|event| event.head.kind == SNAPSHOT) {
                self.tape.rolls_up();
            }
            let position = Position(record.position.0 + 1);
            let bytes = Bytes::from_static(b"other");
            self.tape.others.lock().unwrap().push(Record { position, bytes });
            self.tape.records.lock().unwrap().push(record);
        }
    }

    pub(super) async fn turn(&mut self, text: &str, tokens: u64) {
        self.run.says(text);
        let usage = Usage { input_tokens: tokens, output_tokens: 1, ..Usage::default() };
        self.run.replies_for(usage, &[]);
        self.store().await;
    }

    pub(super) async fn books(&mut self) -> Result<&mut Books, CountingStopped> {
        Ok(match self.books.take() {
            Some(books) => self.books.insert(books),
            None => self.books.insert(Books::open(self.storage.clone()).await?),
        })
    }

    pub(super) async fn count(&mut self) {
        let books = self.books().await.unwrap();
        while books.count_page().await.unwrap() {}
    }

    /// Counts a page of so many records, of which the first `stale` are read before the newest snapshot is stored.
    pub(super) async fn count_page_of(&mut self, records: usize, stale: usize) {
        self.tape.stale.store(stale, Ordering::SeqCst);
        let books = self.books().await.unwrap();
        books.set_page(records);
        books.count_page().await.unwrap();
    }

    pub(super) async fn save(&mut self) {
        self.books().await.unwrap().save(Timestamp(1)).await.unwrap();
    }

    pub(super) async fn shown(&self) -> UsageView {
        show(&self.storage, Timestamp(1), UsageBy::User, None).await.unwrap()
    }
}

pub(super) fn tokens(view: &UsageView) -> (u64, u64, u64) {
    (view.total.done, view.total.usage.input_tokens, view.total.lost)
}

#[tokio::test]
async fn calls_are_counted_by_user_once_they_have_ended() {
    let mut world = World::new(1_000);
    assert_eq!(world.shown().await.rows, Vec::new());
    world.turn("m1", 10).await;
    world.run.says("m2");
    world.store().await;
    assert_eq!(world.shown().await.total.done, 0, "nothing is followed yet");
    world.count().await;
    world.save().await;
    let view = world.shown().await;
    assert_eq!((view.rows.len(), view.rows[0].name.as_str()), (1, "web:a:b"));
    assert_eq!((tokens(&view), view.behind_ms), ((1, 10, 0), 0));
    world.run.replies_for(Usage { input_tokens: 5, ..Usage::default() }, &[]);
    world.store().await;
    world.count().await;
    world.save().await;
    assert_eq!(tokens(&world.shown().await), (2, 15, 0));
}

#[tokio::test]
async fn an_attempt_whose_process_died_is_lost_and_the_next_is_counted() {
    let mut world = World::new(1_000);
    world.run.says("m1");
    world.store().await;
    let journal = world.run.journal.clone();
    world.run = PlayedActivation::new(&[], journal);
    world.run.stride = 2;
    world.run.replies_for(Usage { input_tokens: 7, ..Usage::default() }, &[]);
    world.store().await;
    world.count().await;
    world.save().await;
    assert_eq!(tokens(&world.shown().await), (1, 7, 1));
}

/// A turn that waits ends before the one that runs.
#[tokio::test]
async fn a_cancelled_turn_that_waited_loses_no_attempt_of_another() {
    let mut world = World::new(1_000);
    world.run.says("m1");
    world.run.says("m2");
    let waiting = world.run.machine.settled().unwrap().state.open.back().unwrap().id;
    world.run.hears("c", &SessionInput::Cancel { turn: waiting });
    world.run.replies_for(Usage { input_tokens: 7, ..Usage::default() }, &[]);
    world.store().await;
    world.count().await;
    world.save().await;
    assert_eq!(tokens(&world.shown().await), (1, 7, 0));
}

#[tokio::test]
async fn a_journal_that_cannot_be_read_stops_nobody_else() {
    let mut world = World::new(1_000);
    world.turn("m1", 10).await;
    world.tape.records.lock().unwrap().last_mut().unwrap().bytes = Bytes::from_static(b"damaged");
    world.count().await;
    world.save().await;
    assert_eq!(world.shown().await.behind_ms, 0);
}

#[tokio::test]
async fn of_two_who_count_one_is_refused_and_nothing_is_counted_twice() {
    let mut world = World::new(1_000);
    world.turn("m1", 10).await;
    world.count().await;
    let mut other = Books::open(world.storage.clone()).await.unwrap();
    while other.count_page().await.unwrap() {}
    world.save().await;
    let refused = other.save(Timestamp(1)).await.unwrap_err();
    assert!(matches!(refused, CountingStopped::Another), "{refused}");
    world.turn("m2", 5).await;
    world.count().await;
    world.save().await;
    assert_eq!(tokens(&world.shown().await), (2, 15, 0));
}

#[tokio::test]
async fn a_count_that_cannot_be_read_is_made_again() {
    for key in [HEAD, "usage.day.1970-01-01", "usage.work.1970-01-01"] {
        let mut world = World::new(6);
        for turn in 0..5 {
            world.turn(&format!("m{turn}"), 10).await;
        }
        world.count().await;
        world.save().await;
        let bucket = &world.storage.bucket;
        let entry = bucket.get(key).await.unwrap().unwrap();
        let junk = Bytes::from_static(b"\xc1 no count");
        bucket.put(key, entry.position, junk, None).await.unwrap();
        world.books = None;
        world.turn("m5", 1).await;
        let read = async |world: &mut World| -> Result<(), CountingStopped> {
            let books = world.books().await?;
            while books.count_page().await? {}
            Ok(())
        };
        let failure = read(&mut world).await.unwrap_err();
        assert!(failure.to_string().contains(key), "{failure}");
        world.books = None;
        again(&world.storage, failure, true).await;
        read(&mut world).await.unwrap();
        world.save().await;
        assert_eq!(tokens(&world.shown().await), (6, 51, 0), "{key}");
        assert_eq!(world.profile().await.turns.succeeded, 6, "{key}");
    }
}

/// What a snapshot replaced is missing in the pages before it. It is counted before that page is saved as counted.
#[tokio::test]
async fn what_was_missing_in_a_page_is_counted_before_that_page_is_saved() {
    for restarts in [false, true] {
        let mut world = World::new(20);
        for turn in 0..12 {
            world.turn(&format!("m{turn}"), 10).await;
        }
        assert!(!world.run.archives.is_empty());
        // Two records of the other journal, and the session's snapshot is behind them.
        world.count_page_of(2, 0).await;
        if restarts {
            world.save().await;
            world.books = None;
        }
        world.count().await;
        world.save().await;
        assert_eq!(tokens(&world.shown().await), (12, 120, 0), "restarts: {restarts}");
    }
}

/// The page is not read at one moment: it has the first records of a session, and a snapshot replaces the further ones
/// before they are read. They are in its archive, and count once.
#[tokio::test]
async fn a_page_that_lacks_what_a_snapshot_replaced_while_it_was_read_counts_once() {
    for (records, stale) in (1..16).flat_map(|records| (0..records).map(move |at| (records, at))) {
        let mut world = World::new(20);
        world.turn("m0", 10).await;
        world.count().await;
        world.save().await;
        world.books = None;
        let (before, mut turns) = (world.run.archives.len(), 1);
        while world.run.archives.len() == before {
            world.turn(&format!("m{turns}"), 10).await;
            turns += 1;
        }
        world.count_page_of(records, stale).await;
        world.count().await;
        world.save().await;
        let expected = (turns, 10 * turns, 0);
        assert_eq!(tokens(&world.shown().await), expected, "{stale} of {records} are stale");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Turn(u64),
    /// A turn calls a tool elsewhere, which goes on running; or its result comes, and the turn ends.
    Tool,
    Count,
    /// One page of so many records is counted, of which the first ones are read before the newest snapshot is stored.
    Page(usize, usize),
    Save,
    /// The days are saved, and how far they count is not; then the process ends.
    TearSave,
    /// Another process goes on from what is saved.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_u64..100).prop_map(Step::Turn),
        3 => Just(Step::Tool),
        2 => Just(Step::Count),
        3 => (1_usize..9, 0_usize..9).prop_map(|(records, stale)| Step::Page(records, stale)),
        2 => Just(Step::Save),
        1 => Just(Step::TearSave),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// USE-1, with snapshots that replace records that were not followed yet; and what the agent did counts once, too.
    #[test]
    fn every_call_is_counted_once(
        steps in prop::collection::vec(step(), 1..40),
        snapshot_every in 5_u64..40,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (view, expected) = runtime.block_on(played(steps, snapshot_every));
        prop_assert_eq!((tokens(&view), view.behind_ms), (expected, 0));
    }
}

async fn played(steps: Vec<Step>, snapshot_every: u64) -> (UsageView, (u64, u64, u64)) {
    let mut world = World::new(snapshot_every);
    let (mut calls, mut used) = (0, 0);
    let (mut turns, mut tools, mut running) = (0, 0, None);
    for step in steps.into_iter().chain([Step::Tool, Step::Turn(1)]) {
        match (step, running.take()) {
            (Step::Tool, None) => {
                (calls, turns) = (calls + 1, turns + 1);
                running = Some(world.begins_tool(&format!("m{turns}")).await);
            }
            (Step::Turn(tokens), None) => {
                (calls, turns, used) = (calls + 1, turns + 1, used + tokens);
                world.turn(&format!("m{turns}"), tokens).await;
            }
            (Step::Tool | Step::Turn(_), Some(tool)) => {
                (calls, tools) = (calls + 1, tools + 1);
                world.ends_tool(tool).await;
            }
            (step, tool) => {
                running = tool;
                world.counts(step).await;
            }
        }
    }
    world.count().await;
    world.save().await;
    let audited = audit(&world.storage, Timestamp(1), Day(0)).await.unwrap();
    assert!(audited.differences.is_empty() && audited.unproven.is_empty(), "{audited:?}");
    assert_eq!((audited.journaled.done, audited.unreadable), (calls, 0));
    let profile = world.profile().await;
    let ended = turns - u64::from(running.is_some());
    assert_eq!((profile.turns.succeeded, profile.turns.total()), (ended, ended));
    assert_eq!(profile.time.map_or(0, |time| time.turns), ended);
    let done: Vec<_> = profile.tools.iter().map(|row| (&*row.name, row.ends.done)).collect();
    let expected = [("far", tools)];
    assert_eq!(done, expected[usize::from(tools == 0)..]);
    (world.shown().await, (calls, used, 0))
}

impl World {
    async fn counts(&mut self, step: Step) {
        match step {
            Step::Turn(_) | Step::Tool => {}
            Step::Count => self.count().await,
            Step::Page(records, stale) => self.count_page_of(records, stale).await,
            Step::Save => self.save().await,
            Step::TearSave => {
                self.count().await;
                self.torn.1.store(true, Ordering::SeqCst);
                let torn = self.books().await.unwrap().save(Timestamp(1)).await;
                assert!(matches!(torn, Err(CountingStopped::Store(_))));
                self.torn.1.store(false, Ordering::SeqCst);
                self.books = None;
            }
            Step::Restart => self.books = None,
        }
    }
}
