//! S-19: whatever a URL looks like, whatever a name server says and wherever a server redirects to,
//! nothing that is not public sees a connection.
//!
//! Method: one address of the loopback network is allowed, as a lab would be, and has a real server;
//! others have the same port open and count who comes. Each attack is also run against a way out
//! with the bug that it is for, and has to get through there.

use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use clawnode_guard::kill_switch::SwitchGate;
use clawnode_proto::{
    AgentName, Position, SwitchId, Timestamp,
    agents::AgentLimits,
    kill_switch::{KillSwitch, SwitchRecord, SwitchScope},
    tool::ToolFailure,
};
use clawnode_tool::egress::{
    Egress, EgressBug, EgressError, EgressOptions, EgressReply, EgressRequest, Resolve,
};
use reqwest::{Method, header::HeaderMap};

use crate::{
    server::{Answer, Seen, Server, Then},
    spellings::{ALLOWED, FORBIDDEN, Leads, of_v4, of_v6},
};

/// A second allowed address, without a listener.
const DEAF: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// A server that may be reached, and watchers on the same port that may not.
pub(crate) struct Lab {
    pub(crate) port: u16,
    pub(crate) allowed: Server,
    watched: Vec<Server>,
}

/// A name server that says one thing after the other, and the last one for ever.
#[derive(Debug)]
pub(crate) struct Liar {
    says: Mutex<VecDeque<Result<Vec<IpAddr>, io::ErrorKind>>>,
    asked: Mutex<usize>,
}

impl Lab {
    pub(crate) async fn new(
        script: impl Fn(&Seen, u16) -> Answer + Clone + Send + Sync + 'static,
    ) -> Self {
        // The port must be free on all of them; another process may have it on one.
        for _ in 0..64 {
            let local = Ipv4Addr::LOCALHOST.into();
            let mut watched =
                vec![Server::start(local, 0, |_| Answer::ok("secret")).await.unwrap()];
            let port = watched.first().unwrap().address.port();
            let six = Ipv6Addr::LOCALHOST.into();
            if let Ok(six) = Server::start(six, port, |_| Answer::ok("secret")).await {
                watched.push(six);
            }
            let script = script.clone();
            let allowed = Server::start(ALLOWED.into(), port, move |seen| script(seen, port)).await;
            if let Ok(allowed) = allowed {
                return Self { port, allowed, watched };
            }
        }
        panic!("no port is free on two addresses");
    }

    /// Connections that should not have been.
    pub(crate) fn intruders(&self) -> usize {
        self.watched.iter().map(|server| server.seen().len()).sum()
    }

    pub(crate) fn options(&self) -> EgressOptions {
        EgressOptions {
            ports: [self.port].into(),
            allow_private: vec!["127.0.0.2".parse().unwrap(), "127.0.0.3".parse().unwrap()],
            connect_timeout: Duration::from_secs(10),
            ..EgressOptions::default()
        }
    }
}

impl Liar {
    pub(crate) fn saying(says: impl IntoIterator<Item = Vec<IpAddr>>) -> Arc<Self> {
        let says = Mutex::new(says.into_iter().map(Ok).collect());
        Arc::new(Self { says, asked: Mutex::new(0) })
    }

    fn failing(kind: io::ErrorKind) -> Arc<Self> {
        Arc::new(Self { says: Mutex::new([Err(kind)].into()), asked: Mutex::new(0) })
    }

    fn asked(&self) -> usize {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Resolve for Liar {
    async fn resolve(&self, _name: &str) -> io::Result<Vec<IpAddr>> {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        let mut says = self.says.lock().unwrap_or_else(PoisonError::into_inner);
        let next = if says.len() > 1 { says.pop_front() } else { says.front().cloned() };
        next.unwrap_or(Ok(Vec::new())).map_err(io::Error::from)
    }
}

pub(crate) fn get(url: impl Into<String>) -> EgressRequest {
    EgressRequest {
        url: url.into(),
        method: Method::GET,
        body: None,
        headers: HeaderMap::new(),
        max_bytes: 1 << 16,
    }
}

fn body(reply: &EgressReply) -> &str {
    std::str::from_utf8(&reply.body.bytes).unwrap()
}

/// Whether the request was refused before anything left.
fn is_refused(reply: &Result<EgressReply, EgressError>) -> bool {
    let refused = |error: &EgressError| {
        matches!(error.failure(), ToolFailure::Refused | ToolFailure::Invalid)
    };
    reply.as_ref().is_err_and(refused)
}

#[tokio::test]
async fn s19_every_spelling_leads_where_it_says_or_nowhere() {
    let lab = Lab::new(|_, _| Answer::ok("public")).await;
    let resolver = Liar::saying([vec![Ipv4Addr::LOCALHOST.into()]]);
    let egress = Egress::with_resolver(lab.options(), resolver);
    let port = lab.port;
    let addresses = FORBIDDEN.into_iter().map(Ipv4Addr::from).chain([ALLOWED]);
    let spellings = addresses.flat_map(of_v4).chain(of_v6());
    let (mut urls, mut reached) = (0, 0);
    for spelling in spellings {
        let host = &spelling.host;
        for url in [format!("http://{host}:{port}/"), format!("hTTp://{host}:{port}?a@b#@c/")] {
            urls += 1;
            let reply = egress.fetch(None, get(&url)).await;
            if spelling.leads == Leads::To(ALLOWED) {
                // A spelling that this parser does not know may be refused, but no other place
                // may answer.
                reached += usize::from(reply.is_ok());
                assert!(reply.is_ok() || is_refused(&reply), "{url}: {reply:?}");
                assert!(reply.is_err() || body(&reply.unwrap()) == "public", "{url}");
            } else {
                assert!(is_refused(&reply), "{url}: {reply:?}");
            }
        }
    }
    for name in ["localhost", "LOCALHOST.", "a.localhost", "metadata.google.internal", "intranet"] {
        for scheme in ["http", "https"] {
            urls += 1;
            let reply = egress.fetch(None, get(format!("{scheme}://{name}:{port}/"))).await;
            assert!(is_refused(&reply), "{name}: {reply:?}");
        }
    }
    for odd in [
        "http:127.0.0.1",
        "http:/127.0.0.1/",
        "http:///127.0.0.1/",
        "http:\\\\127.0.0.1\\",
        "//127.0.0.1/",
        "127.0.0.1",
        "http://",
        "http://:80/",
        "http://#127.0.0.1",
        "http://?127.0.0.1",
        "jar:http://127.0.0.1/!/",
        "view-source:http://127.0.0.1/",
        "unix:/run/docker.sock",
        "http+unix://%2Frun%2Fdocker.sock/",
        "dict://127.0.0.1:11211/",
        "http://0/",
        "http://00/",
        "http://0x/",
        "http://127.1/",
        "http://127.0.1/",
        "http://localhost%00.example.org/",
    ] {
        urls += 1;
        let reply = egress.fetch(None, get(odd)).await;
        assert!(is_refused(&reply), "{odd}: {reply:?}");
    }
    assert!(urls >= 1_000, "{urls}");
    assert!(reached >= 40, "only {reached} spellings of the allowed address reached it");
    assert_eq!(lab.allowed.seen().len(), reached);
    assert_eq!(lab.intruders(), 0);
}

#[tokio::test]
async fn s19_the_machine_s_own_names_lead_nowhere() {
    let lab = Lab::new(|_, _| Answer::ok("public")).await;
    let egress = Egress::new(lab.options());
    let error =
        egress.fetch(None, get(format!("http://localhost:{}/", lab.port))).await.unwrap_err();
    // A machine without a `localhost` cannot look it up.
    assert!(matches!(error, EgressError::Special { .. } | EgressError::Lookup { .. }), "{error}");
    assert_eq!(lab.intruders(), 0);
}

#[tokio::test]
async fn s19_only_ports_of_web_servers_are_reached() {
    let lab = Lab::new(|_, _| Answer::ok("public")).await;
    let options = EgressOptions { ports: [].into(), ..lab.options() };
    let egress = Egress::with_resolver(options, Liar::saying([vec![ALLOWED.into()]]));
    for port in [lab.port, 1, 22, 25, 4222, 6379, 11211] {
        let error = egress.fetch(None, get(format!("http://lab.test:{port}/"))).await.unwrap_err();
        assert!(matches!(error, EgressError::Port(found) if found == port), "{error}");
    }
    assert!(lab.allowed.seen().is_empty());
}

/// What happened to one attack.
struct Attack {
    lab: Lab,
    resolver: Arc<Liar>,
    reply: Result<EgressReply, EgressError>,
}

async fn attack(
    planted: EgressBug,
    says: Vec<Vec<IpAddr>>,
    script: impl Fn(&Seen, u16) -> Answer + Clone + Send + Sync + 'static,
) -> Attack {
    let lab = Lab::new(script).await;
    let resolver = Liar::saying(says);
    let egress = Egress::with_bug(lab.options(), resolver.clone(), planted);
    let reply = egress.fetch(None, get(format!("http://lab.test:{}/", lab.port))).await;
    Attack { lab, resolver, reply }
}

#[tokio::test]
async fn s19_a_name_that_changes_its_mind_is_asked_once() {
    let public = |_: &Seen, _: u16| Answer::ok("public");
    let says = || vec![vec![ALLOWED.into()], vec![Ipv4Addr::LOCALHOST.into()]];
    let safe = attack(EgressBug::None, says(), public).await;
    assert_eq!(body(&safe.reply.unwrap()), "public");
    assert_eq!((safe.resolver.asked(), safe.lab.intruders()), (1, 0));

    let harmed = attack(EgressBug::NoPin, says(), public).await;
    assert_eq!(body(&harmed.reply.unwrap()), "secret", "the attack is none");
    assert_eq!(harmed.lab.intruders(), 1);
}

#[tokio::test]
async fn s19_one_private_address_among_many_is_one_too_many() {
    let public = |_: &Seen, _: u16| Answer::ok("public");
    for at in 0..5 {
        let mut addresses: Vec<IpAddr> = vec![ALLOWED.into(); 4];
        addresses.insert(at, Ipv4Addr::LOCALHOST.into());
        let safe = attack(EgressBug::None, vec![addresses], public).await;
        assert!(is_refused(&safe.reply), "{:?}", safe.reply);
        assert_eq!((safe.lab.intruders(), safe.lab.allowed.seen().len()), (0, 0));
    }
    let says = || vec![vec![DEAF.into(), Ipv4Addr::LOCALHOST.into()]];
    let safe = attack(EgressBug::None, says(), public).await;
    let told = safe.reply.unwrap_err().to_string();
    // What kind of address, but not which: a network is not to be mapped with it.
    assert!(told.contains("loopback") && !told.contains("127."), "{told}");

    let harmed = attack(EgressBug::FirstAddressOnly, says(), public).await;
    assert_eq!(body(&harmed.reply.unwrap()), "secret", "the attack is none");
    assert_eq!(harmed.lab.intruders(), 1);
}

#[tokio::test]
async fn s19_a_redirect_is_checked_like_a_request() {
    for location in [
        "http://127.0.0.1:PORT/",
        "//127.0.0.1:PORT/",
        "http://2130706433:PORT/",
        "http://[::1]:PORT/",
        "http://[::ffff:127.0.0.1]:PORT/",
        "http://inside.test:PORT/",
    ] {
        let script =
            move |_: &Seen, port: u16| Answer::to(&location.replace("PORT", &port.to_string()));
        let says = || vec![vec![ALLOWED.into()], vec![Ipv4Addr::LOCALHOST.into()]];
        let safe = attack(EgressBug::None, says(), script).await;
        assert!(is_refused(&safe.reply), "{location}: {:?}", safe.reply);
        assert_eq!((safe.lab.allowed.seen().len(), safe.lab.intruders()), (1, 0));

        let harmed = attack(EgressBug::NoRecheck, says(), script).await;
        if harmed.lab.watched.len() > 1 || !location.contains("[::1]") {
            assert_eq!(harmed.lab.intruders(), 1, "{location}: the attack is none");
        }
    }
}

#[tokio::test]
async fn redirects_end() {
    let around = |seen: &Seen, _: u16| Answer::to(&format!("{}x", seen.path));
    let safe = attack(EgressBug::None, vec![vec![ALLOWED.into()]], around).await;
    assert!(matches!(safe.reply, Err(EgressError::Redirects(5))), "{:?}", safe.reply);
    assert_eq!(safe.lab.allowed.seen().len(), 6);
}

#[tokio::test]
async fn a_name_that_leads_nowhere_is_named() {
    let lab = Lab::new(|_, _| Answer::ok("public")).await;
    for resolver in [Liar::saying([vec![]]), Liar::failing(io::ErrorKind::NotFound)] {
        let egress = Egress::with_resolver(lab.options(), resolver);
        let error = egress.fetch(None, get("http://gone.test/")).await.unwrap_err();
        assert!(matches!(error, EgressError::Lookup { .. }), "{error}");
        assert!(error.to_string().contains("gone.test"));
    }
}

#[tokio::test]
async fn credentials_stay_with_the_host_that_they_are_for() {
    let lab = Lab::new(|seen, port| match seen.path.as_str() {
        "/same" => Answer::to("/end"),
        "/other" => Answer::to(&format!("http://other.test:{port}/end")),
        _ => Answer::ok("end"),
    })
    .await;
    let egress = Egress::with_resolver(lab.options(), Liar::saying([vec![ALLOWED.into()]]));
    let mut headers = HeaderMap::new();
    for name in ["authorization", "cookie", "x-api-key", "accept"] {
        headers.insert(name, "secret".parse().unwrap());
    }
    for path in ["same", "other"] {
        let url = format!("http://lab.test:{}/{path}", lab.port);
        egress.fetch(None, EgressRequest { headers: headers.clone(), ..get(url) }).await.unwrap();
    }
    let seen = lab.allowed.seen();
    let has = |at: usize, name: &str| seen.get(at).unwrap().headers.contains_key(name);
    for name in ["authorization", "cookie", "x-api-key"] {
        assert!(has(0, name) && has(1, name) && has(2, name) && !has(3, name), "{name}");
    }
    assert!(has(3, "accept") && seen.get(3).unwrap().headers["accept-encoding"] == "identity");
    for own in ["host", "content-length", "proxy-authorization", "transfer-encoding"] {
        let mut headers = HeaderMap::new();
        headers.insert(own, "1".parse().unwrap());
        let url = format!("http://lab.test:{}/", lab.port);
        let error = egress.fetch(None, EgressRequest { headers, ..get(url) }).await.unwrap_err();
        assert!(matches!(error, EgressError::Header(_)), "{error}");
    }
}

#[tokio::test]
async fn a_body_without_end_is_read_to_its_limit() {
    let lab = Lab::new(|_, _| Answer {
        bytes: b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n".to_vec(),
        then: Then::Forever(vec![b'x'; 10_000]),
    })
    .await;
    let options = EgressOptions { max_body_bytes: 50_000, ..lab.options() };
    let egress = Egress::with_resolver(options, Liar::saying([vec![ALLOWED.into()]]));
    let url = format!("http://lab.test:{}/", lab.port);
    for (asked, read) in [(12_345, 12_345), (1 << 30, 50_000)] {
        let request = EgressRequest { max_bytes: asked, ..get(&url) };
        let reply = egress.fetch(None, request).await.unwrap();
        assert_eq!((reply.body.bytes.len(), reply.body.is_cut), (read, true));
    }
}

/// The bytes of a request and of its answer count against the limit of its agent, and a body is not read on
/// once it would exceed it.
#[tokio::test]
async fn bytes_count_for_the_agent_that_asks_and_a_body_ends_at_its_limit() {
    let lab = Lab::new(|seen, _| match seen.path.as_str() {
        "/small" => Answer::ok(&"x".repeat(10_000)),
        _ => Answer {
            bytes: b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n".to_vec(),
            then: Then::Forever(vec![b'x'; 10_000]),
        },
    })
    .await;
    let gate = SwitchGate::default();
    let (ada, bob): (AgentName, AgentName) = ("ada".parse().unwrap(), "bob".parse().unwrap());
    let limits =
        |bytes| AgentLimits { egress_bytes_per_day: Some(bytes), ..AgentLimits::default() };
    gate.limit(&[(ada.clone(), limits(1_000_000)), (bob.clone(), limits(1 << 40))].into());
    let options = EgressOptions { max_body_bytes: 1 << 30, ..lab.options() };
    let egress = Egress::with_resolver(options, Liar::saying([vec![ALLOWED.into()]]));
    let egress = egress.behind(gate.clone());
    let small = format!("http://lab.test:{}/small", lab.port);
    egress.fetch(Some(&ada), get(&small)).await.unwrap();
    let counted = gate.counts()[0].egress_bytes;
    let sent = small.len() as u64;
    assert!((10_000 + sent..10_500 + sent).contains(&counted), "{counted}");
    let endless = format!("http://lab.test:{}/", lab.port);
    let request = || EgressRequest { max_bytes: 1 << 30, ..get(&endless) };
    let error = egress.fetch(Some(&ada), request()).await.unwrap_err();
    assert!(error.to_string().contains("egress_bytes_per_day"), "{error}");
    let counts = gate.counts();
    assert!(counts[0].egress_bytes <= 1_000_000 && counts[0].egress_bytes > 100_000, "{counts:?}");
    assert_eq!(counts[1].egress_bytes, 0);
    assert!(is_refused(&egress.fetch(Some(&ada), get(&small)).await), "it is stopped");
    egress.fetch(Some(&bob), get(&small)).await.unwrap();
}

#[tokio::test]
async fn what_nobody_asked_to_be_compressed_is_not_read() {
    let lab =
        Lab::new(|_, _| Answer::with("200 OK", "content-encoding: gzip\r\n", &[0x1f, 0x8b, 8, 0]))
            .await;
    let egress = Egress::with_resolver(lab.options(), Liar::saying([vec![ALLOWED.into()]]));
    let url = format!("http://lab.test:{}/", lab.port);
    let error = egress.fetch(None, get(url)).await.unwrap_err();
    assert!(
        matches!(&error, EgressError::Encoded { encoding, .. } if encoding == "gzip"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up() {
    let lab = Lab::new(|_, _| Answer { bytes: Vec::new(), then: Then::Hang }).await;
    let total_timeout = Duration::from_millis(300);
    let options = EgressOptions { total_timeout, ..lab.options() };
    let egress = Egress::with_resolver(options, Liar::saying([vec![ALLOWED.into()]]));
    let url = format!("http://lab.test:{}/", lab.port);
    let error = egress.fetch(None, get(url)).await.unwrap_err();
    assert!(
        matches!(error, EgressError::TimedOut { after, .. } if after == total_timeout),
        "{error}"
    );
}

/// KILL-1 and KILL-2 for what leaves for other machines.
#[tokio::test]
async fn what_an_operator_lets_not_out_is_not_sent_and_what_is_on_its_way_ends() {
    let lab = Lab::new(|seen, _| match seen.path.as_str() {
        "/hang" => Answer { bytes: Vec::new(), then: Then::Hang },
        _ => Answer::ok("hello"),
    })
    .await;
    let switch_gate = SwitchGate::default();
    let names = Liar::saying([vec![ALLOWED.into()]]);
    let egress = Egress::with_resolver(lab.options(), names.clone()).behind(switch_gate.clone());
    let url = |path: &str| format!("http://lab.test:{}{path}", lab.port);
    assert!(egress.fetch(None, get(url("/"))).await.is_ok());
    let on_its_way = tokio::spawn({
        let (egress, request) = (egress.clone(), get(url("/hang")));
        async move { egress.fetch(None, request).await }
    });
    while switch_gate.running(&SwitchScope::Egress) == 0 {
        tokio::task::yield_now().await;
    }
    let switch = KillSwitch {
        id: SwitchId::from_u128(1),
        scope: SwitchScope::Egress,
        by: "token at a".to_owned(),
        at: Timestamp(1),
        why: String::new(),
    };
    switch_gate.take(Position(1), SwitchRecord::Set { switch: switch.clone() });
    let error = on_its_way.await.unwrap().unwrap_err();
    assert!(matches!(error, EgressError::Interrupted(_)), "{error}");
    assert_eq!(error.failure(), ToolFailure::Cancelled, "it may have been sent: {error}");
    let asked = names.asked();
    let error = egress.fetch(None, get(url("/"))).await.unwrap_err();
    assert_eq!(error.failure(), ToolFailure::Refused, "{error}");
    assert!(error.to_string().contains("was stopped by token at a"), "{error}");
    assert_eq!(names.asked(), asked, "not even its name was looked up");
    let (by, at) = (String::new(), Timestamp(2));
    switch_gate.take(Position(2), SwitchRecord::Cleared { switch, by, at });
    assert!(egress.fetch(None, get(url("/"))).await.is_ok());
}
