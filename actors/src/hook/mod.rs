//! Hooks: programs of the operator, asked before a model call, before a tool call and after it.
//!
//! A hook is an executable file. It reads one JSON document (what is asked about) and writes one
//! (allow, block or modify). What it decided takes effect by the session's journal alone (HOOK-1,
//! HOOK-2: see the session's own hooks); here is how it is found and asked.
//!
//! - `folder`: the folder, its files and their marks. A file that others can write, or that is not
//!   executable, is refused by name.
//! - `registry`: what was found, for whom.
//! - `run`: one question to one program: its own process group behind a keeper, a cleared
//!   environment, bounded streams, a deadline.
//! - `answer`: what a program may write.
//! - `chain`: several hooks of one point: in the order of their names; neighbours that only judge
//!   are asked together.
//!
//! Fates: a hook may give no answer: it hangs, dies, is missing, or writes nonsense or too much.
//! Then it blocks if it is marked `required`, and is skipped with a warning if it is not. The
//! warning names it, never what it was shown or what it wrote.
//!
//! Supervised by: the effect of the session that asks. On crash: its keeper ends the program, and
//! the session's next owner asks again, with the same idempotency key: at least once.

mod answer;
mod chain;
mod folder;
mod registry;
mod run;
#[cfg(test)]
mod tests;

pub use answer::{MessageChange, ModelChange};
pub use chain::{About, Subject, judge, unanswered};
pub use folder::{HookFile, HookRefusal, find, is_safe};
pub use registry::{HookKeeper, Hooks, Program};
