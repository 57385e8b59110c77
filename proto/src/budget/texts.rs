//! Amounts, limits and refusals in words: the same in errors, tables and metrics.

use std::fmt::Display;

use super::{AMOUNT_MOST, BudgetUnit, LimitKey, WindowLength};
use crate::money::{MicroUsd, MoneyError};

/// Micro-dollars of a cent.
const CENT: u64 = 10_000;

/// An amount that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// It is no amount of money.
    #[error(transparent)]
    Money(#[from] MoneyError),
    /// It is no number.
    #[error("`{0}` is not an amount of {1}: write a whole number such as `{2}`")]
    Number(String, BudgetUnit, u64),
    /// It is more than a number can be.
    #[error("`{0}` is too large for an amount of {1}: write at most {AMOUNT_MOST}")]
    TooMuch(String, BudgetUnit),
}

/// An amount for people: `$5.00`, or a number.
pub fn amount_text(unit: BudgetUnit, amount: u64) -> String {
    match unit {
        BudgetUnit::Usd => format!("${}", MicroUsd(amount)),
        BudgetUnit::Tokens | BudgetUnit::Loops => amount.to_string(),
    }
}

/// Reads an amount of this unit: dollars as text, or a whole number, which may have `_` between digits.
pub fn read_amount(unit: BudgetUnit, text: &str) -> Result<u64, AmountError> {
    if unit == BudgetUnit::Usd {
        return Ok(text.parse::<MicroUsd>()?.0);
    }
    let digits = text.replace('_', "");
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let shown = || text.chars().take(40).collect();
    if !is_number {
        return Err(AmountError::Number(shown(), unit, example(unit)));
    }
    digits.parse().map_err(|_too_large| AmountError::TooMuch(shown(), unit))
}

/// A usual limit.
const fn example(unit: BudgetUnit) -> u64 {
    match unit {
        BudgetUnit::Usd => 5_000_000,
        BudgetUnit::Tokens => 2_000_000,
        BudgetUnit::Loops => 50,
    }
}

/// The flag of a limit on the command line, without its dashes: `usd-per-day`, or `usd` without end. A
/// setting of the configuration has the same name, with `_`.
pub fn limit_flag(key: LimitKey) -> String {
    match key.window {
        WindowLength::Forever => key.unit.to_string(),
        WindowLength::Hour | WindowLength::Day | WindowLength::Month => {
            format!("{}-per-{}", key.unit, key.window)
        }
    }
}

/// The command that doubles a limit, as something to edit. It raises the limit to a quarter more than `least`, or to the
/// next whole cent above, if that is more: the next message makes a call larger, and above `ask_at` a person is asked.
pub fn raise_command(account: &str, key: LimitKey, limit: u64, least: u64) -> String {
    let least = least.saturating_add(least / 4);
    let least = match key.unit {
        BudgetUnit::Usd => least.div_ceil(CENT).saturating_mul(CENT),
        BudgetUnit::Tokens | BudgetUnit::Loops => least,
    };
    let more = match limit.saturating_mul(2).max(least) {
        0 => example(key.unit),
        more => more,
    };
    let amount = match key.unit {
        BudgetUnit::Usd => MicroUsd(more.min(MicroUsd::MOST.0)).to_string(),
        BudgetUnit::Tokens | BudgetUnit::Loops => more.to_string(),
    };
    format!("clawnode budget set {account} --{} {amount}", limit_flag(key))
}

/// The command that allows more of a limit than `ask_at`.
pub fn allow_command(account: &dyn Display, key: LimitKey) -> String {
    format!("clawnode budget allow {account} --{}", limit_flag(key))
}

/// The command that gives back what a dead process has. `node` is the name of its node, or its id.
pub fn reconcile_command(account: &dyn Display, node: &dyn Display) -> String {
    format!("clawnode budget reconcile {account} --node {node} --gone")
}

/// Why a turn ended as bankrupt. `account` is the key of an account, `turn` or `session`; the last two have
/// no window.
pub fn exceeded(
    account: &str,
    unit: BudgetUnit,
    window: Option<WindowLength>,
    used: u64,
    limit: u64,
) -> String {
    let suffix = if account == "cluster" { String::new() } else { format!(" of {account}") };
    let (used_text, limit_text) = (amount_text(unit, used), amount_text(unit, limit));
    let each = match window {
        Some(WindowLength::Hour) => "hourly ",
        Some(WindowLength::Day) => "daily ",
        Some(WindowLength::Month) => "monthly ",
        Some(WindowLength::Forever) | None => "",
    };
    match (unit, window) {
        (BudgetUnit::Usd, _) => {
            format!("Exceeded max {each}spend{suffix}: {used_text} >= {limit_text}")
        }
        (BudgetUnit::Tokens, None) => {
            format!("token budget exceeded ({account}: {used_text}/{limit_text})")
        }
        (BudgetUnit::Tokens, Some(_)) => {
            format!("{each}token budget exceeded ({account}: {used_text}/{limit_text})")
        }
        (BudgetUnit::Loops, Some(window)) if window != WindowLength::Forever => {
            format!("Exceeded max loops per {window}{suffix}: {used_text} >= {limit_text}")
        }
        (BudgetUnit::Loops, _) => {
            format!("Exceeded max loops{suffix}: {used_text} >= {limit_text}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_they_are_written() {
        assert_eq!(read_amount(BudgetUnit::Usd, "5.00").unwrap(), 5_000_000);
        assert_eq!(read_amount(BudgetUnit::Tokens, "2_000_000").unwrap(), 2_000_000);
        for (unit, text, said) in [
            (BudgetUnit::Usd, "-1", "never negative"),
            (BudgetUnit::Usd, "0.1234567", "at most six decimals"),
            (BudgetUnit::Tokens, "1.5", "whole number such as `2000000`"),
            (BudgetUnit::Loops, "", "whole number such as `50`"),
            (BudgetUnit::Loops, "_", "whole number"),
            (BudgetUnit::Loops, "99999999999999999999", "at most 1000000000000000"),
            (BudgetUnit::Loops, "+5", "whole number"),
        ] {
            let error = read_amount(unit, text).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn refusals_have_the_words_of_the_requirements() {
        let day = Some(WindowLength::Day);
        let usd = BudgetUnit::Usd;
        for (said, expected) in [
            (
                exceeded("cluster", usd, day, 5_000_000, 5_000_000),
                "Exceeded max daily spend: $5.00 >= $5.00",
            ),
            (
                exceeded("agent:a", usd, day, 5_000_000, 5_000_000),
                "Exceeded max daily spend of agent:a: $5.00 >= $5.00",
            ),
            (
                exceeded("session", BudgetUnit::Tokens, None, 9_500, 10_000),
                "token budget exceeded (session: 9500/10000)",
            ),
            (
                exceeded("cluster", BudgetUnit::Loops, Some(WindowLength::Hour), 51, 50),
                "Exceeded max loops per hour: 51 >= 50",
            ),
        ] {
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn what_raises_a_limit_can_be_pasted() {
        let key = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Day };
        let command = raise_command("cluster", key, 5_000_000, 0);
        assert_eq!(command, "clawnode budget set cluster --usd-per-day 10.00");
        let key = LimitKey { unit: BudgetUnit::Tokens, window: WindowLength::Forever };
        let command = raise_command("agent:a", key, u64::MAX, 7);
        assert_eq!(command, format!("clawnode budget set agent:a --tokens {}", u64::MAX));
        let raised = |limit, least| raise_command("agent:a", key, limit, least);
        assert_eq!(raised(0, 0), "clawnode budget set agent:a --tokens 2000000");
        // It is enough for the call below `ask_at`, too.
        assert_eq!(raised(0, 1_316), "clawnode budget set agent:a --tokens 1645");
    }
}
