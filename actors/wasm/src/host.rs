//! What a plugin can ask for, and what is counted of its asking.

use wasmtime::ResourceLimiter;

use crate::{
    bindings::clawnode::plugin::{http, types},
    error::Stop,
    limits::{HOST_CALLS, INSTANCES, MEMORIES, MEMORY_BYTES, TABLE_ELEMENTS, TABLES},
    planted::Bugs,
};

/// The host of one call.
pub trait Host: Send {
    /// Makes a request for the plugin; it may block, but not when [`Self::is_stopped`]. Errors are
    /// told to the plugin.
    fn fetch(&mut self, request: http::Request) -> Result<http::Response, String>;

    /// Whether the call is to end now.
    fn is_stopped(&self) -> bool;
}

/// What belongs to one call.
pub(crate) struct State {
    host: Box<dyn Host>,
    pub(crate) room: Room,
    calls: u32,
    bugs: Bugs,
}

/// What an instance may have, and what it was refused.
#[derive(Debug)]
pub(crate) struct Room {
    /// Bytes of its memories.
    memory: usize,
    is_limited: bool,
    /// What it asked for last, and did not get.
    pub(crate) refused: Option<&'static str>,
}

// === impl State ===

impl State {
    pub(crate) fn new(host: Box<dyn Host>, bugs: Bugs) -> Self {
        let room = Room { memory: 0, is_limited: bugs.has_limiter(), refused: None };
        Self { host, room, calls: 0, bugs }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.host.is_stopped()
    }

    /// Counts a call to the host.
    fn asked(&mut self) -> wasmtime::Result<()> {
        self.calls = self.calls.saturating_add(1);
        if self.calls > HOST_CALLS && self.bugs.counts_calls() {
            return Err(wasmtime::Error::new(Stop::HostCalls));
        }
        Ok(())
    }
}

impl types::Host for State {}

impl http::Host for State {
    fn fetch(
        &mut self,
        request: http::Request,
    ) -> wasmtime::Result<Result<http::Response, String>> {
        self.asked()?;
        if self.is_stopped() {
            return Err(wasmtime::Error::new(Stop::Cancelled));
        }
        Ok(self.host.fetch(request))
    }
}

// === impl Room ===

impl ResourceLimiter for Room {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let together = self.memory.saturating_add(desired.saturating_sub(current));
        if together > MEMORY_BYTES && self.is_limited {
            self.refused = Some("memory");
            return Ok(false);
        }
        self.memory = together;
        Ok(true)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if desired > TABLE_ELEMENTS && self.is_limited {
            self.refused = Some("elements of a table");
            return Ok(false);
        }
        Ok(true)
    }

    fn instances(&self) -> usize {
        INSTANCES as usize
    }

    fn tables(&self) -> usize {
        TABLES as usize
    }

    fn memories(&self) -> usize {
        MEMORIES as usize
    }
}
