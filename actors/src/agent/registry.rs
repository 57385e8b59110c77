//! All agents of a node: by name, restarted under the same name, paused as the bucket says.

use std::{
    collections::BTreeMap,
    sync::{Arc, RwLock},
};

use bytes::Bytes;
use clawnode_cluster::{Bucket, BucketError, StoreError};
use clawnode_guard::kill_switch::SwitchGate;
use clawnode_kernel::supervise::{ChildKind, Factory, Supervisor};
use clawnode_proto::{
    AgentName, Digest, Position, agents::AgentView, codec, session::Profile,
    subject::AGENT_KEYS as KEYS,
};
use futures_util::StreamExt;
use ractor::SpawnErr;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::{AgentHandle, AgentOptions, slots::ProviderSlots};

/// Tries at a pause that other nodes change at the same time.
const TRIES_MAX: u32 = 16;

/// No agent of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no agent is named `{0}`")]
pub struct UnknownAgent(pub String);

/// What the cluster knows of an agent.
#[derive(Debug, Default, Serialize, Deserialize)]
struct SharedAgents {
    paused: bool,
}

#[derive(Debug)]
struct AgentEntry {
    options: AgentOptions,
    handle: Option<AgentHandle>,
    paused: bool,
}

type AgentEntries = Arc<RwLock<BTreeMap<AgentName, AgentEntry>>>;

/// All agents of a node.
#[derive(Clone, Debug)]
pub struct Agents {
    entries: AgentEntries,
    bucket: Arc<dyn Bucket>,
    switch_gate: SwitchGate,
    supervisor: Supervisor,
    slots: ProviderSlots,
}

impl Agents {
    /// Starts the agents, and follows their pauses and what operators stop.
    pub async fn spawn(
        options: Vec<AgentOptions>,
        bucket: Arc<dyn Bucket>,
        switch_gate: SwitchGate,
        supervisor: Supervisor,
    ) -> Result<Self, SpawnErr> {
        let (entries, slots) = (AgentEntries::default(), ProviderSlots::default());
        let agents = Self { entries, bucket, switch_gate, supervisor, slots };
        agents.reload(options).await?;
        let (entries, bucket) = (Arc::clone(&agents.entries), Arc::clone(&agents.bucket));
        let follow = move || follow(Arc::clone(&entries), Arc::clone(&bucket));
        agents.supervisor.adopt_task("agents.follow", follow).await?;
        let (entries, switch_gate) = (Arc::clone(&agents.entries), agents.switch_gate.clone());
        let latch = move || follow_latches(Arc::clone(&entries), switch_gate.clone());
        agents.supervisor.adopt_task("agents.latch", latch).await?;
        Ok(agents)
    }

    /// Takes a new configuration: updates known agents, starts new ones, stops missing ones.
    pub async fn reload(&self, options: Vec<AgentOptions>) -> Result<(), SpawnErr> {
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
                    let entry = AgentEntry { options: one.clone(), handle: None, paused: false };
                    entries.insert(one.name, entry);
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
    }

    async fn start(&self, name: AgentName) -> Result<(), SpawnErr> {
        // Before its first turn: a pause outlives the node that heard of it.
        match self.bucket.get(&format!("{KEYS}{name}")).await {
            Ok(known) => heard(&self.entries, &name, known.as_ref()),
            Err(error) => warn!(agent = %name, %error, "cannot read whether an agent is paused"),
        }
        let (entries, switch_gate) = (Arc::clone(&self.entries), self.switch_gate.clone());
        let child = child_name(&name);
        let factory: Factory = Box::new(move |parent| {
            let (entries, name, switch_gate) =
                (Arc::clone(&entries), name.clone(), switch_gate.clone());
            Box::pin(async move {
                let known =
                    read(&entries).get(&name).map(|entry| (entry.options.clone(), entry.paused));
                let Some((options, paused)) = known else {
                    return Err(SpawnErr::StartupFailed(Box::new(UnknownAgent(name.to_string()))));
                };
                let handle =
                    AgentHandle::spawn(options.clone(), paused, switch_gate, parent).await?;
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

    /// Their names.
    pub fn names(&self) -> Vec<AgentName> {
        read(&self.entries).keys().cloned().collect()
    }

    /// What they look like now, in name order.
    pub async fn views(&self) -> Vec<AgentView> {
        let handles: Vec<AgentHandle> =
            read(&self.entries).values().filter_map(|entry| entry.handle.clone()).collect();
        let mut views = Vec::new();
        for handle in handles {
            views.extend(handle.view().await);
        }
        views
    }

    /// The digest of the agents' configuration; nodes of a cluster should agree on it.
    pub fn digest(&self) -> Digest {
        let profiles: Vec<_> =
            read(&self.entries).values().map(|entry| entry.options.profile()).collect();
        codec::encode(&profiles).map_or(Digest::ZERO, |bytes| Digest::of(&bytes))
    }

    /// Pauses an agent, or lets it go on, in the whole cluster. Answers once that is stored.
    pub async fn pause(&self, name: &AgentName, paused: bool) -> Result<(), BucketError> {
        let key = format!("{KEYS}{name}");
        let value = codec::encode(&SharedAgents { paused })
            .map(Bytes::from)
            .map_err(|error| StoreError::Refused { store: "bucket", detail: error.to_string() })?;
        for _ in 0..TRIES_MAX {
            let expected = self.bucket.get(&key).await?.map_or(Position(0), |entry| entry.position);
            match self.bucket.put(&key, expected, value.clone(), None).await {
                Ok(_) => {
                    apply(&self.entries, name, paused);
                    return Ok(());
                }
                Err(BucketError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(BucketError::Conflict { key })
    }
}

/// Follows the pauses that any node of the cluster sets.
async fn follow(entries: AgentEntries, bucket: Arc<dyn Bucket>) {
    let mut changes = match bucket.watch(KEYS).await {
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
        heard(&entries, &name, change.entry.as_ref());
    }
}

/// Has the agents look whenever what operators have stopped changes.
async fn follow_latches(entries: AgentEntries, switch_gate: SwitchGate) {
    let mut view = switch_gate.view();
    loop {
        view.mark_unchanged();
        let handles: Vec<AgentHandle> =
            read(&entries).values().filter_map(|entry| entry.handle.clone()).collect();
        handles.iter().for_each(AgentHandle::latch);
        // The gate itself holds the sender.
        if view.changed().await.is_err() {
            return;
        }
    }
}

fn heard(entries: &AgentEntries, name: &AgentName, entry: Option<&clawnode_cluster::BucketEntry>) {
    let shared = entry.map(|entry| codec::decode::<SharedAgents>(&entry.value));
    match shared.transpose() {
        Ok(shared) => apply(entries, name, shared.is_some_and(|shared| shared.paused)),
        Err(error) => warn!(agent = %name, %error, "the pause of an agent is not readable"),
    }
}

fn child_name(agent: &AgentName) -> String {
    format!("agent.{agent}")
}

fn apply(entries: &AgentEntries, name: &AgentName, paused: bool) {
    if let Some(entry) = write(entries).get_mut(name)
        && entry.paused != paused
    {
        entry.paused = paused;
        info!(agent = %name, paused, "pause changed");
        if let Some(handle) = &entry.handle {
            handle.pause(paused);
        }
    }
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
    use clawnode_cluster::SystemClock;
    use clawnode_local as local;
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
        let agents = Agents::spawn(
            vec![options.clone()],
            Arc::clone(&storage.bucket),
            SwitchGate::default(),
            supervisor.clone(),
        )
        .await
        .unwrap();
        let (tx, mut rx) = mpsc::channel(8);
        let agent = agents.get(&name).unwrap();
        agent.admit(Box::new(Asking(tx.clone(), false)));
        let held = rx.recv().await.unwrap().unwrap();
        agent.admit(Box::new(Asking(tx.clone(), false)));
        agents.reload(Vec::new()).await.unwrap();
        assert!(rx.recv().await.unwrap().is_none(), "who waits is let go, to ask again");
        assert!(agents.get(&name).is_err());
        let paused = options.clone();
        agents.reload(vec![options]).await.unwrap();
        agents.get(&name).unwrap().admit(Box::new(Asking(tx, false)));
        assert!(rx.recv().await.unwrap().is_some());
        let children = supervisor.children().await;
        assert_eq!(children.iter().filter(|child| child.name == "agent.ada").count(), 1);
        drop(held);
        agents.pause(&name, true).await.unwrap();
        let (bucket, switch_gate) = (Arc::clone(&storage.bucket), SwitchGate::default());
        let other = Supervisor::spawn().await.unwrap();
        let again = Agents::spawn(vec![paused], bucket, switch_gate, other.clone()).await.unwrap();
        assert!(again.views().await[0].paused, "a pause is known before the first turn");
        other.stop().await;
        supervisor.stop().await;
        storage.health.close().await;
    }
}
