//! Embeddings: texts as vectors. A wire that has them has an [`EmbedDialect`] beside its other half, which
//! writes requests and reads answers without I/O; sending, retries, circuit and pacing are those of other calls.

use std::{fmt, future::ready};

use clawnode_proto::{
    embed::Vector,
    limits::{EMBED_BATCH, EMBED_DIMENSIONS, EMBED_TEXT_BYTES},
    llm::{FailureClass, ModelFailure, ModelRef},
};
use reqwest::header::HeaderValue;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{Instrument, Span, field::Empty, info_span};

use super::{
    call::{ProviderParts, error_type},
    circuit::CallPass,
    http::{AttemptFailure, HttpAnswer, Prepared},
    prompt::not_sent,
    retry::Attempts,
};

/// Texts for which a model is asked for vectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbedRequest {
    /// The model's name at its provider.
    pub model: String,
    /// The texts, at most [`EMBED_BATCH`].
    pub texts: Vec<String>,
    /// How many numbers each vector shall have; absent leaves it to the model.
    pub dimensions: Option<u32>,
}

/// The vectors of texts, in their order and of one length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbedReply {
    /// One for each text.
    pub vectors: Vec<Vector>,
    /// Tokens that the model read; 0 if its provider does not count them.
    pub input_tokens: u64,
}

/// What is particular to one wire.
pub(super) trait EmbedDialect: fmt::Debug + Send + Sync + 'static {
    /// The request on the wire.
    fn request(&self, request: &EmbedRequest) -> Result<Prepared, ModelFailure>;
    /// What the answer says.
    fn read(&self, body: &[u8]) -> Result<ReadVectors, AttemptFailure>;
}

/// What an answer has, before it is compared with what was asked.
#[derive(Debug, PartialEq)]
pub(super) struct ReadVectors {
    pub(super) vectors: Vec<Vec<f32>>,
    pub(super) input_tokens: Option<u64>,
}

// === impl EmbedRequest ===

impl EmbedRequest {
    /// Refuses what no provider takes.
    fn check(&self) -> Result<(), ModelFailure> {
        if self.texts.is_empty() || self.texts.len() > EMBED_BATCH {
            let count = self.texts.len();
            return Err(not_sent(format_args!("{count} texts instead of 1 to {EMBED_BATCH}")));
        }
        if self.texts.iter().any(|text| text.is_empty() || text.len() > EMBED_TEXT_BYTES) {
            return Err(not_sent(format_args!(
                "a text is empty, or longer than {EMBED_TEXT_BYTES} bytes"
            )));
        }
        Ok(())
    }

    /// The vectors of an answer, if they are what was asked for.
    fn judge(&self, read: ReadVectors) -> Result<EmbedReply, AttemptFailure> {
        let ReadVectors { vectors, input_tokens } = read;
        let broken = |what: &str| AttemptFailure::last(FailureClass::BrokenStream, what);
        if vectors.len() != self.texts.len() {
            return Err(broken("the provider did not answer with one vector for each text"));
        }
        let length = vectors.first().map_or(0, Vec::len);
        if vectors.iter().any(|vector| vector.len() != length) || length == 0 {
            return Err(broken("the provider answered with vectors of different lengths, or none"));
        }
        if vectors.iter().flatten().any(|number| !number.is_finite()) {
            return Err(broken("the provider answered with numbers that are none"));
        }
        let wanted = self.dimensions.and_then(|it| usize::try_from(it).ok());
        let unfit = |what| Err(AttemptFailure::last(FailureClass::Rejected, what));
        if let Some(wanted) = wanted.filter(|wanted| *wanted != length) {
            return unfit(format!(
                "`dimensions`: the model answered with vectors of {length} numbers instead of {wanted}; \
                 leave it out"
            ));
        }
        if length > EMBED_DIMENSIONS {
            return unfit(format!(
                "the model answered with vectors of {length} numbers, and {EMBED_DIMENSIONS} is the most; \
                 set `dimensions` if the model has it"
            ));
        }
        let vectors = vectors.iter().map(|numbers| Vector::new(numbers)).collect();
        Ok(EmbedReply { vectors, input_tokens: input_tokens.unwrap_or(0) })
    }
}

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
        let mut prepared = wire.request(request)?;
        prepared.headers.insert("accept", HeaderValue::from_static("application/json"));
        let (provider, model) = (self.named.name.clone(), request.model.clone());
        self.add_extras(&mut prepared, &ModelRef { provider, model })?;
        let deadline = Instant::now() + self.options.total_timeout;
        let mut tries = Attempts::new(&self.options, deadline);
        let ended = async {
            loop {
                let pass = CallPass::of(self.http.circuit(), &request.model, |_| ready(())).await;
                let pass = pass.map_err(|refused| refused.failure(tries.last()))?;
                let attempt = self.embed_once(wire, request, &prepared, pass, deadline);
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
        ended.map_err(|failure| self.named.explain(failure, &request.model))
    }

    /// One attempt, of whose end the circuit hears.
    async fn embed_once(
        &self,
        wire: &dyn EmbedDialect,
        request: &EmbedRequest,
        prepared: &Prepared,
        mut pass: CallPass,
        deadline: Instant,
    ) -> Result<EmbedReply, AttemptFailure> {
        let attempt = async {
            let HttpAnswer::Whole(body) = self.http.send(prepared, &pass).await? else {
                return Err(AttemptFailure::broken("answered with events instead of JSON"));
            };
            wire.read(&body).and_then(|read| request.judge(read)).map_err(|it| self.cleaned(it))
        };
        match timeout_at(deadline, attempt).await {
            Ok(Ok(reply)) => {
                pass.answered();
                Ok(reply)
            }
            Ok(Err(fault)) => {
                pass.failed(&fault.failure, fault.after);
                Err(fault)
            }
            Err(_elapsed) => {
                let fault = self.no_end();
                pass.timed_out(&fault.failure);
                Err(fault)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(texts: usize, dimensions: Option<u32>) -> EmbedRequest {
        EmbedRequest { model: "m".to_owned(), texts: vec!["a".to_owned(); texts], dimensions }
    }

    #[test]
    fn vectors_that_are_not_what_was_asked_for_are_refused() {
        let read = |vectors| ReadVectors { vectors, input_tokens: None };
        let good = vec![vec![0.5, 1.0], vec![0.0, -1.0]];
        let reply = asked(2, Some(2)).judge(read(good.clone())).unwrap();
        assert_eq!(reply.vectors[1].numbers().collect::<Vec<_>>(), [0.0, -1.0]);
        for (request, vectors, says) in [
            (asked(3, None), good.clone(), "one vector for each text"),
            (asked(2, None), vec![vec![0.5], vec![0.5, 1.0]], "different lengths"),
            (asked(1, None), vec![vec![]], "different lengths, or none"),
            (asked(1, None), vec![vec![f32::INFINITY]], "numbers that are none"),
            (asked(2, Some(3)), good, "vectors of 2 numbers instead of 3"),
            (asked(1, None), vec![vec![0.5; EMBED_DIMENSIONS + 1]], "8193 numbers"),
        ] {
            let fault = request.judge(read(vectors)).unwrap_err();
            assert!(fault.failure.message.contains(says), "{}", fault.failure.message);
            assert!(!fault.again, "{says}");
        }
    }

    #[test]
    fn what_no_provider_takes_is_not_sent() {
        asked(EMBED_BATCH, None).check().unwrap();
        for texts in [0, EMBED_BATCH + 1] {
            assert!(asked(texts, None).check().is_err(), "{texts}");
        }
        for text in [String::new(), "a".repeat(EMBED_TEXT_BYTES + 1)] {
            let request = EmbedRequest { texts: vec![text], ..asked(1, None) };
            assert!(request.check().is_err());
        }
    }
}
