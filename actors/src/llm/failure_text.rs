//! What a failed call tells people besides the provider's own words: which provider it was, where it
//! is, and what to do.

use clawnode_proto::llm::{FailureClass, ModelFailure};

/// What a failure says whose call took longer than it may with all its tries.
pub(super) const NO_END: &str = "no end within";

/// What people call a provider.
#[derive(Clone, Debug)]
pub(super) struct ProviderName {
    /// Its name in the configuration.
    pub(super) name: String,
    /// Where it is, without secrets.
    pub(super) url: String,
    /// The environment variable or the setting that holds its key.
    pub(super) key_setting: String,
}

// === impl ProviderName ===

impl ProviderName {
    /// The failure of a call of `model`, with all of that. `has_tools`: whether the model was offered any.
    pub(super) fn explain(
        &self,
        failure: ModelFailure,
        model: &str,
        has_tools: bool,
    ) -> ModelFailure {
        let advice = self.advice(&failure, model, has_tools);
        self.named(failure, &advice)
    }

    /// The failure of a request for embeddings of `model`, with all of that.
    pub(super) fn explain_embedding(&self, failure: ModelFailure, model: &str) -> ModelFailure {
        let advice = match (failure.class, failure.status) {
            (FailureClass::Rejected, Some(404)) => format!(
                ": does it have the model `{model}` for embeddings? Choose another in `[embeddings] models` or \
                 `[memory] embeddings`"
            ),
            _ => self.advice(&failure, model, false),
        };
        self.named(failure, &advice)
    }

    fn named(&self, mut failure: ModelFailure, advice: &str) -> ModelFailure {
        let message = failure.message.trim_end().trim_end_matches('.');
        let Self { name, url, .. } = self;
        failure.message = format!("{message}. Provider `{name}` at {url}{advice}");
        failure
    }

    fn advice(&self, failure: &ModelFailure, model: &str, has_tools: bool) -> String {
        let name = &self.name;
        let is_local =
            ["://localhost", "://127.", "://[::1]"].iter().any(|at| self.url.contains(at));
        match (failure.class, failure.status) {
            (FailureClass::Unauthorized, _) => {
                format!(" refused its key: check `{}`", self.key_setting)
            }
            (FailureClass::Unreachable, _) if name == "ollama" => {
                ": is `ollama serve` running?".to_owned()
            }
            (FailureClass::Unreachable, _) if is_local => {
                format!(": is that server running? Its address is `providers.{name}.base_url`")
            }
            (FailureClass::Unreachable, _) => {
                format!(": check the network and `providers.{name}.base_url`")
            }
            (FailureClass::Rejected, Some(404)) => format!(
                ": does it have the model `{model}`? Choose another with `--model` or the agent's `model`"
            ),
            (FailureClass::Rejected, Some(402)) => ": check the account's balance".to_owned(),
            (FailureClass::Rejected, _) if failure.too_long.is_some() && has_tools => {
                ": send less, choose a model that reads more, or have the agent write down its work with \
                 the tool `ledger_append`"
                    .to_owned()
            }
            // Entries take the place of calls of tools, and a request for a summary has none.
            (FailureClass::Rejected, _) if failure.too_long.is_some() => {
                ": send less, or choose a model that reads more".to_owned()
            }
            (FailureClass::RateLimited | FailureClass::Overloaded, _) => {
                ": it may answer again later".to_owned()
            }
            (FailureClass::Timeout, _) => {
                let limit = if failure.message.contains(NO_END) { "total" } else { "idle" };
                format!(": send the message again, or raise `providers.{name}.{limit}_timeout`")
            }
            (FailureClass::BrokenStream, _) => ": send the message again".to_owned(),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::llm::PromptTooLong;

    use super::*;

    fn explained(class: FailureClass, status: Option<u16>, message: &str) -> String {
        explained_as(ModelFailure { status, ..ModelFailure::new(class, message) }, true)
    }

    fn explained_as(failure: ModelFailure, has_tools: bool) -> String {
        let named = ProviderName {
            name: "fake".to_owned(),
            url: "http://127.0.0.1:9/v1".to_owned(),
            key_setting: "FAKE_KEY".to_owned(),
        };
        named.explain(failure, "m-1", has_tools).message
    }

    #[test]
    fn a_failure_names_provider_address_setting_and_what_to_do() {
        let at = "Provider `fake` at http://127.0.0.1:9/v1";
        for (class, status, says) in [
            (FailureClass::Unauthorized, Some(401), " refused its key: check `FAKE_KEY`"),
            (
                FailureClass::Unreachable,
                None,
                ": is that server running? Its address is `providers.fake.base_url`",
            ),
            (
                FailureClass::Rejected,
                Some(404),
                ": does it have the model `m-1`? Choose another with `--model` or the agent's `model`",
            ),
            (FailureClass::Rejected, Some(400), ""),
            (FailureClass::Overloaded, Some(503), ": it may answer again later"),
            (
                FailureClass::Timeout,
                None,
                ": send the message again, or raise `providers.fake.idle_timeout`",
            ),
        ] {
            assert_eq!(explained(class, status, "It said so."), format!("It said so. {at}{says}"));
        }
    }

    /// Neither `--model` nor an agent chooses the model of embeddings.
    #[test]
    fn a_wrong_model_of_embeddings_names_the_settings_that_choose_it() {
        let named = ProviderName {
            name: "fake".to_owned(),
            url: "http://127.0.0.1:9/v1".to_owned(),
            key_setting: "FAKE_KEY".to_owned(),
        };
        for (status, says) in [
            (
                404,
                "for embeddings? Choose another in `[embeddings] models` or `[memory] embeddings`",
            ),
            (402, ": check the account's balance"),
        ] {
            let failure = ModelFailure::new(FailureClass::Rejected, "It said so.");
            let failure = ModelFailure { status: Some(status), ..failure };
            let told = named.explain_embedding(failure, "m-1").message;
            assert!(told.starts_with("It said so. Provider `fake` at http"), "{told}");
            assert!(told.ends_with(says) && !told.contains("--model"), "{told}");
        }
    }

    /// It fails only if nothing of it can be left out.
    #[test]
    fn what_is_too_long_says_how_it_gets_shorter() {
        let too_long = Some(PromptTooLong::default());
        let failure = ModelFailure::new(FailureClass::Rejected, "prompt is too long");
        let failure = ModelFailure { status: Some(400), too_long, ..failure };
        let told = explained_as(failure.clone(), true);
        assert!(
            told.ends_with(
                "a model that reads more, or have the agent write down its work \
                                with the tool `ledger_append`"
            ),
            "{told}"
        );
        let summary = explained_as(failure, false);
        assert!(summary.ends_with(": send less, or choose a model that reads more"), "{summary}");
    }
}
