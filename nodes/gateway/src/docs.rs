//! `/v1/docs`: a page that shows the `OpenAPI` document to people.
//!
//! It is open, as `/` is, because a browser shows no token when it opens a page, and because there is no
//! secret in it. It asks for the document with the token that a person gives it. Nothing comes from
//! elsewhere: its one script and its one style carry a nonce of this answer, and the policy allows no
//! other.

use axum::{
    http::{HeaderValue, header},
    response::{Html, IntoResponse, Response},
};

const PAGE: &str = include_str!("docs.html");

/// The route.
pub(super) async fn docs() -> Response {
    let nonce = blake3::Hash::from_bytes(rand::random()).to_hex();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src \
         'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'"
    );
    let mut response = Html(PAGE.replace("{nonce}", &nonce)).into_response();
    // Without a policy of its own the page has the guard's, under which no script runs.
    if let Ok(policy) = HeaderValue::try_from(policy) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}
