//! `[budgets]`: what may be spent. Money is text, so that no floating-point number reads it.

use std::{collections::BTreeMap, time::Duration};

use clawnode_budget::holder::{ConfiguredBudgets, HolderOptions};
use clawnode_proto::{
    AgentName,
    budget::{ASK_AT, AccountKey, BudgetLimit, BudgetUnit, LimitKey, WARN_AT, WindowLength},
    money::MicroUsd,
};
use serde::{Deserialize, Serialize};

use super::units;

/// What a cluster may spend in a day unless a limit in money is configured: enough to try everything, and
/// not enough to be sorry.
const DEFAULT_USD_PER_DAY: MicroUsd = MicroUsd(5_000_000);

/// `[budgets]`: what may be spent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetsSection {
    /// Whether the cluster may spend $5 a day at most if `[budgets.cluster]` has no limit in money.
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
    #[serde(with = "money_text", skip_serializing_if = "Option::is_none")]
    pub usd_per_hour: Option<MicroUsd>,
    /// Dollars in a day.
    #[serde(with = "money_text", skip_serializing_if = "Option::is_none")]
    pub usd_per_day: Option<MicroUsd>,
    /// Dollars in a month.
    #[serde(with = "money_text", skip_serializing_if = "Option::is_none")]
    pub usd_per_month: Option<MicroUsd>,
    /// Dollars, without end.
    #[serde(with = "money_text", skip_serializing_if = "Option::is_none")]
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
        let is_default =
            self.default && !cluster.iter().any(|limit| limit.key.unit == BudgetUnit::Usd);
        if is_default {
            let daily = DEFAULT_USD_PER_DAY.0;
            cluster.push(BudgetLimit::new(BudgetUnit::Usd, WindowLength::Day, daily));
        }
        let agents = self.agents.iter();
        let agents = agents.map(|(name, it)| (AccountKey::Agent(name.clone()), it.limits()));
        let all = agents.chain([(AccountKey::Cluster, cluster)]);
        let accounts = all.filter(|(_, limits)| !limits.is_empty()).collect();
        ConfiguredBudgets { accounts, each_user: limits(&self.users), is_default }
    }

    /// What the cluster may spend, for people.
    pub fn banner(&self) -> String {
        let configured = self.configured();
        let limits = configured.limits_of(&AccountKey::Cluster);
        if limits.is_empty() {
            return "budget none (see `[budgets]`)".to_owned();
        }
        let all: Vec<String> = limits.iter().map(shown).collect();
        let why = if configured.is_default { " (default; see `[budgets]`)" } else { "" };
        format!("budget {}{why}", all.join(", "))
    }
}

/// A limit as people say it: `$5.00 per day`.
fn shown(limit: &BudgetLimit) -> String {
    let amount = match limit.key.unit {
        BudgetUnit::Usd => format!("${}", MicroUsd(limit.amount)),
        unit => format!("{} {unit}", limit.amount),
    };
    match limit.key.window {
        WindowLength::Forever => amount,
        window => format!("{amount} per {window}"),
    }
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
            amount.map(|amount| BudgetLimit { key, amount, warn_at, ask_at })
        };
        all.into_iter().filter_map(limit).collect()
    }
}

/// For `#[serde(with = "money_text")]`.
mod money_text {
    use std::fmt;

    use clawnode_proto::money::MicroUsd;
    use serde::{
        Deserializer, Serializer,
        de::{Error, Unexpected, Visitor},
    };

    /// Writes it as text.
    #[expect(clippy::ref_option, reason = "serde passes a reference")]
    pub(super) fn serialize<S: Serializer>(
        value: &Option<MicroUsd>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.serialize_str(&value.to_string()),
            None => serializer.serialize_none(),
        }
    }

    /// Reads it from text.
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<MicroUsd>, D::Error> {
        deserializer.deserialize_str(MoneyVisitor).map(Some)
    }

    struct MoneyVisitor;

    impl Visitor<'_> for MoneyVisitor {
        type Value = MicroUsd;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an amount of USD as text, such as `\"5.00\"`")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<MicroUsd, E> {
            text.parse().map_err(E::custom)
        }

        fn visit_f64<E: Error>(self, number: f64) -> Result<MicroUsd, E> {
            Err(E::invalid_type(Unexpected::Float(number), &self))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{load::read_text as read, show};

    #[test]
    fn mistakes_are_named_with_their_place_and_what_to_do() {
        for (text, place, says) in [
            ("[budgets.cluster]\nusd_per_day = 5.00", ":2:15", "write an amount of USD as text"),
            ("[budgets.cluster]\nusd_per_day = 5", ":2:15", "write an amount of USD as text"),
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
        let of = |key: &str| configured.limits_of(&key.parse().unwrap()).to_vec();
        let limit = |unit, window, amount| BudgetLimit::new(unit, window, amount);
        assert_eq!(
            of("cluster"),
            [
                limit(BudgetUnit::Usd, WindowLength::Day, 5_500_000),
                limit(BudgetUnit::Loops, WindowLength::Hour, 50),
            ]
        );
        let tokens = limit(BudgetUnit::Tokens, WindowLength::Forever, 2_000_000);
        let lower = BudgetLimit { warn_at: 60, ask_at: 60, ..tokens };
        assert_eq!(of("agent:default"), [lower], "a warning comes before the question");
        assert_eq!(of("agent:other"), []);
        let cents = limit(BudgetUnit::Usd, WindowLength::Month, 1);
        assert_eq!(of("user:web:bot:ada"), [BudgetLimit { ask_at: 100, ..cents }]);
        let shown = format!("{:?}", show::settings(&loaded).unwrap());
        assert!(shown.contains("5.50") && shown.contains("budgets.cluster.usd_per_day"), "{shown}");
        assert_eq!(budgets.banner(), "budget $5.50 per day, 50 loops per hour");
    }

    #[test]
    fn without_a_limit_in_money_the_cluster_has_the_default() {
        let configured = |text: &str| read(text).unwrap().config.budgets.configured();
        let daily = BudgetLimit::new(BudgetUnit::Usd, WindowLength::Day, 5_000_000);
        let of_cluster = |it: &ConfiguredBudgets| it.limits_of(&AccountKey::Cluster).to_vec();
        let usual = configured("");
        assert!(usual.is_default && of_cluster(&usual) == [daily]);
        let loops = configured("[budgets.cluster]\nloops = 7\n");
        assert!(loops.is_default && of_cluster(&loops).contains(&daily));
        assert_eq!(of_cluster(&loops).len(), 2);
        let own = configured("[budgets.cluster]\nusd = \"7\"\n");
        assert!(!own.is_default && !of_cluster(&own).contains(&daily));
        let none = configured("[budgets]\ndefault = false\n");
        assert!(!none.is_default && of_cluster(&none).is_empty());
    }
}
