//! Telling the servers of the account: they take a newer one at once, close the connections of users
//! that it revokes, and give it to each other.

use std::{collections::BTreeSet, time::Duration};

use futures_util::{StreamExt, future::BoxFuture};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::{Authority, AuthorityError};
use crate::{
    connect::client, connect_error::ConnectError, options::NatsOptions, signals::ConnectionSignals,
};

/// Where servers take accounts.
pub(super) const CLAIMS_UPDATE: &str = "$SYS.REQ.CLAIMS.UPDATE";
/// How long servers may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(15);
/// How long the credential lives that sends them to the servers, in seconds.
const SPEAKER_TTL: u64 = 300;

/// The result of a push.
#[derive(Clone, Debug, Default)]
pub struct Pushed {
    /// The servers that took it, by name.
    pub servers: BTreeSet<String>,
}

/// Why the accounts did not reach the servers.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The keys cannot sign the account.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// They are out of reach.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// One of them refused it.
    #[error("server `{server}` refused the account: {detail}")]
    Refused {
        server: String,
        /// Its error.
        detail: String,
    },
    /// No server answered.
    #[error("no server answered within {ANSWERS_WITHIN:?}")]
    Silent,
}

#[derive(Deserialize)]
struct ControlAnswer {
    #[serde(default)]
    server: Server,
    #[serde(default)]
    error: Option<ControlFailure>,
}

#[derive(Default, Deserialize)]
struct Server {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct ControlFailure {
    #[serde(default)]
    description: String,
}

/// Pushes the account, as the keys have it now, to the servers of `options`; waits until `servers`
/// of them have answered, or says after a while which did.
pub fn push<'a>(
    authority: &'a Authority,
    options: &'a NatsOptions,
    servers: usize,
    now: u64,
) -> BoxFuture<'a, Result<Pushed, PushError>> {
    Box::pin(async move {
        let account = authority.account_jwt(now)?;
        let options = NatsOptions {
            credential: Some(authority.speaker(now, SPEAKER_TTL)?),
            credentials: None,
            ..options.clone()
        };
        let client = client(&options, ConnectionSignals::new(None)).await?;
        let lost =
            |error: String| ConnectError::Failed { urls: options.shown_urls(), detail: error };
        let inbox = client.new_inbox();
        let mut answers =
            client.subscribe(inbox.clone()).await.map_err(|error| lost(error.to_string()))?;
        client
            .publish_with_reply(CLAIMS_UPDATE, inbox, account.into())
            .await
            .map_err(|error| lost(error.to_string()))?;
        let deadline = Instant::now() + ANSWERS_WITHIN;
        let mut pushed = Pushed::default();
        while pushed.servers.len() < servers.max(1) {
            let Ok(Some(message)) = timeout_at(deadline, answers.next()).await else { break };
            // "No responders" is an answer without a body.
            let Ok(answer) = serde_json::from_slice::<ControlAnswer>(&message.payload) else {
                continue;
            };
            if let Some(ControlFailure { description }) = answer.error {
                return Err(PushError::Refused { server: answer.server.name, detail: description });
            }
            pushed.servers.insert(answer.server.name);
        }
        if pushed.servers.is_empty() { Err(PushError::Silent) } else { Ok(pushed) }
    })
}
