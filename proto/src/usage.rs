//! What model calls used: the totals that a follower of the feed keeps, and what the API shows of them.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    cursor::Cursor,
    id::{AgentName, Attempt, CallId, EntityId, Position, TurnId},
    limits,
    llm::{ModelRef, Usage},
    money::MicroUsd,
    timestamp::Timestamp,
};

/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;
/// The user of rows that a day has no room to name, and of requests that name none.
pub const NO_USER: &str = "-";

/// A day, by UTC: days since 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub u64);

/// How far a follower of the feed has come: one position for each stream of journals, of which there
/// is one today.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Followed(pub Vec<Position>);

/// What a day may hold before it counts further keys together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayBounds {
    /// Different [`UsageKey`]s; further calls count for [`NO_USER`].
    pub rows: usize,
    /// Bytes of the names in all rows.
    pub bytes: usize,
}

/// What the model calls of one day used, as stored. It counts everything up to `upto`, so records that
/// are followed again add nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageDay {
    /// How far the feed is counted in here.
    pub upto: Followed,
    /// At most [`crate::limits::USAGE_ROWS`], each with a key of its own.
    pub rows: Vec<(UsageKey, Calls)>,
}

/// Whose calls are counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UsageKey {
    /// Its name in the configuration.
    pub agent: AgentName,
    /// `CHANNEL:ACCOUNT:PEER` of the session, without the conversation, or [`NO_USER`].
    pub user: String,
    /// The model that was asked, as it was configured when the call began.
    pub model: ModelRef,
    /// The model that answered, by the provider's own name; empty if none did.
    pub answered: String,
}

/// Model calls, and what they used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Calls {
    /// Calls that succeeded.
    pub done: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Attempts whose end is unknown, because their process died. The provider may bill them.
    pub lost: u64,
    /// Tokens of the calls that succeeded.
    pub usage: Usage,
    /// Tokens of the calls that failed, and of attempts that gave way.
    pub wasted: Usage,
    /// Attempts that ended so that the call went on with another one, of another model or later.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gave_way: u64,
    /// What they cost, in micro-dollars, as far as their price is journaled. An attempt whose end is unknown
    /// costs what was held for it.
    #[serde(default)]
    pub cost: MicroUsd,
    /// Attempts that may cost something, and whose price is not journaled: no limit held for them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unpriced: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What rows are summed by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum UsageBy {
    /// `2026-11-25`, by UTC.
    #[default]
    Day,
    /// The agent's name.
    Agent,
    /// `CHANNEL:ACCOUNT:PEER`; `-` for requests that name no user.
    User,
    /// `PROVIDER/MODEL`, as configured.
    Model,
}

/// Parameters of `usage.show`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UsageParams {
    /// What to sum by.
    #[serde(default)]
    pub by: UsageBy,
    /// Only days since this time: a duration (`7d`: seven days ago), or a day in UTC (`2026-11-23`).
    /// Default: all days that are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

/// What model calls used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsageView {
    /// What the rows are summed by.
    pub by: UsageBy,
    /// The sums, by name.
    pub rows: Vec<UsageRow>,
    /// The sum of all rows.
    pub total: Calls,
    /// The age of the oldest event that is not counted yet, in milliseconds. 0 if all are counted.
    pub behind_ms: u64,
}

/// One sum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsageRow {
    /// A day, an agent, a user or a model.
    pub name: String,
    /// How many there were, how they ended, and what they used.
    #[serde(flatten)]
    pub calls: Calls,
}

/// Parameters of `usage.calls`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UsageCallsParams {
    /// Only calls since this time: a duration (`7d`: seven days ago), or a day in UTC (`2026-11-23`).
    /// Default: all calls whose journals are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Where the page before this one ended (`next` of its answer).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
    /// Rows at most (100, at most 1,000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Answer of `usage.calls`: attempts at model calls, one a row, the newest first. It is read from journals, so
/// calls of deleted sessions are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsageCalls {
    /// The attempts, by the time when they ended.
    pub calls: Vec<UsageCall>,
    /// The `cursor` of the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
    /// Whether some calls are missing: a journal cannot be read, or there are too many sessions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// One attempt at a model call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsageCall {
    /// When it ended. Of one without a known end: when that was found.
    pub at: Timestamp,
    /// The id of its entity. A deleted session has no rows.
    pub session: EntityId,
    /// The turn. Absent if the call was never begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// All attempts at it have the same id.
    pub call: CallId,
    /// Which attempt at it, from 1. 0 if it was never begun.
    pub attempt: Attempt,
    /// Its name in the configuration.
    pub agent: AgentName,
    /// `CHANNEL:ACCOUNT:PEER`; `-` for requests that name no user.
    pub user: String,
    /// The model that was asked, as `PROVIDER/MODEL`.
    pub model: ModelRef,
    /// The model that answered, by the provider's own name. Absent if none did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub answered: String,
    /// How it ended.
    pub end: CallEnd,
    /// Its tokens. Zero if its end is unknown.
    pub usage: Usage,
    /// What it cost, in micro-dollars. Absent if its price is not journaled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<MicroUsd>,
    /// Whether nothing of it was of use: it failed, gave way, or its end is unknown.
    pub wasted: bool,
}

/// How an attempt at a model call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CallEnd {
    /// With a reply.
    Done,
    /// Without one.
    Failed,
    /// Its call went on with another attempt.
    GaveWay,
    /// That is unknown: its process died.
    Lost,
}

/// Parameters of `usage.audit`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UsageAuditParams {
    /// The day, by UTC: `2026-11-25`.
    #[cfg_attr(feature = "schema", schemars(example = "2026-11-25"))]
    pub day: String,
}

/// Answer of `usage.audit`: the usage of a day, counted again from the journals, beside what was counted
/// before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsageAudit {
    /// In UTC, as `2026-11-25`.
    pub day: String,
    /// What `usage.show` has of it.
    pub counted: Calls,
    /// What the journals have of it.
    pub journaled: Calls,
    /// The rows in which the two differ.
    pub differences: Vec<AuditRow>,
    /// The rows of which more is counted than the journals have, and which deleted sessions may explain: their
    /// journals are gone. These are no differences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unproven: Vec<AuditRow>,
    /// Journals that were read.
    pub journals: u64,
    /// Journals of sessions that were deleted on this day or later.
    pub deleted: u64,
    /// Journals that cannot be read, or only in part.
    pub unreadable: u64,
}

/// A row of a day in which what is counted and what the journals have differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditRow {
    /// Its name in the configuration when the calls were made.
    pub agent: AgentName,
    /// The user. `*` if the day has too many rows to compare each: then all rows of the agent are one.
    pub user: String,
    /// The model that was asked, or `*`.
    pub model: String,
    /// The model that answered, or `*`.
    pub answered: String,
    /// What is counted.
    pub counted: Calls,
    /// What the journals have.
    pub journaled: Calls,
}

// === impl Day ===

impl Day {
    /// The day of a time.
    pub const fn of(at: Timestamp) -> Self {
        Self(at.0 / DAY_MS)
    }

    /// When the next day begins.
    pub const fn end(self) -> Timestamp {
        Timestamp(self.0.saturating_add(1).saturating_mul(DAY_MS))
    }
}

/// `YYYY-MM-DD`. By Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shifted = self.0.saturating_add(719_468);
        let (era, of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

/// `YYYY-MM-DD`, as it is shown.
impl FromStr for Day {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("`{text}` is not a day such as `2026-11-25`");
        let number = |part: Option<&str>, digits: usize| {
            let part = part.filter(|part| part.len() == digits)?;
            part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse::<u64>().ok())?
        };
        let mut parts = text.split('-');
        let (year, month, day) =
            (number(parts.next(), 4), number(parts.next(), 2), number(parts.next(), 2));
        let (Some(year), Some(month), Some(day), None) = (year, month, day, parts.next()) else {
            return Err(wrong());
        };
        if !(1..=12).contains(&month) || year < 1970 {
            return Err(wrong());
        }
        // `days_from_civil`, of the same source.
        let year = year - u64::from(month <= 2);
        let (era, year_of_era) = (year / 400, year % 400);
        let month_from_march = (month + 9) % 12;
        let of_year = (153 * month_from_march + 2) / 5 + day.saturating_sub(1);
        let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
        let days = (era * 146_097 + of_era).checked_sub(719_468).map(Self);
        // The 31st of February is no day.
        days.filter(|found| found.to_string() == text).ok_or_else(wrong)
    }
}

// === impl UsageBy ===

impl UsageBy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Day, Self::Agent, Self::User, Self::Model];

    /// As people write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Agent => "agent",
            Self::User => "user",
            Self::Model => "model",
        }
    }
}

impl fmt::Display for UsageBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for UsageBy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|by| by.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is not `day`, `agent`, `user` or `model`"))
    }
}

// === impl UsageKey ===

impl UsageKey {
    /// Bytes of its names.
    fn bytes(&self) -> usize {
        let model = self.model.provider.len() + self.model.model.len();
        self.agent.as_str().len() + self.user.len() + model + self.answered.len()
    }
}

// === impl Calls ===

impl Calls {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            done: self.done.saturating_add(other.done),
            failed: self.failed.saturating_add(other.failed),
            lost: self.lost.saturating_add(other.lost),
            usage: self.usage.plus(other.usage),
            wasted: self.wasted.plus(other.wasted),
            gave_way: self.gave_way.saturating_add(other.gave_way),
            cost: MicroUsd(self.cost.0.saturating_add(other.cost.0)),
            unpriced: self.unpriced.saturating_add(other.unpriced),
        }
    }

    /// Whether no number of `other` is larger.
    pub fn has_all_of(&self, other: &Self) -> bool {
        let tokens = |usage: &Usage| {
            [
                usage.input_tokens,
                usage.output_tokens,
                usage.cache_read_tokens,
                usage.cache_write_tokens,
                usage.reasoning_tokens,
            ]
        };
        let numbers = |usage: &Self| {
            let calls = [
                usage.done,
                usage.failed,
                usage.lost,
                usage.gave_way,
                usage.cost.0,
                usage.unpriced,
            ];
            calls.into_iter().chain(tokens(&usage.usage)).chain(tokens(&usage.wasted))
        };
        numbers(self).zip(numbers(other)).all(|(own, other)| own >= other)
    }
}

// === impl DayBounds ===

impl DayBounds {
    /// Those of each day that is kept.
    pub const MOST: Self = Self { rows: limits::USAGE_ROWS, bytes: limits::USAGE_BYTES };

    const fn and_an_eighth(self) -> Self {
        Self { rows: self.rows + self.rows / 8, bytes: self.bytes + self.bytes / 8 }
    }
}

// === impl UsageDay ===

impl UsageDay {
    /// Adds calls to a row. A day that has reached one of these bounds counts those of further keys for [`NO_USER`] and no answering model, and once it has an eighth more, for no model:
    /// that is one row for each agent.
    pub fn add(&mut self, key: UsageKey, calls: Calls, most: DayBounds) {
        let mut key = key;
        if self.row(&key).is_none() && self.is_full(most) {
            key = UsageKey { user: NO_USER.to_owned(), answered: String::new(), ..key };
        }
        if self.row(&key).is_none() && self.is_full(most.and_an_eighth()) {
            let model = ModelRef { provider: NO_USER.to_owned(), model: NO_USER.to_owned() };
            key = UsageKey { model, ..key };
        }
        let at = self.row(&key).unwrap_or_else(|| {
            let at = self.rows.partition_point(|(other, _)| *other < key);
            self.rows.insert(at, (key, Calls::default()));
            at
        });
        if let Some((_, row)) = self.rows.get_mut(at) {
            *row = row.plus(calls);
            // A row has no room for them, and no one asks for them: what they cost is counted.
            row.wasted.reasoning_tokens = 0;
            row.usage.cache_write_hour_tokens = 0;
            row.wasted.cache_write_hour_tokens = 0;
        }
    }

    /// Whether keys may have lost their names, because one of these bounds was reached.
    pub fn is_full(&self, most: DayBounds) -> bool {
        let named: usize = self.rows.iter().map(|(key, _)| key.bytes()).sum();
        self.rows.len() >= most.rows || named >= most.bytes
    }

    fn row(&self, key: &UsageKey) -> Option<usize> {
        self.rows.binary_search_by(|(other, _)| other.cmp(key)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;

    fn key(user: &str) -> UsageKey {
        UsageKey {
            agent: "default".parse().unwrap(),
            user: user.to_owned(),
            model: "demo/demo".parse().unwrap(),
            answered: "demo-1".to_owned(),
        }
    }

    fn one() -> Calls {
        let usage = Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() };
        Calls { done: 1, usage, ..Calls::default() }
    }

    #[test]
    fn days_have_the_names_of_the_calendar() {
        for (ms, name) in [
            (0, "1970-01-01"),
            (DAY_MS - 1, "1970-01-01"),
            (951_782_400_000, "2000-02-29"),
            (1_709_164_800_000, "2024-02-29"),
            (1_735_689_599_999, "2024-12-31"),
            (1_735_689_600_000, "2025-01-01"),
            (4_107_542_400_000, "2100-03-01"),
        ] {
            assert_eq!(Day::of(Timestamp(ms)).to_string(), name);
        }
        assert_eq!(Day(1).end(), Timestamp(2 * DAY_MS));
        for day in (0..60_000).step_by(7).map(Day) {
            assert_eq!(day.to_string().parse(), Ok(day));
        }
        for text in ["", "2026-2-01", "2026-02-30", "2026-13-01", "1969-12-31", "2026-01-01-1", "x"]
        {
            assert!(text.parse::<Day>().is_err(), "{text}");
        }
    }

    #[test]
    fn calls_are_added_to_their_row() {
        let mut day = UsageDay::default();
        for user in ["b", "a", "b", "c", "a", "b"] {
            day.add(key(user), one(), DayBounds { rows: 10, bytes: 1_000 });
        }
        let rows: Vec<_> = day.rows.iter().map(|(key, calls)| (&*key.user, calls.done)).collect();
        assert_eq!(rows, [("a", 2), ("b", 3), ("c", 1)]);
        assert_eq!(day.rows[1].1.usage.input_tokens, 9);
    }

    #[test]
    fn a_full_day_loses_names_and_no_calls() {
        let mut day = UsageDay::default();
        for user in 0..50 {
            day.add(key(&format!("user{user}")), one(), DayBounds { rows: 4, bytes: 10_000 });
        }
        day.add(key("user1"), one(), DayBounds { rows: 4, bytes: 10_000 });
        assert_eq!(day.rows.len(), 5);
        let total = day.rows.iter().fold(Calls::default(), |sum, (_, calls)| sum.plus(*calls));
        assert_eq!(total.done, 51);
        let others = day.rows.iter().find(|(key, _)| key.user == NO_USER).unwrap();
        assert_eq!((others.1.done, &*others.0.answered), (46, ""));
        assert!(day.rows.iter().any(|(key, calls)| key.user == "user1" && calls.done == 2));
    }

    #[test]
    fn a_day_of_any_calls_fits_in_a_value_of_the_bucket() {
        let usage = Usage {
            input_tokens: u64::MAX,
            output_tokens: u64::MAX,
            cache_read_tokens: u64::MAX,
            cache_write_tokens: u64::MAX,
            cache_write_hour_tokens: u64::MAX,
            reasoning_tokens: u64::MAX,
            estimated: true,
        };
        let calls = Calls {
            done: u64::MAX,
            failed: u64::MAX,
            lost: u64::MAX,
            usage,
            wasted: usage,
            gave_way: u64::MAX,
            cost: MicroUsd(u64::MAX),
            unpriced: u64::MAX,
        };
        // Few long names fill it by their bytes, many short ones by their number.
        for length in [700, 120, 90, 1] {
            let mut day = UsageDay { upto: Followed(vec![Position(u64::MAX)]), rows: Vec::new() };
            for n in 0..4_000 {
                let model = ModelRef { provider: "p".to_owned(), model: format!("m{n}") };
                let user = format!("{n:0length$}");
                day.add(UsageKey { model, ..key(&user) }, calls, DayBounds::MOST);
            }
            let bytes = crate::codec::encode(&day).unwrap().len();
            assert!(bytes <= limits::APPEND_BYTES, "{length}: {bytes}");
        }
    }

    #[test]
    fn long_names_and_many_models_leave_a_day_small() {
        let mut day = UsageDay::default();
        for n in 0..200 {
            let model = ModelRef { provider: "p".to_owned(), model: format!("{n}-{:0400}", 0) };
            day.add(
                UsageKey { model, ..key(&"u".repeat(770)) },
                one(),
                DayBounds { rows: 1_000, bytes: 10_000 },
            );
        }
        assert!(day.rows.len() < 50, "{}", day.rows.len());
        let bytes: usize = day.rows.iter().map(|(key, _)| key.bytes()).sum();
        assert!(bytes < 13_000, "{bytes}");
        let total = day.rows.iter().fold(Calls::default(), |sum, (_, calls)| sum.plus(*calls));
        assert_eq!(total.done, 200);
    }
}
