//! Which model to use where no setting names one: keys in the environment, else a local Ollama, else the
//! demo.

use std::{future::Future, time::Duration};

use clawnode_proto::llm::ModelRef;
use reqwest::Client;
use serde::Deserialize;

use super::{
    demo,
    options::{BaseUrl, Lookup, OptionsError},
    protocols::rows,
    wire::Wire,
};

/// How long an Ollama may take to list its models: it is nearby, and a start waits for it.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);
/// Bytes of that list (1 MiB).
const PROBE_BYTES: usize = 1 << 20;
/// How to choose another model, for the banner.
const HOW_TO_CHANGE: &str =
    "choose another with `--model PROVIDER/MODEL` or an agent's `model` in the configuration";

/// A model, and why it was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelChoice {
    pub model: ModelRef,
    /// Why, and how to change it, for the banner.
    pub why: String,
}

/// Chooses a model with no configuration. `lookup` reads the environment; `probe` lists the models
/// of an Ollama at an address, and nothing if there is none ([`ollama_models`]).
pub async fn discover<F>(lookup: Lookup<'_>, probe: impl FnOnce(BaseUrl) -> F) -> ModelChoice
where
    F: Future<Output = Vec<String>>,
{
    for row in rows() {
        let (Some(provider), Some(model), Some(key)) = (row.provider, row.model, row.key_variable)
        else {
            continue;
        };
        if set(lookup, key).is_some() {
            let url = row.url_variable;
            let at = match set(lookup, url) {
                Some(_) => format!(" (at `{url}`)"),
                None => String::new(),
            };
            return choice(provider, model, &format!("`{key}` is set{at}"));
        }
    }
    let ollama = Wire::Ollama.row().map(|row| -> Result<_, OptionsError> {
        Ok(row.url(lookup)?.or_else(|| row.default_url()))
    });
    let Some(Ok(Some(ollama))) = ollama else {
        return choice("demo", demo::ECHO, "no API key is set; `OLLAMA_HOST` is not an address");
    };
    match probe(ollama.clone()).await.first() {
        Some(model) => choice("ollama", model, &format!("an Ollama answers at {ollama}")),
        None => choice(
            "demo",
            demo::ECHO,
            &format!(
                "none of {} is set, and no Ollama with a model answers at {ollama}",
                Wire::key_variables().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ")
            ),
        ),
    }
}

/// The models of the Ollama at `base`; none if it does not answer in time.
pub async fn ollama_models(base: BaseUrl) -> Vec<String> {
    #[derive(Deserialize)]
    struct Tags {
        models: Vec<Tag>,
    }
    #[derive(Deserialize)]
    struct Tag {
        name: String,
    }
    let listed = async {
        let client = Client::builder()
            .tls_backend_preconfigured(clawnode_tool::egress::tls(base.is_tls()).ok()?)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .ok()?;
        let answer = client.get(base.join("api/tags")).send().await.ok()?;
        let mut answer = answer.error_for_status().ok()?;
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.ok()? {
            body.extend_from_slice(&chunk);
            if body.len() > PROBE_BYTES {
                return None;
            }
        }
        serde_json::from_slice::<Tags>(&body).ok()
    };
    // Whatever goes wrong, the meaning is the same: there is no Ollama to use.
    match tokio::time::timeout(PROBE_TIMEOUT, listed).await {
        Ok(Some(tags)) => tags.models.into_iter().map(|tag| tag.name).collect(),
        Ok(None) | Err(_) => Vec::new(),
    }
}

fn set(lookup: Lookup<'_>, variable: &str) -> Option<String> {
    lookup(variable).filter(|value| !value.trim().is_empty())
}

/// The model that needs no provider.
pub fn demo() -> ModelRef {
    ModelRef { provider: "demo".to_owned(), model: super::demo::ECHO.to_owned() }
}

fn choice(provider: &str, model: &str, because: &str) -> ModelChoice {
    let model = ModelRef { provider: provider.to_owned(), model: model.to_owned() };
    let why = format!("using {model}, because {because}; {HOW_TO_CHANGE}");
    ModelChoice { model, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn found(env: &[(&str, &str)], ollama: &[&str]) -> ModelChoice {
        let lookup = |name: &str| {
            env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        let models = ollama.iter().map(|&model| model.to_owned()).collect();
        discover(&lookup, |_| std::future::ready(models)).await
    }

    #[tokio::test]
    async fn keys_come_first_then_ollama_then_the_demo() {
        let (anthropic, openai) = (("ANTHROPIC_API_KEY", "hunter2"), ("OPENAI_API_KEY", "hunter3"));
        for (env, ollama, provider, because) in [
            (&[anthropic, openai][..], &["m"][..], "anthropic", "`ANTHROPIC_API_KEY` is set"),
            (&[openai][..], &["m"][..], "openai", "`OPENAI_API_KEY` is set"),
            (&[("OPENAI_API_KEY", " ")][..], &["qwen3:8b", "x"][..], "ollama", "127.0.0.1:11434"),
            (&[][..], &[][..], "demo", "none of"),
            (&[("OLLAMA_HOST", "http://")][..], &["m"][..], "demo", "OLLAMA_HOST"),
        ] {
            let choice = found(env, ollama).await;
            assert_eq!(choice.model.provider, provider);
            assert!(choice.why.contains(because), "{}", choice.why);
            assert!(choice.why.contains("--model"), "{}", choice.why);
            assert!(!choice.why.contains("hunter"), "{}", choice.why);
        }
        assert_eq!(found(&[], &["qwen3:8b", "x"]).await.model.model, "qwen3:8b");
        let elsewhere = found(&[anthropic, ("ANTHROPIC_BASE_URL", "http://h")], &[]).await;
        assert!(elsewhere.why.contains("ANTHROPIC_BASE_URL"), "{}", elsewhere.why);
    }

    #[tokio::test]
    async fn no_ollama_is_no_model() {
        // A port that was free a moment ago: no server listens.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        assert!(
            ollama_models(format!("http://127.0.0.1:{port}").parse().unwrap()).await.is_empty()
        );
    }
}
