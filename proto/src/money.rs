//! Money, in whole micro-dollars: no amount is ever a floating-point number.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Micro-dollars of one dollar.
const DOLLAR: u64 = 1_000_000;
/// Decimals of a dollar that a micro-dollar has.
const DECIMALS: usize = 6;
/// A price is of so many tokens.
const PRICED_TOKENS: u128 = 1_000_000;

/// An amount in micro-dollars: 5.00 USD are 5,000,000.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct MicroUsd(pub u64);

/// A text that is no amount of money.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an amount in USD: {reason}{}", fix.as_ref().map(|fix| format!("; write `{fix}`")).unwrap_or_default())]
pub struct MoneyError {
    text: String,
    reason: &'static str,
    /// The nearest amount, as it has to be written.
    fix: Option<String>,
}

// === impl MicroUsd ===

impl MicroUsd {
    /// The largest amount: a billion dollars. Sums of amounts stay far below what 64 bits hold.
    pub const MOST: Self = Self(1_000_000_000 * DOLLAR);

    /// What tokens cost, by the price of a million of them for each sort of token. Rounded up, once.
    /// Nothing if it is over [`MicroUsd::MOST`].
    pub fn of_tokens(parts: impl IntoIterator<Item = (u64, Self)>) -> Option<Self> {
        let parts = parts.into_iter();
        let cost = |(tokens, price): (u64, Self)| u128::from(tokens) * u128::from(price.0);
        let exact = parts.map(cost).try_fold(0_u128, u128::checked_add)?;
        let whole = u64::try_from(exact.div_ceil(PRICED_TOKENS)).ok()?;
        (whole <= Self::MOST.0).then_some(Self(whole))
    }
}

/// Dollars, with two decimals at least.
impl fmt::Display for MicroUsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dollars, micros) = (self.0 / DOLLAR, format!("{:06}", self.0 % DOLLAR));
        write!(f, "{dollars}.{:0<2}", micros.trim_end_matches('0'))
    }
}

impl FromStr for MicroUsd {
    type Err = MoneyError;

    fn from_str(text: &str) -> Result<Self, MoneyError> {
        parse(text).map_err(|reason| {
            let text = text.chars().take(40).collect::<String>();
            // Less than a micro-dollar is not meant to be nothing.
            let is_zero = !text.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
            let fix =
                nearest(&text).filter(|fix| parse(fix).is_ok_and(|amount| is_zero || amount.0 > 0));
            MoneyError { text, reason, fix }
        })
    }
}

fn parse(text: &str) -> Result<MicroUsd, &'static str> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if text.starts_with('-') {
        return Err("an amount is never negative");
    }
    if !is_digits(whole) || !is_digits(decimals) {
        return Err("it has only digits, and at most one point between them");
    }
    if whole.len() > 1 && whole.starts_with('0') {
        return Err("it does not begin with `0`");
    }
    if decimals.len() > DECIMALS {
        return Err("it has at most six decimals");
    }
    let number = |digits: &str| digits.parse::<u64>().ok();
    let dollars = number(whole).and_then(|whole| whole.checked_mul(DOLLAR));
    let micros = number(&format!("{decimals:0<DECIMALS$}"));
    let sum = dollars.zip(micros).and_then(|(dollars, micros)| dollars.checked_add(micros));
    let amount = sum.map(MicroUsd).filter(|amount| *amount <= MicroUsd::MOST);
    amount.ok_or("it is at most 1000000000")
}

/// The amount that was probably meant, cut to what can be said.
fn nearest(text: &str) -> Option<String> {
    if text.contains(['e', 'E']) {
        return None;
    }
    let text = pointed(text)?;
    let (whole, decimals) = text.split_once('.').unwrap_or((text.as_str(), ""));
    let digits = |part: &str| part.chars().filter(char::is_ascii_digit).collect::<String>();
    let (whole, decimals) = (digits(whole), digits(decimals));
    if whole.is_empty() && decimals.is_empty() {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    if whole.len() > MicroUsd::MOST.0.to_string().len() - DECIMALS {
        return Some((MicroUsd::MOST.0 / DOLLAR).to_string());
    }
    let decimals: String = decimals.chars().take(DECIMALS).collect();
    Some(if decimals.is_empty() { whole.to_owned() } else { format!("{whole}.{decimals}") })
}

/// The same text without commas. Nothing if a comma may be between thousands or before decimals.
fn pointed(text: &str) -> Option<String> {
    let Some((whole, rest)) = text.rsplit_once(',') else { return Some(text.to_owned()) };
    match (whole.contains(['.', ',']), rest.contains('.')) {
        (false, false) if rest.len() != 3 => Some(format!("{whole}.{rest}")),
        (_, true) if !whole.contains('.') => Some(text.replace(',', "")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn money_is_text_of_dollars() {
        for (text, micros, shown) in [
            ("0", 0, "0.00"),
            ("5", 5_000_000, "5.00"),
            ("5.00", 5_000_000, "5.00"),
            ("0.5", 500_000, "0.50"),
            ("0.000001", 1, "0.000001"),
            ("1000000000", MicroUsd::MOST.0, "1000000000.00"),
        ] {
            let amount: MicroUsd = text.parse().unwrap();
            assert_eq!((amount.0, amount.to_string()), (micros, shown.to_owned()));
        }
    }

    #[test]
    fn what_is_no_money_says_how_to_write_it() {
        for (text, fix) in [
            ("-5", Some("5")),
            ("$5.00", Some("5.00")),
            ("0.1234567", Some("0.123456")),
            ("1,000.50", Some("1000.50")),
            ("1,000,000.50", Some("1000000.50")),
            ("5,00", Some("5.00")),
            ("1,000", None),
            ("1.000,50", None),
            ("0.0000001", None),
            ("00", Some("0")),
            ("007", Some("7")),
            (".5", Some("0.5")),
            ("5.", Some("5")),
            ("1.2.3", Some("1.23")),
            ("1000000000.01", None),
            ("99999999999999999999", Some("1000000000")),
            ("", None),
            ("5e3", None),
            ("NaN", None),
            ("five", None),
        ] {
            let error = text.parse::<MicroUsd>().unwrap_err().to_string();
            let said = fix.map(|fix| format!("; write `{fix}`"));
            assert!(error.starts_with(&format!("`{text}` is not an amount in USD: ")), "{error}");
            match said {
                Some(said) => assert!(error.ends_with(&said), "{error}"),
                None if text.starts_with("10000") => assert!(error.contains("at most 1000000000")),
                None => assert!(!error.contains("; write"), "{error}"),
            }
        }
    }

    #[test]
    fn tokens_cost_is_rounded_up_once() {
        let price = |micros| MicroUsd(micros);
        assert_eq!(MicroUsd::of_tokens([(1, price(1)), (1, price(1))]), Some(MicroUsd(1)));
        assert_eq!(MicroUsd::of_tokens([(1_000_000, price(3_000_000))]), Some(price(3_000_000)));
        assert_eq!(MicroUsd::of_tokens([(1_000_001, price(3_000_000))]), Some(price(3_000_003)));
        assert_eq!(MicroUsd::of_tokens([(7, price(0))]), Some(MicroUsd(0)));
        assert_eq!(MicroUsd::of_tokens([(u64::MAX, MicroUsd::MOST)]), None);
    }

    proptest! {
        #[test]
        fn money_reads_what_it_shows(micros in 0..=MicroUsd::MOST.0) {
            let amount = MicroUsd(micros);
            prop_assert_eq!(amount.to_string().parse::<MicroUsd>().unwrap(), amount);
        }

        #[test]
        fn no_text_is_money_by_accident(text in ".{0,12}") {
            if let Ok(amount) = text.parse::<MicroUsd>() {
                let exact = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
                prop_assert!(exact <= 6 && amount <= MicroUsd::MOST);
            }
        }
    }
}
