//! A turn that has lost its gateway, or that no worker serves: how long the chat waits for it, and
//! what it says then.

use std::time::Duration;

use clawnode_proto::api::{Method, Nothing, calls};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::Chat;
use crate::{
    cli::{
        reconnection::{RECONNECT_FOR, found_words},
        turn::ShownTurn,
    },
    client::{ClientError, ClientSocket, NodeClient},
    failure::Failure,
};

/// How long a connection is kept between two turns. Pings are not answered meanwhile, so the gateway
/// would close it soon after.
const IDLE_MOST: Duration = Duration::from_secs(20);
/// How often the node is asked whether it is there, and at first whether anybody serves the turn.
const OFTEN: Duration = Duration::from_secs(3);
/// How long it may take to answer that.
const ANSWER: Duration = Duration::from_secs(5);

/// What keeps a turn that has lost its gateway going.
#[expect(clippy::struct_excessive_bools, reason = "each is something that was done or said once")]
pub(super) struct Patience {
    /// When to give up.
    pub until: Instant,
    pub interrupted: bool,
    /// Whether the gateway before this connection was lost.
    pub again: bool,
    /// Whether the person has read that no worker serves the turn.
    pub waits: bool,
    /// Whether the person has read that the node does not answer.
    pub silent: bool,
}

// === impl Patience ===

impl Patience {
    /// Of a turn that is given up then.
    pub(super) const fn new(until: Instant) -> Self {
        Self { until, interrupted: false, again: false, waits: false, silent: false }
    }
}

/// What is known of who serves a turn.
pub(super) enum Sign {
    /// The node is there, and so may be a worker.
    Served,
    /// The node does not say, or the way to it is cut: the connection tells more.
    Unknown,
    /// No worker is alive.
    Headless,
    /// Nothing comes back: the node is frozen, or what is sent to it is dropped.
    Silent,
}

/// What is said when no gateway was found to go on at: the turn goes on by itself.
pub(super) fn given_up(lost: ClientError, turn: &ShownTurn) -> Failure {
    let passing = lost.is_lost() || lost.is_passing();
    let failure = Failure::from(lost);
    match turn.accepted() {
        Some(accepted) => failure.hint(format!(
            "your message is stored, and its turn continues without this chat: `clawnode chat --session \
             {}` shows it",
            accepted.session
        )),
        None if passing => failure.hint(
            "it is not known whether your message was stored; `clawnode chat --continue` shows \
             what was stored",
        ),
        None => failure,
    }
}

/// Whether the chat gives a turn up: another try would fail too, or it has tried for long enough.
/// It never stops waiting for a stored turn of a person, who leaves when they like.
pub(super) fn is_over(lost: &ClientError, stays: bool, is_late: bool) -> bool {
    !(lost.is_lost() || lost.is_passing()) || (is_late && !stays)
}

impl Chat<'_> {
    /// Says that no worker serves the turn, if so; once.
    pub(super) fn seen(
        &mut self,
        sign: &Sign,
        turn: &ShownTurn,
        patience: &mut Patience,
    ) -> Result<(), Failure> {
        match sign {
            Sign::Served => self.found(patience),
            Sign::Unknown => Ok(()),
            Sign::Headless => {
                self.found(patience)?;
                if turn.accepted().is_none() || std::mem::replace(&mut patience.waits, true) {
                    return Ok(());
                }
                self.aside("no worker is alive; your message is stored and waits")
            }
            Sign::Silent => {
                if std::mem::replace(&mut patience.silent, true) {
                    return Ok(());
                }
                self.aside("the node does not answer; this chat waits for it")?;
                let Some(accepted) = turn.accepted() else {
                    self.aside("it is not known whether your message was stored; check later:")?;
                    return self.aside("  clawnode chat --continue");
                };
                self.aside("your message is stored and its turn continues there; check later:")?;
                self.aside(&format!("  clawnode chat --session {}", accepted.session))
            }
        }
    }

    /// The node is there: what was said of it to the contrary is over.
    pub(super) fn found(&mut self, patience: &mut Patience) -> Result<(), Failure> {
        patience.until = Instant::now() + RECONNECT_FOR;
        let was_silent = std::mem::take(&mut patience.silent);
        if std::mem::take(&mut patience.again) {
            self.gateways.found();
            self.aside(&found_words(self.gateways.current().url()))?;
            if let Some(desk) = &mut self.desk {
                desk.doing("thinking");
            }
        } else if was_silent {
            self.aside("the node answers again")?;
        }
        Ok(())
    }
}

/// Who serves a turn, after a while; with `workers` the node is asked for them as well.
pub(super) async fn sign(client: NodeClient, workers: bool) -> Sign {
    sleep(OFTEN).await;
    if !workers {
        return match timeout(ANSWER, client.ping()).await {
            Ok(Ok(())) => Sign::Served,
            Ok(Err(_)) => Sign::Unknown,
            Err(_) => Sign::Silent,
        };
    }
    match timeout(ANSWER, client.call(calls::Status, &Nothing {})).await {
        Ok(Ok(status))
            if status.warnings.iter().any(|warning| warning.name == "nodes.no_worker") =>
        {
            Sign::Headless
        }
        Ok(Ok(_)) => Sign::Served,
        Ok(Err(_)) => Sign::Unknown,
        Err(_) => Sign::Silent,
    }
}

/// Sends a request, on the connection of the turn before if that is fresh.
pub(super) async fn ask(
    before: Option<(ClientSocket, Instant)>,
    client: NodeClient,
    method: Method,
    params: Value,
) -> Result<(ClientSocket, u64), ClientError> {
    let mut socket = match before {
        Some((socket, used)) if used.elapsed() < IDLE_MOST => socket,
        _ => ClientSocket::open(&client).await?,
    };
    let request = socket.send(method, params).await?;
    Ok((socket, request))
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{ErrorBody, ErrorCode};

    use super::*;

    #[test]
    fn a_stored_turn_is_waited_for_as_long_as_a_person_likes() {
        let (url, detail) = ("http://127.0.0.1:1".to_owned(), "frozen".to_owned());
        let lost = ClientError::Unreachable { url, detail };
        assert!(!is_over(&lost, false, false), "a restart takes a while");
        assert!(is_over(&lost, false, true));
        assert!(!is_over(&lost, true, true));
        let gone = ClientError::Answered(ErrorBody::new(ErrorCode::NotFound, "no such turn"));
        assert!(is_over(&gone, true, false));
    }
}
