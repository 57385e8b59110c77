//! An MCP server that is a program: started behind a keeper, stopped with all that it started.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use clawnode_proto::McpServerName;
use rustix::process::{Pid, Signal, kill_process};
use secrecy::ExposeSecret as _;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, error};

use super::{
    keeper::{keeper_arguments, piped},
    options::StdioOptions,
};

/// How long a server may take to end after its input has ended (2 s), before it is asked to.
const EOF_GRACE: Duration = Duration::from_secs(2);
/// How long its keeper may take to end it then (15 s): it gives it 2 s, and kills for at most 10.
const KEEPER_GRACE: Duration = Duration::from_secs(15);
/// How long the last line on its standard error is waited for (200 ms).
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Bytes of a line on its standard error that are read; what follows is another line.
const STDERR_LINE: u64 = 1_024;
/// Lines of one run that are logged: what a server has to say later is rarely news.
const STDERR_LINES: u32 = 1_000;
/// The shortest text of an environment variable that is looked for in what is logged.
const SECRET_MIN: usize = 4;

/// A running program. Dropping it asks its keeper to end it.
#[derive(Debug)]
pub(super) struct Process {
    server: McpServerName,
    keeper: Child,
    last: Arc<Mutex<String>>,
    stderr: AbortOnDropHandle<()>,
}

/// Its streams.
pub(super) type Streams = (ChildStdout, ChildStdin);

impl Process {
    /// Starts the program; it may still turn out not to be one.
    pub(super) fn start(
        server: &McpServerName,
        options: &StdioOptions,
    ) -> io::Result<(Self, Streams)> {
        let (keeper, marker) = &options.keeper;
        let mut command = Command::new(keeper);
        command
            .arg(marker)
            .args(keeper_arguments(std::process::id(), &options.command, &options.args))
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
        let secrets: Vec<String> =
            options.env.values().map(|value| value.expose_secret().to_owned()).collect();
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
            error!(%server, "what keeps an MCP server does not end; something of it may be left");
            if let Err(failure) = self.keeper.kill().await {
                debug!(%server, %failure, "the keeper is gone");
            }
        }
    }

    fn tell(&self, how: Signal) {
        // Without an id it has been waited for: it is gone.
        let pid = self.keeper.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid
            && let Err(failure) = kill_process(pid, how)
        {
            debug!(server = %self.server, %failure, "the keeper is gone");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.tell(Signal::TERM);
    }
}

/// Logs what a server writes on its standard error, bounded and without its secrets.
async fn listen(
    server: McpServerName,
    stderr: ChildStderr,
    secrets: Vec<String>,
    last: Arc<Mutex<String>>,
) {
    let mut read = BufReader::new(stderr);
    let mut line = Vec::new();
    let mut lines = 0_u32;
    loop {
        line.clear();
        match (&mut read).take(STDERR_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = shown(&String::from_utf8_lossy(&line), &secrets);
        if text.is_empty() {
            continue;
        }
        lines = lines.saturating_add(1);
        if lines <= STDERR_LINES {
            debug!(%server, line = text, "said on standard error");
        } else if lines == STDERR_LINES + 1 {
            debug!(%server, "it says too much; the rest is not logged");
        }
        *last.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

/// A line as it may be logged.
fn shown(line: &str, secrets: &[String]) -> String {
    let mut text = line.to_owned();
    for secret in secrets.iter().filter(|secret| secret.len() >= SECRET_MIN) {
        text = text.replace(secret.as_str(), "[redacted]");
    }
    let clean = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    clean.take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_logged_has_no_secret_and_no_escapes() {
        let secrets = ["hunter22".to_owned(), "abc".to_owned()];
        assert_eq!(shown("key=hunter22 \u{1b}[31mabc\n", &secrets), "key=[redacted]  [31mabc");
        assert_eq!(shown(&"x".repeat(900), &[]).len(), 300);
    }
}
