//! Who may use the gateway: a token, or a ticket that the token's holder had made.
//!
//! AUTH-1: tokens and tickets are kept and compared as keyed hashes in constant time. AUTH-2: a
//! ticket opens one WebSocket once, within [`TICKET_LIFE`]; it travels as a subprotocol, never in
//! a URL.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::http::{HeaderMap, HeaderName, header::AUTHORIZATION};
use clawnode_proto::{ErrorBody, ErrorCode};
use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;

/// How long a ticket waits to be used.
pub(super) const TICKET_LIFE: Duration = Duration::from_secs(30);
/// Tickets that may wait at once; a person opens a few windows, not hundreds.
const TICKETS_MAX: usize = 256;
/// What the subprotocol that carries a ticket begins with.
pub(super) const TICKET_PROTOCOL: &str = "clawnode.ticket.";

/// The header with which Anthropic's clients show a key.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// What the gateway knows of secrets: only hashes.
pub(super) struct Auth {
    key: [u8; 32],
    token: Option<[u8; 32]>,
    tickets: Mutex<Vec<Ticket>>,
}

struct Ticket {
    hash: [u8; 32],
    made: Instant,
}

/// What a request shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShownCredential<'a> {
    /// No header that carries one.
    Nothing,
    /// `Authorization: Bearer …`, or `x-api-key: …`.
    Bearer(&'a str),
    /// Several headers, another scheme, or not text.
    Unreadable,
}

// === impl Auth ===

impl Auth {
    pub(super) fn new(token: Option<&SecretString>) -> Self {
        let key = rand::random();
        let hash = |text: &str| *blake3::keyed_hash(&key, text.as_bytes()).as_bytes();
        let token = token.map(|token| hash(token.expose_secret().trim()));
        Self { key, token, tickets: Mutex::default() }
    }

    /// Whether nothing need be shown.
    pub(super) fn is_open(&self) -> bool {
        self.token.is_none()
    }

    /// Whose word a request is, for the record: there is one token, so it has no other name.
    pub(super) fn credential(&self) -> &'static str {
        if self.is_open() { "anyone" } else { "the token" }
    }

    /// The verdict on a token.
    pub(super) fn check(&self, shown: &str) -> Result<(), ErrorBody> {
        let Some(expected) = &self.token else { return Ok(()) };
        if bool::from(self.hash(shown.trim()).ct_eq(expected)) {
            Ok(())
        } else if shown.trim().is_empty() {
            Err(unauthorized("the token is empty"))
        } else {
            Err(unauthorized("the token is not this gateway's"))
        }
    }

    /// The verdict on a request to a route that needs a token.
    pub(super) fn check_request(&self, shown: ShownCredential<'_>) -> Result<(), ErrorBody> {
        match shown {
            ShownCredential::Bearer(token) => self.check(token),
            _ if self.is_open() => Ok(()),
            ShownCredential::Nothing => Err(unauthorized("this needs a token, and none was sent")),
            ShownCredential::Unreadable => Err(unauthorized(
                "the `Authorization` header is not exactly one `Bearer TOKEN`, or there are several \
                     `x-api-key`",
            )),
        }
    }

    /// A ticket for one WebSocket.
    pub(super) fn make_ticket(&self, now: Instant) -> Result<SecretString, ErrorBody> {
        let text = blake3::Hash::from_bytes(rand::random()).to_hex().to_string();
        let hash = self.hash(&text);
        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        tickets.retain(|ticket| ticket.is_alive(now));
        if tickets.len() >= TICKETS_MAX {
            return Err(ErrorBody::new(
                ErrorCode::Overloaded,
                format!("{TICKETS_MAX} tickets wait to be used"),
            )
            .hint("use them, or wait until they expire after 30 s"));
        }
        tickets.push(Ticket { hash, made: now });
        Ok(SecretString::from(text))
    }

    /// Uses up a ticket, whatever happens to the WebSocket.
    pub(super) fn redeem(&self, text: &str, now: Instant) -> Result<(), ErrorBody> {
        let hash = self.hash(text);
        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        tickets.retain(|ticket| ticket.is_alive(now));
        match tickets.iter().position(|ticket| bool::from(ticket.hash.ct_eq(&hash))) {
            Some(at) => {
                tickets.swap_remove(at);
                Ok(())
            }
            None => Err(ErrorBody::new(
                ErrorCode::Unauthorized,
                "the ticket is unknown, used or expired",
            )
            .hint("ask for a new one with `ticket.create`; each opens one WebSocket within 30 s")),
        }
    }

    fn hash(&self, text: &str) -> [u8; 32] {
        *blake3::keyed_hash(&self.key, text.as_bytes()).as_bytes()
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth").field("open", &self.is_open()).finish_non_exhaustive()
    }
}

fn unauthorized(message: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::Unauthorized, message).hint(
        "send `Authorization: Bearer TOKEN`, or `x-api-key: TOKEN`; the token is in the node's data directory, or in \
         `CLAWNODE_TOKEN`",
    )
}

// === impl Ticket ===

impl Ticket {
    fn is_alive(&self, now: Instant) -> bool {
        now.duration_since(self.made) < TICKET_LIFE
    }
}

// === impl ShownCredential ===

impl<'a> ShownCredential<'a> {
    /// Reads the headers of a request. `x-api-key`, which Anthropic's clients send, counts if there is no
    /// `Authorization`.
    pub(super) fn read(headers: &'a HeaderMap) -> Self {
        if !headers.contains_key(AUTHORIZATION) {
            let mut keys = headers.get_all(API_KEY).iter();
            return match (keys.next(), keys.next()) {
                (None, _) => Self::Nothing,
                (Some(key), None) => key.to_str().map_or(Self::Unreadable, Self::Bearer),
                (Some(_), Some(_)) => Self::Unreadable,
            };
        }
        let mut all = headers.get_all(AUTHORIZATION).iter();
        let (Some(only), None) = (all.next(), all.next()) else { return Self::Unreadable };
        match only.to_str().ok().and_then(|text| text.split_once(' ')) {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
                Self::Bearer(token.trim())
            }
            _ => Self::Unreadable,
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn auth() -> Auth {
        Auth::new(Some(&SecretString::from("s3cret")))
    }

    #[test]
    fn the_table_of_headers() {
        let table: &[(&[&str], bool)] = &[
            (&["Bearer s3cret"], true),
            (&["bearer s3cret"], true),
            (&["BEARER  s3cret "], true),
            (&[], false),
            (&[""], false),
            (&["Bearer"], false),
            (&["Bearer "], false),
            (&["Bearer wrong"], false),
            (&["Bearer s3cre"], false),
            (&["Bearer s3crett"], false),
            (&["Bearer S3CRET"], false),
            (&["Bearer s3cret s3cret"], false),
            (&["Basic s3cret"], false),
            (&["s3cret"], false),
            (&["Bearer s3cret", "Bearer s3cret"], false),
            (&["Bearer wrong", "Bearer s3cret"], false),
        ];
        for (values, expected) in table {
            let mut headers = HeaderMap::new();
            for value in *values {
                headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            }
            let verdict = auth().check_request(ShownCredential::read(&headers));
            assert_eq!(verdict.is_ok(), *expected, "{values:?}");
        }
    }

    #[test]
    fn an_api_key_is_the_token_too() {
        let verdict = |shown: &[(HeaderName, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in shown {
                headers.append(name, HeaderValue::from_static(value));
            }
            auth().check_request(ShownCredential::read(&headers)).is_ok()
        };
        assert!(verdict(&[(API_KEY, "s3cret")]));
        assert!(!verdict(&[(API_KEY, "wrong")]) && !verdict(&[(API_KEY, "")]));
        assert!(!verdict(&[(API_KEY, "s3cret"), (API_KEY, "s3cret")]));
        let bearer = |value| (AUTHORIZATION, value);
        assert!(verdict(&[bearer("Bearer s3cret"), (API_KEY, "wrong")]), "it goes first");
        assert!(!verdict(&[bearer("Bearer wrong"), (API_KEY, "s3cret")]));
    }

    #[test]
    fn without_a_token_nothing_need_be_shown() {
        let open = Auth::new(None);
        assert!(open.check_request(ShownCredential::Nothing).is_ok());
        assert!(open.check_request(ShownCredential::Bearer("anything")).is_ok());
    }

    #[test]
    fn auth_2_a_ticket_works_once_and_not_late() {
        let (auth, start) = (auth(), Instant::now());
        let ticket = auth.make_ticket(start).unwrap();
        assert!(auth.redeem(ticket.expose_secret(), start).is_ok());
        assert!(auth.redeem(ticket.expose_secret(), start).is_err(), "twice");
        let late = auth.make_ticket(start).unwrap();
        assert!(auth.redeem(late.expose_secret(), start + TICKET_LIFE).is_err(), "late");
        assert!(auth.redeem("", start).is_err());
        assert!(auth.redeem("s3cret", start).is_err(), "the token is no ticket");
    }

    #[test]
    fn tickets_are_bounded_and_make_room_when_they_expire() {
        let (auth, start) = (auth(), Instant::now());
        for _ in 0..TICKETS_MAX {
            auth.make_ticket(start).unwrap();
        }
        let refused = auth.make_ticket(start).unwrap_err();
        assert_eq!(refused.code, ErrorCode::Overloaded);
        assert!(auth.make_ticket(start + TICKET_LIFE).is_ok());
    }

    #[test]
    fn auth_1_debug_shows_no_secret() {
        assert_eq!(format!("{:?}", auth()), "Auth { open: false, .. }");
    }
}
