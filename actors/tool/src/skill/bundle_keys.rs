//! The Ed25519 keys of bundles: a private one signs, public ones verify.

use std::{fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::{
    rand::SystemRandom,
    signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey},
};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject as _};

/// Characters of a line in a PEM file.
const PEM_LINE: usize = 64;
/// The points of small order, without their signs, in base64. Signatures by them need no private key. A key of zeros,
/// which a person may write as a placeholder, is one of them.
const WEAK_KEYS: [&str; 7] = [
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    "JuiVj8KyJ7BFw/SJ8u+Y8NXfrAXTxjM5sTgCiG1T/AU=",
    "xxdqcD1N2E+6PAt2DRBnDyogU/osOczGTsf9d5KsA3o=",
    "7P///////////////////////////////////////38=",
    "7f///////////////////////////////////////38=",
    "7v///////////////////////////////////////38=",
];

/// A public key: 32 bytes, in base64 where people read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleKey([u8; 32]);

/// A private key. Its `Debug` shows the public one.
#[derive(Debug)]
pub struct BundleSigner(Ed25519KeyPair);

// === impl BundleKey ===

impl BundleKey {
    /// Whether this is a signature of `message` by the key.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0).verify(message, signature).is_ok()
    }
}

impl FromStr for BundleKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = STANDARD.decode(text).ok();
        let bytes: Option<[u8; 32]> = bytes.and_then(|bytes| bytes.try_into().ok());
        let bytes = bytes.ok_or_else(|| {
            "it is no Ed25519 public key: 32 bytes in base64, as `clawnode skills key` shows them"
                .to_owned()
        })?;
        let mut unsigned = bytes;
        // The highest bit of the last byte is the sign.
        unsigned[31] &= 0x7f;
        if WEAK_KEYS.contains(&STANDARD.encode(unsigned).as_str()) {
            return Err(
                "everyone can sign for this key: make one with `clawnode skills key`".to_owned()
            );
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for BundleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

// === impl BundleSigner ===

impl BundleSigner {
    /// A new key, in a PEM file.
    pub fn generate() -> Result<String, String> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
        let document = document.map_err(|error| format!("no key can be made: {error}"))?;
        let text = STANDARD.encode(document);
        let (mut pem, mut rest) = ("-----BEGIN PRIVATE KEY-----\n".to_owned(), text.as_str());
        while !rest.is_empty() {
            let (line, more) = rest.split_at_checked(PEM_LINE).unwrap_or((rest, ""));
            pem.push_str(line);
            pem.push('\n');
            rest = more;
        }
        pem.push_str("-----END PRIVATE KEY-----\n");
        Ok(pem)
    }

    /// The key of a PEM file (PKCS #8), also of one that `openssl genpkey -algorithm ed25519` has made.
    pub fn from_pem(pem: &[u8]) -> Result<Self, String> {
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem)
            .map_err(|error| format!("it is no private key in PEM: {error}"))?;
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.secret_pkcs8_der());
        pair.map(Self).map_err(|error| format!("it is no Ed25519 private key: {error}"))
    }

    /// The public key.
    pub fn key(&self) -> BundleKey {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.0.public_key().as_ref());
        BundleKey(bytes)
    }

    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.0.sign(message).as_ref().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_signs_and_only_its_public_key_verifies() {
        let pem = BundleSigner::generate().unwrap();
        assert!(pem.lines().all(|line| line.len() <= 64), "{pem}");
        let (signer, other) = (
            BundleSigner::from_pem(pem.as_bytes()).unwrap(),
            BundleSigner::from_pem(BundleSigner::generate().unwrap().as_bytes()).unwrap(),
        );
        let signature = signer.sign(b"hello");
        let key: BundleKey = signer.key().to_string().parse().unwrap();
        assert_eq!(key, signer.key());
        assert!(key.verifies(b"hello", &signature));
        assert!(!key.verifies(b"hellO", &signature));
        assert!(!key.verifies(b"hello", &signature[1..]));
        assert!(!other.key().verifies(b"hello", &signature));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in ["", "x", "AAAA", "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo"] {
            assert!(text.parse::<BundleKey>().is_err(), "{text}");
        }
        for pem in ["", "x", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
            assert!(BundleSigner::from_pem(pem.as_bytes()).is_err(), "{pem}");
        }
    }

    #[test]
    fn a_key_that_everyone_signs_for_is_refused() {
        for key in WEAK_KEYS {
            let mut bytes = STANDARD.decode(key).unwrap();
            for sign in [0, 0x80] {
                bytes[31] |= sign;
                let refused = STANDARD.encode(&bytes).parse::<BundleKey>().unwrap_err();
                assert!(refused.contains("everyone"), "{key}: {refused}");
            }
        }
    }

    /// As openssl writes it: the key of test 1 of RFC 8032, without its public key.
    #[test]
    fn a_key_of_openssl_is_read() {
        let pem = "-----BEGIN PRIVATE KEY-----\n\
                   MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n\
                   -----END PRIVATE KEY-----\n";
        let signer = BundleSigner::from_pem(pem.as_bytes()).unwrap();
        assert_eq!(signer.key().to_string(), "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=");
    }
}
