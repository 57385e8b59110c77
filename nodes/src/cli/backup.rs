//! `backup` and `restore`: the data directory as one file.

use std::path::PathBuf;

use clap::Args;

use super::{context::Context, offline::BackupView};
use crate::{
    failure::{Exit, Failure},
    keeping,
};

/// `backup`.
#[derive(Debug, Args)]
pub(super) struct BackupArgs {
    /// The file to write; it must not exist
    pub file: PathBuf,
}

/// `restore`.
#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    /// The file that `backup` wrote
    pub file: PathBuf,
}

/// `backup`.
pub(super) async fn backup(args: BackupArgs, context: &Context) -> Result<Exit, Failure> {
    let done = keeping::backup(&context.loaded.config, &args.file).await?;
    report(context, "wrote", &done)
}

/// `restore`.
pub(super) async fn restore(args: RestoreArgs, context: &Context) -> Result<Exit, Failure> {
    let done = keeping::restore(&context.loaded.config, &args.file).await?;
    report(context, "restored from", &done)
}

fn report(context: &Context, verb: &str, done: &BackupView) -> Result<Exit, Failure> {
    context.out.document(done, |it| {
        format!("{verb} `{}`: {} sessions, {} bytes", it.file, it.sessions, it.bytes)
    })?;
    Ok(Exit::Ok)
}
