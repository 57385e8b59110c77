//! What `status`, `doctor` and metrics say of accounts. Pure.

use std::fmt::Write as _;

use clawnode_proto::{
    budget::{
        AccountKey, AccountView, AskingBudget, BudgetUnit, LimitState, LimitView, allow_command,
        amount_text, exceeded, raise_command, reconcile_command,
    },
    money::MicroUsd,
    view::WarningView,
};

/// The names of the warnings about accounts.
pub const WARNINGS: [&str; 3] = [ASKS, SPENT, STRANDED];
/// A limit waits for a person.
const ASKS: &str = "budgets.asks";
/// All of a limit is spent.
const SPENT: &str = "budgets.spent";
/// A dead process has a part of a limit.
const STRANDED: &str = "budgets.stranded";
/// Limits that one answer warns about.
const WARNED_MOST: usize = 8;
/// Limits that metrics have. More of them would be a burden for those who keep metrics.
const SERIES_MOST: usize = 128;

/// A family of metrics: its name, what it is, and its value of a limit.
type LimitMetric = (&'static str, &'static str, fn(&LimitView) -> u64);

/// What metrics have of each limit.
const FAMILIES: [LimitMetric; 3] = [
    ("clawnode_budget_spent", "What is spent of a limit in its window.", |limit| limit.spent),
    ("clawnode_budget_held", "What processes may still spend of a limit.", |limit| limit.held),
    ("clawnode_budget_limit", "The limit.", |limit| limit.limit),
];

/// What a person should know of these accounts, the most urgent first.
pub(super) fn warnings(accounts: &[AccountView]) -> Vec<WarningView> {
    let limits =
        || accounts.iter().flat_map(|view| view.limits.iter().map(|one| (&view.account, one)));
    let mut all: Vec<WarningView> =
        limits().filter_map(|(key, limit)| of_state(key, limit)).collect();
    all.sort_by_key(|warning| warning.name != SPENT);
    all.extend(limits().filter_map(|(key, limit)| of_stranded(key, limit)));
    let more = all.len().saturating_sub(WARNED_MOST);
    all.truncate(WARNED_MOST);
    if let Some(last) = all.last_mut().filter(|_| more > 0) {
        // Writing to a string cannot fail.
        let written = write!(last.message, "; and {more} more: `clawnode budget list`");
        debug_assert!(written.is_ok(), "a string takes what it is given");
    }
    all
}

/// The limits that wait for a person.
pub(super) fn asking(accounts: Vec<AccountView>) -> Vec<AskingBudget> {
    let all = accounts.into_iter().flat_map(|view| {
        let account = view.account;
        view.limits.into_iter().map(move |limit| AskingBudget { account: account.clone(), limit })
    });
    all.filter(|asking| asking.limit.state.asks()).collect()
}

fn of_state(key: &AccountKey, view: &LimitView) -> Option<WarningView> {
    let account = key.to_string();
    let amount = |amount| amount_text(view.unit, amount);
    let allow = allow_command(&account, view.key());
    let raise = raise_command(&account, view.key(), view.limit, 0);
    let (name, message, hint) = match view.state {
        LimitState::Ok | LimitState::Warned => return None,
        LimitState::Spent => {
            let why = exceeded(&account, view.unit, Some(view.window), view.spent, view.limit);
            let hint = format!("turns that need more end as `bankrupt`; raise it: `{raise}`");
            (SPENT, why, hint)
        }
        LimitState::NeedsPerson => {
            let (spent, limit) = (amount(view.spent), amount(view.limit));
            let message = format!(
                "`{account}` has spent {spent} of {limit} ({}): calls that may pass {} % of it \
                 wait for a person",
                view.key(),
                view.ask_at
            );
            (ASKS, message, format!("allow the rest with `{allow}`, or raise it: `{raise}`"))
        }
        LimitState::Over => {
            let excess = amount(view.excess);
            let message = format!(
                "calls of `{account}` have cost {excess} more than they had reserved ({}): calls \
                 wait",
                view.key()
            );
            (ASKS, message, format!("check the prices of its models, then allow it: `{allow}`"))
        }
    };
    Some(WarningView { name: name.to_owned(), message, hint })
}

fn of_stranded(key: &AccountKey, limit: &LimitView) -> Option<WarningView> {
    let holder = limit.holders.iter().find(|holder| holder.dead)?;
    let reconcile = reconcile_command(key, &holder.named());
    let stranded = amount_text(limit.unit, limit.stranded);
    Some(WarningView {
        name: STRANDED.to_owned(),
        message: format!("dead processes have {stranded} of `{key}` ({})", limit.key()),
        hint: if limit.ends.is_some() {
            format!("it comes back when the window ends; sooner with `{reconcile}`")
        } else {
            format!("it comes back with `{reconcile}`")
        },
    })
}

/// The metrics of the accounts of the cluster and of agents. Users have none: their keys name people.
pub(super) fn metrics(accounts: &[AccountView], out: &mut String) -> std::fmt::Result {
    let shared = accounts.iter().filter(|view| !matches!(view.account, AccountKey::User { .. }));
    let limits = shared.flat_map(|view| view.limits.iter().map(move |one| (&view.account, one)));
    let limits: Vec<_> = limits.take(SERIES_MOST).collect();
    if limits.is_empty() {
        return Ok(());
    }
    for (name, about, value) in FAMILIES {
        writeln!(out, "# HELP {name} {about} Dollars, tokens or model calls.")?;
        writeln!(out, "# TYPE {name} gauge")?;
        for (key, limit) in &limits {
            let (unit, window, value) = (limit.unit, limit.window, value(limit));
            // As dollars without a rounding: the text has all six decimals that it needs.
            let value = match unit {
                BudgetUnit::Usd => MicroUsd(value).to_string(),
                BudgetUnit::Tokens | BudgetUnit::Loops => value.to_string(),
            };
            let labels = format!("account=\"{key}\",unit=\"{unit}\",window=\"{window}\"");
            writeln!(out, "{name}{{{labels}}} {value}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clawnode_proto::budget::{SliceReport, WindowNumber};

    use super::{
        super::{account_view, slice_owners::PeerState, test_account::*},
        *,
    };

    fn seen(account: &TestAccount, name: &str, state: PeerState) -> AccountView {
        account_view::account(key(name), &account.state, NOW, &|_| (state, None))
    }

    fn spent(amount: u64) -> TestAccount {
        let mut account = TestAccount::with(&[usd(5_000_000)]);
        account.ask(PROCESS, 1, 4_500_000);
        account.allow(WindowNumber(0));
        account.ask(PROCESS, 2, 500_000);
        let first = amount.min(4_500_000);
        account.report(PROCESS, SliceReport { spent: first, ..report(1) });
        account.report(PROCESS, SliceReport { spent: amount - first, ..report(2) });
        account
    }

    #[test]
    fn warnings_have_the_command_that_helps() {
        let account = seen(&spent(5_000_000), "cluster", PeerState::Alive);
        let said = warnings(&[account]);
        assert_eq!(said.len(), 1);
        assert_eq!(said[0].message, "Exceeded max hourly spend: $5.00 >= $5.00");
        let raise = "`clawnode budget set cluster --usd-per-hour 10.00`";
        assert!(said[0].hint.ends_with(raise), "{}", said[0].hint);
        let mut account = TestAccount::with(&[usd(1_000)]);
        account.ask(PROCESS, 1, 900);
        assert_eq!(warnings(&[seen(&account, "cluster", PeerState::Alive)]), []);
        let said = warnings(&[seen(&account, "cluster", PeerState::Dead)]);
        assert_eq!((said.len(), &*said[0].name), (1, STRANDED));
        assert!(said[0].hint.contains(&format!("--node {PROCESS} --gone")), "{}", said[0].hint);
        assert!(said[0].hint.contains("when the window ends"), "{}", said[0].hint);
        let mut endless = seen(&account, "cluster", PeerState::Dead);
        endless.limits[0].ends = None;
        let said = warnings(&[endless]);
        assert!(said[0].hint.starts_with("it comes back with `clawnode budget "), "{said:?}");
        account.report(PROCESS, SliceReport { spent: 900, ..report(1) });
        let said = warnings(&[seen(&account, "agent:a", PeerState::Alive)]);
        assert_eq!((said.len(), &*said[0].name), (1, ASKS));
        let asking = asking(vec![seen(&account, "agent:a", PeerState::Alive)]);
        assert_eq!((asking.len(), asking[0].account.clone()), (1, key("agent:a")));
        let allow = "`clawnode budget allow agent:a --usd-per-hour`";
        assert!(said[0].hint.contains(allow), "{}", said[0].hint);
    }

    #[test]
    fn many_warnings_are_counted() {
        let account = spent(5_000_000);
        let many: Vec<_> = (0..20)
            .map(|at| seen(&account, &format!("user:web:bot:u{at}"), PeerState::Alive))
            .collect();
        let said = warnings(&many);
        assert_eq!(said.len(), WARNED_MOST);
        let last = &said.last().unwrap().message;
        assert!(last.ends_with("; and 12 more: `clawnode budget list`"), "{last}");
    }

    #[test]
    fn metrics_are_of_the_cluster_and_of_agents_and_name_no_user() {
        let account = spent(1_000_001);
        let accounts = ["cluster", "agent:a", "user:web:bot:ada"];
        let accounts = accounts.map(|name| seen(&account, name, PeerState::Alive));
        let mut out = String::new();
        metrics(&accounts, &mut out).unwrap();
        let labels = "account=\"cluster\",unit=\"usd\",window=\"hour\"";
        assert!(out.contains(&format!("clawnode_budget_spent{{{labels}}} 1.000001\n")), "{out}");
        assert!(out.contains(&format!("clawnode_budget_held{{{labels}}} 3.999999\n")), "{out}");
        assert!(out.contains(&format!("clawnode_budget_limit{{{labels}}} 5.00\n")), "{out}");
        assert!(out.contains("account=\"agent:a\"") && !out.contains("ada"), "{out}");
        let mut none = String::new();
        metrics(&[], &mut none).unwrap();
        assert_eq!(none, "");
    }
}
