//! A join token: one line of text with all that a host needs to be admitted, once.
//!
//! `cnjoin1_` and base64url of: four bytes of a checksum, then JSON. The checksum only tells a
//! garbled token from a refused one.

use std::fmt;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use clawnode_proto::subject::Prefix;
use serde::{Deserialize, Serialize};

use super::{
    credential::{Credential, CredentialError},
    grants::BusRole,
};

/// The first characters of a token; another layout has another number.
const MARK: &str = "cnjoin1_";
/// The first characters of tokens of any layout.
const ANY_MARK: &str = "cnjoin";
/// Bytes of the checksum.
const SUM: usize = 4;
/// Longest token that is read.
const TOKEN_MOST: usize = 64 << 10;

/// A join token. Not printable.
#[derive(Clone)]
pub struct JoinToken {
    /// The servers, as `tls://host:port`.
    pub urls: Vec<String>,
    /// The certificate of the authority that signed the servers' certificates, PEM.
    pub ca: String,
    /// The first part of the cluster's subjects.
    pub prefix: Prefix,
    /// The cluster's name.
    pub cluster: String,
    /// The role that the node will have.
    pub role: BusRole,
    /// The user that the node will be, as it may wait for its credential.
    pub admission: Credential,
    /// The digest of its offered credential ([`Credential::digest`]); `None` in a token of an older
    /// build.
    pub offer: Option<String>,
}

/// As it travels.
#[derive(Serialize, Deserialize)]
struct TokenFields {
    urls: Vec<String>,
    ca: String,
    prefix: String,
    cluster: String,
    role: BusRole,
    jwt: String,
    seed: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offer: Option<String>,
}

/// Text that is no join token. Never quotes it.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// Something else.
    #[error("not a join token, which begins with `{MARK}`")]
    Foreign,
    /// Of a newer program.
    #[error("a join token of another version than `{MARK}`; use the build that made it")]
    Version,
    /// Cut or changed on its way.
    #[error("the join token is garbled: it was cut or changed on its way here")]
    Garbled,
    /// It holds no usable credential.
    #[error("the join token is not usable")]
    Credential(#[from] CredentialError),
}

// === impl JoinToken ===

impl JoinToken {
    /// The whole text: secret.
    pub fn to_text(&self) -> Result<String, TokenError> {
        let wire = TokenFields {
            urls: self.urls.clone(),
            ca: self.ca.clone(),
            prefix: self.prefix.to_string(),
            cluster: self.cluster.clone(),
            role: self.role,
            jwt: self.admission.jwt().to_owned(),
            seed: self.admission.seed().to_owned(),
            offer: self.offer.clone(),
        };
        let body = serde_json::to_vec(&wire).map_err(|_error| TokenError::Garbled)?;
        let mut bytes = sum(&body).to_vec();
        bytes.extend(body);
        Ok(format!("{MARK}{}", URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// Reads a token; white space around it is left out.
    pub fn from_text(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        let Some(rest) = text.strip_prefix(MARK) else {
            let other = text.starts_with(ANY_MARK) && text.contains('_');
            return Err(if other { TokenError::Version } else { TokenError::Foreign });
        };
        if rest.len() > TOKEN_MOST {
            return Err(TokenError::Garbled);
        }
        let bytes = URL_SAFE_NO_PAD.decode(rest).map_err(|_error| TokenError::Garbled)?;
        let (found, body) = bytes.split_at_checked(SUM).ok_or(TokenError::Garbled)?;
        if found != sum(body) {
            return Err(TokenError::Garbled);
        }
        let wire: TokenFields =
            serde_json::from_slice(body).map_err(|_error| TokenError::Garbled)?;
        Ok(Self {
            admission: Credential::new(wire.jwt, wire.seed)?,
            prefix: wire.prefix.parse().map_err(|_error| TokenError::Garbled)?,
            urls: wire.urls,
            ca: wire.ca,
            cluster: wire.cluster,
            role: wire.role,
            offer: wire.offer,
        })
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinToken")
            .field("urls", &self.urls)
            .field("prefix", &self.prefix)
            .field("role", &self.role)
            .field("admission", &self.admission)
            .finish_non_exhaustive()
    }
}

fn sum(body: &[u8]) -> [u8; SUM] {
    crc32fast::hash(body).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::{super::Authority, *};

    #[test]
    fn a_token_survives_its_way_or_says_that_it_did_not() {
        let authority = Authority::new("lab", &Prefix::default()).unwrap();
        let token = JoinToken {
            urls: vec!["tls://127.0.0.1:4222".to_owned()],
            ca: "PEM".to_owned(),
            prefix: Prefix::default(),
            cluster: "c".to_owned(),
            role: BusRole::Worker,
            admission: authority.brief(BusRole::Admission, None, 1, 60).unwrap(),
            offer: Some("d".to_owned()),
        };
        let text = token.to_text().unwrap();
        let read = JoinToken::from_text(&format!(" {text}\n")).unwrap();
        assert_eq!(read.admission.user(), token.admission.user());
        assert_eq!((read.urls, read.role), (token.urls.clone(), BusRole::Worker));
        assert_eq!(read.offer, token.offer);
        let shown = format!("{token:?}");
        assert!(!shown.contains(token.admission.seed()), "{shown}");
        for cut in 1..text.len() {
            let (left, _) = text.split_at(text.len() - cut);
            let error = JoinToken::from_text(left).unwrap_err();
            assert!(!error.to_string().contains("eyJ"), "{error}");
        }
        for (text, version) in [("", false), ("nats://x", false), ("cnjoin2_abc", true)] {
            let error = JoinToken::from_text(text).unwrap_err();
            assert_eq!(matches!(error, TokenError::Version), version, "{text}");
        }
    }
}
