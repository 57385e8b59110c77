//! `doctor`: looks for what keeps a node from working, and says what to do about it.

mod checks;
mod hooks;
mod mcp;
mod memory;
mod nats;
mod sandbox;
mod skills;
mod versions;
mod workspace;

use clap::Args;
use serde::Serialize;

use super::{
    command_context::{CliContext, sources},
    flags::GlobalFlags,
    output::{Output, Tone},
};
use crate::{
    config::{Env, load},
    failure::{Exit, Failure},
};

/// What `doctor --help` ends with.
const EXAMPLES: &str = "\
Green: all is well. Yellow: worth knowing. Red: a node does not work, or is not safe.
The exit code is 1 if a check is red, and 78 if the configuration is wrong.

Examples:
  clawnode doctor
  clawnode doctor --json | jq '.checks[] | select(.verdict == \"red\")'";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DoctorArgs {}

/// How one check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CheckStatus {
    /// As it should be.
    Green,
    /// A node works, but something is to be known.
    Yellow,
    /// A node does not work, or not safely.
    Red,
}

/// One check.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Check {
    /// A stable name: `data_dir.writable`.
    pub name: &'static str,
    /// How it went.
    pub verdict: CheckStatus,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// All checks.
#[derive(Debug, Serialize)]
struct Report {
    verdict: CheckStatus,
    checks: Vec<Check>,
}

impl Check {
    pub(super) fn green(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, verdict: CheckStatus::Green, found: found.into(), fix: None }
    }

    pub(super) fn yellow(name: &'static str, found: impl Into<String>, fix: &str) -> Self {
        Self { name, verdict: CheckStatus::Yellow, found: found.into(), fix: Some(fix.to_owned()) }
    }

    pub(super) fn red(name: &'static str, found: impl Into<String>, fix: &str) -> Self {
        Self { name, verdict: CheckStatus::Red, found: found.into(), fix: Some(fix.to_owned()) }
    }
}

/// `doctor`.
pub(super) async fn run(
    _args: &DoctorArgs,
    flags: &GlobalFlags,
    env: &Env,
    out: Output,
) -> Result<Exit, Failure> {
    let (checks, exit) = match load(&sources(flags, env)) {
        Ok(_) => {
            let checks = checks::all(&CliContext::new(flags, env, out)?).await;
            let is_config = |check: &Check| {
                check.name == checks::CONFIGURATION && check.verdict == CheckStatus::Red
            };
            let exit = if checks.iter().any(is_config) { Exit::Config } else { Exit::Failed };
            (checks, exit)
        }
        // Without a configuration it is unknown what else to check.
        Err(error) => {
            let name = match error.key.as_str() {
                // A gateway that is open to all has a code of its own, so that scripts can watch for it.
                "gateway.listen" | "gateway.no_auth" => "gateway.bind_no_auth",
                _ => checks::CONFIGURATION,
            };
            (vec![Check::red(name, error.to_string(), &error.hint)], Exit::Config)
        }
    };
    let verdict = checks.iter().map(|check| check.verdict).max().unwrap_or(CheckStatus::Green);
    let report = Report { verdict, checks };
    out.document(&report, |report| human(out, report))?;
    Ok(if report.verdict == CheckStatus::Red { exit } else { Exit::Ok })
}

fn human(out: Output, report: &Report) -> String {
    let mut lines = Vec::new();
    for check in &report.checks {
        let (tone, word) = match check.verdict {
            CheckStatus::Green => (Tone::Good, "green "),
            CheckStatus::Yellow => (Tone::Warn, "yellow"),
            CheckStatus::Red => (Tone::Bad, "red   "),
        };
        let word = out.paint(tone, word);
        lines.push(format!("{word}  {:<22} {}", check.name, super::output::clean(&check.found)));
        if let Some(fix) = &check.fix {
            lines.push(format!("        {:<22} fix: {fix}", ""));
        }
    }
    lines.join("\n")
}
