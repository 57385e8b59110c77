//! All providers by name: those of the configuration, and four that need none.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use clawnode_cluster::Clock;
use clawnode_proto::llm::{ModelFailure, ModelRef};
use futures_util::future::BoxFuture;

use super::{
    Model,
    aws::Aws,
    call::{Provider, ProviderParts},
    circuit::Circuits,
    demo::{self, Demo},
    failure_text::ProviderName,
    http::Http,
    machine_role::AwsSigner,
    options::{BaseUrl, Lookup, MAX_CALLS, OptionsError, ProviderOptions},
    profile::{ModelProfiles, ProviderPlace},
    protocols::{WireParts, rows},
    wire::Wire,
};

/// The providers of a process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Models {
    entries: Arc<BTreeMap<String, ModelEntry>>,
    circuits: Circuits,
}

#[derive(Debug)]
struct ModelEntry {
    model: Result<Arc<dyn Model>, Arc<OptionsError>>,
    configured: bool,
    is_demo: bool,
    /// How often it is probed.
    probe: Option<Duration>,
    max_calls: u32,
}

/// What clients are made of, beside their options.
struct ClientParts<'a> {
    profiles: &'a ModelProfiles,
    lookup: Lookup<'a>,
    clock: &'a Arc<dyn Clock>,
    circuits: &'a Circuits,
    /// Those that the process had before.
    before: &'a Circuits,
}

/// A model that cannot be called, and why.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// No such provider.
    #[error("unknown provider `{name}`: there are {known}")]
    UnknownProvider {
        /// What was asked for.
        name: String,
        /// Those that exist, for people.
        known: String,
    },
    /// The provider exists, but cannot be used as it is configured.
    #[error("provider `{name}` cannot be used")]
    Unusable {
        /// Which one.
        name: String,
        /// What is wrong with its options.
        #[source]
        source: Arc<OptionsError>,
    },
}

// === impl Models ===

impl Models {
    /// The `configured` providers, and beside them `anthropic`, `openai`, `ollama` and `demo` as
    /// the vendors' own environment variables have them; a configured one of the same name wins.
    /// `lookup` reads the environment. A provider that lacks something is kept and says so when it
    /// is asked for.
    pub fn new(
        configured: BTreeMap<String, ProviderOptions>,
        lookup: &(dyn Fn(&str) -> Option<String> + Sync),
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let before = Circuits::default();
        Self::with(configured, &ModelProfiles::default(), lookup, clock, &before)
    }

    /// The same, with what the configuration says of models, and the circuits that the process had
    /// `before`: those of providers at the same address stay as they are.
    pub fn with(
        configured: BTreeMap<String, ProviderOptions>,
        profiles: &ModelProfiles,
        lookup: &(dyn Fn(&str) -> Option<String> + Sync),
        clock: &Arc<dyn Clock>,
        before: &Circuits,
    ) -> Self {
        let circuits = Circuits::default();
        let from = ClientParts { profiles, lookup, clock, circuits: &circuits, before };
        let mut providers: BTreeMap<String, ModelEntry> = builtin(lookup)
            .into_iter()
            .map(|(name, options)| {
                let entry = ModelEntry::new(&name, options, &from, false);
                (name, entry)
            })
            .collect();
        for (name, options) in configured {
            let entry = ModelEntry::new(&name, options.located(lookup), &from, true);
            providers.insert(name, entry);
        }
        Self { entries: Arc::new(providers), circuits }
    }

    /// The circuits of the providers.
    pub const fn circuits(&self) -> &Circuits {
        &self.circuits
    }

    /// The client for a model. Whether its provider knows the model shows when it is called.
    pub fn resolve(&self, model: &ModelRef) -> Result<Arc<dyn Model>, ResolveError> {
        let Some(entry) = self.entries.get(&model.provider) else {
            let known: Vec<_> = self.names().map(|name| format!("`{name}`")).collect();
            let (name, known) = (model.provider.clone(), known.join(", "));
            return Err(ResolveError::UnknownProvider { name, known });
        };
        match &entry.model {
            Ok(client) => Ok(client.clone()),
            Err(source) => {
                let (name, source) = (model.provider.clone(), source.clone());
                Err(ResolveError::Unusable { name, source })
            }
        }
    }

    /// The providers that are to be probed, and how often.
    pub fn probed(&self) -> impl Iterator<Item = (&str, Duration)> {
        self.entries.iter().filter_map(|(name, entry)| Some((name.as_str(), entry.probe?)))
    }

    /// Asks whether the provider of this name can be reached; none if it cannot be asked.
    pub fn probe(&self, name: &str) -> Option<BoxFuture<'static, Result<(), ModelFailure>>> {
        self.entries.get(name)?.model.as_ref().ok()?.probe()
    }

    /// Refuses a model that its provider is known not to have, without asking the provider.
    pub fn check(&self, model: &ModelRef) -> Result<(), ModelFailure> {
        let is_demo = self.entries.get(&model.provider).is_some_and(|entry| entry.is_demo);
        if is_demo { demo::check(&model.model) } else { Ok(()) }
    }

    /// How many calls this process makes of a provider at a time.
    pub(crate) fn max_calls_of(&self, provider: &str) -> u32 {
        self.entries.get(provider).map_or(MAX_CALLS, |entry| entry.max_calls)
    }

    /// The names of all providers.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The configured providers that cannot be used, for a check at start.
    pub fn problems(&self) -> Vec<ResolveError> {
        let broken = self.entries.iter().filter(|(_, entry)| entry.configured);
        let error = |(name, entry): (&String, &ModelEntry)| {
            let source = entry.model.as_ref().err()?.clone();
            Some(ResolveError::Unusable { name: name.clone(), source })
        };
        broken.filter_map(error).collect()
    }
}

impl ModelEntry {
    fn new(
        name: &str,
        options: Result<ProviderOptions, OptionsError>,
        from: &ClientParts<'_>,
        configured: bool,
    ) -> Self {
        let is_demo = options.as_ref().is_ok_and(|options| options.wire == Wire::Demo);
        let probe = options.as_ref().ok().and_then(|options| options.probe);
        let max_calls = options.as_ref().map_or(MAX_CALLS, |options| options.max_calls);
        let model = options.and_then(|options| client(name, options, from));
        let model = model.map_err(Arc::new);
        Self { model, configured, is_demo, probe, max_calls }
    }
}

/// Where providers are, by name: the `configured` ones, and those that need no configuration. `lookup` reads the
/// environment, which may name an address. One whose options are refused is left out.
pub fn provider_places(
    configured: &BTreeMap<String, ProviderOptions>,
    lookup: &(dyn Fn(&str) -> Option<String> + Sync),
) -> BTreeMap<String, ProviderPlace> {
    let mut all = builtin(lookup);
    let of_settings =
        configured.iter().map(|(name, provider)| (name.clone(), provider.clone().located(lookup)));
    all.extend(of_settings);
    let place = |provider: &ProviderOptions| {
        let url = provider.url();
        ProviderPlace::new(provider.wire, url.as_ref().map(BaseUrl::host))
    };
    all.into_iter().filter_map(|(name, provider)| Some((name, place(&provider.ok()?)))).collect()
}

/// Providers that need no configuration, under names that people expect.
fn builtin(lookup: Lookup<'_>) -> BTreeMap<String, Result<ProviderOptions, OptionsError>> {
    let named = rows().filter_map(|row| Some((row.provider?.to_owned(), row.built_in(lookup))));
    let demo = ("demo".to_owned(), Ok(ProviderOptions::new(Wire::Demo)));
    named.chain([demo]).collect()
}

fn client(
    name: &str,
    options: ProviderOptions,
    from: &ClientParts<'_>,
) -> Result<Arc<dyn Model>, OptionsError> {
    options.check()?;
    let (Some(row), Some(usual)) = (options.wire.row(), options.url()) else {
        return if options.probe.is_some() {
            Err(OptionsError::NoProbe)
        } else {
            Ok(Arc::new(Demo))
        };
    };
    let aws = row.is_of_aws.then(|| Aws::read(&options, from.lookup)).transpose()?;
    let signs = aws.as_ref().is_some_and(Aws::signs);
    let key = if signs { None } else { options.key(from.lookup)? };
    let regional = aws.as_ref().filter(|_| options.base_url.is_none()).and_then(Aws::bedrock);
    let base = regional.unwrap_or(usual);
    let circuit = from.circuits.of(name, &base.to_string(), from.before, from.clock);
    // What no text from outside may show.
    let token = || aws.as_ref()?.keys.as_ref()?.session_token.clone();
    let sent = key.clone().or_else(token);
    let http = Http::new(&options, sent, Arc::clone(from.clock), circuit);
    let profiles = from.profiles.clone();
    let named = ProviderName {
        name: name.to_owned(),
        url: base.to_string(),
        key_setting: aws
            .as_ref()
            .and_then(|aws| aws.key_setting(name))
            .unwrap_or_else(|| options.key_setting(name)),
    };
    let parts = WireParts {
        base: base.clone(),
        key,
        max_tokens: options.max_tokens,
        aws: aws.map(AwsSigner::new),
    };
    let embeds = row.embeds.map(|embeds| embeds(parts.clone()));
    let (reads, dialect) = (row.reads, (row.dialect)(parts));
    if options.probe.is_some() && dialect.probe().is_none() {
        return Err(OptionsError::NoProbe);
    }
    let parts = ProviderParts { reads, dialect, embeds, options, base, named, http, profiles };
    Ok(Arc::new(Provider::new(parts)))
}

#[cfg(test)]
mod tests {
    use clawnode_cluster::SystemClock;
    use clawnode_proto::ErrorChain;

    use super::*;

    fn models(configured: &[(&str, &str)], env: &[(&str, &str)]) -> Models {
        let configured = configured
            .iter()
            .map(|(name, json)| ((*name).to_owned(), serde_json::from_str(json).unwrap()))
            .collect();
        let env: BTreeMap<_, _> = env.iter().copied().collect();
        let lookup = |name: &str| env.get(name).map(|&value| value.to_owned());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        Models::new(configured, &lookup, &clock)
    }

    fn why(models: &Models, model: &str) -> String {
        ErrorChain(&models.resolve(&model.parse().unwrap()).unwrap_err()).to_string()
    }

    #[test]
    fn without_configuration_there_are_four_and_a_missing_key_is_named() {
        let models = models(&[], &[("OPENAI_API_KEY", "sk-hunter2")]);
        for usable in ["openai/gpt", "ollama/a/b:c", "demo/echo"] {
            models.resolve(&usable.parse().unwrap()).unwrap();
        }
        assert!(why(&models, "anthropic/claude").contains("ANTHROPIC_API_KEY"));
        let unknown = why(&models, "antropic/claude");
        assert!(unknown.contains("`antropic`") && unknown.contains("`anthropic`"), "{unknown}");
        assert!(models.problems().is_empty(), "a provider without settings is no problem");
        assert!(!format!("{models:?}").contains("hunter2"));
    }

    #[test]
    fn configuration_wins_and_its_mistakes_are_listed() {
        let models = models(
            &[
                ("openai", r#"{"wire":"demo"}"#),
                ("groq", r#"{"wire":"openai","base_url":"http://h/v1","api_key_env":"GROQ"}"#),
            ],
            &[],
        );
        models.resolve(&"openai/echo".parse().unwrap()).unwrap();
        let problems: Vec<_> =
            models.problems().iter().map(|e| ErrorChain(e).to_string()).collect();
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("`groq`") && problems[0].contains("`GROQ`"), "{problems:?}");
    }

    /// The address in the environment counts where a section names none, and brings its key.
    #[test]
    fn a_section_without_an_address_asks_where_the_environment_says() {
        let env = [("OPENAI_BASE_URL", "http://elsewhere/v1"), ("OPENAI_API_KEY", "k")];
        let models = models(
            &[
                ("openai", r#"{"wire":"openai","retries":0}"#),
                ("own", r#"{"wire":"openai","base_url":"http://own/v1"}"#),
                ("file", r#"{"wire":"openai","api_key_file":"/nowhere"}"#),
                ("anthropic", r#"{"wire":"anthropic","api_key":"x"}"#),
            ],
            &env,
        );
        let found = |model: &str| format!("{:?}", models.resolve(&model.parse().unwrap()).unwrap());
        assert!(found("openai/m").contains("elsewhere"), "{}", found("openai/m"));
        assert!(found("own/m").contains("http://own/v1") && !found("own/m").contains("elsewhere"));
        assert!(
            found("anthropic/m").contains("api.anthropic.com"),
            "another variable is for others"
        );
        assert!(
            why(&models, "file/m").contains("/nowhere"),
            "the key that the section names counts"
        );
    }

    #[test]
    fn a_bad_address_in_the_environment_is_named() {
        let models = models(
            &[("claude", r#"{"wire":"anthropic","api_key":"k"}"#)],
            &[
                ("ANTHROPIC_BASE_URL", "http://u:hunter2@h"),
                ("ANTHROPIC_API_KEY", "k"),
                ("OLLAMA_HOST", "http://"),
            ],
        );
        let error = why(&models, "anthropic/claude");
        assert!(error.contains("ANTHROPIC_BASE_URL") && !error.contains("hunter2"), "{error}");
        assert!(why(&models, "ollama/m").contains("OLLAMA_HOST"));
        assert!(why(&models, "claude/m").contains("ANTHROPIC_BASE_URL"), "not the vendor instead");
    }
}
