//! `calculate`: arithmetic with exact decimals as long as they last, and bounded in every way.
//!
//! `parse` reads and evaluates in one pass, `number` holds what a number is, `functions` the named
//! ones. Nothing here panics, loops or recurses beyond its bounds; there is no infinity and no NaN.

mod functions;
mod number;
mod parse;

pub(super) use parse::{EXPRESSION_BYTES, calculate};

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CalculateError {
    /// It cannot be read.
    #[error("at character {at}: {what}")]
    Syntax {
        /// From 1.
        at: usize,
        /// What is wrong there.
        what: String,
    },
    /// It is more than is read.
    #[error("the expression is longer than {EXPRESSION_BYTES} bytes")]
    TooLong,
    /// Something divided by nothing.
    #[error("division by zero")]
    DivisionByZero,
    /// Beyond 1.8e308.
    #[error("a number is too large (beyond 1.8e308)")]
    Overflow,
    /// Such as the root of a negative number.
    #[error("the result is not a real number")]
    NotReal,
}
