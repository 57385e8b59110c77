//! For crash tests: tools with an external count of their effects.
//!
//! `CLAWNODE_TEST_EFFECTS=http://127.0.0.1:PORT` gives the node `effect_safe`, `effect_idempotent`,
//! `effect_check` and `effect_once`. A run posts its idempotency key there, and ends with what it is
//! answered; a probe asks there for the key. With `none` it knows the tools and cannot run them.

use async_trait::async_trait;
use clawnode_kernel::job_machine::Probe;
use clawnode_proto::{
    ToolName,
    tool::{EffectClass, Risk, ToolFailure, ToolOutcome, ToolSpec},
};
use clawnode_tool::{Executor, ToolRun};
use tokio_util::sync::CancellationToken;

use crate::config::Env;

/// The variable that says where effects are counted.
const VARIABLE: &str = "CLAWNODE_TEST_EFFECTS";
/// Where effects are counted if nowhere.
const NOWHERE: &str = "none";

/// Posts a key for each run.
#[derive(Clone, Debug)]
pub struct RunCounter {
    url: String,
    client: reqwest::Client,
}

impl RunCounter {
    /// Where effects are counted, if anywhere.
    pub fn of(env: &Env) -> Option<Self> {
        let url = env.get(VARIABLE)?.to_owned();
        // Plain HTTP on loopback: what can fail here is TLS, which is not used, nor are the machine's certificates.
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().ok()?;
        Some(Self { url, client })
    }
}

#[async_trait]
impl Executor for RunCounter {
    fn tools(&self) -> Vec<ToolSpec> {
        let spec = |name: &str, class, risk| {
            Some(ToolSpec {
                name: name.parse().ok()?,
                description: "Has an effect.".to_owned(),
                input_schema: r#"{"type":"object"}"#.to_owned(),
                class,
                risk,
                capability: "effects".parse().ok(),
                timeout_ms: 60_000,
                pin: None,
                time: None,
            })
        };
        // What is counted is not what a person need be asked about, but for the last.
        let safe = spec("effect_safe", EffectClass::Safe, Risk::ReadOnly);
        let idempotent = spec("effect_idempotent", EffectClass::Idempotent, Risk::ReadOnly);
        let check = spec("effect_check", EffectClass::Check, Risk::ReadOnly);
        let once = spec("effect_once", EffectClass::Once, Risk::ReadOnly);
        let asked = spec("effect_asked", EffectClass::Once, Risk::Write);
        [safe, idempotent, check, once, asked].into_iter().flatten().collect()
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

    async fn probe(&self, run: ToolRun) -> Probe {
        let get = self.client.get(format!("{}/{}", self.url, run.idempotency_key)).send();
        let answered = async { get.await?.error_for_status()?.text().await };
        match answered.await {
            Ok(text) if text == "none" => Probe::Absent,
            Ok(text) => Probe::Happened(ToolOutcome::done(text)),
            Err(error) => Probe::Unclear(error.without_url().to_string()),
        }
    }

    fn reaches_out(&self, _tool: &ToolName) -> bool {
        true
    }

    async fn health_check(&self) -> Result<(), String> {
        if self.url == NOWHERE { Err("effects are not counted here".to_owned()) } else { Ok(()) }
    }
}
