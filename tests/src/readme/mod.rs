//! The shell blocks of READMEs and of the pages under `docs`, run as they are written.
//!
//! A [`Scene`] is a shell in a fresh copy of the repository's documents, with a home, a network and
//! processes of its own, so that ports and paths can stay as the page has them. It runs some blocks
//! of one page in the order of its steps. A block that cannot run as written says in its [`Step`] what
//! runs instead and why. [`faults()`] finds the blocks that no step names, so a new block cannot be
//! forgotten. `first` has the main README, `guide`, `tools` and `kinds` have `docs/guide`, `cluster` and
//! `operations` have `docs/operations`.
//!
//! The tutorial is for two terminals: [`tasks`] reads what its page has a reader type, and [`tour()`] types it.

mod cluster;
mod examples;
mod first;
mod guide;
mod kinds;
mod operations;
mod page;
mod play;
mod scene;
mod tools;
mod tour;
mod typed;

pub use cluster::{CLUSTER, KEYS, RUNNING, UPGRADE};
pub use examples::{HOOKS, ONE_MACHINE, TWO_MACHINES};
pub use first::{APPROVED, FIRST, HOSTS};
pub use guide::{GUIDES, SHARED};
pub use kinds::{FEATURES, KINDS};
pub use operations::{OBSERVE, OPERATIONS, STOLEN};
pub use page::{Block, blocks, chat_lines};
pub use play::{play, play_with};
pub use scene::{Change, How, Scene, Step, faults};
pub use tools::{APPROVALS, JOBS};
pub use tour::tour;
pub use typed::{Task, counted, tasks};
