//! Limits of accounts: how much of which unit in which window.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::WindowLength;
use crate::{lane::Lane, money::MicroUsd};

/// Limits that one account may have.
pub const LIMITS_MOST: usize = 16;
/// The largest amount of any unit: sums of amounts stay far below what 64 bits hold.
pub const AMOUNT_MOST: u64 = MicroUsd::MOST.0;
/// At which share of a limit a warning is recorded, in percent.
pub const WARN_AT: u8 = 75;
/// At which share of a limit a person has to allow more, in percent.
pub const ASK_AT: u8 = 90;

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BudgetUnit {
    /// Micro-dollars.
    Usd,
    /// Tokens in and out.
    Tokens,
    /// Model calls.
    Loops,
}

/// The lanes whose calls a limit counts. Calls of another lane do not need it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CountedLanes {
    /// All of them.
    #[default]
    All,
    /// The background: what runs without a person who waits for it.
    Background,
}

/// Which limit of an account: there is at most one for each unit and window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitKey {
    /// What is counted.
    pub unit: BudgetUnit,
    /// How long.
    pub window: WindowLength,
}

/// One limit of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetLimit {
    /// Which one.
    pub key: LimitKey,
    /// How much may be spent in a window. Nothing if it is 0.
    pub amount: u64,
    /// At which share a warning is recorded, in percent.
    pub warn_at: u8,
    /// At which share a person has to allow more, in percent. If it is 100, no person is asked.
    pub ask_at: u8,
    /// Which calls it counts.
    #[serde(default, skip_serializing_if = "CountedLanes::is_all")]
    pub lanes: CountedLanes,
}

/// Limits that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// No such unit.
    #[error("`{0}` is not a unit of budgets; write `usd`, `tokens` or `loops`")]
    Unit(String),
    /// So many limits, and [`LIMITS_MOST`] are possible.
    #[error("{0} limits are too many for one account; it has at most {LIMITS_MOST}")]
    TooMany(usize),
    /// The same limit twice.
    #[error("the limit `{0}` is there twice; leave one of them out")]
    Twice(LimitKey),
    /// Absurd.
    #[error("the limit `{0}` is over {AMOUNT_MOST}, the most; leave it out if there is no limit")]
    TooLarge(LimitKey),
    /// Not in order.
    #[error("of `{0}`, `warn_at` and `ask_at` are percent: 1 <= warn_at <= ask_at <= 100")]
    Shares(LimitKey),
}

/// Whether an account may have these limits.
pub fn check_limits(limits: &[BudgetLimit]) -> Result<(), LimitError> {
    if limits.len() > LIMITS_MOST {
        return Err(LimitError::TooMany(limits.len()));
    }
    for (at, limit) in limits.iter().enumerate() {
        let before = limits.get(..at).unwrap_or_default();
        if before.iter().any(|other| other.key == limit.key) {
            return Err(LimitError::Twice(limit.key));
        }
        if limit.amount > AMOUNT_MOST {
            return Err(LimitError::TooLarge(limit.key));
        }
        if limit.warn_at == 0 || limit.warn_at > limit.ask_at || limit.ask_at > 100 {
            return Err(LimitError::Shares(limit.key));
        }
    }
    Ok(())
}

// === impl BudgetLimit ===

impl BudgetLimit {
    /// A limit with the usual shares.
    pub const fn new(unit: BudgetUnit, window: WindowLength, amount: u64) -> Self {
        let (key, lanes) = (LimitKey { unit, window }, CountedLanes::All);
        Self { key, amount, warn_at: WARN_AT, ask_at: ASK_AT, lanes }
    }

    /// So many percent of it, rounded down.
    pub const fn share(&self, percent: u8) -> u64 {
        // The amount is at most `AMOUNT_MOST`, so this does not overflow.
        self.amount.saturating_mul(percent as u64) / 100
    }
}

// === impl CountedLanes ===

impl CountedLanes {
    /// Whether it is the usual value, which need not be written.
    pub fn is_all(&self) -> bool {
        *self == Self::All
    }

    /// Whether calls of this lane count.
    pub fn counts(self, lane: Lane) -> bool {
        self == Self::All || lane == Lane::Background
    }

    /// What follows the name of a limit for people: nothing if it counts all calls.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::All => "",
            Self::Background => " in the background",
        }
    }
}

// === impl BudgetUnit ===

impl BudgetUnit {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Usd, Self::Tokens, Self::Loops];

    /// As people write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Usd => "usd",
            Self::Tokens => "tokens",
            Self::Loops => "loops",
        }
    }
}

impl fmt::Display for BudgetUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for BudgetUnit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let found = Self::ALL.into_iter().find(|unit| unit.as_str() == text);
        found.ok_or_else(|| LimitError::Unit(text.chars().take(40).collect()))
    }
}

// === impl LimitKey ===

impl fmt::Display for LimitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = if self.window == WindowLength::Forever { "" } else { "per " };
        write!(f, "{} {per}{}", self.unit, self.window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAILY: BudgetLimit = BudgetLimit::new(BudgetUnit::Usd, WindowLength::Day, 5_000_000);

    #[test]
    fn limits_are_checked_before_any_is_set() {
        check_limits(&[]).unwrap();
        check_limits(&[DAILY, BudgetLimit::new(BudgetUnit::Loops, WindowLength::Hour, 0)]).unwrap();
        let refused = |limits: &[BudgetLimit]| check_limits(limits).unwrap_err().to_string();
        assert!(refused(&[DAILY, DAILY]).starts_with("the limit `usd per day` is there twice"));
        assert!(refused(&[DAILY; 17]).starts_with("17 limits are too many"));
        let large = BudgetLimit { amount: AMOUNT_MOST + 1, ..DAILY };
        assert!(refused(&[large]).contains("leave it out"));
        for (warn_at, ask_at) in [(0, 90), (95, 90), (75, 101), (200, 255)] {
            let limit = BudgetLimit { warn_at, ask_at, ..DAILY };
            assert!(refused(&[limit]).contains("1 <= warn_at <= ask_at <= 100"));
        }
    }

    #[test]
    fn unknown_names_say_which_there_are() {
        let error = "eur".parse::<BudgetUnit>().unwrap_err().to_string();
        assert_eq!(error, "`eur` is not a unit of budgets; write `usd`, `tokens` or `loops`");
        let error = "week".parse::<WindowLength>().unwrap_err().to_string();
        assert!(error.ends_with("write `hour`, `day`, `month` or `forever`"), "{error}");
        for unit in BudgetUnit::ALL {
            assert_eq!(unit.as_str().parse(), Ok(unit));
        }
    }

    #[test]
    fn shares_are_rounded_down() {
        assert_eq!(BudgetLimit { amount: 99, ..DAILY }.share(90), 89);
        assert_eq!(BudgetLimit { amount: AMOUNT_MOST, ..DAILY }.share(100), AMOUNT_MOST);
    }
}
