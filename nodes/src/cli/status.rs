//! `status`: the node and the cluster, as far as the node sees them.

use std::fmt::Write as _;

use clawnode_proto::{
    api::Method,
    overview::{BusView, StoreView},
    view::StatusView,
};
use serde_json::json;

use super::{
    context::Context,
    nodes,
    output::{Output, Tone, size, span},
};
use crate::failure::{Exit, Failure};

/// `status`.
pub(super) async fn run(context: &Context) -> Result<Exit, Failure> {
    let status: StatusView = context.call(Method::Status, json!({})).await?;
    context.out.document(&status, |status| human(context.out, status))?;
    Ok(Exit::Ok)
}

fn human(out: Output, it: &StatusView) -> String {
    let mut facts = vec![
        ("version", it.version.clone()),
        ("process", it.process.to_string()),
        ("substrate", it.substrate.clone()),
        ("partitions", it.partitions.to_string()),
        ("model", it.model.clone()),
        ("sessions", it.sessions.to_string()),
        ("quarantined", quarantined(it)),
    ];
    facts.extend(it.bus.as_ref().map(|bus| ("bus", bus_line(bus))));
    let mut text = String::new();
    for (name, value) in facts {
        add(&mut text, &format!("{name:<12} {value}"));
    }
    add(&mut text, "");
    add(&mut text, &nodes::table(out, &it.nodes));
    if let (Some(bus), true) = (&it.bus, out.wide) {
        add(&mut text, "");
        add(&mut text, &stores(out, bus));
    }
    let told = it.warnings.len() + it.quarantined.len() + it.dead.len();
    if told > 0 {
        add(&mut text, "");
    }
    for dead in &it.dead {
        let line = format!("{dead} fell silent and is held dead");
        add(&mut text, &out.paint(Tone::Bad, &line));
    }
    for session in &it.quarantined {
        let line = format!("quarantined {session}: see `clawnode quarantine show {session}`");
        add(&mut text, &out.paint(Tone::Bad, &line));
    }
    for warning in &it.warnings {
        add(&mut text, &out.paint(Tone::Warn, &format!("{}: {}", warning.name, warning.message)));
        add(&mut text, &format!("  hint: {}", warning.hint));
    }
    text
}

fn add(text: &mut String, line: &str) {
    if writeln!(text, "{line}").is_err() {
        tracing::debug!("a line was not formatted");
    }
}

fn quarantined(it: &StatusView) -> String {
    match it.looked {
        Some(looked) => {
            let (count, ago) = (it.quarantined.len(), span(looked.age_ms));
            format!("{count} (of {} sessions looked at, {ago} ago)", looked.sessions)
        }
        None => "not known yet: the sessions are being looked at".to_owned(),
    }
}

fn bus_line(bus: &BusView) -> String {
    let replicas = bus.stores.iter().map(|it| it.replicas).filter(|it| *it > 0).min();
    let replicas = replicas.map_or_else(|| "R?".to_owned(), |it| format!("R{it}"));
    let lag = bus.stores.iter().map(|it| it.lag).max().unwrap_or_default();
    let behind = bus.stores.iter().filter(|it| it.behind > 0 || it.problem.is_some()).count();
    let health = match (behind, lag) {
        (0, _) => "in step".to_owned(),
        (behind, lag) => format!("not in step: {behind} (up to {lag} operations behind)"),
    };
    let server = match &bus.cluster {
        Some(cluster) => format!("{} of cluster {cluster}", bus.server),
        None => bus.server.clone(),
    };
    let (servers, answers) = (bus.servers.len(), bus.answers_us.div_ceil(1_000));
    format!("{server}; {servers} known, {replicas}, {health}, answers in {answers} ms")
}

fn stores(out: Output, bus: &BusView) -> String {
    let row = |it: &StoreView| {
        let state = match (&it.problem, it.behind) {
            (Some(problem), _) => problem.clone(),
            (None, 0) => "in step".to_owned(),
            (None, behind) => format!("{behind} behind by {}", it.lag),
        };
        vec![
            it.name.clone(),
            format!("R{}", it.replicas),
            it.leader.clone().unwrap_or_else(|| "-".to_owned()),
            state,
            it.records.to_string(),
            size(it.bytes),
        ]
    };
    let head = ["store", "replicas", "leader", "state", "records", "size"];
    out.table(&head, bus.stores.iter().map(row))
}
