//! Becoming a node of a cluster, and staying one.
//!
//! A join token is exchanged once for a credential of this node alone, which is kept in the data
//! directory, readable by its owner only, until it ends or is revoked:
//!
//! ```text
//! DATA_DIR/bus/member.json    servers, prefix, cluster and role
//! DATA_DIR/bus/node.creds     the credential: secret
//! DATA_DIR/bus/ca.pem         who signs the servers' certificates
//! DATA_DIR/bus/cluster-id     the cluster that this node first belonged to, joined or not
//! ```

use std::path::{Path, PathBuf};

use clawnode_nats::{
    ConnectError, NatsOptions,
    auth::{AdmitError, BusRole, Credential, JoinToken, admit},
};
use clawnode_proto::{ErrorChain, node::NodeRole, subject::Prefix};
use serde::{Deserialize, Serialize};

use super::{cluster::unconnected, files};
use crate::{
    config::{LoadedConfig, ValueOrigin},
    secret::Secret,
    start_error::StartError,
};

const FOLDER: &str = "bus";
const MEMBER: &str = "member.json";
const CREDENTIAL: &str = "node.creds";
const CA: &str = "ca.pem";
const CLUSTER: &str = "cluster-id";

/// What a node is as a member of a cluster with credentials.
#[derive(Debug)]
pub struct Member {
    /// The servers.
    pub urls: Vec<String>,
    /// What the cluster's subjects begin with.
    pub prefix: Prefix,
    /// Who signs the servers' certificates.
    pub ca: PathBuf,
    pub credential: Credential,
    pub cluster: String,
}

/// As it is stored, beside the credential.
#[derive(Serialize, Deserialize)]
struct StoredMembership {
    urls: Vec<String>,
    prefix: String,
    cluster: String,
    role: BusRole,
}

/// What this node is a member of: by `token`, if it is new, else as its data directory has it;
/// `None` if neither says anything, or the settings name servers themselves.
pub async fn member(
    loaded: &LoadedConfig,
    roles: &[NodeRole],
    token: Option<&Secret>,
) -> Result<Option<Member>, StartError> {
    let folder = loaded.config.node.data_dir.join(FOLDER);
    let token = token.map(|text| JoinToken::from_text(text.expose())).transpose();
    let token = token.map_err(|error| {
        StartError::config("join_token_invalid", ErrorChain(&error).to_string())
            .hint("copy the whole line that `clawnode cluster join-token` printed")
    })?;
    if loaded.config.cluster.nats.is_some() {
        return match token {
            None => Ok(None),
            Some(_) => Err(StartError::config(
                "config_invalid",
                "both a join token and `cluster.nats` name servers",
            )
            .hint("leave out `--nats`: the token knows the servers")),
        };
    }
    let stored = read(&folder)?;
    let Some(token) = token else {
        if let Some(member) = &stored {
            check_role(member.credential.role(), roles, "this node's credential")?;
        }
        return Ok(stored);
    };
    check_role(Some(token.role), roles, "the join token")?;
    check_prefix(loaded, &token)?;
    let known = remembered(&loaded.config.node.data_dir)?;
    if let Some(known) = known.filter(|known| *known != token.cluster) {
        let message = format!(
            "the join token is for cluster `{}`, but this node belongs to `{known}`",
            token.cluster
        );
        return Err(StartError::config("other_cluster", message).hint(
            "ask that cluster for a token, or give the node another data directory (`--data-dir`)",
        ));
    }
    match stored {
        // A token that stays in the environment is met again at every start.
        Some(member) if member.credential.user() == token.admission.user() => Ok(Some(member)),
        _ => exchange(&folder, &token).await.map(Some),
    }
}

/// Takes the credential that is offered to the token's user, and keeps it.
async fn exchange(folder: &Path, token: &JoinToken) -> Result<Member, StartError> {
    files::directory(folder)?;
    let ca = folder.join(CA);
    files::write(&ca, &token.ca)?;
    let options = NatsOptions { ca: Some(ca), ..NatsOptions::new(token.urls.clone()) };
    let credential = admit(&options, token).await.map_err(|error| unadmitted(&error, token))?;
    if credential.role() != Some(token.role) {
        let message = "the cluster offers a credential of another role than the join token says";
        return Err(StartError::refused("role_mismatch", message)
            .hint("ask the operator for another token"));
    }
    let stored = StoredMembership {
        urls: token.urls.clone(),
        prefix: token.prefix.to_string(),
        cluster: token.cluster.clone(),
        role: token.role,
    };
    let text = serde_json::to_string_pretty(&stored)
        .map_err(|error| StartError::failed("internal", error.to_string()))?;
    files::write(&folder.join(CREDENTIAL), &credential.to_creds())?;
    files::write(&folder.join(MEMBER), &text)?;
    tracing::info!(user = credential.user(), role = %token.role, "joined the cluster");
    read(folder)?.ok_or_else(|| broken(folder, "it vanished"))
}

fn unadmitted(error: &AdmitError, token: &JoinToken) -> StartError {
    let hint = "ask the operator for another (`clawnode cluster join-token`)";
    match error {
        AdmitError::Used => {
            StartError::refused("join_token_used", error.to_string()).hint(format!(
                "{hint}; if this host did not use it, have `{}` revoked",
                token.admission.user()
            ))
        }
        AdmitError::Connect(ConnectError::Login { .. } | ConnectError::Expired { .. }) => {
            let message = "the cluster refuses the join token: it has expired, it was revoked, or \
                           it is of another cluster";
            StartError::refused("join_token_refused", message).hint(hint)
        }
        AdmitError::Connect(error) => unconnected(error),
        AdmitError::Credential(_) => {
            StartError::failed("join_failed", ErrorChain(error).to_string()).hint(hint)
        }
    }
}

fn check_role(role: Option<BusRole>, roles: &[NodeRole], whose: &str) -> Result<(), StartError> {
    let wanted = BusRole::of(roles).map_or("none", BusRole::as_str);
    match role {
        Some(role) if !role.covers(roles) => {
            let message = format!("{whose} is for a {role}, but this node is to be a {wanted}");
            Err(StartError::refused("role_mismatch", message).hint(
                "start it with the role that the token is for, or ask the operator for one with \
                 the right `--role`",
            ))
        }
        _ => Ok(()),
    }
}

/// A configured prefix must be the token's.
fn check_prefix(loaded: &LoadedConfig, token: &JoinToken) -> Result<(), StartError> {
    let set = loaded.origin_of(&["cluster", "prefix"]) != ValueOrigin::Default;
    let configured = &loaded.config.cluster.prefix;
    if set && *configured != token.prefix {
        let message =
            format!("the join token is for prefix `{}`, but `{configured}` is set", token.prefix);
        return Err(StartError::config("config_invalid", message)
            .hint("leave out `--prefix`: the token knows it"));
    }
    Ok(())
}

/// What the data directory has.
pub fn read(folder: &Path) -> Result<Option<Member>, StartError> {
    let Some(text) = files::read(&folder.join(MEMBER))? else { return Ok(None) };
    let stored: StoredMembership = serde_json::from_str(&text)
        .map_err(|error| broken(folder, &format!("`{MEMBER}`: {error}")))?;
    let text = files::read(&folder.join(CREDENTIAL))?
        .ok_or_else(|| broken(folder, &format!("`{CREDENTIAL}` is missing")))?;
    let credential = Credential::from_creds(&text)
        .map_err(|error| broken(folder, &format!("`{CREDENTIAL}`: {}", ErrorChain(&error))))?;
    let prefix = stored.prefix.parse().map_err(|error| broken(folder, &format!("{error}")))?;
    let ca = folder.join(CA);
    Ok(Some(Member { urls: stored.urls, prefix, ca, credential, cluster: stored.cluster }))
}

/// What the data directory has, for those who only look.
pub fn of_data_dir(data_dir: &Path) -> Result<Option<Member>, StartError> {
    read(&data_dir.join(FOLDER))
}

/// The cluster that this data directory first belonged to.
pub fn remembered(data_dir: &Path) -> Result<Option<String>, StartError> {
    let text = files::read(&data_dir.join(FOLDER).join(CLUSTER))?;
    Ok(text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()))
}

/// Remembers the cluster, the first time.
pub fn remember(data_dir: &Path, cluster: &str) -> Result<(), StartError> {
    let folder = data_dir.join(FOLDER);
    files::directory(&folder)?;
    files::write(&folder.join(CLUSTER), &format!("{cluster}\n"))
}

fn broken(folder: &Path, detail: &str) -> StartError {
    let message = format!("the membership in `{}` is not usable: {detail}", folder.display());
    StartError::config("membership_unusable", message)
        .hint("remove that directory, and join again with a new token")
}
