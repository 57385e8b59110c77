//! `tree`: the tasks of every process of the cluster.

use clap::Args;
use clawnode_proto::{
    api::{TreeParams, calls},
    overview::TreeView,
    tree::{Branch, ProcessTree},
};

use super::{
    command_context::CliContext,
    nodes::role_name,
    output::{Output, Tone, clean},
};
use crate::failure::{Exit, Failure};

/// What `tree --help` ends with.
const EXAMPLES: &str = "\
Examples:
  clawnode tree
  clawnode tree worker-1
  clawnode tree -o json | jq '.processes[].branches[] | select(.restarts > 0)'";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TreeArgs {
    /// Only this node, by name or process id
    node: Option<String>,
}

/// `tree`.
pub(super) async fn run(args: TreeArgs, context: &CliContext) -> Result<Exit, Failure> {
    let params = TreeParams { node: args.node };
    let view = context.call(calls::ClusterTree, &params).await?;
    context.out.document(&view, |view| human(context.out, view))?;
    Ok(Exit::Ok)
}

fn human(out: Output, view: &TreeView) -> String {
    let mut lines = Vec::new();
    for process in &view.processes {
        lines.push(title(process));
        draw(out, &mut lines, &process.branches, 0, "");
    }
    for node in &view.silent {
        lines.push(out.paint(Tone::Bad, &format!("{node} does not answer")));
    }
    lines.join("\n")
}

fn title(process: &ProcessTree) -> String {
    let roles: Vec<_> = process.roles.iter().map(|&role| role_name(role)).collect();
    format!("{} ({}) {}", process.node, roles.join(","), process.process)
}

fn draw(out: Output, lines: &mut Vec<String>, branches: &[Branch], more: u64, indent: &str) {
    let last = branches.len() + usize::from(more > 0);
    for (branch, at) in branches.iter().zip(1..) {
        let (twig, below) =
            if at == last { ("└── ", "    ") } else { ("├── ", "│   ") };
        lines.push(format!("{indent}{twig}{}", label(out, branch)));
        draw(out, lines, &branch.children, branch.more, &format!("{indent}{below}"));
    }
    if more > 0 {
        let what = if branches.is_empty() { "idle" } else { "more" };
        lines.push(format!("{indent}└── {more} {what}"));
    }
}

fn label(out: Output, branch: &Branch) -> String {
    let mut text = clean(&branch.name);
    match (branch.kind.as_str(), branch.state.as_str()) {
        (_, "up") => {}
        ("entity", state) => text = format!("{text} {state}"),
        (_, state) => text = format!("{text} {}", out.paint(Tone::Bad, state)),
    }
    if let Some(detail) = &branch.detail {
        text = format!("{text} ({})", clean(detail));
    }
    if branch.restarts > 0 {
        let restarts = format!("restarted {}x", branch.restarts);
        text = format!("{text} {}", out.paint(Tone::Warn, &restarts));
    }
    text
}
