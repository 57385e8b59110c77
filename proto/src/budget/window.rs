//! Windows of limits, as functions of the time of events.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::timestamp::Timestamp;

/// Milliseconds of an hour.
const HOUR_MS: u64 = 3_600_000;
/// Milliseconds of a day.
const DAY_MS: u64 = 24 * HOUR_MS;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: u64 = 719_468;
/// Days of 400 years.
const ERA_DAYS: u64 = 146_097;

/// The length of a window. In the next window, the limit counts from zero again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WindowLength {
    /// From one full hour to the next.
    Hour,
    /// A day of the calendar, by UTC.
    Day,
    /// A month of the calendar, by UTC.
    Month,
    /// The window never ends.
    Forever,
}

/// Which window of its length: hours, days or months since 1970-01-01.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct WindowNumber(pub u64);

/// A text that is no window.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a window of budgets; write `hour`, `day`, `month` or `forever`")]
pub struct WindowError(String);

// === impl WindowLength ===

impl WindowLength {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Hour, Self::Day, Self::Month, Self::Forever];

    /// As people write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
            Self::Forever => "forever",
        }
    }

    /// The window that a time is in.
    pub const fn at(self, time: Timestamp) -> WindowNumber {
        WindowNumber(match self {
            Self::Hour => time.0 / HOUR_MS,
            Self::Day => time.0 / DAY_MS,
            Self::Month => month_of(time.0 / DAY_MS),
            Self::Forever => 0,
        })
    }

    /// When a window ends: the first time that is not in it. Nothing if it never does.
    pub const fn end(self, window: WindowNumber) -> Option<Timestamp> {
        let next = window.0.saturating_add(1);
        match self {
            Self::Hour => Some(Timestamp(next.saturating_mul(HOUR_MS))),
            Self::Day => Some(Timestamp(next.saturating_mul(DAY_MS))),
            Self::Month => Some(Timestamp(first_day_of(next).saturating_mul(DAY_MS))),
            Self::Forever => None,
        }
    }
}

impl fmt::Display for WindowLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for WindowLength {
    type Err = WindowError;

    fn from_str(text: &str) -> Result<Self, WindowError> {
        let found = Self::ALL.into_iter().find(|window| window.as_str() == text);
        found.ok_or_else(|| WindowError(text.chars().take(40).collect()))
    }
}

/// Months since 1970-01. By Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms",
/// `civil_from_days`.
const fn month_of(day: u64) -> u64 {
    let shifted = day.saturating_add(EPOCH_DAYS);
    let (era, of_era) = (shifted / ERA_DAYS, shifted % ERA_DAYS);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    // March of year 0 is the month 0 here; 1970-01 is the month 1969 * 12 + 10.
    (era * 400 + year_of_era) * 12 + from_march - (1_969 * 12 + 10)
}

/// The first day of a month since 1970-01: `days_from_civil`.
const fn first_day_of(month: u64) -> u64 {
    let shifted = month.saturating_add(1_969 * 12 + 10);
    let (year, from_march) = (shifted / 12, shifted % 12);
    let (era, year_of_era) = (year / 400, year % 400);
    let of_year = (153 * from_march + 2) / 5;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    era.saturating_mul(ERA_DAYS).saturating_add(of_era).saturating_sub(EPOCH_DAYS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn months_are_those_of_the_calendar() {
        for (ms, month) in [
            (0, 0),
            (31 * DAY_MS - 1, 0),
            (31 * DAY_MS, 1),
            (951_782_400_000, 30 * 12 + 1),    // 2000-02-29
            (951_868_800_000, 30 * 12 + 2),    // 2000-03-01
            (1_709_251_199_999, 54 * 12 + 1),  // 2024-02-29, the last moment
            (1_709_251_200_000, 54 * 12 + 2),  // 2024-03-01
            (1_735_689_599_999, 54 * 12 + 11), // 2024-12-31, the last moment
            (4_107_542_400_000, 130 * 12 + 2), // 2100-03-01: 2100 is no leap year
            (4_107_542_399_999, 130 * 12 + 1),
        ] {
            assert_eq!(WindowLength::Month.at(Timestamp(ms)), WindowNumber(month), "{ms}");
        }
    }

    #[test]
    fn a_day_ends_at_midnight_by_utc() {
        let last = Timestamp(1_735_689_599_999);
        for window in [WindowLength::Hour, WindowLength::Day, WindowLength::Month] {
            let end = window.end(window.at(last)).unwrap();
            assert_eq!(end, Timestamp(1_735_689_600_000), "{window}");
        }
        assert_eq!(WindowLength::Forever.end(WindowNumber(0)), None);
    }

    proptest! {
        #[test]
        fn every_time_is_in_one_window(ms in 0..10_000_000_000_000_u64) {
            for window in [WindowLength::Hour, WindowLength::Day, WindowLength::Month] {
                let number = window.at(Timestamp(ms));
                let end = window.end(number).unwrap();
                prop_assert!(ms < end.0);
                prop_assert_eq!(window.at(end), WindowNumber(number.0 + 1));
                prop_assert_eq!(window.at(Timestamp(end.0 - 1)), number);
            }
        }
    }
}
