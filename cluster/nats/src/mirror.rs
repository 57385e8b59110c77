//! A mirror that keeps every record.
//!
//! One worker's credential can empty the journals: a snapshot replaces the records that it sums up,
//! by a message that the server lets replace everything as well (`topology`). A mirror is another
//! stream to which the server itself copies each message. No client publishes to it, records
//! removed from the journals stay there, and no credential of a node has rights on it. Large
//! content is mirrored too. `restore_from_mirror` is the way back.

use std::time::Duration;

use clawnode_proto::subject::Prefix;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::{
    api::{Api, RequestFailure},
    connect::reach,
    connect_error::{ConnectError, failed},
    options::NatsOptions,
    spec::StreamSpec,
    topology::{self, StreamNames},
};

/// The streams that have mirrors: those that sessions consist of.
pub(super) fn mirrored(prefix: &Prefix, replicas: u8) -> [StreamSpec; 2] {
    let (_, _, [journal, _, blobs]) = topology::streams(prefix, replicas);
    [journal, blobs]
}

/// Makes the mirrors, or changes for how long they keep a record; `None`: for ever. Says which there
/// are.
pub fn mirror(
    options: &NatsOptions,
    keep: Option<Duration>,
) -> BoxFuture<'_, Result<Vec<String>, ConnectError>> {
    Box::pin(async move {
        let api = reach(options).await?;
        let mut made = Vec::new();
        for spec in mirrored(&options.prefix, 1) {
            let name =
                make(&api, &spec.name, keep).await.map_err(|failure| failed(options, failure))?;
            made.push(name);
        }
        Ok(made)
    })
}

pub(super) fn kept(name: &str) -> String {
    format!("{name}_KEPT")
}

/// Whose streams the operator's credential for this is about.
pub(super) fn streams(prefix: &Prefix) -> Vec<String> {
    let StreamNames { journal, blobs, .. } = StreamNames::new(prefix);
    [&journal, &blobs].iter().flat_map(|name| [(*name).clone(), kept(name)]).collect()
}

/// Makes the mirror of one stream, or changes it.
pub(super) async fn make(
    api: &Api,
    name: &str,
    keep: Option<Duration>,
) -> Result<String, RequestFailure> {
    let origin = config(api, name).await?;
    let mut wanted = plain(&kept(name), &origin);
    wanted["mirror"] = json!({ "name": name });
    wanted["deny_delete"] = json!(true);
    wanted["deny_purge"] = json!(true);
    wanted["max_age"] = json!(keep.map_or(0, |keep| keep.as_nanos()));
    match change(api, "CREATE", &wanted).await {
        Err(failure) if failure.is_stream_exists() => change(api, "UPDATE", &wanted).await?,
        made => made?,
    }
    Ok(kept(name))
}

/// A stream of this name with the storage of `like`, and no other settings.
pub(super) fn plain(name: &str, like: &Value) -> Value {
    json!({
        "name": name,
        "storage": "file",
        "num_replicas": like["num_replicas"],
        "retention": "limits",
        "discard": "old",
        "allow_direct": false,
    })
}

pub(super) async fn config(api: &Api, name: &str) -> Result<Value, RequestFailure> {
    Ok(ask(api, "INFO", name, &json!({})).await?["config"].clone())
}

pub(super) async fn change(api: &Api, how: &str, config: &Value) -> Result<(), RequestFailure> {
    let name = config["name"].as_str().unwrap_or_default();
    ask(api, how, name, config).await.map(drop)
}

pub(super) async fn ask(
    api: &Api,
    how: &str,
    name: &str,
    question: &Value,
) -> Result<Value, RequestFailure> {
    api.ask(&format!("STREAM.{how}.{name}"), question).await
}
