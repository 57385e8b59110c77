//! The credential of one user: its token, signed by a role's key, and the seed with which it
//! answers the server's challenge.

use std::fmt;

use clawnode_cluster::INBOX;
use nkeys::KeyPair;

use super::{
    grants::BusRole,
    jwt::{self, Claims, JwtError},
};

/// The tag by which users of our making are known; the role follows it.
pub(super) const ROLE_TAG: &str = "clawnode-role:";

/// A user's credential. Not printable.
#[derive(Clone)]
pub struct Credential {
    jwt: String,
    seed: String,
    user: String,
    name: String,
    role: Option<BusRole>,
    expires: Option<u64>,
}

/// Text that is no credential.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// A part is missing.
    #[error("no `{0}` block, as credentials files have it")]
    Block(&'static str),
    /// Its token is not readable.
    #[error("its token is not usable")]
    Token(#[from] JwtError),
    /// Seed and token are not of the same user.
    #[error("its seed is not of the user that its token names")]
    Pair,
}

// === impl Credential ===

impl Credential {
    /// From a token and the seed of the user that it names.
    pub(super) fn new(jwt: String, seed: String) -> Result<Self, CredentialError> {
        let claims = jwt::read(&jwt)?;
        let pair = KeyPair::from_seed(&seed)
            .map_err(|error| CredentialError::Token(JwtError::Key(error.to_string())))?;
        if pair.public_key() != claims.sub {
            return Err(CredentialError::Pair);
        }
        let tags = claims.nats["tags"].as_array();
        let role = tags
            .into_iter()
            .flatten()
            .find_map(|tag| tag.as_str()?.strip_prefix(ROLE_TAG).and_then(BusRole::of_name));
        let Claims { name, exp, sub, .. } = claims;
        Ok(Self { jwt, seed, user: sub, name, role, expires: exp })
    }

    /// From the text of a NATS credentials file.
    pub fn from_creds(text: &str) -> Result<Self, CredentialError> {
        let jwt = block(text, "NATS USER JWT").ok_or(CredentialError::Block("NATS USER JWT"))?;
        let seed = block(text, "USER NKEY SEED").ok_or(CredentialError::Block("USER NKEY SEED"))?;
        Self::new(jwt, seed)
    }

    /// The text of a NATS credentials file: secret.
    pub fn to_creds(&self) -> String {
        format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            self.jwt, self.seed
        )
    }

    /// The user's public key, which is no secret.
    pub fn user(&self) -> &str {
        &self.user
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its role; `None` if it is not of our making.
    pub const fn role(&self) -> Option<BusRole> {
        self.role
    }

    /// When it ends, in seconds since 1970.
    pub const fn expires(&self) -> Option<u64> {
        self.expires
    }

    /// Whether it has ended.
    pub fn is_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|end| end <= now)
    }

    /// Where only this user may listen for answers; `None` if it is not of our making.
    pub(crate) fn inbox(&self) -> Option<String> {
        self.role.map(|_| format!("{INBOX}.{}", self.user))
    }

    /// A digest that identifies it, and is no secret.
    pub fn digest(&self) -> String {
        blake3::hash(self.jwt.as_bytes()).to_hex().to_string()
    }

    pub(super) fn jwt(&self) -> &str {
        &self.jwt
    }

    pub(super) fn seed(&self) -> &str {
        &self.seed
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("user", &self.user)
            .field("role", &self.role)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

/// The one line between the marks of a block, as `-----BEGIN name-----` and `------END name------`.
fn block(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("BEGIN {name}"))?;
    let (inside, _) = rest.split_once(&format!("END {name}"))?;
    let content = inside.trim_matches(|c: char| c == '-' || c.is_whitespace());
    (!content.is_empty() && !content.contains(char::is_whitespace)).then(|| content.to_owned())
}
