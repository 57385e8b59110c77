//! The README of `examples/tools`, as written: both hosts on one machine, and a node on each.

use clawnode_tests::{
    process::ProcessError,
    readme::{ONE_MACHINE, TWO_MACHINES, play, play_with},
};

use super::Outcome;

/// Where `cargo xtest` says that it has built plugins.
const PLUGINS: &str = "CLAWNODE_TEST_PLUGINS";
/// The core module of the example's plugin there.
const MODULE: &str = "wasm32-unknown-unknown/release/echo.wasm";

/// In its name, because the script starts a Docker engine.
#[tokio::test]
async fn two_hosts_on_one_machine_with_docker_run_as_written() -> Outcome {
    let plugins = std::env::var_os(PLUGINS)
        .ok_or_else(|| ProcessError::Broken(format!("no `{PLUGINS}`: run `cargo xtest --wasm`")))?;
    let module = std::fs::read(std::path::Path::new(&plugins).join(MODULE)).unwrap();
    let encoder = wit_component::ComponentEncoder::default().validate(true).module(&module);
    let component = encoder.and_then(|mut encoder| encoder.encode()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("echo.wasm");
    std::fs::write(&file, component).unwrap();
    play_with(&ONE_MACHINE, &[("COMPONENT", &file)]).await
}

#[tokio::test]
async fn nodes_on_two_machines_over_nats_run_as_written() -> Outcome {
    play(&TWO_MACHINES).await
}
