//! Drains, cordons and uncordons a node for an operator: finds its process by name, refuses what would leave no
//! worker, and sends it the order.

use clawnode_cluster::Storage;
use clawnode_proto::{
    ErrorBody, ErrorCode,
    node::{NodeRequest, NodeRole},
    view::NodeView,
};

use super::node_requests::tell;

/// An operator's order to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeOrder {
    /// Hand everything over and end.
    Drain {
        /// Also if no worker is left then.
        force: bool,
    },
    /// Take no more entities.
    Cordon,
    /// Take them again.
    Uncordon,
}

/// Gives one of `nodes` an order; returns the node as it is from then on.
pub async fn give(
    storage: &Storage,
    nodes: &[NodeView],
    name: &str,
    order: NodeOrder,
) -> Result<NodeView, ErrorBody> {
    if !storage.shared {
        return Err(ErrorBody::new(
            ErrorCode::Unsupported,
            "this node is alone: no other node can take its sessions".to_owned(),
        )
        .hint("send it SIGTERM: it ends after its running calls, and its next start continues"));
    }
    let mut node = find(nodes, name)?.clone();
    check(nodes, &node, order)?;
    let request = match order {
        NodeOrder::Drain { .. } => NodeRequest::Drain,
        NodeOrder::Cordon => NodeRequest::Cordon { on: true },
        NodeOrder::Uncordon => NodeRequest::Cordon { on: false },
    };
    tell(storage, &node, &request).await?;
    match order {
        NodeOrder::Drain { .. } => node.draining = true,
        NodeOrder::Cordon => node.cordoned = true,
        NodeOrder::Uncordon => node.cordoned = false,
    }
    Ok(node)
}

/// The node of this name or process id.
fn find<'a>(nodes: &'a [NodeView], name: &str) -> Result<&'a NodeView, ErrorBody> {
    let meant =
        |other: &&NodeView| other.node.as_str() == name || other.process.to_string() == name;
    let found: Vec<&NodeView> = nodes.iter().filter(meant).collect();
    match found[..] {
        [one] => Ok(one),
        [] => {
            let names: Vec<String> = nodes.iter().map(|other| other.node.to_string()).collect();
            let hint = format!("the nodes are: {}; a process id works too", names.join(", "));
            Err(ErrorBody::new(ErrorCode::NotFound, format!("no node is named `{name}`"))
                .hint(hint))
        }
        _ => {
            let ids: Vec<String> = found.iter().map(|other| other.process.to_string()).collect();
            let message = format!("{} nodes are named `{name}`", found.len());
            Err(ErrorBody::new(ErrorCode::Conflict, message)
                .hint(format!("name one by its process id: {}", ids.join(", "))))
        }
    }
}

fn check(nodes: &[NodeView], node: &NodeView, order: NodeOrder) -> Result<(), ErrorBody> {
    let name = &node.node;
    let conflict = |message: String| ErrorBody::new(ErrorCode::Conflict, message);
    if node.draining {
        return Err(conflict(format!("node `{name}` is draining already"))
            .hint("it ends by itself; see `clawnode status`"));
    }
    let works = node.roles.contains(&NodeRole::Worker);
    match order {
        NodeOrder::Drain { force } => {
            let takes = |other: &&NodeView| {
                other.process != node.process
                    && other.roles.contains(&NodeRole::Worker)
                    && !other.draining
                    && !other.cordoned
            };
            if works && !force && !nodes.iter().any(|other| takes(&other)) {
                return Err(conflict(format!("node `{name}` is the last worker that takes work"))
                    .hint("start another worker first; `--force` makes sessions wait for one"));
            }
            Ok(())
        }
        NodeOrder::Cordon | NodeOrder::Uncordon if !works => {
            Err(conflict(format!("node `{name}` is not a worker and takes no sessions"))
                .hint("`clawnode status` shows which nodes do"))
        }
        NodeOrder::Cordon | NodeOrder::Uncordon => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clawnode_proto::{
        Digest, ProcessId, Timestamp,
        node::{Load, VersionRange},
    };

    use super::*;

    fn node(process: u128, name: &str, role: NodeRole) -> NodeView {
        NodeView {
            node: name.parse().unwrap(),
            process: ProcessId::from_u128(process),
            version: "0".to_owned(),
            roles: vec![role],
            started: Timestamp(0),
            draining: false,
            cordoned: false,
            entities: 0,
            config: Digest::ZERO,
            speaks: VersionRange::default(),
            capabilities: BTreeSet::new(),
            load: Load::default(),
            shed: 0,
            first_of: 0,
            url: None,
        }
    }

    #[test]
    fn a_node_is_named_by_its_name_or_its_process() {
        let nodes = [
            node(1, "a", NodeRole::Worker),
            node(2, "b", NodeRole::Worker),
            node(3, "b", NodeRole::Gateway),
        ];
        assert_eq!(find(&nodes, "a").unwrap(), &nodes[0]);
        assert_eq!(find(&nodes, &nodes[2].process.to_string()).unwrap(), &nodes[2]);
        let unknown = find(&nodes, "c").unwrap_err();
        assert!(unknown.hint.unwrap().contains("a, b, b"));
        let two = find(&nodes, "b").unwrap_err();
        assert_eq!(two.code, ErrorCode::Conflict);
        assert!(two.hint.unwrap().contains(&nodes[1].process.to_string()));
    }

    #[test]
    fn the_last_worker_is_drained_only_by_force() {
        let mut nodes = vec![node(1, "a", NodeRole::Worker), node(2, "b", NodeRole::Worker)];
        let drain = |nodes: &[NodeView], force| check(nodes, &nodes[0], NodeOrder::Drain { force });
        assert!(drain(&nodes, false).is_ok());
        nodes[1].cordoned = true;
        assert_eq!(drain(&nodes, false).unwrap_err().code, ErrorCode::Conflict);
        assert!(drain(&nodes, true).is_ok());
        nodes[0].draining = true;
        assert!(drain(&nodes, true).unwrap_err().message.contains("already"));
    }

    #[test]
    fn a_gateway_is_drained_and_not_cordoned() {
        let nodes = [node(1, "g", NodeRole::Gateway)];
        assert!(check(&nodes, &nodes[0], NodeOrder::Drain { force: false }).is_ok());
        assert!(check(&nodes, &nodes[0], NodeOrder::Cordon).is_err());
    }
}
