//! What a call costs. Pure.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, PoisonError},
};

use clawnode_proto::{
    llm::ModelRef,
    model::ModelPrice,
    model_route::{ModelRoute, RouteCost},
    money::MicroUsd,
    reasoning::Reasoning,
};
use tracing::warn;

use super::{ModelProfiles, table};
use crate::llm::Wire;

/// Providers that ask no money.
const FREE: [&str; 2] = ["demo", "ollama"];
/// The cap on output where nothing is known of the model, and no setting says one.
const UNKNOWN_OUTPUT: u32 = 8_192;
/// The part of a window that such a cap may be: one in so many.
const UNKNOWN_SHARE: u32 = 4;
/// Models that are remembered as warned about.
const WARNED_MAX: usize = 1_000;
/// Ends of names of machines that no public provider has.
const PRIVATE_NAMES: [&str; 5] = [".localhost", ".local", ".internal", ".lan", ".home.arpa"];

/// What the tokens of a call cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPrice {
    /// So much.
    Known(ModelPrice),
    /// Nothing is known of it. The dearest price of its wire that is known is used instead.
    Unknown(ModelPrice),
}

/// What is known of a provider that says what its models cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderPlace {
    /// The wire that it speaks.
    pub wire: Wire,
    /// Whether it is a machine of the user's own: at a loopback or private address, or nowhere.
    pub is_local: bool,
}

/// What settings say of the longest reply of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LongestReply {
    /// Tokens of its text at most; absent: as many as its model usually has.
    pub max_tokens: Option<u32>,
    /// How much the model thinks beside that.
    pub reasoning: Option<Reasoning>,
}

// === impl CallPrice ===

impl CallPrice {
    /// The price to hold.
    pub const fn held(self) -> ModelPrice {
        match self {
            Self::Known(price) | Self::Unknown(price) => price,
        }
    }

    /// The price, if it is known.
    pub const fn known(self) -> Option<ModelPrice> {
        match self {
            Self::Known(price) => Some(price),
            Self::Unknown(_) => None,
        }
    }
}

// === impl ProviderPlace ===

impl ProviderPlace {
    /// A provider of this wire on this host; `None` is nowhere, as the demo is.
    pub fn new(wire: Wire, host: Option<&str>) -> Self {
        Self { wire, is_local: host.is_none_or(is_private_host) }
    }
}

// === impl ModelProfiles ===

impl ModelProfiles {
    /// The same, with where providers are, by name. Those of which nothing is known are public.
    #[must_use]
    pub fn with_providers(mut self, places: BTreeMap<String, ProviderPlace>) -> Self {
        self.places = Arc::new(places);
        self
    }

    /// The wire of a model's provider, if anything is known of that.
    pub(in crate::llm) fn wire_of(&self, model: &ModelRef) -> Option<Wire> {
        let place = self.places.get(&model.provider).map(|place| place.wire);
        place.or_else(|| Wire::of_provider(&model.provider, None))
    }

    /// What the tokens of a call of this model cost: what the configuration says, then nothing where no one
    /// bills, then what its vendor asks for it by the table.
    pub fn call_price(&self, model: &ModelRef) -> CallPrice {
        let place = self.places.get(&model.provider);
        let is_free = FREE.contains(&model.provider.as_str());
        let is_free = is_free || place.is_some_and(|place| place.is_local);
        let free = || is_free.then_some(ModelPrice::FREE);
        let known = self.configured_price(model).or_else(free).or_else(|| self.of(model).price);
        known.map_or_else(
            || CallPrice::Unknown(table::dearest(self.wire_of(model))),
            CallPrice::Known,
        )
    }

    /// What a call with so many tokens would cost at most by each of these rows that has a limit and whose model
    /// has a price.
    pub fn route_costs(
        &self,
        routes: &[ModelRoute],
        tokens: u64,
        longest: LongestReply,
    ) -> Vec<RouteCost> {
        let limited = (1..).zip(routes).filter(|(_, route)| route.max_usd.is_some());
        let cost = |(row, route): (u32, &ModelRoute)| {
            let most = self.most_of_call(&route.model, tokens, longest)?;
            Some(RouteCost { row, most })
        };
        limited.filter_map(cost).collect()
    }

    /// The most that a call of this model with so many tokens costs. Nothing if the model has no price.
    fn most_of_call(
        &self,
        model: &ModelRef,
        tokens: u64,
        longest: LongestReply,
    ) -> Option<MicroUsd> {
        let price = self.call_price(model).known()?;
        let window = self.window(model);
        let reply = longest.max_tokens.or_else(|| self.of(model).reply_in(window));
        let reply = reply.map_or_else(|| unknown_output(window), u64::from);
        let thoughts = longest.reasoning.map_or(0, Reasoning::budget);
        // More than its window holds is left out.
        let input = tokens.min(u64::from(window));
        Some(price.most(input, reply.saturating_add(u64::from(thoughts))))
    }

    /// Says once for each model that the dearest price of its wire is taken for it.
    pub fn warn_unpriced(&self, model: &ModelRef) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.len() >= WARNED_MAX || !warned.insert(model.clone()) {
            return;
        }
        let lines = price_lines(model);
        warn!(%model, "the model has no price, so the dearest one counts; set it in the configuration:\n{lines}");
    }
}

/// The cap on output of a model of which nothing but its window is known.
pub(crate) fn unknown_output(window_tokens: u32) -> u64 {
    u64::from(UNKNOWN_OUTPUT.min(window_tokens / UNKNOWN_SHARE).max(1))
}

/// What people read of a call that a limit in money refuses, because its model has no price. `limit` is what
/// limits it: `account cluster`, `turn`.
pub fn unpriced(model: &ModelRef, limit: &str) -> String {
    format!("`{model}` has no price, and the {limit} has a limit in USD")
}

/// How people give a price to a model, for hints: the lines of the configuration.
pub fn price_lines(model: &ModelRef) -> String {
    let key = format!("{model}").replace('\\', "\\\\").replace('"', "\\\"");
    format!("[prices.\"{key}\"]\ninput = \"0.50\"   # USD for a million tokens\noutput = \"1.50\"")
}

/// Whether a host can only be reached from within the user's own networks.
fn is_private_host(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    if let Ok(address) = host.parse::<IpAddr>() {
        return is_private(address.to_canonical());
    }
    let name = host.to_ascii_lowercase();
    // A name without a point is one of this machine, of a container, or of the local network.
    !name.contains('.') || PRIVATE_NAMES.iter().any(|end| name.ends_with(end))
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            // 100.64.0.0/10: behind a carrier's NAT, and in overlay networks.
            let is_shared = first == 100 && (64..128).contains(&second);
            address.is_loopback()
                || address.is_private()
                || address.is_link_local()
                || address.is_unspecified()
                || is_shared
        }
        IpAddr::V6(address) => {
            address.is_loopback()
                || address.is_unique_local()
                || address.is_unicast_link_local()
                || address.is_unspecified()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::profile::ModelOverride;

    const OWN: ModelPrice = ModelPrice { input: 1, output: 2, cache_read: 3, cache_write: 4 };

    fn profiles() -> ModelProfiles {
        let priced = ModelOverride { price: Some(OWN), ..ModelOverride::default() };
        let overrides = [("box/priced*", priced.clone()), ("openai/gpt-4o", priced)];
        let overrides = overrides.map(|(name, price)| (name.to_owned(), price));
        let places = [
            ("box", ProviderPlace::new(Wire::Openai, Some("10.1.2.3"))),
            ("far", ProviderPlace::new(Wire::Openai, Some("api.example.com"))),
            ("claude", ProviderPlace::new(Wire::Anthropic, Some("api.example.com"))),
        ];
        let places = places.map(|(name, place)| (name.to_owned(), place));
        ModelProfiles::new(BTreeMap::from(overrides)).with_providers(BTreeMap::from(places))
    }

    fn price(model: &str) -> CallPrice {
        profiles().call_price(&model.parse().unwrap())
    }

    #[test]
    fn the_configuration_goes_before_the_place_and_the_place_before_the_table() {
        assert_eq!(price("box/priced-1"), CallPrice::Known(OWN));
        assert_eq!(price("openai/gpt-4o"), CallPrice::Known(OWN));
        for free in ["box/gpt-4o", "box/anything", "ollama/llama3.2", "demo/echo"] {
            assert_eq!(price(free), CallPrice::Known(ModelPrice::FREE), "{free}");
        }
        let CallPrice::Known(known) = price("openai/gpt-4o-mini") else { panic!("not known") };
        assert_eq!((known.input, known.output), (150_000, 600_000));
        assert_eq!(price("far/gpt-4o-mini"), CallPrice::Known(known));
    }

    #[test]
    fn a_model_without_a_price_costs_the_dearest_of_its_wire() {
        let CallPrice::Unknown(of_all) = price("far/something") else { panic!("known") };
        let CallPrice::Unknown(of_claude) = price("claude/something") else { panic!("known") };
        let CallPrice::Unknown(of_gemini) = price("gemini/something") else { panic!("known") };
        // Claude 3 Opus.
        assert_eq!((of_claude.input, of_claude.output), (15_000_000, 75_000_000));
        assert!(of_gemini.output < of_claude.output && of_gemini.output > 0, "{of_gemini:?}");
        assert!(of_all.output >= of_claude.output, "{of_all:?}");
        assert_eq!(price("claude/something").known(), None);
    }

    #[test]
    fn a_call_costs_at_most_its_prompt_and_its_longest_reply() {
        let most = |model: &str, tokens, max_tokens, reasoning| {
            let model = model.parse().unwrap();
            let longest = LongestReply { max_tokens, reasoning };
            profiles().most_of_call(&model, tokens, longest).map(|price| price.0)
        };
        let mini = "far/gpt-4o-mini";
        assert_eq!(
            most(mini, 1_000_000, Some(1), None).unwrap(),
            most(mini, 128_000, Some(1), None).unwrap()
        );
        assert_eq!(most(mini, 100_000, Some(10_000), None), Some(15_000 + 6_000));
        let tokens = Some(Reasoning::Tokens(5_000));
        assert_eq!(most(mini, 100_000, Some(10_000), tokens), Some(15_000 + 9_000));
        assert!(most(mini, 0, None, None).unwrap() > 0, "its reply has a cap of its own");
        assert_eq!(most("ollama/llama3.2", 100_000, None, None), Some(0));
        assert_eq!(most("far/something", 1, None, None), None);
    }

    #[test]
    fn only_addresses_of_the_user_s_own_networks_are_private() {
        for host in [
            "127.0.0.1",
            "10.0.0.7",
            "172.16.0.1",
            "192.168.1.9",
            "169.254.1.1",
            "100.64.0.1",
            "0.0.0.0",
            "[::1]",
            "[fd12::1]",
            "[fe80::1]",
            "[::ffff:10.0.0.1]",
            "localhost",
            "ollama",
            "gpu.local",
            "vllm.internal",
            "LOCALHOST.",
            "box.home.arpa",
        ] {
            assert!(is_private_host(host), "{host}");
        }
        for host in [
            "8.8.8.8",
            "172.32.0.1",
            "100.128.0.1",
            "[2606:4700::1]",
            "[::ffff:8.8.8.8]",
            "api.openai.com",
            "local.example.com",
            "internal.example",
            "mylocal.com",
        ] {
            assert!(!is_private_host(host), "{host}");
        }
    }

    #[test]
    fn the_lines_that_price_a_model_are_toml() {
        let model: ModelRef = "openrouter/a/\"b\"".parse().unwrap();
        let lines = price_lines(&model);
        assert!(lines.starts_with("[prices.\"openrouter/a/\\\"b\\\"\"]\n"), "{lines}");
        assert!(unpriced(&model, "account cluster").contains("the account cluster has a limit"));
    }
}
