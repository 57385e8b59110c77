//! A call for embeddings, over HTTP.

use std::future::ready;

use clawnode_proto::llm::{ModelFailure, ModelRef};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use reqwest::header::HeaderValue;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{Instrument, Span, field::Empty, info_span};

use super::{
    attempts::Attempts,
    call::{ProviderParts, error_type},
    circuit::CallPass,
    embed::{EmbedDialect, EmbedReply, EmbedRequest},
    http::{AttemptFailure, HttpAnswer, Prepared},
    prompt::not_sent,
};

/// Requests at once for the texts of one call, of wires that take few texts at a time.
const PARTS_AT_ONCE: usize = 4;

// === impl ProviderParts ===

impl ProviderParts {
    /// The vectors of texts, of a provider whose wire has embeddings.
    pub(super) async fn embed(&self, request: EmbedRequest) -> Result<EmbedReply, ModelFailure> {
        let Some(wire) = self.embeds.as_deref() else {
            return Err(not_sent("the provider has no embeddings"));
        };
        let span = self.embed_span(&request);
        let record = span.clone();
        async move {
            let ended = self.embedded(wire, &request).await;
            match &ended {
                Ok(reply) => {
                    record.record("gen_ai.usage.input_tokens", reply.input_tokens);
                }
                Err(failure) => {
                    record.record("error.type", error_type(failure));
                    record.record("otel.status_code", "ERROR");
                }
            }
            ended
        }
        .instrument(span)
        .await
    }

    /// `GenAI` semantic conventions, without any content.
    fn embed_span(&self, request: &EmbedRequest) -> Span {
        info_span!(
            "llm.embed",
            otel.name = %format_args!("embeddings {}", request.model),
            otel.kind = "client",
            otel.status_code = Empty,
            gen_ai.operation.name = "embeddings",
            gen_ai.provider.name = self.dialect.provider(),
            gen_ai.request.model = %request.model,
            gen_ai.usage.input_tokens = Empty,
            server.address = self.base.host(),
            server.port = self.base.port(),
            "error.type" = Empty,
        )
    }

    async fn embedded(
        &self,
        wire: &dyn EmbedDialect,
        request: &EmbedRequest,
    ) -> Result<EmbedReply, ModelFailure> {
        request.check()?;
        let deadline = Instant::now() + self.options.total_timeout;
        let parts = request.parts(wire.most_texts());
        let parts = stream::iter(parts).map(|part| self.part(wire, part, deadline));
        EmbedReply::joined(parts.buffered(PARTS_AT_ONCE).try_collect().await?)
    }

    /// The vectors of as many texts as one request may have.
    async fn part(
        &self,
        wire: &dyn EmbedDialect,
        request: EmbedRequest,
        deadline: Instant,
    ) -> Result<EmbedReply, ModelFailure> {
        let mut prepared = wire.request(&request)?;
        prepared.headers.insert("accept", HeaderValue::from_static("application/json"));
        let (provider, model) = (self.named.name.clone(), request.model.clone());
        self.add_extras(&mut prepared, &ModelRef { provider, model })?;
        let mut tries = Attempts::new(&self.options, deadline);
        let ended = async {
            loop {
                let pass = CallPass::of(self.http.circuit(), &request.model, |_| ready(())).await;
                let pass = pass.map_err(|refused| refused.failure(tries.last()))?;
                let attempt = self.embed_once(wire, &request, &prepared, pass, deadline);
                let fault = match attempt.await {
                    Ok(reply) => return Ok(reply),
                    Err(fault) => fault,
                };
                let (_, wait, _) = tries.after(fault, self.http.circuit().refuses())?;
                sleep(wait).await;
            }
        };
        let ended = timeout_at(deadline, ended).await;
        let ended = ended.unwrap_or_else(|_elapsed| Err(self.no_end().failure));
        ended.map_err(|failure| self.named.explain_embedding(failure, &request.model))
    }

    /// One attempt, of whose end the circuit hears.
    async fn embed_once(
        &self,
        wire: &dyn EmbedDialect,
        request: &EmbedRequest,
        prepared: &Prepared,
        pass: CallPass,
        deadline: Instant,
    ) -> Result<EmbedReply, AttemptFailure> {
        let attempt = async {
            let signed = self.signed(prepared).await?;
            let prepared = signed.as_ref().unwrap_or(prepared);
            let HttpAnswer::Whole(body) = self.http.send(prepared, &pass).await? else {
                return Err(AttemptFailure::broken("answered with events instead of JSON"));
            };
            wire.read(&body)
                .and_then(|read| request.judge(read))
                .map_err(|error| self.cleaned(error))
        };
        let ended = timeout_at(deadline, attempt).await;
        self.ended(pass, ended)
    }
}
