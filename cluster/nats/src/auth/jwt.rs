//! Signing and reading claims: a JSON Web Token whose algorithm is `ed25519-nkey`.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use nkeys::KeyPair;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The version of the claims that we write.
const VERSION: u8 = 2;
/// Bytes of a token that is read; an account with many revocations is the largest.
const TOKEN_MOST: usize = 256 << 10;

/// The claims of a token: who says what about whom.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Claims {
    /// When it was signed, in seconds since 1970.
    pub(super) iat: u64,
    /// The public key that signed it.
    pub(super) iss: String,
    #[serde(default)]
    pub(super) name: String,
    /// The public key that it is about.
    pub(super) sub: String,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) exp: Option<u64>,
    /// The part that NATS reads.
    pub(super) nats: Value,
}

/// Text that is no token of ours.
#[derive(Debug, thiserror::Error)]
pub enum JwtError {
    /// It cannot be read.
    #[error("not a NATS token: {0}")]
    Malformed(&'static str),
    /// The content was changed after it was signed.
    #[error("the signature of a NATS token does not match its content")]
    Signature,
    /// A key has the wrong form.
    #[error("a key is not usable: {0}")]
    Key(String),
}

/// Signs `nats` of `kind` about the public key `subject`.
pub(super) fn sign(
    key: &KeyPair,
    subject: &str,
    name: &str,
    now: u64,
    expires: Option<u64>,
    kind: &str,
    mut nats: Value,
) -> Result<String, JwtError> {
    nats["type"] = json!(kind);
    nats["version"] = json!(VERSION);
    let claims = Claims {
        iat: now,
        iss: key.public_key(),
        name: name.to_owned(),
        sub: subject.to_owned(),
        exp: expires,
        nats,
    };
    let mut body = serde_json::to_value(&claims).map_err(|_e| JwtError::Malformed("claims"))?;
    // An id of the content, as the library makes one; servers do not compare it.
    body["jti"] = json!(blake3::hash(body.to_string().as_bytes()).to_hex().to_string());
    let header = json!({ "typ": "JWT", "alg": "ed25519-nkey" }).to_string();
    let text =
        format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(body.to_string()));
    let signature = key.sign(text.as_bytes()).map_err(|error| JwtError::Key(error.to_string()))?;
    Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// Reads a token, and checks the signature of the signer that it names. The server decides whether
/// that signer may sign it.
pub(super) fn read(text: &str) -> Result<Claims, JwtError> {
    if text.len() > TOKEN_MOST {
        return Err(JwtError::Malformed("too long"));
    }
    let (signed, signature) = text.rsplit_once('.').ok_or(JwtError::Malformed("no signature"))?;
    let (_, body) = signed.split_once('.').ok_or(JwtError::Malformed("no claims"))?;
    let decoded = |text: &str| {
        URL_SAFE_NO_PAD.decode(text).map_err(|_error| JwtError::Malformed("not base64"))
    };
    let claims: Claims = serde_json::from_slice(&decoded(body)?)
        .map_err(|_error| JwtError::Malformed("claims that are not readable"))?;
    let key =
        KeyPair::from_public_key(&claims.iss).map_err(|error| JwtError::Key(error.to_string()))?;
    key.verify(signed.as_bytes(), &decoded(signature)?).map_err(|_error| JwtError::Signature)?;
    Ok(claims)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_signed_reads_and_what_was_changed_does_not() {
        let (key, user) = (KeyPair::new_account(), KeyPair::new_user().public_key());
        let text = sign(&key, &user, "w", 5, Some(9), "user", json!({ "tags": ["a"] })).unwrap();
        let claims = read(&text).unwrap();
        assert_eq!((claims.iat, claims.exp, claims.sub), (5, Some(9), user));
        assert_eq!(claims.nats, json!({ "tags": ["a"], "type": "user", "version": 2 }));
        let mut parts: Vec<&str> = text.split('.').collect();
        let other = URL_SAFE_NO_PAD.encode(
            String::from_utf8(URL_SAFE_NO_PAD.decode(parts[1]).unwrap())
                .unwrap()
                .replace("\"exp\":9", "\"exp\":8"),
        );
        assert_ne!(other, parts[1]);
        parts[1] = &other;
        assert!(matches!(read(&parts.join(".")), Err(JwtError::Signature)));
        let (cut, _) = text.split_at(text.len() - 9);
        for garbled in ["", ".", "a.b.c", "..", "é.é.é", cut] {
            assert!(read(garbled).is_err(), "{garbled}");
        }
    }
}
