//! How a command that goes on for long keeps its connection: to any gateway that answers.

use std::time::Duration;

use clawnode_cluster::Backoff;
use clawnode_proto::{api::Method, view::HistoryView};
use tokio::time::{Instant, sleep};

use super::{
    context::{Context, read},
    output::Output,
    sessions::params,
};
use crate::{
    client::{ClientError, Gateways},
    failure::Failure,
};

/// How long a lost gateway is looked for before a command gives up: longer than a restart takes.
pub(super) const RECONNECT_FOR: Duration = Duration::from_mins(1);
/// The wait between two tries: nothing up to this at first, doubling...
const RECONNECT_FIRST: Duration = Duration::from_millis(200);
/// ...up to this.
const RECONNECT_MOST: Duration = Duration::from_secs(3);

/// The waits between two tries.
pub(super) const fn backoff() -> Backoff {
    Backoff::new(RECONNECT_FIRST, RECONNECT_MOST)
}

/// A connection that is made again when it is lost.
pub(super) struct Link {
    pub(super) out: Output,
    pub(super) gateways: Gateways,
    backoff: Backoff,
    give_up: Instant,
}

impl Link {
    /// To the gateways that `context` means.
    pub(super) fn new(context: &Context) -> Result<Self, Failure> {
        let mut gateways = context.gateways()?;
        gateways.found();
        let give_up = Instant::now() + RECONNECT_FOR;
        Ok(Self { out: context.out, gateways, backoff: backoff(), give_up })
    }

    /// Something was heard.
    pub(super) fn found(&mut self) {
        self.give_up = Instant::now() + RECONNECT_FOR;
        if self.backoff.tries() > 0 {
            self.backoff = backoff();
            self.gateways.found();
        }
    }

    /// Waits, and turns to another gateway; an error if this has gone on for too long.
    pub(super) async fn lost(&mut self, error: ClientError) -> Result<(), Failure> {
        if self.backoff.tries() > 0 && error.is_refused() && self.gateways.forget() {
            return Ok(());
        }
        if !(error.is_lost() || error.is_passing()) || Instant::now() >= self.give_up {
            return Err(error.into());
        }
        if self.backoff.tries() == 0 {
            self.out.talk(&format!("lost the node ({error}); trying again"));
        }
        self.gateways.lost();
        sleep(self.backoff.next(&mut rand::rng())).await;
        Ok(())
    }

    /// What was said in a session.
    pub(super) async fn history(&mut self, session: &str) -> Result<HistoryView, Failure> {
        loop {
            let asked = self.gateways.current().call(Method::SessionsHistory, params(session));
            match asked.await {
                Ok(history) => {
                    self.found();
                    return read(Method::SessionsHistory, history);
                }
                Err(error) => self.lost(error).await?,
            }
        }
    }
}
