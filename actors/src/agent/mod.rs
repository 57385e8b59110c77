//! Agents: each owns its configuration, admits its sessions' turns up to a bound, and can be
//! paused.
//!
//! Supervised by: the node's supervisor. Messages come from: sessions (admission), the
//! configuration (reload), the bucket (pause), the kill switch. Phases: running, paused, stopped by an
//! operator. The pause is cluster-wide (a value in the bucket), the bound is per node. A pause lets
//! running turns end; a kill switch ends them. On crash: permits in use are forgotten by the
//! new actor, so for the length of the running calls the bound may be exceeded; sessions that wait
//! ask again at their next tick; nothing durable is lost. Not here: what the agent says to a model (see [`crate::session::turn::context::model_input`]).
//!
//! Which call is next is decided by [`pool`], for the places of an agent as for the slots of a provider
//! ([`provider_slots`]): lanes, fair shares, and calls of the background that are ended for others (`preemption`). A place
//! that is free, and for which no call waits, is taken under a lock, without a message.
//!
//! Invariants: AGT-1 at most `max_turns` permits are out. AGT-2 a paused agent gives none. LANE-1 and
//! FAIR-1 see [`pool`].

mod actor;
mod fair_queue;
mod handle;
mod memory_options;
mod options;
pub mod pool;
#[cfg(test)]
mod pool_tests;
pub(crate) mod preemption;
pub mod provider_slots;
mod registry;
mod state;
mod terms;

pub use fair_queue::WEIGHT_MAX;
pub use handle::{AdmitPort, AgentHandle, Grant, KnownPrompt, Permit};
pub use memory_options::{AgentMemory, FactExtraction, ReflectionMode};
pub use options::AgentOptions;
pub use registry::{Agents, UnknownAgent};
pub use terms::{CallBill, CallTerms};
