//! What must not be printed of the settings: addresses that may carry a password, and arguments that
//! may be keys.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::secret::REDACTED;

/// An address that may carry a user and a password, which are never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl(String);

/// A text that is no address. It does not quote the text, which may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an address such as `{example}`")]
pub struct UrlError {
    example: &'static str,
}

// === impl ServerUrl ===

impl ServerUrl {
    /// The whole address, password included, for the one place that connects.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The addresses of a comma-separated list, each whole.
    pub fn each(&self) -> impl Iterator<Item = &str> {
        self.0.split(',').map(str::trim).filter(|one| !one.is_empty())
    }
}

impl FromStr for ServerUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let fits = |one: &str| match one.trim().split_once("://") {
            Some((scheme, rest)) => {
                !scheme.is_empty()
                    && scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+')
                    && !rest.is_empty()
                    && !rest.chars().any(|c| c.is_whitespace() || c.is_control())
            }
            None => false,
        };
        if text.split(',').all(fits) {
            Ok(Self(text.trim().to_owned()))
        } else {
            Err(UrlError { example: "nats://127.0.0.1:4222` or `https://host/path" })
        }
    }
}

/// Arguments of a program as they may be shown: people put keys there.
pub(super) fn shown_arguments<S: Serializer>(
    arguments: &[String],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let before = std::iter::once("").chain(arguments.iter().map(String::as_str));
    serializer.collect_seq(
        before.zip(arguments).map(|(before, argument)| shown_argument(before, argument)),
    )
}

/// One argument as it may be shown. The one before it says whether it is a secret; an address loses
/// its password and query, and a text that looks like a key is hidden.
fn shown_argument(before: &str, argument: &str) -> String {
    if argument.contains("://") {
        return without_password(argument);
    }
    if let Some((name, value)) = argument.split_once('=')
        && is_named_secret(name)
        && !value.is_empty()
    {
        return format!("{name}={REDACTED}");
    }
    let is_value = before.starts_with('-') && !before.contains('=') && !argument.starts_with('-');
    if is_value && is_named_secret(before) || looks_like_a_key(argument) {
        return REDACTED.to_owned();
    }
    argument.to_owned()
}

fn is_named_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words = ["key", "token", "secret", "passw", "auth", "credential", "cookie", "header"];
    words.iter().any(|word| name.contains(word))
}

/// Long, without the separators of paths and package names, with letters and digits.
fn looks_like_a_key(text: &str) -> bool {
    text.len() >= 20
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_.+=".contains(&c))
        && text.bytes().any(|c| c.is_ascii_digit())
        && text.bytes().any(|c| c.is_ascii_alphabetic())
}

/// Cuts `user:password@` out of one address.
fn without_password(one: &str) -> String {
    let Some((scheme, rest)) = one.split_once("://") else { return REDACTED.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at_checked(end).unwrap_or((rest, ""));
    // A query or a fragment may carry a key as well; a path does not.
    let path = tail.split(['?', '#']).next().unwrap_or("");
    let cut = if path.len() < tail.len() { "?…" } else { "" };
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{REDACTED}@{host}{path}{cut}"),
        None => format!("{scheme}://{authority}{path}{cut}"),
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<_> = self.each().map(without_password).collect();
        f.write_str(&shown.join(","))
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for ServerUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ServerUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_shown_without_keys() {
        for (before, argument, shown) in [
            ("", "-y", "-y"),
            ("-y", "@modelcontextprotocol/server-everything@2026.8.31", ""),
            ("", "/srv/data-2026/files-0123456789", ""),
            ("--api-key", "hunter2", REDACTED),
            ("--api-key", "--verbose", "--verbose"),
            ("", "--token=hunter2", "--token=[redacted]"),
            ("", "API_KEY=hunter2", "API_KEY=[redacted]"),
            ("--header", "Authorization: Bearer hunter2", REDACTED),
            ("", "sk-live-0123456789abcdef", REDACTED),
            ("", "https://ada:hunter2@example.com/x?key=1", "https://[redacted]@example.com/x?…"),
        ] {
            let shown = if shown.is_empty() { argument } else { shown };
            assert_eq!(shown_argument(before, argument), shown);
        }
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        let url: ServerUrl = "nats://ada:hunter2@one:4222,nats://two:4222".parse().unwrap();
        assert_eq!(url.to_string(), "nats://[redacted]@one:4222,nats://two:4222");
        assert_eq!(url.each().count(), 2);
        let url: ServerUrl = "https://host/v1?key=hunter2".parse().unwrap();
        assert_eq!(url.to_string(), "https://host/v1?…");
        let error = "hunter2@host".parse::<ServerUrl>().unwrap_err();
        assert!(!error.to_string().contains("hunter2"));
    }
}
