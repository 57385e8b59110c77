//! The world of plugins in Rust, made from the published text of it.

wasmtime::component::bindgen!({
    path: "wit",
    world: "tool",
    imports: { default: trappable },
});
