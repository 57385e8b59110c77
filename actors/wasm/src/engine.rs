//! The engine: what compiles plugins and sets room aside for their instances.

use std::{fmt, sync::Arc};

use wasmtime::{
    Config, InstanceAllocationStrategy, PoolingAllocationConfig,
    component::{Component, Linker},
};

use crate::{
    cache::Cache,
    error::{LoadError, said},
    limits::{
        CALLS, COMPONENT_BYTES, INSTANCES, MEMORIES, MEMORY_BYTES, STACK_BYTES, TABLE_ELEMENTS,
        TABLES,
    },
    planted::WasmBugs,
    ticker::Ticker,
};

/// Compiles plugins, and holds what all of them share. Cheap to clone.
#[derive(Clone)]
pub struct WasmEngine(Arc<Inner>);

struct Inner {
    wasmtime: wasmtime::Engine,
    ticker: Ticker,
    cache: Option<Cache>,
    bugs: WasmBugs,
}

impl WasmEngine {
    /// An engine that keeps what it compiles in `cache`, if there is one.
    pub fn new(cache: Option<Cache>) -> Result<Self, LoadError> {
        Self::with_bugs(cache, WasmBugs::default())
    }

    /// One with a bug in it.
    #[cfg(feature = "test-util")]
    pub fn with_bug(cache: Option<Cache>, planted: crate::WasmBug) -> Result<Self, LoadError> {
        Self::with_bugs(cache, WasmBugs::planted(planted))
    }

    fn with_bugs(cache: Option<Cache>, bugs: WasmBugs) -> Result<Self, LoadError> {
        let wasmtime = wasmtime::Engine::new(&config(bugs))
            .map_err(|error| LoadError::Engine(said(&error)))?;
        let ticker = Ticker::start(wasmtime.clone())
            .map_err(|error| LoadError::Engine(format!("no thread for its clock: {error}")))?;
        Ok(Self(Arc::new(Inner { wasmtime, ticker, cache, bugs })))
    }

    /// Where compiled code is kept, if it is.
    pub fn cache(&self) -> Option<&Cache> {
        self.0.cache.as_ref()
    }

    /// Compiles a component, or takes it from the cache.
    pub(crate) fn component(&self, wasm: &[u8]) -> Result<Component, LoadError> {
        if wasm.len() > COMPONENT_BYTES {
            return Err(LoadError::TooLarge(wasm.len()));
        }
        let cached = self.0.cache.as_ref().map(|cache| (cache, cache.entry(self, wasm)));
        if let Some((cache, entry)) = &cached
            && let Some(component) = cache.component(self, entry)
        {
            return Ok(component);
        }
        let component = Component::from_binary(self.wasmtime(), wasm)
            .map_err(|error| LoadError::Invalid(said(&error)))?;
        if let Some((cache, entry)) = &cached {
            cache.keep(entry, &component);
        }
        Ok(component)
    }

    pub(crate) fn linker<T: 'static>(&self) -> Linker<T> {
        Linker::new(self.wasmtime())
    }

    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.0.wasmtime
    }

    pub(crate) fn ticker(&self) -> &Ticker {
        &self.0.ticker
    }

    pub(crate) fn bugs(&self) -> WasmBugs {
        self.0.bugs
    }
}

impl fmt::Debug for WasmEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("cache", &self.0.cache).finish_non_exhaustive()
    }
}

/// How plugins are compiled and kept apart.
fn config(bugs: WasmBugs) -> Config {
    let memory = if bugs.has_limiter() { MEMORY_BYTES } else { 4 * MEMORY_BYTES };
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(CALLS)
        .max_core_instances_per_component(INSTANCES)
        .total_core_instances(CALLS * INSTANCES)
        .max_memories_per_component(MEMORIES)
        .total_memories(CALLS * MEMORIES)
        .max_tables_per_component(TABLES)
        .total_tables(CALLS * TABLES)
        .table_elements(TABLE_ELEMENTS)
        .max_memory_size(memory);
    let mut config = Config::new();
    // Addresses only: a memory is as large as it may become, and never moves. More would let the
    // compiler leave out checks, and take 4 GiB of addresses for each.
    let reserved = u64::try_from(memory).unwrap_or(u64::MAX);
    config
        .wasm_component_model(true)
        .consume_fuel(true)
        .epoch_interruption(true)
        .max_wasm_stack(STACK_BYTES)
        .memory_reservation(reserved)
        .wasm_backtrace_max_frames(None)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}
