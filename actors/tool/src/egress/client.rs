//! One request, from URL to body, with every hop checked.

use std::{
    fmt,
    net::IpAddr,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use clawnode_guard::kill_switch::{StoppableWork, SwitchGate, WorkStopped};
use clawnode_proto::{AgentName, ErrorChain, agents::AgentLimit};
use reqwest::{
    Client, Method, Response, StatusCode, Url,
    header::{
        ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, COOKIE, HeaderMap, HeaderName,
        HeaderValue, LOCATION,
    },
    redirect,
};
use tokio::time::timeout;
use tracing::debug;

use super::{
    EgressError, EgressOptions, HostPattern, Resolve, SystemResolver,
    address::special,
    resolve::Pinned,
    target::{Host, Target},
    tls::tls,
};

/// Headers that are the connection's own, or ours to set.
const OWN_HEADERS: [&str; 14] = [
    "host",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "transfer-encoding",
    "content-length",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "accept-encoding",
    "http2-settings",
    "x-forwarded-for",
];
/// Headers that are kept when a redirect leads to another host: none of these can be a secret.
const HARMLESS: [&str; 5] = ["accept", "accept-language", "user-agent", "if-none-match", "range"];

/// The way out. Cheap to clone.
#[derive(Clone)]
pub struct Egress(Arc<Inner>, SwitchGate);

struct Inner {
    options: EgressOptions,
    resolver: Arc<dyn Resolve>,
    /// Read when `https` is first asked for; the error is kept as text.
    tls: OnceLock<Result<rustls::ClientConfig, String>>,
    #[cfg(feature = "test-util")]
    planted: super::EgressBug,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct EgressRequest {
    pub url: String,
    /// What is sent again by a redirect has to be `GET` or `HEAD`. Of a request with a body no redirect is followed.
    pub method: Method,
    /// What is sent with it.
    pub body: Option<Bytes>,
    /// Besides those that every request has.
    pub headers: HeaderMap,
    /// Bytes of the body that are read; the options' limit is above it.
    pub max_bytes: usize,
}

/// A response.
#[derive(Clone, Debug)]
pub struct EgressReply {
    /// From where, after redirects.
    pub url: Url,
    /// How many redirects there were.
    pub redirects: u8,
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// The body, as far as it was read.
    pub body: EgressBody,
}

/// A body, as far as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressBody {
    pub bytes: Vec<u8>,
    /// Whether there was more.
    pub is_cut: bool,
}

/// Counts the bytes of a request against the limit of its agent.
#[derive(Clone, Copy)]
struct ByteMeter<'a> {
    /// On whose behalf the request is made; without one, nothing is counted.
    agent: Option<&'a AgentName>,
    switch_gate: &'a SwitchGate,
}

// === impl ByteMeter ===

impl ByteMeter<'_> {
    /// These were sent or have come.
    fn count(self, bytes: usize) -> Result<(), WorkStopped> {
        let Some(agent) = self.agent else { return Ok(()) };
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let counted = self.switch_gate.count(agent, AgentLimit::EgressBytesPerDay, bytes);
        counted.map_err(WorkStopped::KillSwitch)
    }
}

// === impl Egress ===

impl Egress {
    /// A way out that looks names up as the machine does.
    pub fn new(options: EgressOptions) -> Self {
        Self::with_resolver(options, Arc::new(SystemResolver))
    }

    /// A way out that looks names up with `resolver`.
    pub fn with_resolver(options: EgressOptions, resolver: Arc<dyn Resolve>) -> Self {
        let inner = Inner {
            options,
            resolver,
            tls: OnceLock::new(),
            #[cfg(feature = "test-util")]
            planted: super::EgressBug::None,
        };
        Self(Arc::new(inner), SwitchGate::default())
    }

    /// The same, which an operator can stop.
    #[must_use]
    pub fn behind(self, switch_gate: SwitchGate) -> Self {
        Self(self.0, switch_gate)
    }

    /// One with a bug in it.
    #[cfg(feature = "test-util")]
    pub fn with_bug(
        options: EgressOptions,
        resolver: Arc<dyn Resolve>,
        planted: super::EgressBug,
    ) -> Self {
        let inner = Inner { options, resolver, tls: OnceLock::new(), planted };
        Self(Arc::new(inner), SwitchGate::default())
    }

    /// How it is configured.
    pub fn options(&self) -> &EgressOptions {
        &self.0.options
    }

    /// A client for one place that a person has configured, which may be in a private network. It
    /// can connect to nothing else, and follows no redirect; `headers` go with each request. How
    /// long a request takes is its user's to bound.
    pub async fn configured(
        &self,
        url: &str,
        headers: HeaderMap,
    ) -> Result<(Client, Url), EgressError> {
        let target = Target::parse(url)?;
        if let Some(own) = headers.keys().find(|name| is_own(name)) {
            return Err(EgressError::Header(own.to_string()));
        }
        let addresses = self.0.look_up(&target.host).await?;
        let client = self.0.client(&target, addresses, headers)?;
        Ok((client, target.url))
    }

    /// Whether requests can be made at all.
    pub fn health_check(&self) -> Result<(), EgressError> {
        self.0.tls("https").map(drop)
    }

    /// Makes the request on behalf of `agent`, or of the node itself, and follows redirects.
    pub async fn fetch(
        &self,
        agent: Option<&AgentName>,
        request: EgressRequest,
    ) -> Result<EgressReply, EgressError> {
        self.fetch_from(agent, None, request).await
    }

    /// As [`Self::fetch`], to these hosts alone: it has to be among them and among the agent's,
    /// at the first hop and at every other.
    pub async fn fetch_within(
        &self,
        agent: Option<&AgentName>,
        hosts: &[HostPattern],
        request: EgressRequest,
    ) -> Result<EgressReply, EgressError> {
        self.fetch_from(agent, Some(hosts), request).await
    }

    async fn fetch_from(
        &self,
        agent: Option<&AgentName>,
        within: Option<&[HostPattern]>,
        request: EgressRequest,
    ) -> Result<EgressReply, EgressError> {
        let target = Target::parse(&request.url)?;
        if let Some(own) = request.headers.keys().find(|name| is_own(name)) {
            return Err(EgressError::Header(own.to_string()));
        }
        let after = self.0.options.total_timeout;
        let host = target.host.text();
        let work = StoppableWork::Egress { agent: agent.cloned() };
        let pass = self.1.enter(work).map_err(EgressError::Stopped)?;
        let meter = ByteMeter { agent, switch_gate: &self.1 };
        tokio::select! {
            biased;
            why = pass.stopped() => Err(EgressError::Interrupted(why)),
            reply = timeout(after, self.0.fetch(meter, within, request, target)) => match reply {
                Ok(reply) => reply,
                Err(_elapsed) => Err(EgressError::TimedOut { host, after }),
            },
        }
    }
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress").field("options", &self.0.options).finish_non_exhaustive()
    }
}

// === impl Inner ===

impl Inner {
    async fn fetch(
        &self,
        meter: ByteMeter<'_>,
        within: Option<&[HostPattern]>,
        mut request: EgressRequest,
        mut target: Target,
    ) -> Result<EgressReply, EgressError> {
        let mut redirects = 0;
        loop {
            let addresses = self.checked(meter.agent, within, &target, redirects).await?;
            let body = request.body.as_ref().map_or(0, Bytes::len);
            let head = target.url.as_str().len().saturating_add(size(&request.headers));
            meter.count(head.saturating_add(body)).map_err(EgressError::Stopped)?;
            let response = self.send(&request, &target, addresses).await?;
            meter.count(size(response.headers())).map_err(EgressError::Interrupted)?;
            let Some(location) = redirect_of(&response).filter(|_| request.body.is_none()) else {
                return self.reply(meter, response, &request, target, redirects).await;
            };
            if redirects == self.options.max_redirects {
                return Err(EgressError::Redirects(redirects));
            }
            redirects += 1;
            let next = target.follow(location)?;
            if !target.is_same_place(&next) {
                request.headers = harmless(&request.headers);
            }
            target = next;
        }
    }

    /// The addresses that this target may be reached at. All of its addresses have to be allowed:
    /// one that is not shows an attempt to get around the rules.
    async fn checked(
        &self,
        agent: Option<&AgentName>,
        within: Option<&[HostPattern]>,
        target: &Target,
        redirects: u8,
    ) -> Result<Vec<IpAddr>, EgressError> {
        let host = target.host.text();
        if self.skips_check(redirects) {
            return self.look_up(&target.host).await;
        }
        if !self.options.has_port(target.port) {
            return Err(EgressError::Port(target.port));
        }
        if !self.options.has_host(agent, &host) {
            return Err(EgressError::Host(host));
        }
        let granted = |hosts: &[HostPattern]| hosts.iter().any(|pattern| pattern.fits(&host));
        if self.heeds_grants() && !within.is_none_or(granted) {
            return Err(EgressError::Ungranted(host));
        }
        let addresses = self.look_up(&target.host).await?;
        for address in addresses.iter().take(self.checks(addresses.len())) {
            let allowed = self.options.allow_private.iter().any(|range| range.contains(*address));
            if let Some(special) = special(*address).filter(|_| !allowed) {
                debug!(%host, %address, %special, "refused");
                return Err(EgressError::Special { host, special });
            }
        }
        Ok(addresses)
    }

    async fn look_up(&self, host: &Host) -> Result<Vec<IpAddr>, EgressError> {
        let name = match host {
            Host::Address(address) => return Ok(vec![*address]),
            Host::Name(name) => name,
        };
        let failed = |source| EgressError::Lookup { host: name.clone(), source };
        let after = self.options.connect_timeout;
        match timeout(after, self.resolver.resolve(name)).await {
            Ok(Ok(addresses)) if addresses.is_empty() => {
                Err(failed(std::io::Error::other("it has no address")))
            }
            Ok(Ok(addresses)) => Ok(addresses),
            Ok(Err(source)) => Err(failed(source)),
            Err(_elapsed) => Err(EgressError::TimedOut { host: name.clone(), after }),
        }
    }

    /// A client for this hop alone: it can connect to `addresses`, and to nothing else.
    fn client(
        &self,
        target: &Target,
        addresses: Vec<IpAddr>,
        headers: HeaderMap,
    ) -> Result<Client, EgressError> {
        let builder = Client::builder()
            .default_headers(headers)
            .tls_backend_preconfigured(self.tls(target.url.scheme())?)
            .user_agent(concat!("clawnode/", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .no_gzip()
            .no_brotli()
            .no_deflate()
            .no_zstd()
            .referer(false)
            .redirect(redirect::Policy::none())
            .connect_timeout(self.options.connect_timeout)
            .pool_max_idle_per_host(0);
        let pinned = Pinned { name: target.host.text(), addresses };
        let builder = self.pin(builder, pinned);
        builder.build().map_err(|error| EgressError::Tls(ErrorChain(&error).to_string()))
    }

    async fn send(
        &self,
        request: &EgressRequest,
        target: &Target,
        addresses: Vec<IpAddr>,
    ) -> Result<Response, EgressError> {
        let builder = self
            .client(target, addresses, HeaderMap::new())?
            .request(request.method.clone(), target.url.clone())
            .headers(request.headers.clone())
            .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let sent = match &request.body {
            Some(body) => builder.body(body.clone()).send(),
            None => builder.send(),
        };
        sent.await.map_err(|error| broken(target, error))
    }

    async fn reply(
        &self,
        meter: ByteMeter<'_>,
        mut response: Response,
        request: &EgressRequest,
        target: Target,
        redirects: u8,
    ) -> Result<EgressReply, EgressError> {
        let is_coded = |value: &&HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"identity");
        let encoding = response.headers().get(CONTENT_ENCODING).filter(is_coded);
        if let Some(encoding) = encoding.filter(|_| request.method != Method::HEAD) {
            let encoding = String::from_utf8_lossy(encoding.as_bytes()).chars().take(40).collect();
            return Err(EgressError::Encoded { host: target.host.text(), encoding });
        }
        let most = request.max_bytes.min(self.options.max_body_bytes);
        let mut body = EgressBody { bytes: Vec::new(), is_cut: false };
        while !body.is_cut {
            let chunk = response.chunk().await.map_err(|error| broken(&target, error))?;
            let Some(chunk) = chunk else { break };
            meter.count(chunk.len()).map_err(EgressError::Interrupted)?;
            let room = most - body.bytes.len();
            body.is_cut = chunk.len() > room;
            body.bytes.extend(chunk.into_iter().take(room));
        }
        Ok(EgressReply {
            status: response.status(),
            headers: std::mem::take(response.headers_mut()),
            url: target.url,
            redirects,
            body,
        })
    }

    fn tls(&self, scheme: &str) -> Result<rustls::ClientConfig, EgressError> {
        let made = |roots| tls(roots).map_err(|error| ErrorChain(&error).to_string());
        let config = match scheme {
            "https" => self.tls.get_or_init(|| made(true)).clone(),
            // No certificate is trusted, which plain HTTP does not need.
            _ => made(false),
        };
        config.map_err(EgressError::Tls)
    }
}

/// What planted bugs change.
#[cfg(feature = "test-util")]
impl Inner {
    fn skips_check(&self, redirects: u8) -> bool {
        self.planted == super::EgressBug::NoRecheck && redirects > 0
    }

    fn heeds_grants(&self) -> bool {
        self.planted != super::EgressBug::NoGrants
    }

    fn checks(&self, addresses: usize) -> usize {
        if self.planted == super::EgressBug::FirstAddressOnly { 1 } else { addresses }
    }

    fn pin(&self, builder: reqwest::ClientBuilder, pinned: Pinned) -> reqwest::ClientBuilder {
        match self.planted {
            super::EgressBug::NoPin => {
                builder.dns_resolver(super::resolve::Unpinned(Arc::clone(&self.resolver)))
            }
            _ => builder.dns_resolver(pinned),
        }
    }
}

#[cfg(not(feature = "test-util"))]
#[expect(clippy::unused_self, reason = "planted bugs read it")]
impl Inner {
    const fn skips_check(&self, _redirects: u8) -> bool {
        false
    }

    const fn heeds_grants(&self) -> bool {
        true
    }

    const fn checks(&self, addresses: usize) -> usize {
        addresses
    }

    fn pin(&self, builder: reqwest::ClientBuilder, pinned: Pinned) -> reqwest::ClientBuilder {
        builder.dns_resolver(pinned)
    }
}

fn is_own(name: &HeaderName) -> bool {
    OWN_HEADERS.contains(&name.as_str()) || name.as_str().starts_with("proxy-")
}

/// The headers that another host may see.
fn harmless(headers: &HeaderMap) -> HeaderMap {
    debug_assert!(
        !HARMLESS.contains(&AUTHORIZATION.as_str()) && !HARMLESS.contains(&COOKIE.as_str())
    );
    let kept = headers.iter().filter(|(name, _)| HARMLESS.contains(&name.as_str()));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The bytes of headers on the wire, nearly.
fn size(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}

/// The target of a redirect, if the response is one.
fn redirect_of(response: &Response) -> Option<&str> {
    let leads_on = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    response.headers().get(LOCATION).filter(|_| leads_on)?.to_str().ok()
}

fn broken(target: &Target, error: reqwest::Error) -> EgressError {
    let why = ErrorChain(&error.without_url()).to_string();
    let why = why.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect();
    EgressError::Broken { host: target.host.text(), why }
}
