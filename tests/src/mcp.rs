//! MCP servers for tests: the reference servers, one that does harm, and what is left of either.

use std::{fs, path::PathBuf};

use crate::{process::ProcessError, wait::until};

/// The variable by which a test finds the processes of its own servers.
pub const MARK: &str = "CLAWNODE_TEST_MARK";

/// One of the reference servers of the protocol, as it was installed: `everything`, `filesystem`.
pub fn reference(name: &str) -> Result<PathBuf, ProcessError> {
    let installed = std::env::var_os("CLAWNODE_MCP_SERVERS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../.tools/mcp"),
        PathBuf::from,
    );
    let package = format!("node_modules/@modelcontextprotocol/server-{name}/dist/index.js");
    let path = installed.join(package);
    if path.is_file() { Ok(path) } else { Err(ProcessError::NoBinary(path)) }
}

/// The server that does harm; its first argument says how.
pub fn hostile() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/mcp/hostile.py")
}

/// Waits until no process has this mark; else says which ones do.
pub async fn unmarked(mark: &str) -> Result<(), ProcessError> {
    let gone = until("nothing is left", async || Ok(marked(mark).is_empty().then_some(())));
    gone.await.map_err(|error| {
        let left: Vec<String> = marked(mark).into_iter().map(described).collect();
        ProcessError::Late(format!("that no process is left ({error}; {left:?})"))
    })
}

/// A process, its state and its parent, as `/proc` has them.
fn described(pid: i32) -> String {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    format!("{} {}", read("stat").trim(), read("cmdline").replace('\0', " "))
}

/// The processes that have this mark in their environment, or come from one that does.
pub fn marked(mark: &str) -> Vec<i32> {
    let wanted = format!("{MARK}={mark}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // It may end meanwhile; what has ended has no environment.
        let Ok(environ) = fs::read(entry.path().join("environ")) else { continue };
        if environ.split(|byte| *byte == 0).any(|one| one == wanted.as_bytes()) {
            found.push(pid);
        }
    }
    found
}
