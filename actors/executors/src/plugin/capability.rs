//! What a plugin may ask for.

use std::{fmt, str::FromStr};

use clawnode_tool::egress::{HostPattern, ParseHostPatternError};
use serde::{Deserialize, Serialize};

use super::{ParseStoreNameError, StoreName};

/// One thing that a plugin asks for, or is granted: `http:example.org`.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PluginCapability {
    /// `http:HOST`: requests to this host, or to all below it (`http:*.example.org`).
    Http(HostPattern),
    /// `store:NAME`: a store of its own; `store:shared/NAME`: one that it shares with all plugins that
    /// are granted it.
    Store(StoreName),
}

/// A text that is no capability.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParsePluginCapabilityError {
    /// There is nothing of this kind.
    #[error("`{0}` is not a capability of plugins: there are `http:HOST` and `store:NAME`")]
    Unknown(String),
    /// The host is none.
    #[error("`http:{text}`")]
    Host {
        /// The text after `http:`.
        text: String,
        source: ParseHostPatternError,
    },
    /// The store is none.
    #[error(transparent)]
    Store(#[from] ParseStoreNameError),
}

impl PluginCapability {
    /// Whether this capability includes `other`.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            // A pattern is covered by itself only: it matches hosts without end.
            (Self::Http(own), Self::Http(other)) => own == other || own.fits(&other.to_string()),
            (Self::Store(own), Self::Store(other)) => own == other,
            _ => false,
        }
    }
}

impl FromStr for PluginCapability {
    type Err = ParsePluginCapabilityError;

    fn from_str(text: &str) -> Result<Self, ParsePluginCapabilityError> {
        let short = |text: &str| text.chars().take(80).collect::<String>();
        match text.split_once(':') {
            Some(("http", host)) => host
                .parse()
                .map(Self::Http)
                .map_err(|source| ParsePluginCapabilityError::Host { text: short(host), source }),
            Some(("store", name)) => Ok(Self::Store(name.parse()?)),
            _ => Err(ParsePluginCapabilityError::Unknown(short(text))),
        }
    }
}

impl TryFrom<String> for PluginCapability {
    type Error = ParsePluginCapabilityError;

    fn try_from(text: String) -> Result<Self, ParsePluginCapabilityError> {
        text.parse()
    }
}

impl From<PluginCapability> for String {
    fn from(capability: PluginCapability) -> Self {
        capability.to_string()
    }
}

impl fmt::Display for PluginCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(host) => write!(f, "http:{host}"),
            Self::Store(store) => write!(f, "store:{store}"),
        }
    }
}

impl fmt::Debug for PluginCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capability(text: &str) -> PluginCapability {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_granted_covers_itself_and_names_below_it() {
        for (granted, asked, covered) in [
            ("http:example.org", "http:example.org", true),
            ("http:Example.org", "http:example.ORG", true),
            ("http:*.example.org", "http:a.example.org", true),
            ("http:*.example.org", "http:*.example.org", true),
            ("http:*.example.org", "http:*.a.example.org", true),
            ("http:*.example.org", "http:example.org", false),
            ("http:a.example.org", "http:*.example.org", false),
            ("http:*.a.example.org", "http:*.example.org", false),
            ("http:example.org", "http:example.net", false),
            ("store:notes", "store:notes", true),
            ("store:notes", "store:shared/notes", false),
            ("store:shared/notes", "store:notes", false),
            ("store:shared/notes", "store:shared/notes", true),
            ("store:example", "http:example", false),
            ("http:example", "store:example", false),
        ] {
            assert_eq!(
                capability(granted).covers(&capability(asked)),
                covered,
                "{granted} {asked}"
            );
        }
    }

    #[test]
    fn what_nobody_knows_is_refused_by_name() {
        for (text, why) in [
            ("", "`` is not a capability"),
            ("file:/etc", "`file:/etc` is not a capability"),
            ("http", "`http` is not a capability"),
            ("HTTP:example.org", "`HTTP:example.org` is not a capability"),
            ("https:example.org", "is not a capability"),
            ("http:", "`http:`"),
            ("http:*", "`http:*`"),
            ("http://example.org", "`http://example.org`"),
            ("store", "`store` is not a capability"),
            ("store:", "`` is not a store's name"),
            ("store:*", "`*` is not a store's name"),
            ("store:a.b", "`a.b` is not a store's name"),
            ("store:shared/", "`shared/` is not a store's name"),
        ] {
            let error = text.parse::<PluginCapability>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
