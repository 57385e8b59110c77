//! Documents and queries with a model that a test knows.

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use clawnode_cluster::Storage;

use super::{
    ServedStore,
    fill_from_journals::StoreFiller,
    served_tests::{Owner, memory, served_with, session, storage},
};
use crate::{
    embed::{BATCH, EmbedFault, TextEmbedder},
    store::{MemoryStore as _, RecallQuery, StoreScope, vector_fill::VectorFill},
};

/// A model that knows two things: what drives, and what is drunk.
#[derive(Debug, Default)]
struct ToyEmbedder {
    /// Texts that it was asked for.
    asked: AtomicUsize,
    mood: Mutex<Mood>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Mood {
    #[default]
    Works,
    Fails,
    Hangs,
    /// Answers with vectors of another length.
    Changed,
}

impl ToyEmbedder {
    fn is(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl TextEmbedder for ToyEmbedder {
    fn model(&self) -> &'static str {
        "toy"
    }

    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbedFault> {
        assert!((1..=BATCH).contains(&texts.len()), "{}", texts.len());
        self.asked.fetch_add(texts.len(), Ordering::SeqCst);
        let mood = *self.mood.lock().unwrap();
        let has = |text: &str, words: &[&str]| words.iter().any(|word| text.contains(word));
        let vector = |text: &String| {
            let drives = if has(text, &["automobile", "vehicle"]) { 1.0 } else { 0.1 };
            let drunk = if has(text, &["Assam", "beverage"]) { 1.0 } else { 0.1 };
            vec![drives, drunk]
        };
        match mood {
            Mood::Works => Ok(texts.iter().map(vector).collect()),
            Mood::Fails => Err(EmbedFault::Failed("it is away".to_owned())),
            Mood::Hangs => std::future::pending().await,
            Mood::Changed => Ok(texts.iter().map(|_| vec![1.0; 3]).collect()),
        }
    }
}

fn served(folder: &Path, storage: &Storage, toy: &Arc<ToyEmbedder>) -> ServedStore {
    let served = served_with(folder, storage, Some(("toy", 0)));
    served.finds_meaning(Arc::clone(toy) as _);
    served
}

/// Makes vectors once; says whether it could.
async fn round(served: &ServedStore) -> bool {
    served.vector_round(served.shared.meaning.get().unwrap()).await.is_ok()
}

/// The best text, and whether the answer is degraded.
async fn best(served: &ServedStore, scope: &StoreScope, query: &str) -> (Option<String>, bool) {
    let scopes = std::slice::from_ref(scope);
    let answer = served.search(scopes, &RecallQuery::new(query), 10).await.unwrap();
    let is_degraded = answer.damaged == scopes;
    assert!(is_degraded || answer.damaged.is_empty(), "{:?}", answer.damaged);
    (answer.found.first().map(|found| found.document.text.clone()), is_degraded)
}

const RED: &str = "The automobile is red.";
const TEA: &str = "Assam is served at four.";
const VEHICLE: &str = "Which colour has my vehicle?";

#[tokio::test]
async fn what_has_no_common_word_is_found_by_its_meaning() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let storage = storage(data.path());
    let toy = Arc::new(ToyEmbedder::default());
    let mut owner = Owner::new(&storage, clawnode_proto::Kind::MEMORY, "default/all").await;
    owner.learns(RED, "car").await;
    owner.learns(TEA, "tea").await;
    let scope = memory("default/all");
    {
        let served = served(folder.path(), &storage, &toy);
        assert_eq!(best(&served, &scope, VEHICLE).await, (None, true), "nothing has a vector yet");
        assert!(round(&served).await);
        let whole = VectorFill { vectors: 2, documents: 2 };
        assert_eq!(served.vector_fill(&scope).await.unwrap(), whole);
        assert_eq!(best(&served, &scope, VEHICLE).await, (Some(RED.to_owned()), false));
        assert_eq!(best(&served, &scope, "a beverage").await, (Some(TEA.to_owned()), false));
        // What is learned later has a vector with the next round, and nothing else is made again.
        owner.learns("My other automobile is blue.", "second car").await;
        served.catch_up(&scope).await.unwrap();
        let asked = toy.asked();
        assert!(round(&served).await);
        assert_eq!((toy.asked() - asked, best(&served, &scope, "red").await.1), (1, false));
    }
    // Also over a restart.
    let asked = toy.asked();
    let served = served(folder.path(), &storage, &toy);
    assert!(round(&served).await);
    assert_eq!(toy.asked(), asked, "all vectors are in the files");
    assert_eq!(best(&served, &scope, "a beverage").await, (Some(TEA.to_owned()), false));
    // A point keeps its vector when feedback moves how much it matters.
    owner.rates(TEA, 1).await;
    assert_eq!(best(&served, &scope, "a beverage").await, (Some(TEA.to_owned()), false));
    let asked = toy.asked();
    assert!(round(&served).await);
    assert_eq!(toy.asked(), asked);
    // MEM-4: what is forgotten is gone, and the rest of the memory keeps its vectors.
    owner.forgets(TEA).await;
    assert_ne!(best(&served, &scope, "a beverage").await.0, Some(TEA.to_owned()));
    let asked = toy.asked();
    assert!(round(&served).await);
    assert_eq!(toy.asked(), asked);
    let whole = VectorFill { vectors: 2, documents: 2 };
    assert_eq!(served.vector_fill(&scope).await.unwrap(), whole);
}

#[tokio::test]
async fn conversations_have_vectors_too() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let storage = storage(data.path());
    let toy = Arc::new(ToyEmbedder::default());
    let mut said = Owner::new(&storage, clawnode_proto::Kind::SESSION, "default:web:bot:ada").await;
    said.hears("I have sold the automobile.").await;
    let served = served(folder.path(), &storage, &toy);
    assert!(round(&served).await, "of an empty store");
    let mut filler = StoreFiller::open(served.clone()).await;
    filler.round().await.unwrap();
    assert!(round(&served).await);
    let scope = session("default:web:bot:ada");
    let (found, is_degraded) = best(&served, &scope, VEHICLE).await;
    assert_eq!((found, is_degraded), (Some("I have sold the automobile.".to_owned()), false));
}

#[tokio::test]
async fn a_model_that_is_away_leaves_the_words_and_is_asked_again() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let storage = storage(data.path());
    let toy = Arc::new(ToyEmbedder::default());
    let mut owner = Owner::new(&storage, clawnode_proto::Kind::MEMORY, "default/all").await;
    owner.learns(RED, "car").await;
    let scope = memory("default/all");
    let served = served(folder.path(), &storage, &toy);
    toy.is(Mood::Fails);
    assert_eq!(best(&served, &scope, "the red one").await, (Some(RED.to_owned()), true));
    assert!(!round(&served).await);
    toy.is(Mood::Works);
    assert!(round(&served).await);
    assert_eq!(best(&served, &scope, VEHICLE).await, (Some(RED.to_owned()), false));
    // A query alone that fails is searched by its words, and the next one is asked for again.
    toy.is(Mood::Fails);
    assert_eq!(best(&served, &scope, "Is it red?").await, (Some(RED.to_owned()), true));
    toy.is(Mood::Works);
    assert_eq!(best(&served, &scope, "Is it red?").await, (Some(RED.to_owned()), false));
    // A vector of another length is not compared, and not stored.
    toy.is(Mood::Changed);
    owner.learns(TEA, "tea").await;
    assert_eq!(best(&served, &scope, "When is Assam served?").await, (Some(TEA.to_owned()), true));
    assert!(!round(&served).await);
    let fill = VectorFill { vectors: 1, documents: 2 };
    assert_eq!(served.vector_fill(&scope).await.unwrap(), fill);
    assert_eq!(served.meaning_state().unwrap().dimensions, 2);
}

#[tokio::test]
async fn a_query_is_made_once_and_waited_for_a_short_time() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let storage = storage(data.path());
    let toy = Arc::new(ToyEmbedder::default());
    let mut owner = Owner::new(&storage, clawnode_proto::Kind::MEMORY, "default/all").await;
    owner.learns(RED, "car").await;
    let scope = memory("default/all");
    let served = served(folder.path(), &storage, &toy);
    served.catch_up(&scope).await.unwrap();
    assert!(round(&served).await);
    let asked = toy.asked();
    let both = tokio::join!(best(&served, &scope, VEHICLE), best(&served, &scope, VEHICLE));
    assert_eq!(both, ((Some(RED.to_owned()), false), (Some(RED.to_owned()), false)));
    assert_eq!(best(&served, &scope, VEHICLE).await, (Some(RED.to_owned()), false));
    assert_eq!(toy.asked() - asked, 1, "one query, asked for once");
    toy.is(Mood::Hangs);
    assert_eq!(
        best(&served, &scope, VEHICLE).await,
        (Some(RED.to_owned()), false),
        "it is remembered"
    );
    let query = RecallQuery { meaning_within: Duration::from_millis(1), ..RecallQuery::new("red") };
    let answer = served.search(std::slice::from_ref(&scope), &query, 10).await.unwrap();
    assert_eq!((answer.found.len(), answer.damaged), (1, vec![scope.clone()]));
    // However many hang, no more than a few are made at the same time.
    let asked = toy.asked();
    for number in 0..40 {
        let query = RecallQuery { text: format!("red {number}"), ..query.clone() };
        assert_eq!(
            served.search(std::slice::from_ref(&scope), &query, 10).await.unwrap().found.len(),
            1
        );
    }
    assert!(toy.asked() - asked < 16, "{}", toy.asked() - asked);
}
