//! The engine's sense of time: a thread that counts while a call runs, and sleeps otherwise.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use crate::limits::TICK;

/// Counts the engine's epoch while calls run.
#[derive(Debug)]
pub(crate) struct Ticker(Arc<TickerShared>);

#[derive(Debug, Default)]
struct TickerShared {
    calls: Mutex<RunningCalls>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct RunningCalls {
    running: usize,
    /// The engine is gone.
    over: bool,
}

/// A call that runs; dropped at its end.
#[derive(Debug)]
pub(crate) struct TickedCall<'a>(&'a TickerShared);

// === impl Ticker ===

impl Ticker {
    pub(crate) fn start(engine: wasmtime::Engine) -> io::Result<Self> {
        let shared = Arc::new(TickerShared::default());
        let its = Arc::clone(&shared);
        thread::Builder::new().name("wasm-ticker".to_owned()).spawn(move || its.count(&engine))?;
        Ok(Self(shared))
    }

    pub(crate) fn running(&self) -> TickedCall<'_> {
        self.0.lock().running += 1;
        self.0.changed.notify_all();
        TickedCall(&self.0)
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.0.lock().over = true;
        self.0.changed.notify_all();
    }
}

impl Drop for TickedCall<'_> {
    fn drop(&mut self) {
        let mut calls = self.0.lock();
        debug_assert!(calls.running > 0, "who ends has begun");
        calls.running = calls.running.saturating_sub(1);
    }
}

// === impl TickerShared ===

impl TickerShared {
    fn lock(&self) -> MutexGuard<'_, RunningCalls> {
        // A count is never half changed.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, engine: &wasmtime::Engine) {
        loop {
            let mut calls = self.lock();
            while calls.running == 0 && !calls.over {
                calls = self.changed.wait(calls).unwrap_or_else(PoisonError::into_inner);
            }
            if calls.over {
                return;
            }
            drop(calls);
            thread::sleep(TICK);
            engine.increment_epoch();
        }
    }
}
