//! Embeddings for clients. Workers ask the provider, because they have its key; a gateway without a worker
//! asks one of them over the bus. Nothing of it is stored: a request that fails, or is lost in a crash, is for
//! its client to send again.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use clawnode_cluster::{Peek as _, RequestError, Storage, membership::Members};
use clawnode_proto::{
    ErrorBody, ErrorChain, ErrorCode, ProcessId, codec,
    embed::{EmbedTexts, Embedded, Vector},
    limits::{EMBED_BATCH, EMBED_BATCH_BYTES},
    node::{Heartbeat, NodeReply, NodeRequest, NodeRole},
};
use futures_util::{StreamExt as _, stream};
use tokio::{sync::watch, time::timeout};

use super::{
    cluster_spend::BUDGET_TIME,
    embedder::{EMBED_TIME, Embedder},
};

/// How much longer a gateway waits for a worker.
const ANSWER_MORE: Duration = Duration::from_secs(2);
/// How long a gateway that knows no worker waits for one: it has just started, or the only worker is replaced.
const WORKER_WITHIN: Duration = Duration::from_secs(5);
/// Batches of one request that are asked for at the same time.
const BATCHES_AT_ONCE: usize = 4;

/// The gateway's way to embeddings.
pub struct Embeddings {
    embedder: Embedder,
    storage: Storage,
    members: watch::Receiver<Members>,
    /// Whether this node asks providers itself.
    is_worker: bool,
    /// Which worker is asked next.
    next: AtomicUsize,
}

impl std::fmt::Debug for Embeddings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embeddings").finish_non_exhaustive()
    }
}

// === impl Embeddings ===

impl Embeddings {
    /// Of this node, which asks providers itself if it is a worker.
    pub fn new(
        embedder: Embedder,
        storage: Storage,
        members: watch::Receiver<Members>,
        is_worker: bool,
    ) -> Self {
        Self { embedder, storage, members, is_worker, next: AtomicUsize::new(0) }
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
        if self.is_worker {
            return self.embedder.embed(request).await;
        }
        let request = codec::encode(&NodeRequest::Embed { request });
        let request =
            request.map_err(|failure| ErrorBody::new(ErrorCode::Internal, failure.to_string()))?;
        let request = Bytes::from(request);
        self.worker_known().await;
        for process in self.workers() {
            if let Some(answer) = self.asked(process, request.clone()).await {
                return answer;
            }
        }
        Err(ErrorBody::new(ErrorCode::Unavailable, "no worker is alive to ask the provider")
            .hint("see `clawnode status`, and try again"))
    }

    /// Waits until a worker is known, for a bounded time.
    async fn worker_known(&self) {
        let mut members = self.members.clone();
        let known = members.wait_for(|members| members.alive.iter().any(is_asked));
        // Without one, the caller finds none either.
        drop(timeout(WORKER_WITHIN, known).await);
    }

    /// The workers, each time with another one first.
    fn workers(&self) -> Vec<ProcessId> {
        let mut workers: Vec<ProcessId> = self.members.peek(|members| {
            members.alive.iter().filter(|one| is_asked(one)).map(|one| one.process).collect()
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
        let within = BUDGET_TIME + EMBED_TIME + ANSWER_MORE;
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

/// Whether a process is asked for vectors.
fn is_asked(process: &Heartbeat) -> bool {
    process.roles.contains(&NodeRole::Worker) && !process.draining && !process.leaving
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

#[cfg(test)]
mod tests {
    use super::*;

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
