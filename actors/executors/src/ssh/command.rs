//! One command on a host, from its line to its end.

use std::time::Duration;

use clawnode_guard::policy::Pattern;
use clawnode_proto::{
    session::ToolEnd,
    tool::{ToolFailure, ToolOutcome},
};
use clawnode_tool::{RunSink, ToolRun, append::append, arguments};
use russh::{Channel, ChannelMsg, Sig, client::Msg};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{SshError, SshHostOptions, connect::Entered, spec::TIMEOUT};
use crate::sandbox::{
    command_output::{Capture, CommandEnd, OutputStream, Ran},
    spec::IDEMPOTENCY_KEY,
};

/// How long a server may take to begin a command.
const BEGIN: Duration = Duration::from_secs(10);
/// How long a command that was sent SIGTERM may take to end, and then one that was sent SIGKILL.
const GRACE: Duration = Duration::from_millis(300);

/// A command line that may be run.
pub(super) struct SshCommand {
    line: String,
    idempotency_key: String,
    timeout: Duration,
    /// Takes what it says, for people.
    sink: RunSink,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SshArguments {
    command: String,
    timeout_s: Option<f64>,
}

/// How a command is over.
enum Over {
    /// By itself.
    Exited(u32),
    /// The server says that a signal ended it.
    Killed(String),
    /// The connection is lost.
    Lost,
}

/// Why a command is given up.
#[derive(Clone, Copy)]
enum GivenUp {
    TimedOut(Duration),
    Cancelled,
}

// === impl SshCommand ===

impl SshCommand {
    /// The command of a call, if the host is for such.
    pub(super) fn of(options: &SshHostOptions, mut run: ToolRun) -> Result<Self, ToolOutcome> {
        let (most, idempotency_key) = (TIMEOUT.min(run.timeout), run.idempotency_key.clone());
        let SshArguments { command, timeout_s } = arguments::read(&mut run)?;
        let wanted = timeout_s.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let timeout = wanted.filter(|timeout| !timeout.is_zero()).unwrap_or(TIMEOUT).min(most);
        if !is_allowed(&options.commands, &command) {
            let why = format!(
                "this command is not allowed on `{}`; these are, without special characters of the \
                 shell: {}",
                options.name,
                options.commands.join(", ")
            );
            return Err(ToolOutcome::failed(ToolFailure::Refused, why));
        }
        Ok(Self { line: command, idempotency_key, timeout, sink: run.sink })
    }
}

/// Whether a line is one of these; where there are any, no shell may find two commands in it.
fn is_allowed(patterns: &[String], line: &str) -> bool {
    let plain = |c: char| {
        c.is_ascii_alphanumeric()
            || matches!(c, ' ' | '_' | '.' | '/' | ':' | '=' | '@' | '%')
            || matches!(c, '+' | ',' | '-')
    };
    patterns.is_empty()
        || (line.chars().all(plain)
            && patterns.iter().any(|pattern| {
                Pattern::from(pattern.as_str()).fits(line) && has_no_other_options(pattern, line)
            }))
}

/// Whether all words of a line that begin like options are in its pattern: `*` matches only names.
/// An option may make another command of one that looks harmless (`systemctl -H HOST`).
fn has_no_other_options(pattern: &str, line: &str) -> bool {
    let options = |text| str::split(text, ' ').filter(|word| word.starts_with('-'));
    options(line).all(|word| options(pattern).any(|own| Pattern::from(own).fits(word)))
}

/// The outcome of a call that was cancelled before anything ran.
pub(super) fn nothing_ran() -> ToolOutcome {
    ToolOutcome::failed(ToolFailure::Cancelled, "")
}

/// The outcome if the caller cannot take an uncertain end.
pub(super) fn lost(detail: String) -> ToolOutcome {
    ToolOutcome::failed(ToolFailure::Crashed, detail)
}

/// Runs a command to its end.
pub(super) async fn follow(
    options: &SshHostOptions,
    entered: &Entered,
    command: &SshCommand,
    cancelled: &CancellationToken,
) -> Result<ToolEnd, ToolOutcome> {
    let begun = timeout(BEGIN, begin(entered, command)).await;
    let uncertain = |when: &str| {
        let detail = format!("the connection to the host `{}` was lost {when}", options.name);
        Ok(ToolEnd::Uncertain { detail })
    };
    let mut channel = match begun {
        Ok(Ok(Some(channel))) => channel,
        Ok(Ok(None)) => {
            let why = format!("the host `{}` refused to run the command", options.name);
            return Err(ToolOutcome::failed(ToolFailure::Failed, why));
        }
        Ok(Err(Unbegun::NotAsked(error))) => return Err(SshError::from(error).into()),
        Ok(Err(Unbegun::Asked)) | Err(_) => {
            return uncertain("when the node sent the command");
        }
    };
    let deadline = Instant::now() + command.timeout;
    let mut capture = Capture::told_to(&command.sink);
    let given_up = tokio::select! {
        biased;
        () = cancelled.cancelled() => GivenUp::Cancelled,
        () = sleep_until(deadline) => GivenUp::TimedOut(command.timeout),
        over = hear(&mut channel, &mut capture) => return match over {
            Over::Lost => uncertain("while the command ran"),
            Over::Exited(code) => {
                let end = CommandEnd::Exited(i64::from(code));
                Ok(ToolEnd::Known { outcome: Ran { capture, end }.outcome() })
            }
            Over::Killed(signal) => {
                let text = told(&capture, &format!("ended by the signal {signal}"));
                Err(ToolOutcome::failed(ToolFailure::Failed, text))
            }
        },
    };
    let has_ended = end(&mut channel, &mut capture).await;
    Err(given_up.outcome(&capture, has_ended))
}

/// Why a command has not begun, as far as anybody knows.
enum Unbegun {
    /// The command was not asked for.
    NotAsked(russh::Error),
    /// It was asked for, and there was no answer.
    Asked,
}

/// Asks for a command; `None` if the server refuses.
async fn begin(entered: &Entered, command: &SshCommand) -> Result<Option<Channel<Msg>>, Unbegun> {
    let mut channel = entered.channel_open_session().await.map_err(Unbegun::NotAsked)?;
    let key = command.idempotency_key.as_str();
    // Where its server takes it (`AcceptEnv`).
    channel.set_env(false, IDEMPOTENCY_KEY, key).await.map_err(Unbegun::NotAsked)?;
    channel.exec(true, command.line.as_str()).await.map_err(|_lost| Unbegun::Asked)?;
    loop {
        match channel.wait().await {
            Some(ChannelMsg::Success) => return Ok(Some(channel)),
            Some(ChannelMsg::Failure) => return Ok(None),
            Some(ChannelMsg::Close) | None => return Err(Unbegun::Asked),
            Some(_) => {}
        }
    }
}

/// Takes in what a command says until it is over.
async fn hear(channel: &mut Channel<Msg>, capture: &mut Capture) -> Over {
    let mut over = Over::Lost;
    loop {
        match channel.wait().await {
            Some(ChannelMsg::Data { data }) => capture.add(OutputStream::Stdout, &data),
            Some(ChannelMsg::ExtendedData { data, ext: 1 }) => {
                capture.add(OutputStream::Stderr, &data);
            }
            Some(ChannelMsg::ExitStatus { exit_status }) => over = Over::Exited(exit_status),
            Some(ChannelMsg::ExitSignal { signal_name, .. }) => {
                over = Over::Killed(format!("{signal_name:?}").chars().take(20).collect());
            }
            Some(ChannelMsg::Close) | None => return over,
            Some(_) => {}
        }
    }
}

/// Ends a command as far as SSH can; returns whether its server says that it has ended.
async fn end(channel: &mut Channel<Msg>, capture: &mut Capture) -> bool {
    for signal in [Sig::TERM, Sig::KILL] {
        if channel.signal(signal).await.is_err() {
            return false;
        }
        if let Ok(over) = timeout(GRACE, hear(channel, capture)).await {
            return !matches!(over, Over::Lost);
        }
    }
    if let Err(error) = channel.close().await {
        debug!(%error, "a channel could not be closed");
    }
    false
}

/// The output, and a note.
fn told(capture: &Capture, note: &str) -> String {
    let mut text = capture.text();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    append(&mut text, format_args!("[{note}]"));
    text
}

// === impl GivenUp ===

impl GivenUp {
    fn outcome(self, capture: &Capture, has_ended: bool) -> ToolOutcome {
        let (failure, what) = match self {
            Self::TimedOut(after) => {
                (ToolFailure::TimedOut, format!("timed_out after {} s", after.as_secs_f64()))
            }
            Self::Cancelled => (ToolFailure::Cancelled, "cancelled".to_owned()),
        };
        let how = if has_ended {
            "it was sent a signal, and has ended"
        } else {
            "it was sent SIGTERM and SIGKILL; the host does not confirm that it has ended, so it \
             may still run there"
        };
        ToolOutcome::failed(failure, told(capture, &format!("{what}: {how}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_lets_one_command_through() {
        let patterns = ["systemctl status *".to_owned(), "uptime".to_owned()];
        for (line, is_let) in [
            ("uptime", true),
            ("systemctl status nginx.service", true),
            ("systemctl stop nginx", false),
            ("uptime -p", false),
            ("systemctl status x; reboot", false),
            ("systemctl status $(reboot)", false),
            ("systemctl status x\nreboot", false),
            ("systemctl status x && reboot", false),
            ("systemctl status `reboot`", false),
            ("systemctl status x | tee /etc/passwd", false),
            ("systemctl status x > /etc/passwd", false),
        ] {
            assert_eq!(is_allowed(&patterns, line), is_let, "{line}");
        }
        let patterns = ["systemctl status *", "journalctl -u * -n *", "ls -* /srv/*", "du *"];
        let patterns = patterns.map(str::to_owned);
        for (line, is_let) in [
            ("systemctl status -H other-host nginx", false),
            ("systemctl status nginx --root=/srv", false),
            ("systemctl status a-b", true),
            ("journalctl -u nginx -n 20", true),
            ("journalctl -u nginx -n 20 -n 5", true),
            ("journalctl -u nginx --vacuum-size=1 -n 20", false),
            ("ls -la /srv/files", true),
            ("ls -l --color /srv/files", true),
            ("du /srv -x", false),
            ("du  --files0-from=/srv/x", false),
            ("du /srv -", false),
        ] {
            assert_eq!(is_allowed(&patterns, line), is_let, "{line}");
        }
        assert!(is_allowed(&[], "a; b | c"));
    }
}
