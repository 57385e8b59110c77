//! The keys of a cluster's operator, and the tokens that they sign. The keys stay where `cluster
//! init` wrote them.

use std::{collections::BTreeMap, fmt};

use clawnode_cluster::INBOX;
use clawnode_proto::subject::Prefix;
use nkeys::KeyPair;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    credential::{Credential, CredentialError, ROLE_TAG},
    grants::{BusRole, RoleGrants},
    jwt::{self, JwtError},
};
use crate::{mirror, options::KnownCluster};

/// The layout of the file that this build knows.
const FORMAT: u32 = 1;

/// The authority over one cluster. Not printable.
pub struct Authority {
    sealed: StoredAuthority,
    prefix: Prefix,
    operator: KeyPair,
    account: KeyPair,
    system: KeyPair,
    /// A role has one key at a time; a replaced one is forgotten.
    roles: BTreeMap<BusRole, KeyPair>,
    /// Only for tests of the tests: rights of a role beyond its table.
    widened: Vec<(BusRole, String)>,
}

/// As it is stored: seeds, so the file is secret.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredAuthority {
    format: u32,
    cluster: String,
    prefix: String,
    operator: String,
    account: String,
    system: String,
    roles: BTreeMap<BusRole, String>,
    /// For each revoked user, the time up to which its credentials are revoked; later ones are
    /// valid.
    revoked: BTreeMap<String, u64>,
    issued: Vec<Issued>,
    /// The least time that the account is signed with: later than every one from before its last
    /// change. A server keeps the later of two accounts, in whole seconds, and it has the one of its
    /// configuration at every start.
    #[serde(default)]
    changed: u64,
    /// How the cluster was born, once it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    born: Option<KnownCluster>,
}

/// A user that a credential was made for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    /// Its public key.
    pub user: String,
    pub name: String,
    pub role: BusRole,
    /// When it was made, in seconds since 1970.
    pub made: u64,
    /// When it ends.
    pub expires: u64,
}

/// Why an authority cannot do an operation.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// Its file does not read.
    #[error("cannot read the keys: {0}")]
    Malformed(String),
    /// Its file is of a newer program.
    #[error("the keys have format {0}, but this build knows {FORMAT}; use a newer build")]
    Format(u32),
    /// A key is not usable.
    #[error(transparent)]
    Jwt(#[from] JwtError),
    /// A credential that was made cannot be read.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// No credential has this name.
    #[error("no credential was made for `{0}`")]
    Unknown(String),
}

// === impl Authority ===

impl Authority {
    /// New keys for the cluster of this name and prefix.
    pub fn new(cluster: &str, prefix: &Prefix) -> Result<Self, AuthorityError> {
        let roles =
            BusRole::ALL.into_iter().map(|role| Ok((role, seed_of(&KeyPair::new_account())?)));
        Self::unseal(StoredAuthority {
            format: FORMAT,
            cluster: cluster.to_owned(),
            prefix: prefix.to_string(),
            operator: seed_of(&KeyPair::new_operator())?,
            account: seed_of(&KeyPair::new_account())?,
            system: seed_of(&KeyPair::new_account())?,
            roles: roles.collect::<Result<_, JwtError>>()?,
            revoked: BTreeMap::new(),
            issued: Vec::new(),
            changed: 0,
            born: None,
        })
    }

    /// Reads what [`to_json`](Self::to_json) wrote.
    pub fn from_json(text: &str) -> Result<Self, AuthorityError> {
        #[derive(Deserialize)]
        struct Any {
            format: u32,
        }
        // Serde's errors quote the text that they cannot read, which may be a seed.
        let malformed = |error: serde_json::Error| {
            AuthorityError::Malformed(format!("line {}, column {}", error.line(), error.column()))
        };
        let Any { format } = serde_json::from_str(text).map_err(malformed)?;
        if format != FORMAT {
            return Err(AuthorityError::Format(format));
        }
        Self::unseal(serde_json::from_str(text).map_err(malformed)?)
    }

    /// Everything, seeds included: for a file that only its owner reads.
    pub fn to_json(&self) -> Result<String, AuthorityError> {
        serde_json::to_string_pretty(&self.sealed)
            .map_err(|error| AuthorityError::Malformed(error.to_string()))
    }

    fn unseal(sealed: StoredAuthority) -> Result<Self, AuthorityError> {
        let pair = |seed: &String| {
            KeyPair::from_seed(seed).map_err(|error| JwtError::Key(error.to_string()))
        };
        let prefix = sealed.prefix.parse().map_err(|_error| {
            AuthorityError::Malformed(format!("`{}` is not a prefix", sealed.prefix))
        })?;
        let roles = sealed.roles.iter().map(|(role, seed)| Ok((*role, pair(seed)?)));
        Ok(Self {
            prefix,
            operator: pair(&sealed.operator)?,
            account: pair(&sealed.account)?,
            system: pair(&sealed.system)?,
            roles: roles.collect::<Result<_, JwtError>>()?,
            widened: Vec::new(),
            sealed,
        })
    }

    /// The cluster's name.
    pub fn cluster(&self) -> &str {
        &self.sealed.cluster
    }

    /// The first part of the cluster's subjects.
    pub const fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// How the cluster was born, as far as it was written down here.
    pub const fn born(&self) -> Option<&KnownCluster> {
        self.sealed.born.as_ref()
    }

    /// Writes down how the cluster was born; whether that is news.
    pub fn remember(&mut self, born: KnownCluster) -> bool {
        let is_news = self.sealed.born.as_ref() != Some(&born);
        self.sealed.born = Some(born);
        is_news
    }

    /// The users that credentials were made for, oldest first.
    pub fn issued(&self) -> &[Issued] {
        &self.sealed.issued
    }

    /// Whether this user was revoked after its credential was made.
    pub fn is_revoked(&self, issued: &Issued) -> bool {
        self.sealed.revoked.get(&issued.user).is_some_and(|until| issued.made <= *until)
    }

    /// The account's public key.
    pub fn account_id(&self) -> String {
        self.account.public_key()
    }

    /// The system account's public key.
    pub fn system_id(&self) -> String {
        self.system.public_key()
    }

    /// The token that a server trusts.
    pub fn operator_jwt(&self, now: u64) -> Result<String, AuthorityError> {
        let id = self.operator.public_key();
        let nats = json!({ "system_account": self.system_id() });
        Ok(jwt::sign(&self.operator, &id, self.cluster(), now, None, "operator", nats)?)
    }

    /// The account in which servers report events.
    pub fn system_jwt(&self, now: u64) -> Result<String, AuthorityError> {
        let nats = json!({ "limits": limits(false) });
        let id = self.system_id();
        Ok(jwt::sign(&self.operator, &id, "SYS", now, None, "account", nats)?)
    }

    /// The cluster's account: the rights of each role, and the revoked users.
    pub fn account_jwt(&self, now: u64) -> Result<String, AuthorityError> {
        let keys: Vec<Value> = self
            .roles
            .iter()
            .map(|(role, key)| {
                // Admissions have theirs in their own tokens. Those of older builds have nothing.
                let mut grants = match role {
                    BusRole::Admission => RoleGrants::default(),
                    role => RoleGrants::of(*role, &self.prefix),
                };
                let more = self.widened.iter().filter(|(widened, _)| widened == role);
                grants.publish.extend(more.clone().map(|(_, subject)| subject.clone()));
                grants.subscribe.extend(more.map(|(_, subject)| subject.clone()));
                json!({
                    "kind": "user_scope",
                    "key": key.public_key(),
                    "role": role.as_str(),
                    "template": grants.template(),
                })
            })
            .collect();
        let nats = json!({
            "limits": limits(true),
            "signing_keys": keys,
            "revocations": self.sealed.revoked,
        });
        let id = self.account_id();
        let signed = now.max(self.sealed.changed);
        Ok(jwt::sign(&self.operator, &id, self.cluster(), signed, None, "account", nats)?)
    }

    /// Credentials that were signed before `now` belong to an older account from here on.
    fn change(&mut self, now: u64) {
        self.sealed.changed = now.max(self.sealed.changed).saturating_add(1);
    }

    /// A credential for a new user.
    pub fn issue(
        &mut self,
        role: BusRole,
        name: &str,
        now: u64,
        ttl: u64,
    ) -> Result<Credential, AuthorityError> {
        let seed = seed_of(&KeyPair::new_user())?;
        let credential = self.sign_user(role, name, &seed, now, ttl)?;
        self.sealed.issued.push(Issued {
            user: credential.user().to_owned(),
            name: name.to_owned(),
            role,
            made: now,
            expires: now.saturating_add(ttl),
        });
        Ok(credential)
    }

    /// A short-lived credential that is not written down: for one command, or to ask for another
    /// credential of the same user.
    pub fn brief(
        &self,
        role: BusRole,
        credential: Option<&Credential>,
        now: u64,
        ttl: u64,
    ) -> Result<Credential, AuthorityError> {
        let seed = match credential {
            Some(credential) => credential.seed().to_owned(),
            None => seed_of(&KeyPair::new_user())?,
        };
        self.sign_user(role, role.as_str(), &seed, now, ttl)
    }

    fn sign_user(
        &self,
        role: BusRole,
        name: &str,
        seed: &str,
        now: u64,
        ttl: u64,
    ) -> Result<Credential, AuthorityError> {
        let pair = KeyPair::from_seed(seed).map_err(|error| JwtError::Key(error.to_string()))?;
        let tags = json!([format!("{ROLE_TAG}{role}")]);
        let (key, nats) = if role == BusRole::Admission {
            let grants = RoleGrants::of_user(role, &self.prefix, &pair.public_key());
            let mut nats = grants.template();
            nats["tags"] = tags;
            (&self.account, nats)
        } else {
            let unknown = || AuthorityError::Unknown(role.to_string());
            let key = self.roles.get(&role).ok_or_else(unknown)?;
            (key, json!({ "issuer_account": self.account_id(), "tags": tags }))
        };
        let end = Some(now.saturating_add(ttl));
        let jwt = jwt::sign(key, &pair.public_key(), name, now, end, "user", nats)?;
        Ok(Credential::new(jwt, seed.to_owned())?)
    }

    /// A credential that may mirror and restore the streams that have mirrors, for `ttl` seconds. It is
    /// of no role: no node has anything of it.
    pub fn keeper(&self, now: u64, ttl: u64) -> Result<Credential, AuthorityError> {
        let pair = KeyPair::new_user();
        let user = pair.public_key();
        let inbox = format!("{INBOX}.{user}.>");
        let mut publish = vec![inbox.clone()];
        for stream in mirror::streams(&self.prefix) {
            for operation in
                ["INFO", "CREATE", "UPDATE", "DELETE", "PURGE", "MSG.GET", "MSG.DELETE"]
            {
                publish.push(format!("$JS.API.STREAM.{operation}.{stream}"));
            }
        }
        let nats = json!({
            "subs": -1, "data": -1, "payload": -1,
            "pub": { "allow": publish },
            "sub": { "allow": [inbox, self.prefix.heartbeats()] },
            "tags": [format!("{ROLE_TAG}{}", BusRole::Admin)],
        });
        let end = Some(now.saturating_add(ttl));
        let jwt = jwt::sign(&self.account, &user, "keeper", now, end, "user", nats)?;
        Ok(Credential::new(jwt, seed_of(&pair)?)?)
    }

    /// A credential in the system account that may send accounts to the servers, for `ttl` seconds.
    pub(super) fn speaker(&self, now: u64, ttl: u64) -> Result<Credential, AuthorityError> {
        self.system_user("speaker", Some(super::control::CLAIMS_UPDATE), None, now, ttl)
    }

    /// A credential in the system account that may hear whose connections end, for `ttl` seconds:
    /// operators make one for `cluster.sys_credentials` with tools of their own.
    #[cfg(feature = "test-util")]
    pub fn listener(&self, now: u64, ttl: u64) -> Result<Credential, AuthorityError> {
        self.system_user("listener", None, Some(crate::disconnects::DISCONNECTS), now, ttl)
    }

    fn system_user(
        &self,
        name: &str,
        publish: Option<&str>,
        subscribe: Option<&str>,
        now: u64,
        ttl: u64,
    ) -> Result<Credential, AuthorityError> {
        let pair = KeyPair::new_user();
        let user = pair.public_key();
        let inbox = format!("{INBOX}.{user}.>");
        let subscribe: Vec<&str> = subscribe.into_iter().chain([inbox.as_str()]).collect();
        let nats = json!({
            "subs": -1, "data": -1, "payload": -1,
            "pub": { "allow": publish.map_or_else(|| vec![&*inbox], |subject| vec![subject]) },
            "sub": { "allow": subscribe },
            "tags": [format!("{ROLE_TAG}{}", BusRole::Admin)],
        });
        let end = Some(now.saturating_add(ttl));
        let jwt = jwt::sign(&self.system, &user, name, now, end, "user", nats)?;
        Ok(Credential::new(jwt, seed_of(&pair)?)?)
    }

    /// Revokes all credentials so far of the user with this name or public key; returns the users.
    pub fn revoke(&mut self, who: &str, now: u64) -> Result<Vec<Issued>, AuthorityError> {
        let sealed = &mut self.sealed;
        let found: Vec<Issued> = sealed
            .issued
            .iter()
            .filter(|issued| issued.user == who || issued.name == who)
            .cloned()
            .collect();
        if found.is_empty() {
            return Err(AuthorityError::Unknown(who.to_owned()));
        }
        for issued in &found {
            sealed.revoked.insert(issued.user.clone(), now);
        }
        self.change(now);
        Ok(found)
    }

    /// Replaces the key of a role: every credential that the old one signed ends.
    pub fn revoke_role(&mut self, role: BusRole, now: u64) -> Result<(), AuthorityError> {
        let key = KeyPair::new_account();
        self.sealed.roles.insert(role, seed_of(&key)?);
        self.roles.insert(role, key);
        self.sealed.issued.retain(|issued| issued.role != role);
        self.change(now);
        Ok(())
    }

    /// Another tenant of the same servers: an account of its own below the same operator.
    #[cfg(feature = "test-util")]
    pub fn neighbour(&self, cluster: &str) -> Result<Self, AuthorityError> {
        let mut sealed = Self::new(cluster, &self.prefix)?.sealed;
        sealed.operator.clone_from(&self.sealed.operator);
        sealed.system.clone_from(&self.sealed.system);
        Self::unseal(sealed)
    }

    /// Lets a role do more than its table says, so that tests can see that they notice.
    #[cfg(feature = "test-util")]
    pub fn widen(&mut self, role: BusRole, subject: &str) {
        self.widened.push((role, subject.to_owned()));
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("cluster", &self.sealed.cluster)
            .field("account", &self.account_id())
            .finish_non_exhaustive()
    }
}

fn seed_of(key: &KeyPair) -> Result<String, JwtError> {
    key.seed().map_err(|error| JwtError::Key(error.to_string()))
}

/// No limit on things that nodes do, and zero for things that they never do: other accounts, leaf
/// nodes, and users without proof of identity.
fn limits(stores: bool) -> Value {
    let mut limits = json!({
        "subs": -1, "data": -1, "payload": -1, "conn": -1,
        "wildcards": true, "disallow_bearer": true,
    });
    if stores {
        for name in ["mem_storage", "disk_storage", "streams", "consumer"] {
            limits[name] = json!(-1);
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_kept_and_never_shown() {
        let mut authority = Authority::new("lab", &Prefix::default()).unwrap();
        let credential = authority.issue(BusRole::Worker, "w1", 100, 60).unwrap();
        assert_eq!(credential.role(), Some(BusRole::Worker));
        assert_eq!((credential.name(), credential.expires()), ("w1", Some(160)));
        assert!(credential.is_expired(160) && !credential.is_expired(159));
        let again = Authority::from_json(&authority.to_json().unwrap()).unwrap();
        assert_eq!(again.account_id(), authority.account_id());
        assert_eq!(again.issued(), authority.issued());
        let shown = format!("{authority:?} {credential:?}");
        assert!(!shown.contains("\"S") && !shown.contains(credential.seed()), "{shown}");
        let read = Credential::from_creds(&credential.to_creds()).unwrap();
        assert_eq!((read.user(), read.jwt()), (credential.user(), credential.jwt()));
        let broken = authority.to_json().unwrap().replacen("\"S", "\"", 1);
        let error = Authority::from_json(&broken).unwrap_err().to_string();
        assert!(!error.contains(&authority.sealed.account), "{error}");
    }

    #[test]
    fn a_revocation_names_whom_it_meets() {
        let mut authority = Authority::new("lab", &Prefix::default()).unwrap();
        let one = authority.issue(BusRole::Worker, "one", 100, 60).unwrap();
        authority.issue(BusRole::Gateway, "two", 100, 60).unwrap();
        assert!(matches!(authority.revoke("three", 110), Err(AuthorityError::Unknown(_))));
        let met = authority.revoke(one.user(), 110).unwrap();
        assert_eq!(met.len(), 1);
        assert!(authority.is_revoked(&met[0]));
        let claims = jwt::read(&authority.account_jwt(111).unwrap()).unwrap();
        assert_eq!(claims.nats["revocations"][one.user()], json!(110));
        authority.revoke_role(BusRole::Gateway, 111).unwrap();
        assert!(!authority.issued().iter().any(|issued| issued.name == "two"));
    }

    #[test]
    fn an_account_is_later_than_the_one_before_its_change() {
        let mut authority = Authority::new("lab", &Prefix::default()).unwrap();
        authority.issue(BusRole::Worker, "one", 100, 60).unwrap();
        let signed =
            |authority: &Authority| jwt::read(&authority.account_jwt(100).unwrap()).unwrap().iat;
        let mut times = vec![signed(&authority)];
        authority.revoke("one", 100).unwrap();
        times.push(signed(&authority));
        authority.revoke_role(BusRole::Worker, 100).unwrap();
        times.push(signed(&authority));
        let again = Authority::from_json(&authority.to_json().unwrap()).unwrap();
        assert_eq!(times, [100, 101, 102]);
        assert_eq!(signed(&again), 102, "also after a command ended");
        let later = jwt::read(&again.account_jwt(500).unwrap()).unwrap();
        assert_eq!(later.iat, 500);
    }
}
