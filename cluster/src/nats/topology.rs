//! Every stream and consumer, in one table.
//!
//! Created when the cluster is born, checked whenever somebody connects, never created again: a
//! stream that "is not found" later has no leader at the moment, or somebody deleted it, and a new
//! empty one would hide that.

use std::time::Duration;

use clawnode_proto::{
    Capability, Partition,
    limits::{JOB_AGE_MAX, PARTITIONS_MAX},
    subject::{Prefix, capability_token},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{Api, Failure, until_answered};

/// The group that all pulls of a partition's consumer belong to; ranks are priorities in it.
pub(super) const PULL_GROUP: &str = "owners";
/// Pulls that may wait at one partition's consumer, of all workers together.
const MAX_WAITING: i64 = 512;
/// Consumers besides those of the table: backups, people with the `nats` tool, watchers.
const SPARE_CONSUMERS: i64 = 1_024;
/// How long the server remembers that a bucket's key expired, so that watchers learn it.
const EXPIRY_MARKER: Duration = Duration::from_mins(1);
/// How long a consumer of jobs is kept that nobody pulls at: capabilities come and go with tools,
/// and consumers are bounded.
const UNUSED_CAPABILITY: Duration = Duration::from_hours(7 * 24);
/// The consumer that moves due timers to the inbox. A durable one, because an automatic one forgets
/// where it was when its stream restarts, and then skips what came due in between.
pub(super) const DUE_CONSUMER: &str = "inbox";

/// A stream that must be as described here.
#[derive(Debug)]
pub(super) struct StreamSpec {
    pub(super) name: String,
    config: Value,
    /// Settings that streams of older builds lack: they are changed, not insisted on.
    later: &'static [&'static str],
}

/// A consumer that must be as described here.
#[derive(Debug)]
pub(super) struct ConsumerSpec {
    pub(super) stream: String,
    pub(super) name: String,
    config: Value,
    /// Whether it is created where its filter is seen, so that permissions can be about it.
    by_filter: bool,
}

/// What exists is not what it must be.
#[derive(Debug, thiserror::Error)]
pub(super) enum TopologyError {
    /// It was changed, or made by something else.
    #[error("`{field}` of `{what}` is {found}, but must be {expected}")]
    Different {
        /// The stream or consumer.
        what: String,
        /// The setting.
        field: String,
        /// What it must be.
        expected: Value,
        /// What it is.
        found: Value,
    },
    /// The server failed.
    #[error("`{what}`: {failure}")]
    Failed {
        /// The stream or consumer.
        what: String,
        /// How.
        failure: Failure,
    },
}

#[derive(Deserialize)]
struct Described {
    config: Value,
}

/// The names of the streams.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) journal: String,
    pub(super) inbox: String,
    pub(super) jobs: String,
    pub(super) timers: String,
    pub(super) bucket: String,
    pub(super) blobs: String,
}

// === impl Names ===

impl Names {
    pub(super) fn new(prefix: &Prefix) -> Self {
        Self {
            journal: prefix.store("JOURNAL"),
            inbox: prefix.store("INBOX"),
            jobs: prefix.store("JOBS"),
            timers: prefix.store("TIMERS"),
            bucket: prefix.store("BUCKET"),
            blobs: prefix.store("BLOBS"),
        }
    }

    /// All of them, the most important first.
    pub(super) fn all(&self) -> Vec<String> {
        let Self { journal, inbox, jobs, timers, bucket, blobs } = self;
        [journal, inbox, jobs, timers, bucket, blobs].map(Clone::clone).to_vec()
    }
}

/// The bucket's stream, which comes first, because it says how the cluster was born.
pub(super) fn bucket(prefix: &Prefix, replicas: u8) -> StreamSpec {
    let mut bucket = StreamSpec::new(
        Names::new(prefix).bucket,
        &prefix.buckets(),
        replicas,
        json!({
            "retention": "limits",
            "discard": "new",
            "max_msgs_per_subject": 1,
            "allow_msg_ttl": true,
            "subject_delete_marker_ttl": nanos(EXPIRY_MARKER),
            "allow_rollup_hdrs": true,
            "max_consumers": SPARE_CONSUMERS,
        }),
    );
    bucket.config["subjects"] = json!([prefix.buckets(), prefix.birth()]);
    bucket
}

/// All other streams, in the order in which they need each other, and the consumer between them.
pub(super) fn streams(
    prefix: &Prefix,
    replicas: u8,
) -> (StreamSpec, ConsumerSpec, [StreamSpec; 3]) {
    let names = Names::new(prefix);
    let (due, input) = prefix.due_to_input();
    let mut timers = StreamSpec::new(
        names.timers.clone(),
        &prefix.timers(),
        replicas,
        // Schedules exclude the refusal of what does not fit, so this stream has no limit at all.
        json!({
            "retention": "limits",
            "discard": "old",
            "allow_msg_schedules": true,
            "allow_msg_ttl": true,
            "allow_rollup_hdrs": true,
            "max_consumers": SPARE_CONSUMERS,
        }),
    );
    timers.config["subjects"] = json!([prefix.timers(), prefix.dues()]);
    let due_consumer = ConsumerSpec {
        stream: names.timers.clone(),
        name: DUE_CONSUMER.to_owned(),
        config: json!({
            "durable_name": DUE_CONSUMER,
            "deliver_policy": "all",
            "deliver_subject": prefix.due_feed(),
            "filter_subject": prefix.dues(),
            "ack_policy": "flow_control",
            "max_deliver": -1,
        }),
        by_filter: false,
    };
    let journal = StreamSpec::new(
        names.journal,
        &prefix.journals(),
        replicas,
        json!({
            "retention": "limits",
            "discard": "new",
            "deny_delete": true,
            "allow_rollup_hdrs": true,
            "max_consumers": SPARE_CONSUMERS,
        }),
    );
    let inbox = StreamSpec::new(
        names.inbox,
        &prefix.inputs(),
        replicas,
        json!({
            "retention": "workqueue",
            "discard": "new",
            "max_consumers": SPARE_CONSUMERS + i64::from(PARTITIONS_MAX),
            "sources": [{
                "name": names.timers,
                "consumer": { "name": DUE_CONSUMER, "deliver_subject": prefix.due_feed() },
                "subject_transforms": [{ "src": due, "dest": input }],
            }],
        }),
    );
    let blobs = StreamSpec::new(
        names.blobs,
        &prefix.blobs(),
        replicas,
        json!({
            "retention": "limits",
            "discard": "new",
            "max_msgs_per_subject": 1,
            "max_consumers": SPARE_CONSUMERS,
        }),
    );
    (timers, due_consumer, [journal, inbox, blobs])
}

/// The stream of jobs, which clusters born before [`super::birth`] knew of it get later.
pub(super) fn jobs(prefix: &Prefix, replicas: u8) -> StreamSpec {
    StreamSpec::new(
        Names::new(prefix).jobs,
        &prefix.jobs(),
        replicas,
        json!({
            "retention": "workqueue",
            "discard": "new",
            "max_consumers": SPARE_CONSUMERS,
            "max_age": nanos(JOB_AGE_MAX),
        }),
    )
    .brought_later(&["max_age"])
}

/// The consumer of one capability's jobs. One that nobody pulls at for long goes: what waits is in
/// the stream, and whoever comes to take it makes it again.
pub(super) fn jobs_consumer(
    prefix: &Prefix,
    capability: &Capability,
    ack_wait: Duration,
) -> ConsumerSpec {
    let name = capability_token(capability);
    ConsumerSpec {
        stream: Names::new(prefix).jobs,
        config: json!({
            "durable_name": name,
            "deliver_policy": "all",
            "filter_subject": prefix.jobs_of(capability),
            "ack_policy": "explicit",
            "ack_wait": nanos(ack_wait),
            "max_deliver": -1,
            "max_ack_pending": -1,
            "max_waiting": MAX_WAITING,
            "inactive_threshold": nanos(UNUSED_CAPABILITY),
        }),
        name,
        // Workers make these, and may make no others.
        by_filter: true,
    }
}

/// The consumer of one partition's inputs.
pub(super) fn partition_consumer(
    prefix: &Prefix,
    partition: Partition,
    ack_wait: Duration,
) -> ConsumerSpec {
    let name = format!("p{partition}");
    ConsumerSpec {
        stream: Names::new(prefix).inbox,
        config: json!({
            "durable_name": name,
            "deliver_policy": "all",
            "filter_subject": prefix.inputs_of(partition),
            "ack_policy": "explicit",
            "ack_wait": nanos(ack_wait),
            "max_deliver": -1,
            "max_ack_pending": -1,
            "max_waiting": MAX_WAITING,
            "priority_policy": "prioritized",
            "priority_groups": [PULL_GROUP],
        }),
        name,
        by_filter: false,
    }
}

/// The partition that a consumer of this name serves.
pub(super) fn partition_of_consumer(name: &str) -> Option<usize> {
    name.strip_prefix('p')?.parse().ok()
}

// === impl StreamSpec ===

impl StreamSpec {
    fn new(name: String, subjects: &str, replicas: u8, mut config: Value) -> Self {
        config["name"] = json!(name);
        config["subjects"] = json!([subjects]);
        config["storage"] = json!("file");
        config["num_replicas"] = json!(replicas);
        // Direct gets are answered by any replica, so they are stale.
        config["allow_direct"] = json!(false);
        Self { name, config, later: &[] }
    }

    fn brought_later(self, later: &'static [&'static str]) -> Self {
        Self { later, ..self }
    }

    /// How many replicas the stream has, or `None` if it does not exist.
    pub(super) async fn replicas(&self, api: &Api) -> Result<Option<u8>, Failure> {
        match self.describe(api).await {
            Ok(config) => Ok(config["num_replicas"].as_u64().and_then(|n| u8::try_from(n).ok())),
            Err(failure) if failure.is_stream_not_found() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Creates the stream, unless it exists, and checks it.
    pub(super) async fn create(&self, api: &Api) -> Result<(), TopologyError> {
        match api.ask::<Described>(&format!("STREAM.CREATE.{}", self.name), &self.config).await {
            Ok(created) => self.compare(&created.config),
            Err(failure) if failure.is_stream_exists() => self.check(api).await,
            Err(failure) => Err(TopologyError::Failed { what: self.name.clone(), failure }),
        }
    }

    /// Checks the stream, which must exist.
    pub(super) async fn check(&self, api: &Api) -> Result<(), TopologyError> {
        match self.describe(api).await {
            Ok(found) => self.compare(&found),
            Err(failure) => Err(TopologyError::Failed { what: self.name.clone(), failure }),
        }
    }

    /// Gives the stream, which must exist, the settings that its build did not know; says whether
    /// there were any.
    pub(super) async fn update(&self, api: &Api) -> Result<bool, Failure> {
        let mut config = self.describe(api).await?;
        let missing = |field: &&&str| config.get(**field) != self.config.get(**field);
        let missing: Vec<_> = self.later.iter().filter(missing).collect();
        for field in &missing {
            config[**field] = self.config[**field].clone();
        }
        if missing.is_empty() {
            return Ok(false);
        }
        api.ask::<Described>(&format!("STREAM.UPDATE.{}", self.name), &config).await.map(|_| true)
    }

    fn compare(&self, found: &Value) -> Result<(), TopologyError> {
        let mut expected = self.config.clone();
        if let Some(expected) = expected.as_object_mut() {
            expected.retain(|field, _| !self.later.contains(&field.as_str()));
        }
        compare(&self.name, &expected, found)
    }

    async fn describe(&self, api: &Api) -> Result<Value, Failure> {
        let described: Described =
            api.ask(&format!("STREAM.INFO.{}", self.name), &json!({})).await?;
        Ok(described.config)
    }
}

// === impl ConsumerSpec ===

impl ConsumerSpec {
    /// Creates the consumer, unless it exists, and checks it.
    pub(super) async fn create(&self, api: &Api) -> Result<(), TopologyError> {
        let subject = self.create_subject();
        let question =
            json!({ "stream_name": self.stream, "config": self.config, "action": "create" });
        match api.ask::<Described>(&subject, &question).await {
            Ok(created) => compare(&self.what(), &self.config, &created.config),
            // Exists with another configuration, says the server; the check says which.
            Err(failure) if !failure.is_transient() => match self.check(api).await {
                Err(TopologyError::Failed { .. }) | Ok(()) => {
                    Err(TopologyError::Failed { what: self.what(), failure })
                }
                different => different,
            },
            Err(failure) => Err(TopologyError::Failed { what: self.what(), failure }),
        }
    }

    fn create_subject(&self) -> String {
        let Self { stream, name, config, by_filter } = self;
        match config["filter_subject"].as_str() {
            Some(filter) if *by_filter => {
                format!("CONSUMER.CREATE.{stream}.{name}.{filter}")
            }
            _ => format!("CONSUMER.DURABLE.CREATE.{stream}.{name}"),
        }
    }

    /// Checks the consumer, which must exist.
    pub(super) async fn check(&self, api: &Api) -> Result<(), TopologyError> {
        let subject = format!("CONSUMER.INFO.{}.{}", self.stream, self.name);
        let question = json!({});
        match until_answered(|| api.ask::<Described>(&subject, &question)).await {
            Ok(found) => compare(&self.what(), &self.config, &found.config),
            Err(failure) => Err(TopologyError::Failed { what: self.what(), failure }),
        }
    }

    fn what(&self) -> String {
        format!("{}/{}", self.stream, self.name)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Compares what the table says; what it leaves open is a person's choice.
fn compare(what: &str, expected: &Value, found: &Value) -> Result<(), TopologyError> {
    let Some(expected) = expected.as_object() else { return Ok(()) };
    for (field, expected) in expected {
        // The server leaves out what is false.
        let found = found.get(field).unwrap_or(&Value::Bool(false));
        if !covers(expected, found) {
            return Err(TopologyError::Different {
                what: what.to_owned(),
                field: field.clone(),
                expected: expected.clone(),
                found: found.clone(),
            });
        }
    }
    Ok(())
}

/// Whether `found` has all of `expected`; inside lists and objects it may have more.
fn covers(expected: &Value, found: &Value) -> bool {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => expected
            .iter()
            .all(|(key, value)| found.get(key).is_some_and(|found| covers(value, found))),
        (Value::Array(expected), Value::Array(found)) => {
            expected.len() == found.len()
                && expected.iter().zip(found).all(|(value, found)| covers(value, found))
        }
        (expected, found) => expected == found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_setting_is_named() {
        let expected = json!({ "name": "A", "allow_direct": false, "sources": [{ "name": "T" }] });
        let same = json!({ "name": "A", "sources": [{ "name": "T", "x": 1 }], "max_msgs": -1 });
        assert!(compare("A", &expected, &same).is_ok());
        let changed = json!({ "name": "A", "allow_direct": true, "sources": [{ "name": "T" }] });
        let error = compare("A", &expected, &changed).map_err(|error| error.to_string());
        assert_eq!(error, Err("`allow_direct` of `A` is true, but must be false".to_owned()));
    }

    #[test]
    fn a_consumer_names_its_partition() {
        let spec = partition_consumer(&Prefix::default(), Partition(17), Duration::from_secs(30));
        assert_eq!(partition_of_consumer(&spec.name), Some(17));
        assert_eq!(partition_of_consumer("inbox"), None);
    }
}
