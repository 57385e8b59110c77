//! `plugin::call`, `plugin::load`, `plugin::ends`: what a plugin costs, and how late one that hangs
//! is ended.
//!
//! The plugin is a few lines of WebAssembly that return their arguments, or the component that
//! `--component` names (its tool is called with `{}`). Run with
//! `cargo run --release -p clawnode-bench --features wasm --bin plugins`.
#![expect(clippy::print_stderr, reason = "what is wrong is a bench's output too")]

use std::{
    path::PathBuf,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use clawnode_bench::{Row, Table, percentile};
use clawnode_wasm::{
    Cache, Call, CallError, LoadError, Plugin, PluginGrants, PluginHostCalls, Request, Response,
    WasmEngine, limits, text::PluginText,
};

/// What a fresh instance and a call in it may take at the median, in milliseconds.
const CALL_MS: f64 = 1.0;
/// How long after its deadline a call may end, in milliseconds.
const LATE_MS: f64 = 100.0;
/// What calls that hang are given.
const DEADLINE: Duration = Duration::from_millis(100);

/// Measures plugins.
#[derive(Debug, Parser)]
struct Args {
    /// Calls
    #[arg(long, default_value_t = 20_000)]
    calls: usize,
    /// Loads
    #[arg(long, default_value_t = 50)]
    loads: usize,
    /// Calls that hang, one after the other; then as many at once as there is room for
    #[arg(long, default_value_t = 50)]
    hung: usize,
    /// A component to measure instead of the built-in one
    #[arg(long)]
    component: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("a plugin in text: {0}")]
    Text(String),
    #[error("a call that hangs ended otherwise: {0:?}")]
    Ended(Result<String, CallError>),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// A host that has nothing.
struct Nothing;

impl PluginHostCalls for Nothing {
    fn fetch(&mut self, _: Request) -> Result<Response, String> {
        Err("there is nothing".to_owned())
    }

    fn is_stopped(&self) -> bool {
        false
    }
}

fn main() -> ExitCode {
    match bench(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(args: &Args) -> Result<(), BenchError> {
    let text =
        |text: PluginText<'_>| text.bytes().map_err(|error| BenchError::Text(error.to_string()));
    let wasm = match &args.component {
        Some(path) => std::fs::read(path)?,
        None => text(PluginText::default())?,
    };
    let dir = tempfile::tempdir()?;
    let open = || {
        WasmEngine::new(Some(Cache::open(&dir.path().join("plugins"))?)).map_err(BenchError::Load)
    };
    let mut table = Table::default();

    let engine = open()?;
    let begun = Instant::now();
    Plugin::load(&engine, &wasm, PluginGrants { http: true, ..PluginGrants::default() })?;
    table.add(Row::new("plugin::load/from=source").figure("ms", ms(begun.elapsed())));
    let mut loads = Vec::with_capacity(args.loads);
    for _ in 0..args.loads {
        let begun = Instant::now();
        Plugin::load(&engine, &wasm, PluginGrants { http: true, ..PluginGrants::default() })?;
        loads.push(begun.elapsed());
    }
    loads.sort_unstable();
    let row = Row::new("plugin::load/from=cache");
    table.add(row.figure("p50 ms", ms(percentile(&loads, 500))));

    // A process that starts again finds what was compiled before.
    let plugin =
        Plugin::load(&open()?, &wasm, PluginGrants { http: true, ..PluginGrants::default() })?;
    let mut calls = Vec::with_capacity(args.calls);
    for _ in 0..args.calls {
        let begun = Instant::now();
        call(&plugin, Duration::from_secs(10))?;
        calls.push(begun.elapsed());
    }
    calls.sort_unstable();
    let (p50, p99) = (ms(percentile(&calls, 500)), ms(percentile(&calls, 990)));
    let row = Row::new("plugin::call/instance=fresh").figure("p50 ms", p50).figure("p99 ms", p99);
    table.add(row.at_most("p50 ms", p50, CALL_MS));

    let forever = text(PluginText {
        call: "(loop $again (br $again)) unreachable",
        ..PluginText::default()
    })?;
    let hung = Plugin::load(&open()?, &forever, PluginGrants::default())?;
    let mut late = Vec::with_capacity(args.hung);
    for _ in 0..args.hung {
        late.push(lateness(&hung)?);
    }
    table.add(ends("plugin::ends/hung=1", late));
    let at_once = thread::scope(|scope| {
        let calls: Vec<_> = (0..limits::CALLS).map(|_| scope.spawn(|| lateness(&hung))).collect();
        let ended = |call: thread::ScopedJoinHandle<'_, _>| {
            call.join().unwrap_or(Err(BenchError::Text("a call panicked".to_owned())))
        };
        calls.into_iter().map(ended).collect::<Result<Vec<_>, _>>()
    })?;
    table.add(ends(&format!("plugin::ends/hung={}", limits::CALLS), at_once));
    Ok(table.json()?)
}

fn call(plugin: &Plugin, longest: Duration) -> Result<String, CallError> {
    let tool = plugin.tools().first().map(|tool| tool.name.clone()).unwrap_or_default();
    let call = Call { tool, arguments: "{}".to_owned(), idempotency_key: "job_1".to_owned() };
    plugin.call(&call, Box::new(Nothing), longest)
}

/// How long after its deadline a call ends.
fn lateness(plugin: &Plugin) -> Result<Duration, BenchError> {
    let begun = Instant::now();
    match call(plugin, DEADLINE) {
        Err(CallError::TimedOut(_)) => Ok(begun.elapsed().saturating_sub(DEADLINE)),
        other => Err(BenchError::Ended(other)),
    }
}

fn ends(name: &str, mut late: Vec<Duration>) -> Row {
    late.sort_unstable();
    let worst = ms(percentile(&late, 1_000));
    let row = Row::new(name).figure("late p50 ms", ms(percentile(&late, 500)));
    row.figure("worst ms", worst).at_most("worst ms", worst, LATE_MS)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
