//! What time it is somewhere.

use clawnode_proto::Timestamp;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};

/// Bytes of a time zone's name; the longest of the IANA names has 32.
pub(super) const ZONE_BYTES: usize = 64;

/// `now` in words, where `zone` is an IANA name or an offset; UTC without it.
pub(super) fn tell(now: Timestamp, zone: Option<&str>) -> Result<String, String> {
    let (zone, name) = match zone.map(str::trim) {
        None | Some("" | "Z" | "z") => (TimeZone::UTC, "UTC".to_owned()),
        Some(text) => parse(text)?,
    };
    let out_of_range = |error| format!("the clock of this node is out of range: {error}");
    let ms = i64::try_from(now.0).unwrap_or(i64::MAX);
    let at = jiff::Timestamp::from_millisecond(ms).map_err(out_of_range)?;
    let there = at.to_zoned(zone.clone());
    let instant = if zone == TimeZone::UTC {
        there.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    } else {
        there.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    };
    let words = there.strftime("%A, %-d %B %Y, %H:%M:%S");
    let week = there.date().iso_week_date();
    Ok(format!(
        "{instant}\n{words} in {name}; ISO week {}-W{:02}, day {} of the year; Unix time {}",
        week.year(),
        week.week(),
        there.day_of_year(),
        at.as_second(),
    ))
}

fn parse(text: &str) -> Result<(TimeZone, String), String> {
    let unknown = || {
        let shown: String = text.chars().take(ZONE_BYTES).collect();
        format!(
            "`{shown}` is not a time zone; give an IANA name such as `Europe/Berlin`, or an offset \
             such as `+02:00`"
        )
    };
    if text.len() > ZONE_BYTES {
        return Err(unknown());
    }
    if let Some(offset) = offset(text) {
        return Ok((TimeZone::fixed(offset), format!("UTC{offset}")));
    }
    // The embedded data alone, so that every node of a cluster answers alike.
    let zone = TimeZoneDatabase::bundled().get(text).map_err(|_unknown| unknown())?;
    let name = zone.iana_name().unwrap_or(text).to_owned();
    Ok((zone, name))
}

/// `+2`, `+02`, `+0230`, `+02:30`, each also after `UTC` or `GMT`.
fn offset(text: &str) -> Option<Offset> {
    let text = text.strip_prefix("UTC").or_else(|| text.strip_prefix("GMT")).unwrap_or(text);
    let (sign, digits) = match text.strip_prefix('+') {
        Some(rest) => (1, rest),
        None => (-1, text.strip_prefix('-').or_else(|| text.strip_prefix('\u{2212}'))?),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b':') {
        return None;
    }
    let (hours, minutes) = match (digits.split_once(':'), digits.len()) {
        (Some(parts), _) => parts,
        (None, 1 | 2) => (digits, "0"),
        (None, 4) => digits.split_at_checked(2)?,
        _ => return None,
    };
    let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
    if hours > 14 || minutes > 59 {
        return None;
    }
    Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 29 February 2024, 23:30 UTC.
    const LEAP: Timestamp = Timestamp(1_709_249_400_000);

    #[test]
    fn places_have_their_own_day() {
        for (zone, begin) in [
            (
                None,
                "2024-02-29T23:30:00Z\nThursday, 29 February 2024, 23:30:00 in UTC; ISO week 2024-W09, day 60 ",
            ),
            (
                Some("Asia/Tokyo"),
                "2024-03-01T08:30:00+09:00\nFriday, 1 March 2024, 08:30:00 in Asia/Tokyo;",
            ),
            (Some("america/new_york"), "2024-02-29T18:30:00-05:00\n"),
            (Some("+05:45"), "2024-03-01T05:15:00+05:45\n"),
            (Some("-0330"), "2024-02-29T20:00:00-03:30\n"),
            (Some("UTC+2"), "2024-03-01T01:30:00+02:00\n"),
            (Some("Z"), "2024-02-29T23:30:00Z\n"),
        ] {
            let told = tell(LEAP, zone).unwrap();
            assert!(told.starts_with(begin), "{zone:?}: {told}");
            assert!(told.ends_with("Unix time 1709249400"), "{told}");
        }
    }

    #[test]
    fn what_is_no_zone_is_named() {
        for bad in ["Mars", "+15", "+1:2:3", "+", "-", "+ab", "..", "/etc/passwd", "../UTC", "+é"]
        {
            let why = tell(LEAP, Some(bad)).unwrap_err();
            assert!(why.contains(bad) && why.contains("Europe/Berlin"), "{bad}: {why}");
        }
        assert!(tell(LEAP, Some(&"A".repeat(9_000))).unwrap_err().len() < 300);
        assert!(tell(Timestamp(u64::MAX), None).is_err());
    }
}
