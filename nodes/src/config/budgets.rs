//! `[budgets]`: what may be spent. Money is text, so that no floating-point number reads it.

use std::{collections::BTreeMap, time::Duration};

use clawnode_budget::holder::{ConfiguredBudgets, HolderOptions};
use clawnode_proto::{
    AgentName,
    budget::{
        ASK_AT, AccountKey, BudgetLimit, BudgetUnit, CountedLanes, LimitKey, WARN_AT, WindowLength,
        amount_text,
    },
    money::MicroUsd,
};
use serde::{Deserialize, Serialize};

use super::{units, usd};

/// What a cluster may spend in a day unless a limit in money is configured: enough to try everything, and
/// not enough to be sorry.
const DEFAULT_USD_PER_DAY: MicroUsd = MicroUsd(5_000_000);

/// Model calls that the background may make in an hour unless a limit of calls is configured: an agent in
/// a loop is noticed before it has spent the day's money. A person who waits may need half of it for one turn.
const DEFAULT_LOOPS_PER_HOUR: u64 = 50;

/// `[budgets]`: what may be spent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetsSection {
    /// Whether the cluster has the built-in limits: $5 a day if `[budgets.cluster]` has no limit in money, and
    /// 50 model calls an hour in the background if it has no limit of `loops`.
    pub default: bool,
    /// How long a call waits for an account that cannot be reached (1 min). Less ends calls that a short
    /// outage would only delay.
    #[serde(with = "units::duration")]
    pub patience: Duration,
    /// How long a call waits for a person who has to allow more (5 min).
    #[serde(with = "units::duration")]
    pub ask_wait: Duration,
    /// What all agents may spend together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<LimitsSection>,
    /// What an agent may spend.
    pub agents: BTreeMap<AgentName, LimitsSection>,
    /// What each user may spend, who has no limits of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<LimitsSection>,
}

/// The limits of one account. Days and months are those of UTC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsSection {
    /// Dollars in an hour.
    #[serde(with = "usd", skip_serializing_if = "Option::is_none")]
    pub usd_per_hour: Option<MicroUsd>,
    /// Dollars in a day.
    #[serde(with = "usd", skip_serializing_if = "Option::is_none")]
    pub usd_per_day: Option<MicroUsd>,
    /// Dollars in a month.
    #[serde(with = "usd", skip_serializing_if = "Option::is_none")]
    pub usd_per_month: Option<MicroUsd>,
    /// Dollars, without end.
    #[serde(with = "usd", skip_serializing_if = "Option::is_none")]
    pub usd: Option<MicroUsd>,
    /// Tokens in and out in an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_hour: Option<u64>,
    /// Tokens in and out in a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_day: Option<u64>,
    /// Tokens in and out in a month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_month: Option<u64>,
    /// Tokens in and out, without end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Model calls in an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loops_per_hour: Option<u64>,
    /// Model calls in a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loops_per_day: Option<u64>,
    /// Model calls in a month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loops_per_month: Option<u64>,
    /// Model calls, without end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loops: Option<u64>,
    /// At which share of each limit a warning is recorded, in percent (75).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warn_at: Option<u8>,
    /// At which share of each limit a person has to allow more, in percent (90). 100: no person is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask_at: Option<u8>,
}

impl Default for BudgetsSection {
    fn default() -> Self {
        let HolderOptions { patience, ask_wait } = HolderOptions::default();
        let (cluster, agents, users) = (None, BTreeMap::new(), None);
        Self { default: true, patience, ask_wait, cluster, agents, users }
    }
}

// === impl BudgetsSection ===

impl BudgetsSection {
    /// How long calls wait.
    pub const fn holder(&self) -> HolderOptions {
        HolderOptions { patience: self.patience, ask_wait: self.ask_wait }
    }

    /// The limits of accounts.
    pub fn configured(&self) -> ConfiguredBudgets {
        let limits = |section: &Option<LimitsSection>| {
            section.as_ref().map(LimitsSection::limits).unwrap_or_default()
        };
        let mut cluster = limits(&self.cluster);
        let defaults = self.defaults(&cluster);
        let is_default = defaults.iter().any(|limit| limit.key.unit == BudgetUnit::Usd);
        cluster.extend(defaults);
        let agents = self.agents.iter();
        let agents = agents.map(|(name, agent)| (AccountKey::Agent(name.clone()), agent.limits()));
        let all = agents.chain([(AccountKey::Cluster, cluster)]);
        let accounts = all.filter(|(_, limits)| !limits.is_empty()).collect();
        ConfiguredBudgets { accounts, each_user: limits(&self.users), is_default }
    }

    /// The built-in limits of a cluster with these limits: one for each unit that it does not limit itself.
    fn defaults(&self, cluster: &[BudgetLimit]) -> Vec<BudgetLimit> {
        let daily = BudgetLimit::new(BudgetUnit::Usd, WindowLength::Day, DEFAULT_USD_PER_DAY.0);
        let hourly =
            BudgetLimit::new(BudgetUnit::Loops, WindowLength::Hour, DEFAULT_LOOPS_PER_HOUR);
        let all = [daily, BudgetLimit { lanes: CountedLanes::Background, ..hourly }];
        let is_free =
            |default: &BudgetLimit| cluster.iter().all(|limit| limit.key.unit != default.key.unit);
        all.into_iter().filter(|limit| self.default && is_free(limit)).collect()
    }

    /// What the cluster may spend, for people. `set` are its limits if a person set them: they win.
    pub fn banner(&self, set: Option<&[BudgetLimit]>) -> String {
        if let Some(set) = set {
            let all: Vec<String> = set.iter().map(shown).collect();
            let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
            return format!(
                "budget {all}; a person set limits, see `clawnode budget show cluster`"
            );
        }
        let configured = self.cluster.as_ref().map(LimitsSection::limits).unwrap_or_default();
        let defaults = self.defaults(&configured);
        if configured.is_empty() && defaults.is_empty() {
            return "budget none (see `[budgets]`)".to_owned();
        }
        let own = configured.iter().map(shown);
        let all: Vec<String> =
            own.chain(defaults.iter().map(|limit| format!("{} (default)", shown(limit)))).collect();
        let more = if defaults.is_empty() { "" } else { "; see `[budgets]`" };
        format!("budget {}{more}", all.join(", "))
    }
}

/// A limit as people say it: `$5.00 per day`.
fn shown(limit: &BudgetLimit) -> String {
    let BudgetLimit { key, amount, lanes, .. } = limit;
    let amount = amount_text(key.unit, *amount);
    let amount =
        if key.unit == BudgetUnit::Usd { amount } else { format!("{amount} {}", key.unit) };
    let per = match key.window {
        WindowLength::Forever => String::new(),
        window => format!(" per {window}"),
    };
    format!("{amount}{per}{}", lanes.suffix())
}

// === impl LimitsSection ===

impl LimitsSection {
    /// The same, as accounts have them.
    pub fn limits(&self) -> Vec<BudgetLimit> {
        use BudgetUnit::{Loops, Tokens, Usd};
        use WindowLength::{Day, Forever, Hour, Month};
        let usd = |amount: Option<MicroUsd>| amount.map(|amount| amount.0);
        let all = [
            (Usd, Hour, usd(self.usd_per_hour)),
            (Usd, Day, usd(self.usd_per_day)),
            (Usd, Month, usd(self.usd_per_month)),
            (Usd, Forever, usd(self.usd)),
            (Tokens, Hour, self.tokens_per_hour),
            (Tokens, Day, self.tokens_per_day),
            (Tokens, Month, self.tokens_per_month),
            (Tokens, Forever, self.tokens),
            (Loops, Hour, self.loops_per_hour),
            (Loops, Day, self.loops_per_day),
            (Loops, Month, self.loops_per_month),
            (Loops, Forever, self.loops),
        ];
        let ask_at = self.ask_at.unwrap_or(ASK_AT);
        let warn_at = self.warn_at.unwrap_or(WARN_AT.min(ask_at));
        let limit = |(unit, window, amount): (_, _, Option<u64>)| {
            let key = LimitKey { unit, window };
            let lanes = CountedLanes::All;
            amount.map(|amount| BudgetLimit { key, amount, warn_at, ask_at, lanes })
        };
        all.into_iter().filter_map(limit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{load::read_text as read, show};

    #[test]
    fn mistakes_are_named_with_their_place_and_what_to_do() {
        for (text, place, says) in [
            ("[budgets.cluster]\nusd_per_day = 5.00", ":2:15", "write an amount in USD as text"),
            ("[budgets.cluster]\nusd_per_day = 5", ":2:15", "write an amount in USD as text"),
            ("[budgets.cluster]\nusd_per_day = \"-5\"", ":2:15", "never negative; write `5`"),
            ("[budgets.cluster]\nusd_per_day = \"0.1234567\"", ":2:15", "at most six decimals"),
            ("[budgets.cluster]\nusd_per_day = \"$5\"", ":2:15", "write `5`"),
            ("[budgets.cluster]\nusd_per_week = \"5\"", ":2:1", "unknown key `usd_per_week`"),
            ("[budgets.cluster]\ntokens = -1", ":2:10", "a whole number"),
            ("[budgets.cluster]\ntokens = 9_000_000_000_000_000_000", ":1:", "the most"),
            ("[budgets.cluster]\nwarn_at = 80", ":1:", "there is no limit here"),
            ("[budgets.users]\nloops = 5\nwarn_at = 95", ":1:", "1 <= warn_at <= ask_at <= 100"),
            ("[budgets.agents.defualt]\nloops = 5", ":1:", "did you mean `default`?"),
            ("[budgets.organisation]\nloops = 5", ":1:", "unknown key `organisation`"),
            ("[budgets]\npatience = \"0s\"", ":2:", "it is zero"),
        ] {
            let error = read(text).unwrap_err();
            let shown = format!("{error} ({})", error.hint);
            assert!(shown.contains(says), "{text}: {shown}");
            assert!(shown.contains(&format!("config.toml{place}")), "{text}: {shown}");
        }
    }

    #[test]
    fn limits_are_those_of_the_file() {
        let loaded = read(
            "[budgets]\npatience = \"5s\"\n[budgets.cluster]\nusd_per_day = \"5.50\"\nloops_per_hour = 50\n\
             [budgets.agents.default]\ntokens = 2_000_000\nask_at = 60\n\
             [budgets.users]\nusd_per_month = \"0.000001\"\nask_at = 100\n",
        )
        .unwrap();
        let budgets = &loaded.config.budgets;
        assert_eq!(budgets.holder().patience, Duration::from_secs(5));
        let configured = budgets.configured();
        assert!(!configured.is_default);
        let limits_of = |key: &str| configured.limits_of(&key.parse().unwrap()).to_vec();
        let limit = |unit, window, amount| BudgetLimit::new(unit, window, amount);
        assert_eq!(
            limits_of("cluster"),
            [
                limit(BudgetUnit::Usd, WindowLength::Day, 5_500_000),
                limit(BudgetUnit::Loops, WindowLength::Hour, 50),
            ]
        );
        let tokens = limit(BudgetUnit::Tokens, WindowLength::Forever, 2_000_000);
        let lower = BudgetLimit { warn_at: 60, ask_at: 60, ..tokens };
        assert_eq!(limits_of("agent:default"), [lower], "a warning comes before the question");
        assert_eq!(limits_of("agent:other"), []);
        let cents = limit(BudgetUnit::Usd, WindowLength::Month, 1);
        assert_eq!(limits_of("user:web:bot:ada"), [BudgetLimit { ask_at: 100, ..cents }]);
        let shown = format!("{:?}", show::settings(&loaded).unwrap());
        assert!(shown.contains("5.50") && shown.contains("budgets.cluster.usd_per_day"), "{shown}");
        assert_eq!(budgets.banner(None), "budget $5.50 per day, 50 loops per hour");
    }

    #[test]
    fn what_the_cluster_does_not_limit_has_a_default() {
        let configured = |text: &str| read(text).unwrap().config.budgets.configured();
        let daily = BudgetLimit::new(BudgetUnit::Usd, WindowLength::Day, 5_000_000);
        let of_cluster =
            |budgets: &ConfiguredBudgets| budgets.limits_of(&AccountKey::Cluster).to_vec();
        let background = BudgetLimit {
            lanes: CountedLanes::Background,
            ..BudgetLimit::new(BudgetUnit::Loops, WindowLength::Hour, 50)
        };
        let usual = configured("");
        assert!(usual.is_default);
        assert_eq!(of_cluster(&usual), [daily, background]);
        let loops = configured("[budgets.cluster]\nloops = 7\n");
        assert!(loops.is_default && of_cluster(&loops).contains(&daily));
        assert_eq!(of_cluster(&loops).len(), 2, "and that limit counts all calls");
        assert!(of_cluster(&loops).iter().all(|limit| limit.lanes.is_all()));
        let own = configured("[budgets.cluster]\nusd = \"7\"\n");
        assert!(!own.is_default && !of_cluster(&own).contains(&daily));
        assert!(of_cluster(&own).contains(&background));
        let none = configured("[budgets]\ndefault = false\n");
        assert!(!none.is_default && of_cluster(&none).is_empty());
    }

    #[test]
    fn a_node_says_at_its_start_which_limits_are_built_in() {
        let banner = |text: &str| read(text).unwrap().config.budgets.banner(None);
        assert_eq!(
            banner(""),
            "budget $5.00 per day (default), 50 loops per hour in the background (default); see \
             `[budgets]`"
        );
        assert_eq!(
            banner("[budgets.cluster]\nusd = \"7\"\n"),
            "budget $7.00, 50 loops per hour in the background (default); see `[budgets]`"
        );
        assert_eq!(banner("[budgets]\ndefault = false\n"), "budget none (see `[budgets]`)");
        let budgets = read("[budgets.cluster]\nusd = \"7\"\n").unwrap().config.budgets;
        let daily = BudgetLimit::new(BudgetUnit::Usd, WindowLength::Day, 250_000);
        assert_eq!(
            budgets.banner(Some(&[daily])),
            "budget $0.25 per day; a person set limits, see `clawnode budget show cluster`"
        );
        assert!(budgets.banner(Some(&[])).starts_with("budget none; a person set limits"));
    }
}
