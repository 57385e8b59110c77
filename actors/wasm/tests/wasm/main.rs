//! The engine of plugins: what loads, what does not, and what no plugin can do to its host.
//!
//! Method: components written in text, on the real engine. Rows are those of the list of threats.
#![expect(clippy::unwrap_used, reason = "helpers of tests: their panic is the test's failure")]

mod cache;
mod corpus;
mod load;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use clawnode_wasm::{
    Call, CallError, Plugin, PluginGrants, PluginHostCalls, Request, Response, WasmEngine,
    text::PluginText,
};

/// Longer than any of these calls takes that is let be.
const LONG: Duration = Duration::from_mins(1);

/// A host that answers every request alike, counts them, and can end a call.
#[derive(Clone, Default)]
struct Tester {
    requests: Arc<AtomicU32>,
    is_stopped: Arc<AtomicBool>,
}

impl PluginHostCalls for Tester {
    fn fetch(&mut self, request: Request) -> Result<Response, String> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        Err(format!("no {}", request.url))
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }
}

fn engine() -> WasmEngine {
    WasmEngine::new(None).unwrap()
}

fn load(engine: &WasmEngine, wasm: &[u8]) -> Plugin {
    Plugin::load(engine, wasm, PluginGrants { http: true, ..PluginGrants::default() }).unwrap()
}

/// Calls a plugin with these arguments.
fn call(plugin: &Plugin, arguments: &str, longest: Duration) -> Result<String, CallError> {
    call_at(plugin, arguments, longest, Tester::default())
}

fn call_at(
    plugin: &Plugin,
    arguments: &str,
    longest: Duration,
    host: Tester,
) -> Result<String, CallError> {
    let call = Call {
        tool: "run".to_owned(),
        arguments: arguments.to_owned(),
        idempotency_key: "job_7".to_owned(),
    };
    plugin.call(&call, Box::new(host), longest)
}

/// A plugin that answers a call so.
fn calls(call: &str) -> Vec<u8> {
    PluginText { call, ..PluginText::default() }.bytes().unwrap()
}
