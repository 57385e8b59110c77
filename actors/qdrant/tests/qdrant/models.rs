//! Another model of vectors: its index is built beside the one that answers.

use std::slice::from_ref;

use clawnode_memory::store::{
    Document, FilledStore as _, MemoryStore as _, MemoryStoreError, RecallQuery, StoreScope,
    VectorFill, VectorStore as _,
    conformance::{DIMENSIONS, point},
};
use clawnode_qdrant::{QdrantStore, fixture::QdrantFixture};

use super::{batch, fixture, found, houses, options, scope};

/// A store for vectors of this model, which does not know yet how many numbers they have.
fn of_model(fixture: &QdrantFixture, model: Option<&str>) -> QdrantStore {
    QdrantStore::new(&options(fixture), model.map(|model| (model, 0))).unwrap()
}

/// Gives all documents of a scope a vector in this direction.
async fn embed(
    store: &QdrantStore,
    scope: &StoreScope,
    vector: &[f32],
) -> Result<(), MemoryStoreError> {
    let bare = store.bare(scope, 100).await?;
    store.learn_dimensions(vector.len()).await?;
    let made = bare.into_iter().map(|document| (document, vector.to_vec())).collect();
    store.give_vectors(scope, made).await
}

/// The names of the collections of documents.
fn indexes(fixture: &QdrantFixture) -> Vec<String> {
    fixture.collections().into_iter().filter(|name| !name.ends_with("-state")).collect()
}

async fn fill(store: &QdrantStore, scope: &StoreScope) -> (usize, usize) {
    let VectorFill { vectors, documents } = store.vector_fill(scope).await.unwrap();
    (vectors, documents)
}

#[tokio::test]
async fn all_is_found_while_another_index_is_built_and_after_it() {
    let fixture = fixture().await;
    let (first, second) = (scope("a/all"), scope("b/all"));
    let words = of_model(&fixture, None);
    words.put(&first, batch(0, 3, houses(1..=3))).await.unwrap();
    words.put(&second, batch(0, 9, houses(4..=5))).await.unwrap();
    words.mask(&first, &[point(2, "").id]).await.unwrap();
    assert_eq!(indexes(&fixture), ["clawnode-v1-words"]);

    // A process with a model goes on with what is there.
    let store = of_model(&fixture, Some("m/one"));
    assert_eq!(found(&store, from_ref(&first), "house").await, [1, 3]);
    let (identity, before) = (store.identity().await.unwrap(), store.dimensions());
    assert_eq!((before, fill(&store, &first).await), (0, (0, 2)));
    embed(&store, &first, &[1.0, 0.0]).await.unwrap();
    let one = indexes(&fixture);
    assert!(one.len() == 1 && one[0].ends_with("-2"), "{one:?}");
    assert_eq!((store.dimensions(), store.building()), (2, None));
    assert_eq!((fill(&store, &first).await, fill(&store, &second).await), ((2, 2), (0, 2)));
    assert_ne!(store.identity().await.unwrap(), identity, "journals are compared with it");
    assert_eq!((store.upto(&first).await.unwrap(), store.upto(&second).await.unwrap()), (3, 9));
    store.put(&first, batch(3, 4, houses(2..=4))).await.unwrap();
    assert_eq!(found(&store, from_ref(&first), "house").await, [1, 3, 4], "2 stays away");
    assert_eq!(fill(&store, &first).await, (2, 3), "what is put again keeps its vector");
    let near = RecallQuery { embedding: Some(vec![1.0, 0.0]), ..RecallQuery::new("xylophone") };
    let answer = store.search(from_ref(&first), &near, 10).await.unwrap();
    assert_eq!(answer.found.len(), 2, "by meaning");

    // Another model, with as many numbers: none of its vectors are those of the first one.
    let store = of_model(&fixture, Some("m/two"));
    assert_eq!((fill(&store, &first).await, store.dimensions()), ((0, 3), 0));
    embed(&store, &first, &[0.0, 1.0]).await.unwrap();
    assert_eq!(fill(&store, &first).await, (3, 3));
    let two = indexes(&fixture);
    assert!(two.len() == 1 && two != one, "{two:?}");
    assert_eq!(found(&store, from_ref(&second), "house").await, [4, 5]);
    // A process without a model goes on with it, and leaves it as it is.
    let words = of_model(&fixture, None);
    assert_eq!(found(&words, from_ref(&first), "house").await, [1, 3, 4]);
    assert_eq!((indexes(&fixture), fill(&store, &first).await), (two, (3, 3)));
}

/// A process dies when the index of its model is there in part.
async fn dies_while_it_builds(fixture: &QdrantFixture, scope: &StoreScope) -> Result<(), String> {
    let store = of_model(fixture, Some("m/one"));
    let begun = async {
        while store.building().is_none_or(|build| build.done == 0) {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        () = begun => Ok(()),
        ended = embed(&store, scope, &[1.0, 0.0]) => Err(format!("it was built at once: {ended:?}")),
    }
}

#[tokio::test]
async fn an_index_that_is_there_in_part_goes_if_no_model_needs_it() {
    let fixture = fixture().await;
    let scopes = [scope("a/all"), scope("b/all")];
    let words = of_model(&fixture, None);
    for scope in &scopes {
        words.put(scope, batch(0, 3, houses(1..=3))).await.unwrap();
    }
    dies_while_it_builds(&fixture, &scopes[0]).await.unwrap();
    assert_eq!(indexes(&fixture).len(), 2);
    let looks = of_model(&fixture, None);
    looks.check().await.unwrap();
    assert_eq!(indexes(&fixture).len(), 2, "a check removes nothing");
    let words = of_model(&fixture, None);
    for scope in &scopes {
        assert_eq!(found(&words, from_ref(scope), "house").await, [1, 2, 3]);
    }
    assert_eq!(indexes(&fixture), ["clawnode-v1-words"]);
}

#[tokio::test]
async fn a_build_that_broke_off_goes_on() {
    let mut fixture = fixture().await;
    let scopes: Vec<StoreScope> = ["a/all", "b/all", "c/all"].map(scope).into();
    let words = of_model(&fixture, None);
    for scope in &scopes {
        words.put(scope, batch(0, 3, houses(1..=3))).await.unwrap();
    }
    dies_while_it_builds(&fixture, &scopes[0]).await.unwrap();
    let store = of_model(&fixture, Some("m/one"));
    for scope in &scopes {
        assert_eq!(found(&store, from_ref(scope), "house").await, [1, 2, 3], "of the old index");
    }
    assert_eq!(store.dimensions(), 0);
    // The server goes away and comes back.
    fixture.stop().await;
    assert!(embed(&store, &scopes[0], &[1.0, 0.0]).await.is_err());
    fixture.begin().await.unwrap();
    while embed(&store, &scopes[0], &[1.0, 0.0]).await.is_err() {
        tokio::task::yield_now().await;
    }
    for scope in &scopes {
        assert_eq!(found(&store, from_ref(scope), "house").await, [1, 2, 3]);
    }
    assert_eq!((indexes(&fixture).len(), fill(&store, &scopes[0]).await), (1, (3, 3)));
}

#[tokio::test]
async fn what_was_forgotten_since_a_build_broke_off_does_not_stay() {
    let fixture = fixture().await;
    let scopes: Vec<StoreScope> = ["a/all", "b/all", "c/all"].map(scope).into();
    let words = of_model(&fixture, None);
    for scope in &scopes {
        words.put(scope, batch(0, 3, houses(1..=3))).await.unwrap();
    }
    dies_while_it_builds(&fixture, &scopes[0]).await.unwrap();
    // The third point of each is forgotten: the index that answers gets them again without it, or masks it.
    for scope in &scopes[..2] {
        words.drop(scope).await.unwrap();
        words.put(scope, batch(0, 4, houses(1..=2))).await.unwrap();
    }
    words.mask(&scopes[2], &[point(3, "").id]).await.unwrap();
    words.put(&scopes[2], batch(3, 4, Vec::new())).await.unwrap();
    assert!(!fixture.has_text("number3"), "MEM-4: also not in the index that is there in part");
    assert_eq!(indexes(&fixture).len(), 2, "no process goes on with it");
    let store = of_model(&fixture, Some("m/one"));
    embed(&store, &scopes[0], &[1.0, 0.0]).await.unwrap();
    assert_eq!(indexes(&fixture).len(), 1);
    for scope in &scopes {
        let upto = store.upto(scope).await.unwrap();
        let events = found(&store, from_ref(scope), "house").await;
        assert!(upto < 4 || events == [1, 2], "filled up to {upto}, with {events:?}");
        if upto < 4 {
            // As it is filled from its journal.
            store.drop(scope).await.unwrap();
            store.put(scope, batch(0, 4, houses(1..=2))).await.unwrap();
        }
    }
    assert!(!fixture.has_text("number3"));
}

#[tokio::test]
async fn an_index_is_known_again_whatever_its_model_is_called() {
    let fixture = fixture().await;
    let scope = scope("a/all");
    of_model(&fixture, None).put(&scope, batch(0, 3, houses(1..=3))).await.unwrap();
    let model = "ollama/nomic-embed-text:v1.5";
    embed(&of_model(&fixture, Some(model)), &scope, &[1.0, 0.0]).await.unwrap();
    let own = indexes(&fixture);
    assert_eq!(own.len(), 1);
    let again = of_model(&fixture, Some(model));
    assert_eq!(fill(&again, &scope).await, (3, 3), "it is known when a process starts");
    embed(&of_model(&fixture, Some("x/other-v1")), &scope, &[0.0, 1.0]).await.unwrap();
    assert_ne!(indexes(&fixture), own);
    assert_eq!(fixture.collections().len(), 2, "with its state, and nothing of another model");
}

#[tokio::test]
async fn a_process_without_a_model_goes_on_with_what_took_the_place_of_its_index() {
    let fixture = fixture().await;
    let scope = scope("a/all");
    let words = of_model(&fixture, None);
    words.put(&scope, batch(0, 3, houses(1..=3))).await.unwrap();
    let store = of_model(&fixture, Some("m/one"));
    embed(&store, &scope, &[1.0, 0.0]).await.unwrap();
    let own = indexes(&fixture);
    // It notices that its index is gone, and looks again.
    assert!(words.upto(&scope).await.is_err());
    while words.upto(&scope).await.is_err() {
        tokio::task::yield_now().await;
    }
    assert_eq!(words.identity().await.unwrap(), store.identity().await.unwrap());
    words.put(&scope, batch(3, 4, houses(4..=4))).await.unwrap();
    assert_eq!(found(&words, from_ref(&scope), "house").await, [1, 2, 3, 4]);
    assert_eq!((indexes(&fixture), fill(&store, &scope).await), (own, (3, 4)));
}

#[tokio::test]
async fn processes_with_different_models_do_not_remove_each_others_indexes_for_ever() {
    let fixture = fixture().await;
    let scope = scope("a/all");
    let first = of_model(&fixture, Some("m/one"));
    first.put(&scope, batch(0, 3, houses(1..=3))).await.unwrap();
    embed(&first, &scope, &[1.0, 0.0]).await.unwrap();
    let last = of_model(&fixture, Some("m/two"));
    embed(&last, &scope, &[0.0, 1.0]).await.unwrap();
    let of_last = indexes(&fixture);
    assert_eq!(of_last.len(), 1);
    assert!(first.upto(&scope).await.is_err());
    while first.upto(&scope).await.is_err() {
        tokio::task::yield_now().await;
    }
    assert_eq!(found(&first, from_ref(&scope), "house").await, [1, 2, 3], "by words");
    let refused = embed(&first, &scope, &[1.0, 0.0]).await.unwrap_err();
    assert!(matches!(refused, MemoryStoreError::Unfit { .. }), "{refused:?}");
    assert_eq!((indexes(&fixture), fill(&last, &scope).await), (of_last.clone(), (3, 3)));
    // Once it starts again, it is the last one.
    let first = of_model(&fixture, Some("m/one"));
    embed(&first, &scope, &[1.0, 0.0]).await.unwrap();
    assert_eq!(fill(&first, &scope).await, (3, 3));
    assert_ne!(indexes(&fixture), of_last);
}

#[tokio::test]
async fn processes_that_build_together_end_with_one_index() {
    let fixture = fixture().await;
    let scope = scope("a/all");
    of_model(&fixture, None).put(&scope, batch(0, 3, houses(1..=3))).await.unwrap();
    let (one, other) = (of_model(&fixture, Some("m/one")), of_model(&fixture, Some("m/one")));
    let vector = vec![0.5; DIMENSIONS];
    let both = tokio::join!(embed(&one, &scope, &vector), embed(&other, &scope, &vector));
    assert!(both.0.is_ok() || both.1.is_ok(), "{both:?}");
    for store in [&one, &other] {
        // The slower one may have lost the index that it read from; it looks again.
        while store.scopes().await.is_err() || store.dimensions() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(found(store, from_ref(&scope), "house").await, [1, 2, 3]);
    }
    assert_eq!(indexes(&fixture).len(), 1);
    let changed = vec![Document { importance: 9, ..point(2, "house number2") }];
    one.put(&scope, batch(3, 4, changed)).await.unwrap();
    assert_eq!(fill(&other, &scope).await.1, 3, "both have the same");
}
