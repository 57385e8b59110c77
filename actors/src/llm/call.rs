//! One call to a provider on a wire: the span, the attempts, the reading. What differs between
//! wires is a [`Dialect`].

use std::{fmt, sync::Arc, time::Duration};

use clawnode_proto::{
    Digest, Timestamp,
    circuit::CircuitFailure,
    llm::{FailureClass, ModelFailure, ModelRef, Sampling, StopReason, Usage},
    model::SchemaStyle,
    tool::ToolUse,
};
use futures_util::{future::BoxFuture, stream::BoxStream};
use reqwest::header::{HeaderMap, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::{Instant, error::Elapsed, sleep, timeout, timeout_at};
use tracing::{Instrument, Span, field::Empty, info_span};

use super::{
    Item, Model, ModelEvent, ModelRequest, ReplySchema,
    attempts::Attempts,
    call_stream::{Finish, Teller, tell},
    circuit::{CallPass, ProbePass},
    embed::{EmbedDialect, EmbedReply, EmbedRequest},
    failure_text::{NO_END, ProviderName},
    framing::Framing,
    http::{AttemptFailure, Http, HttpAnswer, Prepared},
    machine_role::MachineKeys,
    options::{BaseUrl, ProviderOptions},
    profile::{ModelProfile, ModelProfiles},
    prompt::not_sent,
    settings::{Setting, refused},
    sse::{EventsError, SseEvent, within},
    structured::ask,
    too_long::too_long,
};

/// How long after the reply's own end the response may take to end too, so that the connection can
/// be used again. Providers end both at once.
const TRAILER_WAIT: Duration = Duration::from_millis(20);

/// What is particular to one wire format.
pub(super) trait Dialect: fmt::Debug + Send + Sync + 'static {
    /// The name of the wire's inventor in the `GenAI` semantic conventions.
    fn provider(&self) -> &'static str;
    /// The request on the wire, as the model of this profile takes it.
    fn prepare(
        &self,
        request: ModelRequest,
        profile: &ModelProfile,
    ) -> Result<Prepared, ModelFailure>;
    /// Whether the wire can hold a reply to this schema, in its style. What it does not take goes to the
    /// model in words.
    fn takes(&self, _schema: &ReplySchema) -> bool {
        false
    }
    /// How a request on this wire says that the reply has to fit a schema, if that does not depend on the
    /// model.
    fn schema_style(&self) -> Option<SchemaStyle> {
        None
    }
    /// Whether a model is shown the schema that the wire holds it to. If not, words tell it too.
    fn shows_schema(&self) -> bool {
        true
    }
    /// The request with a signature of `now`, if the wire wants one.
    fn signed(&self, _: &Prepared, _: Timestamp) -> Result<Option<Prepared>, AttemptFailure> {
        Ok(None)
    }
    /// What has to be asked for keys before a request is signed, if anything has to.
    fn machine_keys(&self) -> Option<&MachineKeys> {
        None
    }
    /// A request that costs nothing and that any server of this wire answers; none if there is none.
    fn probe(&self) -> Option<Prepared> {
        None
    }
}

/// Reads one reply; sans-I/O.
pub(super) trait Decoder: Send {
    /// Takes the next event and appends what it means. No event follows a [`Piece::End`].
    fn event(
        &mut self,
        event: &SseEvent,
        pieces: &mut Vec<ReplyPiece>,
    ) -> Result<(), AttemptFailure>;
    /// Takes a whole reply, from a server that did not stream.
    fn whole(&mut self, body: &[u8], pieces: &mut Vec<ReplyPiece>) -> Result<(), AttemptFailure>;
    /// Bytes of the arguments of tool calls so far, if calls come piece by piece: they are paid for before
    /// they are whole.
    fn argued(&self) -> usize {
        0
    }
}

/// What reads the replies of a wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplyReader {
    /// How the events of a reply are separated.
    pub(super) framing: Framing,
    /// Makes what reads one reply, which may call tools if the request offers some.
    pub(super) decoder: fn(offers: bool) -> Box<dyn Decoder>,
}

/// What an event meant.
#[derive(Debug)]
pub(super) enum ReplyPiece {
    /// More of the reply.
    Text(String),
    /// More of the model's thoughts, to be shown.
    Thought(String),
    /// Something beside text and tool calls, whole.
    Item(Item),
    /// A whole tool call.
    ToolUse(ToolUse),
    /// Usage so far.
    Usage(Usage),
    /// The proper end.
    End(Finish),
}

/// A provider behind a wire.
#[derive(Debug)]
pub(super) struct Provider(Arc<ProviderParts>);

/// What a provider is made of.
#[derive(Debug)]
pub(super) struct ProviderParts {
    pub(super) reads: ReplyReader,
    pub(super) dialect: Box<dyn Dialect>,
    /// None if the wire has no embeddings.
    pub(super) embeds: Option<Box<dyn EmbedDialect>>,
    pub(super) options: ProviderOptions,
    pub(super) base: BaseUrl,
    pub(super) named: ProviderName,
    pub(super) http: Http,
    pub(super) profiles: ModelProfiles,
}

// === impl Provider ===

impl Provider {
    pub(super) fn new(parts: ProviderParts) -> Self {
        Self(Arc::new(parts))
    }
}

impl Model for Provider {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        let inner = self.0.clone();
        let span = inner.span(&request);
        tell(move |to| {
            let record = span.clone();
            async move {
                let ended = inner.call(request, &to).await;
                record_end(&record, &ended);
                ended
            }
            .instrument(span)
        })
    }

    fn refused(&self, model: &str, sampling: &Sampling) -> Option<&'static str> {
        self.0.refused(model, sampling)
    }

    fn probe(&self) -> Option<BoxFuture<'static, Result<(), ModelFailure>>> {
        let (parts, request) = (Arc::clone(&self.0), self.0.dialect.probe()?);
        Some(Box::pin(async move { parts.probe(&request).await }))
    }

    fn schema_style(&self, model: &str) -> Option<SchemaStyle> {
        let (provider, model) = (self.0.named.name.clone(), model.to_owned());
        let model = ModelRef { provider, model };
        Some(self.0.profiles.schema(&model, self.0.dialect.schema_style()))
    }

    fn embed(
        &self,
        request: EmbedRequest,
    ) -> Option<BoxFuture<'static, Result<EmbedReply, ModelFailure>>> {
        let parts = Arc::clone(&self.0);
        parts.embeds.as_ref()?;
        Some(Box::pin(async move { parts.embed(request).await }))
    }
}

// === impl ProviderParts ===

impl ProviderParts {
    /// `GenAI` semantic conventions, without any content.
    fn span(&self, request: &ModelRequest) -> Span {
        info_span!(
            "llm.call",
            otel.name = %format_args!("chat {}", request.model),
            otel.kind = "client",
            otel.status_code = Empty,
            gen_ai.operation.name = "chat",
            gen_ai.provider.name = self.dialect.provider(),
            gen_ai.request.model = %request.model,
            gen_ai.request.max_tokens = request.sampling.max_tokens,
            gen_ai.request.temperature = request.sampling.temperature,
            gen_ai.request.top_p = request.sampling.top_p,
            gen_ai.response.model = Empty,
            gen_ai.response.finish_reasons = Empty,
            gen_ai.usage.input_tokens = Empty,
            gen_ai.usage.output_tokens = Empty,
            server.address = self.base.host(),
            server.port = self.base.port(),
            "error.type" = Empty,
        )
    }

    async fn call(&self, request: ModelRequest, to: &Teller) -> Result<Finish, ModelFailure> {
        let (asked, has_tools) = (request.model.clone(), !request.tools.is_empty());
        let prepared = self.prepare(request)?;
        let deadline = Instant::now() + self.options.total_timeout;
        let ended = timeout_at(deadline, self.attempts(&prepared, &asked, to, deadline)).await;
        let ended = ended.unwrap_or_else(|_elapsed| Err(self.no_end().failure));
        match ended {
            Ok(finish) => Ok(self.fit(finish, asked)),
            Err(failure) => {
                let too_long = too_long(&failure);
                Err(self.named.explain(ModelFailure { too_long, ..failure }, &asked, has_tools))
            }
        }
    }

    fn refused(&self, model: &str, sampling: &Sampling) -> Option<&'static str> {
        let named = ModelRef { provider: self.named.name.clone(), model: model.to_owned() };
        let (has, profile) = (self.options.wire.settings(model), self.profiles.of(&named));
        refused(has, sampling, &profile).map(Setting::name)
    }

    /// A probe, of whose end the circuit hears.
    async fn probe(&self, request: &Prepared) -> Result<(), ModelFailure> {
        let pass = ProbePass::of(self.http.circuit());
        let ended = self.http.reach(request).await.map_err(|fault| fault.failure);
        let failure = ended.as_ref().err().map(|failure| failure.class);
        pass.ended(failure.map(|why| CircuitFailure::of(why).unwrap_or(CircuitFailure::Other)));
        ended
    }

    pub(super) fn no_end(&self) -> AttemptFailure {
        let total = self.options.total_timeout.as_secs_f64();
        let message = format!("provider timeout: {NO_END} {total} s");
        AttemptFailure::last(FailureClass::Timeout, message)
    }

    /// The request, with what the configuration adds for its model.
    fn prepare(&self, mut request: ModelRequest) -> Result<Prepared, ModelFailure> {
        let provider = self.named.name.clone();
        if let Some(setting) = self.refused(&request.model, &request.sampling) {
            return Err(not_sent(format_args!(
                "`{setting}`: `{}` of provider `{provider}` does not take it",
                request.model
            )));
        }
        let model = ModelRef { provider, model: request.model.clone() };
        let profile = self.profiles.of(&model);
        let style = self.profiles.schema(&model, self.dialect.schema_style());
        let takes = |schema: &ReplySchema| self.dialect.takes(schema);
        ask(&mut request, style, takes, self.dialect.shows_schema());
        let mut prepared = self.dialect.prepare(request, &profile)?;
        self.add_extras(&mut prepared, &model)?;
        Ok(prepared)
    }

    /// What the configuration adds to requests to a model.
    pub(super) fn add_extras(
        &self,
        prepared: &mut Prepared,
        model: &ModelRef,
    ) -> Result<(), ModelFailure> {
        let extras = self.profiles.extras(model);
        if let Some(body) = extras.added_to(&prepared.body).map_err(not_sent)? {
            prepared.body = body.into();
        }
        for (name, value) in &extras.headers {
            prepared.headers.insert(name.clone(), value.clone());
        }
        Ok(())
    }

    async fn attempts(
        &self,
        prepared: &Prepared,
        model: &str,
        to: &Teller,
        deadline: Instant,
    ) -> Result<Finish, ModelFailure> {
        let mut attempts = Attempts::new(&self.options, deadline);
        loop {
            let pass = CallPass::of(self.http.circuit(), model, |wait| to.paced(wait)).await;
            let pass = pass.map_err(|refused| refused.failure(attempts.last()))?;
            let fault = match self.judged(prepared, to, pass, deadline).await {
                Ok(finish) => return Ok(finish),
                Err(fault) => fault,
            };
            let (nth, wait, failure) = attempts.after(fault, self.http.circuit().refuses())?;
            to.retrying(nth, wait, failure).await;
            sleep(wait).await;
        }
    }

    /// An attempt that the circuit of the provider hears the end of.
    async fn judged(
        &self,
        prepared: &Prepared,
        to: &Teller,
        mut pass: CallPass,
        deadline: Instant,
    ) -> Result<Finish, AttemptFailure> {
        let ended = timeout_at(deadline, self.attempt(prepared, to, &mut pass)).await;
        self.ended(pass, ended)
    }

    /// An attempt has ended, or the time of its call: the circuit hears it.
    pub(super) fn ended<T>(
        &self,
        pass: CallPass,
        ended: Result<Result<T, AttemptFailure>, Elapsed>,
    ) -> Result<T, AttemptFailure> {
        let Ok(ended) = ended else {
            let fault = self.no_end();
            pass.timed_out(&fault.failure);
            return Err(fault);
        };
        match &ended {
            Ok(_) => pass.answered(),
            Err(fault) => pass.failed(&fault.failure, fault.after),
        }
        ended
    }

    async fn attempt(
        &self,
        prepared: &Prepared,
        to: &Teller,
        pass: &mut CallPass,
    ) -> Result<Finish, AttemptFailure> {
        let mut decoder = (self.reads.decoder)(prepared.offers);
        let (mut pieces, mut argued) = (Vec::new(), 0);
        // A signature holds for some minutes only.
        let signed = self.signed(prepared).await?;
        let prepared = signed.as_ref().unwrap_or(prepared);
        let mut events = match self.http.send(prepared, pass).await? {
            HttpAnswer::Stream(response) => {
                let bytes = within(response.bytes_stream(), self.options.idle_timeout);
                self.reads.framing.read(bytes)
            }
            HttpAnswer::Whole(body) => {
                let read = decoder.whole(&body, &mut pieces);
                let end = say(&mut pieces, to).await;
                read.map_err(|fault| self.cleaned(fault))?;
                return end.ok_or_else(|| AttemptFailure::broken("the reply has no end"));
            }
        };
        loop {
            let event = match events.next().await {
                Some(Ok(event)) => event,
                Some(Err(error)) => return Err(self.unreadable(&error)),
                None => return Err(AttemptFailure::broken("the reply ended too early").broke_off()),
            };
            let read = decoder.event(&event, &mut pieces);
            let more =
                decoder.argued().saturating_sub(std::mem::replace(&mut argued, decoder.argued()));
            if more > 0 {
                to.arguments(more).await;
            }
            let end = say(&mut pieces, to).await;
            read.map_err(|fault| self.cleaned(fault))?;
            pass.begun();
            if let Some(finish) = end {
                // After an error there is nothing to wait for.
                let trailer = async { while matches!(events.next().await, Some(Ok(_))) {} };
                if timeout(TRAILER_WAIT, trailer).await.is_err() {
                    tracing::debug!("data after the end of the reply is dropped");
                }
                return Ok(finish);
            }
        }
    }

    /// The end with names from outside made fit to be kept; not every server gives its model's.
    fn fit(&self, finish: Finish, asked: String) -> Finish {
        let model = if finish.model.is_empty() { asked } else { self.http.clean(&finish.model) };
        let stop = match finish.stop {
            StopReason::Other { reason } => StopReason::Other { reason: self.http.clean(&reason) },
            known => known,
        };
        Finish { stop, model, usage: finish.usage }
    }

    fn unreadable(&self, error: &EventsError) -> AttemptFailure {
        match error {
            EventsError::Silent(idle) => AttemptFailure::silent(*idle),
            EventsError::TooLong(_)
            | EventsError::Garbled(_)
            | EventsError::Damaged(_)
            | EventsError::Connection(_) => {
                let fault = AttemptFailure::broken(clawnode_proto::ErrorChain(error));
                let broke_off =
                    matches!(error, EventsError::Damaged(_) | EventsError::Connection(_));
                self.cleaned(if broke_off { fault.broke_off() } else { fault })
            }
        }
    }

    /// The fault with the provider's words fit to be shown.
    pub(super) fn cleaned(&self, mut fault: AttemptFailure) -> AttemptFailure {
        fault.failure.message = self.http.clean(&fault.failure.message);
        fault
    }
}

/// Passes on what was read; the end, if there is one, is returned.
async fn say(pieces: &mut Vec<ReplyPiece>, to: &Teller) -> Option<Finish> {
    for piece in pieces.drain(..) {
        match piece {
            ReplyPiece::Text(text) => to.text(text).await,
            ReplyPiece::Thought(text) => to.thought(text).await,
            ReplyPiece::Item(item) => to.item(item).await,
            ReplyPiece::ToolUse(tool_use) => to.tool_use(tool_use).await,
            ReplyPiece::Usage(usage) => to.usage(usage).await,
            ReplyPiece::End(finish) => return Some(finish),
        }
    }
    None
}

fn record_end(span: &Span, ended: &Result<Finish, ModelFailure>) {
    match ended {
        Ok(Finish { stop, usage, model }) => {
            span.record("gen_ai.response.model", model.as_str());
            span.record("gen_ai.response.finish_reasons", stop_word(stop));
            span.record("gen_ai.usage.input_tokens", usage.input_tokens);
            span.record("gen_ai.usage.output_tokens", usage.output_tokens);
        }
        Err(failure) => {
            span.record("error.type", error_type(failure));
            span.record("otel.status_code", "ERROR");
        }
    }
}

/// The word for a failure in telemetry: few values, no text from outside.
pub(super) fn error_type(failure: &ModelFailure) -> &'static str {
    failure.code().as_str()
}

fn stop_word(stop: &StopReason) -> &str {
    match stop {
        StopReason::EndTurn | StopReason::StopSequence => "stop",
        StopReason::MaxTokens => "length",
        StopReason::ToolUse => "tool_calls",
        StopReason::Refusal => "content_filter",
        StopReason::Other { reason } => reason,
    }
}

/// Headers of every request; without a key, one that may be answered twice.
pub(super) fn headers(idempotency_key: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("accept", HeaderValue::from_static("text/event-stream"));
    if idempotency_key.is_empty() {
        return headers;
    }
    // A key that no header can carry is replaced by its digest, which is just as stable.
    let key = HeaderValue::from_str(idempotency_key)
        .or_else(|_| HeaderValue::from_str(&Digest::of(idempotency_key.as_bytes()).to_string()));
    if let Ok(key) = key {
        headers.insert("idempotency-key", key);
    }
    headers
}

/// The same with a bearer's key.
pub(super) fn bearer_headers(idempotency_key: &str, key: Option<&SecretString>) -> HeaderMap {
    let mut headers = headers(idempotency_key);
    if let Some(key) = key {
        let bearer = sensitive(&format!("Bearer {}", key.expose_secret()));
        bearer.and_then(|bearer| headers.insert("authorization", bearer));
    }
    headers
}

/// A header's value that prints as nothing.
pub(super) fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}
