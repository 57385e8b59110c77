//! `backup` and `restore`: the data directory as one file.

use std::path::PathBuf;

use clap::Args;
use clawnode_proto::offline::BackupView;

use super::{
    command_context::CliContext,
    output::{count, size},
};
use crate::{
    failure::{Exit, Failure},
    offline_commands,
};

/// What `backup --help` ends with.
const BACKUP_EXAMPLES: &str = "\
A backup has every conversation, and no token. Stop the node first.

Examples:
  clawnode backup clawnode.backup
  clawnode backup clawnode.backup --data-dir ./node-1";

/// What `restore --help` ends with.
const RESTORE_EXAMPLES: &str = "\
Examples:
  clawnode restore clawnode.backup
  clawnode restore clawnode.backup --data-dir ./restored";

#[derive(Debug, Args)]
#[command(after_help = BACKUP_EXAMPLES)]
pub(super) struct BackupArgs {
    /// The file to write; it must not exist
    pub file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = RESTORE_EXAMPLES)]
pub(super) struct RestoreArgs {
    /// A file that `backup` wrote
    pub file: PathBuf,
}

pub(super) async fn backup(args: BackupArgs, context: &CliContext) -> Result<Exit, Failure> {
    let done = offline_commands::backup(&context.loaded.config, &args.file).await?;
    report(context, "wrote", &done)
}

pub(super) async fn restore(args: RestoreArgs, context: &CliContext) -> Result<Exit, Failure> {
    let done = offline_commands::restore(&context.loaded.config, &args.file).await?;
    report(context, "restored from", &done)
}

fn report(context: &CliContext, verb: &str, done: &BackupView) -> Result<Exit, Failure> {
    context.out.document(done, |backup| {
        format!(
            "{verb} `{}`: {}, {}",
            backup.file,
            count(backup.sessions, "session"),
            size(backup.bytes)
        )
    })?;
    Ok(Exit::Ok)
}
