//! Problems that the chat reports: an MCP server, a plugin, a hook, a sandbox, a provider of
//! models.
//!
//! The chat asks the node for its `status` while the person is at the prompt, and at no other time:
//! so a warning is above the line that is typed. Each problem is reported once, and once more when
//! it is over.

use std::{collections::BTreeMap, fmt, pin::Pin, time::Duration};

use clawnode_proto::{
    api::{Nothing, calls},
    provider::{HOOK_PREFIX, MCP_PREFIX, PLUGIN_PREFIX},
    view::WarningView,
};
use tokio::time::{Instant, sleep_until};

use super::{
    start::{Chat, Did},
    terminal_style::TextRole,
    tty::TerminalEvent,
};
use crate::{
    cli::output::{cut, exact},
    client::NodeClient,
    failure::Failure,
    node::health,
};

/// How soon after its start a chat asks: what is broken is known to be by then.
const FIRST: Duration = Duration::from_secs(2);
/// How often it asks after that; an answer that was waited for longer is asked for again.
const EVERY: Duration = Duration::from_secs(15);
/// Characters of a reason.
const REASON_CHARS: usize = 300;

/// A request that is under way.
type PendingRequest = Pin<Box<dyn Future<Output = Option<Vec<WarningView>>> + Send>>;

/// The reported problems, and when to ask next.
pub(super) struct Warnings {
    due: Instant,
    /// A request, and when it was made.
    asked: Option<(Instant, PendingRequest)>,
    /// The result of a rule that was written: it comes within seconds.
    rule: Option<Pin<Box<dyn Future<Output = WarningNote> + Send>>>,
    /// The problems that were reported, by name.
    told: BTreeMap<String, String>,
}

/// A note at the prompt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WarningNote {
    /// It does not work.
    Fails(String),
    /// It works again.
    Works(String),
}

// === impl Warnings ===

impl Warnings {
    pub(super) fn new() -> Self {
        Self { due: Instant::now() + FIRST, asked: None, rule: None, told: BTreeMap::new() }
    }

    /// Shows a note about a result, as soon as the person is at the prompt.
    pub(super) fn expect(&mut self, what: impl Future<Output = WarningNote> + Send + 'static) {
        self.rule = Some(Box::pin(what));
    }

    /// What is new. Safe to drop in the middle.
    async fn next(&mut self, client: &NodeClient) -> Vec<WarningNote> {
        loop {
            if let Some(rule) = &mut self.rule {
                let note = rule.await;
                self.rule = None;
                return vec![note];
            }
            if self.asked.as_ref().is_some_and(|(since, _)| since.elapsed() > EVERY) {
                self.asked = None;
            }
            if self.asked.is_none() {
                sleep_until(self.due).await;
            }
            let begin = || (Instant::now(), Box::pin(ask(client.clone())) as PendingRequest);
            let answer = (&mut self.asked.get_or_insert_with(begin).1).await;
            self.asked = None;
            self.due = Instant::now() + EVERY;
            // A node that does not answer is the next message's to find.
            let notes = answer.map(|warnings| self.compare(&warnings)).unwrap_or_default();
            if !notes.is_empty() {
                return notes;
            }
        }
    }

    /// What is new in these warnings.
    fn compare(&mut self, warnings: &[WarningView]) -> Vec<WarningNote> {
        let mut notes = Vec::new();
        let found: BTreeMap<String, (String, &WarningView)> = warnings
            .iter()
            .filter(|warning| health::WARNINGS.contains(&warning.name.as_str()))
            .map(|warning| {
                let (key, name) = subject(warning);
                (key, (name, warning))
            })
            .collect();
        self.told.retain(|key, name| {
            let stays = found.contains_key(key);
            if !stays {
                notes.push(WarningNote::Works(format!("works again: {}", exact(name))));
            }
            stays
        });
        for (key, (name, warning)) in found {
            if self.told.insert(key, name).is_none() {
                let reason = cut(&warning.message, REASON_CHARS);
                let line = format!("warning: {reason} (`clawnode status` says what to do)");
                notes.push(WarningNote::Fails(line));
            }
        }
        notes
    }
}

impl fmt::Debug for Warnings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Warnings").field("told", &self.told).finish_non_exhaustive()
    }
}

async fn ask(client: NodeClient) -> Option<Vec<WarningView>> {
    match client.call(calls::Status, &Nothing {}).await {
        Ok(status) => Some(status.warnings),
        Err(error) => {
            tracing::debug!(%error, "the node does not report its status");
            None
        }
    }
}

/// What a warning is about, whatever the reason is and whichever tools wait for it: for us and for
/// people.
fn subject(warning: &WarningView) -> (String, String) {
    let name = warning.message.split('`').nth(1).unwrap_or(&warning.message).to_owned();
    match warning.name.as_str() {
        "mcp.down" => (format!("{MCP_PREFIX}{name}"), format!("MCP server `{name}`")),
        "plugins.not_loaded" => (format!("{PLUGIN_PREFIX}{name}"), format!("plugin `{name}`")),
        "hooks.failing" => (format!("{HOOK_PREFIX}{name}"), format!("hook `{name}`")),
        "providers.failing" | "providers.circuit_open" => {
            (format!("provider {name}"), format!("provider `{name}`"))
        }
        // A capability, which may be that of one of the others.
        _ => {
            let server =
                name.strip_prefix(MCP_PREFIX).map(|server| format!("MCP server `{server}`"));
            let plugin =
                name.strip_prefix(PLUGIN_PREFIX).map(|plugin| format!("plugin `{plugin}`"));
            let shown = server.or(plugin).unwrap_or_else(|| format!("`{name}`"));
            (name, shown)
        }
    }
}

impl Chat<'_> {
    /// The next event of the person at the prompt; meanwhile they read about problems.
    pub(super) async fn heard(&mut self) -> Result<TerminalEvent, Failure> {
        loop {
            let Some(desk) = &mut self.desk else { return Ok(TerminalEvent::Closed) };
            let notes = tokio::select! {
                did = self.person.next() => return Ok(match did {
                    Did::Heard(heard) => heard,
                    Did::Read(_) => TerminalEvent::Closed,
                }),
                _ = self.signals.next() => return Ok(TerminalEvent::Closed),
                notes = desk.warnings.next(self.gateways.current()) => notes,
            };
            for note in notes {
                match note {
                    WarningNote::Fails(line) => desk.screen.say(TextRole::Question, &line)?,
                    WarningNote::Works(line) => desk.screen.say(TextRole::Good, &line)?,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning(name: &str, message: &str) -> WarningView {
        let hint = String::new();
        WarningView { name: name.to_owned(), message: message.to_owned(), hint }
    }

    #[test]
    fn a_problem_is_told_once_whatever_its_words_and_once_when_it_is_over() {
        let mut warnings = Warnings::new();
        let down = warning("mcp.down", "MCP server `nope` on w: no such\nfile");
        let bus = warning("bus.replicas", "one copy of `x`");
        let told = warnings.compare(&[down.clone(), bus.clone()]);
        let line =
            "warning: MCP server `nope` on w: no such\\nfile (`clawnode status` says what to do)";
        assert_eq!(told, [WarningNote::Fails(line.to_owned())]);
        assert_eq!(warnings.compare(std::slice::from_ref(&down)), []);
        // The same with other words, or because a tool waits for it.
        let again = warning("mcp.down", "MCP server `nope` on w: it does not answer");
        let waits = warning("tools.unserved", "no node has `mcp.nope` (w: it is down): calls wait");
        assert_eq!(warnings.compare(&[again]), []);
        assert_eq!(warnings.compare(&[waits]), []);
        let hook = warning("hooks.failing", "hook `nope` on w: exit status: 1");
        let told = warnings.compare(&[hook]);
        assert_eq!(
            told.first(),
            Some(&WarningNote::Works("works again: MCP server `nope`".to_owned()))
        );
        assert!(
            matches!(&told[1..], [WarningNote::Fails(line)] if line.contains("hook `nope`")),
            "{told:?}"
        );
        assert_eq!(
            warnings.compare(&[bus]),
            [WarningNote::Works("works again: hook `nope`".to_owned())]
        );
        // It breaks a second time: that is news.
        assert_eq!(warnings.compare(&[down]).len(), 1);
    }
}
