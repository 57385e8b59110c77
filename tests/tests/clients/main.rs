//! Other people's clients against `/v1` of a real node.
#![expect(clippy::unwrap_used, reason = "helpers of tests: their panic is the test's failure")]

mod document;
mod functions;
mod generated;
mod repeats;
mod responses;
mod table;
mod thinking;

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use clawnode_tests::process::Client;
use serde::de::DeserializeOwned;
use tokio::process::Command;

/// What brings the packages.
const INSTALL: &str = "cargo xtest --setup";

/// Runs a program of `tests/python` against a node; what it prints.
async fn python<T: DeserializeOwned>(program: &[&str], home: &Path, client: &Client) -> T {
    let named = std::env::var_os("CLAWNODE_TEST_PYTHONPATH").map(PathBuf::from);
    let packages = named.unwrap_or_else(|| tests().join("../.tools/python"));
    let python = std::env::var("CLAWNODE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut command = Command::new(python);
    command
        .arg(tests().join("python").join(program[0]))
        .args(&program[1..])
        .env("PYTHONPATH", packages)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    printed(command, home, client).await
}

/// Runs a program of `tests/js`, with the packages of `.tools/js`; what it prints.
async fn javascript<T: DeserializeOwned>(program: &[&str], home: &Path, client: &Client) -> T {
    let mut command = Command::new("node");
    command
        .arg(tests().join("js").join(program[0]))
        .arg(tests().join("../.tools/js").canonicalize().unwrap())
        .args(&program[1..]);
    printed(command, home, client).await
}

async fn printed<T: DeserializeOwned>(mut command: Command, home: &Path, client: &Client) -> T {
    // What a program keeps for itself goes with the test.
    let ran = command
        .current_dir(home)
        .env("HOME", home)
        .env("OPENAI_BASE_URL", format!("{}/v1", client.url()))
        .env("OPENAI_API_KEY", client.token())
        .env("ANTHROPIC_BASE_URL", client.url())
        .env("ANTHROPIC_API_KEY", client.token())
        .env("NO_PROXY", OsStr::new("127.0.0.1"))
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let complaint = String::from_utf8_lossy(&ran.stderr);
    let missing = ["No module named", "Cannot find module"];
    let missing = missing.iter().any(|module| complaint.contains(module));
    assert!(!missing, "a client is missing; run `{INSTALL}`:\n{complaint}");
    assert!(ran.status.success(), "{complaint}");
    let said = String::from_utf8_lossy(&ran.stdout);
    let read = serde_json::from_str(&said);
    assert!(read.is_ok(), "this is not JSON: {said}\n{complaint}");
    read.unwrap()
}

fn tests() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
