//! Asking another process to serve an entity that this one cannot, or gives up.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use clawnode_cluster::{Peek, membership::Members, placement};
use clawnode_proto::{
    EntityId, InputId, Partition, ProcessId, codec,
    limits::LACKS_TOLD,
    node::{Heartbeat, NodeReply, NodeRequest, NodeRole},
};
use semver::Version;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::WorkerContext;
use crate::{
    MissingCapability,
    partition::{Forwarded, PartitionInput},
};

/// How long one request to another process may take.
const RING_TIMEOUT: Duration = Duration::from_millis(300);
/// Processes that are asked before an entity is left for later.
const RINGS_MAX: usize = 3;
/// How long a missing capability is reported after it was last found: longer than its inputs stay
/// away.
const LACKS_FOR: Duration = Duration::from_secs(30);

/// What entities that wait here need and no living process knows. It forgets what is no longer
/// needed.
#[derive(Clone, Debug, Default)]
pub struct Lacks(Arc<Mutex<BTreeMap<MissingCapability, Instant>>>);

// === impl Lacks ===

impl Lacks {
    /// What is missing now, in words, at most [`LACKS_TOLD`].
    pub fn told(&self) -> BTreeSet<String> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, found| found.elapsed() < LACKS_FOR);
        known.keys().take(LACKS_TOLD).map(ToString::to_string).collect()
    }

    /// Says whether that is news.
    fn found(&self, needs: &MissingCapability) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, found| found.elapsed() < LACKS_FOR);
        known.insert(needs.clone(), Instant::now()).is_none()
    }

    fn served(&self, needs: &MissingCapability) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(needs);
    }
}

/// Asks the processes that know what is needed, the partition's first worker first.
pub(super) async fn forward(
    context: &WorkerContext,
    entity: EntityId,
    input: InputId,
    needs: MissingCapability,
) -> PartitionInput {
    let partition = entity.partition(context.storage.partitions);
    let able = context
        .peers
        .peek(|peers| able(peers, context.process, &context.version, partition, &needs));
    for process in able.into_iter().take(RINGS_MAX) {
        if let Some(came) = ring(context, process, entity, input).await {
            debug!(%entity, %needs, %process, ?came, "an entity is another process's to serve");
            context.lacks.served(&needs);
            return PartitionInput::Forwarded(entity, came);
        }
    }
    if context.lacks.found(&needs) {
        warn!(%entity, %needs, "entities wait for a process that knows what they need");
    }
    let orphan = context.peers.peek(|peers| {
        !peers
            .alive
            .iter()
            .any(|one| one.process != context.process && fits(one, &context.version, &needs))
    });
    PartitionInput::Forwarded(entity, if orphan { Forwarded::Orphan } else { Forwarded::NotNow })
}

/// Notifies the process that is first to serve an entity which was given up here; best effort.
pub(super) async fn ring_next(context: &WorkerContext, entity: EntityId, input: InputId) {
    let partition = entity.partition(context.storage.partitions);
    let next = context.peers.peek(|peers| by_rank(peers, context.process, partition, |_| true));
    for process in next.into_iter().take(RINGS_MAX) {
        if let Some(came) = ring(context, process, entity, input).await {
            debug!(%entity, %process, ?came, "an entity was given up, the next worker is notified");
            return;
        }
    }
}

/// The workers that can serve it, by their rank for the partition.
fn able(
    members: &Members,
    me: ProcessId,
    own: &Version,
    partition: Partition,
    needs: &MissingCapability,
) -> Vec<ProcessId> {
    let mut able = by_rank(members, me, partition, |one| fits(one, own, needs));
    if let MissingCapability::Newer(_) = needs {
        // Few are asked, and the newest read most.
        let version = |id: &ProcessId| {
            members.alive.iter().find(|one| one.process == *id).and_then(version_of)
        };
        able.sort_by_cached_key(|id| std::cmp::Reverse(version(id)));
    }
    able
}

/// Whether a process knows what is needed.
fn fits(one: &Heartbeat, own: &Version, needs: &MissingCapability) -> bool {
    match needs {
        MissingCapability::Event(kind) => one.knows.contains(kind),
        MissingCapability::Input(version) => one.speaks.newest >= *version,
        MissingCapability::Kind(kind) => one.serves(*kind),
        // The build that wrote it, or a later one.
        MissingCapability::Newer(_) => version_of(one).is_some_and(|theirs| theirs > *own),
    }
}

fn version_of(one: &Heartbeat) -> Option<Version> {
    one.version.parse().ok()
}

/// The other workers that take entities and fit, by their rank for the partition.
fn by_rank(
    members: &Members,
    me: ProcessId,
    partition: Partition,
    fits: impl Fn(&Heartbeat) -> bool,
) -> Vec<ProcessId> {
    let takes = |one: &&Heartbeat| {
        one.process != me
            && one.roles.contains(&NodeRole::Worker)
            && !one.draining
            && !one.cordoned
            && fits(one)
    };
    let mut able: Vec<ProcessId> =
        members.alive.iter().filter(takes).map(|one| one.process).collect();
    let all = able.clone();
    able.sort_by_key(|one| placement::rank(partition, *one, &all));
    able
}

/// Asks one process to serve an entity; `None` if it does not answer or cannot either.
pub(super) async fn ring(
    context: &WorkerContext,
    process: ProcessId,
    entity: EntityId,
    input: InputId,
) -> Option<Forwarded> {
    let request = codec::encode(&NodeRequest::Ring { entity, input }).ok()?;
    let subject = context.storage.prefix.rpc(process);
    let asked = context.storage.bus.request(subject, Bytes::from(request), RING_TIMEOUT).await;
    match asked.map(|bytes| codec::decode::<NodeReply>(&bytes)) {
        Ok(Ok(NodeReply::Ok)) => Some(Forwarded::Rung),
        Ok(Ok(NodeReply::Held)) => Some(Forwarded::Held),
        Ok(Ok(NodeReply::Completed)) => Some(Forwarded::Completed),
        Ok(
            Ok(
                NodeReply::NotMine
                | NodeReply::Frames { .. }
                | NodeReply::Tree { .. }
                | NodeReply::KillSwitch { .. }
                | NodeReply::JobLog { .. }
                | NodeReply::Cleaned { .. }
                | NodeReply::Embedded { .. }
                | NodeReply::NotEmbedded { .. }
                | NodeReply::StoreFound { .. },
            )
            | Err(_),
        ) => None,
        Err(failure) => {
            debug!(%process, %entity, %failure, "a process does not answer");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        Digest, Kind, Timestamp,
        node::{Load, VersionRange},
    };

    use super::*;

    fn heartbeat(process: u128, knows: &[&str], newest: u16) -> Heartbeat {
        Heartbeat {
            providers: Vec::new(),
            process: ProcessId::from_u128(process),
            node: "n".parse().unwrap(),
            version: "0".to_owned(),
            roles: vec![NodeRole::Worker],
            started: Timestamp(0),
            draining: false,
            entities: 0,
            config: Digest::ZERO,
            cordoned: false,
            speaks: VersionRange { oldest: 1, newest },
            capabilities: BTreeSet::new(),
            load: Load::default(),
            shed: 0,
            first_of: 0,
            knows: knows.iter().map(|one| (*one).to_owned()).collect(),
            lacks: BTreeSet::new(),
            leaving: false,
            server: String::new(),
            url: None,
            time: None,
            agents: Vec::new(),
            spending: None,
            file: clawnode_proto::node::FileState::default(),
        }
    }

    #[test]
    fn only_who_knows_what_is_needed_and_takes_entities_is_asked() {
        let me = ProcessId::from_u128(1);
        let mut members = Members {
            alive: vec![
                heartbeat(1, &["new"], 2),
                heartbeat(2, &["old"], 1),
                heartbeat(3, &["old", "new"], 1),
                heartbeat(4, &["old", "new"], 2),
            ],
            ..Members::default()
        };
        let own = Version::new(0, 1, 0);
        let ask = |members: &Members, needs: &MissingCapability| -> BTreeSet<u128> {
            let found = able(members, me, &own, Partition(0), needs);
            found.into_iter().map(ProcessId::as_u128).collect()
        };
        let event = MissingCapability::Event("new".to_owned());
        assert_eq!(ask(&members, &event), [3, 4].into());
        assert_eq!(ask(&members, &MissingCapability::Input(2)), [4].into());
        let kind: Kind = "budget".parse().unwrap();
        members.alive[1].capabilities = ["budget".parse().unwrap()].into();
        assert_eq!(ask(&members, &MissingCapability::Kind(kind)), [2].into());
        for (one, version) in members.alive.iter_mut().zip(["9.0.0", "0.1.0", "0.1.1", "?"]) {
            version.clone_into(&mut one.version);
        }
        let newer = MissingCapability::Newer("tool_asked".to_owned());
        assert_eq!(ask(&members, &newer), [3].into(), "only a process that may have written it");
        members.alive[2].cordoned = true;
        members.alive[3].draining = true;
        assert_eq!(ask(&members, &event), [].into());
    }

    #[test]
    fn what_is_lacking_is_news_once_and_over_when_it_is_served() {
        let (lacks, needs) = (Lacks::default(), MissingCapability::Event("new".to_owned()));
        assert!(lacks.found(&needs));
        assert!(!lacks.found(&needs));
        assert_eq!(lacks.told(), ["new".to_owned()].into());
        lacks.served(&needs);
        assert!(lacks.told().is_empty());
    }
}
