//! The settings of requests to other machines, with the reasons for their defaults.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    str::FromStr,
    time::Duration,
};

use clawnode_proto::AgentName;
use clawnode_proto::units::duration;
use serde::{Deserialize, Serialize};

use super::Cidr;

/// Ports that web servers are on; others would make an agent a scanner of ports.
const PORTS: [u16; 4] = [80, 443, 8080, 8443];

/// The way out, `[egress]` in the configuration.
///
/// Durations are text with a unit: `"500ms"`, `"10s"`, `"10m"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EgressOptions {
    /// Ports that may be reached besides 80, 443, 8080 and 8443. Default: none. Each further port
    /// is a further kind of service that an agent can talk to, on every host that it may reach.
    pub ports: BTreeSet<u16>,
    /// Ranges of addresses that may be reached although they are not public: `10.1.0.0/16`.
    /// Default: none. For labs and intranets: every agent can reach everything there, unless
    /// `hosts` names what it may.
    pub allow_private: Vec<Cidr>,
    /// Hosts that an agent may reach, by its name: `example.org`, `*.example.org` (every name
    /// below it, not itself), an address. It only narrows: a host that is named here must still be
    /// public. An agent that is not named may reach every public host, one with an empty list none.
    pub hosts: BTreeMap<AgentName, Vec<HostPattern>>,
    /// How long looking up a name, and then connecting, may take. Default 10 s: slower hosts are
    /// down.
    #[serde(with = "duration")]
    pub connect_timeout: Duration,
    /// How long one request may take, redirects and body included. Default 30 s: a model waits for
    /// it.
    #[serde(with = "duration")]
    pub total_timeout: Duration,
    /// Redirects that are followed. Default 5: more is a circle or a game.
    pub max_redirects: u8,
    /// Bytes of a body that are read at most, even if a request asks for more. Default 1,048,576 (1
    /// MiB): more than a model can read, and as much as a tool may hand on.
    pub max_body_bytes: usize,
}

/// Hosts by name: `example.org`, `*.example.org`, `192.0.2.7`.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPattern {
    /// In lower case, without the dot at its end.
    name: String,
    /// Whether it is the names below it that are meant.
    below: bool,
}

/// A text that is no pattern of hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a host such as `example.org`, `*.example.org` or `192.0.2.7`")]
pub struct ParseHostPatternError(String);

// === impl EgressOptions ===

impl Default for EgressOptions {
    fn default() -> Self {
        Self {
            ports: BTreeSet::new(),
            allow_private: Vec::new(),
            hosts: BTreeMap::new(),
            connect_timeout: Duration::from_secs(10),
            total_timeout: Duration::from_secs(30),
            max_redirects: 5,
            max_body_bytes: 1 << 20,
        }
    }
}

impl EgressOptions {
    pub(super) fn has_port(&self, port: u16) -> bool {
        PORTS.contains(&port) || self.ports.contains(&port)
    }

    /// Whether this agent may reach the host, judged by its name.
    pub(super) fn has_host(&self, agent: Option<&AgentName>, host: &str) -> bool {
        let patterns = agent.and_then(|agent| self.hosts.get(agent));
        patterns.is_none_or(|patterns| patterns.iter().any(|pattern| pattern.fits(host)))
    }
}

// === impl HostPattern ===

impl HostPattern {
    /// Whether it means this host (a name in lower case, or an address).
    pub fn fits(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        if self.below {
            host.strip_suffix(self.name.as_str()).is_some_and(|rest| rest.ends_with('.'))
        } else {
            host == self.name
        }
    }
}

impl FromStr for HostPattern {
    type Err = ParseHostPatternError;

    fn from_str(text: &str) -> Result<Self, ParseHostPatternError> {
        let malformed = || ParseHostPatternError(text.chars().take(80).collect());
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self { name: address.to_string(), below: false });
        }
        let lower = text.to_ascii_lowercase();
        let (below, name) = match lower.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, lower.as_str()),
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        let is_label = |label: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            !label.is_empty() && label.len() <= 63 && label.chars().all(plain)
        };
        // A name that ends in a number would be an address in another spelling.
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_number = last.starts_with(|c: char| c.is_ascii_digit());
        if name.len() > 253 || is_number || !name.split('.').all(is_label) {
            return Err(malformed());
        }
        Ok(Self { name: name.to_owned(), below })
    }
}

impl TryFrom<String> for HostPattern {
    type Error = ParseHostPatternError;

    fn try_from(text: String) -> Result<Self, ParseHostPatternError> {
        text.parse()
    }
}

impl From<HostPattern> for String {
    fn from(pattern: HostPattern) -> Self {
        pattern.to_string()
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.below { "*." } else { "" }, self.name)
    }
}

impl fmt::Debug for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_names_and_not_their_ends() {
        for (pattern, fits, not) in [
            (
                "example.org",
                vec!["example.org", "example.org."],
                vec!["a.example.org", "xexample.org"],
            ),
            (
                "*.Example.org",
                vec!["a.example.org", "b.a.example.org"],
                vec!["example.org", "xexample.org", "example.org.evil.net", ".example.org.x"],
            ),
            ("192.0.2.7", vec!["192.0.2.7"], vec!["192.0.2.70", "1.192.0.2.7"]),
        ] {
            let pattern: HostPattern = pattern.parse().unwrap();
            assert!(fits.iter().all(|host| pattern.fits(host)), "{pattern}");
            assert!(!not.iter().any(|host| pattern.fits(host)), "{pattern}");
        }
        for bad in ["", "*", "*.", "*.*.org", "a..b", "http://a", "a b", "0x7f.1", "127.1", "é.org"]
        {
            assert!(bad.parse::<HostPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn options_are_read_strictly_and_written_as_they_were() {
        let text = r#"{"ports":[3000],"allow_private":["10.1.0.0/16"],
            "hosts":{"main":["*.example.org"],"mute":[]},"total_timeout":"5s"}"#;
        let options: EgressOptions = serde_json::from_str(text).unwrap();
        assert!(options.has_port(3000) && options.has_port(443) && !options.has_port(22));
        let agent = |name: &str| name.parse::<AgentName>().unwrap();
        assert!(options.has_host(Some(&agent("main")), "a.example.org"));
        assert!(!options.has_host(Some(&agent("main")), "example.net"));
        assert!(!options.has_host(Some(&agent("mute")), "example.org"));
        assert!(options.has_host(Some(&agent("other")), "example.net"));
        assert!(options.has_host(None, "example.net"));
        let again = serde_json::to_string(&options).unwrap();
        assert_eq!(serde_json::from_str::<EgressOptions>(&again).unwrap(), options);
        for bad in [r#"{"port":[1]}"#, r#"{"total_timeout":5}"#, r#"{"allow_private":["lab"]}"#] {
            assert!(serde_json::from_str::<EgressOptions>(bad).is_err(), "{bad}");
        }
    }
}
