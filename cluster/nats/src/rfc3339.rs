//! A timestamp as NATS schedules want it.

use clawnode_proto::Timestamp;

/// The last millisecond of the year 9999; RFC 3339 has no later years.
const LAST: u64 = 253_402_300_799_999;

/// `2026-11-21T11:40:53.688Z`, or `None` after the year 9999.
pub(super) fn format(at: Timestamp) -> Option<String> {
    if at.0 > LAST {
        return None;
    }
    let (seconds, millis) = (at.0 / 1_000, at.0 % 1_000);
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z"))
}

/// The date that is `days` after 1970-01-01.
///
/// Hinnant, "chrono-Compatible Low-Level Date Algorithms": years begin in March, so that the leap
/// day is the last of its year, and 400 years are an era of 146,097 days.
const fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_instants() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_709_164_800_001, "2024-02-29T00:00:00.001Z"),
            (1_735_689_599_000, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (LAST, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(format(Timestamp(millis)).as_deref(), Some(text));
        }
        assert_eq!(format(Timestamp(LAST + 1)), None);
    }
}
