//! The shell blocks of the READMEs, run as they are written.
//!
//! A [`Scene`] is a shell in a fresh copy of the repository's documents, with a home, a network and
//! processes of its own, so that ports and paths can stay as the README has them. It runs some blocks
//! of one README in their order. A block that cannot run as written says in its [`Step`] what runs
//! instead and why. [`faults()`] finds the blocks that no step names, so a new block cannot be forgotten.
//!
//! The tutorial is for two terminals: [`tasks`] reads what its page has a reader type, and [`tour()`] types it.

mod cluster;
mod examples;
mod first;
mod page;
mod play;
mod scene;
mod tools;
mod tour;
mod typed;

pub use cluster::{CLUSTER, KEYS, RUNNING, UNPLAYED};
pub use examples::{HOOKS, ONE_MACHINE, TWO_MACHINES};
pub use first::{FIRST, INSIDE, MODELS};
pub use page::{Block, blocks, chat_lines};
pub use play::{play, play_with};
pub use scene::{Change, How, Scene, Step, faults};
pub use tools::TOOLS;
pub use tour::tour;
pub use typed::{Task, counted, tasks};
