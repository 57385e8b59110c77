//! Settings of prices.

use std::collections::BTreeMap;

use clawnode_proto::{model::ModelPrice, money::MicroUsd};
use serde::{Deserialize, Serialize};

use super::{
    models::{ModelFault, PATTERNS, pattern_fault},
    usd,
};

/// `[prices."PROVIDER/PATTERN"]`: what models cost whose `PROVIDER/MODEL` fits the pattern (`*` is any
/// characters, `?` is one), in USD for a million tokens. The most specific pattern decides; it goes before the
/// built-in table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceSection {
    /// Tokens that the model reads.
    #[serde(with = "usd::required")]
    pub input: MicroUsd,
    /// Tokens that the model writes.
    #[serde(with = "usd::required")]
    pub output: MicroUsd,
    /// Tokens read from the provider's cache. As `input` unless set.
    #[serde(default, with = "usd", skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<MicroUsd>,
    /// Tokens written to the provider's cache. As `input` unless set.
    #[serde(default, with = "usd", skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<MicroUsd>,
}

/// The first thing that is wrong with these, if anything is. `providers` are those that there are.
pub(super) fn check(
    prices: &BTreeMap<String, PriceSection>,
    providers: &BTreeMap<&str, bool>,
) -> Option<ModelFault> {
    if prices.len() > PATTERNS {
        let what = format!("{} patterns, at most {PATTERNS}", prices.len());
        let hint = "combine some: patterns may contain `*` and `?`".to_owned();
        return Some(ModelFault { pattern: String::new(), key: "", what, hint });
    }
    prices.keys().find_map(|pattern| {
        let (what, hint) = pattern_fault(pattern, providers)?;
        Some(ModelFault { pattern: pattern.clone(), key: "", what, hint })
    })
}

// === impl PriceSection ===

impl PriceSection {
    /// The same as models' clients take it.
    pub fn to_price(self) -> ModelPrice {
        let Self { input, output, cache_read, cache_write } = self;
        ModelPrice {
            input: input.0,
            output: output.0,
            cache_read: cache_read.unwrap_or(input).0,
            cache_write: cache_write.unwrap_or(input).0,
        }
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::llm::ModelRef;

    use super::*;
    use crate::config::{load::read_text as read, show};

    #[test]
    fn prices_are_text_and_mistakes_say_what_to_write() {
        for (lines, says) in [
            ("input = 0.5\noutput = \"1\"", "such as `\"0.50\"`"),
            ("input = 3\noutput = \"1\"", "such as `\"0.50\"`"),
            ("input = \"-1\"\noutput = \"1\"", "never negative"),
            ("input = \"$0.50\"\noutput = \"1\"", "write `0.50`"),
            ("input = \"0.1234567\"\noutput = \"1\"", "write `0.123456`"),
            ("input = \"1e9\"\noutput = \"1\"", "only digits"),
            ("input = \"99999999999\"\noutput = \"1\"", "at most 1000000000"),
            ("input = \"1\"", "`output` is missing"),
            ("input = \"1\"\noutput = \"1\"\ncached = \"1\"", "unknown key `cached`"),
        ] {
            let error = read(&format!("[prices.\"ollama/*\"]\n{lines}\n")).unwrap_err();
            let shown = format!("{error} ({})", error.hint);
            assert!(shown.contains(says), "{lines}: {shown}");
        }
        for (pattern, says) in
            [("ollama", "not a pattern of `PROVIDER/MODEL`"), ("olama/*", "did you mean `ollama`?")]
        {
            let text = format!("[prices.\"{pattern}\"]\ninput = \"1\"\noutput = \"1\"\n");
            let error = read(&text).unwrap_err();
            let shown = format!("{error} ({})", error.hint);
            assert!(shown.contains(says), "{shown}");
        }
    }

    #[test]
    fn what_is_not_said_of_the_cache_costs_what_the_input_costs() {
        let loaded = read(
            "[prices.\"ollama/*\"]\ninput = \"0.50\"\noutput = \"1.5\"\n\
             [prices.\"ollama/q*\"]\ninput = \"3\"\noutput = \"15\"\ncache_read = \"0.30\"\n\
             cache_write = \"3.75\"\n\
             [models.\"ollama/q*\"]\nwindow_tokens = 9000\n",
        )
        .unwrap();
        let shown = format!("{:?}", show::settings(&loaded).unwrap());
        assert!(shown.contains("\"3.75\"") && shown.contains("\"0.50\""), "{shown}");
        let profiles = crate::node::agents_and_models::profiles(&loaded.config, &|_| None).unwrap();
        let price = |model: &str| {
            let model: ModelRef = model.parse().unwrap();
            profiles.call_price(&model).known().unwrap()
        };
        let all = ModelPrice {
            input: 500_000,
            output: 1_500_000,
            cache_read: 500_000,
            cache_write: 500_000,
        };
        assert_eq!(price("ollama/llama3.2"), all);
        let own = ModelPrice {
            input: 3_000_000,
            output: 15_000_000,
            cache_read: 300_000,
            cache_write: 3_750_000,
        };
        assert_eq!(price("ollama/qwen3"), own);
        assert_eq!(profiles.of(&"ollama/qwen3".parse().unwrap()).window_tokens, 9_000);
    }

    #[test]
    fn a_provider_of_the_user_s_own_costs_nothing_unless_it_has_a_price() {
        let loaded = read(
            "[providers.box]\nwire = \"openai\"\nbase_url = \"http://192.168.1.5:8000/v1\"\n\
             [providers.far]\nwire = \"openai\"\nbase_url = \"https://llm.example.com/v1\"\n\
             [prices.\"box/paid\"]\ninput = \"1\"\noutput = \"2\"\n",
        )
        .unwrap();
        let at = |url: &'static str| {
            move |name: &str| (name == "OPENAI_BASE_URL").then(|| url.to_owned())
        };
        let profiles_at =
            |url| crate::node::agents_and_models::profiles(&loaded.config, &at(url)).unwrap();
        let profiles = profiles_at("http://127.0.0.1:8000/v1");
        let price = |model: &str| profiles.call_price(&model.parse().unwrap()).known();
        assert_eq!(price("box/gpt-4o"), Some(ModelPrice::FREE));
        assert_eq!(price("box/paid").map(|price| price.output), Some(2_000_000));
        assert_eq!(price("far/unheard-of"), None);
        assert_eq!(price("openai/unheard-of"), Some(ModelPrice::FREE), "as the environment has it");
        let vendor = profiles_at("https://api.openai.com/v1");
        assert_eq!(vendor.call_price(&"openai/unheard-of".parse().unwrap()).known(), None);
    }
}
