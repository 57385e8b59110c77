//! The engine's sense of time: a thread that counts while somebody is called, and sleeps otherwise.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use crate::limits::TICK;

/// Counts the engine's epoch while calls run.
#[derive(Debug)]
pub(crate) struct Ticker(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    calls: Mutex<Calls>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Calls {
    running: usize,
    /// The engine is gone.
    over: bool,
}

/// A call that runs; dropped at its end.
#[derive(Debug)]
pub(crate) struct Running<'a>(&'a Shared);

// === impl Ticker ===

impl Ticker {
    pub(crate) fn start(engine: wasmtime::Engine) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let its = Arc::clone(&shared);
        thread::Builder::new().name("wasm-ticker".to_owned()).spawn(move || its.count(&engine))?;
        Ok(Self(shared))
    }

    pub(crate) fn running(&self) -> Running<'_> {
        self.0.lock().running += 1;
        self.0.changed.notify_all();
        Running(&self.0)
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.0.lock().over = true;
        self.0.changed.notify_all();
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut calls = self.0.lock();
        debug_assert!(calls.running > 0, "who ends has begun");
        calls.running = calls.running.saturating_sub(1);
    }
}

// === impl Shared ===

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Calls> {
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
