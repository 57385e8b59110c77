//! Which host a request is for (`Host`) and which page it comes from (`Origin`): pure verdicts.
//!
//! They protect a gateway from web pages on the same machine. `Host` stops DNS rebinding: a foreign
//! name that resolves to this machine is still a foreign name. `Origin` stops pages of other sites,
//! also those of other programs on `localhost`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::options::ServeError;

/// Port of `http` when none is written.
const HTTP_PORT: u16 = 80;
/// Port of `https` when none is written.
const HTTPS_PORT: u16 = 443;

/// The allow-lists.
#[derive(Clone, Debug)]
pub(super) struct AllowedNames {
    port: u16,
    tls: bool,
    hosts: Vec<HostPort>,
    origins: Vec<RequestOrigin>,
}

/// Why a request is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForeignRequest {
    /// No `Host`, or several, or not one.
    HostMalformed,
    /// Another name than ours.
    HostUnknown,
    /// `null`, several, or not an origin.
    OriginMalformed,
    /// A page that is not ours.
    OriginUnknown,
}

/// `host[:port]`, normalised: lower case, an address as an address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HostPort {
    host: AuthorityHost,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum AuthorityHost {
    Name(String),
    Address(IpAddr),
}

/// `scheme://host[:port]`, with the port always known.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RequestOrigin {
    tls: bool,
    host: AuthorityHost,
    port: u16,
}

// === impl AllowedNames ===

impl AllowedNames {
    pub(super) fn new(
        port: u16,
        tls: bool,
        hosts: &[String],
        origins: &[String],
    ) -> Result<Self, ServeError> {
        let refuse = |list, entry: &String, expected| ServeError::AllowList {
            list,
            entry: entry.clone(),
            expected,
        };
        let hosts = hosts
            .iter()
            .map(|entry| {
                HostPort::parse(entry)
                    .ok_or_else(|| refuse("allowed_hosts", entry, "`host` or `host:port`"))
            })
            .collect::<Result<_, _>>()?;
        let origins = origins
            .iter()
            .map(|entry| {
                RequestOrigin::parse(entry)
                    .ok_or_else(|| refuse("allowed_origins", entry, "`http[s]://host[:port]`"))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { port, tls, hosts, origins })
    }

    /// The verdict on a request that came in on `local`, with these `Host` and `Origin` headers.
    pub(super) fn verdict(
        &self,
        local: SocketAddr,
        hosts: &[&[u8]],
        origins: &[&[u8]],
    ) -> Result<(), ForeignRequest> {
        let [host] = hosts else { return Err(ForeignRequest::HostMalformed) };
        let host = std::str::from_utf8(host)
            .ok()
            .and_then(HostPort::parse)
            .ok_or(ForeignRequest::HostMalformed)?;
        if !self.is_ours(local, &host) {
            return Err(ForeignRequest::HostUnknown);
        }
        let origin = match origins {
            [] => return Ok(()),
            [origin] => std::str::from_utf8(origin)
                .ok()
                .and_then(RequestOrigin::parse)
                .ok_or(ForeignRequest::OriginMalformed)?,
            _ => return Err(ForeignRequest::OriginMalformed),
        };
        let same = self.is_same(&origin, &host);
        let known = self.origins.contains(&origin);
        if same || known || self.is_loopback_page(&origin) {
            Ok(())
        } else {
            Err(ForeignRequest::OriginUnknown)
        }
    }

    fn is_ours(&self, local: SocketAddr, host: &HostPort) -> bool {
        let here = host.host.is_loopback_name()
            || matches!(host.host, AuthorityHost::Address(ip) if ip == local.ip().to_canonical());
        if here && host.port.unwrap_or(self.default_port()) == self.port {
            return true;
        }
        self.hosts.iter().any(|entry| {
            entry.host == host.host && (entry.port == host.port || self.both_default(entry, host))
        })
    }

    /// `name` and `name:443` are the same place behind TLS; ours, or a proxy's in front of us.
    fn both_default(&self, entry: &HostPort, host: &HostPort) -> bool {
        let is_default = |port: Option<u16>| match port {
            None | Some(HTTPS_PORT) => true,
            Some(port) => !self.tls && port == HTTP_PORT,
        };
        is_default(entry.port) && is_default(host.port)
    }

    /// A page served under the very name that the request is for. Its scheme may be a proxy's.
    fn is_same(&self, origin: &RequestOrigin, host: &HostPort) -> bool {
        if origin.host != host.host {
            return false;
        }
        match host.port {
            Some(port) => {
                origin.port == port && (!host.host.is_loopback_name() || origin.tls == self.tls)
            }
            None => origin.port == if origin.tls { HTTPS_PORT } else { HTTP_PORT },
        }
    }

    /// Our own page under another of our loopback names.
    fn is_loopback_page(&self, origin: &RequestOrigin) -> bool {
        origin.host.is_loopback_name() && origin.port == self.port && origin.tls == self.tls
    }

    fn default_port(&self) -> u16 {
        if self.tls { HTTPS_PORT } else { HTTP_PORT }
    }
}

// === impl ForeignRequest ===

impl ForeignRequest {
    pub(super) const fn message(self) -> &'static str {
        match self {
            Self::HostMalformed => "the request needs exactly one well-formed `Host` header",
            Self::HostUnknown => "the `Host` header names another server than this one",
            Self::OriginMalformed => "the `Origin` header is not exactly one web origin",
            Self::OriginUnknown => "pages of this `Origin` may not use this gateway",
        }
    }

    pub(super) const fn hint(self) -> &'static str {
        match self {
            Self::HostMalformed => "send one `Host: name:port`",
            Self::HostUnknown => "add the name to `gateway.hosts`",
            Self::OriginMalformed | Self::OriginUnknown => "add the origin to `gateway.origins`",
        }
    }
}

// === impl HostPort ===

impl HostPort {
    /// Strict on purpose: what a browser would not write is not read.
    fn parse(text: &str) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, rest) = rest.split_once(']')?;
                let address = address.parse::<Ipv6Addr>().ok()?;
                let port = match rest {
                    "" => None,
                    rest => Some(rest.strip_prefix(':')?),
                };
                (AuthorityHost::Address(IpAddr::V6(address)), port)
            }
            None => match text.split_once(':') {
                Some((host, port)) => (AuthorityHost::parse(host)?, Some(port)),
                None => (AuthorityHost::parse(text)?, None),
            },
        };
        let port = match port {
            None => None,
            Some(digits) => Some(parse_port(digits)?),
        };
        Some(Self { host, port })
    }
}

/// `parse::<u16>` would also take `+80`, `080` and 0.
fn parse_port(digits: &str) -> Option<u16> {
    let port = digits.parse::<u16>().ok()?;
    (port != 0 && port.to_string() == digits).then_some(port)
}

// === impl AuthorityHost ===

impl AuthorityHost {
    fn parse(text: &str) -> Option<Self> {
        let allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_');
        if text.is_empty() || text.len() > 253 || !text.bytes().all(allowed) {
            return None;
        }
        if text.split('.').any(str::is_empty) {
            return None; // `localhost.`, `a..b`
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::Address(address));
        }
        Some(Self::Name(text.to_ascii_lowercase()))
    }

    /// `localhost` and its two addresses; no other spelling of them.
    fn is_loopback_name(&self) -> bool {
        match self {
            Self::Name(name) => name == "localhost",
            Self::Address(IpAddr::V4(address)) => *address == std::net::Ipv4Addr::LOCALHOST,
            Self::Address(IpAddr::V6(address)) => *address == Ipv6Addr::LOCALHOST,
        }
    }
}

// === impl RequestOrigin ===

impl RequestOrigin {
    fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let HostPort { host, port } = HostPort::parse(rest)?;
        let port = port.unwrap_or(if tls { HTTPS_PORT } else { HTTP_PORT });
        Some(Self { tls, host, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(tls: bool) -> AllowedNames {
        let hosts = ["claw.example".to_owned(), "lan.example:8443".to_owned()];
        let origins = ["http://localhost:3000".to_owned(), "https://app.example".to_owned()];
        AllowedNames::new(3100, tls, &hosts, &origins).unwrap()
    }

    fn local() -> SocketAddr {
        "127.0.0.1:3100".parse().unwrap()
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one flat table")]
    fn s_05_host() {
        use ForeignRequest::{HostMalformed as Bad, HostUnknown as Unknown};
        let table: &[(&str, Result<(), ForeignRequest>)] = &[
            ("127.0.0.1:3100", Ok(())),
            ("localhost:3100", Ok(())),
            ("LOCALHOST:3100", Ok(())),
            ("LocalHost:3100", Ok(())),
            ("[::1]:3100", Ok(())),
            ("[0:0:0:0:0:0:0:1]:3100", Ok(())),
            ("claw.example", Ok(())),
            ("claw.example:443", Ok(())),
            ("claw.example:80", Ok(())),
            ("CLAW.example", Ok(())),
            ("lan.example:8443", Ok(())),
            ("localhost", Err(Unknown)),
            ("127.0.0.1", Err(Unknown)),
            ("localhost:80", Err(Unknown)),
            ("localhost:3101", Err(Unknown)),
            ("127.0.0.1:31000", Err(Unknown)),
            ("127.0.0.2:3100", Err(Unknown)),
            ("0.0.0.0:3100", Err(Unknown)),
            ("[::]:3100", Err(Unknown)),
            ("[::ffff:127.0.0.1]:3100", Err(Unknown)),
            ("[::ffff:7f00:1]:3100", Err(Unknown)),
            ("[fe80::1]:3100", Err(Unknown)),
            ("10.0.0.1:3100", Err(Unknown)),
            ("evil.test", Err(Unknown)),
            ("evil.test:3100", Err(Unknown)),
            ("127.evil.test:3100", Err(Unknown)),
            ("127.0.0.1.evil.test:3100", Err(Unknown)),
            ("127.0.0.1.nip.io:3100", Err(Unknown)),
            ("localhost.evil.test:3100", Err(Unknown)),
            ("evil.localhost:3100", Err(Unknown)),
            ("localhost-evil.test:3100", Err(Unknown)),
            ("xn--lcalhost-n4a:3100", Err(Unknown)),
            ("127.1:3100", Err(Unknown)),
            ("2130706433:3100", Err(Unknown)),
            ("0x7f000001:3100", Err(Unknown)),
            ("0177.0.0.1:3100", Err(Unknown)),
            ("127.0.0.01:3100", Err(Unknown)),
            ("claw.example:3100", Err(Unknown)),
            ("sub.claw.example", Err(Unknown)),
            ("notclaw.example", Err(Unknown)),
            ("lan.example", Err(Unknown)),
            ("lan.example:443", Err(Unknown)),
            ("localhost.:3100", Err(Bad)),
            ("127.0.0.1.:3100", Err(Bad)),
            ("", Err(Bad)),
            (":3100", Err(Bad)),
            (".", Err(Bad)),
            ("localhost:", Err(Bad)),
            ("localhost:0", Err(Bad)),
            ("localhost:+3100", Err(Bad)),
            ("localhost:03100", Err(Bad)),
            ("localhost:65536", Err(Bad)),
            ("localhost:3100:3100", Err(Bad)),
            ("localhost:3100@evil.test", Err(Bad)),
            ("evil.test@localhost:3100", Err(Bad)),
            ("localhost:3100/", Err(Bad)),
            ("localhost/..:3100", Err(Bad)),
            ("localhost%2eevil:3100", Err(Bad)),
            ("local host:3100", Err(Bad)),
            ("localhost\t:3100", Err(Bad)),
            ("localhost,evil.test:3100", Err(Bad)),
            ("http://localhost:3100", Err(Bad)),
            ("loc\u{e4}lhost:3100", Err(Bad)),
            ("\u{ff4c}ocalhost:3100", Err(Bad)),
            ("::1:3100", Err(Bad)),
            ("[::1:3100", Err(Bad)),
            ("[::1]3100", Err(Bad)),
            ("[::1]:", Err(Bad)),
            ("[::1%25lo]:3100", Err(Bad)),
            ("[127.0.0.1]:3100", Err(Bad)),
            ("[localhost]:3100", Err(Bad)),
            ("null", Err(Unknown)),
        ];
        for (host, expected) in table {
            let verdict = names(false).verdict(local(), &[host.as_bytes()], &[]);
            assert_eq!(verdict, *expected, "Host: {host}");
        }
        assert_eq!(names(false).verdict(local(), &[], &[]), Err(Bad), "missing");
        let twice: [&[u8]; 2] = [b"localhost:3100", b"localhost:3100"];
        assert_eq!(names(false).verdict(local(), &twice, &[]), Err(Bad), "duplicate");
        assert_eq!(names(false).verdict(local(), &[b"\xff\xfe"], &[]), Err(Bad), "not text");
    }

    #[test]
    fn s_05_the_address_that_the_connection_came_in_on_is_ours() {
        let lan: SocketAddr = "192.0.2.7:3100".parse().unwrap();
        let mapped: SocketAddr = "[::ffff:192.0.2.7]:3100".parse().unwrap();
        let names = names(false);
        assert_eq!(names.verdict(lan, &[b"192.0.2.7:3100"], &[]), Ok(()));
        assert_eq!(names.verdict(mapped, &[b"192.0.2.7:3100"], &[]), Ok(()));
        assert_eq!(names.verdict(lan, &[b"192.0.2.8:3100"], &[]), Err(ForeignRequest::HostUnknown));
        assert_eq!(names.verdict(lan, &[b"evil.test:3100"], &[]), Err(ForeignRequest::HostUnknown));
    }

    #[test]
    fn s_05_origin() {
        use ForeignRequest::{OriginMalformed as Bad, OriginUnknown as Unknown};
        let table: &[(&str, &str, Result<(), ForeignRequest>)] = &[
            ("localhost:3100", "http://localhost:3100", Ok(())),
            ("localhost:3100", "HTTP://LOCALHOST:3100", Ok(())),
            ("127.0.0.1:3100", "http://localhost:3100", Ok(())),
            ("localhost:3100", "http://127.0.0.1:3100", Ok(())),
            ("localhost:3100", "http://[::1]:3100", Ok(())),
            ("localhost:3100", "http://localhost:3000", Ok(())),
            ("localhost:3100", "https://app.example", Ok(())),
            ("localhost:3100", "https://app.example:443", Ok(())),
            ("claw.example", "https://claw.example", Ok(())),
            ("claw.example", "http://claw.example", Ok(())),
            ("lan.example:8443", "https://lan.example:8443", Ok(())),
            ("localhost:3100", "http://localhost", Err(Unknown)),
            ("localhost:3100", "http://localhost:3001", Err(Unknown)),
            ("localhost:3100", "https://localhost:3100", Err(Unknown)),
            ("localhost:3100", "https://localhost:3000", Err(Unknown)),
            ("localhost:3100", "http://app.example", Err(Unknown)),
            ("localhost:3100", "https://app.example:8443", Err(Unknown)),
            ("localhost:3100", "https://evil.test", Err(Unknown)),
            ("localhost:3100", "http://evil.test:3100", Err(Unknown)),
            ("localhost:3100", "http://127.evil.test:3100", Err(Unknown)),
            ("localhost:3100", "http://localhost.evil.test:3100", Err(Unknown)),
            ("localhost:3100", "http://evil.localhost:3100", Err(Unknown)),
            ("localhost:3100", "http://[::ffff:127.0.0.1]:3100", Err(Unknown)),
            ("localhost:3100", "http://claw.example", Err(Unknown)),
            ("localhost:3100", "null", Err(Bad)),
            ("localhost:3100", "", Err(Bad)),
            ("localhost:3100", "localhost:3100", Err(Bad)),
            ("localhost:3100", "http://localhost.:3100", Err(Bad)),
            ("localhost:3100", "http://localhost:3100/", Err(Bad)),
            ("localhost:3100", "http://a@localhost:3100", Err(Bad)),
            ("localhost:3100", "http://localhost:3100, http://evil.test", Err(Bad)),
            ("localhost:3100", "http://localhost:3100 http://evil.test", Err(Bad)),
            ("localhost:3100", "file://", Err(Bad)),
            ("localhost:3100", "file:///etc/passwd", Err(Bad)),
            ("localhost:3100", "ws://localhost:3100", Err(Bad)),
            ("localhost:3100", "chrome-extension://abcdef", Err(Bad)),
            ("localhost:3100", "javascript:alert(1)", Err(Bad)),
        ];
        for (host, origin, expected) in table {
            let verdict = names(false).verdict(local(), &[host.as_bytes()], &[origin.as_bytes()]);
            assert_eq!(verdict, *expected, "Host: {host}, Origin: {origin}");
        }
        let twice: [&[u8]; 2] = [b"http://localhost:3100", b"http://localhost:3100"];
        assert_eq!(names(false).verdict(local(), &[b"localhost:3100"], &twice), Err(Bad));
    }

    #[test]
    fn s_05_with_tls_pages_without_are_foreign() {
        let verdict =
            |origin: &str| names(true).verdict(local(), &[b"localhost:3100"], &[origin.as_bytes()]);
        assert_eq!(verdict("https://localhost:3100"), Ok(()));
        assert_eq!(verdict("http://localhost:3100"), Err(ForeignRequest::OriginUnknown));
        let plain = names(true).verdict(local(), &[b"claw.example:80"], &[]);
        assert_eq!(plain, Err(ForeignRequest::HostUnknown));
    }

    #[test]
    fn an_allow_list_entry_that_could_never_match_is_refused() {
        for entry in ["http://a.example", "a.example/", "*", "a.example.", ""] {
            assert!(AllowedNames::new(1, false, &[entry.to_owned()], &[]).is_err(), "{entry}");
        }
        for entry in ["a.example", "https://a.example/", "null", "*"] {
            assert!(AllowedNames::new(1, false, &[], &[entry.to_owned()]).is_err(), "{entry}");
        }
    }
}
