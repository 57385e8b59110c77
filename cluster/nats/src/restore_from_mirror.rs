//! Restores a cluster from its mirror. No node may run meanwhile.
//!
//! To restore, the server copies back: the stream is made again as a mirror of its mirror. So each
//! record keeps its position, which fences and snapshots rely on. Then unwanted messages (those
//! that replaced everything) are removed, and so are the records that snapshots had replaced; then
//! the stream is itself again. Nothing is removed from the mirror before all of that is done.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use async_nats::{HeaderValue, header::NATS_ROLLUP};
use clawnode_proto::subject::Prefix;
use futures_util::{StreamExt, future::BoxFuture};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, timeout};
use tracing::info;

use super::{
    api::{Api, RequestFailure},
    connect::reach,
    connect_error::{ConnectError, failed},
    foreign_messages::is_foreign,
    journal::ROLLUP_SUBJECT,
    mirror::{ask, change, config, kept, make, mirrored, plain},
    options::NatsOptions,
    spec::TopologyError,
    stream::StreamReader,
    topology::StreamNames,
};

/// How soon a node is heard of that runs: a few of its heartbeats.
const HEARD_WITHIN: Duration = Duration::from_secs(5);
/// How long the server may take to copy without getting on.
const STALLED: Duration = Duration::from_secs(30);
/// How soon it is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The result for one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredStream {
    pub stream: String,
    /// The records that it has now.
    pub records: u64,
    /// Messages that were left out: those that had replaced everything, and those that clawnode did
    /// not write.
    pub left_out: u64,
}

/// A stream's own report.
#[derive(Debug, Default, Deserialize)]
struct MirrorState {
    #[serde(default)]
    messages: u64,
    #[serde(default)]
    last_seq: u64,
}

/// Restores the streams from their mirrors, except for messages of the last `without`. No node may
/// run.
pub fn restore(
    options: &NatsOptions,
    without: Duration,
) -> BoxFuture<'_, Result<Vec<RestoredStream>, ConnectError>> {
    Box::pin(async move {
        let api = reach(options).await?;
        if is_alive(&api, &options.prefix).await.map_err(|error| failed(options, error))? {
            return Err(failed(options, "nodes of this cluster run; stop them first"));
        }
        let mut restored = Vec::new();
        for spec in mirrored(&options.prefix, 1) {
            let one = bring_back(&api, &options.prefix, &spec.name, without).await;
            restored.push(one.map_err(|failure| failed(options, failure))?);
        }
        Ok(restored)
    })
}

/// Whether a node is heard of.
async fn is_alive(api: &Api, prefix: &Prefix) -> Result<bool, async_nats::SubscribeError> {
    let mut heartbeats = api.client.subscribe(prefix.heartbeats()).await?;
    Ok(timeout(HEARD_WITHIN, heartbeats.next()).await.is_ok())
}

/// Makes a stream again from its mirror.
async fn bring_back(
    api: &Api,
    prefix: &Prefix,
    name: &str,
    without: Duration,
) -> Result<RestoredStream, RequestFailure> {
    let mirror = config(api, &kept(name)).await?;
    let keep = mirror["max_age"].as_u64().filter(|age| *age > 0).map(Duration::from_nanos);
    // A mirror of nothing: its messages stay, whatever happens to the stream.
    let mut alone = plain(&kept(name), &mirror);
    for field in ["deny_delete", "deny_purge", "max_age"] {
        alone[field] = mirror[field].clone();
    }
    change(api, "UPDATE", &alone).await?;
    match ask(api, "DELETE", name, &json!({})).await {
        Err(failure) if failure.is_stream_not_found() => {}
        deleted => drop(deleted?),
    }
    let mut copy = plain(name, &mirror);
    copy["mirror"] = json!({ "name": kept(name) });
    change(api, "CREATE", &copy).await?;
    until_copied(api, name).await?;
    let reader = StreamReader::new(api.clone(), name.to_owned()).await?;
    let left_out = if name == StreamNames::new(prefix).journal {
        trim_journals(api, &reader, &prefix.journals(), without).await?
    } else {
        trim_blobs(api, &reader, &prefix.blobs()).await?
    };
    // Itself again.
    let replicas = mirror["num_replicas"].as_u64().and_then(|replicas| u8::try_from(replicas).ok());
    let mut specs = mirrored(prefix, replicas.unwrap_or(1)).into_iter();
    if let Some(spec) = specs.find(|spec| spec.name == name) {
        spec.remake(api).await.map_err(|error| match error {
            TopologyError::Failed { failure, .. } => failure,
            different @ TopologyError::Different { .. } => {
                RequestFailure::Rejected(different.to_string())
            }
        })?;
    }
    // The mirror is made again as well: it has to begin with the present messages.
    ask(api, "DELETE", &kept(name), &json!({})).await?;
    make(api, name, keep).await?;
    let records = state(api, name).await?.messages;
    info!(stream = name, records, left_out, "restored from its mirror");
    Ok(RestoredStream { stream: name.to_owned(), records, left_out })
}

/// Removes from the journals messages that replaced everything, those of the last `without`, and,
/// as the server had done, those that snapshots replaced.
async fn trim_journals(
    api: &Api,
    reader: &StreamReader,
    filter: &str,
    without: Duration,
) -> Result<u64, RequestFailure> {
    let is_recent = |at: SystemTime| at.elapsed().unwrap_or_default() < without;
    let (mut snapshots, mut left_out, mut from) = (BTreeMap::new(), 0, 1);
    while let Some(message) = reader.next(filter, from).await? {
        from = message.sequence + 1;
        let replaces = message.headers.get(NATS_ROLLUP).map(HeaderValue::as_str);
        let is_record = replaces.is_none_or(|all| all == ROLLUP_SUBJECT)
            && !is_recent(message.time.into())
            && !is_foreign(Some(&message.headers), &message.payload);
        if !is_record {
            remove(api, reader.name(), message.sequence).await?;
            left_out += 1;
        } else if replaces.is_some() {
            snapshots.insert(message.subject.to_string(), message.sequence);
        }
    }
    for (subject, sequence) in snapshots {
        let before = json!({ "filter": subject, "seq": sequence });
        ask(api, "PURGE", reader.name(), &before).await?;
    }
    Ok(left_out)
}

/// Keeps the first message of each part of a blob: only one content can be under its digest.
async fn trim_blobs(api: &Api, reader: &StreamReader, filter: &str) -> Result<u64, RequestFailure> {
    let (mut first, mut left_out, mut from) = (BTreeMap::new(), 0, 1);
    while let Some(message) = reader.next(filter, from).await? {
        from = message.sequence + 1;
        let known = first.entry(message.subject.to_string()).or_insert(message.sequence);
        if *known != message.sequence {
            remove(api, reader.name(), message.sequence).await?;
            left_out += 1;
        }
    }
    Ok(left_out)
}

/// Waits until the server has copied everything.
async fn until_copied(api: &Api, name: &str) -> Result<(), RequestFailure> {
    let whole = state(api, &kept(name)).await?;
    let (mut so_far, mut moved) = (0, Instant::now());
    loop {
        let copied = state(api, name).await?;
        if copied.messages >= whole.messages {
            return Ok(());
        }
        if copied.last_seq > so_far {
            (so_far, moved) = (copied.last_seq, Instant::now());
        }
        if moved.elapsed() > STALLED {
            return Err(RequestFailure::Unknown(format!("copying `{name}` makes no progress")));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn state(api: &Api, name: &str) -> Result<MirrorState, RequestFailure> {
    let info = ask(api, "INFO", name, &json!({})).await?;
    serde_json::from_value(info["state"].clone())
        .map_err(|error| RequestFailure::Rejected(error.to_string()))
}

async fn remove(api: &Api, name: &str, sequence: u64) -> Result<(), RequestFailure> {
    ask(api, "MSG.DELETE", name, &json!({ "seq": sequence })).await.map(drop)
}
