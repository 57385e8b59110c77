//! The model of a served store, and which scopes lack vectors.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    embed::{QueryVectors, TextEmbedder},
    store::{RecallQuery, StoreScope, VectorStore},
};

/// Scopes that are remembered as those with new documents. With more, all are looked at.
const SCOPES_MOST: usize = 1_024;

/// What finds documents of a store by their meaning.
#[derive(Debug)]
pub(super) struct StoreMeaning {
    pub(super) embedder: Arc<dyn TextEmbedder>,
    /// Has the documents and their vectors.
    pub(super) store: Arc<dyn VectorStore>,
    pub(super) queries: QueryVectors,
    /// Scopes with documents that may have no vector.
    new: Mutex<BTreeSet<StoreScope>>,
    /// Whether all scopes are to be looked at.
    pub(super) is_all_new: AtomicBool,
    /// Whether all documents had a vector at some time since the process began, and no try failed since.
    pub(super) is_whole: AtomicBool,
    pub(super) failure: Mutex<Option<String>>,
}

/// A search with its vector, as far as there is one.
pub(super) struct MeantQuery {
    pub(super) query: RecallQuery,
    /// Whether documents may be missed that fit by their meaning.
    pub(super) is_degraded: bool,
}

// === impl StoreMeaning ===

impl StoreMeaning {
    pub(super) fn new(embedder: Arc<dyn TextEmbedder>, store: Arc<dyn VectorStore>) -> Self {
        Self {
            embedder,
            store,
            queries: QueryVectors::new(),
            new: Mutex::default(),
            is_all_new: AtomicBool::new(true),
            is_whole: AtomicBool::new(false),
            failure: Mutex::default(),
        }
    }

    pub(super) fn add(&self, scope: &StoreScope) {
        let mut new = self.new.lock().unwrap_or_else(PoisonError::into_inner);
        new.insert(scope.clone());
        if new.len() > SCOPES_MOST {
            new.clear();
            self.is_all_new.store(true, Ordering::SeqCst);
        }
    }

    pub(super) fn take_new(&self) -> BTreeSet<StoreScope> {
        std::mem::take(&mut self.new.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn set_failure(&self, failure: Option<String>) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }
}
