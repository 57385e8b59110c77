//! Durations and sizes as people write them: `500ms`, `10s`, `10m`, `1h30m`; `64KiB`, `1MiB`.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A text that is no duration or size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct UnitError {
    text: String,
    expected: &'static str,
}

/// What a duration looks like.
const DURATION: &str = "a duration such as `500ms`, `10s`, `10m` or `1h30m`";
/// What it looks like where there need be no end.
const KEEP: &str = "a duration such as `12h` or `7d`, or `forever`";
/// What an address to listen on looks like.
const ADDRESS: &str = "an address and port such as `127.0.0.1:3100` or `[::1]:3100`";
/// What a size looks like.
const SIZE: &str = "a size such as `64KiB`, `1MiB` or `1GiB`";

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// Splits `1h30m` into `(1, "h")`, `(30, "m")`; `None` if it does not alternate so.
fn parts(text: &str) -> Option<Vec<(u64, &str)>> {
    let mut rest = text.trim();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, tail) = rest.split_at_checked(digits)?;
        let tail = tail.trim_start();
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, next) = tail.split_at_checked(letters)?;
        found.push((number.parse().ok()?, unit));
        rest = next.trim_start();
    }
    (!found.is_empty()).then_some(found)
}

/// Reads a duration.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let malformed = || UnitError { text: text.chars().take(40).collect(), expected: DURATION };
    let mut total = Duration::ZERO;
    for (number, unit) in parts(text).ok_or_else(malformed)? {
        let millis = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(malformed()),
        };
        let millis = number.checked_mul(millis).ok_or_else(malformed)?;
        total = total.checked_add(Duration::from_millis(millis)).ok_or_else(malformed)?;
    }
    Ok(total)
}

/// Writes a duration so that [`parse_duration`] reads it back.
pub fn format_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)] {
        if millis > 0 && millis.is_multiple_of(size) {
            return format!("{}{unit}", millis / size);
        }
    }
    format!("{millis}ms")
}

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let malformed = || UnitError { text: text.chars().take(40).collect(), expected: SIZE };
        let parts = parts(text).ok_or_else(malformed)?;
        let [(number, unit)] = parts.as_slice() else { return Err(malformed()) };
        let scale = match unit.to_ascii_lowercase().as_str() {
            "b" => 1,
            "kib" | "k" => 1 << 10,
            "mib" | "m" => 1 << 20,
            "gib" | "g" => 1 << 30,
            _ => return Err(malformed()),
        };
        number.checked_mul(scale).map(Self).ok_or_else(malformed)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, size) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            if self.0 > 0 && self.0.is_multiple_of(size) {
                return write!(f, "{}{unit}", self.0 / size);
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor { expected: SIZE, parse: str::parse })
    }
}

/// A visitor that takes only a string, and says what it expected.
struct TextVisitor<T> {
    expected: &'static str,
    parse: fn(&str) -> Result<T, UnitError>,
}

impl<T> de::Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).map_err(E::custom)
    }
}

/// For `#[serde(with = "units::duration")]`.
pub mod duration {
    use std::time::Duration;

    use serde::{Deserializer, Serializer};

    use super::{DURATION, TextVisitor, format_duration, parse_duration};

    /// Writes it as text.
    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format_duration(*value))
    }

    /// Reads it from text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        deserializer.deserialize_str(TextVisitor { expected: DURATION, parse: parse_duration })
    }
}

/// For `#[serde(with = "units::maybe_duration")]`.
pub mod maybe_duration {
    use std::time::Duration;

    use serde::{Deserializer, Serializer};

    use super::format_duration;

    /// Writes it as text.
    pub fn serialize<S: Serializer>(
        value: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.serialize_str(&format_duration(*value)),
            None => serializer.serialize_none(),
        }
    }

    /// Reads it from text.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        super::duration::deserialize(deserializer).map(Some)
    }
}

/// For `#[serde(with = "units::keep")]`: how long something is kept, or `forever`.
pub mod keep {
    use std::time::Duration;

    use serde::{Deserializer, Serializer};

    use super::{KEEP, TextVisitor, UnitError, format_duration, parse_duration};

    /// The word for "without an end".
    const FOREVER: &str = "forever";

    /// Writes it as text.
    pub fn serialize<S: Serializer>(
        value: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.serialize_str(&format_duration(*value)),
            None => serializer.serialize_str(FOREVER),
        }
    }

    /// Reads it from text.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let parse = |text: &str| match text.trim() {
            FOREVER => Ok(None),
            text => parse_duration(text)
                .map(Some)
                .map_err(|error| UnitError { expected: KEEP, ..error }),
        };
        deserializer.deserialize_str(TextVisitor { expected: KEEP, parse })
    }
}

/// For `#[serde(with = "units::address")]`.
pub mod address {
    use std::net::SocketAddr;

    use serde::{Deserializer, Serializer};

    use super::{ADDRESS, TextVisitor, UnitError};

    /// Writes it as text.
    pub fn serialize<S: Serializer>(value: &SocketAddr, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    /// Reads it from text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
        let parse = |text: &str| match text.parse() {
            Ok(address) => Ok(address),
            // The parser only says that it is none.
            Err(_) => Err(UnitError { text: text.chars().take(40).collect(), expected: ADDRESS }),
        };
        deserializer.deserialize_str(TextVisitor { expected: ADDRESS, parse })
    }
}

/// For `#[serde(with = "units::text")]`: any type that has a text form.
pub mod text {
    use std::{fmt::Display, str::FromStr};

    use serde::{Deserialize, Deserializer, Serializer, de};

    /// Writes it as text.
    pub fn serialize<T: Display, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    /// Reads it from text.
    pub fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_write_them() {
        let cases = [
            ("500ms", 500),
            ("10s", 10_000),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("1 h 30 m", 5_400_000),
            ("2d", 172_800_000),
            ("0s", 0),
        ];
        for (text, millis) in cases {
            let read = parse_duration(text).unwrap();
            assert_eq!(read, Duration::from_millis(millis), "{text}");
            assert_eq!(parse_duration(&format_duration(read)), Ok(read), "{text}");
        }
        for bad in ["", "10", "s", "10x", "-1s", "1.5s", "99999999999999999999s", "10ss", "１0s"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
        assert!(parse_duration("18446744073709551615d").is_err(), "overflow is an error");
    }

    #[test]
    fn what_is_kept_for_ever_is_said_in_a_word() {
        #[derive(Debug, PartialEq, Deserialize, Serialize)]
        struct Kept(#[serde(with = "keep")] Option<Duration>);
        for (text, kept) in [
            ("\"forever\"", None),
            ("\"2d\"", Some(Duration::from_hours(48))),
            ("\"0ms\"", Some(Duration::ZERO)),
        ] {
            let read: Kept = serde_json::from_str(text).unwrap();
            assert_eq!(read, Kept(kept), "{text}");
            assert_eq!(serde_json::to_string(&read).unwrap(), text);
        }
        for bad in ["\"never\"", "0", "\"\"", "null"] {
            let refused = serde_json::from_str::<Kept>(bad).unwrap_err().to_string();
            assert!(refused.contains("`forever`"), "{refused}");
        }
    }

    #[test]
    fn sizes_read_as_people_write_them() {
        for (text, bytes) in [("1MiB", 1 << 20), ("64 KiB", 64 << 10), ("7B", 7), ("2g", 2 << 30)] {
            let read: ByteSize = text.parse().unwrap();
            assert_eq!(read, ByteSize(bytes), "{text}");
            assert_eq!(read.to_string().parse(), Ok(read), "{text}");
        }
        for bad in ["", "1", "1XB", "MiB", "1MiB2KiB", "99999999999999999GiB"] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad}");
        }
    }
}
