//! How soon a server that does not work is started again, and what the log says of it: each reason once.

use std::{collections::BTreeSet, time::Duration};

use clawnode_cluster::Backoff;
use tracing::{debug, warn};

use super::options::McpOptions;

/// How long a server must have been up for its past ends to be forgotten.
const FORGIVEN: Duration = Duration::from_mins(1);
/// Reasons that are remembered; those after them are not logged before the server was up for long.
const REASONS: usize = 32;

/// The restarts of one server.
pub(super) struct Restarts<'a> {
    options: &'a McpOptions,
    backoff: Backoff,
    logged: BTreeSet<String>,
}

// === impl Restarts ===

impl<'a> Restarts<'a> {
    pub(super) fn new(options: &'a McpOptions) -> Self {
        let backoff = Backoff::new(options.restart_first, options.restart_most);
        Self { options, backoff, logged: BTreeSet::new() }
    }

    /// It ended for this reason, so long after its start: how long to wait before the next one.
    pub(super) fn wait(&mut self, why: &str, lived: Duration) -> Duration {
        if lived > FORGIVEN {
            *self = Self::new(self.options);
        }
        let (server, wait) = (&self.options.name, self.backoff.next(&mut rand::rng()));
        let tries = self.backoff.tries();
        if self.logged.len() < REASONS && self.logged.insert(why.to_owned()) {
            warn!(%server, why, ?wait, "an MCP server is down; it is started again");
        } else {
            debug!(%server, why, tries, ?wait, "an MCP server is still down");
        }
        wait
    }
}
