//! What the commands share.

use std::path::PathBuf;

use clap::Args;
use clawnode_nats::auth::Pushed;

use crate::{
    bus::operator::Operator,
    cli::{command_context::CliContext, output::Output},
};

/// Where the keys are below the data directory, unless `--dir` says otherwise.
const FOLDER: &str = "cluster";

/// Where the keys are.
#[derive(Debug, Default, Args)]
pub(in crate::cli) struct DirArgs {
    /// The directory with the cluster's keys [default: `cluster` in the data directory]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

impl DirArgs {
    pub(super) fn path(&self, context: &CliContext) -> PathBuf {
        self.dir.clone().unwrap_or_else(|| context.data_dir().join(FOLDER))
    }
}

/// Says which servers did not answer: they learn it from the others when they are back.
pub(super) fn warn_of_missing(out: Output, operator: &Operator, pushed: &Pushed) {
    for server in operator.servers() {
        if !pushed.servers.contains(&server.name) {
            out.aside(&format!(
                "warning: server `{}` did not answer; the other servers update it within a minute \
                 after it is back",
                server.name
            ));
        }
    }
}
