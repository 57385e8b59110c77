//! Vectors that are made later, and files that are taken over by a store of another model.

use std::{fs, path::Path, slice::from_ref};

use super::{
    Document, DocumentBatch, LocalStore, MemoryStoreError, RecallQuery, StoreScope,
    conformance::{conforms_with_vectors, memory, point},
    take_over::take_over,
    vector_fill::VectorFill,
};

const M: Option<(&str, usize)> = Some(("m", 0));

fn scope() -> StoreScope {
    memory("a/all").unwrap()
}

/// A store of a model with documents of these texts, which have no vector yet.
fn filled(folder: &Path, model: Option<(&str, usize)>, texts: &[&str]) -> LocalStore {
    let store = LocalStore::open(folder, model).unwrap();
    let documents = (1..).zip(texts).map(|(event, text)| point(event, text)).collect();
    store.put_now(&scope(), &DocumentBatch { after: 0, upto: 9, documents }).unwrap();
    store
}

/// Gives all documents of the store a vector in this direction.
fn give(store: &LocalStore, vector: &[f32]) {
    store.learn_dimensions_now(vector.len()).unwrap();
    let bare = store.bare_now(&scope(), 100).unwrap();
    let made = bare.into_iter().map(|document| (document, vector.to_vec())).collect();
    store.give_vectors_now(&scope(), made).unwrap();
}

fn fill(store: &LocalStore) -> (usize, usize) {
    let VectorFill { vectors, documents } = store.vector_fill_now(&scope()).unwrap();
    (vectors, documents)
}

/// The texts that a search by a vector alone finds.
fn near(store: &LocalStore, vector: &[f32]) -> Vec<String> {
    let query = RecallQuery { embedding: Some(vector.to_vec()), ..RecallQuery::new("xylophone") };
    let found = store.search_now(from_ref(&scope()), &query, 10).unwrap().found;
    found.into_iter().map(|found| found.document.text).collect()
}

fn folders(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[tokio::test]
async fn it_does_what_every_store_with_vectors_does() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path(), M).unwrap();
    conforms_with_vectors(&store).await.unwrap();
}

#[test]
fn a_vector_goes_to_the_document_that_it_was_made_of_and_to_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let store = filled(folder.path(), M, &["a house", "a boat", "a tree"]);
    let bare = store.bare_now(&scope(), 100).unwrap();
    assert_eq!((bare.len(), store.bare_now(&scope(), 2).unwrap().len()), (3, 2));
    // Meanwhile one is forgotten, and one says something else.
    store.mask_now(&scope(), &[point(1, "").id]).unwrap();
    let changed = DocumentBatch { after: 9, upto: 10, documents: vec![point(2, "a ship")] };
    store.put_now(&scope(), &changed).unwrap();
    store.learn_dimensions_now(2).unwrap();
    let made: Vec<(Document, Vec<f32>)> =
        bare.into_iter().map(|document| (document, vec![1.0, 0.0])).collect();
    store.give_vectors_now(&scope(), made.clone()).unwrap();
    assert_eq!(fill(&store), (1, 2));
    assert_eq!(near(&store, &[1.0, 0.0]), ["a tree"]);
    assert_eq!(store.upto_now(&scope()).unwrap(), 10);
    let gone = memory("shared/gone").unwrap();
    store.give_vectors_now(&gone, made).unwrap();
    assert_eq!(store.vector_fill_now(&gone).unwrap(), VectorFill::default());
    store.give_vectors_now(&scope(), vec![(point(2, "a ship"), vec![1.0])]).unwrap_err();
}

#[test]
fn the_first_vector_says_how_many_numbers_there_are_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let store = filled(folder.path(), M, &["a house"]);
    assert_eq!((store.dimensions(), near_words(&store)), (0, 1));
    give(&store, &[1.0, 0.0]);
    drop(store);
    let store = LocalStore::open(folder.path(), M).unwrap();
    assert_eq!((store.dimensions(), fill(&store)), (2, (1, 1)));
    assert_eq!(near(&store, &[1.0, 0.1]), ["a house"]);
    let refused = store.learn_dimensions_now(3).unwrap_err();
    assert!(matches!(refused, MemoryStoreError::Dimensions { found: 3, expected: 2 }), "{refused}");
}

fn near_words(store: &LocalStore) -> usize {
    let answer = store.search_now(from_ref(&scope()), &RecallQuery::new("house"), 10);
    answer.unwrap().found.len()
}

#[test]
fn a_scope_that_is_written_again_keeps_the_vectors_of_the_same_texts() {
    let folder = tempfile::tempdir().unwrap();
    let store = filled(folder.path(), M, &["a house", "a boat"]);
    give(&store, &[0.25, -1.0]);
    let documents = vec![point(1, "a house"), point(2, "a ship"), point(3, "a house")];
    let mut batch = DocumentBatch { after: 0, upto: 11, documents };
    store.keep_vectors_now(&scope(), &mut batch).unwrap();
    let have: Vec<bool> = batch.documents.iter().map(|one| one.embedding.is_some()).collect();
    assert_eq!(have, [true, false, false]);
    store.drop_now(&scope()).unwrap();
    store.put_now(&scope(), &batch).unwrap();
    assert_eq!((fill(&store), near(&store, &[0.25, -1.0]).len()), ((1, 3), 1));
}

#[test]
fn another_model_takes_over_what_is_found_by_words_and_no_vector() {
    let folder = tempfile::tempdir().unwrap();
    drop(filled(folder.path(), None, &["a house", "a boat"]));
    for (model, other) in [(M, 0), (Some(("n", 0)), 1), (None, 0), (Some(("m", 2)), 0)] {
        take_over(folder.path(), model).unwrap();
        // A second time changes nothing.
        take_over(folder.path(), model).unwrap();
        let store = LocalStore::open(folder.path(), model).unwrap();
        assert_eq!((fill(&store), folders(folder.path())), ((0, 2), 1), "{model:?}");
        assert_eq!((store.upto_now(&scope()).unwrap(), near_words(&store)), (9, 1), "{model:?}");
        if model.is_some() {
            give(&store, &[1.0, 0.0, 0.5][..2 + other]);
            assert_eq!(fill(&store), (2, 2));
        }
    }
    // What is there already is used as it is, and the rest goes.
    drop(filled(folder.path(), None, &["an older house"]));
    take_over(folder.path(), Some(("m", 2))).unwrap();
    assert_eq!(folders(folder.path()), 1);
    let store = LocalStore::open(folder.path(), Some(("m", 2))).unwrap();
    assert_eq!(fill(&store), (2, 2));
}

/// A process that died while vectors left the files goes on with those that have some still.
#[test]
fn a_half_taken_over_store_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let store = filled(folder.path(), M, &["a house"]);
    give(&store, &[1.0, 0.0]);
    let other = memory("b/all").unwrap();
    let documents = vec![point(1, "a boat")];
    store.put_now(&other, &DocumentBatch { after: 0, upto: 1, documents }).unwrap();
    let damaged = store.folder().join("entity_00000000000000000000000009.scope");
    fs::write(&damaged, b"no record").unwrap();
    fs::write(store.folder().join("dimensions.new"), b"7").unwrap();
    drop(store);
    take_over(folder.path(), Some(("n", 0))).unwrap();
    let store = LocalStore::open(folder.path(), Some(("n", 0))).unwrap();
    assert_eq!((store.dimensions(), fill(&store)), (0, (0, 1)));
    assert_eq!(store.upto_now(&other).unwrap(), 1);
}
