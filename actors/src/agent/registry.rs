//! All agents of a node: by name, restarted under the same name, paused as the bucket says.

use std::{
    collections::BTreeMap,
    sync::{Arc, RwLock},
};

use bytes::Bytes;
use clawnode_budget::holder::HolderHandle;
use clawnode_cluster::{Bucket, BucketEntry, BucketError, StoreError};
use clawnode_guard::kill_switch::SwitchGate;
use clawnode_kernel::supervise::{ChildKind, Factory, Supervisor};
use clawnode_proto::{
    AgentName, Digest, Position,
    agents::{AgentPause, AgentView},
    codec,
    session::Profile,
    subject::AGENT_KEYS as KEYS,
};
use futures_util::{StreamExt, future::BoxFuture};
use ractor::SpawnErr;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::{AgentHandle, AgentOptions, slots::ProviderSlots};
use crate::llm::profile::ModelProfiles;

/// Tries at a pause that other nodes change at the same time.
const TRIES_MAX: u32 = 16;

/// The cause of a pause that no limit made.
const OPERATOR: &str = "operator";

/// No agent of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no agent is named `{0}`")]
pub struct UnknownAgent(pub String);

/// What the cluster knows of an agent.
#[derive(Debug, Default, Serialize, Deserialize)]
struct SharedAgents {
    paused: bool,
    /// Absent from older builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pause: Option<AgentPause>,
}

#[derive(Debug)]
struct AgentEntry {
    options: AgentOptions,
    handle: Option<AgentHandle>,
    paused: bool,
    /// Who paused it, and why.
    pause: Option<AgentPause>,
    /// The position of the record that says so: an older one changes nothing.
    position: Position,
    /// How often it was paused since the process started, by cause.
    pauses: BTreeMap<&'static str, u64>,
}

type AgentEntries = Arc<RwLock<BTreeMap<AgentName, AgentEntry>>>;

/// All agents of a node.
#[derive(Clone, Debug)]
pub struct Agents {
    entries: AgentEntries,
    bucket: Arc<dyn Bucket>,
    switch_gate: SwitchGate,
    budgets: HolderHandle,
    supervisor: Supervisor,
    slots: ProviderSlots,
}

impl Agents {
    /// Starts the agents, and follows their pauses and what operators stop. Each place that an agent gives
    /// says which accounts `budgets` knows then.
    pub fn spawn(
        options: Vec<AgentOptions>,
        bucket: Arc<dyn Bucket>,
        switch_gate: SwitchGate,
        budgets: HolderHandle,
        supervisor: Supervisor,
    ) -> BoxFuture<'static, Result<Self, SpawnErr>> {
        Box::pin(async move {
            let (entries, slots) = (AgentEntries::default(), ProviderSlots::default());
            let agents = Self { entries, bucket, switch_gate, budgets, supervisor, slots };
            agents.reload(options).await?;
            let following = agents.clone();
            let follow = move || follow(following.clone());
            agents.supervisor.adopt_task("agents.follow", follow).await?;
            let (entries, switch_gate) = (Arc::clone(&agents.entries), agents.switch_gate.clone());
            let follow = move || follow_switches(Arc::clone(&entries), switch_gate.clone());
            agents.supervisor.adopt_task("agents.latch", follow).await?;
            Ok(agents)
        })
    }

    /// Takes a new configuration: updates known agents, starts new ones, stops missing ones.
    pub fn reload(&self, options: Vec<AgentOptions>) -> BoxFuture<'_, Result<(), SpawnErr>> {
        Box::pin(async move {
            let limits = options.iter().map(|one| (one.name.clone(), one.limits)).collect();
            self.switch_gate.limit(&limits);
            let names: Vec<AgentName> = options.iter().map(|one| one.name.clone()).collect();
            let mut new = Vec::new();
            let mut old: Vec<AgentName> = self.names();
            old.retain(|name| !names.contains(name));
            {
                let mut entries = write(&self.entries);
                entries.retain(|name, _| names.contains(name));
                for one in options {
                    if let Some(entry) = entries.get_mut(&one.name) {
                        if entry.options != one {
                            info!(agent = %one.name, "agent reloaded");
                            if let Some(handle) = &entry.handle {
                                handle.reload(one.clone());
                            }
                            entry.options = one;
                        }
                    } else {
                        new.push(one.name.clone());
                        entries.insert(one.name.clone(), AgentEntry::new(one));
                    }
                }
            }
            for name in old {
                info!(agent = %name, "agent removed; its sessions wait until it is back");
                self.supervisor.dismiss(child_name(&name));
            }
            for name in new {
                self.start(name).await?;
            }
            Ok(())
        })
    }

    async fn start(&self, name: AgentName) -> Result<(), SpawnErr> {
        // Before its first turn: a pause outlives the node that heard of it.
        match self.bucket.get(&format!("{KEYS}{name}")).await {
            Ok(known) => self.heard(&name, known.as_ref(), false),
            Err(error) => warn!(agent = %name, %error, "cannot read whether an agent is paused"),
        }
        let (entries, switch_gate) = (Arc::clone(&self.entries), self.switch_gate.clone());
        let (child, budgets) = (child_name(&name), self.budgets.clone());
        let factory: Factory = Box::new(move |parent| {
            let (entries, name, switch_gate) =
                (Arc::clone(&entries), name.clone(), switch_gate.clone());
            let budgets = budgets.clone();
            Box::pin(async move {
                let known =
                    read(&entries).get(&name).map(|entry| (entry.options.clone(), entry.paused));
                let Some((options, paused)) = known else {
                    return Err(SpawnErr::StartupFailed(Box::new(UnknownAgent(name.to_string()))));
                };
                let handle =
                    AgentHandle::spawn(options.clone(), paused, switch_gate, budgets, parent)
                        .await?;
                if let Some(entry) = write(&entries).get_mut(&name) {
                    // Changes while it started did not reach it.
                    if entry.options != options {
                        handle.reload(entry.options.clone());
                    }
                    if entry.paused != paused {
                        handle.pause(entry.paused);
                    }
                    entry.handle = Some(handle.clone());
                }
                Ok(handle.cell())
            })
        });
        self.supervisor.adopt(child, ChildKind::Agent, factory).await
    }

    /// The agent of this name.
    pub fn get(&self, name: &AgentName) -> Result<AgentHandle, UnknownAgent> {
        read(&self.entries)
            .get(name)
            .and_then(|entry| entry.handle.clone())
            .ok_or_else(|| UnknownAgent(name.to_string()))
    }

    /// The configuration of the agent of this name, as its next turn would see it.
    pub fn profile(&self, name: &AgentName) -> Result<Profile, UnknownAgent> {
        read(&self.entries)
            .get(name)
            .map(|entry| entry.options.profile())
            .ok_or_else(|| UnknownAgent(name.to_string()))
    }

    /// Its configuration as it is written; nothing if there is no such agent.
    pub fn options(&self, name: &AgentName) -> Option<AgentOptions> {
        read(&self.entries).get(name).map(|entry| entry.options.clone())
    }

    /// Tools that the agent's configuration names and that are not known here.
    pub fn missing_tools(&self, name: &AgentName) -> Vec<String> {
        read(&self.entries).get(name).map(|entry| entry.options.missing.clone()).unwrap_or_default()
    }

    /// What the agents' calls ask for permission.
    pub const fn switch_gate(&self) -> &SwitchGate {
        &self.switch_gate
    }

    /// What their calls take from providers.
    pub const fn slots(&self) -> &ProviderSlots {
        &self.slots
    }

    /// What is known of models, by the configuration that they have now.
    pub fn profiles(&self) -> ModelProfiles {
        let entries = read(&self.entries);
        entries.values().next().map(|entry| entry.options.profiles.clone()).unwrap_or_default()
    }

    /// From which their calls reserve what they may cost.
    pub const fn budgets(&self) -> &HolderHandle {
        &self.budgets
    }

    /// Their names.
    pub fn names(&self) -> Vec<AgentName> {
        read(&self.entries).keys().cloned().collect()
    }

    /// What they look like now, in name order.
    pub fn views(&self) -> BoxFuture<'_, Vec<AgentView>> {
        Box::pin(async move {
            let handles: Vec<(AgentHandle, Option<AgentPause>)> = read(&self.entries)
                .values()
                .filter_map(|entry| Some((entry.handle.clone()?, entry.pause.clone())))
                .collect();
            let mut views = Vec::new();
            for (handle, pause) in handles {
                let view = handle.view().await;
                views.extend(view.map(|view| AgentView { pause, ..view }));
            }
            views
        })
    }

    /// The agents that are paused, by name, and why, as far as that is known.
    pub fn paused(&self) -> Vec<(AgentName, Option<AgentPause>)> {
        let entries = read(&self.entries);
        let paused = entries.iter().filter(|(_, entry)| entry.paused);
        paused.map(|(name, entry)| (name.clone(), entry.pause.clone())).collect()
    }

    /// How often each agent was paused in the cluster since this process started, by cause: `operator`, or the
    /// setting of a limit.
    pub fn pauses(&self) -> Vec<(AgentName, BTreeMap<&'static str, u64>)> {
        let entries = read(&self.entries);
        entries.iter().map(|(name, entry)| (name.clone(), entry.pauses.clone())).collect()
    }

    /// The digest of the agents' configuration; nodes of a cluster should agree on it.
    pub fn digest(&self) -> Digest {
        let profiles: Vec<_> =
            read(&self.entries).values().map(|entry| entry.options.profile()).collect();
        codec::encode(&profiles).map_or(Digest::ZERO, |bytes| Digest::of(&bytes))
    }

    /// Pauses an agent, or lets it go on (`None`), in the whole cluster. Answers once that is stored: whether
    /// it changed anything.
    pub async fn pause(
        &self,
        name: &AgentName,
        pause: Option<AgentPause>,
    ) -> Result<bool, BucketError> {
        let key = format!("{KEYS}{name}");
        let record = SharedAgents { paused: pause.is_some(), pause };
        let value = codec::encode(&record)
            .map(Bytes::from)
            .map_err(|error| StoreError::Refused { store: "bucket", detail: error.to_string() })?;
        for _ in 0..TRIES_MAX {
            let known = self.bucket.get(&key).await?;
            if let Some(known) = &known
                && let Some(stored) = as_wanted(&known.value, &record)
            {
                self.apply(name, known.position, stored, true);
                return Ok(false);
            }
            let expected = known.map_or(Position(0), |entry| entry.position);
            match self.bucket.put(&key, expected, value.clone(), None).await {
                Ok(position) => {
                    self.apply(name, position, record, true);
                    return Ok(true);
                }
                Err(BucketError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(BucketError::Conflict { key })
    }

    /// Takes in what the bucket says about an agent.
    fn heard(&self, name: &AgentName, entry: Option<&BucketEntry>, is_news: bool) {
        let Some(entry) = entry else { return };
        match codec::decode::<SharedAgents>(&entry.value) {
            Ok(record) => self.apply(name, entry.position, record, is_news),
            Err(error) => warn!(agent = %name, %error, "the pause of an agent is not readable"),
        }
    }

    /// Follows a record, unless it knows a later one.
    fn apply(&self, name: &AgentName, position: Position, record: SharedAgents, is_news: bool) {
        let SharedAgents { paused, pause } = record;
        let pause = pause.filter(|_| paused);
        let mut entries = write(&self.entries);
        let Some(entry) = entries.get_mut(name).filter(|entry| entry.position < position) else {
            return;
        };
        entry.position = position;
        if paused && is_news && (!entry.paused || entry.pause != pause) {
            let cause = pause.as_ref().map_or(OPERATOR, AgentPause::cause);
            *entry.pauses.entry(cause).or_default() += 1;
        }
        // Under the lock, so that two records are followed in their order.
        self.switch_gate.paused(name, pause.as_ref());
        entry.pause = pause;
        if entry.paused != paused {
            entry.paused = paused;
            info!(agent = %name, paused, "pause changed");
            if let Some(handle) = &entry.handle {
                handle.pause(paused);
            }
        }
    }
}

// === impl AgentEntry ===

impl AgentEntry {
    fn new(options: AgentOptions) -> Self {
        let (position, pauses) = (Position(0), BTreeMap::new());
        Self { options, handle: None, paused: false, pause: None, position, pauses }
    }
}

/// The stored record, if it says already what is wanted: a resumed agent is resumed, and an agent that a limit
/// paused is paused, whatever the reason of a second pause.
fn as_wanted(known: &[u8], wanted: &SharedAgents) -> Option<SharedAgents> {
    let known: SharedAgents = codec::decode(known).ok()?;
    let by_limit = known.pause.as_ref().is_some_and(|pause| pause.limit.is_some());
    (known.paused == wanted.paused && (!wanted.paused || by_limit)).then_some(known)
}

/// Follows the pauses that any node of the cluster sets.
async fn follow(agents: Agents) {
    let mut changes = match agents.bucket.watch(KEYS).await {
        Ok(changes) => changes,
        Err(error) => {
            warn!(%error, "cannot follow the agents' pauses; trying again");
            return;
        }
    };
    while let Some(change) = changes.next().await {
        let Some(name) = change.key.strip_prefix(KEYS).and_then(|name| name.parse().ok()) else {
            continue;
        };
        agents.heard(&name, change.entry.as_ref(), true);
    }
}

/// Has the agents look whenever what operators have stopped changes.
async fn follow_switches(entries: AgentEntries, switch_gate: SwitchGate) {
    let mut view = switch_gate.view();
    loop {
        view.mark_unchanged();
        let handles: Vec<AgentHandle> =
            read(&entries).values().filter_map(|entry| entry.handle.clone()).collect();
        handles.iter().for_each(AgentHandle::switch_changed);
        // The gate itself holds the sender.
        if view.changed().await.is_err() {
            return;
        }
    }
}

fn child_name(agent: &AgentName) -> String {
    format!("agent.{agent}")
}

fn read(entries: &AgentEntries) -> std::sync::RwLockReadGuard<'_, BTreeMap<AgentName, AgentEntry>> {
    entries.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn write(
    entries: &AgentEntries,
) -> std::sync::RwLockWriteGuard<'_, BTreeMap<AgentName, AgentEntry>> {
    entries.write().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use clawnode_budget::holder::{AccountLimits, ConfiguredBudgets, HolderOptions};
    use clawnode_cluster::SystemClock;
    use clawnode_local as local;
    use clawnode_proto::{
        ProcessId, Timestamp,
        agents::{AgentLimit, AgentLimits},
        budget::{AccountKey, BudgetLimit, BudgetUnit, WindowLength},
    };
    use tokio::sync::mpsc;

    use super::*;
    use crate::{agent::AdmitPort, agent::Grant};

    /// Tells what becomes of a question: granted, or dropped.
    struct Asking(mpsc::Sender<Option<Grant>>, bool);

    impl Drop for Asking {
        fn drop(&mut self) {
            if !self.1 {
                assert!(self.0.try_send(None).is_ok());
            }
        }
    }

    impl AdmitPort for Asking {
        fn granted(mut self: Box<Self>, grant: Grant) {
            self.1 = true;
            assert!(self.0.try_send(Some(grant)).is_ok());
        }

        fn deferred(&self) {}

        fn is_closed(&self) -> bool {
            false
        }

        fn stopped(
            self: Box<Self>,
            _: &clawnode_proto::kill_switch::KillSwitch,
        ) -> Option<Box<dyn AdmitPort>> {
            Some(self)
        }
    }

    #[tokio::test]
    async fn a_removed_agent_lets_go_of_who_waits_and_its_name_can_be_taken_again() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(SystemClock);
        let options = local::LocalOptions::new("cn".parse().unwrap(), clock);
        let (storage, _control) = local::open(dir.path(), options).unwrap();
        let supervisor = Supervisor::spawn().await.unwrap();
        let mut options = AgentOptions::new("ada".parse().unwrap(), "demo/echo".parse().unwrap());
        options.max_turns = 1;
        let name = options.name.clone();
        let budgets = HolderHandle::new(ProcessId::from_u128(1), HolderOptions::default());
        let agents = Agents::spawn(
            vec![options.clone()],
            Arc::clone(&storage.bucket),
            SwitchGate::default(),
            budgets.clone(),
            supervisor.clone(),
        )
        .await
        .unwrap();
        let (tx, mut rx) = mpsc::channel(8);
        let agent = agents.get(&name).unwrap();
        agent.admit(Box::new(Asking(tx.clone(), false)));
        let held = rx.recv().await.unwrap().unwrap();
        assert_eq!(*held.accounts, *budgets.accounts());
        let daily = BudgetLimit::new(BudgetUnit::Usd, WindowLength::Day, 1);
        let accounts = BTreeMap::from([(AccountKey::Cluster, vec![daily])]);
        let configured = ConfiguredBudgets { accounts, ..ConfiguredBudgets::default() };
        budgets.configure(configured, HolderOptions::default());
        agent.admit(Box::new(Asking(tx.clone(), false)));
        agents.reload(Vec::new()).await.unwrap();
        assert!(rx.recv().await.unwrap().is_none(), "who waits is let go, to ask again");
        assert!(agents.get(&name).is_err());
        let paused = options.clone();
        agents.reload(vec![options]).await.unwrap();
        agents.get(&name).unwrap().admit(Box::new(Asking(tx, false)));
        let next = rx.recv().await.unwrap().unwrap();
        let known = AccountLimits::of(&[daily], false);
        assert_eq!(
            next.accounts.accounts[&AccountKey::Cluster],
            known,
            "a place has what is known"
        );
        let children = supervisor.children().await;
        assert_eq!(children.iter().filter(|child| child.name == "agent.ada").count(), 1);
        drop(held);
        let operator = AgentPause {
            by: "operator at n".to_owned(),
            why: String::new(),
            at: Timestamp(1),
            limit: None,
        };
        assert!(agents.pause(&name, Some(operator.clone())).await.unwrap());
        let (bucket, switch_gate) = (Arc::clone(&storage.bucket), SwitchGate::default());
        let other = Supervisor::spawn().await.unwrap();
        let again = Agents::spawn(vec![paused], bucket, switch_gate, budgets, other.clone()).await;
        let again = again.unwrap();
        assert_eq!(again.paused(), [(name.clone(), Some(operator))], "known before the first turn");
        assert_eq!(again.pauses()[0].1, BTreeMap::new(), "it was paused before this process");
        other.stop().await;
        supervisor.stop().await;
        storage.health.close().await;
    }

    /// Two nodes of a cluster, and the pause that a limit makes.
    #[tokio::test]
    async fn a_pause_by_a_limit_reaches_other_nodes_once_and_a_resume_clears_it_there() {
        let dir = tempfile::tempdir().unwrap();
        let options = local::LocalOptions::new("cn".parse().unwrap(), Arc::new(SystemClock));
        let (storage, _control) = local::open(dir.path(), options).unwrap();
        let mut options = AgentOptions::new("ada".parse().unwrap(), "demo/echo".parse().unwrap());
        options.limits = AgentLimits { turns_per_hour: Some(1), ..AgentLimits::default() };
        let name = options.name.clone();
        let (supervisor, gates) =
            (Supervisor::spawn().await.unwrap(), [(); 2].map(|()| SwitchGate::default()));
        let other = Supervisor::spawn().await.unwrap();
        let node = |gate: &SwitchGate, supervisor: &Supervisor| {
            let bucket = Arc::clone(&storage.bucket);
            let budgets = HolderHandle::new(ProcessId::from_u128(1), HolderOptions::default());
            let (gate, supervisor) = (gate.clone(), supervisor.clone());
            Agents::spawn(vec![options.clone()], bucket, gate, budgets, supervisor)
        };
        let here = node(&gates[0], &supervisor).await.unwrap();
        let there = node(&gates[1], &other).await.unwrap();
        let turn = || gates[0].count(&name, AgentLimit::TurnsPerHour, 1);
        turn().unwrap();
        let exceeded = turn().unwrap_err();
        let limit = Some(AgentLimit::TurnsPerHour);
        let pause =
            AgentPause { by: "node a".to_owned(), why: "1".to_owned(), at: Timestamp(1), limit };
        assert!(here.pause(&name, Some(pause.clone())).await.unwrap());
        let late = AgentPause { by: "node b".to_owned(), ..pause.clone() };
        assert!(!there.pause(&name, Some(late)).await.unwrap(), "one node reports it");
        assert_eq!(there.paused(), [(name.clone(), Some(pause))]);
        assert_eq!(there.pauses()[0].1, BTreeMap::from([("turns_per_hour", 1)]));
        let ends = |gate: &SwitchGate| gate.switches().ends(&name).map(|end| end.scope.clone());
        assert_eq!(ends(&gates[1]), Some(exceeded.scope), "its turns end there, too");
        assert!(here.pause(&name, None).await.unwrap());
        let mut view = gates[1].view();
        while ends(&gates[1]).is_some() {
            view.changed().await.unwrap();
        }
        assert!(there.paused().is_empty());
        assert_eq!(turn(), Ok(()), "its counts start from 0 again");
        supervisor.stop().await;
        other.stop().await;
        storage.health.close().await;
    }
}
