//! Every stream and consumer, in one table.
//!
//! Streams are created when the cluster is born, checked at every connect, and never created again.
//! A stream that "is not found" later has no leader at the moment, or was deleted; a new empty one
//! would hide that.

use std::time::Duration;

use clawnode_proto::{
    Capability, Partition,
    limits::{JOB_AGE_MAX, PARTITIONS_MAX},
    subject::{Prefix, capability_token},
};
use serde_json::json;

use super::spec::{ConsumerSpec, StreamSpec};

/// The layout of streams and subjects that this build knows.
pub(super) const FORMAT: u32 = 1;
/// The group that all pulls of a consumer belong to; ranks are priorities in it.
pub(super) const PULL_GROUP: &str = "owners";
/// Pulls that may wait at one partition's consumer, of all workers together.
const MAX_WAITING: i64 = 512;
/// Consumers besides those of the table: backups, people with the `nats` tool, watchers.
const SPARE_CONSUMERS: i64 = 1_024;
/// How long an unused consumer of jobs is kept: capabilities come and go with tools, and consumers
/// are bounded.
const UNUSED_CAPABILITY: Duration = Duration::from_hours(7 * 24);
/// The takers of an offer wait as this group: the server sends it to one of them.
pub(super) const TAKERS: &str = "takers";
/// How soon a client that comes too late for an offer learns it.
const OFFER_HEARTBEAT: Duration = Duration::from_millis(500);
/// The consumer that moves due timers to the inbox. A durable one, because an automatic one forgets
/// its place when its stream restarts, and then skips timers that came due in between.
pub(super) const DUE_CONSUMER: &str = "inbox";

#[derive(Debug)]
pub(super) struct StreamNames {
    pub(super) journal: String,
    pub(super) inbox: String,
    pub(super) jobs: String,
    pub(super) timers: String,
    pub(super) bucket: String,
    pub(super) blobs: String,
    pub(super) birth: String,
    pub(super) offers: String,
}

// === impl StreamNames ===

impl StreamNames {
    pub(super) fn new(prefix: &Prefix) -> Self {
        Self {
            journal: prefix.store("JOURNAL"),
            inbox: prefix.store("INBOX"),
            jobs: prefix.store("JOBS"),
            timers: prefix.store("TIMERS"),
            bucket: prefix.store("BUCKET"),
            blobs: prefix.store("BLOBS"),
            birth: prefix.store("BIRTH"),
            offers: prefix.store("OFFERS"),
        }
    }

    /// All that nodes keep things in, the most important first.
    pub(super) fn all(&self) -> Vec<String> {
        let Self { journal, inbox, jobs, timers, bucket, blobs, .. } = self;
        [journal, inbox, jobs, timers, bucket, blobs].map(Clone::clone).to_vec()
    }
}

/// The bucket's stream. No message may replace all of it (`allow_rollup_hdrs`). So the server may
/// not leave markers of expired values either: those are such messages.
pub(super) fn bucket(prefix: &Prefix, replicas: u8) -> StreamSpec {
    StreamSpec::new(
        StreamNames::new(prefix).bucket,
        &prefix.buckets(),
        replicas,
        json!({
            "retention": "limits",
            "discard": "new",
            "max_msgs_per_subject": 1,
            "allow_msg_ttl": true,
            "allow_rollup_hdrs": false,
            "max_consumers": SPARE_CONSUMERS,
        }),
    )
}

/// The stream of the birth record. The process that creates the cluster writes it, and no node with
/// a credential may.
pub(super) fn birth(prefix: &Prefix, replicas: u8) -> StreamSpec {
    StreamSpec::new(
        StreamNames::new(prefix).birth,
        &prefix.birth(),
        replicas,
        json!({
            "retention": "limits",
            "discard": "new",
            "deny_delete": true,
            "allow_rollup_hdrs": false,
            "max_consumers": SPARE_CONSUMERS,
        }),
    )
}

/// The stream of the credentials that wait for their nodes. A delivered one is gone.
pub(super) fn offers(prefix: &Prefix, replicas: u8) -> StreamSpec {
    StreamSpec::new(
        StreamNames::new(prefix).offers,
        &prefix.offer("*"),
        replicas,
        json!({
            "retention": "interest",
            "discard": "new",
            "allow_msg_ttl": true,
            "allow_rollup_hdrs": false,
            "max_consumers": SPARE_CONSUMERS,
        }),
    )
}

/// The consumer of one offer. It sends the offer, once, to one of the [`TAKERS`], and informs later
/// ones that it has done so. So a user with a join token need not, and may not, ask for anything.
pub(super) fn offer_consumer(prefix: &Prefix, user: &str, ttl: Duration) -> ConsumerSpec {
    ConsumerSpec {
        stream: StreamNames::new(prefix).offers,
        name: user.to_owned(),
        config: json!({
            "name": user,
            "durable_name": user,
            "deliver_policy": "all",
            "filter_subject": prefix.offer(user),
            "ack_policy": "none",
            "deliver_subject": prefix.joining(user),
            "deliver_group": TAKERS,
            "idle_heartbeat": nanos(OFFER_HEARTBEAT),
            "inactive_threshold": nanos(ttl),
        }),
        by_filter: true,
    }
}

/// All other streams, in the order in which they need each other, and the consumer between them.
pub(super) fn streams(
    prefix: &Prefix,
    replicas: u8,
) -> (StreamSpec, ConsumerSpec, [StreamSpec; 3]) {
    let names = StreamNames::new(prefix);
    let (due, input) = prefix.due_to_input();
    let mut timers = StreamSpec::new(
        names.timers.clone(),
        &prefix.timers(),
        replicas,
        // Schedules cannot be combined with refusal at a limit, so this stream has no limit at all.
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

/// The stream of jobs, which clusters born before [`super::cluster_creation`] knew of it get later.
pub(super) fn jobs(prefix: &Prefix, replicas: u8) -> StreamSpec {
    StreamSpec::new(
        StreamNames::new(prefix).jobs,
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

/// The consumer of one capability's jobs. It goes if it is unused for long: the jobs are in the
/// stream, and the next runner makes the consumer again.
pub(super) fn jobs_consumer(
    prefix: &Prefix,
    capability: &Capability,
    ack_wait: Duration,
) -> ConsumerSpec {
    let name = capability_token(capability);
    ConsumerSpec {
        stream: StreamNames::new(prefix).jobs,
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
            "priority_policy": "prioritized",
            "priority_groups": [PULL_GROUP],
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
        stream: StreamNames::new(prefix).inbox,
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

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::signals::partition_of_consumer;
    use super::*;

    #[test]
    fn a_consumer_names_its_partition() {
        let spec = partition_consumer(&Prefix::default(), Partition(17), Duration::from_secs(30));
        assert_eq!(partition_of_consumer(&spec.name), Some(17));
        assert_eq!(partition_of_consumer("inbox"), None);
    }
}
