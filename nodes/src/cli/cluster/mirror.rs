//! `cluster mirror` and `cluster restore`.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::shared::DirArgs;
use crate::{
    bus::operator::Operator,
    cli::command_context::CliContext,
    config::units::parse_duration,
    failure::{Exit, Failure},
};

/// What people must know of a mirror.
const KEEPS: &str = "\
A mirror is two more streams on the same servers, CN_JOURNAL_KEPT and CN_BLOBS_KEPT, to which the
servers copy each record. No node may write to them. They also keep deleted records; `--keep`
limits for how long.

Examples:
  clawnode cluster mirror --keep 30d";
/// What people must know of a restoration.
const BRINGS: &str = "\
First stop all nodes, and revoke the credential that caused the damage. The command restores every
record, except messages that replaced a whole stream. With `--without-last`, it also leaves out
records of that period. If the command is interrupted, run it again.

Examples:
  clawnode cluster restore
  clawnode cluster restore --without-last 2h";

/// `cluster mirror`.
#[derive(Debug, Args)]
#[command(after_help = KEEPS)]
pub(in crate::cli) struct MirrorArgs {
    #[command(flatten)]
    pub dir: DirArgs,
    /// How long records are kept [default: forever]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub keep: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(after_help = BRINGS)]
pub(in crate::cli) struct ClusterRestoreArgs {
    #[command(flatten)]
    pub dir: DirArgs,
    /// Leave out records of this last period
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    pub without_last: Duration,
}

/// `cluster mirror`.
pub(super) async fn mirror(args: &MirrorArgs, context: &CliContext) -> Result<Exit, Failure> {
    let operator = Operator::open(&args.dir.path(context))?;
    let streams = operator.mirror(args.keep).await?;
    context.out.document(&json!({ "streams": streams }), |_| {
        format!("every record is copied to {}", streams.join(" and "))
    })?;
    Ok(Exit::Ok)
}

/// `cluster restore`.
pub(super) async fn restore(
    args: &ClusterRestoreArgs,
    context: &CliContext,
) -> Result<Exit, Failure> {
    let operator = Operator::open(&args.dir.path(context))?;
    let restored = operator.restore(args.without_last).await?;
    let streams: Vec<Value> = restored
        .iter()
        .map(|stream| json!({ "name": stream.stream, "records": stream.records, "left_out": stream.left_out }))
        .collect();
    context.out.document(&json!({ "streams": streams }), |_| {
        let line = |stream: &clawnode_nats::RestoredStream| {
            format!("{}: {} records, {} left out", stream.stream, stream.records, stream.left_out)
        };
        restored.iter().map(line).collect::<Vec<_>>().join("\n")
    })?;
    Ok(Exit::Ok)
}
