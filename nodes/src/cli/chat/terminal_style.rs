//! How things look on a terminal: colours by role, and signs that it can show.

use crate::config::Env;

/// What a terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TerminalStyle {
    /// Colours and weights: not with `NO_COLOR`.
    pub color: bool,
    /// Characters beyond ASCII, by the locale.
    pub utf8: bool,
}

/// What a text is, and so how it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextRole {
    /// What the person says.
    You,
    /// How things go.
    Aside,
    /// What waits for an answer.
    Question,
    /// What was done.
    Good,
    /// What failed.
    Bad,
    /// Added and removed lines.
    Added,
    Removed,
}

// === impl TerminalStyle ===

impl TerminalStyle {
    pub(super) fn of(env: &Env) -> Self {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(|name| env.get(name));
        let locale = locale.unwrap_or_default().to_ascii_lowercase();
        let utf8 = locale.contains("utf-8") || locale.contains("utf8");
        Self { color: env.get("NO_COLOR").is_none(), utf8 }
    }

    /// `text` as what it is.
    pub(super) fn paint(self, role: TextRole, text: &str) -> String {
        if !self.color || text.is_empty() {
            return text.to_owned();
        }
        let code = match role {
            TextRole::You => "1;36",
            TextRole::Aside => "2",
            TextRole::Question => "33",
            TextRole::Good | TextRole::Added => "32",
            TextRole::Bad | TextRole::Removed => "31",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// The sign of a success, or of a failure.
    pub(super) const fn mark(self, well: bool) -> &'static str {
        match (self.utf8, well) {
            (true, true) => "✓",
            (true, false) => "✗",
            (false, true) => "+",
            (false, false) => "x",
        }
    }

    /// What turns while one waits.
    pub(super) fn spinner(self, step: usize) -> char {
        let signs = if self.utf8 { "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏" } else { "|/-\\" };
        signs.chars().nth(step % signs.chars().count()).unwrap_or(' ')
    }

    /// Between parts of a line.
    pub(super) const fn dot(self) -> &'static str {
        if self.utf8 { " · " } else { " - " }
    }
}
