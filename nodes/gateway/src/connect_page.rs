//! `/`: a page that says how to connect. No script, no style, no secret.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderMap, header},
    response::{Html, IntoResponse},
};

use super::gateway::Gateway;

const PAGE: &str = include_str!("page.html");

/// The page, with the address under which it was asked for.
pub(super) async fn page(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
) -> impl IntoResponse {
    let (http, ws) = if gateway.options.tls.is_some() { ("https", "wss") } else { ("http", "ws") };
    // The guard has let only host names and addresses of ours through.
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .map_or_else(|| gateway.addr.to_string(), str::to_owned);
    let auth = if gateway.auth.is_open() {
        ""
    } else {
        " \\\n  -H \"Authorization: Bearer $CLAWNODE_TOKEN\""
    };
    Html(
        PAGE.replace("{http}", http)
            .replace("{ws}", ws)
            .replace("{host}", &host)
            .replace("{auth}", auth)
            .replace("{version}", env!("CARGO_PKG_VERSION")),
    )
}
