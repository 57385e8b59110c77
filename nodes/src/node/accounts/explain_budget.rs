//! Whether a call could be made now, as far as one limit goes. Pure.

use clawnode_budget::holder::{CallNeeds, Need};
use clawnode_proto::budget::{
    AccountKey, AccountView, CallForecast, ExplainedLimit, LimitView, SliceHolderView,
    allow_command, amount_text, exceeded, raise_command, reconcile_command,
};

/// Processes that an explanation names.
const NAMED: usize = 3;

/// The limits that hold for a call which needs this, in the order in which they are asked. What costs nothing
/// takes nothing of a limit, whatever its state is.
pub(super) fn limits(accounts: Vec<AccountView>, call: &CallNeeds) -> Vec<ExplainedLimit> {
    let all = accounts.into_iter().flat_map(|view| {
        let account = view.account;
        view.limits.into_iter().map(move |limit| (account.clone(), limit))
    });
    all.filter_map(|(account, limit)| {
        let is_it = |need: &&Need| need.account == account && need.limit == limit.key();
        let cost = call.needs.iter().find(is_it)?.cost;
        let (needs, reserves) = (cost.at(call.least_output), cost.at(call.most_output));
        (reserves > 0).then(|| explained(account, limit, needs, reserves))
    })
    .collect()
}

/// What becomes of a call that needs so much of a limit at least, and reserves so much if it is there.
fn explained(account: AccountKey, limit: LimitView, needs: u64, reserves: u64) -> ExplainedLimit {
    let forecast = forecast(&limit, needs, reserves);
    let why = why(&account, &limit, needs, reserves, forecast);
    ExplainedLimit { account, limit, needs, reserves, forecast, why }
}

/// The account decides by the same amounts: see [`clawnode_budget::account::LimitBook::judge`].
fn forecast(limit: &LimitView, needs: u64, reserves: u64) -> CallForecast {
    if limit.excess > 0 {
        return CallForecast::NeedsPerson;
    }
    let unspent = unspent(limit);
    // What may be there once all calls of living processes have ended, and what is there now.
    let alive = unspent.saturating_sub(limit.stranded);
    let room = room(limit);
    match () {
        () if reserves <= room => CallForecast::Possible,
        // It waits for no more than there will be: its cap on output becomes smaller.
        () if reserves > alive && needs <= room => CallForecast::Possible,
        () if needs <= alive => CallForecast::Waits,
        // Dead processes have the rest, and there is enough above what a person has to allow.
        () if needs <= unheld(limit) => CallForecast::NeedsPerson,
        () if needs <= unspent => CallForecast::Stranded,
        () if needs <= limit.limit.saturating_sub(limit.spent) => CallForecast::NeedsPerson,
        () => CallForecast::Bankrupt,
    }
}

/// What may be granted without a person, and is not spent.
fn unspent(limit: &LimitView) -> u64 {
    let ceiling = if limit.allowed { limit.limit } else { share(limit) };
    ceiling.saturating_sub(limit.spent)
}

/// What no process has of the whole limit.
fn unheld(limit: &LimitView) -> u64 {
    limit.limit.saturating_sub(limit.spent).saturating_sub(limit.held)
}

/// What a call may have now: what no process has, and what living processes do not use.
fn room(limit: &LimitView) -> u64 {
    let alive = limit.holders.iter().filter(|holder| !holder.dead);
    let idle = alive
        .fold(0_u64, |sum, holder| sum.saturating_add(holder.held.saturating_sub(holder.running)));
    unspent(limit).saturating_sub(limit.held).saturating_add(idle)
}

/// What may be granted without a person.
fn share(limit: &LimitView) -> u64 {
    limit.limit.saturating_mul(limit.ask_at.into()) / 100
}

fn why(
    account: &AccountKey,
    limit: &LimitView,
    needs: u64,
    reserves: u64,
    forecast: CallForecast,
) -> String {
    let amount = |amount| amount_text(limit.unit, amount);
    let allow = format!("`{}`", allow_command(account, limit.key()));
    match forecast {
        CallForecast::Possible if reserves > room(limit) => format!(
            "it needs {}, which is available, and would reserve {}: its cap on output is lowered \
             to what is left",
            amount(needs),
            amount(reserves)
        ),
        CallForecast::Possible => format!("it reserves {}, which is available", amount(reserves)),
        CallForecast::Waits if needs <= room(limit) => format!(
            "it reserves {} and waits for calls that run{}",
            amount(reserves),
            named(limit, false)
        ),
        CallForecast::Waits => format!(
            "it needs {} and waits for calls that run{}",
            amount(needs),
            named(limit, false)
        ),
        CallForecast::Stranded => format!(
            "it needs {}, and dead processes have {}{}: `{}`{}",
            amount(needs),
            amount(limit.stranded),
            named(limit, true),
            reconcile_command(account, &stranded_by(limit)),
            limit.ends.map_or("", |_| ", or wait for the end of the window")
        ),
        CallForecast::NeedsPerson if limit.excess > 0 => format!(
            "calls have cost {} more than they had reserved; allow it with {allow}",
            amount(limit.excess)
        ),
        CallForecast::NeedsPerson => format!(
            "it needs {}, {} of {} is spent, and above {} % a person decides: {allow}",
            amount(needs),
            amount(limit.spent),
            amount(limit.limit),
            limit.ask_at
        ),
        CallForecast::Bankrupt => {
            let (unit, window) = (limit.unit, Some(limit.window));
            let why = exceeded(&account.to_string(), unit, window, limit.spent, limit.limit);
            let least = limit.spent.saturating_add(needs);
            let raise = raise_command(&account.to_string(), limit.key(), limit.limit, least);
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

/// The dead process that has the most of a limit.
fn stranded_by(limit: &LimitView) -> String {
    let dead = limit.holders.iter().find(|holder| holder.dead);
    dead.map_or_else(|| "NODE".to_owned(), SliceHolderView::named)
}

/// The processes that have the most of a limit.
fn named(limit: &LimitView, dead: bool) -> String {
    let holders = limit.holders.iter().filter(|holder| holder.dead == dead).take(NAMED);
    let named = holders
        .map(|holder| format!("{} has {}", holder.named(), amount_text(limit.unit, holder.held)));
    let named: Vec<String> = named.collect();
    if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) }
}

#[cfg(test)]
mod tests {
    use clawnode_budget::holder::CallCost;
    use clawnode_proto::budget::{
        BudgetUnit, CountedLanes, LimitKey, LimitOrigin, LimitState, WindowLength,
    };

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
        let held = holders.iter().map(|holder| holder.held).sum();
        LimitView {
            unit: BudgetUnit::Usd,
            window: WindowLength::Day,
            origin: None,
            limit: 1_000,
            warn_at: 75,
            ask_at: 90,
            lanes: CountedLanes::All,
            spent,
            held,
            stranded: holders.iter().filter(|holder| holder.dead).map(|holder| holder.held).sum(),
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
            // A person who allows more can help at once.
            (limit(100, &[(true, 750, 0)]), 150, CallForecast::NeedsPerson),
            (limit(100, &[(true, 750, 0)]), 151, CallForecast::Stranded),
            (
                LimitView { allowed: true, ..limit(100, &[(true, 750, 0)]) },
                151,
                CallForecast::Stranded,
            ),
            (limit(900, &[]), 100, CallForecast::NeedsPerson),
            (limit(900, &[]), 101, CallForecast::Bankrupt),
            (LimitView { excess: 1, ..limit(0, &[]) }, 1, CallForecast::NeedsPerson),
            (limit(1_100, &[]), 1, CallForecast::Bankrupt),
        ];
        for (at, (limit, needs, expected)) in rows.into_iter().enumerate() {
            assert_eq!(
                explained(key("cluster"), limit, needs, needs).forecast,
                expected,
                "row {at}"
            );
        }
    }

    #[test]
    fn a_call_is_made_smaller_and_does_not_wait_for_a_dead_process() {
        let dollar = |spent, holders: &[(bool, u64, u64)]| LimitView {
            limit: 1_000_000,
            ask_at: 100,
            ..limit(spent, holders)
        };
        let dead = (true, 372_768, 248_512);
        let said = |limit| {
            let said = explained(key("cluster"), limit, 5_214, 124_254);
            (said.forecast, said.why)
        };
        let (forecast, why) = said(dollar(504_900, &[dead]));
        assert_eq!(forecast, CallForecast::Possible);
        assert!(why.contains("would reserve $0.124254: its cap on output is lowered"), "{why}");
        // Living calls leave more: it waits for that.
        let (forecast, why) = said(dollar(380_000, &[dead, (false, 124_254, 124_254)]));
        assert_eq!(forecast, CallForecast::Waits);
        assert!(why.starts_with("it reserves $0.124254 and waits for calls that run"), "{why}");
        let (forecast, why) = said(dollar(622_500, &[dead]));
        assert_eq!(forecast, CallForecast::Stranded);
        assert!(why.contains("reconcile cluster --node a --gone"), "{why}");
    }

    #[test]
    fn an_explanation_has_the_command_that_helps() {
        let why = |limit, needs| explained(key("cluster"), limit, needs, needs).why;
        let said = why(limit(100, &[(true, 800, 0)]), 101);
        assert!(said.contains("dead processes have $0.0008 (a has $0.0008)"), "{said}");
        // This limit has no window that would end.
        assert!(said.ends_with(": `clawnode budget reconcile cluster --node a --gone`"), "{said}");
        let ends = Some(clawnode_proto::Timestamp(1));
        let said = why(LimitView { ends, ..limit(100, &[(true, 800, 0)]) }, 101);
        assert!(said.ends_with("--gone`, or wait for the end of the window"), "{said}");
        let said = why(limit(900, &[]), 50);
        assert!(said.ends_with("`clawnode budget allow cluster --usd-per-day`"), "{said}");
        let said = why(limit(1_000, &[]), 50);
        assert!(said.starts_with("Exceeded max daily spend: $0.001 >= $0.001; "), "{said}");
        // It is enough for what is spent and for the call.
        assert!(said.ends_with("`clawnode budget set cluster --usd-per-day 0.01`"), "{said}");
    }

    #[test]
    fn only_limits_that_the_call_takes_from_hold_for_it() {
        let needs = |limit: LimitKey, fixed, per_million| Need {
            account: key("cluster"),
            limit,
            cost: CallCost { fixed, per_million },
            beside: 0,
        };
        let (usd, tokens) =
            (limit(0, &[]), LimitView { unit: BudgetUnit::Tokens, ..limit(0, &[]) });
        let over = LimitView { unit: BudgetUnit::Loops, excess: 1, ..limit(0, &[]) };
        let call = CallNeeds {
            needs: vec![needs(usd.key(), 100, 1_000_000), needs(over.key(), 0, 0)],
            least_output: 256,
            most_output: 700,
        };
        let account = AccountView {
            account: key("cluster"),
            origin: LimitOrigin::Configured,
            set_by: None,
            set_at: None,
            limits: vec![usd, tokens, over],
            changes: Vec::new(),
        };
        let explained = limits(vec![account], &call);
        let said: Vec<_> = explained.iter().map(|limit| (limit.needs, limit.reserves)).collect();
        assert_eq!(said, [(356, 800)], "not that of tokens, nor one from which nothing is taken");
    }
}
