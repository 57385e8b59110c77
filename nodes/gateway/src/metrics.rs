//! What the gateway counts, in Prometheus' text format.
//!
//! Labels are only ever taken from fixed lists (routes, methods, codes, outcomes), so clients
//! cannot make the registry grow.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Write as _,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use clawnode_proto::{
    ErrorCode,
    llm::Usage,
    overview::{Latency, StatsView},
    session::TurnOutcome,
};

use super::connections::Connections;

/// Upper bounds of the buckets of a duration, in seconds.
const BUCKETS: [f64; 12] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0];

/// Durations that are remembered one by one, for what was usual lately.
const RECENT: usize = 1_024;

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    /// HTTP requests by route and status.
    requests: Family,
    /// JSON-RPC requests by method, over all transports.
    calls: Family,
    /// Refusals by stable code.
    refusals: Family,
    /// Messages stored.
    accepted: AtomicU64,
    /// Turns that the client that began them followed to their end, by outcome.
    turns: Family,
    tokens: Family,
    /// Streams told that they lag.
    lagged: AtomicU64,
    connections: AtomicI64,
    sockets: AtomicI64,
    request_seconds: Histogram,
    first_text_seconds: Histogram,
    turn_seconds: Histogram,
    recent_first_texts: RecentDurations,
    recent_turns: RecentDurations,
}

/// The last durations of something, in milliseconds.
#[derive(Debug, Default)]
struct RecentDurations(Mutex<VecDeque<u64>>);

/// Counters that differ in their labels.
#[derive(Debug, Default)]
struct Family(Mutex<BTreeMap<String, u64>>);

#[derive(Debug, Default)]
struct Histogram {
    buckets: [AtomicU64; BUCKETS.len()],
    count: AtomicU64,
    micros: AtomicU64,
}

/// Counts one thing for as long as it lives.
#[derive(Debug)]
pub(super) struct GaugeGuard<'a>(&'a AtomicI64);

// === impl Metrics ===

impl Metrics {
    pub(super) fn request(&self, route: &str, status: u16, took: Duration) {
        self.requests.add(format!("route=\"{route}\",status=\"{status}\""), 1);
        self.request_seconds.observe(took);
    }

    pub(super) fn call(&self, method: &'static str) {
        self.calls.add(format!("method=\"{method}\""), 1);
    }

    pub(super) fn refusal(&self, code: ErrorCode) {
        self.refusals.add(format!("code=\"{code}\""), 1);
    }

    pub(super) fn accepted(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn turn(&self, outcome: &TurnOutcome, took: Duration) {
        self.turns.add(format!("outcome=\"{}\"", outcome.name()), 1);
        self.turn_seconds.observe(took);
        self.recent_turns.observe(took);
    }

    pub(super) fn usage(&self, usage: &Usage) {
        self.tokens.add("direction=\"input\"".to_owned(), usage.input_tokens);
        self.tokens.add("direction=\"output\"".to_owned(), usage.output_tokens);
    }

    pub(super) fn lagged(&self) {
        self.lagged.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn first_text(&self, took: Duration) {
        self.first_text_seconds.observe(took);
        self.recent_first_texts.observe(took);
    }

    /// What is shown to people.
    pub(super) fn stats(&self) -> StatsView {
        let gauge = |gauge_value: &AtomicI64| {
            u64::try_from(gauge_value.load(Ordering::Relaxed)).unwrap_or(0)
        };
        StatsView {
            accepted: self.accepted.load(Ordering::Relaxed),
            turns: self.turn_seconds.count.load(Ordering::Relaxed),
            connections: gauge(&self.connections),
            sockets: gauge(&self.sockets),
            first_text: self.recent_first_texts.latency(),
            turn: self.recent_turns.latency(),
        }
    }

    pub(super) fn connection(&self) -> GaugeGuard<'_> {
        GaugeGuard::new(&self.connections)
    }

    pub(super) fn socket(&self) -> GaugeGuard<'_> {
        GaugeGuard::new(&self.sockets)
    }

    /// Everything, as a scraper reads it.
    pub(super) fn render(&self, connections: &Connections, out: &mut String) {
        let prefix = "clawnode_gateway";
        let evicted = AtomicU64::new(connections.evicted());
        self.requests.render(out, &format!("{prefix}_requests_total"), "HTTP requests");
        self.calls.render(out, &format!("{prefix}_calls_total"), "JSON-RPC requests");
        self.refusals.render(out, &format!("{prefix}_refusals_total"), "Refusals by code");
        self.turns.render(out, &format!("{prefix}_turns_total"), "Turns followed to their end");
        self.tokens.render(out, &format!("{prefix}_tokens_total"), "Tokens of followed turns");
        single(
            out,
            &format!("{prefix}_accepted_total"),
            "counter",
            "Messages stored",
            &self.accepted,
        );
        single(
            out,
            &format!("{prefix}_lagged_total"),
            "counter",
            "Streams that lagged",
            &self.lagged,
        );
        single(
            out,
            &format!("{prefix}_connections"),
            "gauge",
            "Open connections",
            &self.connections,
        );
        let name = format!("{prefix}_evicted_total");
        single(out, &name, "counter", "Connections without a token that made room", &evicted);
        single(out, &format!("{prefix}_sockets"), "gauge", "Open WebSockets", &self.sockets);
        self.request_seconds.render(
            out,
            &format!("{prefix}_request_seconds"),
            "Time to the head of an HTTP answer",
        );
        self.first_text_seconds.render(
            out,
            &format!("{prefix}_first_text_seconds"),
            "Time from a message to the first text of its reply",
        );
        self.turn_seconds.render(
            out,
            &format!("{prefix}_turn_seconds"),
            "Time from a message to the end of its turn",
        );
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    line(out, format_args!("# HELP {name} {help}"));
    line(out, format_args!("# TYPE {name} {kind}"));
}

fn single<T: ReadOut>(out: &mut String, name: &str, kind: &str, help: &str, value: &T) {
    head(out, name, kind, help);
    line(out, format_args!("{name} {}", value.read_out()));
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a `String` cannot fail.
    if writeln!(out, "{text}").is_err() {
        tracing::error!("a metric could not be written");
    }
}

/// What a counter and a gauge have in common.
trait ReadOut {
    fn read_out(&self) -> i128;
}

impl ReadOut for AtomicU64 {
    fn read_out(&self) -> i128 {
        i128::from(self.load(Ordering::Relaxed))
    }
}

impl ReadOut for AtomicI64 {
    fn read_out(&self) -> i128 {
        i128::from(self.load(Ordering::Relaxed))
    }
}

// === impl Family ===

impl Family {
    fn add(&self, labels: String, by: u64) {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *values.entry(labels).or_default() += by;
    }

    fn render(&self, out: &mut String, name: &str, help: &str) {
        head(out, name, "counter", help);
        let values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (labels, value) in values.iter() {
            line(out, format_args!("{name}{{{labels}}} {value}"));
        }
    }
}

// === impl Histogram ===

impl Histogram {
    fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        if let Some(at) = BUCKETS.iter().position(|&bound| seconds <= bound) {
            self.buckets[at].fetch_add(1, Ordering::Relaxed);
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    fn render(&self, out: &mut String, name: &str, help: &str) {
        head(out, name, "histogram", help);
        let mut total = 0;
        for (bound, bucket) in BUCKETS.iter().zip(&self.buckets) {
            total += bucket.load(Ordering::Relaxed);
            line(out, format_args!("{name}_bucket{{le=\"{bound}\"}} {total}"));
        }
        let count = self.count.load(Ordering::Relaxed).max(total);
        let sum = Duration::from_micros(self.micros.load(Ordering::Relaxed)).as_secs_f64();
        line(out, format_args!("{name}_bucket{{le=\"+Inf\"}} {count}"));
        line(out, format_args!("{name}_sum {sum}"));
        line(out, format_args!("{name}_count {count}"));
    }
}

// === impl RecentDurations ===

impl RecentDurations {
    fn observe(&self, took: Duration) {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() == RECENT {
            recent.pop_front();
        }
        recent.push_back(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
    }

    fn latency(&self) -> Latency {
        let recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sorted: Vec<u64> = recent.iter().copied().collect();
        drop(recent);
        sorted.sort_unstable();
        // The nearest rank: the smallest that so many of a hundred do not exceed.
        let at_percent = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100);
            sorted.get(rank.saturating_sub(1)).copied()
        };
        let samples = u32::try_from(sorted.len()).unwrap_or(u32::MAX);
        Latency { samples, p50_ms: at_percent(50), p99_ms: at_percent(99) }
    }
}

// === impl GaugeGuard ===

impl<'a> GaugeGuard<'a> {
    fn new(gauge: &'a AtomicI64) -> Self {
        gauge.fetch_add(1, Ordering::Relaxed);
        Self(gauge)
    }
}

impl Drop for GaugeGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    #[test]
    fn what_was_usual_lately() {
        let metrics = Metrics::default();
        let done = TurnOutcome::Cancelled;
        assert_eq!(metrics.stats().turn, Latency::default());
        for _ in 0..RECENT {
            metrics.turn(&done, Duration::from_hours(1));
        }
        for millis in 1..=RECENT as u64 {
            metrics.turn(&done, Duration::from_millis(millis));
        }
        let expected = Latency { samples: 1_024, p50_ms: Some(512), p99_ms: Some(1_014) };
        assert_eq!(metrics.stats().turn, expected);
        assert_eq!(metrics.stats().turns, 2_048);
    }

    #[test]
    fn the_text_a_scraper_reads() {
        let metrics = Metrics::default();
        metrics.request("/ws", 101, Duration::from_micros(1_500));
        metrics.request("/ws", 101, Duration::from_mins(10));
        metrics.refusal(ErrorCode::Unauthorized);
        metrics.usage(&Usage { input_tokens: 3, output_tokens: 4, ..Usage::default() });
        let open = metrics.socket();
        let connections = Connections::new(NonZeroUsize::MIN, NonZeroUsize::MIN);
        let mut out = String::new();
        metrics.render(&connections, &mut out);
        for expected in [
            "# TYPE clawnode_gateway_requests_total counter\n",
            "clawnode_gateway_requests_total{route=\"/ws\",status=\"101\"} 2\n",
            "clawnode_gateway_refusals_total{code=\"unauthorized\"} 1\n",
            "clawnode_gateway_tokens_total{direction=\"output\"} 4\n",
            "clawnode_gateway_sockets 1\n",
            "clawnode_gateway_evicted_total 0\n",
            "clawnode_gateway_request_seconds_bucket{le=\"0.001\"} 0\n",
            "clawnode_gateway_request_seconds_bucket{le=\"0.0025\"} 1\n",
            "clawnode_gateway_request_seconds_bucket{le=\"120\"} 1\n",
            "clawnode_gateway_request_seconds_bucket{le=\"+Inf\"} 2\n",
            "clawnode_gateway_request_seconds_count 2\n",
        ] {
            assert!(out.contains(expected), "{expected}\nin\n{out}");
        }
        drop(open);
        out.clear();
        metrics.render(&connections, &mut out);
        assert!(out.contains("clawnode_gateway_sockets 0\n"));
    }
}
