//! `nodes`: the processes of the cluster.

use clawnode_proto::{
    ProcessId,
    api::{Nothing, calls},
    node::NodeRole,
    overview::DeadView,
    view::NodeView,
};

use super::{
    command_context::CliContext,
    output::{Output, Tone, size, span, time},
};
use crate::failure::{Exit, Failure};

/// Characters of a configuration's digest that tell it apart from others.
const DIGEST_CHARS: usize = 8;

/// `nodes`.
pub(super) async fn run(context: &CliContext) -> Result<Exit, Failure> {
    let nodes = context.call(calls::NodesList, &Nothing {}).await?;
    let out = context.out;
    out.document(&nodes, |list| {
        let mut text = table(out, &list.nodes, None);
        for dead in list.dead.iter().filter(|dead| is_shown(out, dead)) {
            text.push('\n');
            text.push_str(&dead_line(out, dead));
        }
        text
    })?;
    Ok(Exit::Ok)
}

/// Whether a dead process means anything: one that lives under its name has taken its place.
pub(super) const fn is_shown(out: Output, dead: &DeadView) -> bool {
    out.wide || !dead.replaced
}

/// What `nodes` and `status` say of a dead process.
pub(super) fn dead_line(out: Output, dead: &DeadView) -> String {
    let ago = dead.ago_ms.map(|ago| format!(" {}", span(ago))).unwrap_or_default();
    let replaced = if dead.replaced { "; another process has its name" } else { "" };
    let tone = if dead.replaced { Tone::Warn } else { Tone::Bad };
    out.paint(tone, &format!("{dead} dead{ago}: no heartbeat{replaced}"))
}

/// Nodes as `nodes` and `status` show them; `old` names the only process that is heard now, and for
/// how many milliseconds no other was.
pub(super) fn table(out: Output, nodes: &[NodeView], old: Option<(ProcessId, u64)>) -> String {
    let mut head = vec![
        "node",
        "roles",
        "state",
        "entities",
        "turns",
        "cpu",
        "memory",
        "clients",
        "partitions",
    ];
    if out.wide {
        head.extend(["process", "version", "speaks", "shed", "config", "capabilities", "started"]);
    }
    let row = |view: &NodeView| {
        let load = view.load;
        let mut row = vec![
            view.node.to_string(),
            roles(view),
            match old {
                Some((asked, ago)) if asked != view.process => {
                    format!("{} {} ago", state(view), span(ago))
                }
                _ => state(view).to_owned(),
            },
            view.entities.to_string(),
            format!("{} ({} done)", load.turns_running, load.turns_done),
            format!("{}.{}%", load.cpu_permille / 10, load.cpu_permille % 10),
            size(load.memory_bytes),
            load.clients.to_string(),
            view.first_of.to_string(),
        ];
        if out.wide {
            let mut config = view.config.to_string();
            config.truncate(DIGEST_CHARS);
            let capabilities: Vec<_> = view.capabilities.iter().map(ToString::to_string).collect();
            row.extend([
                view.process.to_string(),
                view.version.clone(),
                format!("{}-{}", view.speaks.oldest, view.speaks.newest),
                view.shed.to_string(),
                config,
                capabilities.join(","),
                time(view.started),
            ]);
        }
        row
    };
    out.table(&head, nodes.iter().map(row))
}

/// What a node does, in words.
pub(super) fn roles(view: &NodeView) -> String {
    let roles: Vec<_> = view.roles.iter().map(|&role| role_name(role)).collect();
    roles.join(",")
}

/// The state of a node, in a word.
pub(super) const fn state(view: &NodeView) -> &'static str {
    match (view.draining, view.cordoned) {
        (true, _) => "draining",
        (false, true) => "cordoned",
        (false, false) => "ready",
    }
}

/// As the configuration and the wire have it.
pub(super) const fn role_name(role: NodeRole) -> &'static str {
    match role {
        NodeRole::Gateway => "gateway",
        NodeRole::Worker => "worker",
    }
}
