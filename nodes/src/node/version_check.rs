//! Nodes greet: who joins says which versions it speaks, hears who else is there, and stays out if
//! they would not understand each other. Inputs are written as the version that all of them speak.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use clawnode_actors::agent::Agents;
use clawnode_cluster::{
    BusEvent, Peek, PeekSeen, Storage,
    membership::{Announcer, ClusterClock, Members},
};
use clawnode_kernel::driver::WorkerContext;
use clawnode_proto::{
    Capability, NodeName, codec,
    envelope::VERSIONS,
    node::{Heartbeat, NodeRole, VersionRange},
    provider::{ProviderKind, ProviderReport},
    view::WarningView,
};
use clawnode_tool::Available;
use futures_util::StreamExt;
use semver::Version;
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};
use tracing::{debug, info, warn};

use super::{current_models::CurrentModels, process_load::Gauges, process_state::NodeStatus};
use crate::start_error::StartError;

/// How long the others may take to answer a newcomer, once it has heard itself: they answer at
/// once. Who is later is heard of while the node serves, and the younger of two that do not fit
/// ends.
const LISTEN: Duration = Duration::from_millis(250);
/// How long a newcomer may take to hear itself; a bus that takes longer tells nothing.
const ECHO: Duration = Duration::from_secs(2);

/// Builds the process's heartbeat.
pub type HeartbeatSource = Arc<dyn Fn() -> Heartbeat + Send + Sync>;

/// What a heartbeat is made of.
#[derive(Debug)]
pub struct HeartbeatParts {
    /// The node's name.
    pub node: NodeName,
    pub roles: Vec<NodeRole>,
    /// What its entities share.
    pub context: Arc<WorkerContext>,
    /// Who answers.
    pub agents: Agents,
    /// The providers of models.
    pub models: CurrentModels,
    /// What can be run here now.
    pub available: watch::Receiver<Available>,
    /// The MCP servers that it could run.
    pub hosts: BTreeSet<Capability>,
    /// Whether it takes work.
    pub node_status: Arc<NodeStatus>,
    /// How busy it is.
    pub gauges: Gauges,
    /// Where clients reach it, once it serves.
    pub reached: Arc<OnceLock<String>>,
}

/// What the process says of itself, whenever it is asked.
pub fn heartbeat_source(parts: HeartbeatParts) -> HeartbeatSource {
    let HeartbeatParts {
        node,
        roles,
        context,
        agents,
        models,
        available,
        hosts,
        node_status,
        gauges,
        reached,
    } = parts;
    let started = context.clock.now();
    let knows = context.kinds.events();
    let kinds: BTreeSet<Capability> =
        context.kinds.served().filter_map(|kind| kind.as_str().parse().ok()).collect();
    let heartbeat_source = move |available: &Available| Heartbeat {
        process: context.process,
        node: node.clone(),
        version: context.version.to_string(),
        roles: roles.clone(),
        started,
        draining: node_status.draining(),
        entities: context.resident.load(Ordering::Relaxed),
        config: agents.digest(),
        cordoned: node_status.cordoned().load(Ordering::Relaxed),
        speaks: context.speaks,
        capabilities: &capabilities(&roles, &kinds, available) | &hosts,
        load: gauges.load(),
        shed: gauges.shed(),
        first_of: gauges.first_of(),
        server: String::new(),
        knows: knows.clone(),
        lacks: context.lacks.told(),
        leaving: false,
        url: reached.get().cloned(),
        providers: providers(&roles, available, &agents, &models),
        time: None,
        file: node_status.file(),
        agents: node_status.switch_gate().counts(),
        spending: node_status.spending(),
    };
    Arc::new(move || heartbeat_source(&available.peek(Clone::clone)))
}

/// How what a worker works with fares.
fn providers(
    roles: &[NodeRole],
    available: &Available,
    agents: &Agents,
    models: &CurrentModels,
) -> Vec<ProviderReport> {
    if !roles.contains(&NodeRole::Worker) {
        return Vec::new();
    }
    let profiles = agents.names().into_iter().filter_map(|name| agents.profile(&name).ok());
    let named: BTreeSet<String> = profiles.map(|profile| profile.model.provider).collect();
    let mut circuits = models.circuits().reports();
    let named = named.iter().chain(circuits.keys()).map(String::as_str);
    let mut reports = available.providers.reports(named);
    for report in reports.iter_mut().filter(|report| report.kind == ProviderKind::Model) {
        report.circuit = circuits.remove(&report.name).map(Box::new);
        // The tracker counts a call from when it is made, and one that waits is not with its provider yet.
        report.waiting = agents.slots().waiting(&report.name);
        report.in_hand = report.in_hand.saturating_sub(report.waiting);
    }
    reports
}

/// What others may ask of this node: the kinds of entities that it serves, and the tools that it
/// runs.
fn capabilities(
    roles: &[NodeRole],
    kinds: &BTreeSet<Capability>,
    available: &Available,
) -> BTreeSet<Capability> {
    if !roles.contains(&NodeRole::Worker) {
        return BTreeSet::new();
    }
    kinds | &available.capabilities
}

/// The version of this build.
#[cfg(not(feature = "test-util"))]
pub fn version(_env: &crate::config::Env) -> Result<Version, StartError> {
    parse_version(env!("CARGO_PKG_VERSION"))
}

/// The version of this build; in tests, the one that `CLAWNODE_TEST_VERSION` names.
#[cfg(feature = "test-util")]
pub fn version(env: &crate::config::Env) -> Result<Version, StartError> {
    parse_version(env.get("CLAWNODE_TEST_VERSION").unwrap_or(env!("CARGO_PKG_VERSION")))
}

fn parse_version(text: &str) -> Result<Version, StartError> {
    text.parse().map_err(|error| {
        let what = format!("`{text}` is not a version: {error}");
        StartError::failed("internal", what)
    })
}

/// The versions that this process speaks.
#[cfg(not(feature = "test-util"))]
pub fn speaks(_env: &crate::config::Env) -> Result<VersionRange, StartError> {
    Ok(VersionRange::from(VERSIONS))
}

/// The versions that this process speaks; in tests, those that `CLAWNODE_TEST_SPEAKS` names.
#[cfg(feature = "test-util")]
pub fn speaks(env: &crate::config::Env) -> Result<VersionRange, StartError> {
    const VARIABLE: &str = "CLAWNODE_TEST_SPEAKS";
    env.get(VARIABLE).map_or(Ok(VersionRange::from(VERSIONS)), |text| {
        text.parse()
            .map_err(|error| StartError::config("config_invalid", format!("`{VARIABLE}`: {error}")))
    })
}

/// The kinds of events that this process is not to know, by `CLAWNODE_TEST_HIDES`: an older version
/// of itself.
#[cfg(feature = "test-util")]
pub fn hides(env: &crate::config::Env) -> &'static [&'static str] {
    const VARIABLE: &str = "CLAWNODE_TEST_HIDES";
    let Some(text) = env.get(VARIABLE) else { return &[] };
    // Once a process, in tests: it lives as long as the process anyway.
    let text: &'static str = Box::leak(text.to_owned().into_boxed_str());
    Box::leak(text.split(',').collect::<Vec<_>>().into_boxed_slice())
}

/// Hears who is there and what time it is, before any work is taken; refuses to join those that cannot read what this
/// process writes, or the other way round.
pub async fn join(
    storage: &Storage,
    heartbeat_source: &HeartbeatSource,
    clock: &ClusterClock,
) -> Result<(), StartError> {
    if !storage.shared {
        return Ok(());
    }
    let mut heard = match storage.bus.subscribe(storage.prefix.heartbeats()).await {
        Ok(heard) => heard,
        Err(failure) => {
            let message = format!("the other nodes cannot be heard: {failure}");
            return Err(StartError::unreachable("nats_unreachable", message));
        }
    };
    // Without a role it takes no part yet.
    let own = Heartbeat { roles: Vec::new(), time: Some(clock.machine()), ..heartbeat_source() };
    say(storage, &own).await;
    let mut until = Instant::now() + ECHO;
    while let Ok(Some(event)) = timeout_at(until, heard.next()).await {
        let BusEvent::Message(message) = event else { continue };
        let other: Heartbeat = match codec::decode(&message.payload) {
            Ok(other) => other,
            Err(failure) => {
                debug!(%failure, "a heartbeat is not readable");
                continue;
            }
        };
        if let Some(said) = other.time {
            clock.hear(other.process, said);
        }
        if other.process == own.process {
            until = until.min(Instant::now() + LISTEN);
        } else if !other.leaving && !other.speaks.overlaps(own.speaks) {
            say(storage, &Heartbeat { leaving: true, ..own.clone() }).await;
            return Err(unfit(&own, &other));
        }
    }
    clock.agree(|_| true);
    Ok(())
}

fn unfit(own: &Heartbeat, other: &Heartbeat) -> StartError {
    let message = format!(
        "node `{}` (clawnode {}) speaks versions {}, this one (clawnode {}) speaks {}: they have none \
         in common",
        other.node, other.version, other.speaks, own.version, own.speaks
    );
    StartError::config("versions_unfit", message)
        .hint("upgrade the cluster one version at a time, or use another `--prefix`")
}

/// Has the others told at once what is news, and keeps `agreed` at the newest version of inputs that
/// all who are alive can read.
pub async fn run(
    announcer: Announcer,
    heartbeat_source: HeartbeatSource,
    node_status: Arc<NodeStatus>,
    agreed: Arc<AtomicU16>,
    mut members: watch::Receiver<Members>,
) {
    loop {
        tokio::select! {
            changed = members.changed() => if changed.is_err() {
                return;
            },
            () = node_status.changed() => announcer.announce(),
        }
        let alive = members.peek_seen(|members| members.alive.clone());
        let own = heartbeat_source();
        let version = common(own.speaks, &alive);
        if agreed.swap(version, Ordering::Relaxed) != version {
            info!(version, "inputs are written in the newest version that all nodes speak");
        }
        let elder =
            alive.iter().find(|one| one.process < own.process && !one.speaks.overlaps(own.speaks));
        if let Some(elder) = elder {
            node_status.refuse(unfit(&own, elder));
        }
    }
}

/// The newest version that all of them speak, as far as there is one.
fn common(own: VersionRange, alive: &[Heartbeat]) -> u16 {
    let fitting = alive.iter().map(|one| one.speaks).filter(|one| one.overlaps(own));
    fitting.map(|one| one.newest).fold(own.newest, u16::min)
}

/// The last word of a process: the others need not wait for its silence.
pub async fn farewell(storage: &Storage, heartbeat_source: &HeartbeatSource) {
    if storage.shared {
        say(storage, &Heartbeat { leaving: true, draining: true, ..heartbeat_source() }).await;
    }
}

async fn say(storage: &Storage, heartbeat: &Heartbeat) {
    let bytes = match codec::encode(heartbeat) {
        Ok(bytes) => bytes,
        Err(failure) => return warn!(%failure, "cannot encode a heartbeat"),
    };
    let subject = storage.prefix.heartbeat(heartbeat.process);
    if let Err(failure) = storage.bus.publish(subject, None, Bytes::from(bytes)).await {
        debug!(%failure, "cannot send a heartbeat");
    }
}

/// What a person should know of the nodes' versions.
pub fn warnings(own: &Heartbeat, members: &Members) -> Vec<WarningView> {
    let all = || std::iter::once(own).chain(&members.alive);
    let lacks: BTreeSet<&str> =
        all().flat_map(|one| one.lacks.iter().map(String::as_str)).collect();
    let lacking = |needs: &str| WarningView {
        name: "nodes.too_old".to_owned(),
        message: format!("sessions wait for a worker that knows `{needs}`; no live worker does"),
        hint: "start a worker of the version that wrote them; their messages are kept".to_owned(),
    };
    lacks.into_iter().map(lacking).collect()
}

#[cfg(test)]
mod tests {
    use clawnode_proto::ProcessId;

    use super::*;

    #[test]
    fn the_newest_version_that_all_speak_is_written() {
        let heartbeat = |newest| {
            let mut json = serde_json::json!({
                "process": ProcessId::from_u128(1), "node": "n", "version": "0", "roles": [],
                "started": 0, "draining": false, "entities": 0,
                "config": clawnode_proto::Digest::ZERO,
            });
            json["speaks"] = serde_json::json!({ "oldest": 1, "newest": newest });
            serde_json::from_value::<Heartbeat>(json).unwrap()
        };
        let own = VersionRange { oldest: 2, newest: 4 };
        assert_eq!(common(own, &[]), 4);
        assert_eq!(common(own, &[heartbeat(5), heartbeat(3)]), 3);
        // Who does not fit ends, and is not written for.
        assert_eq!(common(own, &[heartbeat(1)]), 4);
    }
}
