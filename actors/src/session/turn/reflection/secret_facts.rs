//! Passwords, keys and the like, which are kept out of the facts that a model finds. Pure.

use clawnode_proto::memory_point::PointContent;

/// A fact with one of these words is left out.
const SECRETS: [&str; 12] = [
    "contrase\u{f1}a",
    "credential",
    "credentials",
    "kennwort",
    "passcode",
    "passphrase",
    "passwd",
    "password",
    "passwort",
    "pin",
    "secret",
    "token",
];

/// Whether it names a secret.
pub(super) fn has_secret(content: &PointContent) -> bool {
    let parts = [Some(&content.text), content.predicate.as_ref()];
    parts.into_iter().flatten().any(|text| {
        let text = text.to_lowercase();
        text.split(|c: char| !c.is_alphanumeric()).any(|word| SECRETS.contains(&word))
    })
}
