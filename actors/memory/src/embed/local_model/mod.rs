//! A sentence encoder in the process of the node: BERT, such as `MiniLM`, with the mean of its tokens.
//!
//! `bert_config` reads what shape the model has, `bert` has its numbers and computes, and `model` cuts texts into tokens and
//! shares the processor among calls.

mod bert;
mod bert_config;
mod model;
#[cfg(test)]
mod model_tests;

pub use model::LocalModel;
