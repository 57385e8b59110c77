//! The parts of a running node that are neither gateway nor actor.
//!
//! | module | what it does |
//! |---|---|
//! | `storage` | opens the storage backend |
//! | `base` | what all parts of a node share |
//! | `kinds` | the kinds of entities |
//! | `models`, `tools`, `plugins`, `hooks`, `mcp` | make parts of the settings |
//! | `current_models` | the providers as the configuration has them now |
//! | `serving` | sets up the gateway |
//! | `backend`, `answers` | what the gateway asks of sessions; a handler for each method |
//! | `delete`, `execute`, `archive`, `policy`, `scheduler`, `wanted` | longer answers |
//! | `version_check`, `status`, `load` | heartbeats: what this process is, does, and how busy it is |
//! | `scan` | places the worker, and looks after the inputs of processes that died |
//! | `reload` | follows the configuration's files |
//! | `sweep`, `usage` | delete sessions of single requests; count model calls |
//! | `orders`, `panic` | carry an operator's word to one node; stop things on all of them |
//! | `offline`, `backup`, `import`, `transfer` | data without a running node |
//! | `failpoint`, `effects` | for tests: a kill at a named point; tools whose runs are counted |
//!
//! For those who operate the cluster, put together in `operate`: `overview` answers them, `events`
//! remembers what happened, `observe` tells what happens to nodes, `tree` what runs, `out_of_service` which
//! entities are out of service, `health` how executors and providers fare, and `views` makes documents
//! of heartbeats and ranks.

mod actions;
mod answers;
pub mod archive;
pub mod backend;
pub mod backup;
pub mod base;
mod client_tools;
pub mod current_models;
mod delete;
#[cfg(feature = "test-util")]
pub mod effects;
pub mod embeddings;
pub mod events;
mod execute;
#[cfg(feature = "test-util")]
pub mod failpoint;
pub mod health;
pub mod hooks;
pub mod import;
pub mod kinds;
pub mod load;
pub mod mcp;
mod model_answers;
pub mod models;
pub mod observe;
pub mod offline;
pub mod operate;
pub mod orders;
pub mod out_of_service;
pub mod overview;
pub mod panic;
pub mod plugins;
mod policy;
pub mod reload;
pub mod scan;
mod scheduler;
pub mod serving;
pub mod status;
pub mod storage;
pub mod sweep;
pub mod tools;
mod transfer;
pub mod tree;
pub mod usage;
pub mod version_check;
pub mod views;
mod wanted;
