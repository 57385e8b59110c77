//! The cluster as documents: nodes, and who serves which partition.

use std::collections::BTreeMap;

use clawnode_cluster::{Depth, membership::Members, placement::serving};
use clawnode_proto::{
    NodeName, Partition, ProcessId,
    node::Heartbeat,
    overview::{PartitionList, PartitionView},
    view::NodeView,
};

/// The processes that are held alive, `own` included even if it has not heard itself yet; in name
/// order.
pub fn alive(own: Heartbeat, members: &Members) -> Vec<Heartbeat> {
    let others = members.alive.iter().filter(|one| one.process != own.process).cloned();
    let mut nodes: Vec<Heartbeat> = others.collect();
    nodes.push(own);
    nodes.sort_by(|a, b| (&a.node, a.process).cmp(&(&b.node, b.process)));
    nodes
}

/// One process as a document.
pub fn node(heartbeat: Heartbeat) -> NodeView {
    NodeView {
        node: heartbeat.node,
        process: heartbeat.process,
        version: heartbeat.version,
        roles: heartbeat.roles,
        started: heartbeat.started,
        draining: heartbeat.draining,
        entities: heartbeat.entities,
        config: heartbeat.config,
        cordoned: heartbeat.cordoned,
        speaks: heartbeat.speaks,
        capabilities: heartbeat.capabilities,
        load: heartbeat.load,
        shed: heartbeat.shed,
        first_of: heartbeat.first_of,
        url: heartbeat.url,
    }
}

/// What processes are called.
pub fn names(nodes: &[Heartbeat]) -> BTreeMap<ProcessId, NodeName> {
    nodes.iter().map(|one| (one.process, one.node.clone())).collect()
}

/// Who serves which of `count` partitions, and what waits in them where that is known.
pub fn partitions(count: u16, nodes: &[Heartbeat], depths: Option<&[Depth]>) -> PartitionList {
    let view = Members { alive: nodes.to_vec(), ..Members::default() };
    let seats = view.seats();
    let partition = |number: u16| {
        let partition = Partition(number);
        let serve = serving(partition, &seats).into_iter().map(|(_, process)| process).collect();
        let depth = depths.and_then(|depths| depths.get(usize::from(number)));
        PartitionView {
            partition,
            serve,
            waiting: depth.map(|depth| depth.waiting),
            in_hand: depth.map(|depth| depth.in_hand),
        }
    };
    let mut names = names(nodes);
    names.retain(|process, _| seats.iter().any(|seat| seat.process == *process));
    PartitionList { partitions: (0..count).map(partition).collect(), nodes: names }
}
