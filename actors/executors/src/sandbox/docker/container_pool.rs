//! Which containers are ready, in use or to be removed: pure, it takes the time as a value.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use super::{DockerOptions, labels::FoundContainer};
use crate::sandbox::spec::SandboxPolicy;

/// Kinds of containers that are remembered; beyond it the one that was used longest ago goes.
const KINDS: usize = 64;

/// A container of ours: what the engine calls it, and what we do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Container {
    pub(super) id: String,
    pub(super) key: String,
}

#[derive(Debug, Default)]
pub(super) struct ContainerPool {
    kinds: HashMap<SandboxPolicy, PoolKind>,
    /// In use or being made, by key, with the job that it is for.
    busy: HashMap<String, Option<String>>,
    /// To be removed, by the engine's id.
    doomed: BTreeSet<String>,
    /// Nothing is made any more.
    closed: bool,
}

#[derive(Debug)]
struct PoolKind {
    ready: VecDeque<Container>,
    used: Instant,
}

// === impl ContainerPool ===

impl ContainerPool {
    /// Takes one that is ready; it is in use from now on.
    pub(super) fn take(
        &mut self,
        policy: &SandboxPolicy,
        job: &str,
        now: Instant,
    ) -> Option<Container> {
        if !self.kinds.contains_key(policy) && self.kinds.len() >= KINDS {
            self.forget_oldest();
        }
        let kind = self.kinds.entry(policy.clone()).or_insert_with(|| PoolKind::used(now));
        kind.used = now;
        let container = kind.ready.pop_front()?;
        self.busy.insert(container.key.clone(), Some(job.to_owned()));
        Some(container)
    }

    /// One is about to be made, for a job or to stand ready; not when nothing is made any more.
    pub(super) fn begin(&mut self, key: &str, job: Option<&str>) -> bool {
        if !self.closed {
            self.busy.insert(key.to_owned(), job.map(str::to_owned));
        }
        !self.closed
    }

    /// One was made to stand ready.
    pub(super) fn put(&mut self, policy: &SandboxPolicy, container: Container) {
        self.busy.remove(&container.key);
        match self.kinds.get_mut(policy) {
            Some(kind) if !self.closed => kind.ready.push_back(container),
            _ => drop(self.doomed.insert(container.id)),
        }
    }

    /// It is no longer in use. Without an id it was never made, as far as is known.
    pub(super) fn done(&mut self, key: &str, id: Option<String>) {
        self.busy.remove(key);
        self.doomed.extend(id);
    }

    /// The kind of which one should be made to stand ready, if any.
    pub(super) fn wanted(&self, options: &DockerOptions, now: Instant) -> Option<SandboxPolicy> {
        let ready: usize = self.kinds.values().map(|kind| kind.ready.len()).sum();
        if self.closed || ready >= options.warm_total.get() {
            return None;
        }
        let short = self.kinds.iter().filter(|(_, kind)| {
            kind.ready.len() < options.warm && !kind.is_idle(options.warm_idle, now)
        });
        short
            .min_by_key(|(_, kind)| (kind.ready.len(), now - kind.used))
            .map(|(policy, _)| policy.clone())
    }

    /// Removes the containers of kinds that were not used lately.
    pub(super) fn let_go(&mut self, idle: Duration, now: Instant) {
        for (_, kind) in self.kinds.extract_if(|_, kind| kind.is_idle(idle, now)) {
            self.doomed.extend(kind.ready.into_iter().map(|container| container.id));
        }
    }

    /// Those that stand ready are no more: their engine was started again, or all must go.
    pub(super) fn clear(&mut self) {
        for kind in self.kinds.values_mut() {
            self.doomed.extend(kind.ready.drain(..).map(|container| container.id));
        }
    }

    /// No more containers are made, and those that are ready go.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.clear();
    }

    /// Of the cluster's containers, those that are not needed: of dead processes, of jobs that this
    /// process runs now, and of this process if it does not know them.
    pub(super) fn judge(
        &mut self,
        found: Vec<FoundContainer>,
        is_mine: impl Fn(&FoundContainer) -> bool,
        is_dead: impl Fn(&FoundContainer) -> bool,
    ) {
        let jobs: BTreeSet<&String> = self.busy.values().flatten().collect();
        let ready: BTreeSet<&String> = self
            .kinds
            .values()
            .flat_map(|kind| kind.ready.iter().map(|container| &container.key))
            .collect();
        let doomed = found.into_iter().filter(|container| {
            if is_mine(container) {
                return !self.busy.contains_key(&container.key) && !ready.contains(&container.key);
            }
            is_dead(container) || container.job.as_ref().is_some_and(|job| jobs.contains(job))
        });
        let doomed: Vec<String> = doomed.map(|container| container.id).collect();
        self.doomed.extend(doomed);
    }

    /// What is to be removed.
    pub(super) fn doomed(&self) -> Vec<String> {
        self.doomed.iter().cloned().collect()
    }

    /// It is removed.
    pub(super) fn removed(&mut self, id: &str) {
        self.doomed.remove(id);
    }

    /// Containers that stand ready.
    pub(super) fn ready(&self) -> usize {
        self.kinds.values().map(|kind| kind.ready.len()).sum()
    }

    fn forget_oldest(&mut self) {
        let oldest = self
            .kinds
            .iter()
            .min_by_key(|(_, kind)| kind.used)
            .map(|(kind_name, _)| kind_name.clone());
        if let Some(kind) = oldest.and_then(|policy| self.kinds.remove(&policy)) {
            self.doomed.extend(kind.ready.into_iter().map(|container| container.id));
        }
    }
}

// === impl PoolKind ===

impl PoolKind {
    const fn used(now: Instant) -> Self {
        Self { ready: VecDeque::new(), used: now }
    }

    fn is_idle(&self, longest: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.used) >= longest
    }
}
