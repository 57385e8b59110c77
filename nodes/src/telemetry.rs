//! Reports about the work: log lines on standard error or in a file, and traces over OTLP under the
//! standard `OTEL_*` variables (feature `otel`). Content of conversations is in neither.
//!
//! One trace follows a turn through gateway, bus and owner by its W3C `traceparent`:
//! [`current_traceparent`] writes it on what is sent, [`set_parent`] takes it from what came in,
//! [`adopt`] does both. Without the feature, or without an exporter, they do nothing.

use std::{io::IsTerminal, path::Path, sync::Mutex};

use clawnode_proto::Traceparent;
use tracing::{Level, Metadata, Span, level_filters::LevelFilter};
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::{FilterExt, filter_fn},
    fmt::writer::BoxMakeWriter,
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use crate::{
    config::{Env, TelemetryOptions, options::LogFormat},
    log_file::LogFile,
};

/// A filter that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The log filter.
    #[error("`{filter}` is not a log filter: {source}")]
    Filter {
        /// What was asked for.
        filter: String,
        source: tracing_subscriber::filter::ParseError,
    },
    /// The exporter that the `OTEL_*` variables ask for.
    #[error("cannot export traces as the `OTEL_*` variables say: {detail}")]
    Exporter { detail: String },
}

/// Where log lines go.
#[derive(Clone, Copy, Debug)]
pub enum LogTo<'a> {
    /// Standard error.
    Stderr,
    /// A file, because the terminal is a chat's.
    File(&'a Path),
}

/// Running telemetry. [`Telemetry::stop`] exports what is left; dropping it tries to.
#[derive(Debug, Default)]
pub struct Telemetry {
    #[cfg(feature = "otel")]
    provider: Option<opentelemetry_sdk::trace::SdkTracerProvider>,
}

/// How much the MCP client may log: its warnings quote what MCP servers say, which is content.
const QUIET_RMCP: &str = "rmcp=off";
/// What the names of the project's own crates, and so the targets of their log lines, begin with.
const OWN_CRATES: &str = "clawnode";

/// The span of a model call as the semantic conventions for generative AI have it.
const TRACED_CALL: &str = "llm.call";

/// One part of the subscriber.
type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Starts logging; for a node that is asked to, tracing as well. Only the first start in a process
/// takes effect.
pub fn start(
    options: &TelemetryOptions,
    env: &Env,
    is_node: bool,
    to: LogTo<'_>,
) -> Result<Telemetry, TelemetryError> {
    let mut layers = vec![log_layer(options, env, to)?];
    let telemetry = start_export(env, is_node, &mut layers)?;
    if tracing_subscriber::registry().with(layers).try_init().is_err() {
        tracing::debug!("telemetry was started before");
    }
    for directive in asked_in_vain(&options.log) {
        tracing::warn!(
            directive,
            "libraries are logged at INFO at most, because below it they write content and tokens"
        );
    }
    Ok(telemetry)
}

fn log_layer(
    options: &TelemetryOptions,
    env: &Env,
    to: LogTo<'_>,
) -> Result<BoxedLayer, TelemetryError> {
    let mut filter = EnvFilter::try_new(&options.log)
        .map_err(|source| TelemetryError::Filter { filter: options.log.clone(), source })?;
    if let Ok(quiet) = QUIET_RMCP.parse() {
        filter = filter.add_directive(quiet);
    }
    let (writer, is_terminal) = match to {
        LogTo::Stderr => (BoxMakeWriter::new(std::io::stderr), std::io::stderr().is_terminal()),
        LogTo::File(path) => (BoxMakeWriter::new(Mutex::new(LogFile::new(path.to_owned()))), false),
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let loggable = |about: &Metadata<'_>| {
        may_be_logged(about.target(), *about.level()) && !is_for_traces(about)
    };
    // A filter without a hint has everything below INFO asked about at each of its places.
    let filter = filter.and(filter_fn(loggable).with_max_level_hint(LevelFilter::TRACE));
    Ok(match options.format {
        LogFormat::Json => lines.json().with_filter(filter).boxed(),
        LogFormat::Text => {
            let color = is_terminal && env.get("NO_COLOR").is_none();
            lines.with_ansi(color).with_filter(filter).boxed()
        }
    })
}

/// Whether a line may be logged, whatever the filter asks for. Below INFO, libraries write down what
/// they send and receive (the WebSocket library the first message of a connection, which is the
/// token; the client of Docker what it is asked to run), so only the project's own crates are heard.
fn may_be_logged(target: &str, level: Level) -> bool {
    level <= Level::INFO || target.starts_with(OWN_CRATES)
}

/// Whether it is a span for traces alone: what it says of a call, `session.call` around it says for
/// log lines, and a span that nothing records costs nothing.
fn is_for_traces(about: &Metadata<'_>) -> bool {
    about.is_span() && about.name() == TRACED_CALL
}

/// The parts of a filter that ask for what is never logged.
fn asked_in_vain(filter: &str) -> Vec<&str> {
    let directives = filter.split(',').map(str::trim);
    directives
        .filter(|directive| {
            let Some((target, level)) = directive.rsplit_once('=') else { return false };
            level.parse().is_ok_and(|level: Level| !may_be_logged(target, level))
        })
        .collect()
}

#[cfg(not(feature = "otel"))]
mod export {
    use super::{BoxedLayer, Env, Span, Telemetry, TelemetryError, Traceparent};

    impl Telemetry {
        /// Nothing is left to export.
        pub async fn stop(self) {
            std::future::ready(()).await;
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "the same signature as with the feature `otel`")]
    pub(super) fn start_export(
        _env: &Env,
        _is_node: bool,
        _layers: &mut Vec<BoxedLayer>,
    ) -> Result<Telemetry, TelemetryError> {
        Ok(Telemetry::default())
    }

    /// Nothing is traced, so there is no context.
    pub fn current_traceparent() -> Option<Traceparent> {
        None
    }

    /// Nothing is traced, so nothing has a parent.
    pub const fn set_parent(_span: &Span, _parent: &Traceparent) {}

    /// What came in travels on.
    pub fn adopt(_span: &Span, incoming: Option<&Traceparent>) -> Option<Traceparent> {
        incoming.cloned()
    }
}

#[cfg(feature = "otel")]
mod export {
    use std::{collections::HashMap, future::poll_fn, pin::pin, time::Duration};

    use opentelemetry::{
        propagation::TextMapPropagator,
        trace::{TraceContextExt, TracerProvider},
    };
    use opentelemetry_sdk::{
        Resource,
        error::OTelSdkResult,
        propagation::TraceContextPropagator,
        trace::{SdkTracerProvider, SpanData, SpanExporter},
    };
    use tokio::runtime::Handle;
    use tracing::{Level, Metadata, level_filters::LevelFilter};
    use tracing_opentelemetry::OpenTelemetrySpanExt;
    use tracing_subscriber::{Layer, filter::filter_fn};

    use super::{BoxedLayer, Env, Span, Telemetry, TelemetryError, Traceparent};

    /// What we are called in traces unless `OTEL_SERVICE_NAME` says otherwise.
    const SERVICE: &str = "clawnode";
    /// How long the last export may take when the process ends.
    const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
    /// The header that carries a trace's context.
    const TRACEPARENT: &str = "traceparent";

    /// The exporter polls its HTTP client on a thread of its own; the client needs our runtime.
    #[derive(Debug)]
    struct InRuntime<E> {
        exporter: E,
        handle: Handle,
    }

    impl<E: SpanExporter> SpanExporter for InRuntime<E> {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            let mut export = pin!(self.exporter.export(batch));
            poll_fn(|context| {
                let _inside = self.handle.enter();
                export.as_mut().poll(context)
            })
            .await
        }

        fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
            self.exporter.shutdown_with_timeout(timeout)
        }

        fn force_flush(&self) -> OTelSdkResult {
            self.exporter.force_flush()
        }

        fn set_resource(&mut self, resource: &Resource) {
            self.exporter.set_resource(resource);
        }
    }

    impl Telemetry {
        /// Exports what is left, for at most five seconds.
        pub async fn stop(mut self) {
            let Some(provider) = self.provider.take() else { return };
            let shut = move || provider.shutdown_with_timeout(FLUSH_TIMEOUT);
            match tokio::task::spawn_blocking(shut).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "the last traces were not exported"),
                Err(error) => tracing::warn!(%error, "the last traces were not exported"),
            }
        }
    }

    impl Drop for Telemetry {
        fn drop(&mut self) {
            if let Some(provider) = self.provider.take()
                && let Err(error) = provider.shutdown_with_timeout(FLUSH_TIMEOUT)
            {
                tracing::warn!(%error, "the last traces were not exported");
            }
        }
    }

    pub(super) fn start_export(
        env: &Env,
        is_node: bool,
        layers: &mut Vec<BoxedLayer>,
    ) -> Result<Telemetry, TelemetryError> {
        let endpoint = env
            .get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
            .or_else(|| env.get("OTEL_EXPORTER_OTLP_ENDPOINT"));
        let disabled =
            env.get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        if endpoint.is_none() || disabled || !is_node {
            return Ok(Telemetry::default());
        }
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .build()
            .map_err(|error| TelemetryError::Exporter { detail: error.to_string() })?;
        let provider = provider(exporter, env.get("OTEL_SERVICE_NAME").is_some());
        let tracer = provider.tracer(SERVICE);
        // Only our own spans: those of the exporter's HTTP client would trace themselves for ever.
        let ours = |about: &Metadata<'_>| {
            about.target().starts_with(SERVICE) && *about.level() <= Level::INFO
        };
        let layer = tracing_opentelemetry::layer().with_tracer(tracer);
        let ours = filter_fn(ours).with_max_level_hint(LevelFilter::INFO);
        layers.push(layer.with_filter(ours).boxed());
        Ok(Telemetry { provider: Some(provider) })
    }

    /// A provider that hands spans to `exporter` in batches, from a thread of its own.
    pub(super) fn provider(
        exporter: impl SpanExporter + 'static,
        named: bool,
    ) -> SdkTracerProvider {
        let mut resource = Resource::builder();
        if !named {
            resource = resource.with_service_name(SERVICE);
        }
        SdkTracerProvider::builder()
            .with_batch_exporter(InRuntime { exporter, handle: Handle::current() })
            .with_resource(resource.build())
            .build()
    }

    /// The context of the current span, to be sent along.
    pub fn current_traceparent() -> Option<Traceparent> {
        traceparent_of(&Span::current())
    }

    fn traceparent_of(span: &Span) -> Option<Traceparent> {
        let context = span.context();
        let span = context.span();
        let context = span.span_context();
        context.is_valid().then(|| {
            let flags = context.trace_flags().to_u8();
            Traceparent(format!("00-{}-{}-{flags:02x}", context.trace_id(), context.span_id()))
        })
    }

    /// Makes `span` part of the trace that `parent` names; one that cannot be read changes nothing.
    pub fn set_parent(span: &Span, parent: &Traceparent) {
        let carrier = HashMap::from([(TRACEPARENT.to_owned(), parent.0.clone())]);
        let context = TraceContextPropagator::new().extract(&carrier);
        if context.span().span_context().is_valid()
            && let Err(error) = span.set_parent(context)
        {
            tracing::debug!(%error, "a span has no parent");
        }
    }

    /// Makes `span` part of the trace that came in, and says what travels on: the span's own
    /// context, or what came in where nothing is traced here.
    pub fn adopt(span: &Span, incoming: Option<&Traceparent>) -> Option<Traceparent> {
        if let Some(parent) = incoming {
            set_parent(span, parent);
        }
        traceparent_of(span).or_else(|| incoming.cloned())
    }
}

use export::start_export;
pub use export::{adopt, current_traceparent, set_parent};

#[cfg(all(test, feature = "otel"))]
mod tests {
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::trace::SdkTracerProvider;

    use super::*;

    /// Without a hint, each place below INFO in each library asks whether it is heard: a tenth of
    /// the processor time of a turn.
    #[test]
    fn what_is_not_logged_is_not_asked_about() {
        for (log, most) in
            [("info", LevelFilter::INFO), ("warn,clawnode=debug", LevelFilter::DEBUG)]
        {
            let options = TelemetryOptions { log: log.to_owned(), ..TelemetryOptions::default() };
            let layer = log_layer(&options, &Env::from([]), LogTo::Stderr).unwrap();
            assert_eq!(layer.max_level_hint(), Some(most), "{log}");
        }
    }

    #[test]
    fn a_trace_goes_in_one_end_and_out_the_other() {
        let provider = SdkTracerProvider::builder().build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            let trace = "0af7651916cd43dd8448eb211c80319c";
            let incoming = Traceparent(format!("00-{trace}-b7ad6b7169203331-01"));
            let span = tracing::info_span!("session.turn");
            let onward = adopt(&span, Some(&incoming)).unwrap();
            assert!(onward.0.contains(trace), "{onward:?}");
            assert_ne!(onward, incoming, "the span's own id travels on");
            assert_eq!(span.in_scope(current_traceparent), Some(onward));
        });
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn what_is_left_is_exported_at_the_end() {
        use axum::{Router, body::Bytes, routing::post};
        use opentelemetry_otlp::WithExportConfig;
        use tokio::sync::mpsc;

        drop(rustls::crypto::ring::default_provider().install_default());
        let (tell, mut told) = mpsc::channel(8);
        let collect = move |body: Bytes| async move {
            tell.send(body).await.unwrap();
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        let router = Router::new().route("/v1/traces", post(collect));
        let collector = tokio::spawn(async move { axum::serve(listener, router).await });

        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_endpoint(endpoint)
            .build()
            .unwrap();
        let provider = export::provider(exporter, false);
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            drop(tracing::info_span!("session.turn").entered());
        });
        Telemetry { provider: Some(provider) }.stop().await;
        let body = told.try_recv().expect("it arrived before `stop` returned");
        let has = |word: &str| body.windows(word.len()).any(|part| part == word.as_bytes());
        assert!(has("session.turn") && has("clawnode"), "the span and our name");
        collector.abort();
    }

    #[test]
    fn without_a_trace_what_came_in_travels_on() {
        let incoming =
            Traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into());
        assert_eq!(adopt(&Span::none(), Some(&incoming)), Some(incoming));
        assert_eq!(adopt(&Span::none(), None), None);
        set_parent(&Span::none(), &Traceparent("nonsense".to_owned()));
        assert_eq!(current_traceparent(), None);
    }
}
