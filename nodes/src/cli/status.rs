//! `status`: the node and the cluster, as far as the node sees them.

use std::fmt::Write as _;

use clawnode_proto::{
    api::{Nothing, calls},
    overview::{BusView, StoreView},
    view::{StatusView, WarningView},
};

use super::{
    command_context::CliContext,
    nodes,
    output::{Output, Tone, count, size, span},
};
use crate::failure::{Exit, Failure};

/// `status`.
pub(super) async fn run(context: &CliContext) -> Result<Exit, Failure> {
    let client = context.client().await?;
    let status = client.call(calls::Status, &Nothing {}).await?;
    context.out.document(&status, |status| human(context.out, status, client.url()))?;
    Ok(Exit::Ok)
}

/// `address` is where the node answered.
fn human(out: Output, view: &StatusView, address: &str) -> String {
    let mut facts = vec![
        ("version", view.version.clone()),
        ("address", address.to_owned()),
        ("process", view.process.to_string()),
        ("storage", view.substrate.clone()),
        ("partitions", view.partitions.to_string()),
        ("model", view.model.clone()),
        (
            "entities",
            format!("{} (sessions, also deleted ones, memories and others)", view.sessions),
        ),
        ("turns", turns(view)),
        ("quarantined", quarantined(view)),
    ];
    facts.extend(view.bus.as_ref().map(|bus| ("bus", bus_line(out, bus))));
    if out.wide {
        facts.push(("usage", usage(view.usage_behind_ms)));
    }
    let mut text = String::new();
    for (name, value) in facts {
        add(&mut text, &format!("{name:<12} {value}"));
    }
    add(&mut text, "");
    let silent = view.bus.as_ref().and_then(|bus| bus.silent_ms);
    add(&mut text, &nodes::table(out, &view.nodes, silent.map(|ago| (view.process, ago))));
    if let (Some(bus), true) = (&view.bus, out.wide) {
        add(&mut text, "");
        add(&mut text, &stores(out, bus));
    }
    let dead: Vec<_> = view.dead.iter().filter(|dead| nodes::is_shown(out, dead)).collect();
    if view.warnings.len() + view.quarantined.len() + dead.len() > 0 {
        add(&mut text, "");
    }
    let (fatal, others): (Vec<_>, Vec<_>) =
        view.warnings.iter().partition(|warning| warning.is_fatal());
    for warning in fatal {
        warn(&mut text, out, Tone::Bad, warning);
    }
    for dead in dead {
        add(&mut text, &nodes::dead_line(out, dead));
    }
    for session in &view.quarantined {
        let line = format!("quarantined {session}: see `clawnode quarantine show {session}`");
        add(&mut text, &out.paint(Tone::Bad, &line));
    }
    for warning in others {
        warn(&mut text, out, Tone::Warn, warning);
    }
    text
}

fn warn(text: &mut String, out: Output, tone: Tone, warning: &WarningView) {
    add(text, &out.paint(tone, &format!("{}: {}", warning.name, warning.message)));
    add(text, &format!("  hint: {}", warning.hint));
}

fn add(text: &mut String, line: &str) {
    if writeln!(text, "{line}").is_err() {
        tracing::debug!("a line was not formatted");
    }
}

fn turns(view: &StatusView) -> String {
    let waiting = match view.approvals {
        Some(0) => "no tool call waits for a person".to_owned(),
        Some(calls) => {
            let verb = if calls == 1 { "waits" } else { "wait" };
            let calls = count(calls, "call");
            format!("{calls} {verb} for a person: `clawnode approvals list`")
        }
        None => "the storage backend did not list waiting calls in time".to_owned(),
    };
    let down = view.outages.filter(|turns| *turns > 0).map(|turns| {
        let verb = if turns == 1 { "waits" } else { "wait" };
        format!("; {} {verb} for a provider: `clawnode providers`", count(turns, "turn"))
    });
    format!("{} running; {waiting}{}", view.running, down.unwrap_or_default())
}

/// How far the counts of model calls are behind the journals.
fn usage(behind_ms: Option<u64>) -> String {
    match behind_ms {
        Some(0) => "all model calls are counted".to_owned(),
        Some(behind) => format!("the counts are {} behind", span(behind)),
        None => "the storage backend did not say in time how far the counts are".to_owned(),
    }
}

fn quarantined(view: &StatusView) -> String {
    match view.looked {
        Some(looked) => {
            let (found, ago) = (view.quarantined.len(), span(looked.age_ms));
            format!("{found} (of {} checked, {ago} ago)", count(looked.sessions, "entity"))
        }
        None => "not known yet: the entities are being checked".to_owned(),
    }
}

fn bus_line(out: Output, bus: &BusView) -> String {
    if let Some(silent) = bus.silent_ms {
        let line = format!("{} has not answered for {}", bus.server, span(silent));
        return out.paint(Tone::Bad, &line);
    }
    let replicas =
        bus.stores.iter().map(|store| store.replicas).filter(|replicas| *replicas > 0).min();
    let replicas = replicas.map_or_else(|| "R?".to_owned(), |replicas| format!("R{replicas}"));
    let lag = bus.stores.iter().map(|store| store.lag).max().unwrap_or_default();
    let behind =
        bus.stores.iter().filter(|store| store.behind > 0 || store.problem.is_some()).count();
    let health = match (behind, lag) {
        (0, _) => "in sync".to_owned(),
        (behind, lag) => format!("not in sync: {behind} (up to {lag} operations behind)"),
    };
    let server = match &bus.cluster {
        Some(cluster) => format!("{} of cluster {cluster}", bus.server),
        None => bus.server.clone(),
    };
    let (servers, answers) = (bus.servers.len(), bus.answers_us.div_ceil(1_000));
    format!("{server}; {servers} known, {replicas}, {health}, answers in {answers} ms")
}

fn stores(out: Output, bus: &BusView) -> String {
    let row = |store: &StoreView| {
        let state = match (&store.problem, store.behind) {
            (Some(problem), _) => problem.clone(),
            (None, 0) => "in sync".to_owned(),
            (None, behind) => format!("{behind} behind by {}", store.lag),
        };
        vec![
            store.name.clone(),
            format!("R{}", store.replicas),
            store.leader.clone().unwrap_or_else(|| "-".to_owned()),
            state,
            store.records.to_string(),
            size(store.bytes),
        ]
    };
    let head = ["store", "replicas", "leader", "state", "records", "size"];
    out.table(&head, bus.stores.iter().map(row))
}

#[cfg(test)]
mod tests {
    use clawnode_proto::overview::LookedView;
    use serde_json::json;

    use super::*;
    use crate::config::Env;

    #[test]
    fn a_silent_bus_is_shown_as_one() {
        let node = |name: &str, process: &str| {
            json!({
                "node": name, "process": process, "version": "1", "roles": ["worker"],
                "started": 0, "draining": false, "entities": 1, "config": "00".repeat(32),
            })
        };
        let (own, other) = ("proc_0000000000000000000000000a", "proc_0000000000000000000000000b");
        let warning = |name: &str| json!({ "name": name, "message": "m", "hint": "h" });
        let status: StatusView = serde_json::from_value(json!({
            "version": "1", "process": own, "substrate": "nats", "partitions": 4, "model": "m",
            "sessions": 1, "quarantined": [], "nodes": [node("own", own), node("other", other)],
            "bus": { "server": "n1", "servers": ["n1"], "answers_us": 900, "stores": [],
                     "silent_ms": 12_300 },
            "dead": [
                { "process": other, "node": "own", "ago_ms": 9_000, "replaced": true },
                { "process": other, "node": "gone", "ago_ms": 125_000 },
            ],
            "warnings": [warning("bus.replicas"), warning("bus.unreachable")],
        }))
        .unwrap();
        let address = "http://127.0.0.1:3100";
        let text = human(Output::new(false, false, &Env::default()), &status, address);
        assert!(text.contains("address      http://127.0.0.1:3100\n"), "{text}");
        assert!(text.contains("turns        0 running; the storage backend did"), "{text}");
        // Memories and accounts are none of the conversations of `sessions list`.
        let entities = "entities     1 (sessions, also deleted ones, memories and others)\n";
        assert!(text.contains(entities), "{text}");
        let looked = LookedView { sessions: 1, age_ms: 4_000 };
        let looked = StatusView { looked: Some(looked), ..status.clone() };
        assert_eq!(quarantined(&looked), "0 (of 1 entity checked, 4s ago)");
        let calls = StatusView { running: 3, approvals: Some(1), ..status.clone() };
        let line = "3 running; 1 call waits for a person: `clawnode approvals list`";
        assert_eq!(turns(&calls), line);
        assert!(text.contains("bus          n1 has not answered for 12s\n"), "{text}");
        assert!(!text.contains("answers in"), "{text}");
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line("other ").contains("ready 12s ago"), "{text}");
        assert!(!line("own ").contains("ago"), "it is heard\n{text}");
        let at = |what: &str| text.find(what).unwrap();
        assert!(at("bus.unreachable") < at("bus.replicas"), "{text}");
        // Whose name lives is no news.
        assert!(text.contains("dead 2m5s: no heartbeat") && !text.contains("dead 9s"), "{text}");
        let wide = human(Output::new(false, true, &Env::default()), &status, "");
        assert!(!text.contains("usage  ") && wide.contains("usage        the storage"), "{wide}");
        let behind = StatusView { usage_behind_ms: Some(2_000), ..status.clone() };
        let wide_behind = human(Output::new(false, true, &Env::default()), &behind, "");
        assert!(wide_behind.contains("usage        the counts are 2s behind\n"), "{wide_behind}");
        assert!(wide.contains("dead 9s: no heartbeat; another process has its name"), "{wide}");
    }
}
