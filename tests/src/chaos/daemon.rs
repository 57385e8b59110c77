//! A process of a stage: started on a host, signalled, killed, and never left behind.
//!
//! Each is a process group of its own and is killed with it when dropped. Where `setpriv` is
//! there, it dies with this program too, also when that is killed.

use std::{
    fs::OpenOptions,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use super::{ChaosError, wait::PATIENCE};

/// Bytes of a log that an error shows.
const LOG_END: usize = 3_000;
/// Where programs of the system are, also when `PATH` leaves out those of its administrator.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// How a process is started.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// What it is called in reports, and its log.
    pub name: String,
    /// The network namespace that it runs in.
    pub namespace: Option<String>,
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its whole environment.
    pub vars: Vec<(String, String)>,
    /// The folder with its log, `NAME.log`; it runs there.
    pub dir: PathBuf,
}

/// A running process.
#[derive(Debug)]
pub struct Daemon {
    name: String,
    log: PathBuf,
    child: Child,
    pid: Pid,
    stdout: BufReader<ChildStdout>,
}

// === impl Spec ===

impl Spec {
    /// Where its standard error goes.
    pub fn log(&self) -> PathBuf {
        self.dir.join(format!("{}.log", self.name))
    }

    fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(setpriv) = tool("setpriv") {
            words.extend([setpriv.display().to_string(), "--pdeathsig".into(), "KILL".into()]);
        }
        if let (Some(name), Some(ip)) = (&self.namespace, tool("ip")) {
            words.push(ip.display().to_string());
            words.extend(["netns".to_owned(), "exec".to_owned(), name.clone()]);
        }
        words.push(self.program.display().to_string());
        words.extend(self.args.iter().cloned());
        words
    }
}

// === impl Daemon ===

impl Daemon {
    /// Starts it.
    pub fn start(spec: &Spec) -> Result<Self, ChaosError> {
        let (name, log) = (spec.name.clone(), spec.log());
        let file = OpenOptions::new().create(true).append(true).open(&log);
        let file = file.map_err(ChaosError::io(format!("open `{}`", log.display())))?;
        let words = spec.words();
        let Some((first, rest)) = words.split_first() else {
            return Err(ChaosError::Missing(format!("`{name}` has no program")));
        };
        let mut command = Command::new(first);
        command
            .args(rest)
            .env_clear()
            .envs(spec.vars.iter().map(|(name, value)| (name, value)))
            .current_dir(&spec.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file)
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(ChaosError::io(format!("start `{name}`")))?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let (Some(pid), Some(stdout)) = (pid, child.stdout.take()) else {
            return Err(ChaosError::Missing(format!("`{name}` has no pid or output")));
        };
        Ok(Self { name, log, child, pid, stdout: BufReader::new(stdout) })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process at the operating system.
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// The next line of its standard output.
    pub async fn line(&mut self) -> Result<String, ChaosError> {
        let mut line = String::new();
        timeout(PATIENCE, self.stdout.read_line(&mut line))
            .await
            .map_err(|_elapsed| ChaosError::Late(format!("a line of `{}`", self.name)))?
            .map_err(ChaosError::io(format!("read what `{}` says", self.name)))?;
        if line.is_empty() { Err(self.ended()) } else { Ok(line) }
    }

    /// Whether it runs, or is stopped by a signal.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal to it.
    pub fn signal(&self, signal: Signal) -> Result<(), ChaosError> {
        kill_process(self.pid, signal)
            .map_err(|error| ChaosError::io(format!("signal `{}`", self.name))(error.into()))
    }

    /// `kill -9`, and waits until it is gone.
    pub async fn kill(&mut self) -> Result<(), ChaosError> {
        if self.is_running() {
            self.signal(Signal::KILL)?;
        }
        self.exit(PATIENCE).await.map(drop)
    }

    /// Waits for its end.
    pub async fn exit(&mut self, patience: Duration) -> Result<ExitStatus, ChaosError> {
        timeout(patience, self.child.wait())
            .await
            .map_err(|_elapsed| ChaosError::Late(format!("the end of `{}`", self.name)))?
            .map_err(ChaosError::io(format!("wait for `{}`", self.name)))
    }

    /// Whether a process that it started outlived it.
    pub fn left_children(&mut self) -> bool {
        !self.is_running() && test_kill_process_group(self.pid).is_ok()
    }

    /// It ended by itself.
    pub fn ended(&self) -> ChaosError {
        ChaosError::Ended { name: self.name.clone(), log: log_end(&self.log) }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Not reaped yet, so the number is still ours.
        if self.child.id().is_some()
            && let Err(error) = kill_process_group(self.pid, Signal::KILL)
        {
            tracing::debug!(%error, name = self.name, "it was gone already");
        }
    }
}

/// The end of a log, for an error.
pub(super) fn log_end(path: &Path) -> String {
    let log = std::fs::read(path).unwrap_or_default();
    let from = log.len().saturating_sub(LOG_END);
    String::from_utf8_lossy(log.get(from..).unwrap_or_default()).into_owned()
}

/// A program of the system, if it is installed.
pub(super) fn tool(name: &str) -> Option<PathBuf> {
    FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
}

/// A program that is built beside this one.
pub(super) fn sibling(name: &str, how: &str) -> Result<PathBuf, ChaosError> {
    let own = std::env::current_exe().map_err(ChaosError::io("find this program"))?;
    let folder = own.parent().unwrap_or(Path::new("."));
    // A test lies in `deps`, below the programs.
    let folder = if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder };
    let path = folder.join(name);
    if path.is_file() {
        return Ok(path);
    }
    Err(ChaosError::Missing(format!("`{}` is not there; build it: `{how}`", path.display())))
}
