//! The words: every type that crosses a process or a restart.
//!
//! Synchronous, without I/O, clock or runtime. Four kinds of thing live here: ids
//! ([`id`]), what is written down ([`event`], [`kernel`], [`session`]), what travels
//! ([`envelope`], [`frame`], [`job`], [`node`], [`subject`]), what may be done
//! ([`policy`]) and what is promised ([`limits`], [`error`], [`api`]). [`turn`] is what clients see of
//! a turn, [`route`] what a gateway and its node share.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![warn(clippy::wildcard_enum_match_arm)]

pub mod after_deletion;
pub mod agent_profile;
pub mod agent_work;
pub mod agents;
pub mod api;
pub mod archive;
pub mod block;
pub mod budget;
pub mod circuit;
pub mod client_tool;
pub mod codec;
pub mod compaction;
pub mod context;
pub mod context_view;
pub mod cursor;
pub mod embed;
pub mod envelope;
pub mod error;
pub mod event;
pub mod execute;
pub mod feed;
pub mod feedback;
pub mod feedback_view;
pub mod frame;
pub mod hook;
pub mod id;
pub mod job;
mod job_params;
mod journal_view;
pub mod json;
pub mod kernel;
pub mod kill_switch;
mod kind;
pub mod lane;
pub mod ledger;
pub mod limits;
pub mod llm;
pub mod mcp;
pub mod media;
pub mod memory;
pub mod memory_point;
pub mod memory_view;
pub mod methods;
pub mod model;
mod model_call;
mod model_ref;
pub mod model_route;
pub mod money;
mod name;
pub mod node;
pub mod offline;
mod outcome;
pub mod overview;
pub mod plugin;
pub mod policy;
pub mod provider;
mod quarantine_view;
pub mod reasoning;
pub mod recall;
pub mod reflection;
pub mod response;
mod role;
pub mod route;
#[cfg(feature = "schema")]
mod schema;
pub mod session;
pub mod skill;
pub mod ssh;
pub mod stateless;
pub mod subject;
mod text;
pub mod timeout;
mod timestamp;
pub mod tool;
pub mod tool_choice;
pub mod tree;
pub mod turn;
pub mod units;
pub mod usage;
mod user_message;
pub mod view;
pub mod visible;

pub use codec::CodecError;
pub use cursor::{Cursor, CursorError};
pub use envelope::{Input, Order, Traceparent};
pub use error::{ErrorBody, ErrorChain, ErrorCode};
pub use event::{Grammar, Head, Sealed, Tail};
pub use frame::{Frame, FrameBody, FrameKey};
pub use id::{
    AgentName, Attempt, CallId, Capability, Digest, EntityId, Epoch, EventId, ExecutionId, FileId,
    HookName, IdempotencyKey, Incarnation, InputId, JobId, Kind, McpServerName, MemoryPointId,
    NodeName, Partition, Position, ProcessId, Seq, SessionKey, SshHostName, SwitchId, TimerId,
    ToolName, TurnId,
};
pub use timestamp::Timestamp;
