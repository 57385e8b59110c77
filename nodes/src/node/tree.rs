//! What this process runs, and what the others say that they run.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use clawnode_actors::agent::Agents;
use clawnode_cluster::{BusEvent, BusMessage, Peek, Storage, membership::Members};
use clawnode_kernel::{
    driver::{DispatcherView, Worker},
    supervise::{ChildKind, ChildView, Supervisor},
};
use clawnode_proto::{
    ErrorBody, ErrorCode, Partition, codec,
    limits::TREE_ENTITIES,
    node::{Heartbeat, NodeReply, NodeRequest},
    overview::TreeView,
    tree::{Branch, ProcessTree},
};
use futures_util::{StreamExt, future::join_all};
use tokio::sync::watch;
use tracing::{debug, warn};

/// How long another process may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);
/// How long a dispatcher may take to answer.
const LOOK_WITHIN: Duration = Duration::from_millis(250);
/// Entities that one dispatcher names.
const NAMED_MAX: usize = 16;
/// Dispatchers that are named; the rest is counted.
const DISPATCHERS_MAX: usize = 64;

/// The parts of a process that its tree shows.
#[derive(Clone)]
pub struct Roots {
    /// What this process says of itself.
    pub heartbeat: Arc<dyn Fn() -> Heartbeat + Send + Sync>,
    /// What looks after everything.
    pub supervisor: Supervisor,
    /// Who answers.
    pub agents: Agents,
    /// The dispatchers, once there are any.
    pub worker: Arc<OnceLock<Worker>>,
    /// Where clients are served, once they are.
    pub gateway: Arc<OnceLock<String>>,
}

impl std::fmt::Debug for Roots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Roots").finish_non_exhaustive()
    }
}

// === impl Roots ===

impl Roots {
    /// What this process runs now.
    pub async fn tree(&self) -> ProcessTree {
        let (children, agents) = tokio::join!(self.supervisor.children(), self.agents.views());
        let mut branches = Vec::new();
        if let Some(url) = self.gateway.get() {
            let detail = Some(url.clone());
            branches.push(Branch { detail, ..branch("gateway", "gateway", "up") });
        }
        for child in children.iter().filter(|child| child.kind == ChildKind::Task) {
            branches.push(supervised(child, "task"));
        }
        for child in children.iter().filter(|child| child.kind == ChildKind::Agent) {
            let name = child.name.strip_prefix("agent.");
            let view = agents.iter().find(|view| Some(view.agent.as_str()) == name);
            let detail = view.map(|view| {
                let paused = if view.paused { ", paused" } else { "" };
                let (running, most, waiting) = (view.running, view.max_turns, view.waiting);
                format!("{running} of {most} turns, {waiting} waiting{paused}")
            });
            branches.push(Branch { detail, ..supervised(child, "agent") });
        }
        branches.extend(self.dispatchers(&children).await);
        let Heartbeat { process, node, roles, .. } = (self.heartbeat)();
        ProcessTree { process, node, roles, branches }
    }

    async fn dispatchers(&self, children: &[ChildView]) -> Option<Branch> {
        let worker = self.worker.get()?;
        let dispatchers = children.iter().filter(|child| child.kind == ChildKind::Dispatcher);
        let mut looked = join_all(dispatchers.map(|child| async move {
            let partition = child.name.rsplit('.').next().and_then(|text| text.parse().ok());
            let dispatcher = partition.and_then(|number| worker.dispatcher(Partition(number)));
            let view = match dispatcher {
                Some(handle) => tokio::time::timeout(LOOK_WITHIN, handle.view(NAMED_MAX)).await,
                None => Ok(None),
            };
            (partition.unwrap_or(u16::MAX), child, view.ok().flatten())
        }))
        .await;
        looked.sort_by_key(|(partition, ..)| *partition);
        let total = looked.len();
        let mut left = TREE_ENTITIES;
        // Those at rest are all alike.
        let notable = looked
            .into_iter()
            .filter(|(_, child, view)| {
                !child.up || child.ends > 0 || view.as_ref().is_none_or(|view| view.entities > 0)
            })
            .take(DISPATCHERS_MAX)
            .map(|(_, child, view)| dispatcher(child, view, &mut left))
            .collect::<Vec<_>>();
        let more = (total - notable.len()) as u64;
        let detail = Some(format!("{total} partitions"));
        Some(Branch { detail, children: notable, more, ..branch("dispatchers", "group", "up") })
    }

    /// Answers others who ask what this process runs, until the bus is closed.
    pub async fn answer(self, storage: Storage) {
        let subject = storage.prefix.rpc((self.heartbeat)().process);
        let mut requests = match storage.bus.subscribe(subject).await {
            Ok(requests) => requests,
            Err(failure) => {
                warn!(%failure, "cannot listen for requests; trying again");
                return;
            }
        };
        // One at a time: a tree is a look at everything.
        while let Some(event) = requests.next().await {
            if let BusEvent::Message(message) = event {
                self.answer_one(&storage, message).await;
            }
        }
    }

    async fn answer_one(&self, storage: &Storage, message: BusMessage) {
        // All other requests are answered by those whom they concern.
        let Ok(NodeRequest::Tree) = codec::decode(&message.payload) else { return };
        let Some(to) = message.answer_to() else { return };
        let Ok(bytes) = codec::encode(&NodeReply::Tree { tree: self.tree().await }) else { return };
        if let Err(failure) = storage.bus.publish(to.to_owned(), None, Bytes::from(bytes)).await {
            debug!(%failure, "a tree was not sent");
        }
    }

    /// The trees of all processes, or of those that `node` names.
    pub async fn gather(
        &self,
        storage: &Storage,
        members: &watch::Receiver<Members>,
        node: Option<&str>,
    ) -> Result<TreeView, ErrorBody> {
        let own = (self.heartbeat)();
        let mut alive = members.peek(|members| members.alive.clone());
        alive.retain(|one| one.process != own.process);
        alive.push(own.clone());
        if let Some(node) = node {
            alive.retain(|process| {
                process.node.as_str() == node || process.process.to_string() == node
            });
            if alive.is_empty() {
                let what = format!("no node is called `{node}`");
                return Err(ErrorBody::new(ErrorCode::NotFound, what)
                    .hint("`clawnode nodes` shows the nodes there are"));
            }
        }
        alive.sort_by(|a, b| (&a.node, a.process).cmp(&(&b.node, b.process)));
        let asked = join_all(alive.iter().map(|one| async {
            if one.process == own.process {
                Some(self.tree().await)
            } else {
                ask(storage, one).await
            }
        }));
        let mut view = TreeView::default();
        for (one, tree) in alive.iter().zip(asked.await) {
            match tree {
                Some(tree) => view.processes.push(tree),
                None => view.silent.push(one.node.clone()),
            }
        }
        Ok(view)
    }
}

async fn ask(storage: &Storage, one: &Heartbeat) -> Option<ProcessTree> {
    let request = Bytes::from(codec::encode(&NodeRequest::Tree).ok()?);
    let subject = storage.prefix.rpc(one.process);
    match storage.bus.request(subject, request, ANSWER_WITHIN).await {
        Ok(bytes) => match codec::decode(&bytes) {
            Ok(NodeReply::Tree { tree }) => Some(tree),
            Ok(_) | Err(_) => None,
        },
        Err(failure) => {
            debug!(node = %one.node, %failure, "a node does not report what it runs");
            None
        }
    }
}

fn dispatcher(child: &ChildView, view: Option<DispatcherView>, left: &mut usize) -> Branch {
    let up = supervised(child, "dispatcher");
    let Some(view) = view else {
        let state = if child.up { "silent" } else { "restarting" };
        return Branch { state: state.to_owned(), ..up };
    };
    let named: Vec<Branch> = view
        .named
        .iter()
        .take(*left)
        .map(|(entity, state)| branch(&entity.to_string(), "entity", state))
        .collect();
    *left -= named.len();
    let more = view.entities.saturating_sub(named.len()) as u64;
    Branch { children: named, more, ..up }
}

fn supervised(child: &ChildView, kind: &str) -> Branch {
    let state = if child.up { "up" } else { "restarting" };
    Branch { restarts: child.ends, ..branch(&child.name, kind, state) }
}

fn branch(name: &str, kind: &str, state: &str) -> Branch {
    let (name, kind, state) = (name.to_owned(), kind.to_owned(), state.to_owned());
    Branch { name, kind, state, ..Branch::default() }
}
