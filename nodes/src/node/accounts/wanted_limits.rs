//! What a person wants the limits of an account to be. Pure.

use clawnode_proto::{
    ErrorBody, ErrorCode,
    budget::{
        ASK_AT, BudgetLimit, LimitKey, WARN_AT, WantedLimit, check_limits, limit_flag, read_amount,
    },
};

/// The amount that takes a limit away.
const NONE: &str = "none";

/// The limits that an account has after this: `wanted`, and those of `current` that it does not name if
/// `keep_others`. Nothing is half set: one that cannot be refuses all.
pub(super) fn limits(
    current: &[BudgetLimit],
    wanted: &[WantedLimit],
    keep_others: bool,
) -> Result<Vec<BudgetLimit>, ErrorBody> {
    let mut limits: Vec<BudgetLimit> = Vec::new();
    for (at, one) in wanted.iter().enumerate() {
        let key = LimitKey { unit: one.unit, window: one.window };
        let before = current.iter().find(|limit| limit.key == key);
        if one.amount == NONE {
            if before.is_none() {
                let what = format!("the account has no limit `{key}` that could be taken away");
                return Err(ErrorBody::new(ErrorCode::InvalidParams, what)
                    .hint(format!("it has {}", named(current))));
            }
            continue;
        }
        let amount =
            read_amount(one.unit, &one.amount).map_err(|error| invalid(at, &error.to_string()))?;
        let ask_at = one.ask_at.or(before.map(|limit| limit.ask_at)).unwrap_or(ASK_AT);
        // Who asks a person early is not warned later.
        let warn_at = before.map_or(WARN_AT, |limit| limit.warn_at).min(ask_at.max(1));
        let warn_at = one.warn_at.unwrap_or(warn_at);
        let lanes = one.lanes.or(before.map(|limit| limit.lanes)).unwrap_or_default();
        limits.push(BudgetLimit { key, amount, warn_at, ask_at, lanes });
    }
    let is_named =
        |key: LimitKey| wanted.iter().any(|one| one.unit == key.unit && one.window == key.window);
    if keep_others {
        limits.extend(current.iter().filter(|limit| !is_named(limit.key)).copied());
    }
    check_limits(&limits).map_err(|error| {
        ErrorBody::new(ErrorCode::InvalidParams, format!("parameter `limits`: {error}"))
    })?;
    limits.sort_by_key(|limit| limit.key);
    Ok(limits)
}

fn invalid(at: usize, what: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::InvalidParams, format!("parameter `limits[{at}]`: {what}"))
        .hint("write for example `5.00` for dollars, `2000000` for tokens, or `none`")
}

/// The limits of an account by their flags, for errors.
pub(super) fn named(limits: &[BudgetLimit]) -> String {
    let flags: Vec<String> =
        limits.iter().map(|limit| format!("`--{}`", limit_flag(limit.key))).collect();
    if flags.is_empty() { "no limits".to_owned() } else { flags.join(", ") }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::budget::{AMOUNT_MOST, BudgetUnit, CountedLanes, WindowLength};

    use super::*;

    const DAY: LimitKey = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Day };
    const LOOPS: LimitKey = LimitKey { unit: BudgetUnit::Loops, window: WindowLength::Hour };

    fn limit(key: LimitKey, amount: u64, warn_at: u8, ask_at: u8) -> BudgetLimit {
        BudgetLimit { key, amount, warn_at, ask_at, lanes: CountedLanes::All }
    }

    fn wants(key: LimitKey, amount: &str) -> WantedLimit {
        let (unit, window, amount) = (key.unit, key.window, amount.to_owned());
        WantedLimit { unit, window, amount, warn_at: None, ask_at: None, lanes: None }
    }

    #[test]
    fn what_is_not_named_stays_only_if_it_should() {
        let current = [limit(DAY, 5_000_000, 50, 60), limit(LOOPS, 50, 75, 90)];
        let wanted = [wants(DAY, "10.00")];
        let raised = limit(DAY, 10_000_000, 50, 60);
        assert_eq!(limits(&current, &wanted, true).unwrap(), [raised, current[1]]);
        assert_eq!(limits(&current, &wanted, false).unwrap(), [raised]);
        let without = limits(&current, &[wants(LOOPS, "none")], true).unwrap();
        assert_eq!(without, [current[0]]);
    }

    #[test]
    fn shares_are_in_order_unless_both_are_given() {
        let asks = |warn_at, ask_at| WantedLimit { warn_at, ask_at, ..wants(DAY, "1") };
        let set =
            |one| limits(&[], &[one], false).map(|limits| (limits[0].warn_at, limits[0].ask_at));
        assert_eq!(set(asks(None, None)).unwrap(), (75, 90));
        assert_eq!(set(asks(None, Some(50))).unwrap(), (50, 50));
        assert_eq!(set(asks(Some(10), Some(100))).unwrap(), (10, 100));
        for refused in [asks(Some(95), None), asks(Some(0), None), asks(None, Some(0))] {
            let message = set(refused).unwrap_err().message;
            assert!(message.contains("1 <= warn_at <= ask_at <= 100"), "{message}");
        }
    }

    #[test]
    fn one_limit_that_cannot_be_refuses_all() {
        let over = (AMOUNT_MOST + 1).to_string();
        for (wanted, said) in [
            (wants(DAY, "-5"), "limits[1]`: `-5` is not an amount in USD"),
            (wants(DAY, "5,00"), "write `5.00`"),
            (wants(LOOPS, "1.5"), "whole number"),
            (wants(LOOPS, &over), "the most"),
            (wants(DAY, "none"), "the account has no limit `usd per day` that could be"),
        ] {
            let good = wants(LimitKey { unit: BudgetUnit::Tokens, ..LOOPS }, "5");
            let message = limits(&[], &[good, wanted], true).unwrap_err().message;
            assert!(message.contains(said), "{message}");
        }
        let twice = limits(&[], &[wants(DAY, "1"), wants(DAY, "2")], false).unwrap_err();
        assert!(twice.message.contains("there twice"), "{}", twice.message);
    }
}
