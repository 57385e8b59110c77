//! A store that a script answers for: it lags, lies and vanishes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use clawnode_actors::{agent::AgentMemory, session::RecallStore};
use clawnode_memory::{
    serve::ServedStore,
    store::{
        Document, DocumentBatch, DocumentId, FilledStore, FoundDocument, MemoryStore,
        MemoryStoreError, RecallAnswer, RecallQuery, StoreAway, StoreScope, score::ScoreParts,
    },
};
use clawnode_proto::{EntityId, InputId, ProcessId, memory::MemoryTrust};
use clawnode_sim::WorldReads;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::{
    feedback_judge::FeedbackTally,
    judge::{RecallJudge, RecallTally},
};

/// The name of the store in journals.
const NAME: &str = "scripted";
/// Documents that a lie has.
const LIES: usize = 12;

/// What the store of one process is like now, and what it has. Its clones are one store.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScriptedStore(Arc<Mutex<Script>>);

#[derive(Debug, Default)]
struct Script {
    mood: StoreMood,
    scopes: BTreeMap<StoreScope, ScriptedScope>,
    /// All that was ever in some store of this world: what a lie is made of.
    ever: Vec<FoundDocument>,
}

#[derive(Debug, Default)]
struct ScriptedScope {
    upto: u64,
    documents: BTreeMap<DocumentId, Document>,
}

/// How a store behaves during one search.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is another fault")]
pub(super) struct StoreMood {
    /// It has lost all that it had.
    forgets: bool,
    /// It cannot be used.
    is_away: bool,
    /// Searches fail.
    fails: bool,
    /// It takes nothing new.
    lags: bool,
    /// It says that it is filled less than it is.
    undersells: bool,
    /// It keeps what is masked and dropped, and says that it is gone.
    keeps: bool,
    /// It finds what was masked, what is of other scopes, and says that it is of those that were named, and what was never
    /// said.
    lies: bool,
    /// With which document a lie begins.
    first: usize,
}

/// What a world with recalls has beside its entities.
#[derive(Debug)]
pub(crate) struct RecallWorld {
    /// What searches read.
    pub(super) reads: WorldReads,
    /// The one store of all processes, if they share one.
    pub(super) shared: Option<ScriptedStore>,
    pub(crate) judge: RecallJudge,
    /// The first process that sent memories what a feedback moves.
    pub(super) senders: BTreeMap<InputId, ProcessId>,
    /// How often another one did.
    pub(super) sent_again: usize,
}

/// The stores of a process: the one that its turns search, and the scripted one behind it.
#[derive(Debug)]
pub(crate) struct ProcessStore {
    pub(super) recall: RecallStore,
    pub(super) script: ScriptedStore,
}

/// What agents of this world are shown of memories.
pub(crate) fn agent_memory() -> AgentMemory {
    AgentMemory { shared: "team".parse().ok().into_iter().collect(), ..AgentMemory::default() }
}

// === impl RecallWorld ===

impl RecallWorld {
    pub(crate) fn new(judge: RecallJudge, is_shared: bool) -> io::Result<Self> {
        let shared = is_shared.then(ScriptedStore::default);
        let (reads, senders) = (WorldReads::new()?, BTreeMap::new());
        Ok(Self { reads, shared, judge, senders, sent_again: 0 })
    }

    /// How much was recalled and learned.
    pub(crate) fn tally(&self) -> RecallTally {
        let tally = self.judge.tally();
        let feedback = FeedbackTally { again: self.sent_again, ..tally.feedback };
        RecallTally { feedback, ..tally }
    }
}

// === impl ProcessStore ===

impl ProcessStore {
    /// A store that is filled from what is shown.
    pub(super) fn new(reads: &WorldReads, script: ScriptedStore) -> io::Result<Self> {
        // Each process has its own store, so no folder has to be locked.
        let lock = File::open("/dev/null")?;
        let conversations = "default".parse().ok().into_iter().collect();
        let served = ServedStore::over(
            Arc::new(script.clone()),
            PathBuf::new(),
            lock,
            reads.storage(),
            reads.clock(),
            conversations,
        );
        Ok(Self { recall: RecallStore { name: NAME, store: Arc::new(served) }, script })
    }
}

// === impl StoreMood ===

impl StoreMood {
    /// Most are well most of the time; one that is calm is always well.
    pub(super) fn any(rng: &mut ChaCha8Rng, is_calm: bool) -> Self {
        let mut with = |probability: f64| rng.random_bool(if is_calm { 0.0 } else { probability });
        let mut mood = Self {
            forgets: with(0.05),
            is_away: with(0.05),
            fails: with(0.05),
            lags: with(0.1),
            undersells: with(0.1),
            keeps: with(0.4),
            lies: with(0.4),
            first: 0,
        };
        mood.first = rng.random_range(0..1_000);
        mood
    }
}

// === impl ScriptedStore ===

impl ScriptedStore {
    fn lock(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on it is like this, and lies are made of these documents.
    pub(super) fn becomes(&self, mood: StoreMood, ever: Vec<FoundDocument>) {
        let mut script = self.lock();
        (script.mood, script.ever) = (mood, ever);
        if mood.forgets {
            script.scopes.clear();
        }
    }

    /// Passages of a conversation, which are put beside what is filled from memories.
    pub(super) fn hears(&self, scope: &StoreScope, documents: Vec<Document>) {
        let mut script = self.lock();
        let known = script.scopes.entry(scope.clone()).or_default();
        known.documents.extend(documents.into_iter().map(|document| (document.id, document)));
    }
}

fn away() -> MemoryStoreError {
    MemoryStoreError::Away {
        url: "sim://store".to_owned(),
        detail: "it does not answer".to_owned(),
    }
}

// === impl Script ===

impl Script {
    fn is_there(&self) -> Result<(), MemoryStoreError> {
        if self.mood.is_away { Err(away()) } else { Ok(()) }
    }

    /// Documents of any scope, also masked ones. Some say that they are of a scope that was named, and some that an
    /// operator said something else.
    fn lies(&self, scopes: &[StoreScope]) -> Vec<FoundDocument> {
        let first = self.mood.first.checked_rem(self.ever.len()).unwrap_or(0);
        let lies = self.ever.iter().cycle().skip(first).take(LIES.min(self.ever.len()));
        let lies = lies.cloned().enumerate().map(|(at, lie)| match scopes.get(at % 7) {
            Some(scope) => FoundDocument { scope: scope.clone(), ..lie },
            None if at % 7 == 6 => {
                let text = format!("{} That is false.", lie.document.text);
                let document = Document { text, trust: MemoryTrust::Operator, ..lie.document };
                FoundDocument { document, ..lie }
            }
            None => lie,
        });
        lies.collect()
    }
}

#[async_trait]
impl MemoryStore for ScriptedStore {
    async fn put(&self, scope: &StoreScope, batch: DocumentBatch) -> Result<(), MemoryStoreError> {
        let mut script = self.lock();
        script.is_there()?;
        if script.mood.lags {
            return Err(MemoryStoreError::Closed);
        }
        let known = script.scopes.entry(scope.clone()).or_default();
        if batch.after > known.upto {
            let (upto, after) = (known.upto, batch.after);
            return Err(MemoryStoreError::Behind { scope: scope.clone(), upto, after });
        }
        known.upto = batch.upto;
        known.documents.extend(batch.documents.into_iter().map(|one| (one.id, one)));
        Ok(())
    }

    async fn mask(&self, scope: &StoreScope, ids: &[DocumentId]) -> Result<(), MemoryStoreError> {
        let mut script = self.lock();
        script.is_there()?;
        let keeps = script.mood.keeps;
        if let Some(known) = script.scopes.get_mut(scope).filter(|_| !keeps) {
            known.documents.retain(|id, _| !ids.contains(id));
        }
        Ok(())
    }

    async fn search(
        &self,
        scopes: &[StoreScope],
        query: &RecallQuery,
        k: usize,
    ) -> Result<RecallAnswer, MemoryStoreError> {
        let script = self.lock();
        script.is_there()?;
        if script.mood.fails {
            return Err(MemoryStoreError::Closed);
        }
        let mut found = if script.mood.lies { script.lies(scopes) } else { Vec::new() };
        let known = scopes.iter().filter_map(|scope| Some((scope, script.scopes.get(scope)?)));
        let documents = known.flat_map(|(scope, known)| {
            known.documents.values().map(move |document| FoundDocument {
                scope: scope.clone(),
                document: document.clone(),
                score: ScoreParts::default(),
            })
        });
        let fits = |one: &FoundDocument| query.admits(one.document.kind, one.document.trust);
        let mut fitting: Vec<FoundDocument> = documents.filter(fits).collect();
        let count = fitting.len();
        fitting.rotate_left(script.mood.first.checked_rem(count).unwrap_or(0));
        found.extend(fitting.into_iter().take(k));
        let upto = scopes.iter().filter_map(|scope| {
            let known = script.scopes.get(scope)?;
            Some((scope.clone(), known.upto))
        });
        Ok(RecallAnswer { found, damaged: Vec::new(), upto: upto.collect() })
    }

    async fn upto(&self, scope: &StoreScope) -> Result<u64, MemoryStoreError> {
        let script = self.lock();
        script.is_there()?;
        let upto = script.scopes.get(scope).map_or(0, |known| known.upto);
        Ok(if script.mood.undersells { upto / 2 } else { upto })
    }

    async fn drop(&self, scope: &StoreScope) -> Result<(), MemoryStoreError> {
        let mut script = self.lock();
        script.is_there()?;
        if script.mood.keeps {
            if let Some(known) = script.scopes.get_mut(scope) {
                known.upto = 0;
            }
        } else {
            script.scopes.remove(scope);
        }
        Ok(())
    }
}

#[async_trait]
impl FilledStore for ScriptedStore {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn scope_of(&self, entity: EntityId) -> Result<Option<StoreScope>, MemoryStoreError> {
        Ok(self.lock().scopes.keys().find(|scope| scope.entity() == entity).cloned())
    }

    async fn sync(&self, _: &BTreeSet<EntityId>) -> Result<(), MemoryStoreError> {
        Ok(())
    }

    async fn look_again(&self) -> Result<(), MemoryStoreError> {
        Ok(())
    }

    async fn identity(&self) -> Result<String, MemoryStoreError> {
        Ok(NAME.to_owned())
    }

    fn away(&self) -> Option<StoreAway> {
        let (what, hint) = (away().to_string(), "wait".to_owned());
        self.lock().mood.is_away.then_some(StoreAway { what, hint })
    }
}
