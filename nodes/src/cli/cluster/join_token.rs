//! `cluster join-token`.

use std::time::Duration;

use clap::Args;
use clawnode_nats::auth::BusRole;
use clawnode_proto::{NodeName, Timestamp, node::NodeRole};
use serde_json::json;

use super::shared::DirArgs;
use crate::{
    bus::operator::{JoinPurpose, Operator, now},
    cli::{command_context::CliContext, flags::RoleArg, output},
    config::units::parse_duration,
    failure::{Exit, Failure},
};

/// Examples of `cluster join-token`.
const EXAMPLES: &str = "\
Examples:
  clawnode cluster join-token --role worker > token
  clawnode --role worker --join-file token       on the host that joins

A token can be used once, before it expires. The host exchanges it for a credential of its own,
which lasts for `--credential-ttl` or until it is revoked.";
/// The longest that a token may wait to be used.
const TTL_MOST: Duration = Duration::from_hours(7 * 24);
/// The longest that a credential may last.
const CREDENTIAL_MOST: Duration = Duration::from_hours(366 * 24);

/// `cluster join-token`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct JoinTokenArgs {
    #[command(flatten)]
    pub dir: DirArgs,
    /// Roles that the node may have
    #[arg(long, value_enum, value_delimiter = ',', required = true, value_name = "ROLE")]
    pub role: Vec<RoleArg>,
    /// How long the token can be used, at most 7d
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_duration)]
    pub ttl: Duration,
    /// How long the node's credential lasts, at most 366d
    #[arg(long, value_name = "TIME", default_value = "90d", value_parser = parse_duration)]
    pub credential_ttl: Duration,
    /// The name of the credential, for `cluster revoke` [default: the role and a number]
    #[arg(long, value_name = "NAME")]
    pub name: Option<NodeName>,
}

/// `cluster join-token`.
pub(super) async fn run(args: JoinTokenArgs, context: &CliContext) -> Result<Exit, Failure> {
    let roles: Vec<NodeRole> = args.role.iter().copied().map(NodeRole::from).collect();
    let usage = |message: &str| Failure::new(Exit::Usage, "usage", message);
    let role = BusRole::of(&roles).ok_or_else(|| usage("a role is needed"))?;
    let whole = |duration: Duration, most| duration >= Duration::from_secs(1) && duration <= most;
    if !whole(args.ttl, TTL_MOST) {
        return Err(usage("`--ttl` must be 1s to 7d"));
    }
    if !whole(args.credential_ttl, CREDENTIAL_MOST) || args.credential_ttl < args.ttl {
        return Err(usage("`--credential-ttl` must be 1s to 366d, and at least `--ttl`"));
    }
    let mut operator = Operator::open(&args.dir.path(context))?;
    let name = match args.name {
        Some(name) => free(&operator, name)?,
        None => numbered(&operator, role)?,
    };
    let (ttl, credential_ttl) = (args.ttl, args.credential_ttl);
    let admission = JoinPurpose { role, name: name.clone(), ttl, credential_ttl };
    let made = operator.admit(&context.loaded.config, &admission).await?;
    let end = |ttl: Duration| output::time(Timestamp((now() + ttl.as_secs()) * 1_000));
    let document = json!({
        "token": made.token,
        "name": name,
        "user": made.user,
        "cluster": made.cluster,
        "role": role,
        "use_before": end(ttl),
        "credential_ends": end(credential_ttl),
    });
    if !context.out.json {
        context.out.talk(&format!(
            "credential `{name}` for a {role}: use the token once, before {}; the credential lasts \
             until {}",
            end(ttl),
            end(credential_ttl)
        ));
    }
    context.out.document(&document, |_| made.token.clone())?;
    Ok(Exit::Ok)
}

fn free(operator: &Operator, name: NodeName) -> Result<NodeName, Failure> {
    if operator.authority().issued().iter().any(|issued| issued.name == name.as_str()) {
        let message = format!("a credential named `{name}` exists already");
        return Err(Failure::new(Exit::Usage, "usage", message).hint("choose another `--name`"));
    }
    Ok(name)
}

/// The first unused name of this role.
fn numbered(operator: &Operator, role: BusRole) -> Result<NodeName, Failure> {
    let issued = operator.authority().issued();
    (1..=issued.len() + 1)
        .filter_map(|number| format!("{role}-{number}").parse().ok())
        .find(|name: &NodeName| !issued.iter().any(|issued| issued.name == name.as_str()))
        .ok_or_else(|| Failure::new(Exit::Failed, "internal", "no name is left"))
}
