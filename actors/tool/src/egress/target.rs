//! The host and port that a URL leads to, from the URL alone.

use std::net::IpAddr;

use url::Url;

use super::EgressError;

/// Bytes of a URL (8 KiB): what servers take.
const URL_BYTES: usize = 8 << 10;
/// Bytes of a name in the DNS.
const NAME_BYTES: usize = 253;

/// A URL that could be asked for.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) url: Url,
    pub(super) host: Host,
    pub(super) port: u16,
}

/// The host of a URL, in its one canonical spelling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Host {
    Name(String),
    Address(IpAddr),
}

impl Target {
    /// The URL that a request is made for.
    pub(super) fn parse(text: &str) -> Result<Self, EgressError> {
        let wrong = |why: &str| Err(EgressError::Url { url: shown(text), why: why.to_owned() });
        if text.len() > URL_BYTES {
            return wrong("it is too long");
        }
        // Parsers disagree about these, and no URL that is meant well has them.
        if text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
            return wrong("it has white space, control characters or backslashes in it");
        }
        match Url::parse(text) {
            Ok(url) => Self::of(url),
            Err(error) => wrong(&error.to_string()),
        }
    }

    /// The target of a redirect to `location`: never from an encrypted connection to one in clear text.
    pub(super) fn follow(&self, location: &str) -> Result<Self, EgressError> {
        if location.len() > URL_BYTES {
            let why = "it redirects to a URL that is too long".to_owned();
            return Err(EgressError::Url { url: shown(self.url.as_str()), why });
        }
        let next = match self.url.join(location) {
            Ok(next) => Self::of(next)?,
            Err(error) => {
                return Err(EgressError::Url { url: shown(location), why: error.to_string() });
            }
        };
        if self.url.scheme() == "https" && next.url.scheme() != "https" {
            return Err(EgressError::Downgrade(self.host.text()));
        }
        Ok(next)
    }

    fn of(mut url: Url) -> Result<Self, EgressError> {
        let wrong = |url: &Url, why: &str| {
            Err(EgressError::Url { url: shown(url.as_str()), why: why.to_owned() })
        };
        if !matches!(url.scheme(), "http" | "https") {
            return wrong(&url, "it is not `http://` or `https://`");
        }
        if !url.username().is_empty() || url.password().is_some() {
            // The user or password may be a secret: it is not repeated.
            let host = url.host_str().unwrap_or_default().to_owned();
            let why = "it has a user or a password in it".to_owned();
            return Err(EgressError::Url { url: host, why });
        }
        url.set_fragment(None);
        let host = match url.host() {
            Some(url::Host::Ipv4(v4)) => Host::Address(v4.into()),
            Some(url::Host::Ipv6(v6)) => Host::Address(v6.into()),
            Some(url::Host::Domain(name)) if is_name(name) => Host::Name(name.to_owned()),
            _ => return wrong(&url, "its host is not a name"),
        };
        match url.port_or_known_default() {
            Some(port) => Ok(Self { url, host, port }),
            None => wrong(&url, "it has no port"),
        }
    }

    /// Whether a credential that is meant for `self` may be shown to `other`.
    pub(super) fn is_same_place(&self, other: &Self) -> bool {
        self.url.scheme() == other.url.scheme()
            && self.host == other.host
            && self.port == other.port
    }
}

impl Host {
    /// As in the URL, without brackets.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::Address(address) => address.to_string(),
        }
    }
}

fn is_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let is_label = |label: &str| !label.is_empty() && label.chars().all(is_plain);
    name.len() <= NAME_BYTES && name.split('.').all(is_label)
}

/// A URL, in short, for a message.
fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_one_spelling() {
        for (url, host, port) in [
            ("http://Example.ORG", "example.org", 80),
            ("HTTPS://example.org:8443/a#b", "example.org", 8443),
            ("http://0x7f.1/", "127.0.0.1", 80),
            ("http://2130706433/", "127.0.0.1", 80),
            ("http://１２７.0.0.1/", "127.0.0.1", 80),
            ("http://[::FFFF:127.0.0.1]/", "::ffff:127.0.0.1", 80),
            ("http://grün.de/", "xn--grn-ioa.de", 80),
            ("http://example.org./", "example.org.", 80),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!((target.host.text().as_str(), target.port), (host, port), "{url}");
            assert!(target.url.fragment().is_none());
            let (asked, wanted) = (
                clawnode_guard::policy::place(target.url.as_str()),
                clawnode_guard::policy::place(url),
            );
            assert_eq!(wanted.split('#').next().unwrap(), asked, "rules are held against it");
        }
    }

    #[test]
    fn what_is_no_url_of_the_web_is_refused() {
        let long = format!("http://example.org/{}", "a".repeat(URL_BYTES));
        for (url, why) in [
            ("", "relative URL"),
            ("example.org", "relative URL"),
            ("/etc/passwd", "relative URL"),
            ("file:///etc/passwd", "not `http://`"),
            ("gopher://example.org/", "not `http://`"),
            ("ftp://example.org/", "not `http://`"),
            ("javascript:alert(1)", "not `http://`"),
            ("http://user@example.org/", "user or a password"),
            ("http://:secret@example.org/", "user or a password"),
            ("http://exa mple.org/", "white space"),
            ("http://example.org\\@127.0.0.1/", "backslashes"),
            ("http://exam\tple.org/", "white space"),
            ("http://[fe80::1%25eth0]/", "invalid IPv6"),
            ("http://example..org/", "its host is not a name"),
            ("http://a*b.org/", "its host is not a name"),
            ("http://example.org:99999/", "invalid port"),
            ("http://256.0.0.1/", "invalid IPv4"),
            (&long, "too long"),
        ] {
            let error = Target::parse(url).unwrap_err().to_string();
            assert!(error.contains(why), "{url:.60}: {error}");
            assert!(!error.contains("secret"));
        }
    }

    #[test]
    fn a_redirect_does_not_lead_out_of_https() {
        let from = Target::parse("https://example.org/a/b").unwrap();
        for (location, leads) in [
            ("c", "https://example.org/a/c"),
            ("//example.net/", "https://example.net/"),
            ("https://example.net:8443/x#y", "https://example.net:8443/x"),
        ] {
            assert_eq!(from.follow(location).unwrap().url.as_str(), leads);
        }
        for location in ["http://example.org/", "HTTP://example.net"] {
            let error = from.follow(location).unwrap_err();
            assert!(matches!(error, EgressError::Downgrade(_)), "{error}");
        }
        for location in ["ftp://example.org/", "https://a@example.org/", "https://[::1"] {
            assert!(matches!(from.follow(location), Err(EgressError::Url { .. })), "{location}");
        }
    }

    #[test]
    fn a_credential_is_for_one_place() {
        let from = Target::parse("http://example.org:80/").unwrap();
        let same = |url| from.is_same_place(&Target::parse(url).unwrap());
        assert!(same("http://EXAMPLE.org/other"));
        for other in ["https://example.org/", "http://example.org:8080/", "http://a.example.org/"] {
            assert!(!same(other), "{other}");
        }
    }
}
