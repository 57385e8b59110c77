//! From a join token to a credential. The token proves a user that may wait for one message and do
//! nothing else; that message is the signed token of that same user with its role, which the server
//! sends once, for as long as the join token lives. Without the user's seed, which was never on the
//! bus, it is of no use, and without the offer a join token is of none: once it was used, it is worth
//! nothing.

use std::time::Duration;

use async_nats::{HeaderMap, Message, StatusCode, header::NATS_MESSAGE_TTL};
use bytes::Bytes;
use clawnode_cluster::clock::Backoff;
use clawnode_proto::Position;
use futures_util::{StreamExt, future::BoxFuture};
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::{Credential, CredentialError, JoinToken};
use crate::{
    api::{Api, RequestFailure},
    connect::reach,
    connect_error::{ConnectError, failed},
    journal::expecting,
    options::NatsOptions,
    spec::TopologyError,
    topology::{self, TAKERS},
};

/// Waits for servers that elect, at most, before an offer fails.
const TRIES: u32 = 5;
/// How long an offer, or the news that it is gone, may take: servers need a while for an election.
const OFFER_WITHIN: Duration = Duration::from_secs(10);
/// The header that says how many offers the server has sent, in its message that there are no more.
const SENT: &str = "Nats-Last-Consumer";

/// Why there is no credential.
#[derive(Debug, thiserror::Error)]
pub enum AdmitError {
    /// The servers are out of reach, or refuse the login.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Another node used the token, or it took too long.
    #[error("the join token was used already, or has expired")]
    Used,
    /// The offered credential is of another user.
    #[error("the credential that the cluster offers is not usable")]
    Credential(#[from] CredentialError),
}

/// The result of a wait for an offer.
enum OfferWait {
    Offer(Credential),
    /// The server sent it before.
    Gone,
    /// Nothing that means anything here.
    Noise,
}

/// Offers `credential` to the client that proves to be its user, for as long as `ttl`; `options`
/// say how its operator reaches the servers.
pub fn offer<'a>(
    options: &'a NatsOptions,
    credential: &'a Credential,
    ttl: Duration,
) -> BoxFuture<'a, Result<(), ConnectError>> {
    Box::pin(async move {
        let api = reach(options).await?;
        let mut pause = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        let offered = loop {
            match offer_once(&api, options, credential, ttl).await {
                Err(failure) if failure.is_transient() && pause.tries() < TRIES => {
                    let wait = pause.next(&mut rand::rng());
                    tokio::time::sleep(wait).await;
                }
                // The subject is secret, so this means that an earlier try was stored without an
                // answer.
                Err(failure) if failure.is_wrong_last_sequence() && pause.tries() > 0 => {
                    break Ok(());
                }
                done => break done,
            }
        };
        api.client.drain().await.unwrap_or_else(|error| debug!(%error, "not drained"));
        offered.map_err(|failure| failed(options, failure))
    })
}

async fn offer_once(
    api: &Api,
    options: &NatsOptions,
    credential: &Credential,
    ttl: Duration,
) -> Result<(), RequestFailure> {
    let (prefix, user) = (&options.prefix, credential.user());
    // As many as the cluster has of everything else.
    let replicas = topology::birth(prefix, 1).replicas(api).await?.unwrap_or(1);
    topology::offers(prefix, replicas).create(api).await.map_err(of_topology)?;
    // First the consumer that sends it: without a consumer the message is not kept.
    topology::offer_consumer(prefix, user, ttl).create(api).await.map_err(of_topology)?;
    let mut headers: HeaderMap = expecting(Position(0));
    headers.insert(NATS_MESSAGE_TTL, format!("{}s", ttl.as_secs().max(1)));
    let jwt = Bytes::from(credential.jwt().to_owned());
    api.publish(prefix.offer(user), headers, jwt).await.map(drop)
}

fn of_topology(error: TopologyError) -> RequestFailure {
    match error {
        TopologyError::Failed { failure, .. } => failure,
        different @ TopologyError::Different { .. } => {
            RequestFailure::Rejected(different.to_string())
        }
    }
}

/// Takes the offer for the user of `token`; `options` say how to reach the servers.
pub fn admit<'a>(
    options: &'a NatsOptions,
    token: &'a JoinToken,
) -> BoxFuture<'a, Result<Credential, AdmitError>> {
    Box::pin(async move {
        let options = NatsOptions {
            urls: token.urls.clone(),
            credential: Some(token.admission.clone()),
            credentials: None,
            prefix: token.prefix.clone(),
            ..options.clone()
        };
        let api = reach(&options).await?;
        let subject = token.prefix.joining(token.admission.user());
        let waiting = api.client.queue_subscribe(subject, TAKERS.to_owned()).await;
        let mut offers = waiting.map_err(|error| failed(&options, error))?;
        let deadline = Instant::now() + OFFER_WITHIN;
        while let Ok(Some(message)) = timeout_at(deadline, offers.next()).await {
            match heard(&message, token) {
                OfferWait::Offer(credential) => return Ok(credential),
                OfferWait::Gone => break,
                OfferWait::Noise => {}
            }
        }
        Err(AdmitError::Used)
    })
}

fn heard(message: &Message, token: &JoinToken) -> OfferWait {
    if message.status == Some(StatusCode::IDLE_HEARTBEAT) {
        let sent = message.headers.as_ref().and_then(|all| all.get(SENT));
        let sent = sent.and_then(|sent| sent.as_str().parse::<u64>().ok()).unwrap_or_default();
        return if sent > 0 { OfferWait::Gone } else { OfferWait::Noise };
    }
    let jwt = String::from_utf8_lossy(&message.payload).into_owned();
    match Credential::new(jwt, token.admission.seed().to_owned()) {
        // Other users may make the server write here; the operator's token says which credential to
        // expect.
        Ok(found) if token.offer.as_ref().is_none_or(|offer| *offer == found.digest()) => {
            OfferWait::Offer(found)
        }
        Ok(_) => OfferWait::Noise,
        Err(error) => {
            debug!(%error, "a message is not a credential offer");
            OfferWait::Noise
        }
    }
}
