//! A turn that has lost its gateway, or that nobody serves: how long it is waited for, and what is
//! said then.

use std::time::Duration;

use clawnode_proto::{api::Method, view::StatusView};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    cli::turn::Turn,
    client::{Client, ClientError},
    failure::Failure,
};

/// How long nothing of a turn is heard before it is asked whether anybody serves it.
const QUIET: Duration = Duration::from_secs(3);

/// What keeps a turn that has lost its gateway going.
pub(super) struct Patience {
    /// When to give up.
    pub until: Instant,
    pub interrupted: bool,
    /// Whether the gateway before this connection was lost.
    pub again: bool,
    /// Whether the person was told that nobody serves the turn.
    pub waits: bool,
}

/// What is said when no gateway was found to go on at: the turn goes on by itself.
pub(super) fn given_up(lost: ClientError, turn: &Turn) -> Failure {
    let passing = lost.is_lost() || lost.is_passing();
    let failure = Failure::from(lost);
    match turn.accepted() {
        Some(accepted) => failure.hint(format!(
            "your message is stored, and its turn goes on without this chat: `clawnode chat --session \
             {}` shows it",
            accepted.session
        )),
        None if passing => failure.hint(
            "it is not known whether your message was stored; `clawnode chat --continue` shows what was",
        ),
        None => failure,
    }
}

/// Whether nobody is there who could serve a turn, once it has been quiet for a while.
pub(super) async fn headless(client: &Client) -> bool {
    sleep(QUIET).await;
    match client.call(Method::Status, json!({})).await.map(serde_json::from_value::<StatusView>) {
        Ok(Ok(status)) => status.warnings.iter().any(|it| it.name == "nodes.no_worker"),
        Ok(Err(_)) | Err(_) => false,
    }
}
