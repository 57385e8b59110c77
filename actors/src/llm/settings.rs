//! Settings that not every wire has: a call that asks for one which its wire does not have is not made.

use clawnode_proto::{
    llm::{ModelFailure, ModelRef, Sampling},
    model_route::{ModelRoute, RouteRefusal},
    tool_choice::ToolChoice,
};

use super::{
    ToolOffer,
    profile::{ModelProfile, ModelProfiles},
    prompt::not_sent,
};

/// A setting that not every wire has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    Stop,
    PresencePenalty,
    FrequencyPenalty,
    Seed,
    LogitBias,
    ToolChoice,
    ParallelToolCalls,
    TopK,
}

impl Setting {
    pub(super) const ALL: [Self; 8] = [
        Self::Stop,
        Self::PresencePenalty,
        Self::FrequencyPenalty,
        Self::Seed,
        Self::LogitBias,
        Self::ToolChoice,
        Self::ParallelToolCalls,
        Self::TopK,
    ];

    /// Its name in the API of OpenAI or Anthropic, which is where it comes from.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::PresencePenalty => "presence_penalty",
            Self::FrequencyPenalty => "frequency_penalty",
            Self::Seed => "seed",
            Self::LogitBias => "logit_bias",
            Self::ToolChoice => "tool_choice",
            Self::ParallelToolCalls => "parallel_tool_calls",
            Self::TopK => "top_k",
        }
    }

    /// Whether a model that takes no `temperature` may still take it.
    const fn is_of_words(self) -> bool {
        matches!(
            self,
            Self::PresencePenalty | Self::FrequencyPenalty | Self::LogitBias | Self::TopK
        )
    }

    fn is_in(self, sampling: &Sampling) -> bool {
        match self {
            Self::Stop => !sampling.stop.is_empty(),
            Self::PresencePenalty => sampling.presence_penalty.is_some(),
            Self::FrequencyPenalty => sampling.frequency_penalty.is_some(),
            Self::Seed => sampling.seed.is_some(),
            Self::LogitBias => !sampling.logit_bias.is_empty(),
            Self::ToolChoice => sampling.tool_choice.is_some(),
            // What every wire does by itself needs no setting.
            Self::ParallelToolCalls => sampling.parallel_tool_calls == Some(false),
            Self::TopK => sampling.top_k.is_some(),
        }
    }
}

// === impl ModelProfiles ===

impl ModelProfiles {
    /// The first of these settings that a model is known not to take. What a provider takes of which nothing is
    /// known shows when it is called.
    pub fn refused(&self, model: &ModelRef, sampling: &Sampling) -> Option<&'static str> {
        let wire = self.wire_of(model)?;
        refused(wire.settings(&model.model), sampling, &self.of(model)).map(Setting::name)
    }

    /// Whether any model may not take one of these settings.
    pub fn may_refuse(sampling: &Sampling) -> bool {
        Setting::ALL.into_iter().any(|setting| setting.is_in(sampling))
    }

    /// The rows of these whose model does not take one of these settings.
    pub fn route_refusals(&self, routes: &[ModelRoute], sampling: &Sampling) -> Vec<RouteRefusal> {
        let refusal = |(row, route): (u32, &ModelRoute)| {
            let setting = self.refused(&route.model, sampling)?.to_owned();
            Some(RouteRefusal { row, setting })
        };
        (1..).zip(routes).filter_map(refusal).collect()
    }
}

/// The first of these settings that a wire with `has` does not have, or this model does not take.
pub(super) fn refused(
    has: &[Setting],
    sampling: &Sampling,
    profile: &ModelProfile,
) -> Option<Setting> {
    let is_taken =
        |setting: &Setting| has.contains(setting) && (profile.sampling || !setting.is_of_words());
    Setting::ALL.into_iter().find(|setting| setting.is_in(sampling) && !is_taken(setting))
}

/// What a request says about calls of tools, as far as it offers any; refused if it asks for one that it
/// does not offer.
pub(super) fn choice_among<'a>(
    sampling: &'a Sampling,
    tools: &[ToolOffer],
) -> Result<Option<&'a ToolChoice>, ModelFailure> {
    let Some(choice) = &sampling.tool_choice else { return Ok(None) };
    let is_offered = match choice {
        ToolChoice::None if tools.is_empty() => return Ok(None),
        ToolChoice::None => true,
        ToolChoice::Required => !tools.is_empty(),
        ToolChoice::Tool { name } => tools.iter().any(|tool| tool.name == *name),
    };
    if is_offered {
        return Ok(Some(choice));
    }
    Err(not_sent("`tool_choice` asks for a call of a tool that is not offered"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::{Wire, profile::ProviderPlace};

    #[test]
    fn what_a_wire_does_not_have_is_named() {
        let profiles = ModelProfiles::default();
        let usual = profiles.of(&"openai/gpt-4o".parse().unwrap());
        assert!(usual.sampling);
        let reasons = ModelProfile { sampling: false, ..usual };
        let none = Sampling::default();
        let settings = [
            (Sampling { stop: vec!["END".to_owned()], ..none.clone() }, "stop", true),
            (Sampling { presence_penalty: Some(1.0), ..none.clone() }, "presence_penalty", false),
            (Sampling { frequency_penalty: Some(1.0), ..none.clone() }, "frequency_penalty", false),
            (Sampling { seed: Some(1), ..none.clone() }, "seed", true),
            (
                Sampling { logit_bias: [("1".to_owned(), 1.0)].into(), ..none.clone() },
                "logit_bias",
                false,
            ),
            (Sampling { tool_choice: Some(ToolChoice::None), ..none.clone() }, "tool_choice", true),
            (
                Sampling { parallel_tool_calls: Some(false), ..none.clone() },
                "parallel_tool_calls",
                true,
            ),
            (Sampling { top_k: Some(40), ..none.clone() }, "top_k", false),
        ];
        for (sampling, name, by_all) in settings {
            assert!(ModelProfiles::may_refuse(&sampling), "{name}");
            assert_eq!(refused(&[], &sampling, &usual).map(Setting::name), Some(name));
            assert_eq!(refused(&Setting::ALL, &sampling, &usual), None, "{name}");
            assert_eq!(refused(&Setting::ALL, &sampling, &reasons).is_none(), by_all, "{name}");
        }
        assert!(!ModelProfiles::may_refuse(&none));
        assert_eq!(refused(&[], &none, &usual), None);
        let parallel = Sampling { parallel_tool_calls: Some(true), ..none };
        assert_eq!(refused(&[], &parallel, &usual), None, "each wire does that by itself");
    }

    #[test]
    fn what_a_model_takes_follows_from_the_wire_of_its_provider() {
        let places = [
            ("box", ProviderPlace::new(Wire::OpenaiResponses, None)),
            // It has the name of another wire.
            ("anthropic", ProviderPlace::new(Wire::Openai, None)),
        ];
        let places = places.map(|(name, place)| (name.to_owned(), place));
        let profiles = ModelProfiles::default().with_providers(places.into());
        let seed = Sampling { seed: Some(1), ..Sampling::default() };
        let forced = Sampling { tool_choice: Some(ToolChoice::Required), ..Sampling::default() };
        let top_k = Sampling { top_k: Some(40), ..Sampling::default() };
        for (model, sampling, setting) in [
            ("box/gpt-4o", &seed, Some("seed")),
            ("box/gpt-4o", &forced, None),
            ("anthropic/claude-sonnet-4-5", &seed, None),
            ("bedrock/amazon.nova-lite-v1:0", &seed, Some("seed")),
            ("bedrock/amazon.nova-lite-v1:0", &top_k, None),
            ("bedrock/anthropic.claude-sonnet-4-5-v1:0", &top_k, None),
            // Where it takes that is not known: it is not asked instead of another model.
            ("bedrock/cohere.command-r-v1:0", &top_k, Some("top_k")),
            ("ollama/llama3.2", &forced, Some("tool_choice")),
            ("demo/echo", &seed, None),
            ("demo/echo", &forced, Some("tool_choice")),
            ("elsewhere/model", &seed, None),
        ] {
            let found = profiles.refused(&model.parse().unwrap(), sampling);
            assert_eq!(found, setting, "{model}");
        }
    }
}
