//! `cluster revoke` and `cluster users`.

use clap::Args;
use clawnode_nats::auth::BusRole;
use clawnode_proto::{Timestamp, node::NodeRole};
use serde_json::{Value, json};

use super::shared::{DirArgs, warn_of_missing};
use crate::{
    bus::operator::{Operator, now},
    cli::{
        command_context::CliContext,
        flags::RoleArg,
        output::{self, count},
    },
    failure::{Exit, Failure},
};

/// `cluster revoke`.
#[derive(Debug, Args)]
#[command(
    after_help = "`clawnode cluster users` lists names. Connections are closed at once; the node \
                  ends with exit code 77.\n\nExamples:\n  clawnode cluster revoke worker-1\n  clawnode \
                  cluster revoke --role worker"
)]
#[group(id = "whom", required = true, multiple = false, args = ["user", "role"])]
pub(in crate::cli) struct RevokeArgs {
    #[command(flatten)]
    pub dir: DirArgs,
    /// The name or public key of a credential
    #[arg(value_name = "USER")]
    pub user: Option<String>,
    /// All credentials for exactly this role or these roles
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ROLE")]
    pub role: Vec<RoleArg>,
}

/// `cluster revoke`.
pub(super) async fn run(args: &RevokeArgs, context: &CliContext) -> Result<Exit, Failure> {
    let mut operator = Operator::open(&args.dir.path(context))?;
    let roles: Vec<NodeRole> = args.role.iter().copied().map(NodeRole::from).collect();
    let whom = if let Some(user) = &args.user {
        let refused = |error: clawnode_nats::auth::AuthorityError| {
            Failure::new(Exit::Usage, "not_found", error.to_string())
                .hint("`clawnode cluster users` lists them")
        };
        operator.authority_mut().revoke(user, now()).map_err(refused)?;
        format!("`{user}`")
    } else {
        let role = BusRole::of(&roles)
            .ok_or_else(|| Failure::new(Exit::Usage, "usage", "a role is needed"))?;
        let failed = |error: clawnode_nats::auth::AuthorityError| {
            Failure::new(Exit::Failed, "internal", error.to_string())
        };
        operator.authority_mut().revoke_role(role, now()).map_err(failed)?;
        format!("every {role}")
    };
    // First written down: a push can be made again.
    operator.save()?;
    let pushed = operator.push().await?;
    warn_of_missing(context.out, &operator, &pushed);
    context.out.document(&json!({ "revoked": whom, "servers": pushed.servers }), |_| {
        format!("revoked {whom} on {}", count(pushed.servers.len() as u64, "server"))
    })?;
    Ok(Exit::Ok)
}

/// `cluster users`.
pub(super) fn users(args: &DirArgs, context: &CliContext) -> Result<Exit, Failure> {
    let operator = Operator::open(&args.path(context))?;
    let authority = operator.authority();
    let state = |issued: &clawnode_nats::auth::Issued| match () {
        () if authority.is_revoked(issued) => "revoked",
        () if issued.expires <= now() => "ended",
        () => "good",
    };
    let time = |seconds: u64| output::time(Timestamp(seconds * 1_000));
    let users: Vec<Value> = authority
        .issued()
        .iter()
        .map(|issued| {
            json!({
                "name": issued.name,
                "role": issued.role,
                "state": state(issued),
                "made": time(issued.made),
                "ends": time(issued.expires),
                "user": issued.user,
            })
        })
        .collect();
    let out = context.out;
    out.document(&json!({ "users": users }), |_| {
        let rows = authority.issued().iter().map(|issued| {
            let role = issued.role.to_string();
            vec![
                issued.name.clone(),
                role,
                state(issued).to_owned(),
                time(issued.expires),
                issued.user.clone(),
            ]
        });
        out.table(&["name", "role", "state", "ends", "user"], rows)
    })?;
    Ok(Exit::Ok)
}
