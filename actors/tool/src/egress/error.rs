//! Why nothing came back.

use std::{io, time::Duration};

use clawnode_guard::kill_switch::WorkStopped;
use clawnode_proto::tool::ToolFailure;

use super::Special;

/// Why a request was not made, or has no reply.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// It is not a URL that can be asked for.
    #[error("`{url}` cannot be fetched: {why}")]
    Url {
        /// As it was given, in short.
        url: String,
        why: String,
    },
    /// A header that is not a request's to set.
    #[error("the header `{0}` cannot be set")]
    Header(String),
    /// The port is not one that may be reached.
    #[error(
        "port {0} is not allowed; only the usual ports of web servers and configured ports are"
    )]
    Port(u16),
    /// The host is not among those of this agent.
    #[error("`{0}` is not among the hosts that this agent may reach")]
    Host(String),
    /// The host is not among those that the caller was granted.
    #[error("`{0}` is not among the hosts that were granted")]
    Ungranted(String),
    /// At least one of its addresses is not public.
    #[error("`{host}` may not be reached: it leads to a {special} address")]
    Special {
        /// As it was asked for.
        host: String,
        /// The kind of the address.
        #[source]
        special: Special,
    },
    /// Its name leads nowhere.
    #[error("`{host}` cannot be looked up")]
    Lookup {
        host: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// From an encrypted connection to one in clear text.
    #[error("`{0}` redirects from https to http, which is not followed")]
    Downgrade(String),
    /// Too many redirects in a row.
    #[error("more than {0} redirects")]
    Redirects(u8),
    /// It cannot be connected to, or the connection broke.
    #[error("no reply from `{host}`: {why}")]
    Broken {
        host: String,
        /// What the connection says.
        why: String,
    },
    /// Its body is compressed, although that was not asked for.
    #[error("`{host}` replied with a body in `{encoding}`, which is not read")]
    Encoded { host: String, encoding: String },
    /// It took too long.
    #[error("`{host}` did not reply within {} s", .after.as_secs_f64())]
    TimedOut {
        host: String,
        /// How long it was given.
        after: Duration,
    },
    /// An operator lets nothing out, or this node is out of touch with its cluster.
    #[error("nothing is sent: {0}")]
    Stopped(WorkStopped),
    /// The same while it was under way: what was sent cannot be taken back.
    #[error("the request was stopped under way: {0}")]
    Interrupted(WorkStopped),
    /// This node cannot speak TLS.
    #[error("no TLS client: {0}")]
    Tls(String),
}

impl EgressError {
    /// What it means for a tool call.
    pub const fn failure(&self) -> ToolFailure {
        match self {
            Self::Url { .. } | Self::Header(_) => ToolFailure::Invalid,
            Self::Port(_)
            | Self::Host(_)
            | Self::Ungranted(_)
            | Self::Special { .. }
            | Self::Downgrade(_)
            | Self::Stopped(_) => ToolFailure::Refused,
            Self::TimedOut { .. } => ToolFailure::TimedOut,
            Self::Interrupted(_) => ToolFailure::Cancelled,
            Self::Tls(_) => ToolFailure::Unavailable,
            Self::Lookup { .. }
            | Self::Redirects(_)
            | Self::Broken { .. }
            | Self::Encoded { .. } => ToolFailure::Failed,
        }
    }
}
