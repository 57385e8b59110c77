//! Why a plugin does not load, and how a call of it ends.

use std::time::Duration;

use crate::limits::{COMPONENT_BYTES, HOST_CALLS, TOOLS};

/// Characters of the engine's message.
const SAID_CHARS: usize = 500;

/// Why a plugin cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It is not a plugin at all, by its size.
    #[error("it has {0} bytes, at most {COMPONENT_BYTES}")]
    TooLarge(usize),
    /// It cannot be compiled.
    #[error("it is not a WebAssembly component: {0}")]
    Invalid(String),
    /// It wants what no plugin has.
    #[error(
        "it imports `{0}`, which no plugin has: build it for the world `clawnode:plugin/tool`, \
         without WASI"
    )]
    Import(String),
    /// It wants what it was not given.
    #[error("it imports `{import}`, for which it needs a capability `{needs}` in its manifest")]
    Ungranted {
        import: String,
        /// What would give it.
        needs: &'static str,
    },
    /// It does not do what a plugin does, or does it with other types.
    #[error("it does not fit the world `clawnode:plugin/tool`: {0}")]
    World(String),
    /// It was started, and broke.
    #[error("it was asked for its tools, and that failed")]
    Trial(#[source] CallError),
    /// It says that it has none, or too many.
    #[error("it has {0} tools, and a plugin has 1 to {TOOLS}")]
    Tools(usize),
    /// Nothing about the plugin: the engine cannot be had.
    #[error("the WebAssembly engine does not start: {0}")]
    Engine(String),
}

/// How a call ended that has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The plugin says so.
    #[error("{0}")]
    Tool(String),
    /// It was not done by its deadline.
    #[error("it ran longer than {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// Its host ended it.
    #[error("it was stopped")]
    Cancelled,
    /// It broke, or what it asked for is beyond its bounds.
    #[error("it trapped: {0}")]
    Trapped(String),
    /// All room for instances is taken.
    #[error("too many plugins run at once")]
    Busy,
}

/// Why the host ends a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HostStop {
    #[error("its time is over")]
    TimedOut,
    #[error("it was stopped")]
    Cancelled,
    #[error("more than {HOST_CALLS} calls to its host")]
    HostCalls,
}

/// What the engine says of an error, in short.
pub(crate) fn said(error: &wasmtime::Error) -> String {
    let text = format!("{error:#}");
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SAID_CHARS).collect()
}
