//! From a join token to a credential. The token proves a user that may read one offer in the bucket
//! and take it away; the offer is the signed token of that same user with its role. It lasts as
//! long as the join token, whoever takes it first has it, and without the user's seed, which was
//! never on the bus, it is of no use.

use std::time::Duration;

use bytes::Bytes;
use clawnode_proto::{Position, subject::JOIN_KEYS};

use super::{Credential, CredentialError, JoinToken};
use crate::{
    Bucket, BucketError, StoreError, Substrate,
    clock::Backoff,
    nats::{
        bucket::NatsBucket,
        connect::{ConnectError, reach},
        options::NatsOptions,
        stream::Reader,
        topology::Names,
    },
};

/// Waits for servers that elect, at most, before an offer or its taking fails.
const TRIES: u32 = 5;

/// Why there is no credential.
#[derive(Debug, thiserror::Error)]
pub enum AdmitError {
    /// The servers are out of reach, or do not let it in.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Somebody was here before, or it took too long.
    #[error("the join token was used already, or its time is over")]
    Used,
    /// The bucket failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What was offered is not of this user.
    #[error("what the cluster offers is not usable")]
    Credential(#[from] CredentialError),
}

/// Offers `credential` to whoever proves to be its user, for as long as `ttl`.
pub async fn offer(
    substrate: &Substrate,
    credential: &Credential,
    ttl: Duration,
) -> Result<(), BucketError> {
    let (bucket, key) = (&substrate.bucket, key(credential));
    let value = Bytes::from(credential.jwt().to_owned());
    let mut pause = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
    loop {
        let may_be_there = pause.tries() > 0;
        match bucket.put(&key, Position(0), value.clone(), Some(ttl)).await {
            Err(BucketError::Store(error)) if error.is_transient() && pause.tries() < TRIES => {
                let wait = pause.next(&mut rand::rng());
                tokio::time::sleep(wait).await;
            }
            // Nobody else knows the key, so an earlier try was stored without an answer.
            Err(BucketError::Conflict { .. }) if may_be_there => return Ok(()),
            done => return done.map(drop),
        }
    }
}

/// Takes the offer for the user of `token`; `options` say how to reach the servers.
pub async fn admit(options: &NatsOptions, token: &JoinToken) -> Result<Credential, AdmitError> {
    let options = NatsOptions {
        urls: token.urls.clone(),
        credential: Some(token.admission.clone()),
        credentials: None,
        prefix: token.prefix.clone(),
        ..options.clone()
    };
    let api = reach(&options).await?;
    let reader = Reader::new(api.clone(), Names::new(&token.prefix).bucket).await;
    let reader = reader.map_err(|failure| failure.of_store("bucket"))?;
    let bucket = NatsBucket::new(api, token.prefix.clone(), reader);
    let key = key(&token.admission);
    let mut pause = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
    let entry = loop {
        match bucket.get(&key).await {
            Err(error) if error.is_transient() && pause.tries() < TRIES => {
                let wait = pause.next(&mut rand::rng());
                tokio::time::sleep(wait).await;
            }
            found => break found?.ok_or(AdmitError::Used)?,
        }
    };
    // By compare-and-set: of two that read it, one has it.
    match bucket.delete(&key, entry.position).await {
        Ok(()) => {}
        Err(BucketError::Conflict { .. }) => return Err(AdmitError::Used),
        Err(BucketError::Store(error)) => return Err(error.into()),
    }
    let jwt = String::from_utf8_lossy(&entry.value).into_owned();
    Ok(Credential::new(jwt, token.admission.seed().to_owned())?)
}

fn key(credential: &Credential) -> String {
    format!("{JOIN_KEYS}{}", credential.user())
}
