//! What persons say of themselves in a message: facts and standing instructions, found by patterns. Pure.
//!
//! A wrong fact is worse than a missing one: persons do not see what a memory has, and it stays there. So a sentence counts
//! only if it begins with a pattern, and a message that asks for work on a text counts for nothing.
//!
//! - `own_words` has the sentences that are the person's own: no quotes, no code, no lines that are given to work on.
//! - `patterns` has the beginnings of facts in several languages, and `word_lists` which words end or spoil them.
//! - `facts` matches a sentence with them, `value` reads what follows the pattern, and `standing_instructions` finds instructions.
//! - `quotation` says whether what a model found is what the person stated.
//!
//! Invariants
//! - S-22 what is found has the trust of a person, so nothing that others wrote may be found.
//! - Any text gives at most [`LEARNED_POINTS`](clawnode_proto::limits::LEARNED_POINTS) points, each within the limits of points.
//!
//! Not here: which messages are searched, and where the points go (the session does that at the end of a turn).

mod facts;
mod own_words;
mod patterns;
#[cfg(test)]
mod properties;
mod quotation;
mod standing_instructions;
#[cfg(test)]
mod tests;
mod value;
mod word_lists;

pub use facts::facts;
pub use patterns::SUBJECT;
pub use quotation::is_own_statement;
