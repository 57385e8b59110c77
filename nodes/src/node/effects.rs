//! For crash tests: tools whose effects somebody else counts.
//!
//! `CLAWNODE_TEST_EFFECTS=http://127.0.0.1:PORT` gives the node `effect_safe` and `effect_once`. A
//! run posts its idempotency key there, and ends with what it is answered.

use async_trait::async_trait;
use clawnode_actors::tool::{Executor, ToolRun};
use clawnode_proto::tool::{EffectClass, Risk, ToolFailure, ToolOutcome, ToolSpec};
use tokio_util::sync::CancellationToken;

use crate::config::Env;

/// The variable that says where effects are counted.
const VARIABLE: &str = "CLAWNODE_TEST_EFFECTS";

/// Posts a key for each run.
#[derive(Clone, Debug)]
pub struct Effects {
    url: String,
    client: reqwest::Client,
}

impl Effects {
    /// Where effects are counted, if anywhere.
    pub fn of(env: &Env) -> Option<Self> {
        let url = env.get(VARIABLE)?.to_owned();
        // Plain HTTP on loopback: what can fail here is TLS, which is not used.
        let client = reqwest::Client::builder().no_proxy().build().ok()?;
        Some(Self { url, client })
    }
}

#[async_trait]
impl Executor for Effects {
    fn tools(&self) -> Vec<ToolSpec> {
        let spec = |name: &str, class| {
            Some(ToolSpec {
                name: name.parse().ok()?,
                description: "Has an effect.".to_owned(),
                input_schema: r#"{"type":"object"}"#.to_owned(),
                class,
                risk: Risk::Write,
                capability: "effects".parse().ok(),
                timeout_ms: 60_000,
            })
        };
        let safe = spec("effect_safe", EffectClass::Safe);
        safe.into_iter().chain(spec("effect_once", EffectClass::Once)).collect()
    }

    async fn execute(&self, run: ToolRun, cancelled: CancellationToken) -> ToolOutcome {
        let post = self.client.post(&self.url).body(run.idempotency_key).send();
        let answered = async { post.await?.error_for_status()?.text().await };
        tokio::select! {
            biased;
            () = cancelled.cancelled() => ToolOutcome::failed(ToolFailure::Cancelled, ""),
            answer = answered => match answer {
                Ok(text) => ToolOutcome::done(text),
                Err(error) => ToolOutcome::failed(ToolFailure::Failed, error.to_string()),
            },
        }
    }

    async fn health_check(&self) -> Result<(), String> {
        Ok(())
    }
}
