//! What every store has to do, as one suite. An error says what a store did wrong.

use std::{error::Error, fmt::Debug, slice::from_ref};

use clawnode_proto::{
    EntityId, SessionKey, Timestamp,
    id::Kind,
    memory::{MemoryKey, MemoryLayer, MemoryTrust},
};

use super::{
    contract::{MemoryStore, MemoryStoreError, RecallAnswer},
    document::{DOCUMENT_CHARS, Document, DocumentBatch, DocumentId, DocumentKind, RecallQuery},
    document::{QUERY_SCOPES, StoreScope},
    vector_fill::{VectorFill, VectorStore},
};

/// What a case returns.
type Checked<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Numbers of a vector of the stores that the suite makes.
pub const DIMENSIONS: usize = 4;

/// Keys that look like each other, like paths, or like parts of a query.
const HOSTILE: [&str; 12] = [
    "a/peer/web:bot:ada",
    "a/peer/web:bot:ad",
    "a/peer/web:bot:adaa",
    "a/peer/web:bo:tada",
    "a/peer/web:bot:Ada",
    "b/peer/web:bot:ada",
    "a/all",
    "b/all",
    "shared/a",
    "shared/b",
    "shared/all-of-it",
    "peer/peer/web:bot:all",
];

/// Runs the suite. `make` gives a store with vectors of [`DIMENSIONS`] numbers, in which none of these scopes has anything.
pub async fn conforms<S: MemoryStore>(make: impl AsyncFn() -> S) -> Checked {
    finds_the_best_first(&make().await).await?;
    takes_a_batch_once(&make().await).await?;
    misses_no_event(&make().await).await?;
    replaces_what_changed(&make().await).await?;
    hides_what_is_masked(&make().await).await?;
    keeps_scopes_apart(&make().await).await?;
    finds_what_is_asked_for(&make().await).await?;
    listens_to_neighbours(&make().await).await?;
    compares_vectors(&make().await).await?;
    drops_a_scope(&make().await).await?;
    refuses_what_it_may_not_hold(&make().await).await
}

/// Runs what a store has to do whose documents get their vectors later. It is empty, and does not know yet how many numbers
/// they have.
pub async fn conforms_with_vectors(store: &dyn VectorStore) -> Checked {
    let scope = memory("a/all")?;
    let texts = ["a house", "a boat", "a tree"];
    let documents = (1..).zip(texts).map(|(event, text)| point(event, text)).collect();
    store.put(&scope, batch(0, 3, documents)).await?;
    let bare = store.bare(&scope, 10).await?;
    same("no document has a vector", &bare.len(), &3)?;
    same("as many as are wanted", &store.bare(&scope, 2).await?.len(), &2)?;
    same("its scopes", &store.scopes().await?, &vec![scope.clone()])?;
    store.learn_dimensions(DIMENSIONS).await?;
    store.learn_dimensions(DIMENSIONS).await?;
    same("numbers of a vector", &store.dimensions(), &DIMENSIONS)?;
    let refused = store.learn_dimensions(DIMENSIONS + 1).await;
    holds("other vectors", matches!(refused, Err(MemoryStoreError::Dimensions { .. })))?;
    same("nothing is lost", &store.upto(&scope).await?, &3)?;
    // Meanwhile one is forgotten, and one says something else.
    store.mask(&scope, &[point(1, "").id]).await?;
    store.put(&scope, batch(3, 4, vec![point(2, "a ship")])).await?;
    let near = vec![1.0, 0.0, 0.0, 0.0];
    let made = bare.into_iter().map(|document| (document, near.clone())).collect();
    store.give_vectors(&scope, made).await?;
    let fill = VectorFill { vectors: 1, documents: 2 };
    same("only what is there as it was gets one", &store.vector_fill(&scope).await?, &fill)?;
    same("the other one lacks it", &store.bare(&scope, 10).await?, &vec![point(2, "a ship")])?;
    let query = RecallQuery { embedding: Some(near), ..RecallQuery::new("xylophone") };
    let answer = store.search(from_ref(&scope), &query, 10).await?;
    same("it is found by that", &events(&answer), &vec![3])?;
    let again = batch(0, 4, vec![point(2, "a ship"), point(3, "a tree")]);
    let kept = store.keep_vectors(&scope, again).await?;
    let have: Vec<bool> =
        kept.documents.iter().map(|document| document.embedding.is_some()).collect();
    same("the same text keeps its vector", &have, &vec![false, true])?;
    store.drop(&scope).await?;
    store.give_vectors(&scope, vec![(point(3, "a tree"), vec![1.0; DIMENSIONS])]).await?;
    let fill = store.vector_fill(&scope).await?;
    same("a vector brings nothing back", &fill, &VectorFill::default())
}

/// A point of the memory with this key that a person told.
pub fn point(event: u64, text: &str) -> Document {
    Document {
        id: DocumentId { entity: EntityId::derive(Kind::MEMORY, "conformance"), event, part: 0 },
        kind: DocumentKind::Point(MemoryLayer::Semantic),
        text: text.to_owned(),
        speaker: None,
        position: None,
        at: Timestamp(event),
        importance: 5,
        trust: MemoryTrust::Person,
        embedding: None,
    }
}

/// The scope of the memory with this key.
pub fn memory(key: &str) -> Checked<StoreScope> {
    Ok(StoreScope::of_memory(&key.parse::<MemoryKey>()?))
}

fn batch(after: u64, upto: u64, documents: Vec<Document>) -> DocumentBatch {
    DocumentBatch { after, upto, documents }
}

fn events(answer: &RecallAnswer) -> Vec<u64> {
    answer.found.iter().map(|found| found.document.id.event).collect()
}

fn same<T: PartialEq + Debug>(what: &str, found: &T, expected: &T) -> Checked {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: found {found:?}, expected {expected:?}").into())
}

fn holds(what: &str, holds: bool) -> Checked {
    if holds { Ok(()) } else { Err(what.to_owned().into()) }
}

async fn finds_the_best_first(store: &dyn MemoryStore) -> Checked {
    let scope = memory("a/all")?;
    let documents = vec![
        point(1, "The dog of Ada is called Biscuit."),
        point(2, "Ada lives in Lisbon."),
        point(3, "The weather is fine."),
        point(4, "Ada walks the dog along the river each day, as dogs like it."),
    ];
    store.put(&scope, batch(0, 4, documents.clone())).await?;
    let query = RecallQuery::new("What is Ada's dog called?");
    let answer = store.search(from_ref(&scope), &query, 10).await?;
    same("the best is first, what fits nowhere is left out", &events(&answer), &vec![1, 4, 2])?;
    let [first, ..] = answer.found.as_slice() else { return Err("nothing was found".into()) };
    same("the document is given as it was put", &Some(&first.document), &documents.first())?;
    same("its scope", &first.scope, &scope)?;
    same("the best has all of the words", &first.score.words, &1.0)?;
    same("there are no vectors", &first.score.meaning, &None)?;
    let again = store.search(&[scope.clone(), scope.clone()], &query, 10).await?;
    same("the order is the same each time, and a scope counts once", &again, &answer)?;
    let two = store.search(from_ref(&scope), &query, 2).await?;
    same("no more than asked for", &events(&two), &vec![1, 4])?;
    let none = store.search(&[], &query, 10).await?;
    same("without scopes nothing is found", &events(&none), &vec![])?;
    for text in ["", "the of and", "!?", "xylophone"] {
        let none = store.search(from_ref(&scope), &RecallQuery::new(text), 10).await?;
        same("a text without words that are there finds nothing", &events(&none), &vec![])?;
    }
    Ok(())
}

async fn takes_a_batch_once(store: &dyn MemoryStore) -> Checked {
    let scope = memory("a/all")?;
    let first = batch(0, 2, vec![point(1, "red house"), point(2, "blue house")]);
    store.put(&scope, first.clone()).await?;
    let query = RecallQuery::new("red house");
    let before = store.search(from_ref(&scope), &query, 10).await?;
    store.put(&scope, first).await?;
    let after = store.search(from_ref(&scope), &query, 10).await?;
    same("the same batch again changes nothing", &after, &before)?;
    same("nor how far it is filled", &store.upto(&scope).await?, &2)
}

async fn misses_no_event(store: &dyn MemoryStore) -> Checked {
    let scope = memory("a/all")?;
    same("an empty scope is filled up to 0", &store.upto(&scope).await?, &0)?;
    store.put(&scope, batch(0, 5, vec![point(1, "one")])).await?;
    match store.put(&scope, batch(6, 8, vec![point(7, "seven")])).await {
        Err(MemoryStoreError::Behind { upto: 5, after: 6, .. }) => {}
        other => return Err(format!("events between are missing, and it said {other:?}").into()),
    }
    let none = store.search(from_ref(&scope), &RecallQuery::new("seven"), 10).await?;
    same("nothing of that batch is there", &events(&none), &vec![])?;
    same("an answer says how far it is filled", &none.upto.get(&scope), &Some(&5))?;
    store.put(&scope, batch(5, 8, vec![point(7, "seven")])).await?;
    store.put(&scope, batch(0, 3, Vec::new())).await?;
    same("it never goes back", &store.upto(&scope).await?, &8)
}

async fn replaces_what_changed(store: &dyn MemoryStore) -> Checked {
    let scope = memory("a/all")?;
    store.put(&scope, batch(0, 2, vec![point(1, "old words"), point(2, "words")])).await?;
    let newer = Document { importance: 9, ..point(1, "new words") };
    store.put(&scope, batch(2, 3, vec![newer.clone()])).await?;
    let old = store.search(from_ref(&scope), &RecallQuery::new("old"), 10).await?;
    same("its older text is not found", &events(&old), &vec![])?;
    let answer = store.search(from_ref(&scope), &RecallQuery::new("new words"), 10).await?;
    same("it is there once", &events(&answer), &vec![1, 2])?;
    same("as it is now", &answer.found.first().map(|found| &found.document), &Some(&newer))
}

async fn hides_what_is_masked(store: &dyn MemoryStore) -> Checked {
    let (scope, other) = (memory("a/all")?, memory("b/all")?);
    let documents = vec![point(1, "secret garden"), point(2, "open garden"), point(3, "garden")];
    store.put(&scope, batch(0, 3, documents.clone())).await?;
    store.put(&other, batch(0, 3, documents.clone())).await?;
    let id = point(1, "").id;
    store.mask(&scope, &[id, id, point(9, "").id]).await?;
    let query = RecallQuery::new("secret garden");
    let answer = store.search(from_ref(&scope), &query, 10).await?;
    same("a masked document is not found", &events(&answer), &vec![3, 2])?;
    store.put(&scope, batch(0, 9, vec![point(1, "secret garden"), point(9, "secret")])).await?;
    let later = store.search(from_ref(&scope), &query, 10).await?;
    same("nor if it is put again, nor if it came later", &later.found, &answer.found)?;
    same("nor is anything lacking", &later.damaged, &answer.damaged)?;
    let fresh = memory("shared/fresh")?;
    store.put(&fresh, batch(0, 9, documents.into_iter().skip(1).collect())).await?;
    let fresh = store.search(&[fresh], &query, 10).await?;
    let scores = |answer: &RecallAnswer| -> Vec<f64> {
        answer.found.iter().map(|found| found.score.total).collect()
    };
    same("scores are as if it had never been there", &scores(&answer), &scores(&fresh))?;
    let answer = store.search(&[other], &query, 10).await?;
    same("another scope keeps its own", &events(&answer), &vec![1, 3, 2])
}

async fn keeps_scopes_apart(store: &dyn MemoryStore) -> Checked {
    let mut scopes: Vec<StoreScope> =
        HOSTILE.iter().map(|key| memory(key)).collect::<Checked<_>>()?;
    let session: SessionKey = "a:web:bot:ada".parse()?;
    scopes.push(StoreScope::of_session(&session));
    let query = RecallQuery::new("secret of a/peer/web:bot:ada shared all session");
    let mut alone = Vec::new();
    for (number, scope) in (1_u64..).zip(&scopes) {
        let text = format!("the secret of {scope} is number {number}");
        store.put(scope, batch(0, number, vec![point(number, &text)])).await?;
        alone.push(store.search(from_ref(scope), &query, 10).await?);
    }
    for ((number, scope), alone) in (1_u64..).zip(&scopes).zip(&alone) {
        let answer = store.search(from_ref(scope), &query, 10).await?;
        same("MEM-1: only its own", &events(&answer), &vec![number])?;
        same("MEM-1: what others have changes no score", &answer, alone)?;
    }
    let pair: Vec<StoreScope> = scopes.iter().take(2).cloned().collect();
    let mut found = events(&store.search(&pair, &query, 10).await?);
    found.sort_unstable();
    same("MEM-1: of two scopes, these two", &found, &vec![1, 2])?;
    let many: Vec<StoreScope> = (0..=QUERY_SCOPES)
        .map(|number| memory(&format!("shared/s{number}")))
        .collect::<Checked<_>>()?;
    let refused = store.search(&many, &query, 10).await;
    holds("too many scopes are refused", matches!(refused, Err(MemoryStoreError::Scopes { .. })))
}

async fn finds_what_is_asked_for(store: &dyn MemoryStore) -> Checked {
    let scope = memory("a/all")?;
    let kind = |event, kind, trust| Document { kind, trust, ..point(event, "a bridge") };
    let documents = vec![
        kind(1, DocumentKind::Point(MemoryLayer::Semantic), MemoryTrust::Person),
        kind(2, DocumentKind::Point(MemoryLayer::Episode), MemoryTrust::Operator),
        kind(3, DocumentKind::Passage, MemoryTrust::Agent),
        kind(4, DocumentKind::Point(MemoryLayer::Semantic), MemoryTrust::Tool),
    ];
    store.put(&scope, batch(0, 4, documents)).await?;
    let all = RecallQuery::new("bridge");
    let sorted = async |query: &RecallQuery| -> Checked<Vec<u64>> {
        let mut found = events(&store.search(from_ref(&scope), query, 10).await?);
        found.sort_unstable();
        Ok(found)
    };
    same("S-22: what tools brought only if asked for", &sorted(&all).await?, &vec![1, 2, 3])?;
    let query = RecallQuery { least_trust: MemoryTrust::Tool, ..all.clone() };
    same("asked for", &sorted(&query).await?, &vec![1, 2, 3, 4])?;
    let query = RecallQuery { passages: false, ..all.clone() };
    same("points", &sorted(&query).await?, &vec![1, 2])?;
    let query = RecallQuery { layers: [MemoryLayer::Episode].into(), ..all.clone() };
    same("a layer, and passages", &sorted(&query).await?, &vec![2, 3])?;
    let answer = store.search(&[scope], &all, 10).await?;
    same("who is trusted more comes first", &events(&answer), &vec![2, 1, 3])
}

async fn listens_to_neighbours(store: &dyn MemoryStore) -> Checked {
    let scope = StoreScope::of_session(&"a:web:bot:ada".parse()?);
    let passage = |event, position, text: &str| Document {
        kind: DocumentKind::Passage,
        position: Some(position),
        ..point(event, text)
    };
    let documents = vec![
        passage(1, 10, "Where did you buy the kayak?"),
        passage(2, 11, "At the shop by the harbour."),
        passage(3, 13, "Rain again."),
        passage(4, 9, "Hello."),
    ];
    store.put(&scope, batch(0, 4, documents)).await?;
    let answer = store.search(&[scope], &RecallQuery::new("kayak"), 10).await?;
    let mut found = events(&answer);
    same("the message with the word is first", &found.first(), &Some(&1))?;
    found.sort_unstable();
    same("those beside it are found, and none across a gap", &found, &vec![1, 2, 4])?;
    let parts = answer.found.iter().find(|found| found.document.id.event == 2);
    let parts = parts.map(|found| (found.score.words, found.score.neighbours));
    same("a neighbour gets 0.3 of the score", &parts, &Some((0.0, 0.3)))
}

async fn compares_vectors(store: &dyn MemoryStore) -> Checked {
    let scope = memory("a/all")?;
    let with = |event, text: &str, vector: [f32; DIMENSIONS]| Document {
        embedding: Some(vector.to_vec()),
        ..point(event, text)
    };
    let documents = vec![
        with(1, "canine", [1.0, 0.1, 0.0, 0.0]),
        with(2, "tax form", [0.0, 0.0, 1.0, 0.0]),
        with(3, "a word", [-1.0, 0.0, 0.0, 0.0]),
        point(4, "without a vector"),
    ];
    store.put(&scope, batch(0, 4, documents)).await?;
    let embedding = Some(vec![1.0, 0.0, 0.0, 0.0]);
    let query = RecallQuery { embedding, ..RecallQuery::new("word") };
    let answer = store.search(from_ref(&scope), &query, 10).await?;
    same("words count more than meaning", &events(&answer), &vec![3, 1, 2])?;
    let meaning = answer.found.get(1).and_then(|found| found.score.meaning);
    same("the nearest has all of the meaning", &meaning, &Some(1.0))?;
    holds(
        "no vector is given back",
        answer.found.iter().all(|found| found.document.embedding.is_none()),
    )?;
    let short = RecallQuery { embedding: Some(vec![1.0]), ..query };
    let refused = store.search(&[scope], &short, 10).await;
    holds(
        "a query of another model is refused",
        matches!(refused, Err(MemoryStoreError::Dimensions { found: 1, expected: DIMENSIONS })),
    )
}

async fn drops_a_scope(store: &dyn MemoryStore) -> Checked {
    let (scope, other) = (memory("a/all")?, memory("b/all")?);
    let documents = vec![point(1, "apple"), point(2, "apple pie")];
    store.put(&scope, batch(0, 2, documents.clone())).await?;
    store.put(&other, batch(0, 2, documents.clone())).await?;
    store.mask(&scope, &[point(2, "").id]).await?;
    store.drop(&scope).await?;
    store.drop(&scope).await?;
    let query = RecallQuery::new("apple");
    same("it is empty", &store.upto(&scope).await?, &0)?;
    let answer = store.search(from_ref(&scope), &query, 10).await?;
    same("nothing of it is found", &events(&answer), &vec![])?;
    store.put(&scope, batch(0, 2, documents)).await?;
    let answer = store.search(&[scope], &query, 10).await?;
    same("it begins again, also with what was masked", &events(&answer), &vec![1, 2])?;
    same("others stay", &store.upto(&other).await?, &2)
}

async fn refuses_what_it_may_not_hold(store: &dyn MemoryStore) -> Checked {
    let scope = memory("a/all")?;
    for document in [
        point(2, ""),
        point(2, &"é".repeat(DOCUMENT_CHARS + 1)),
        Document { speaker: Some(String::new()), ..point(2, "text") },
    ] {
        let refused = store.put(&scope, batch(0, 2, vec![point(1, "text"), document])).await;
        holds("a malformed document", matches!(refused, Err(MemoryStoreError::Malformed { .. })))?;
    }
    let document = Document { embedding: Some(vec![1.0; DIMENSIONS + 1]), ..point(2, "text") };
    let refused = store.put(&scope, batch(0, 2, vec![point(1, "text"), document])).await;
    holds(
        "a vector of another model",
        matches!(refused, Err(MemoryStoreError::Dimensions { .. })),
    )?;
    let answer = store.search(from_ref(&scope), &RecallQuery::new("text"), 10).await?;
    same("nothing of a refused batch is there", &events(&answer), &vec![])?;
    store.put(&scope, batch(0, 1, vec![point(1, &"é".repeat(DOCUMENT_CHARS))])).await?;
    let long = RecallQuery::new("é ".repeat(100_000));
    Ok(store.search(&[scope], &long, 10).await.map(|_| ())?)
}
