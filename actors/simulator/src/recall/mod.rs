//! What sessions learn and recall: people say facts of themselves, and turns search in a store that lags, lies and vanishes.
//!
//! The search is the one of production: the scopes of a turn, the store that is served from journals, and what is left of
//! its answer. Only the store behind it is scripted ([`stores`]). What holds is judged from journals and requests alone
//! ([`judge`]): MEM-1 to MEM-4. People also say what they think of turns ([`feedback`], [`feedback_judge`]).

mod documents;
pub(super) mod feedback;
pub(super) mod feedback_judge;
pub(super) mod feeding;
pub(super) mod judge;
mod lesson_judge;
pub(super) mod lessons;
mod search;
mod shown;
pub(super) mod stores;
#[cfg(test)]
mod tests;
pub(super) mod told;
