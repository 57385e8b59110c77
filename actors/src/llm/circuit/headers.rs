//! What providers say of their limits in headers: Anthropic's `anthropic-ratelimit-*` with RFC 3339
//! dates, `OpenAI`'s `x-ratelimit-*` with durations such as `6m0s`, and the plain
//! `x-ratelimit-remaining` of routers, with seconds or a Unix time.

use std::time::Duration;

use clawnode_proto::{Timestamp, circuit::LimitedResource};
use reqwest::header::HeaderMap;

use super::pace::ReportedLimit;

/// Numbers of seconds from here on are Unix times, and from a thousand times this on such in
/// milliseconds: 2001, and 31 years as a duration.
const UNIX_FROM: f64 = 1e9;

/// The names of a limit's headers: what is allowed, what is left, when all of it is there again.
const NAMES: [(LimitedResource, [&str; 3]); 7] = [
    (
        LimitedResource::Requests,
        [
            "anthropic-ratelimit-requests-limit",
            "anthropic-ratelimit-requests-remaining",
            "anthropic-ratelimit-requests-reset",
        ],
    ),
    (
        LimitedResource::Tokens,
        [
            "anthropic-ratelimit-tokens-limit",
            "anthropic-ratelimit-tokens-remaining",
            "anthropic-ratelimit-tokens-reset",
        ],
    ),
    (
        LimitedResource::InputTokens,
        [
            "anthropic-ratelimit-input-tokens-limit",
            "anthropic-ratelimit-input-tokens-remaining",
            "anthropic-ratelimit-input-tokens-reset",
        ],
    ),
    (
        LimitedResource::OutputTokens,
        [
            "anthropic-ratelimit-output-tokens-limit",
            "anthropic-ratelimit-output-tokens-remaining",
            "anthropic-ratelimit-output-tokens-reset",
        ],
    ),
    (
        LimitedResource::Requests,
        [
            "x-ratelimit-limit-requests",
            "x-ratelimit-remaining-requests",
            "x-ratelimit-reset-requests",
        ],
    ),
    (
        LimitedResource::Tokens,
        ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"],
    ),
    (
        LimitedResource::Requests,
        ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"],
    ),
];

/// The limits that an answer reports; `now` is the time of day.
pub(super) fn reported(headers: &HeaderMap, now: Timestamp) -> Vec<ReportedLimit> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let read = |(resource, [limit, remaining, resets]): (LimitedResource, [&str; 3])| {
        let remaining = text(remaining)?.parse().ok()?;
        let resets_in = resets_in(text(resets)?, now)?;
        let limit = text(limit).and_then(|limit| limit.parse().ok());
        Some(ReportedLimit { resource, limit, remaining, resets_in })
    };
    NAMES.into_iter().filter_map(read).collect()
}

/// How long until then; nothing for a time in the past.
fn resets_in(text: &str, now: Timestamp) -> Option<Duration> {
    let until = |at: u64| Timestamp(at).since(now);
    if let Ok(number) = text.parse::<f64>() {
        let seconds = if number >= UNIX_FROM * 1e3 { number / 1e3 } else { number };
        let time = Duration::try_from_secs_f64(seconds).ok()?;
        if seconds < UNIX_FROM {
            return Some(time);
        }
        return Some(until(u64::try_from(time.as_millis()).ok()?));
    }
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Some(until(u64::try_from(at.as_millisecond()).ok()?));
    }
    duration(text)
}

/// A duration as Go writes it, for example `1h2m3.5s` or `20ms`.
fn duration(text: &str) -> Option<Duration> {
    let (mut rest, mut sum) = (text, Duration::ZERO);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (value, tail) = rest.split_at(number);
        let unit = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let seconds = match unit {
            "h" => 3_600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(value.parse::<f64>().ok()? * seconds).ok()?;
        sum = sum.checked_add(part)?;
        rest = tail;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-01-01T00:00:00Z.
    const NOW: Timestamp = Timestamp(1_767_225_600_000);

    fn read(headers: &[(&'static str, &str)]) -> Vec<(LimitedResource, Option<u64>, u64, u64)> {
        let headers = headers.iter().map(|(name, value)| {
            (reqwest::header::HeaderName::from_static(name), value.parse().unwrap())
        });
        let limits = reported(&headers.collect(), NOW);
        let row = |limit: ReportedLimit| {
            let ms = u64::try_from(limit.resets_in.as_millis()).unwrap();
            (limit.resource, limit.limit, limit.remaining, ms)
        };
        limits.into_iter().map(row).collect()
    }

    #[test]
    fn limits_of_each_vendor_are_read() {
        use LimitedResource::{InputTokens, OutputTokens, Requests, Tokens};
        let anthropic = read(&[
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2026-01-01T00:00:07Z"),
            ("anthropic-ratelimit-tokens-limit", "40000"),
            ("anthropic-ratelimit-tokens-remaining", "39000"),
            ("anthropic-ratelimit-tokens-reset", "2025-12-31T23:59:59Z"),
            ("anthropic-ratelimit-input-tokens-remaining", "5"),
            ("anthropic-ratelimit-input-tokens-reset", "2026-01-01T01:00:00.5+01:00"),
            ("anthropic-ratelimit-output-tokens-remaining", "6"),
            ("anthropic-ratelimit-output-tokens-reset", "2026-01-01T00:01:00Z"),
        ]);
        assert_eq!(
            anthropic,
            [
                (Requests, Some(50), 0, 7_000),
                (Tokens, Some(40_000), 39_000, 0),
                (InputTokens, None, 5, 500),
                (OutputTokens, None, 6, 60_000),
            ]
        );
        let openai = read(&[
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-remaining-tokens", "149984"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ]);
        assert_eq!(openai, [(Requests, Some(60), 59, 1_000), (Tokens, None, 149_984, 360_000)]);
        let router = read(&[
            ("x-ratelimit-limit", "20"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1767225603000"),
        ]);
        assert_eq!(router, [(Requests, Some(20), 0, 3_000)]);
    }

    #[test]
    fn every_form_of_a_time_is_read_and_nonsense_is_not() {
        for (text, ms) in [
            ("20ms", Some(20)),
            ("2m59.56s", Some(179_560)),
            ("1h2m3s", Some(3_723_000)),
            ("7.66s", Some(7_660)),
            ("12", Some(12_000)),
            ("0.5", Some(500)),
            ("1767225604", Some(4_000)),
            ("1767225604000", Some(4_000)),
            ("1", Some(1_000)),
            ("2026-01-01T00:00:01Z", Some(1_000)),
            ("1999-01-01T00:00:01Z", Some(0)),
            ("1969-01-01T00:00:01Z", None),
            ("", None),
            ("soon", None),
            ("5", Some(5_000)),
            ("-5", None),
            ("nan", None),
            ("1e400", None),
            ("5x", None),
            ("s", None),
            ("1.2.3s", None),
            ("99999999999999999999h", None),
        ] {
            let read = resets_in(text, NOW).map(|wait| u64::try_from(wait.as_millis()).unwrap());
            assert_eq!(read, ms, "`{text}`");
        }
    }

    #[test]
    fn half_a_limit_is_none() {
        assert_eq!(read(&[("x-ratelimit-remaining-requests", "0")]), []);
        let soon = [("x-ratelimit-remaining", "-1"), ("x-ratelimit-reset", "1s")];
        assert_eq!(read(&soon), []);
    }
}
