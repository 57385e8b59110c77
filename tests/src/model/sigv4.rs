//! Amazon's signatures, version 4, computed here by the description of the algorithm, to judge those of clients.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::http::HeaderMap;
use ring::{
    digest::{SHA256, digest},
    hmac,
};

use crate::journals::hex;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// How long a signature holds.
const HOLDS: Duration = Duration::from_mins(5);
/// Headers that every signature has to cover.
const NEEDED: [&str; 2] = ["host", "x-amz-date"];

/// An account, and the region of its requests.
#[derive(Clone, Debug)]
pub struct AwsAccount {
    pub access_key_id: String,
    pub secret_access_key: String,
    /// For keys that hold for a time.
    pub session_token: Option<String>,
    pub region: String,
}

/// Why a request is refused.
#[derive(Debug)]
pub(super) enum Unsigned {
    /// The signature is another one.
    Wrong,
    /// There is none, or it is not made as it has to be.
    Malformed(String),
}

/// Holds a request to its signature. `path` is as it was sent.
pub(super) fn check(
    account: &AwsAccount,
    path: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<(), Unsigned> {
    let malformed = |what: &str| Unsigned::Malformed(format!("a signature {what}"));
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let authorization = header("authorization").ok_or_else(|| malformed("is missing"))?;
    let fields =
        authorization.strip_prefix(ALGORITHM).ok_or_else(|| malformed("of another kind"))?;
    let fields: BTreeMap<&str, &str> =
        fields.split(',').filter_map(|field| field.trim().split_once('=')).collect();
    let field = |name: &str| fields.get(name).copied().unwrap_or_default();
    let time = header("x-amz-date").ok_or_else(|| malformed("without a time"))?;
    check_time(time)?;
    let day = time.get(..8).unwrap_or_default();
    let scope = format!("{day}/{}/bedrock/aws4_request", account.region);
    let (id, scope_sent) = field("Credential").split_once('/').unwrap_or_default();
    if scope_sent != scope {
        return Err(malformed(&format!("of the scope `{scope_sent}` instead of `{scope}`")));
    }
    if id != account.access_key_id
        || header("x-amz-security-token") != account.session_token.as_deref()
    {
        return Err(Unsigned::Wrong);
    }
    let names: Vec<&str> = field("SignedHeaders").split(';').collect();
    let token = account.session_token.as_ref().map(|_| "x-amz-security-token");
    if !names.is_sorted() || !NEEDED.into_iter().chain(token).all(|name| names.contains(&name)) {
        return Err(malformed(&format!("of the headers {names:?}")));
    }
    let mut canonical = format!("POST\n{}\n\n", again_encoded(path));
    for name in &names {
        let value = header(name).ok_or_else(|| malformed("of a header that is missing"))?;
        canonical = format!("{canonical}{name}:{}\n", value.trim());
    }
    canonical = format!("{canonical}\n{}\n{}", names.join(";"), hash(body));
    let text = format!("{ALGORITHM}\n{time}\n{scope}\n{}", hash(canonical.as_bytes()));
    let key = format!("AWS4{}", account.secret_access_key).into_bytes();
    let parts = [day, &account.region, "bedrock", "aws4_request", &text];
    let signature = parts.into_iter().fold(key, |key, part| hmac_of(&key, part));
    if hex(&signature) == field("Signature") { Ok(()) } else { Err(Unsigned::Wrong) }
}

/// Holds a time (`20260101T000000Z`) to the clock.
#[expect(clippy::disallowed_methods, reason = "a service compares it with its own clock")]
fn check_time(text: &str) -> Result<(), Unsigned> {
    let number =
        |from: usize, to: usize| text.get(from..to).and_then(|digits| digits.parse::<u64>().ok());
    let seconds = || {
        let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
        let (hour, minute, second) = (number(9, 11)?, number(11, 13)?, number(13, 15)?);
        // Days since 1970, by Hinnant's algorithm: years begin in March.
        let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
        Some((days - 719_469) * 86_400 + hour * 3_600 + minute * 60 + second)
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let is_form = text.len() == 16 && text.get(8..9) == Some("T") && text.ends_with('Z');
    match seconds().map(Duration::from_secs) {
        Some(time) if is_form && time.abs_diff(now) < HOLDS => Ok(()),
        _ => Err(Unsigned::Malformed(format!("a signature of the time `{text}`"))),
    }
}

/// A path of which every part is encoded once more, as all services but one want it.
fn again_encoded(path: &str) -> String {
    path.replace('%', "%25")
}

fn hash(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

fn hmac_of(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}
