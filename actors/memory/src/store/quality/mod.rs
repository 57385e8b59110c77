//! How well a store finds what was said: a set of questions, and the figures of a search. For tests and benches.

pub mod measure;
pub mod synthetic;

pub use measure::{
    QuestionSet, QuestionSort, RecallFigures, SetConversation, SetFigures, SetQuestion,
};
