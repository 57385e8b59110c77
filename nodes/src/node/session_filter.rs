//! Turns the filters of a request for a list of sessions into a query.

use std::time::Duration;

use clawnode_actors::session::clients::session_list::{PageEnd, SessionQuery};
use clawnode_proto::{ErrorBody, ErrorCode, Timestamp, api::SessionsList};

use crate::config::parse_duration;

/// Rows of a page unless asked otherwise, and at most.
const PAGE: (u32, u32) = (100, 1_000);
/// The states that rows have.
const STATES: [&str; 6] = ["idle", "running", "waiting", "quarantined", "deleted", "corrupt"];
/// The forms of `since`.
const SINCE: &str =
    "`2h` for the last two hours, or a time in UTC: `2026-11-23`, `2026-11-23T10:00:00Z`";

/// The query of a request, or the parameter that makes no sense.
pub(super) fn query(page: SessionsList, now: Timestamp) -> Result<SessionQuery, ErrorBody> {
    let SessionsList { cursor, limit, agent, channel, state, since, stateless } = page;
    let after = cursor.as_ref().map(PageEnd::try_from).transpose()?;
    let agent =
        agent.map(|text| text.parse()).transpose().map_err(|error| invalid("agent", &error))?;
    let channel =
        channel.map(|text| text.parse()).transpose().map_err(|error| invalid("channel", &error))?;
    if let Some(state) = state.as_deref().filter(|state| !STATES.contains(state)) {
        let state: String = state.chars().take(40).collect();
        let problem = format!("`{state}` is not one of {}", STATES.join(", "));
        return Err(invalid("state", &problem));
    }
    let since = since.map(|text| parse_since(&text, now));
    Ok(SessionQuery {
        limit: limit.unwrap_or(PAGE.0).clamp(1, PAGE.1) as usize,
        after,
        agent,
        channel,
        state,
        since: since.transpose()?,
        stateless,
    })
}

/// The time that a parameter `since` names.
pub(super) fn parse_since(text: &str, now: Timestamp) -> Result<Timestamp, ErrorBody> {
    let problem = || {
        let text: String = text.chars().take(40).collect();
        invalid("since", &format!("`{text}` is not a time: {SINCE}"))
    };
    moment(text, now).ok_or_else(problem)
}

fn invalid(name: &str, problem: &dyn std::fmt::Display) -> ErrorBody {
    ErrorBody::new(ErrorCode::InvalidParams, format!("parameter `{name}`: {problem}"))
}

/// So long ago, or a time in UTC.
fn moment(text: &str, now: Timestamp) -> Option<Timestamp> {
    if let Ok(ago) = parse_duration(text) {
        return Some(before(now, ago));
    }
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00Z"));
    let time = time.strip_suffix('Z').unwrap_or(time);
    let mut parts = date.splitn(3, '-').map(number);
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let mut parts = time.splitn(3, ':').map(number);
    let (hour, minute) = (parts.next()??, parts.next()??);
    let second = parts.next().unwrap_or(Some(0))?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    let fits = (1970..=9_999).contains(&year)
        && (1..=days).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !fits {
        return None;
    }
    // Hinnant, "chrono-compatible low-level date algorithms", `days_from_civil`.
    let shifted = if month > 2 { year } else { year - 1 };
    let era = shifted / 400;
    let of_era = shifted - era * 400;
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(Timestamp((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000))
}

fn before(now: Timestamp, ago: Duration) -> Timestamp {
    Timestamp(now.0.saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)))
}

fn number(text: &str) -> Option<u64> {
    let digits = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_so_long_ago_or_a_time_of_the_calendar() {
        let now = Timestamp(10_000_000_000);
        for (text, expected) in [
            ("2h", Some(10_000_000_000 - 7_200_000)),
            ("1d12h", Some(10_000_000_000 - 129_600_000)),
            ("100000d", Some(0)),
            ("1970-01-01", Some(0)),
            ("2000-02-29", Some(951_782_400_000)),
            ("2024-02-29T23:59:59Z", Some(1_709_251_199_000)),
            ("2024-02-29 23:59", Some(1_709_251_140_000)),
            ("2023-02-29", None),
            ("2024-13-01", None),
            ("2024-00-01", None),
            ("2024-01-01T24:00:00Z", None),
            ("0000-01-01", None),
            ("yesterday", None),
            ("", None),
            ("2024-01-01T10:00:00+02:00", None),
        ] {
            assert_eq!(moment(text, now).map(|moment| moment.0), expected, "{text}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let wanted = |page| query(page, Timestamp(0));
        let all = wanted(SessionsList::default()).unwrap();
        assert_eq!((all.limit, all.stateless), (100, false));
        let some = |text: &str| Some(text.to_owned());
        for (page, name) in [
            (SessionsList { agent: some("a b"), ..SessionsList::default() }, "`agent`"),
            (SessionsList { channel: some("a:b"), ..SessionsList::default() }, "`channel`"),
            (SessionsList { state: some("busy"), ..SessionsList::default() }, "`state`"),
            (SessionsList { since: some("monday"), ..SessionsList::default() }, "`since`"),
            (SessionsList { cursor: "ent_x".parse().ok(), ..SessionsList::default() }, "`cursor`"),
        ] {
            let refused = wanted(page).unwrap_err();
            assert_eq!(refused.code, ErrorCode::InvalidParams);
            assert!(refused.message.contains(name), "{}", refused.message);
        }
    }
}
