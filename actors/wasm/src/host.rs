//! What a plugin can ask for, and what is counted of its asking.

use wasmtime::ResourceLimiter;

use crate::{
    bindings::clawnode::plugin::{
        http,
        store::{self, Entry, StoreError},
        types,
    },
    error::HostStop,
    limits::{HOST_CALLS, INSTANCES, MEMORIES, MEMORY_BYTES, TABLE_ELEMENTS, TABLES},
    planted::WasmBugs,
};

/// The host of one call.
pub trait PluginHostCalls: Send {
    /// Makes a request for the plugin; it may block, but not when [`Self::is_stopped`]. The plugin
    /// gets errors as text.
    fn fetch(&mut self, request: http::Request) -> Result<http::Response, String>;

    /// Reads and changes what the plugin keeps; it may block, but not when [`Self::is_stopped`]. A
    /// host that keeps nothing says so.
    fn store(&mut self, _ask: StoreAsk) -> Result<StoreAnswer, StoreError> {
        Err(StoreError::Unavailable("nothing is kept here".to_owned()))
    }

    /// Whether the call is to end now.
    fn is_stopped(&self) -> bool;
}

/// What a plugin asks of one of its stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreAsk {
    pub store: String,
    pub what: StoreCall,
}

/// What is to be done with a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreCall {
    /// Read a key.
    Get(String),
    /// Set a key to this value, if it is at the expected revision.
    Put(String, Vec<u8>, Option<u64>),
    /// Remove a key, if it is at the expected revision.
    Delete(String, Option<u64>),
    /// List the keys.
    Keys,
}

/// The result of a request.
#[derive(Clone, Debug)]
pub enum StoreAnswer {
    /// What is there.
    Got(Option<Entry>),
    /// The revision that it has now.
    Put(u64),
    /// It is gone.
    Deleted,
    Keys(Vec<String>),
}

/// What belongs to one call.
pub(crate) struct CallState {
    host: Box<dyn PluginHostCalls>,
    pub(crate) room: InstanceLimits,
    calls: u32,
    bugs: WasmBugs,
}

/// What an instance may have, and what it was refused.
#[derive(Debug)]
pub(crate) struct InstanceLimits {
    /// Bytes of its memories.
    memory: usize,
    is_limited: bool,
    /// What it asked for last, and did not get.
    pub(crate) refused: Option<&'static str>,
}

// === impl CallState ===

impl CallState {
    pub(crate) fn new(host: Box<dyn PluginHostCalls>, bugs: WasmBugs) -> Self {
        let room = InstanceLimits { memory: 0, is_limited: bugs.has_limiter(), refused: None };
        Self { host, room, calls: 0, bugs }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.host.is_stopped()
    }

    /// Counts a call to the host.
    fn asked(&mut self) -> wasmtime::Result<()> {
        self.calls = self.calls.saturating_add(1);
        if self.calls > HOST_CALLS && self.bugs.counts_calls() {
            return Err(wasmtime::Error::new(HostStop::HostCalls));
        }
        Ok(())
    }
}

impl types::Host for CallState {}

impl http::Host for CallState {
    fn fetch(
        &mut self,
        request: http::Request,
    ) -> wasmtime::Result<Result<http::Response, String>> {
        self.asked()?;
        if self.is_stopped() {
            return Err(wasmtime::Error::new(HostStop::Cancelled));
        }
        Ok(self.host.fetch(request))
    }
}

impl CallState {
    /// Asks a store, with what belongs to the answer alone.
    fn keep<T>(
        &mut self,
        store: String,
        what: StoreCall,
        read: impl FnOnce(StoreAnswer) -> Option<T>,
    ) -> wasmtime::Result<Result<T, StoreError>> {
        self.asked()?;
        if self.is_stopped() {
            return Err(wasmtime::Error::new(HostStop::Cancelled));
        }
        let other = || StoreError::Unavailable("the host answered something else".to_owned());
        let answer = self.host.store(StoreAsk { store, what });
        Ok(answer.and_then(|answer| read(answer).ok_or_else(other)))
    }
}

impl store::Host for CallState {
    fn get(
        &mut self,
        store: String,
        key: String,
    ) -> wasmtime::Result<Result<Option<Entry>, StoreError>> {
        self.keep(store, StoreCall::Get(key), |answer| match answer {
            StoreAnswer::Got(entry) => Some(entry),
            _ => None,
        })
    }

    fn put(
        &mut self,
        store: String,
        key: String,
        value: Vec<u8>,
        expected: Option<u64>,
    ) -> wasmtime::Result<Result<u64, StoreError>> {
        self.keep(store, StoreCall::Put(key, value, expected), |answer| match answer {
            StoreAnswer::Put(revision) => Some(revision),
            _ => None,
        })
    }

    fn delete(
        &mut self,
        store: String,
        key: String,
        expected: Option<u64>,
    ) -> wasmtime::Result<Result<(), StoreError>> {
        self.keep(store, StoreCall::Delete(key, expected), |answer| match answer {
            StoreAnswer::Deleted => Some(()),
            _ => None,
        })
    }

    fn keys(&mut self, store: String) -> wasmtime::Result<Result<Vec<String>, StoreError>> {
        self.keep(store, StoreCall::Keys, |answer| match answer {
            StoreAnswer::Keys(keys) => Some(keys),
            _ => None,
        })
    }
}

// === impl InstanceLimits ===

impl ResourceLimiter for InstanceLimits {
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
