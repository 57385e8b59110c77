//! `node`: drain, cordon and uncordon a node.

use std::time::Duration;

use clap::{ArgAction, Subcommand};
use clawnode_proto::{
    api::{NodeParams, NodesDrain, Nothing, calls},
    view::NodeView,
};
use serde::Serialize;

use super::command_context::CliContext;
use crate::failure::{Exit, Failure};

/// How often a node that drains is looked for.
const LOOK: Duration = Duration::from_millis(250);
/// How long it is waited for: longer than any sensible `node.drain`.
const PATIENCE: Duration = Duration::from_mins(10);

/// What `node --help` ends with.
const EXAMPLES: &str = "\
NODE is a node's name or its process id, as `clawnode nodes -o wide` shows them.

Examples:
  clawnode node drain worker-1
  clawnode node drain worker-1 --wait=false
  clawnode node cordon worker-1
  clawnode node uncordon worker-1";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum NodeCommand {
    /// Move a node's sessions to other nodes and end it, as SIGTERM does
    Drain {
        /// The node's name or its process id
        node: String,
        /// Wait until the node has ended
        #[arg(
            long,
            action = ArgAction::Set,
            value_name = "BOOL",
            num_args = 0..=1,
            require_equals = true,
            default_value_t = true,
            default_missing_value = "true"
        )]
        wait: bool,
        /// Drain even the last worker
        #[arg(long)]
        force: bool,
    },
    /// Send no more sessions to a node; it keeps those that it has
    Cordon {
        /// The node's name or its process id
        node: String,
    },
    /// Send sessions to a node again
    Uncordon {
        /// The node's name or its process id
        node: String,
    },
}

/// What `node drain` prints.
#[derive(Serialize)]
struct Drained {
    #[serde(flatten)]
    node: NodeView,
    /// Whether it is gone; otherwise it still drains.
    gone: bool,
}

/// `node`.
pub(super) async fn run(command: NodeCommand, context: &CliContext) -> Result<Exit, Failure> {
    let (view, done) = match command {
        NodeCommand::Drain { node, wait, force } => return drain(context, node, wait, force).await,
        NodeCommand::Cordon { node } => (
            context.call(calls::NodesCordon, &NodeParams { node }).await?,
            "takes no more sessions",
        ),
        NodeCommand::Uncordon { node } => (
            context.call(calls::NodesUncordon, &NodeParams { node }).await?,
            "takes sessions again",
        ),
    };
    context.out.document(&view, |view| format!("`{}` {done}", view.node))?;
    Ok(Exit::Ok)
}

async fn drain(
    context: &CliContext,
    node: String,
    wait: bool,
    force: bool,
) -> Result<Exit, Failure> {
    // Asked first: once it drains, the node that answers may be gone.
    let status = context.call(calls::Status, &Nothing {}).await?;
    let params = NodesDrain { node, force };
    let view = context.call(calls::NodesDrain, &params).await?;
    if wait {
        let answers = status.process == view.process;
        let gone = until_gone(context, &view, answers);
        tokio::time::timeout(PATIENCE, gone).await.unwrap_or_else(|_elapsed| {
            let message = format!("node `{}` is still draining", view.node);
            Err(Failure::new(Exit::Failed, "still_draining", message)
                .hint("see its log for what it waits for; a second SIGTERM ends it at once"))
        })?;
    }
    let drained = Drained { node: view, gone: wait };
    context.out.document(&drained, |drained| {
        let what =
            if drained.gone { "has handed everything over and has ended" } else { "is draining" };
        format!("`{}` {what}", drained.node.node)
    })?;
    Ok(Exit::Ok)
}

/// Waits until the others do not hear of the node any more. A node that is itself the one asked is
/// gone when it does not answer.
async fn until_gone(context: &CliContext, node: &NodeView, answers: bool) -> Result<(), Failure> {
    loop {
        let status = context.call(calls::Status, &Nothing {}).await;
        match status {
            Ok(status) if status.nodes.iter().all(|other| other.process != node.process) => {
                return Ok(());
            }
            Ok(_) => {}
            Err(failure) if answers && failure.exit == Exit::Unreachable => return Ok(()),
            Err(failure) => return Err(failure),
        }
        tokio::time::sleep(LOOK).await;
    }
}
