//! Embeddings for clients. Workers ask the provider, because they have its key; a gateway without a worker
//! asks one of them over the bus. Nothing of it is stored: a request that fails, or is lost in a crash, is for
//! its client to send again.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use clawnode_actors::{
    llm::{EmbedRequest, Wire},
    session::ResolveModel as _,
};
use clawnode_cluster::{Peek as _, RequestError, Storage, membership::Members};
use clawnode_guard::{
    kill_switch::{StoppableWork, SwitchGate, WorkStopped},
    policy::Pattern,
};
use clawnode_proto::{
    ErrorBody, ErrorChain, ErrorCode, ProcessId, codec,
    embed::{EmbedTexts, Embedded, Vector},
    kill_switch::KillSwitch,
    limits::{EMBED_BATCH, EMBED_BATCH_BYTES},
    llm::{ModelFailure, ModelRef},
    node::{NodeReply, NodeRequest, NodeRole},
    session::TurnOutcome,
};
use futures_util::{StreamExt as _, stream};
use tokio::{sync::watch, time::timeout};

use super::{current_models::CurrentModels, version_check::HeartbeatSource};

/// How long the vectors of one batch may take, retries included: a local server may load its model first.
const EMBED_TIME: Duration = Duration::from_mins(2);
/// How much longer a gateway waits for a worker.
const ANSWER_MORE: Duration = Duration::from_secs(2);
/// Batches of one request that are asked for at the same time.
const BATCHES_AT_ONCE: usize = 4;
/// Models that a refusal names.
const MODELS_TOLD: usize = 16;

/// Asks the providers of this process.
#[derive(Clone, Debug)]
pub struct Embedder {
    models: CurrentModels,
    switch_gate: SwitchGate,
}

/// The gateway's way to embeddings.
pub struct Embeddings {
    embedder: Embedder,
    storage: Storage,
    members: watch::Receiver<Members>,
    heartbeat_source: HeartbeatSource,
    /// Which worker is asked next.
    next: AtomicUsize,
}

impl std::fmt::Debug for Embeddings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embeddings").finish_non_exhaustive()
    }
}

// === impl Embedder ===

impl Embedder {
    /// One that asks these providers, unless operators stop what leaves for other machines.
    pub fn new(models: CurrentModels, switch_gate: SwitchGate) -> Self {
        Self { models, switch_gate }
    }

    /// The vectors of one batch.
    pub async fn embed(&self, request: EmbedTexts) -> Result<Embedded, ErrorBody> {
        let EmbedTexts { model, texts, dimensions } = request;
        let model = chosen(&self.models.embedding_models(), &model)?;
        let client = self.models.resolve_model(&model).map_err(failed)?;
        let name = model.model.clone();
        let Some(call) = client.embed(EmbedRequest { model: name, texts, dimensions }) else {
            return Err(without_embeddings(&model));
        };
        let stopped = |latch: KillSwitch| ErrorBody::new(ErrorCode::Stopped, latch.to_string());
        let pass = self.switch_gate.pass(StoppableWork::Egress { agent: None }).await;
        let pass = pass.map_err(stopped)?;
        let reply = tokio::select! {
            biased;
            why = pass.stopped() => return Err(match why {
                WorkStopped::Latched(latch) => stopped(latch),
                WorkStopped::OutOfTouch => {
                    ErrorBody::new(ErrorCode::Unavailable, "the worker lost touch with the cluster")
                }
            }),
            ended = timeout(EMBED_TIME, call) => match ended {
                Ok(ended) => ended.map_err(failed)?,
                Err(_elapsed) => {
                    let what = format!("`{model}` did not answer within {} s", EMBED_TIME.as_secs());
                    return Err(ErrorBody::new(ErrorCode::ProviderTimeout, what));
                }
            },
        };
        Ok(Embedded { model, vectors: reply.vectors, input_tokens: reply.input_tokens })
    }
}

// === impl Embeddings ===

impl Embeddings {
    /// Of this node, which says `heartbeat_source` of itself.
    pub fn new(
        embedder: Embedder,
        storage: Storage,
        members: watch::Receiver<Members>,
        heartbeat_source: HeartbeatSource,
    ) -> Self {
        Self { embedder, storage, members, heartbeat_source, next: AtomicUsize::new(0) }
    }

    /// The vectors of any number of texts; of all of them, or of none.
    pub async fn embed(&self, request: EmbedTexts) -> Result<Embedded, ErrorBody> {
        let EmbedTexts { model, texts, dimensions } = request;
        let asked = batches(texts).into_iter().map(|texts| {
            let model = model.clone();
            self.batch(EmbedTexts { model, texts, dimensions })
        });
        let mut answers = stream::iter(asked).buffered(BATCHES_AT_ONCE);
        let mut whole: Option<Embedded> = None;
        while let Some(answer) = answers.next().await {
            let answer = answer?;
            let Some(whole) = &mut whole else {
                whole = Some(answer);
                continue;
            };
            if whole.model != answer.model || length(whole) != length(&answer) {
                let what = "workers answered with vectors of different models";
                return Err(ErrorBody::new(ErrorCode::Unavailable, what)
                    .hint("give all nodes the same configuration"));
            }
            whole.vectors.extend(answer.vectors);
            whole.input_tokens = whole.input_tokens.saturating_add(answer.input_tokens);
        }
        whole.ok_or_else(|| ErrorBody::new(ErrorCode::InvalidParams, "there is no text"))
    }

    async fn batch(&self, request: EmbedTexts) -> Result<Embedded, ErrorBody> {
        if (self.heartbeat_source)().roles.contains(&NodeRole::Worker) {
            return self.embedder.embed(request).await;
        }
        let request = codec::encode(&NodeRequest::Embed { request });
        let request =
            request.map_err(|failure| ErrorBody::new(ErrorCode::Internal, failure.to_string()))?;
        let request = Bytes::from(request);
        for process in self.workers() {
            if let Some(answer) = self.asked(process, request.clone()).await {
                return answer;
            }
        }
        Err(ErrorBody::new(ErrorCode::Unavailable, "no worker is alive to ask the provider")
            .hint("see `clawnode status`, and try again"))
    }

    /// The workers, each time with another one first.
    fn workers(&self) -> Vec<ProcessId> {
        let mut workers: Vec<ProcessId> = self.members.peek(|members| {
            let works = members.alive.iter().filter(|one| {
                one.roles.contains(&NodeRole::Worker) && !one.draining && !one.leaving
            });
            works.map(|one| one.process).collect()
        });
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let count = workers.len().max(1);
        workers.rotate_left(first % count);
        workers
    }

    /// What a worker answers; `None` if it is not there. It is not asked again, and no other one is, once it
    /// may have asked the provider.
    async fn asked(
        &self,
        process: ProcessId,
        request: Bytes,
    ) -> Option<Result<Embedded, ErrorBody>> {
        let subject = self.storage.prefix.rpc(process);
        let unusable = |why: String| {
            let what = format!("no usable answer from the worker {process}: {why}");
            Some(Err(ErrorBody::new(ErrorCode::Unavailable, what)
                .hint("see `clawnode status`, and try again")))
        };
        let within = EMBED_TIME + ANSWER_MORE;
        let answer = match self.storage.bus.request(subject, request, within).await {
            Ok(answer) => answer,
            Err(RequestError::NoResponders { .. }) => return None,
            Err(failure) => return unusable(ErrorChain(&failure).to_string()),
        };
        match codec::decode(&answer) {
            Ok(NodeReply::Embedded { result }) => Some(Ok(result)),
            Ok(NodeReply::NotEmbedded { error }) => Some(Err(error)),
            Ok(other) => unusable(format!("unexpected answer {other:?}")),
            Err(failure) => unusable(failure.to_string()),
        }
    }
}

/// How many numbers the vectors have.
fn length(embedded: &Embedded) -> Option<usize> {
    embedded.vectors.first().map(Vector::len)
}

/// Texts in the portions that are asked for together.
fn batches(texts: Vec<String>) -> Vec<Vec<String>> {
    let (mut batches, mut bytes) = (Vec::<Vec<String>>::new(), 0);
    for text in texts {
        bytes += text.len();
        match batches.last_mut() {
            Some(last) if last.len() < EMBED_BATCH && bytes <= EMBED_BATCH_BYTES => last.push(text),
            _ => {
                bytes = text.len();
                batches.push(vec![text]);
            }
        }
    }
    batches
}

/// The model that a request names: `PROVIDER/MODEL`, or the part after the slash of one that is listed.
fn chosen(allowed: &[String], name: &str) -> Result<ModelRef, ErrorBody> {
    if allowed.is_empty() {
        let what = "the configuration allows no model for embeddings";
        return Err(ErrorBody::new(ErrorCode::Unsupported, what).hint(
            "set `[embeddings] models` on the workers, such as `[\"openai/text-embedding-3-small\"]`",
        ));
    }
    let is_allowed = |model: &ModelRef| {
        let name = model.to_string();
        allowed.iter().any(|pattern| Pattern::from(pattern.as_str()).fits(&name))
    };
    if let Some(model) = name.parse::<ModelRef>().ok().filter(is_allowed) {
        return Ok(model);
    }
    let listed = allowed.iter().filter(|it| !it.contains(['*', '?']));
    let mut meant =
        listed.filter_map(|it| it.parse::<ModelRef>().ok()).filter(|it| it.model == name);
    if let (Some(model), None) = (meant.next(), meant.next()) {
        return Ok(model);
    }
    let told: Vec<String> =
        allowed.iter().take(MODELS_TOLD).map(|pattern| format!("`{pattern}`")).collect();
    let what = format!("the model `{name}` is not one of those for embeddings");
    Err(ErrorBody::new(ErrorCode::NotFound, what)
        .hint(format!("`[embeddings] models` of the configuration has {}", told.join(", "))))
}

fn without_embeddings(model: &ModelRef) -> ErrorBody {
    let have: Vec<String> = Wire::embedding_providers().map(|name| format!("`{name}`")).collect();
    let what = format!("provider `{}` has no embeddings", model.provider);
    ErrorBody::new(ErrorCode::Unsupported, what)
        .hint(format!("name a model of another one: {} have them", have.join(", ")))
}

/// As of any other call.
fn failed(failure: ModelFailure) -> ErrorBody {
    let (code, message) = (failure.code(), failure.message.clone());
    TurnOutcome::from(failure).error().unwrap_or_else(|| ErrorBody::new(code, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_allowed_can_be_asked() {
        let allowed = ["openai/text-embedding-3-small", "ollama/*", "a/same", "b/same"];
        let allowed = allowed.map(str::to_owned);
        for (name, model) in [
            ("openai/text-embedding-3-small", Some("openai/text-embedding-3-small")),
            ("text-embedding-3-small", Some("openai/text-embedding-3-small")),
            ("ollama/bge-m3", Some("ollama/bge-m3")),
            ("b/same", Some("b/same")),
            ("same", None),
            ("bge-m3", None),
            ("openai/text-embedding-3-large", None),
            ("", None),
        ] {
            let found = chosen(&allowed, name).ok().map(|model| model.to_string());
            assert_eq!(found.as_deref(), model, "{name}");
        }
        let refused = chosen(&allowed, "gpt").unwrap_err();
        assert_eq!(refused.code, ErrorCode::NotFound);
        assert!(refused.hint.unwrap().contains("`ollama/*`"));
        let none = chosen(&[], "openai/text-embedding-3-small").unwrap_err();
        assert_eq!(none.code, ErrorCode::Unsupported, "nothing is allowed by default");
        assert!(none.hint.unwrap().contains("[embeddings] models"));
    }

    #[test]
    fn batches_are_bounded_and_keep_the_order() {
        let count = |texts: Vec<String>| batches(texts).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(count(vec!["a".to_owned(); EMBED_BATCH + 1]), [EMBED_BATCH, 1]);
        let half = "a".repeat(EMBED_BATCH_BYTES / 2);
        assert_eq!(count(vec![half.clone(), half.clone(), half.clone()]), [2, 1]);
        let long = "a".repeat(EMBED_BATCH_BYTES + 1);
        assert_eq!(count(vec!["a".to_owned(), long, "b".to_owned()]), [1, 1, 1]);
        let texts: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        assert_eq!(batches(texts.clone()).concat(), texts);
    }
}
