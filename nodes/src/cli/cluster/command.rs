//! The commands.

use clap::{Args, Subcommand};
use clawnode_nats::auth::BusServer;
use serde_json::json;

use super::{
    init, join_token, mirror, revoke,
    shared::{DirArgs, warn_of_missing},
};
use crate::{
    bus::operator::Operator,
    cli::command_context::CliContext,
    failure::{Exit, Failure},
};

/// What `cluster --help` ends with.
const EXAMPLES: &str = "\
These commands need the directory with the cluster's keys, which `init` creates.

Examples:
  clawnode cluster init --server n1=10.0.0.1:4222
  clawnode cluster join-token --role worker > token
  clawnode cluster users
  clawnode cluster revoke worker-1
  clawnode cluster certify --server n4=10.0.0.4:4222
  clawnode cluster push                  after an update of clawnode
  clawnode cluster mirror --keep 30d
  clawnode cluster restore";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) enum ClusterCommand {
    /// Create keys, certificates and NATS configuration for a new cluster
    Init(init::InitArgs),
    /// Create a token with which one node can join the cluster, once
    JoinToken(join_token::JoinTokenArgs),
    /// List the credentials of nodes
    Users(DirArgs),
    /// Revoke a node's credential, or all credentials of a role, at once
    Revoke(revoke::RevokeArgs),
    /// Create the folder of another server, or renew the certificate of one
    Certify(CertifyArgs),
    /// Send the permissions of this version to the servers, and create missing streams
    Push(DirArgs),
    /// Keep a copy of every session record; no node can remove the copy
    Mirror(mirror::MirrorArgs),
    /// Restore sessions from the mirror; all nodes must be stopped
    Restore(mirror::ClusterRestoreArgs),
}

/// `cluster certify`.
#[derive(Debug, Args)]
pub(in crate::cli) struct CertifyArgs {
    #[command(flatten)]
    pub dir: DirArgs,
    /// The server, with the address that nodes and other servers use
    #[arg(long, required = true, value_name = "NAME=HOST:PORT[/ROUTE_PORT]")]
    pub server: BusServer,
}

/// Does what the command says.
pub(in crate::cli) async fn run(
    command: ClusterCommand,
    context: &CliContext,
) -> Result<Exit, Failure> {
    match command {
        ClusterCommand::Init(args) => init::run(args, context),
        ClusterCommand::JoinToken(args) => join_token::run(args, context).await,
        ClusterCommand::Users(args) => revoke::users(&args, context),
        ClusterCommand::Revoke(args) => revoke::run(&args, context).await,
        ClusterCommand::Certify(args) => certify(&args, context),
        ClusterCommand::Push(args) => push(&args, context).await,
        ClusterCommand::Mirror(args) => mirror::mirror(&args, context).await,
        ClusterCommand::Restore(args) => mirror::restore(&args, context).await,
    }
}

fn certify(args: &CertifyArgs, context: &CliContext) -> Result<Exit, Failure> {
    let mut operator = Operator::open(&args.dir.path(context))?;
    let folder = operator.folder(&args.server);
    operator.certify(&args.server)?;
    let folder = folder.display().to_string();
    context.out.document(&json!({ "folder": folder }), |_| {
        format!("wrote `{folder}`; copy it to the server's host and start `nats-server -c nats.conf` there")
    })?;
    Ok(Exit::Ok)
}

async fn push(args: &DirArgs, context: &CliContext) -> Result<Exit, Failure> {
    let mut operator = Operator::open(&args.path(context))?;
    let pushed = operator.push().await?;
    operator.mend(&context.loaded.config).await?;
    warn_of_missing(context.out, &operator, &pushed);
    context.out.document(&json!({ "servers": pushed.servers }), |_| {
        format!("updated {} of {} servers", pushed.servers.len(), operator.servers().len())
    })?;
    Ok(Exit::Ok)
}
