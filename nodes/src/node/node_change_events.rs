//! Events about nodes that this process sees, sent on the feed.
//!
//! Each process reports its own. If a process fell silent, or an event concerns all, the eldest
//! process reports it (its process id is the lowest, because ids begin with their time), so that it
//! is reported once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use clawnode_cluster::{Feed, PeekSeen, membership::Members};
use clawnode_proto::{
    Digest, NodeName, ProcessId,
    feed::EventBody,
    node::{Heartbeat, NodeRole},
    view::WarningView,
};
use tokio::sync::watch;

/// The name of the warning of a clock that differs from most.
pub const CLOCK_DIFFERS: &str = "nodes.clock_differs";

/// The events that were sent already.
#[derive(Debug, Default)]
struct ReportedEvents {
    own: Option<(bool, bool)>,
    /// The names of nodes, and whether they were draining.
    names: BTreeMap<ProcessId, (NodeName, bool)>,
    dead: BTreeSet<ProcessId>,
    differs: bool,
}

/// Sends events about changes of nodes, as long as the process lives.
pub async fn run(
    feed: Feed,
    heartbeat: Arc<dyn Fn() -> Heartbeat + Send + Sync>,
    mut members: watch::Receiver<Members>,
) {
    let mut told = ReportedEvents::default();
    loop {
        let view = members.peek_seen(Clone::clone);
        for event in told.changes(&heartbeat(), &view) {
            feed.tell(event);
        }
        if members.changed().await.is_err() {
            // There is no other process: this one is the whole cluster.
            std::future::pending::<()>().await;
        }
    }
}

/// The warning if nodes have different agents.
pub fn config_differs(nodes: &[Heartbeat]) -> Option<WarningView> {
    let configs: BTreeSet<_> = nodes.iter().map(|node| node.config).collect();
    (configs.len() > 1).then(|| WarningView {
        name: "agents.config_differs".to_owned(),
        message: format!(
            "the nodes have {} different configurations of their agents",
            configs.len()
        ),
        hint: "give every node the same `[agents]`, or a session behaves differently after its \
               owner changes; `clawnode nodes -o wide` shows which differ"
            .to_owned(),
    })
}

/// The name of the warning of [`spending_differs`].
pub const SPENDING_DIFFERS: &str = "budgets.differ";
/// Nodes that it names.
const DIFFERING_TOLD: usize = 8;

/// The warning if workers have different settings of budgets or prices: each sends accounts what its own says.
/// It names those that are not like most. What an older build has is not known.
pub fn spending_differs(nodes: &[Heartbeat]) -> Option<WarningView> {
    let mut alike: BTreeMap<Digest, Vec<&NodeName>> = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.roles.contains(&NodeRole::Worker)) {
        alike.entry(node.spending?).or_default().push(&node.node);
    }
    let most = alike.iter().max_by_key(|(_, nodes)| nodes.len()).map(|(digest, _)| *digest)?;
    let others = alike.iter().filter(|(digest, _)| **digest != most);
    let mut others: Vec<String> =
        others.flat_map(|(_, nodes)| nodes).map(|name| format!("`{name}`")).collect();
    if others.is_empty() {
        return None;
    }
    others.sort();
    let more = others.len().saturating_sub(DIFFERING_TOLD);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    others.truncate(DIFFERING_TOLD);
    Some(WarningView {
        name: SPENDING_DIFFERS.to_owned(),
        message: format!(
            "`[budgets]` or `[prices]` of {}{more} differ from those of other workers",
            others.join(", ")
        ),
        hint: "give all workers the same: the limits of the worker that started or read its file last are in \
               force, and each prices calls by its own file; `clawnode config show` shows a node's"
            .to_owned(),
    })
}

/// The warnings about clocks that differ from most others, one for each node.
pub fn clocks_apart(view: &Members) -> Vec<WarningView> {
    let warning = |(process, ahead): (&ProcessId, &i64)| {
        let node = view.alive.iter().find(|one| one.process == *process)?;
        let (by, way) = (ahead.unsigned_abs(), if *ahead < 0 { "behind" } else { "ahead of" });
        Some(WarningView {
            name: CLOCK_DIFFERS.to_owned(),
            message: format!("the clock of `{}` is {by} s {way} the others", node.node),
            hint:
                "run an NTP client on every host; a node whose clock differs uses the time of most \
                 nodes; without a majority, no node knows which clock is wrong"
                    .to_owned(),
        })
    };
    view.clocks.iter().filter_map(warning).collect()
}

/// Whether no living process serves sessions.
pub fn is_headless(alive: &[Heartbeat]) -> bool {
    !alive.iter().any(|one| one.roles.contains(&NodeRole::Worker))
}

/// The warning that no process serves sessions while this many messages wait.
pub fn no_worker(waiting: Option<u64>) -> WarningView {
    let waits = match waiting {
        Some(0) => "no message waits".to_owned(),
        Some(1) => "1 message waits".to_owned(),
        Some(count) => format!("{count} messages wait"),
        None => "messages are stored and wait".to_owned(),
    };
    WarningView {
        name: "nodes.no_worker".to_owned(),
        message: format!("no worker is alive: {waits}"),
        hint: "start one: `clawnode --role worker`; nothing that is stored is lost".to_owned(),
    }
}

// === impl ReportedEvents ===

impl ReportedEvents {
    fn changes(&mut self, own: &Heartbeat, view: &Members) -> Vec<EventBody> {
        let mut events = Vec::new();
        let (cordoned, draining) = self.own.unwrap_or_default();
        if self.own.is_none() {
            let (version, roles) = (own.version.clone(), own.roles.clone());
            events.push(EventBody::NodeJoined { version, roles });
        }
        if own.cordoned != cordoned {
            events.push(EventBody::NodeCordoned { on: own.cordoned });
        }
        if own.draining && !draining {
            events.push(EventBody::NodeDraining);
        }
        self.own = Some((own.cordoned, own.draining));
        for one in &view.alive {
            self.names.insert(one.process, (one.node.clone(), one.draining));
        }
        let eldest = view.alive.iter().map(|one| one.process).min();
        let tells = eldest.is_none_or(|eldest| eldest == own.process);
        for process in view.dead.difference(&self.dead) {
            let name = self.names.get(process);
            // A process that drained has reported itself that it left.
            if tells && !name.is_some_and(|(_, draining)| *draining) {
                let node = name.map(|(node, _)| node.clone());
                events.push(EventBody::NodeDead { process: *process, node });
            }
        }
        self.dead.clone_from(&view.dead);
        let known =
            |process: &ProcessId| view.dead.contains(process) || is_alive(&view.alive, *process);
        self.names.retain(|process, _| known(process));
        let differs = config_differs(&view.alive);
        if let (Some(warning), true, false) = (&differs, tells, self.differs) {
            let (name, message) = (warning.name.clone(), warning.message.clone());
            events.push(EventBody::Warning { name, message });
        }
        self.differs = differs.is_some();
        events
    }
}

fn is_alive(alive: &[Heartbeat], process: ProcessId) -> bool {
    alive.iter().any(|one| one.process == process)
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        Digest, Timestamp,
        node::{Load, VersionRange},
    };

    use super::*;

    fn heartbeat(process: u128) -> Heartbeat {
        Heartbeat {
            providers: Vec::new(),
            process: ProcessId::from_u128(process),
            node: format!("node-{process}").parse().unwrap(),
            version: "1".to_owned(),
            roles: vec![NodeRole::Worker],
            started: Timestamp(0),
            draining: false,
            entities: 0,
            config: Digest::ZERO,
            cordoned: false,
            speaks: VersionRange::default(),
            capabilities: BTreeSet::new(),
            load: Load::default(),
            shed: 0,
            first_of: 0,
            knows: BTreeSet::new(),
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
    fn workers_that_price_or_limit_calls_otherwise_are_named() {
        let worker = |process: u128, said: &[u8]| Heartbeat {
            node: format!("w{process}").parse().unwrap(),
            spending: Some(Digest::of(said)),
            ..heartbeat(process)
        };
        let alike = [worker(1, b"a"), worker(2, b"a"), worker(3, b"a")];
        assert_eq!(spending_differs(&alike), None);
        let gateway = Heartbeat { roles: vec![NodeRole::Gateway], ..worker(4, b"b") };
        assert_eq!(spending_differs(&[worker(1, b"a"), gateway]), None, "it sends no limits");
        let differ = [worker(3, b"b"), worker(1, b"a"), worker(2, b"a"), worker(4, b"c")];
        let warning = spending_differs(&differ).unwrap();
        assert!(warning.message.contains("of `w3`, `w4` differ"), "{}", warning.message);
        let older = Heartbeat { spending: None, ..worker(2, b"a") };
        assert_eq!(spending_differs(&[worker(1, b"a"), older]), None, "it does not say");
    }

    #[test]
    fn without_a_worker_somebody_must_start_one() {
        let worker = heartbeat(1);
        let gateway = Heartbeat { roles: vec![NodeRole::Gateway], ..heartbeat(2) };
        assert!(!is_headless(&[gateway.clone(), worker]));
        assert!(is_headless(&[gateway]));
        let warning = no_worker(Some(3));
        assert!(warning.is_fatal());
        assert_eq!(warning.message, "no worker is alive: 3 messages wait");
        assert!(warning.hint.contains("--role worker"));
    }

    fn members(alive: &[Heartbeat], dead: &[u128]) -> Members {
        Members {
            alive: alive.to_vec(),
            dead: dead.iter().map(|process| ProcessId::from_u128(*process)).collect(),
            settled: true,
            heard_all: true,
            clocks: BTreeMap::new(),
        }
    }

    fn names(events: &[EventBody]) -> Vec<&'static str> {
        events.iter().map(EventBody::name).collect()
    }

    #[test]
    fn the_eldest_tells_of_the_dead_and_each_of_itself() {
        let (one, two, three) = (heartbeat(1), heartbeat(2), heartbeat(3));
        let all = members(&[one.clone(), two.clone(), three], &[]);
        let (mut eldest, mut second) = (ReportedEvents::default(), ReportedEvents::default());
        assert_eq!(names(&eldest.changes(&one, &all)), ["node_joined"]);
        assert_eq!(names(&second.changes(&two, &all)), ["node_joined"]);
        let less = members(&[one.clone(), two.clone()], &[3]);
        let dead = EventBody::NodeDead {
            process: ProcessId::from_u128(3),
            node: Some("node-3".parse().unwrap()),
        };
        assert_eq!(eldest.changes(&one, &less), [dead]);
        assert_eq!(second.changes(&two, &less), []);
        assert_eq!(eldest.changes(&one, &less), [], "once");
        // The eldest dies itself: the next one is the eldest.
        let last = members(std::slice::from_ref(&two), &[1, 3]);
        assert_eq!(names(&second.changes(&two, &last)), ["node_dead"]);
    }

    #[test]
    fn who_drains_says_so_itself_and_does_not_die() {
        let (one, mut two) = (heartbeat(1), heartbeat(2));
        let mut told = ReportedEvents::default();
        told.changes(&two, &members(&[two.clone()], &[]));
        two.cordoned = true;
        assert_eq!(
            told.changes(&two, &members(&[two.clone()], &[])),
            [EventBody::NodeCordoned { on: true }]
        );
        two.draining = true;
        let both = members(&[one.clone(), two.clone()], &[]);
        assert_eq!(names(&told.changes(&two, &both)), ["node_draining"]);
        let mut eldest = ReportedEvents::default();
        eldest.changes(&one, &both);
        assert_eq!(eldest.changes(&one, &members(std::slice::from_ref(&one), &[2])), []);
    }

    #[test]
    fn a_clock_that_differs_is_told_with_the_name_of_its_node() {
        let mut view = members(&[heartbeat(1), heartbeat(2)], &[]);
        assert_eq!(clocks_apart(&view), []);
        let by = [(1, -86_400), (2, 3_600), (3, 7)];
        view.clocks = by.map(|(process, by)| (ProcessId::from_u128(process), by)).into();
        let told = clocks_apart(&view);
        let told: Vec<&str> = told.iter().map(|one| one.message.as_str()).collect();
        assert_eq!(
            told,
            [
                "the clock of `node-1` is 86400 s behind the others",
                "the clock of `node-2` is 3600 s ahead of the others",
            ],
            "who is gone has no clock"
        );
    }

    #[test]
    fn differing_configurations_are_told_once() {
        let (one, mut two) = (heartbeat(1), heartbeat(2));
        let mut told = ReportedEvents::default();
        told.changes(&one, &members(&[one.clone(), two.clone()], &[]));
        two.config = Digest::of(b"other");
        let view = members(&[one.clone(), two], &[]);
        assert_eq!(names(&told.changes(&one, &view)), ["warning"]);
        assert_eq!(told.changes(&one, &view), []);
    }
}
