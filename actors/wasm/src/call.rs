//! One call: a store and an instance of its own, and every bound.

use std::time::{Duration, Instant};

use wasmtime::{PoolConcurrencyLimitError, Store, Trap, UpdateDeadline};

use crate::{
    bindings::{Tool, ToolPre},
    engine::WasmEngine,
    error::{CallError, HostStop, said},
    host::{CallState, PluginHostCalls},
    limits::FUEL,
};

/// Makes an instance, does `work` with it and forgets it.
pub(crate) fn with_instance<T>(
    engine: &WasmEngine,
    pre: &ToolPre<CallState>,
    host: Box<dyn PluginHostCalls>,
    longest: Duration,
    work: impl FnOnce(&Tool, &mut Store<CallState>) -> wasmtime::Result<T>,
) -> Result<T, CallError> {
    let _running = engine.ticker().running();
    let mut store = Store::new(engine.wasmtime(), CallState::new(host, engine.bugs()));
    store.limiter(|state| &mut state.room);
    store.set_hostcall_fuel(engine.bugs().lifted_bytes());
    let begun = Instant::now();
    let looks = engine.bugs().has_deadline();
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(move |context| {
        if context.data().is_stopped() {
            return Err(wasmtime::Error::new(HostStop::Cancelled));
        }
        if looks && begun.elapsed() >= longest {
            return Err(wasmtime::Error::new(HostStop::TimedOut));
        }
        Ok(UpdateDeadline::Continue(1))
    });
    let outcome = store
        .set_fuel(FUEL)
        .and_then(|()| pre.instantiate(&mut store))
        .and_then(|instance| work(&instance, &mut store));
    outcome.map_err(|error| ended(&error, &store, longest))
}

/// What an error of the engine means.
fn ended(error: &wasmtime::Error, store: &Store<CallState>, longest: Duration) -> CallError {
    match error.downcast_ref::<HostStop>() {
        Some(HostStop::TimedOut) => return CallError::TimedOut(longest),
        Some(HostStop::Cancelled) => return CallError::Cancelled,
        Some(stop @ HostStop::HostCalls) => return CallError::Trapped(stop.to_string()),
        None if error.is::<PoolConcurrencyLimitError>() => return CallError::Busy,
        None => {}
    }
    let mut why = match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => format!("more than {FUEL} instructions"),
        Some(trap) => trap.to_string(),
        None => said(error),
    };
    if let Some(refused) = store.data().room.refused {
        why.push_str("; before that it was refused more ");
        why.push_str(refused);
    }
    CallError::Trapped(why)
}
