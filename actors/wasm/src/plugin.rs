//! A plugin: checked against what it is granted, tried once, called as often as one likes.

use std::{fmt, time::Duration};

use wasmtime::component::HasSelf;

use crate::{
    bindings::{
        ToolPre,
        clawnode::plugin::{
            http, store,
            types::{self, Call, ToolSpec},
        },
    },
    call::with_instance,
    engine::WasmEngine,
    error::{CallError, LoadError, said},
    host::{CallState, PluginHostCalls},
    limits::{DESCRIBE, TOOLS},
};

/// What a plugin may import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginGrants {
    /// The interface `http`; which hosts it reaches is its [`PluginHostCalls`]'s matter.
    pub http: bool,
    /// The interface `store`; which stores it has is its [`PluginHostCalls`]'s matter.
    pub store: bool,
}

/// A component that has been compiled, linked and tried. Cheap to clone.
#[derive(Clone)]
pub struct Plugin {
    engine: WasmEngine,
    pre: ToolPre<CallState>,
    tools: Vec<ToolSpec>,
}

/// The host of a plugin that is only asked for its tools: it grants nothing.
struct NoHost;

// === impl Plugin ===

impl Plugin {
    /// Makes a plugin of a component's bytes, and asks it for its tools. This compiles: it takes
    /// milliseconds for small ones and half a minute for those that carry an interpreter.
    pub fn load(engine: &WasmEngine, wasm: &[u8], grants: PluginGrants) -> Result<Self, LoadError> {
        let component = engine.component(wasm)?;
        let mut linker = engine.linker::<CallState>();
        let wrong = |error: &wasmtime::Error| LoadError::World(said(error));
        types::add_to_linker::<_, HasSelf<_>>(&mut linker, |host| host).map_err(|e| wrong(&e))?;
        if grants.http {
            http::add_to_linker::<_, HasSelf<_>>(&mut linker, |host| host)
                .map_err(|e| wrong(&e))?;
        }
        if grants.store {
            store::add_to_linker::<_, HasSelf<_>>(&mut linker, |host| host)
                .map_err(|e| wrong(&e))?;
        }
        for (name, _) in component.component_type().imports(engine.wasmtime()) {
            match name.split_once('@').map_or(name, |(interface, _version)| interface) {
                "clawnode:plugin/types" => {}
                "clawnode:plugin/http" if grants.http => {}
                "clawnode:plugin/http" => {
                    let import = name.to_owned();
                    return Err(LoadError::Ungranted { import, needs: "http:HOST" });
                }
                "clawnode:plugin/store" if grants.store => {}
                "clawnode:plugin/store" => {
                    let import = name.to_owned();
                    return Err(LoadError::Ungranted { import, needs: "store:NAME" });
                }
                _ => return Err(LoadError::Import(name.chars().take(200).collect())),
            }
        }
        let pre = linker.instantiate_pre(&component).and_then(ToolPre::new);
        let pre = pre.map_err(|error| wrong(&error))?;
        let described = with_instance(engine, &pre, Box::new(NoHost), DESCRIBE, |tool, store| {
            tool.call_describe(store)
        });
        let tools = described.map_err(LoadError::Trial)?;
        if tools.is_empty() || tools.len() > TOOLS {
            return Err(LoadError::Tools(tools.len()));
        }
        Ok(Self { engine: engine.clone(), pre, tools })
    }

    /// What it says of its tools; nothing about it is checked.
    pub fn tools(&self) -> &[ToolSpec] {
        &self.tools
    }

    /// Runs a call in an instance of its own, on this thread, which is blocked meanwhile.
    pub fn call(
        &self,
        call: &Call,
        host: Box<dyn PluginHostCalls>,
        longest: Duration,
    ) -> Result<String, CallError> {
        let result = with_instance(&self.engine, &self.pre, host, longest, |tool, store| {
            tool.call_handle_tool_call(store, call)
        });
        result?.map_err(CallError::Tool)
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tools: Vec<&str> = self.tools.iter().map(|tool| tool.name.as_str()).collect();
        f.debug_struct("Plugin").field("tools", &tools).finish_non_exhaustive()
    }
}

// === impl NoHost ===

impl PluginHostCalls for NoHost {
    fn fetch(&mut self, _: http::Request) -> Result<http::Response, String> {
        Err("there is no network while a plugin says what it has".to_owned())
    }

    fn is_stopped(&self) -> bool {
        false
    }
}
