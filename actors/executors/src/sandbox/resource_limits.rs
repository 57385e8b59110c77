//! How much of a machine a sandbox may use.

use std::{fmt, num::NonZeroU32, str::FromStr};

use clawnode_proto::units::ByteSize;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The least memory that an engine takes (6 MiB).
const MEMORY_LEAST: u64 = 6 << 20;
/// The most memory that makes sense (1 TiB): more is a slip of the pen.
const MEMORY_MOST: u64 = 1 << 40;
/// The most processors.
const CPUS_MOST: f64 = 1_024.0;
/// Billionths of a processor, as an engine counts.
const NANO: f64 = 1e9;

/// Bytes of memory, written as all sizes are: `512MiB` or `2GiB`, in short `512m` or `2g`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemorySize(u64);

/// A share of the processors: 1 is one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpus {
    nano: u64,
}

/// A text or number that is no limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SandboxLimitError {
    /// Not an amount of memory.
    #[error("`{0}` is not an amount of memory such as `512MiB` or `2GiB`, at least `6MiB`")]
    Memory(String),
    /// Not a share of processors.
    #[error("{0} is not a number of processors: write 0.01 to 1024")]
    Cpus(String),
}

/// What a sandbox may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SandboxLimits {
    /// Processors.
    pub cpus: Cpus,
    /// Memory and swap together.
    pub memory: MemorySize,
    /// Processes and threads at once.
    pub pids: NonZeroU32,
    /// What `/tmp` can hold; it counts as memory.
    pub tmp: MemorySize,
}

// === impl MemorySize ===

impl MemorySize {
    /// So many MiB.
    pub const fn mib(count: u32) -> Self {
        Self((count as u64) << 20)
    }

    /// In bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for MemorySize {
    type Err = SandboxLimitError;

    fn from_str(text: &str) -> Result<Self, SandboxLimitError> {
        match text.parse::<ByteSize>() {
            Ok(ByteSize(bytes)) if (MEMORY_LEAST..=MEMORY_MOST).contains(&bytes) => Ok(Self(bytes)),
            Ok(_) | Err(_) => Err(SandboxLimitError::Memory(text.chars().take(40).collect())),
        }
    }
}

impl fmt::Display for MemorySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ByteSize(self.0).fmt(f)
    }
}

impl Serialize for MemorySize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MemorySize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

// === impl Cpus ===

impl Cpus {
    /// So many whole ones.
    pub const fn whole(count: u16) -> Self {
        Self { nano: count as u64 * 1_000_000_000 }
    }

    /// In billionths.
    pub const fn nano(self) -> u64 {
        self.nano
    }
}

impl TryFrom<f64> for Cpus {
    type Error = SandboxLimitError;

    fn try_from(count: f64) -> Result<Self, SandboxLimitError> {
        if !(0.01..=CPUS_MOST).contains(&count) {
            return Err(SandboxLimitError::Cpus(count.to_string()));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 10 million and a trillion"
        )]
        let nano = (count * NANO).round() as u64;
        Ok(Self { nano })
    }
}

impl Serialize for Cpus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        serializer.serialize_f64(self.nano as f64 / NANO)
    }
}

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer)?.try_into().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_a_size_within_bounds() {
        for (text, bytes, shown) in [
            ("512m", 512 << 20, "512MiB"),
            ("2G", 2 << 30, "2GiB"),
            ("64 MiB", 64 << 20, "64MiB"),
            ("1536MiB", 1536 << 20, "1536MiB"),
        ] {
            let memory: MemorySize = text.parse().unwrap();
            assert_eq!((memory.bytes(), memory.to_string().as_str()), (bytes, shown), "{text}");
        }
        for bad in ["", "m", "512", "512k", "512mb", "-1m", "+8m", "1.5g", "0m", "5MiB", "٣m"] {
            let error = bad.parse::<MemorySize>().unwrap_err();
            assert!(error.to_string().contains("`512MiB`"), "{bad}: {error}");
        }
        for bad in ["99999999999999999999m", "9999999g", "2048g", "é"] {
            bad.parse::<MemorySize>().unwrap_err();
        }
    }

    #[test]
    fn processors_are_a_number() {
        assert_eq!(Cpus::try_from(0.5).unwrap().nano(), 500_000_000);
        assert_eq!(Cpus::try_from(1.0).unwrap(), Cpus::whole(1));
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 5_000.0] {
            assert!(Cpus::try_from(bad).is_err(), "{bad}");
        }
    }
}
