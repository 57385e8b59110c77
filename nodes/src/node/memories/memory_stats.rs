//! Answers `memory.stats`: what a memory has, how much of it the store has, and how much can be found by its meaning.

use clawnode_gateway::HandlerResult;
use clawnode_memory::{
    serve::{FillError, MeaningState},
    store::{StoreScope, VectorFill},
};
use clawnode_proto::{
    ErrorChain,
    memory::MemoryKey,
    memory_view::{MeaningFill, MemoryStats, StoredMemory},
};
use tracing::warn;

use super::memory_answers::MemoryAnswers;

impl MemoryAnswers {
    /// Answers `memory.stats`.
    pub(in crate::node) async fn stats(&self, key: MemoryKey) -> HandlerResult<MemoryStats> {
        let memory = self.existing(&key).await?;
        let scope = StoreScope::of_memory(&key);
        if !self.served.holds(&scope) {
            // Another node knows how much of it there is.
            return Ok(memory.state.stats(key));
        }
        let stored = self.served.fill_of(&scope).await.inspect_err(|failure| {
            let failure = ErrorChain(failure);
            warn!(%scope, %failure, "the store of memories does not say how far it is");
        });
        let meaning = match self.served.meaning_state() {
            Some(state) => {
                let fill = self.served.vector_fill(&scope).await.map_err(FillError::from)?;
                Some(filled(state, fill))
            }
            None => None,
        };
        let stored = stored.ok().map(|progress| {
            let store = self.served.name().to_owned();
            StoredMemory { store, upto: progress.upto, end: progress.end, meaning }
        });
        Ok(MemoryStats { stored, ..memory.state.stats(key) })
    }
}

/// How much of a memory can be found by its meaning, for people.
fn filled(state: MeaningState, fill: VectorFill) -> MeaningFill {
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    MeaningFill {
        model: state.model,
        dimensions: u32::try_from(state.dimensions).unwrap_or(u32::MAX),
        vectors: count(fill.vectors),
        documents: count(fill.documents),
        failure: state.failure,
        building: state.building,
    }
}
