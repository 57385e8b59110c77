//! Which node runs an MCP server: rendezvous among those that have it configured.

use clawnode_cluster::membership::Members;
use clawnode_proto::{
    Capability, Digest, McpServerName, ProcessId,
    node::{Heartbeat, NodeRole},
};

/// Whether process `me` is the one that runs the server, as far as it sees the cluster. Two may
/// think so for a moment, which is harmless.
pub fn hosts_it(server: &McpServerName, me: ProcessId, members: &Members) -> bool {
    let able = Capability::of_mcp_host(server);
    let works = |one: &&Heartbeat| {
        one.roles.contains(&NodeRole::Worker)
            && !one.draining
            && !one.leaving
            && one.capabilities.contains(&able)
    };
    let all = || members.alive.iter().filter(works);
    // One that was cordoned runs it only where no other can.
    let first = all().filter(|one| !one.cordoned).max_by_key(|one| score(server, one.process));
    let first = first.or_else(|| all().max_by_key(|one| score(server, one.process)));
    members.settled && first.is_some_and(|one| one.process == me)
}

fn score(server: &McpServerName, process: ProcessId) -> Digest {
    Digest::of(format!("{server}\0{process}").as_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(process: u128, capabilities: &[&str]) -> Heartbeat {
        serde_json::from_value(json!({
            "process": ProcessId::from_u128(process), "node": "n", "version": "0",
            "roles": ["worker"], "started": 0, "draining": false, "entities": 0,
            "config": Digest::ZERO, "capabilities": capabilities,
        }))
        .unwrap()
    }

    fn hosts(server: &str, alive: &[Heartbeat]) -> Vec<ProcessId> {
        let members = Members { alive: alive.to_vec(), settled: true, ..Members::default() };
        let server = server.parse().unwrap();
        let all = alive.iter().map(|one| one.process);
        all.filter(|me| hosts_it(&server, *me, &members)).collect()
    }

    #[test]
    fn one_of_those_that_have_it_runs_it_and_another_when_that_is_gone() {
        let able = ["mcp.fs:host", "mcp.git:host"];
        let mut alive: Vec<Heartbeat> = (1..=5).map(|at| node(at, &able)).collect();
        alive.push(node(6, &["mcp.fs"]));
        let mut seen: Vec<ProcessId> = Vec::new();
        for _ in 0..5 {
            let first = hosts("fs", &alive);
            assert_eq!(first.len(), 1);
            seen.extend(&first);
            alive.retain(|one| one.process != first[0]);
        }
        assert!(hosts("fs", &alive).is_empty(), "the last one does not have it configured");
        seen.sort_unstable();
        assert_eq!(seen, (1..=5).map(ProcessId::from_u128).collect::<Vec<_>>());
    }

    #[test]
    fn who_goes_or_was_cordoned_stands_back() {
        let mut alive = vec![node(1, &["mcp.fs:host"]), node(2, &["mcp.fs:host"])];
        let first = hosts("fs", &alive)[0];
        let at = alive.iter().position(|one| one.process == first).unwrap();
        alive[at].cordoned = true;
        assert_ne!(hosts("fs", &alive)[0], first);
        alive[1 - at].draining = true;
        assert_eq!(hosts("fs", &alive), [first], "better a cordoned one than none");
        alive[at].draining = true;
        assert!(hosts("fs", &alive).is_empty());
    }
}
