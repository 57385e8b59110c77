//! The commands, and what they share.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clawnode_cluster::nats::auth::{BusServer, Pushed};
use serde_json::json;

use super::{init, join_token, keep, revoke};
use crate::{
    bus::operator::Operator,
    cli::{context::Context, output::Output},
    failure::{Exit, Failure},
};

/// Where the keys are below the data directory, unless `--dir` says otherwise.
const FOLDER: &str = "cluster";

/// `cluster`.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum ClusterCommand {
    /// Make keys, certificates and the configuration of NATS servers for a new cluster
    Init(init::InitArgs),
    /// Make a token with which one host joins the cluster, once
    JoinToken(join_token::JoinTokenArgs),
    /// List the credentials that were made for nodes
    Users(DirArgs),
    /// End a node's credential, or all credentials of a role, at once
    Revoke(revoke::RevokeArgs),
    /// Make the folder of one more server, or of one that needs another certificate
    Certify(CertifyArgs),
    /// Tell the servers the permissions of this build, and create what the cluster lacks
    Push(DirArgs),
    /// Have the servers keep every record of sessions, whatever nodes remove or destroy
    Mirror(keep::MirrorArgs),
    /// Bring sessions back from the mirror; all nodes must be stopped
    Restore(keep::RestoreArgs),
}

/// Where the keys are.
#[derive(Debug, Default, Args)]
pub(in crate::cli) struct DirArgs {
    /// The directory with the cluster's keys; `cluster` in the data directory unless named
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// `cluster certify`.
#[derive(Debug, Args)]
pub(in crate::cli) struct CertifyArgs {
    #[command(flatten)]
    pub dir: DirArgs,
    /// The server, as nodes and other servers reach it
    #[arg(long, required = true, value_name = "NAME=HOST:PORT")]
    pub server: BusServer,
}

impl DirArgs {
    pub(super) fn path(&self, context: &Context) -> PathBuf {
        self.dir.clone().unwrap_or_else(|| context.data_dir().join(FOLDER))
    }
}

/// Does what the command says.
pub(in crate::cli) async fn run(
    command: ClusterCommand,
    context: &Context,
) -> Result<Exit, Failure> {
    match command {
        ClusterCommand::Init(args) => init::run(args, context),
        ClusterCommand::JoinToken(args) => join_token::run(args, context).await,
        ClusterCommand::Users(args) => revoke::users(&args, context),
        ClusterCommand::Revoke(args) => revoke::run(&args, context).await,
        ClusterCommand::Certify(args) => certify(&args, context),
        ClusterCommand::Push(args) => push(&args, context).await,
        ClusterCommand::Mirror(args) => keep::mirror(&args, context).await,
        ClusterCommand::Restore(args) => keep::restore(&args, context).await,
    }
}

fn certify(args: &CertifyArgs, context: &Context) -> Result<Exit, Failure> {
    let mut operator = Operator::open(&args.dir.path(context))?;
    let folder = operator.folder(&args.server);
    operator.certify(&args.server)?;
    let folder = folder.display().to_string();
    context.out.document(&json!({ "folder": folder }), |_| {
        format!("wrote `{folder}`; copy it to that host and start `nats-server -c nats.conf` there")
    })?;
    Ok(Exit::Ok)
}

async fn push(args: &DirArgs, context: &Context) -> Result<Exit, Failure> {
    let mut operator = Operator::open(&args.path(context))?;
    let pushed = operator.push().await?;
    operator.mend(&context.loaded.config).await?;
    warn_of_missing(context.out, &operator, &pushed);
    context.out.document(&json!({ "servers": pushed.servers }), |_| {
        format!("told {} of {} servers", pushed.servers.len(), operator.servers().len())
    })?;
    Ok(Exit::Ok)
}

/// Says which servers did not answer: they learn it from the others when they are back.
pub(super) fn warn_of_missing(out: Output, operator: &Operator, pushed: &Pushed) {
    for server in operator.servers() {
        if !pushed.servers.contains(&server.name) {
            out.talk(&format!(
                "warning: server `{}` did not answer; it learns of this from the others, within a \
                 minute of being back",
                server.name
            ));
        }
    }
}
