//! How far a scope is filled.
//!
//! One point says so for each scope. It is changed by compare-and-set alone, by its token, so processes can fill one scope
//! together: the second of two changes that begin from the same state changes nothing, and begins again. Documents are
//! written before the state says that they are there. Dropping a scope begins a new **generation**; a document that a slow
//! process writes into an older one is found by nothing, and its writer removes it when it notices.

use std::collections::BTreeSet;

use clawnode_memory::store::{DocumentId, MemoryStoreError, StoreScope};
use qdrant_client::qdrant::{Condition, Filter, PointId, Value};

use crate::{
    layout::{self, Payload, PointNumber, key, what},
    server::{ServerPoints, WantedParts},
};

/// The token of a scope that has no state yet; no state ever has it.
const NO_TOKEN: &str = "none";
/// The generation of a scope that was never dropped.
const FIRST: &str = "first";
/// Generations that are remembered to remove what they left.
const STALE_MOST: usize = 8;
/// Masked documents of a scope that are read: as many as a scope may have of all, and those of a race.
const MASKED_MOST: usize = 2 * clawnode_memory::store::document::SCOPE_DOCUMENTS;

/// How far a scope is filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScopeState {
    /// Points of other generations are not there.
    pub(crate) generation: String,
    /// The event up to which it is filled.
    pub(crate) upto: u64,
    /// Another text after each change.
    pub(crate) token: String,
    /// The last generations before, the newest last.
    pub(crate) stale: Vec<String>,
}

// === impl ScopeState ===

impl Default for ScopeState {
    fn default() -> Self {
        let (generation, token) = (FIRST.to_owned(), NO_TOKEN.to_owned());
        Self { generation, upto: 0, token, stale: Vec::new() }
    }
}

impl ScopeState {
    /// The state after a change that leaves the generation as it is.
    pub(crate) fn filled(&self, upto: u64) -> Self {
        Self { upto: self.upto.max(upto), token: random(), ..self.clone() }
    }

    /// The state after a drop.
    pub(crate) fn dropped(&self) -> Self {
        let mut stale = self.stale.clone();
        stale.push(self.generation.clone());
        stale.drain(..stale.len().saturating_sub(STALE_MOST));
        Self { generation: random(), upto: 0, token: random(), stale }
    }

    fn read(payload: &Payload) -> Option<Self> {
        let stale = layout::text(payload, key::STALE)?;
        Some(Self {
            generation: layout::text(payload, key::GENERATION)?.to_owned(),
            upto: layout::number(payload, key::UPTO)?,
            token: layout::text(payload, key::TOKEN)?.to_owned(),
            stale: stale.split_whitespace().map(str::to_owned).collect(),
        })
    }

    /// What its point has. Where nothing is filled, it does not name the scope: that may be all that is left of one that
    /// was deleted.
    fn payload(&self, scope: &StoreScope) -> Payload {
        let mut payload = layout::texts(&[
            (key::WHAT, what::SCOPE),
            (key::GENERATION, &self.generation),
            (key::TOKEN, &self.token),
            (key::STALE, &self.stale.join(" ")),
        ]);
        let upto = i64::try_from(self.upto).unwrap_or(i64::MAX);
        payload.insert(key::UPTO.to_owned(), Value::from(upto));
        if self.upto > 0 {
            payload.extend(layout::of_generation(scope, &self.generation));
        }
        payload
    }
}

// === impl ServerPoints ===

impl ServerPoints {
    /// The states of these scopes, in their order.
    pub(crate) async fn states(
        &self,
        scopes: &[&StoreScope],
    ) -> Result<Vec<ScopeState>, MemoryStoreError> {
        let numbers: Vec<PointNumber> =
            scopes.iter().map(|scope| PointNumber::of_scope(scope)).collect();
        let ids: Vec<PointId> = numbers.iter().map(|number| number.id()).collect();
        let found = self.get(&self.state, &ids, WantedParts::Payload).await?;
        let state = |number: &PointNumber| {
            let mut own = found.iter().filter(|point| PointNumber::read(point) == Some(*number));
            own.find_map(|point| ScopeState::read(&point.payload)).unwrap_or_default()
        };
        Ok(numbers.iter().map(state).collect())
    }

    pub(crate) async fn state_of(
        &self,
        scope: &StoreScope,
    ) -> Result<ScopeState, MemoryStoreError> {
        Ok(self.states(&[scope]).await?.pop().unwrap_or_default())
    }

    /// Puts `new` in the place of `old`, if that is still the state. Gives the state that is there then: `new`, or what
    /// another process made of it.
    pub(crate) async fn change(
        &self,
        scope: &StoreScope,
        old: &ScopeState,
        new: &ScopeState,
    ) -> Result<ScopeState, MemoryStoreError> {
        let point = layout::point(PointNumber::of_scope(scope), new.payload(scope), None);
        let only = Filter::must([Condition::matches(key::TOKEN, old.token.clone())]);
        self.put(&self.state, vec![point], Some(only)).await?;
        self.state_of(scope).await
    }

    /// Removes all points of these generations of a scope. None of them is the scope's own, and none comes back.
    pub(crate) async fn sweep(
        &self,
        scope: &StoreScope,
        generations: &[String],
    ) -> Result<(), MemoryStoreError> {
        if generations.is_empty() {
            return Ok(());
        }
        let filter = layout::in_generations(scope, generations);
        self.remove(&self.documents, filter.clone()).await?;
        let masks = Filter { must: [filter.must, vec![is_mask()]].concat(), ..Filter::default() };
        self.remove(&self.state, masks).await
    }

    // === What is masked ===

    /// Remembers that these documents may not come back.
    pub(crate) async fn mask(
        &self,
        scope: &StoreScope,
        generation: &str,
        ids: &BTreeSet<DocumentId>,
    ) -> Result<(), MemoryStoreError> {
        let point = |id: &DocumentId| {
            let json = serde_json::to_string(id).ok()?;
            let mut payload = layout::of_generation(scope, generation);
            payload.extend(layout::texts(&[(key::WHAT, what::MASK), (key::MASKED, &json)]));
            Some(layout::point(PointNumber::of_mask(scope, generation, *id), payload, None))
        };
        self.put(&self.state, ids.iter().filter_map(point).collect(), None).await
    }

    /// Which of these documents are masked.
    pub(crate) async fn masked_of(
        &self,
        scope: &StoreScope,
        generation: &str,
        ids: impl Iterator<Item = DocumentId>,
    ) -> Result<BTreeSet<DocumentId>, MemoryStoreError> {
        let ids = ids.map(|id| PointNumber::of_mask(scope, generation, id).id());
        let ids: Vec<PointId> = ids.collect();
        let found = self.get(&self.state, &ids, WantedParts::Only(key::MASKED)).await?;
        Ok(found.iter().filter_map(|point| masked(&point.payload)).collect())
    }

    /// All that is masked in a scope.
    pub(crate) async fn masked(
        &self,
        scope: &StoreScope,
        generation: &str,
    ) -> Result<BTreeSet<DocumentId>, MemoryStoreError> {
        let wanted = WantedParts::Only(key::MASKED);
        let filter = masks(scope, generation);
        let found = self.list(&self.state, filter, wanted, MASKED_MOST).await?;
        Ok(found.iter().filter_map(|point| masked(&point.payload)).collect())
    }

    /// How many documents are masked in a scope.
    pub(crate) async fn count_masked(
        &self,
        scope: &StoreScope,
        generation: &str,
    ) -> Result<usize, MemoryStoreError> {
        self.count(&self.state, masks(scope, generation)).await
    }
}

fn is_mask() -> Condition {
    Condition::matches(key::WHAT, what::MASK.to_owned())
}

fn masks(scope: &StoreScope, generation: &str) -> Filter {
    let own = layout::in_generations(scope, &[generation.to_owned()]);
    Filter { must: [own.must, vec![is_mask()]].concat(), ..Filter::default() }
}

fn masked(payload: &Payload) -> Option<DocumentId> {
    serde_json::from_str(layout::text(payload, key::MASKED)?).ok()
}

pub(crate) fn random() -> String {
    format!("{:032x}", rand::random::<u128>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let scope = StoreScope::of_memory(&"a/all".parse().unwrap());
        let mut state = ScopeState::default().filled(7);
        assert_eq!(ScopeState::read(&state.payload(&scope)), Some(state.clone()));
        for _ in 0..20 {
            state = state.dropped();
        }
        assert_eq!((state.upto, state.stale.len()), (0, STALE_MOST));
        let payload = state.payload(&scope);
        assert_eq!(ScopeState::read(&payload), Some(state), "with the newest generations");
        assert!(!payload.contains_key(key::SCOPE), "what is deleted is not named");
    }

    #[test]
    fn a_state_never_goes_back() {
        let state = ScopeState::default().filled(7);
        let later = state.filled(3);
        assert_eq!((later.upto, &later.generation), (7, &state.generation));
        assert_ne!(later.token, state.token);
    }
}
