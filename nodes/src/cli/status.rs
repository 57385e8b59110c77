//! `status`: the node and the cluster, as far as the node sees them.

use std::fmt::Write as _;

use clawnode_proto::{
    api::Method,
    node::NodeRole,
    view::{NodeView, StatusView},
};
use serde_json::json;

use super::{
    context::Context,
    output::{Output, Tone, time},
};
use crate::failure::{Exit, Failure};

/// `status`.
pub(super) async fn run(context: &Context) -> Result<Exit, Failure> {
    let status: StatusView = context.call(Method::Status, json!({})).await?;
    context.out.document(&status, |status| human(context.out, status))?;
    Ok(Exit::Ok)
}

fn human(out: Output, it: &StatusView) -> String {
    let facts = [
        ("version", it.version.clone()),
        ("process", it.process.to_string()),
        ("substrate", it.substrate.clone()),
        ("partitions", it.partitions.to_string()),
        ("model", it.model.clone()),
        ("sessions", it.sessions.to_string()),
        ("quarantined", it.quarantined.len().to_string()),
    ];
    let mut text = String::new();
    for (name, value) in facts {
        add(&mut text, &format!("{name:<12} {value}"));
    }
    add(&mut text, "");
    let rows = it.nodes.iter().map(node_row);
    let head = ["node", "process", "version", "roles", "started", "entities", "state"];
    add(&mut text, &out.table(&head, rows));
    for session in &it.quarantined {
        let line = format!("quarantined {session}: see `clawnode sessions show {session}`");
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

fn node_row(it: &NodeView) -> Vec<String> {
    let roles: Vec<_> = it.roles.iter().map(|&role| role_name(role)).collect();
    vec![
        it.node.to_string(),
        it.process.to_string(),
        it.version.clone(),
        roles.join(","),
        time(it.started),
        it.entities.to_string(),
        match (it.draining, it.cordoned) {
            (true, _) => "draining",
            (false, true) => "cordoned",
            (false, false) => "ready",
        }
        .to_owned(),
    ]
}

const fn role_name(role: NodeRole) -> &'static str {
    match role {
        NodeRole::Gateway => "gateway",
        NodeRole::Worker => "worker",
    }
}
