//! The parts of a running node that are neither gateway nor actor.
//!
//! | module | what it does |
//! |---|---|
//! | `storage` | opens the storage backend |
//! | `base` | the state that all parts of a node share |
//! | `kinds` | the kinds of entities |
//! | `budget_holder` | what this process may spend, and what the configuration says of it |
//! | `agents_and_models`, `tool_executors`, `plugins`, `hooks`, `mcp_servers` | make parts of the settings |
//! | `agent_tools`, `agent_pause` | which tools an agent gets; how it is paused and resumed, and the events of that |
//! | `current_models`, `probes` | the providers as the configuration has them now; whether they can be reached |
//! | `gateway_options` | sets up the gateway |
//! | `backend`, `answers` | the gateway's requests about sessions; a handler for each method |
//! | `session_answers`, `agent_answers`, `cluster_answers`, … | what handlers answer, by noun |
//! | `accounts` | accounts for people: what is spent, by whom, and changes of limits |
//! | `memories` | performs effects of memories; shows and changes memories for people |
//! | `count_tokens`, `session_deletion`, `executions`, `job_archive`, `policy_check`, `scheduler`, `session_filter` | longer answers |
//! | `version_check`, `process_state`, `process_load` | heartbeats: what this process is, does, and how busy it is |
//! | `partition_follower` | places the worker, and looks after the inputs of processes that died |
//! | `reload` | follows the configuration's files |
//! | `expired_sessions_and_files`, `usage_counting` | remove sessions of single requests and unused files; count model calls |
//! | `drain_orders`, `panic` | drain or cordon a node for an operator (over `node_requests`); stop things on all nodes |
//! | `offline`, `backup_and_restore`, `import`, `copy_entity` | data without a running node |
//! | `failpoint`, `crash_test_tools` | for tests: a kill at a named point; tools whose runs are counted |
//!
//! For operators, put together in `feed_and_tree`: `overview` answers them, `event_feed`
//! remembers events, `node_change_events` reports changes of nodes, `tree` what runs, `out_of_service` which
//! entities are out of service, `health` how executors and providers fare, and `node_and_partition_views` makes documents
//! of heartbeats and ranks.

pub mod accounts;
mod agent_answers;
mod agent_pause;
mod agent_tools;
pub mod agents_and_models;
mod answers;
mod approval_answers;
pub mod backend;
pub mod backup_and_restore;
pub mod base;
pub mod budget_holder;
mod client_tools;
mod cluster_answers;
mod cluster_spend;
mod copy_entity;
mod count_tokens_answer;
#[cfg(feature = "test-util")]
pub mod crash_test_tools;
pub mod current_models;
pub mod drain_orders;
pub mod embedder;
pub mod embeddings;
pub mod event_feed;
mod executions;
pub mod expired_sessions_and_files;
#[cfg(feature = "test-util")]
pub mod failpoint;
pub mod feed_and_tree;
pub mod gateway_options;
pub mod health;
pub mod hooks;
pub mod import;
pub mod job_archive;
pub mod kinds;
pub mod mcp_servers;
pub mod memories;
mod model_answers;
pub mod node_and_partition_views;
pub mod node_change_events;
mod node_requests;
pub mod offline;
pub mod out_of_service;
pub mod overview;
pub mod panic;
pub mod partition_follower;
pub mod plugins;
mod policy_check;
pub mod probes;
pub mod process_load;
pub mod process_state;
pub mod reload;
pub mod remote_files;
pub mod runaways;
mod scheduler;
mod session_answers;
mod session_deletion;
mod session_filter;
pub mod skills;
pub mod storage;
pub mod tool_executors;
pub mod tree;
mod unknown_action;
mod usage_answers;
pub mod usage_counting;
pub mod version_check;
