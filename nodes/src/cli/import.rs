//! `import`: from one process to a cluster.

use std::path::PathBuf;

use clap::Args;
use clawnode_proto::offline::ImportView;

use super::{
    command_context::CliContext,
    output::{Output, Tone, clean, count},
};
use crate::{
    failure::{Exit, Failure},
    offline_commands,
};

/// Examples of `import`.
const EXAMPLES: &str = "\
Sessions keep their ids, events and hash chains; unfinished turns continue in the cluster.
Nothing in the cluster is overwritten. After an interruption, run it again. Afterwards no node
starts on the directory.

Examples:
  clawnode import --from ~/.local/share/clawnode --nats nats://127.0.0.1:4222
  clawnode journal verify --json       the same `head` of each session before and after";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ImportArgs {
    /// The data directory whose sessions to move; no node may run on it
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
}

/// `import`.
pub(super) async fn run(args: ImportArgs, context: &CliContext) -> Result<Exit, Failure> {
    let view = offline_commands::import(&context.loaded, &args.from).await?;
    context.out.document(&view, |view| human(context.out, view))?;
    Ok(if view.refused.is_empty() { Exit::Ok } else { Exit::Failed })
}

fn human(out: Output, view: &ImportView) -> String {
    let others = match view.others {
        0 => String::new(),
        others => format!(" and {others} of other kinds"),
    };
    let mut lines = vec![format!(
        "`{}` to {}: {}{others} ({} of them this time), {}, {}, {}, {}, {}",
        view.from,
        view.to,
        count(view.sessions, "session"),
        view.moved,
        count(view.inputs, "waiting input"),
        count(view.timers, "timer"),
        count(view.jobs, "job"),
        count(view.blobs, "blob"),
        count(view.values, "setting"),
    )];
    if view.kept > 0 {
        lines.push(format!(
            "the cluster has {} of its own and keeps them",
            count(view.kept, "budget")
        ));
    }
    for refusal in &view.refused {
        let line = format!("refused {}: {}", clean(&refusal.what), clean(&refusal.why));
        lines.push(out.paint(Tone::Bad, &line));
    }
    lines.join("\n")
}
