//! Whether a call could be made now, as far as one limit goes. Pure.

use clawnode_proto::{
    budget::{
        AccountKey, BudgetUnit, CallForecast, ExplainedLimit, LimitView, amount_text, exceeded,
        limit_flag, raise_command,
    },
    model::ModelPrice,
};

/// With fewer tokens of output no call is made.
pub(super) const LEAST_OUTPUT: u64 = 256;
/// Processes that an explanation names.
const NAMED: usize = 3;

/// What a call needs of a limit at least.
pub(super) fn needs(unit: BudgetUnit, price: &ModelPrice, prompt_tokens: u64) -> u64 {
    match unit {
        BudgetUnit::Usd => price.most(prompt_tokens, LEAST_OUTPUT).0,
        BudgetUnit::Tokens => prompt_tokens.saturating_add(LEAST_OUTPUT),
        BudgetUnit::Loops => 1,
    }
}

/// What becomes of a call that needs so much of a limit.
pub(super) fn explained(account: AccountKey, limit: LimitView, needs: u64) -> ExplainedLimit {
    let forecast = forecast(&limit, needs);
    let why = why(&account, &limit, needs, forecast);
    ExplainedLimit { account, limit, needs, forecast, why }
}

fn forecast(limit: &LimitView, needs: u64) -> CallForecast {
    if limit.excess > 0 {
        return CallForecast::NeedsPerson;
    }
    let ceiling = if limit.allowed { limit.limit } else { share(limit) };
    let unspent = ceiling.saturating_sub(limit.spent);
    let alive = limit.holders.iter().filter(|it| !it.dead);
    let idle = alive.fold(0_u64, |sum, it| sum.saturating_add(it.held.saturating_sub(it.running)));
    match () {
        () if needs <= unspent.saturating_sub(limit.held).saturating_add(idle) => {
            CallForecast::Possible
        }
        () if needs <= unspent.saturating_sub(limit.stranded) => CallForecast::Waits,
        () if needs <= unspent => CallForecast::Stranded,
        () if needs <= limit.limit.saturating_sub(limit.spent) => CallForecast::NeedsPerson,
        () => CallForecast::Bankrupt,
    }
}

/// What may be granted without a person.
fn share(limit: &LimitView) -> u64 {
    limit.limit.saturating_mul(limit.ask_at.into()) / 100
}

fn why(account: &AccountKey, limit: &LimitView, needs: u64, forecast: CallForecast) -> String {
    let amount = |amount| amount_text(limit.unit, amount);
    let allow = format!("`clawnode budget allow {account} --{}`", limit_flag(limit.key()));
    match forecast {
        CallForecast::Possible => format!("it needs {}, which is there", amount(needs)),
        CallForecast::Waits => format!(
            "it needs {} and waits for calls that run{}",
            amount(needs),
            named(limit, false)
        ),
        CallForecast::Stranded => format!(
            "it needs {}, and dead processes have {}{}: `clawnode budget reconcile {account} \
             --node NODE --gone`, or wait for the end of the window",
            amount(needs),
            amount(limit.stranded),
            named(limit, true)
        ),
        CallForecast::NeedsPerson if limit.excess > 0 => format!(
            "calls have cost {} more than they had reserved; allow it with {allow}",
            amount(limit.excess)
        ),
        CallForecast::NeedsPerson => format!(
            "{} of {} is spent, and above {} % a person decides: {allow}",
            amount(limit.spent),
            amount(limit.limit),
            limit.ask_at
        ),
        CallForecast::Bankrupt => {
            let (unit, window) = (limit.unit, Some(limit.window));
            let why = exceeded(&account.to_string(), unit, window, limit.spent, limit.limit);
            let raise = raise_command(&account.to_string(), limit.key(), limit.limit);
            let why = if limit.spent >= limit.limit {
                why
            } else {
                let left = amount(limit.limit.saturating_sub(limit.spent));
                format!("it needs {}, and {left} is left for good", amount(needs))
            };
            format!("{why}; raise the limit with `{raise}`")
        }
    }
}

/// The processes that have the most of a limit.
fn named(limit: &LimitView, dead: bool) -> String {
    let holders = limit.holders.iter().filter(|it| it.dead == dead).take(NAMED);
    let named = holders.map(|it| {
        let name = it.node.as_ref().map_or_else(|| it.process.to_string(), ToString::to_string);
        format!("{name} has {}", amount_text(limit.unit, it.held))
    });
    let named: Vec<String> = named.collect();
    if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::budget::{LimitState, SliceHolderView, WindowLength};

    use super::{super::test_account::*, *};

    fn limit(spent: u64, holders: &[(bool, u64, u64)]) -> LimitView {
        let holders = holders.iter().map(|(dead, held, running)| SliceHolderView {
            process: PROCESS,
            node: Some("a".parse().unwrap()),
            dead: *dead,
            held: *held,
            running: *running,
        });
        let holders: Vec<_> = holders.collect();
        let held = holders.iter().map(|it| it.held).sum();
        LimitView {
            unit: BudgetUnit::Usd,
            window: WindowLength::Day,
            limit: 1_000,
            warn_at: 75,
            ask_at: 90,
            spent,
            held,
            stranded: holders.iter().filter(|it| it.dead).map(|it| it.held).sum(),
            left: 1_000_u64.saturating_sub(spent + held),
            state: LimitState::Ok,
            allowed: false,
            excess: 0,
            waiting: 0,
            ends: None,
            holders,
        }
    }

    #[test]
    fn a_call_is_explained_by_who_has_the_rest() {
        let rows = [
            (limit(0, &[]), 900, CallForecast::Possible),
            (limit(0, &[]), 901, CallForecast::NeedsPerson),
            (LimitView { allowed: true, ..limit(0, &[]) }, 901, CallForecast::Possible),
            // What a living process does not use comes back at once.
            (limit(100, &[(false, 800, 300)]), 500, CallForecast::Possible),
            (limit(100, &[(false, 800, 300)]), 501, CallForecast::Waits),
            (limit(100, &[(true, 700, 0), (false, 100, 100)]), 100, CallForecast::Waits),
            (limit(100, &[(true, 700, 0), (false, 100, 100)]), 101, CallForecast::Stranded),
            (limit(900, &[]), 100, CallForecast::NeedsPerson),
            (limit(900, &[]), 101, CallForecast::Bankrupt),
            (LimitView { excess: 1, ..limit(0, &[]) }, 1, CallForecast::NeedsPerson),
            (limit(1_100, &[]), 1, CallForecast::Bankrupt),
        ];
        for (at, (limit, needs, expected)) in rows.into_iter().enumerate() {
            assert_eq!(explained(key("cluster"), limit, needs).forecast, expected, "row {at}");
        }
    }

    #[test]
    fn an_explanation_has_the_command_that_helps() {
        let why = |limit, needs| explained(key("cluster"), limit, needs).why;
        let said = why(limit(100, &[(true, 800, 0)]), 100);
        assert!(said.contains("dead processes have $0.0008 (a has $0.0008)"), "{said}");
        assert!(said.contains("`clawnode budget reconcile cluster --node NODE --gone`"), "{said}");
        let said = why(limit(900, &[]), 50);
        assert!(said.ends_with("`clawnode budget allow cluster --usd-per-day`"), "{said}");
        let said = why(limit(1_000, &[]), 50);
        assert!(said.starts_with("Exceeded max daily spend: $0.001 >= $0.001; "), "{said}");
        assert!(said.ends_with("`clawnode budget set cluster --usd-per-day 0.002`"), "{said}");
    }

    #[test]
    fn a_call_needs_its_prompt_and_some_output() {
        let price = ModelPrice { input: 3_000_000, output: 15_000_000, ..ModelPrice::FREE };
        assert_eq!(needs(BudgetUnit::Usd, &price, 1_000), 3_000 + 256 * 15);
        assert_eq!(needs(BudgetUnit::Tokens, &price, 1_000), 1_256);
        assert_eq!(needs(BudgetUnit::Loops, &price, 1_000), 1);
    }
}
