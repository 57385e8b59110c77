//! An MCP server that is a program: started behind a keeper, stopped with all that it started.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use clawnode_proto::McpServerName;
use clawnode_tool::orphaned_processes::{keeper_arguments, piped};
use rustix::process::{Pid, Signal, kill_process};
use secrecy::ExposeSecret as _;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, error};

use super::{options::StdioOptions, secrets::Secrets};

/// How long a server may take to end after its input has ended (2 s), before it is asked to.
const EOF_GRACE: Duration = Duration::from_secs(2);
/// How long its keeper may take to end it then (15 s): it gives it 2 s, and kills for at most 10.
const KEEPER_GRACE: Duration = Duration::from_secs(15);
/// How long the last line on its standard error is waited for (200 ms).
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Bytes of a line on its standard error that are kept; what follows on that line is not.
const STDERR_LINE: u64 = 1_024;
/// Lines of one run that are logged: what a server has to say later is rarely news.
const STDERR_LINES: u32 = 1_000;
/// Characters that are shown of a line.
const SHOWN: usize = 300;

/// A running program. Dropping it asks its keeper to end it.
#[derive(Debug)]
pub(super) struct ServerProcess {
    server: McpServerName,
    keeper: Child,
    last: Arc<Mutex<String>>,
    stderr: AbortOnDropHandle<()>,
}

/// Its streams.
pub(super) type Streams = (ChildStdout, ChildStdin);

impl ServerProcess {
    /// Starts the program; it may still turn out not to be one.
    pub(super) fn start(
        server: &McpServerName,
        options: &StdioOptions,
        secrets: Arc<Secrets>,
    ) -> io::Result<(Self, Streams)> {
        let (keeper, marker) = &options.keeper;
        let mut command = Command::new(keeper);
        command
            .arg(marker)
            .args(keeper_arguments(
                std::process::id(),
                options.hidden.as_deref(),
                &options.command,
                &options.args,
            ))
            .current_dir(&options.cwd)
            .env_clear()
            .envs(&options.base_env)
            .envs(options.env.iter().map(|(name, value)| (name, value.expose_secret())));
        piped(&mut command);
        let mut keeper = command.spawn()?;
        let missing = || io::Error::other("the program has no streams");
        let stdin = keeper.stdin.take().ok_or_else(missing)?;
        let stdout = keeper.stdout.take().ok_or_else(missing)?;
        let stderr = keeper.stderr.take().ok_or_else(missing)?;
        let last = Arc::new(Mutex::new(String::new()));
        let listening = listen(server.clone(), stderr, secrets, Arc::clone(&last));
        let stderr = AbortOnDropHandle::new(tokio::spawn(listening));
        Ok((Self { server: server.clone(), keeper, last, stderr }, (stdout, stdin)))
    }

    /// Ends it; its input has ended already. Returns once nothing of it is left, with the last line
    /// that it wrote on its standard error.
    pub(super) async fn stop(mut self) -> String {
        if timeout(EOF_GRACE, self.keeper.wait()).await.is_err() {
            self.end(Signal::TERM).await;
        }
        // What it wrote last may still be on its way.
        drop(timeout(LAST_WORDS, &mut self.stderr).await);
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kills it without asking; returns once nothing of it is left.
    pub(super) async fn kill(mut self) {
        self.end(Signal::QUIT).await;
    }

    async fn end(&mut self, how: Signal) {
        self.tell(how);
        if timeout(KEEPER_GRACE, self.keeper.wait()).await.is_err() {
            let server = &self.server;
            error!(%server, "cannot end the watcher of an MCP server; its processes may be left");
            if let Err(failure) = self.keeper.kill().await {
                debug!(%server, %failure, "the watcher of an MCP server is gone");
            }
        }
    }

    fn tell(&self, how: Signal) {
        // Without an id it has been waited for: it is gone.
        let pid = self.keeper.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid
            && let Err(failure) = kill_process(pid, how)
        {
            debug!(server = %self.server, %failure, "the watcher of an MCP server is gone");
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.tell(Signal::TERM);
    }
}

/// Logs what a server writes on its standard error, bounded and without its secrets.
async fn listen(
    server: McpServerName,
    stderr: impl AsyncRead + Unpin,
    secrets: Arc<Secrets>,
    last: Arc<Mutex<String>>,
) {
    let mut read = BufReader::new(stderr);
    let mut line = Vec::new();
    let mut lines = 0_u32;
    // Whether the beginning of the present line was logged already.
    let mut goes_on = false;
    loop {
        line.clear();
        let read = match (&mut read).take(STDERR_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(read) => u64::try_from(read).unwrap_or(STDERR_LINE),
        };
        let is_cut = read >= STDERR_LINE && line.last() != Some(&b'\n');
        let is_rest = std::mem::replace(&mut goes_on, is_cut);
        if is_rest {
            continue;
        }
        let text = String::from_utf8_lossy(&line);
        let text =
            if goes_on { secrets.hide_cut(&text, SHOWN) } else { secrets.hide(&text, SHOWN) };
        if text.is_empty() {
            continue;
        }
        lines = lines.saturating_add(1);
        if lines <= STDERR_LINES {
            debug!(%server, line = text, "the MCP server wrote on standard error");
        } else if lines == STDERR_LINES + 1 {
            debug!(%server, "the MCP server writes too much; the rest is not logged");
        }
        *last.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{super::options::McpTransport, *};

    /// What is known as the last line of a program that says this and has this secret.
    async fn last_of(said: &str, secret: &str) -> String {
        let program = StdioOptions {
            command: String::new(),
            args: Vec::new(),
            env: BTreeMap::from([("KEY".to_owned(), secret.to_owned().into())]),
            cwd: "/".into(),
            hidden: None,
            base_env: BTreeMap::new(),
            keeper: ("/".into(), String::new()),
        };
        let secrets = Arc::new(Secrets::of(&McpTransport::Stdio(program)));
        let last: Arc<Mutex<String>> = Arc::default();
        listen("bad".parse().unwrap(), said.as_bytes(), secrets, Arc::clone(&last)).await;
        last.lock().unwrap().clone()
    }

    #[tokio::test]
    async fn no_part_of_a_secret_is_logged_wherever_a_long_line_is_cut() {
        let secret = "hunter2apikey";
        for before in 1_005..=1_030 {
            // The redactions shorten what comes before, so that the border is among what is shown.
            let padding = secret.repeat(before / secret.len()) + &"-".repeat(before % secret.len());
            let last = last_of(&format!("{padding}{secret} and more\n"), secret).await;
            for part in ["hu", "nt", "er", "2a", "pi", "ke", "ey"] {
                assert!(!last.contains(part), "{before}: {last}");
            }
        }
        assert_eq!(last_of("first\nit says hunter2apikey", secret).await, "it says [redacted]");
        assert_eq!(last_of("the whole end", secret).await, "the whole end");
    }
}
