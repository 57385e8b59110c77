//! MCP servers: their tools, run by one host for the whole cluster.
//!
//! Each server is kept by one supervised task on each node that has it configured ([`McpServer`]).
//! It runs where [`hosts_it`] says, on one of them at a time; the others stand by. Which node takes
//! the calls is decided by the capability `mcp.NAME` alone, so every session of the cluster shares
//! the one server, over the queue of its jobs. Two at once for a moment are harmless: placement is
//! liveness.
//!
//! Supervised by: the node, as a task that is started again. Messages come from: its tools' runs,
//! the pins, the membership. Phases: waits, starts, is up, is down (with why) and waits to start
//! again, for a bounded time that doubles; it never gives up.
//!
//! - [`options`](McpOptions): what is configured.
//! - `clawnode_tool::orphaned_processes`: the keeper, a process between a node and a server that is a
//!   program. It ends all that the server has started, whatever happens to the node (**MCP-1**: no orphan).
//! - `stdio` starts and stops it; `wire` reads what it writes, bounded; `http` is the same for a
//!   service.
//! - `session`: one connection, from its greeting to its end, and a call on it.
//! - `pins`: the approved descriptions of a server's tools, in the bucket. **MCP-2**: a model sees
//!   the approved description of a tool, and a tool that the server describes otherwise is not run.
//! - `phase`: what a server is doing here; `state`: what it has beside that; `actor`: its loop.
//! - `tool_result`: what a server answers, as an outcome.
//!
//! If an operator stops a call of a program, the node kills the program: a cancellation alone
//! proves nothing (**KILL-2**). The program's other calls are lost with it, and it is started
//! again once work may continue. A service that is reached by a URL only gets the cancellation.
//!
//! On crash: the server dies with its node and is started on another; a call in flight is followed
//! by its effect class. Not here: prompts, resources, sampling, elicitation and roots. A server that
//! asks for something is refused.

mod actor;
mod executor;
mod handle;
mod http;
mod options;
mod phase;
mod pins;
mod placement;
#[cfg(feature = "test-util")]
mod planted;
mod restarts;
mod secrets;
mod session;
mod state;
mod stdio;
mod tool_result;
mod wire;

pub use executor::McpTools;
pub use handle::McpServer;
pub use options::{HttpOptions, McpOptions, McpTransport, PinPolicy, StdioOptions, ToolOverride};
pub use pins::{ApproveError, Pins, approve, follow, load};
pub use placement::hosts_it;
#[cfg(feature = "test-util")]
pub use planted::McpBug;
pub use state::McpContext;
