//! What every request passes first and last (GATE-1): who it is for, where it comes from, who
//! sends it; then the headers that every answer wears, and the count.

use std::{sync::Arc, time::Instant};

use axum::{
    Extension,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, header},
    middleware::Next,
    response::Response,
};
use clawnode_proto::{ErrorBody, ErrorCode, Traceparent};
use tracing::Instrument as _;

use super::{
    auth::{ShownCredential, TICKET_PROTOCOL},
    connection::{Connection, HEAD_BYTES},
    error::ErrorDialect,
    gateway::Gateway,
};

/// Who may use a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// Anybody who may ask at all.
    Open,
    /// Clients that show the token.
    Token,
    /// The token in the upgrade, as a ticket, or as the first message.
    Socket,
}

/// The paths that do not simply need the token. All others do, also those that do not exist.
const EXCEPTIONS: [(&str, Access); 5] = [
    ("/", Access::Open),
    ("/v1/docs", Access::Open),
    ("/healthz", Access::Open),
    ("/readyz", Access::Open),
    ("/ws", Access::Socket),
];

/// The paths that metrics tell apart.
const ROUTES: [&str; 18] = [
    "/",
    "/healthz",
    "/readyz",
    "/ws",
    "/metrics",
    "/v1/rpc",
    "/v1/status",
    "/v1/sessions",
    "/v1/agents",
    "/v1/panic",
    "/v1/mcp",
    "/v1/chat/completions",
    "/v1/embeddings",
    "/v1/files",
    "/v1/messages",
    "/v1/models",
    "/v1/responses",
    "other",
];

/// What a page from here may do, unless it has a policy of its own: nothing, and not be framed.
const POLICY: &str =
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// How far a WebSocket is admitted.
#[derive(Clone, Debug, Default)]
pub(super) struct SocketAdmission {
    /// No token need follow.
    pub(super) granted: bool,
    /// The subprotocol that carried the ticket.
    pub(super) protocol: Option<HeaderValue>,
}

/// The middleware around everything.
pub(super) async fn guard(
    State(gateway): State<Arc<Gateway>>,
    Extension(connection): Extension<Connection>,
    mut request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let path = request.uri().path().to_owned();
    let route = route(&path);
    let span = tracing::info_span!(
        "gateway.request",
        http.request.method = %request.method(),
        http.route = route,
        http.response.status_code = tracing::field::Empty,
    );
    let trace = (gateway.options.adopt_trace)(&span, traceparent(request.headers()).as_ref());
    let verdict = foreign(&gateway, &connection, &request)
        .and_then(|()| sane(request.headers()))
        .and_then(|()| admit(&gateway, &connection, &path, request.headers()));
    let dialect = ErrorDialect::of(&path, request.headers());
    let mut response = match verdict {
        Ok(admitted) => {
            request.extensions_mut().insert(admitted);
            request.extensions_mut().insert(RequestTrace(trace));
            next.run(request).instrument(span.clone()).await
        }
        Err(error) => dialect.respond(&error),
    };
    let own_policy = response.headers_mut().remove(header::CONTENT_SECURITY_POLICY);
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    if let Some(policy) = own_policy {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    if let Some(code) = response.extensions().get::<ErrorCode>() {
        gateway.metrics.refusal(*code);
    }
    span.record("http.response.status_code", response.status().as_u16());
    gateway.metrics.request(route, response.status().as_u16(), began.elapsed());
    response
}

/// The trace that a request belongs to.
#[derive(Clone, Debug)]
pub(super) struct RequestTrace(pub(super) Option<Traceparent>);

/// The `traceparent` header, if it has the form that W3C gave it.
pub(super) fn traceparent(headers: &HeaderMap) -> Option<Traceparent> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let lengths = [2, 32, 16, 2];
    let parts: Vec<&str> = text.split('-').collect();
    let fits = parts.len() == lengths.len()
        && parts.iter().zip(lengths).all(|(part, length)| {
            let hex = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
            part.len() == length && part.bytes().all(hex)
        })
        && parts[1].bytes().any(|c| c != b'0')
        && parts[2].bytes().any(|c| c != b'0');
    fits.then(|| Traceparent(text.to_owned()))
}

fn foreign(gateway: &Gateway, connection: &Connection, request: &Request) -> Result<(), ErrorBody> {
    let headers = request.headers();
    let bytes = |name| headers.get_all(name).iter().map(HeaderValue::as_bytes).collect::<Vec<_>>();
    let (mut hosts, origins) = (bytes(header::HOST), bytes(header::ORIGIN));
    // `GET http://name/ HTTP/1.1` names a host too, and it must be the same one.
    if let Some(authority) = request.uri().authority()
        && hosts != [authority.as_str().as_bytes()]
    {
        hosts.clear();
    }
    gateway.names.verdict(connection.local, &hosts, &origins).map_err(|foreign| {
        ErrorBody::new(ErrorCode::Forbidden, foreign.message()).hint(foreign.hint())
    })
}

/// Refuses a head that is too large, which the library bounds only while it is still incomplete, and
/// encodings of a body that another server on the way may read otherwise.
fn sane(headers: &HeaderMap) -> Result<(), ErrorBody> {
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if bytes > HEAD_BYTES {
        let why = format!("the headers have {bytes} bytes, more than {HEAD_BYTES}");
        return Err(ErrorBody::new(ErrorCode::InvalidRequest, why).hint("send fewer headers"));
    }
    let mut encodings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_plain = match (encodings.next(), encodings.next()) {
        (None, _) => true,
        (Some(only), None) => only.as_bytes().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => false,
    };
    if is_plain {
        return Ok(());
    }
    let why = "the only `Transfer-Encoding` that is read is `chunked`, once";
    Err(ErrorBody::new(ErrorCode::InvalidRequest, why).hint("send the body with `Content-Length`"))
}

fn admit(
    gateway: &Gateway,
    connection: &Connection,
    path: &str,
    headers: &HeaderMap,
) -> Result<SocketAdmission, ErrorBody> {
    let access = EXCEPTIONS
        .iter()
        .find_map(|(known, access)| (*known == path).then_some(*access))
        .unwrap_or(Access::Token);
    let shown = ShownCredential::read(headers);
    match access {
        Access::Open => Ok(SocketAdmission::default()),
        Access::Token => {
            gateway.auth.check_request(shown)?;
            connection.authenticated()?;
            Ok(SocketAdmission::default())
        }
        Access::Socket => {
            if let Some((protocol, ticket)) = ticket(headers) {
                gateway.auth.redeem(&ticket, Instant::now())?;
                connection.authenticated()?;
                return Ok(SocketAdmission { granted: true, protocol: Some(protocol) });
            }
            if shown == ShownCredential::Nothing {
                let granted = gateway.auth.is_open();
                if granted {
                    connection.authenticated()?;
                }
                return Ok(SocketAdmission { granted, protocol: None });
            }
            gateway.auth.check_request(shown)?;
            connection.authenticated()?;
            Ok(SocketAdmission { granted: true, protocol: None })
        }
    }
}

/// The ticket among the offered subprotocols.
fn ticket(headers: &HeaderMap) -> Option<(HeaderValue, String)> {
    headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().find_map(|offered| {
        offered.to_str().ok()?.split(',').map(str::trim).find_map(|name| {
            let ticket = name.strip_prefix(TICKET_PROTOCOL)?;
            Some((HeaderValue::from_str(name).ok()?, ticket.to_owned()))
        })
    })
}

fn route(path: &str) -> &'static str {
    let fits = |route: &&str| {
        path == *route
            || (route.len() > 1
                && path.strip_prefix(*route).is_some_and(|rest| rest.starts_with('/')))
    };
    ROUTES.into_iter().find(fits).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_has_its_form() {
        let read = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", HeaderValue::from_static(text));
            traceparent(&headers)
        };
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(read(good), Some(Traceparent(good.to_owned())));
        for bad in [
            "",
            "00",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-01",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn metrics_know_few_routes() {
        assert_eq!(route("/"), "/");
        assert_eq!(route("/v1/sessions/x/y"), "/v1/sessions");
        assert_eq!(route("/v1/sessionsx"), "other");
        assert_eq!(route("/anything"), "other");
    }
}
