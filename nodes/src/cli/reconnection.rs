//! How a command that goes on for long keeps its connection: to any gateway that answers.

use std::time::Duration;

use clawnode_cluster::Backoff;
use clawnode_proto::{
    ErrorBody, ErrorCode,
    api::{Call, calls},
    view::HistoryView,
};
use tokio::time::{Instant, sleep};

use super::{command_context::CliContext, history, output::Output};
use crate::{
    client::{ClientError, Gateways, NodeClient},
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

/// What a command says when its gateway does not go on with it.
pub(super) fn lost_words(url: &str, error: &ClientError) -> String {
    match error {
        ClientError::Unreachable { url, detail } => {
            format!("lost the node at {url} ({detail}); trying again")
        }
        // It was reached, and said so itself.
        error => format!("{url} cannot continue now ({error}); trying again"),
    }
}

/// What a command says when it is connected again, to another gateway or the same one.
pub(super) fn found_words(url: &str) -> String {
    format!("connected to {url}")
}

/// How a turn is lost whose owner the gateway cannot hear any more.
pub(super) fn lost_sight() -> ClientError {
    let what = "the gateway lost contact with the node that runs the turn";
    ClientError::Answered(ErrorBody::new(ErrorCode::Unavailable, what))
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
    pub(super) fn new(context: &CliContext) -> Result<Self, Failure> {
        Ok(Self::at(context.out, context.gateways()?))
    }

    /// To these gateways.
    pub(super) fn at(out: Output, mut gateways: Gateways) -> Self {
        gateways.found();
        Self { out, gateways, backoff: backoff(), give_up: Instant::now() + RECONNECT_FOR }
    }

    /// Something was heard.
    pub(super) fn found(&mut self) {
        self.give_up = Instant::now() + RECONNECT_FOR;
        if self.backoff.tries() > 0 {
            self.backoff = backoff();
            self.gateways.found();
            self.out.aside(&found_words(self.gateways.current().url()));
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
            self.out.aside(&lost_words(self.gateways.current().url(), &error));
        }
        self.gateways.lost();
        sleep(self.backoff.next(&mut rand::rng())).await;
        Ok(())
    }

    /// The answer of whichever gateway gives one; `params` may differ from one to the next.
    pub(super) async fn call<C: Call + Copy>(
        &mut self,
        call: C,
        params: impl Fn(&NodeClient) -> C::Params + Send,
    ) -> Result<C::Answer, Failure> {
        loop {
            let client = self.gateways.current().clone();
            match client.call(call, &params(&client)).await {
                Ok(answer) => {
                    self.found();
                    return Ok(answer);
                }
                Err(error) => self.lost(error).await?,
            }
        }
    }

    /// What was said in a session.
    pub(super) async fn history(&mut self, session: &str) -> Result<HistoryView, Failure> {
        history::read_all(session, async |page| {
            self.call(calls::SessionsHistory, |_| page.clone()).await
        })
        .await
    }
}
