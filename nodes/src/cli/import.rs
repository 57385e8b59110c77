//! `import`: from one process to a cluster.

use std::path::PathBuf;

use clap::Args;

use super::{
    context::Context,
    offline::ImportView,
    output::{Output, Tone, clean},
};
use crate::{
    failure::{Exit, Failure},
    keeping,
};

/// Examples of `import`.
const EXAMPLES: &str = "\
Sessions keep their ids, events and hash chains; what is unfinished goes on in the cluster. Nothing
there is overwritten. Cut off, it is run again. No node starts on the directory afterwards.

Examples:
  clawnode import --from ~/.local/share/clawnode --nats nats://127.0.0.1:4222
  clawnode journal verify --json       before and after: the same `head` of each session";

/// `import`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ImportArgs {
    /// The data directory whose sessions are moved; no node may run on it
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
}

/// `import`.
pub(super) async fn run(args: ImportArgs, context: &Context) -> Result<Exit, Failure> {
    let view = keeping::import(&context.loaded, &args.from).await?;
    context.out.document(&view, |view| human(context.out, view))?;
    Ok(if view.refused.is_empty() { Exit::Ok } else { Exit::Failed })
}

fn human(out: Output, it: &ImportView) -> String {
    let mut lines = vec![format!(
        "`{}` to {}: {} sessions ({} of them now), {} waiting inputs, {} timers, {} jobs, \
         {} blobs, {} settings",
        it.from, it.to, it.sessions, it.moved, it.inputs, it.timers, it.jobs, it.blobs, it.values
    )];
    for refusal in &it.refused {
        let line = format!("refused {}: {}", clean(&refusal.what), clean(&refusal.why));
        lines.push(out.paint(Tone::Bad, &line));
    }
    lines.join("\n")
}
