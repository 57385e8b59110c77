//! Limits of turns and sessions: no accounts, but a part of an agent's journaled configuration.

use serde::{Deserialize, Serialize};

use super::{BudgetUnit, LimitKey, WindowLength, exceeded, raise_command};
use crate::money::MicroUsd;

/// What one turn, and one session in all its turns, may spend. Absent: as much as it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SpendLimits {
    /// Micro-dollars of a turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_usd: Option<MicroUsd>,
    /// Tokens of a turn, in and out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_tokens: Option<u64>,
    /// Micro-dollars of a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_usd: Option<MicroUsd>,
    /// Tokens of a session, in and out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_tokens: Option<u64>,
}

/// What was too much. It borrows the fields of the outcome `bankrupt`.
#[derive(Clone, Copy, Debug)]
pub struct SpentLimit<'a> {
    /// The key of an account, or `turn` or `session`.
    pub account: &'a str,
    /// What the limit counts.
    pub unit: BudgetUnit,
    /// What was spent.
    pub used: u64,
    /// In `unit`; money in micro-dollars.
    pub limit: u64,
    /// What the call needed at least.
    pub needed: u64,
    /// The window of the limit of an account.
    pub window: Option<WindowLength>,
}

// === impl SpendLimits ===

impl SpendLimits {
    /// The value of `account` in outcomes for the limit of a turn.
    pub const TURN: &'static str = "turn";
    /// The value of `account` in outcomes for the limit of a session.
    pub const SESSION: &'static str = "session";

    /// Whether there is no limit.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Whether one of them is in money.
    pub const fn has_money(&self) -> bool {
        self.turn_usd.is_some() || self.session_usd.is_some()
    }
}

// === impl SpentLimit ===

impl SpentLimit<'_> {
    /// What people read of it.
    pub fn message(&self) -> String {
        let Self { account, unit, used, limit, needed, window } = *self;
        // What is left was too little: the call would have come past the limit.
        let reached = if used >= limit { used } else { used.saturating_add(needed) };
        let said = |used| exceeded(account, unit, window, used, limit);
        match unit {
            BudgetUnit::Tokens => format!("{}; the call needs {needed} more", said(used)),
            BudgetUnit::Usd => {
                let (used, needed) = (MicroUsd(used), MicroUsd(needed));
                format!("{} (${used} is spent, and the call needs ${needed})", said(reached))
            }
            BudgetUnit::Loops => said(reached),
        }
    }

    /// What people can do about it.
    pub fn hint(&self) -> String {
        let Self { account, unit, used, limit, needed, window } = *self;
        match account {
            SpendLimits::TURN => {
                format!("send another message to go on, or raise `turn_{unit}` of the agent")
            }
            SpendLimits::SESSION => {
                format!("begin another session, or raise `session_{unit}` of the agent")
            }
            account => {
                let key = window.map(|window| LimitKey { unit, window });
                let raise = key.map_or_else(
                    || format!("clawnode budget set {account}"),
                    |key| raise_command(account, key, limit, used.saturating_add(needed)),
                );
                format!(
                    "raise it: `{raise}`; `clawnode budget show {account}` shows what was spent"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit_of(unit: BudgetUnit, account: &str) -> SpentLimit<'_> {
        let window = (account != "session").then_some(WindowLength::Day);
        SpentLimit { account, unit, used: 9_500, limit: 10_000, needed: 600, window }
    }

    #[test]
    fn people_read_what_was_spent_and_what_raises_the_limit() {
        let tokens = limit_of(BudgetUnit::Tokens, "session");
        let message = tokens.message();
        assert!(message.starts_with("token budget exceeded (session: 9500/10000); "), "{message}");
        assert!(tokens.hint().contains("`session_tokens`"), "{}", tokens.hint());

        let (used, limit) = (5_000_000, 5_000_000);
        let daily = SpentLimit { used, limit, ..limit_of(BudgetUnit::Usd, "cluster") };
        let message = daily.message();
        assert!(message.starts_with("Exceeded max daily spend: $5.00 >= $5.00 ("), "{message}");
        let raise = "raise it: `clawnode budget set cluster --usd-per-day 10.00`; ";
        assert!(daily.hint().starts_with(raise), "{}", daily.hint());
        // What is left is too little, and the numbers say so.
        let short = SpentLimit { used: 4_990_000, needed: 20_000, ..daily };
        assert!(short.message().starts_with("Exceeded max daily spend: $5.01 >= $5.00 ("));
        // Twice the limit would not be enough for this call.
        let large = SpentLimit { used: 0, limit: 10_000, needed: 192_300, ..daily };
        let raise = "raise it: `clawnode budget set cluster --usd-per-day 0.25`; ";
        assert!(large.hint().starts_with(raise), "{}", large.hint());

        let window = Some(WindowLength::Hour);
        let loops = SpentLimit { used: 50, limit: 50, window, ..daily };
        let loops = SpentLimit { unit: BudgetUnit::Loops, ..loops };
        assert!(loops.message().starts_with("Exceeded max loops per hour: 50 >= 50"));
    }

    #[test]
    fn limits_that_are_absent_are_not_written() {
        assert_eq!(serde_json::to_string(&SpendLimits::default()).unwrap(), "{}");
        let limits = SpendLimits { turn_usd: Some(MicroUsd(250_000)), ..SpendLimits::default() };
        assert!(limits.has_money() && !limits.is_none());
        assert_eq!(serde_json::to_string(&limits).unwrap(), r#"{"turn_usd":250000}"#);
    }
}
