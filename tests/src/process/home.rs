//! A data directory with an environment of its own, and commands that run in it.

use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;
use tokio::{process::Command, time::timeout};

use super::ProcessError;
use crate::model::ModelServer;

/// Reaching it means a bug, not a slow machine.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);
/// Bytes of the nodes' log that a test shows with its failure.
const LOG_SHOWN: usize = 24_000;
/// If it is set, homes outlive their tests.
const KEEP: &str = "CLAWNODE_TEST_KEEP";
/// The key that providers are given.
const KEY: &str = "sk-crash-tests";

/// The storage backend of the nodes of a test.
#[derive(Clone, Debug)]
pub enum TestBackend {
    /// Their data directory.
    Local,
    /// A NATS server, with a prefix of the test's own.
    Nats {
        url: String,
        /// What subjects begin with.
        prefix: String,
    },
}

/// A home for a node, removed when dropped.
///
/// The end of its nodes' log is said on standard error then, where the test runner shows it of tests
/// that fail.
/// `CLAWNODE_TEST_KEEP=1` keeps it.
#[derive(Debug)]
pub struct Home {
    dir: TempDir,
    binary: PathBuf,
    backend: TestBackend,
    vars: Vec<(String, String)>,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; -1 if a signal ended it.
    pub code: i32,
    /// What it printed.
    pub out: String,
    /// What it complained about.
    pub err: String,
}

impl Home {
    /// A new home on this storage backend; the model is the built-in demo until a provider is named.
    pub fn new(backend: TestBackend) -> Result<Self, ProcessError> {
        let dir = tempfile::tempdir().map_err(ProcessError::io("make a home"))?;
        let vars = vec![
            ("HOME".to_owned(), dir.path().to_string_lossy().into_owned()),
            ("USER".to_owned(), "ada".to_owned()),
            // The account of the default budget would be one more entity for tests that count them.
            ("CLAWNODE_BUDGETS__DEFAULT".to_owned(), "false".to_owned()),
        ];
        Ok(Self { dir, binary: binary()?, backend, vars })
    }

    /// The same, with a variable in its environment.
    #[must_use]
    pub fn var(mut self, name: &str, value: &str) -> Self {
        self.vars.retain(|(known, _)| known != name);
        self.vars.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same, with this server behind Anthropic's wire.
    #[must_use]
    pub fn anthropic(self, server: &ModelServer) -> Self {
        self.var("ANTHROPIC_API_KEY", KEY).var("ANTHROPIC_BASE_URL", &server.url())
    }

    /// The same, with this server behind `OpenAI`'s wire.
    #[must_use]
    pub fn openai(self, server: &ModelServer) -> Self {
        self.var("OPENAI_API_KEY", KEY).var("OPENAI_BASE_URL", &server.openai_url())
    }

    /// The same, with this server behind Gemini's wire.
    #[must_use]
    pub fn gemini(self, server: &ModelServer) -> Self {
        self.var("GEMINI_API_KEY", KEY).var("GEMINI_BASE_URL", &server.gemini_url())
    }

    /// The key that the model servers are sent.
    pub const fn key() -> &'static str {
        KEY
    }

    /// What its nodes stand on.
    pub const fn backend(&self) -> &TestBackend {
        &self.backend
    }

    /// Where everything of it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.path().join(".local/share/clawnode")
    }

    /// The log of its nodes, one after another.
    pub fn log(&self) -> PathBuf {
        self.path().join("node.log")
    }

    /// The binary with this home's environment and storage backend, not yet started; a group of its own.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .args(args)
            .env_clear()
            .envs(self.vars.iter().map(|(name, value)| (name, value)))
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let TestBackend::Nats { url, prefix } = &self.backend {
            command.args(["--nats", url, "--prefix", prefix]);
        }
        command
    }

    /// The same at the terminal that it is given as standard input, in a session of its own.
    pub(super) fn at_terminal(&self, args: &[&str]) -> Command {
        let mut command = Command::new("/usr/bin/setsid");
        command
            .arg("--ctty")
            .arg(&self.binary)
            .args(args)
            .env_clear()
            .envs(self.vars.iter().map(|(name, value)| (name, value)))
            .current_dir(self.path())
            .kill_on_drop(true);
        if let TestBackend::Nats { url, prefix } = &self.backend {
            command.args(["--nats", url, "--prefix", prefix]);
        }
        command
    }

    /// Runs a command to its end.
    pub async fn run(&self, args: &[&str]) -> Result<Ended, ProcessError> {
        let running = self.command(args).output();
        let Output { status, stdout, stderr } = timeout(PATIENCE, running)
            .await
            .map_err(|_elapsed| ProcessError::Late(format!("the end of `clawnode {args:?}`")))?
            .map_err(ProcessError::io(format!("run `clawnode {args:?}`")))?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let code = status.code().unwrap_or(-1);
        Ok(Ended { code, out: text(stdout), err: text(stderr) })
    }
}

impl Drop for Home {
    #[expect(clippy::print_stderr, reason = "the test runner shows it for tests that fail")]
    fn drop(&mut self) {
        let log = std::fs::read(self.log()).unwrap_or_default();
        let from = log.len().saturating_sub(LOG_SHOWN);
        if !log.is_empty() && std::env::var_os("NEXTEST").is_some() {
            let shown = String::from_utf8_lossy(log.get(from..).unwrap_or_default());
            eprintln!("--- the nodes' log, from byte {from}\n{shown}---");
        }
        if std::env::var_os(KEEP).is_some() {
            self.dir.disable_cleanup(true);
            eprintln!("kept: {}", self.path().display());
        }
    }
}

impl Ended {
    /// What it printed, as JSON.
    pub fn json(&self) -> Result<Value, ProcessError> {
        serde_json::from_str(&self.out)
            .map_err(|error| ProcessError::Protocol(format!("{error}: {self:?}")))
    }
}

/// The binary under test.
pub fn binary() -> Result<PathBuf, ProcessError> {
    let path = if let Some(path) = std::env::var_os("CLAWNODE_BIN") {
        PathBuf::from(path)
    } else {
        let test = std::env::current_exe().map_err(ProcessError::io("find this test"))?;
        // target/debug/deps/TEST
        let folder = test.parent().and_then(Path::parent).unwrap_or(Path::new("."));
        folder.join("clawnode")
    };
    if path.is_file() { Ok(path) } else { Err(ProcessError::NoBinary(path)) }
}
