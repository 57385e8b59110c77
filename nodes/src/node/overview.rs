//! The cluster for those who operate it: what `status`, `nodes`, `partitions`, `tree` and `events`
//! answer.
//!
//! Answers come at once, also while the bus is out of reach: nothing here waits for long, and what
//! cannot be known now is left out and named in a warning.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use clawnode_actors::session::Sessions;
use clawnode_cluster::{Peek, Storage, membership::Members};
use clawnode_kernel::driver::WorkerContext;
use clawnode_proto::{
    Capability, ErrorBody, NodeName, ProcessId,
    api::EventsParams,
    node::{Heartbeat, NodeRole},
    overview::{BusView, DeadView, FeedView, LookedView, NodeList, PartitionList, TreeView},
    view::{StatusView, WarningView},
};
use tokio::sync::watch;
use tracing::debug;

use super::{
    event_feed::EventLog,
    feed_and_tree::Operations,
    node_and_partition_views, node_change_events,
    out_of_service::OutOfServiceScan,
    tree::Roots,
    usage_counting,
    version_check::{self, HeartbeatSource},
};

/// How long the store may take to say how many sessions there are.
const COUNT_WITHIN: Duration = Duration::from_secs(1);
/// Events of one answer unless asked otherwise.
const EVENTS: u32 = 100;

/// A node's knowledge of itself and the others.
#[derive(Clone)]
pub struct NodeInfo {
    pub process: ProcessId,
    /// Its own heartbeats.
    pub heartbeat: Arc<dyn Fn() -> Heartbeat + Send + Sync>,
    /// The default model, and why that one.
    pub model: String,
    /// The cluster as it sees it; no other process in a single one.
    pub members: watch::Receiver<Members>,
    /// Resident entities.
    pub resident: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// The last events.
    pub events: EventLog,
    pub roots: Roots,
}

impl NodeInfo {
    /// The overview of a node with this `heartbeat`.
    pub fn new(
        context: &Arc<WorkerContext>,
        heartbeat: HeartbeatSource,
        model: String,
        members: watch::Receiver<Members>,
        operations: &Operations,
    ) -> Self {
        let (process, resident) = (context.process, Arc::clone(context));
        let resident = Arc::new(move || resident.resident.load(Ordering::Relaxed));
        let (events, roots) = (operations.events.clone(), operations.roots.clone());
        Self { process, heartbeat, model, members, resident, events, roots }
    }
}

impl std::fmt::Debug for NodeInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeInfo").field("process", &self.process).finish_non_exhaustive()
    }
}

/// The cluster as this node sees it.
#[derive(Debug)]
pub struct Overview {
    node: NodeInfo,
    sessions: Sessions,
    looked: OutOfServiceScan,
    /// The last count, for when the store does not answer.
    counted: AtomicU64,
}

// === impl Overview ===

impl Overview {
    /// A view of this node, the others, and the sessions.
    pub fn new(node: NodeInfo, sessions: Sessions) -> Self {
        Self { node, sessions, looked: OutOfServiceScan::default(), counted: AtomicU64::new(0) }
    }

    fn storage(&self) -> &Storage {
        self.sessions.storage()
    }

    /// The nodes that are held alive, this one among them.
    pub fn alive(&self) -> Vec<Heartbeat> {
        let own = (self.node.heartbeat)();
        self.node.members.peek(|members| node_and_partition_views::alive(own, members))
    }

    /// Processes that are held alive.
    pub fn alive_count(&self) -> usize {
        self.node.members.peek(|members| members.alive.len()).max(1)
    }

    /// Entities in this process's memory.
    pub fn resident(&self) -> u64 {
        (self.node.resident)()
    }

    fn dead(&self) -> Vec<DeadView> {
        let alive: Vec<NodeName> = self.alive().into_iter().map(|one| one.node).collect();
        let dead: Vec<ProcessId> =
            self.node.members.peek(|members| members.dead.iter().copied().collect());
        let view = |process| {
            let node = self.node.events.name_of(process);
            let ago = self.node.events.dead_for(process);
            DeadView {
                process,
                ago_ms: ago.map(|ago| u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)),
                replaced: node.as_ref().is_some_and(|name| alive.contains(name)),
                node,
            }
        };
        superseded(dead.into_iter().map(view).collect())
    }

    /// Whether this node serves sessions itself.
    pub fn is_worker(&self) -> bool {
        (self.node.heartbeat)().roles.contains(&NodeRole::Worker)
    }

    /// The name of this node.
    pub fn node(&self) -> NodeName {
        (self.node.heartbeat)().node
    }

    /// The name of a process, if it is known.
    pub fn name_of(&self, process: ProcessId) -> Option<NodeName> {
        if process == self.node.process {
            return Some((self.node.heartbeat)().node);
        }
        self.node.members.peek(|members| {
            let one = members.alive.iter().find(|one| one.process == process)?;
            Some(one.node.clone())
        })
    }

    /// Answers `status`.
    pub async fn status(&self) -> StatusView {
        let storage = self.storage();
        let (sessions, approvals, outages, bus, found, of_storage, usage_behind_ms) = tokio::join!(
            self.count(),
            self.approvals(),
            self.outages(),
            storage.health.bus(),
            self.looked.get(self.sessions.entities()),
            storage.health.warnings(),
            usage_counting::behind_ms(&self.sessions)
        );
        let nodes = self.alive();
        let mut warnings: Vec<WarningView> = of_storage
            .into_iter()
            .map(|one| WarningView { name: one.name, message: one.message, hint: one.hint })
            .collect();
        if let Err(problem) = &sessions {
            warnings.push(WarningView {
                name: "bus.unreachable".to_owned(),
                message: format!("the store does not answer ({problem}); numbers are old"),
                hint: "check the servers with `clawnode doctor`".to_owned(),
            });
        }
        if self.is_headless() {
            warnings.push(node_change_events::no_worker(self.waiting().await));
        }
        warnings.extend(bus.iter().flat_map(bus_warnings));
        let own = (self.node.heartbeat)();
        warnings.extend(self.node.members.peek(|members| version_check::warnings(&own, members)));
        warnings.extend(node_change_events::config_differs(&nodes));
        warnings.extend(node_change_events::spending_differs(&nodes));
        warnings.extend(usage_counting::warning(usage_behind_ms));
        warnings.extend(self.node.members.peek(node_change_events::clocks_apart));
        if found.is_partial() {
            warnings.push(WarningView {
                name: "sessions.partly_seen".to_owned(),
                message: format!(
                    "only {} entities were checked so far; others may be out of service",
                    found.entities
                ),
                hint: "`clawnode quarantine list` checks all of them".to_owned(),
            });
        }
        // Where nothing goes on comes first.
        warnings.sort_by_key(|one| !one.is_fatal());
        let looked = found.at.map(|at| LookedView {
            sessions: found.entities,
            age_ms: u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
        StatusView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: self.node.process,
            substrate: storage.health.describe(),
            partitions: storage.partitions,
            model: self.node.model.clone(),
            plugins: plugins(&nodes),
            running: nodes.iter().map(|node| node.load.turns_running).sum(),
            approvals,
            outages,
            usage_behind_ms,
            sessions: sessions.unwrap_or_else(|_| self.counted.load(Ordering::Relaxed)),
            nodes: nodes.into_iter().map(node_and_partition_views::node).collect(),
            dead: self.dead(),
            bus,
            quarantined: found.quarantined.into_iter().collect(),
            looked,
            warnings,
        }
    }

    /// Whether no process serves stored messages, as far as this one has listened long enough.
    fn is_headless(&self) -> bool {
        self.node.members.peek(|members| members.settled)
            && node_change_events::is_headless(&self.alive())
    }

    /// How many inputs are unfinished, if the store answers in time.
    async fn waiting(&self) -> Option<u64> {
        let asked = tokio::time::timeout(COUNT_WITHIN, self.storage().inbox.depths()).await;
        let depths = asked.ok()?.ok()??;
        Some(depths.iter().map(|depth| depth.waiting + depth.in_hand).sum())
    }

    /// How many calls wait for a person, if the store answers in time.
    async fn approvals(&self) -> Option<u64> {
        let asked = tokio::time::timeout(COUNT_WITHIN, self.sessions.waiting_approvals()).await;
        Some(asked.ok()?.ok()?.len() as u64)
    }

    /// How many turns wait for a provider, if the store answers in time.
    async fn outages(&self) -> Option<u64> {
        let asked = tokio::time::timeout(COUNT_WITHIN, self.sessions.waiting_for_providers()).await;
        asked.ok()?.ok()
    }

    async fn count(&self) -> Result<u64, String> {
        let counted = tokio::time::timeout(COUNT_WITHIN, self.sessions.entities().count()).await;
        let count = counted
            .map_err(|_elapsed| format!("no answer within {COUNT_WITHIN:?}"))?
            .map_err(|failure| failure.to_string())?;
        self.counted.store(count, Ordering::Relaxed);
        Ok(count)
    }

    /// Answers `nodes.list`.
    pub fn nodes(&self) -> NodeList {
        let nodes = self.alive().into_iter().map(node_and_partition_views::node).collect();
        NodeList { nodes, dead: self.dead() }
    }

    /// Answers `partitions.list`.
    pub async fn partitions(&self) -> PartitionList {
        let depths = self.storage().inbox.depths().await.unwrap_or_else(|failure| {
            debug!(%failure, "cannot count the waiting messages now");
            None
        });
        node_and_partition_views::partitions(
            self.storage().partitions,
            &self.alive(),
            depths.as_deref(),
        )
    }

    /// Answers `cluster.tree`.
    pub async fn tree(&self, node: Option<&str>) -> Result<TreeView, ErrorBody> {
        self.node.roots.gather(self.storage(), &self.node.members, node).await
    }

    /// Answers `events.list`.
    pub async fn events(&self, page: EventsParams) -> Result<FeedView, ErrorBody> {
        let limit = page.limit.unwrap_or(EVENTS).max(1) as usize;
        let wait = Duration::from_millis(page.wait_ms.unwrap_or_default().into());
        Ok(self.node.events.read(page.cursor.as_ref(), limit, wait).await?)
    }
}

fn bus_warnings(bus: &BusView) -> Vec<WarningView> {
    let name_of = |stores: Vec<&str>| stores.join(", ");
    let leaderless = bus.stores.iter().filter(|store| {
        store.problem.is_some()
            || (bus.cluster.is_some() && store.replicas > 0 && store.leader.is_none())
    });
    let leaderless: Vec<&str> = leaderless.map(|store| store.name.as_str()).collect();
    let behind = bus.stores.iter().filter(|store| store.behind > 0);
    let behind: Vec<&str> = behind.map(|store| store.name.as_str()).collect();
    let mut warnings = Vec::new();
    if !leaderless.is_empty() {
        warnings.push(WarningView {
            name: "bus.no_leader".to_owned(),
            message: format!("no leader for {} now: writes wait", name_of(leaderless)),
            hint: "an election takes seconds; if this lasts, check the NATS servers".to_owned(),
        });
    }
    if !behind.is_empty() {
        warnings.push(WarningView {
            name: "bus.replicas_behind".to_owned(),
            message: format!("servers that should keep {} are behind or gone", name_of(behind)),
            hint: "bring all NATS servers back; another loss may stop the bus".to_owned(),
        });
    }
    warnings
}

/// Of the dead of one name the last alone is missed: it had taken the place of the others.
fn superseded(mut dead: Vec<DeadView>) -> Vec<DeadView> {
    // The later it was held dead the greater; who was not heard of was there long ago.
    let when = |dead: &DeadView| (std::cmp::Reverse(dead.ago_ms.unwrap_or(u64::MAX)), dead.process);
    let all = dead.clone();
    for dead in dead.iter_mut().filter(|dead| dead.node.is_some()) {
        dead.replaced |=
            all.iter().any(|other| other.node == dead.node && when(other) > when(dead));
    }
    dead
}

/// The plugins that these nodes have loaded, in name order.
fn plugins(nodes: &[Heartbeat]) -> Vec<String> {
    let capabilities = nodes.iter().flat_map(|node| &node.capabilities);
    let names: BTreeSet<&str> = capabilities.filter_map(Capability::plugin).collect();
    names.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use clawnode_proto::overview::StoreView;

    use super::*;

    fn names(stores: Vec<StoreView>, cluster: bool) -> Vec<String> {
        let cluster = cluster.then(|| "c".to_owned());
        let bus = BusView { cluster, stores, ..BusView::default() };
        bus_warnings(&bus).into_iter().map(|warning| warning.name).collect()
    }

    #[test]
    fn the_plugins_of_all_workers_are_listed_once() {
        let node = |capabilities: &[&str]| -> Heartbeat {
            serde_json::from_value(serde_json::json!({
                "process": ProcessId::from_u128(1), "node": "n", "version": "0",
                "roles": ["worker"], "started": 0, "draining": false, "entities": 0,
                "config": clawnode_proto::Digest::ZERO, "capabilities": capabilities,
            }))
            .unwrap()
        };
        let nodes = [
            node(&["wasm.keeps", "docker", "wasm.echo", "mcp.wasm"]),
            node(&["wasm.keeps"]),
            node(&[]),
        ];
        assert_eq!(plugins(&nodes), ["echo", "keeps"]);
    }

    #[test]
    fn a_store_in_trouble_is_a_warning() {
        let sound = StoreView { replicas: 3, leader: Some("a".to_owned()), ..StoreView::default() };
        assert!(names(vec![sound.clone()], true).is_empty());
        let behind = StoreView { behind: 1, ..sound.clone() };
        assert_eq!(names(vec![sound.clone(), behind], true), ["bus.replicas_behind"]);
        let headless = StoreView { leader: None, ..sound.clone() };
        assert_eq!(names(vec![headless.clone()], true), ["bus.no_leader"]);
        assert!(names(vec![headless], false).is_empty(), "one server has no leader");
        let silent = StoreView { problem: Some("no answer".to_owned()), ..sound };
        assert_eq!(names(vec![silent], true), ["bus.no_leader"]);
    }

    #[test]
    fn of_the_dead_of_one_name_the_last_is_missed() {
        let dead = |process, node: Option<&str>, ago_ms| DeadView {
            process: ProcessId::from_u128(process),
            node: node.map(|name| name.parse().unwrap()),
            ago_ms,
            replaced: false,
        };
        let all = superseded(vec![
            dead(1, Some("b"), Some(9_000)),
            dead(2, Some("b"), Some(1_000)),
            dead(3, Some("b"), None),
            dead(4, Some("c"), Some(9_000)),
            dead(5, None, Some(1)),
            dead(6, None, Some(2)),
        ]);
        let replaced: Vec<bool> = all.iter().map(|dead| dead.replaced).collect();
        assert_eq!(replaced, [true, false, true, false, false, false]);
    }
}
