//! The only place that prints. Standard output is data, standard error is talk.
#![expect(clippy::print_stderr, reason = "this is the place that prints")]

use std::io::{self, IsTerminal, Write};

use comfy_table::{Attribute, Cell, ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::json;

use crate::{
    config::Env,
    failure::{Exit, Failure},
};

/// Where output goes and how it looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output {
    /// Whether documents and errors are JSON.
    pub json: bool,
    /// Whether tables have all their columns.
    pub wide: bool,
    /// Whether colours may be used on standard output.
    color: bool,
}

/// A colour with a meaning.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tone {
    /// As it should be.
    Good,
    /// Something to know.
    Warn,
    /// Something to do.
    Bad,
}

impl Output {
    /// Output for this environment: `NO_COLOR` is honoured (<https://no-color.org>).
    pub(super) fn new(json: bool, wide: bool, env: &Env) -> Self {
        let wanted = env.get("NO_COLOR").is_none() && env.get("TERM") != Some("dumb");
        Self { json, wide, color: wanted && io::stdout().is_terminal() }
    }

    /// Whether colours may be used.
    #[cfg(feature = "tui")]
    pub(super) const fn color(self) -> bool {
        self.color
    }

    /// Prints a document: JSON if asked for, else what `human` makes of it.
    pub(super) fn document<T: Serialize>(
        self,
        document: &T,
        human: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        let text = if self.json {
            serde_json::to_string_pretty(document).map_err(|error| {
                Failure::new(Exit::Failed, "internal", format!("cannot write JSON: {error}"))
            })?
        } else {
            human(document)
        };
        self.line(text.trim_end())
    }

    /// Prints one line of JSON.
    pub(super) fn json_line<T: Serialize>(self, document: &T) -> Result<(), Failure> {
        match serde_json::to_string(document) {
            Ok(text) => self.line(&text),
            Err(error) => {
                Err(Failure::new(Exit::Failed, "internal", format!("cannot write JSON: {error}")))
            }
        }
    }

    /// Prints a line of data.
    pub(super) fn line(self, text: &str) -> Result<(), Failure> {
        self.write(&format!("{text}\n"))
    }

    /// Prints data as it is, at once.
    pub(super) fn write(self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())
    }

    /// Prints data that need not be text as it is, at once.
    #[expect(
        clippy::unused_self,
        reason = "printing needs an `Output`, so that it is seen who prints"
    )]
    pub(super) fn bytes(self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        match out.write_all(bytes).and_then(|()| out.flush()) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                Err(Failure::output_closed())
            }
            Err(error) => Err(Failure::new(
                Exit::Failed,
                "output",
                format!("cannot write to standard output: {error}"),
            )),
        }
    }

    /// Prints what a model says, at once; a terminal is not given orders by it.
    pub(super) fn reply(self, text: &str) -> Result<(), Failure> {
        if io::stdout().is_terminal() { self.write(&clean(text)) } else { self.write(text) }
    }

    /// Asks the person for a line.
    #[expect(
        clippy::unused_self,
        reason = "printing needs an `Output`, so that it is seen who prints"
    )]
    pub(super) fn prompt(self) {
        eprint!("> ");
    }

    /// Tells the person something that is not data.
    #[expect(
        clippy::unused_self,
        reason = "printing needs an `Output`, so that it is seen who prints"
    )]
    pub(super) fn talk(self, text: &str) {
        eprintln!("{text}");
    }

    /// Tells the person, beside what matters, how things go.
    pub(super) fn aside(self, text: &str) {
        if self.color && io::stderr().is_terminal() {
            eprintln!("\u{1b}[2m{text}\u{1b}[0m");
        } else {
            self.talk(text);
        }
    }

    /// Prints an error, in the form that was asked for.
    pub(super) fn failure(self, failure: &Failure) {
        if self.json {
            eprintln!("{}", json!({ "error": failure }));
            return;
        }
        eprintln!("error: {}", failure.message);
        if let Some(hint) = &failure.hint {
            eprintln!("hint: {hint}");
        }
    }

    /// `text` in the colour of `tone`, where colours may be used.
    pub(super) fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Good => 32,
            Tone::Warn => 33,
            Tone::Bad => 31,
        };
        if self.color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// A table; on a terminal it is as wide as that, elsewhere as wide as it needs to be.
    pub(super) fn table(
        self,
        head: &[&str],
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> String {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        let title = |text: &&str| {
            let cell = Cell::new(text.to_uppercase());
            if self.color { cell.add_attribute(Attribute::Bold) } else { cell }
        };
        table.set_header(head.iter().map(title));
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        table.add_rows(rows.into_iter().map(|row| row.into_iter().map(|text| clean(&text))));
        let lines: Vec<String> =
            table.to_string().lines().map(|line| line.trim_end().to_owned()).collect();
        lines.join("\n")
    }
}

/// A size in bytes as people read it.
pub(super) fn size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut shown = format!("{bytes} B");
    let mut tenths = u128::from(bytes) * 10;
    for unit in units {
        if tenths < 10_240 {
            break;
        }
        tenths /= 1_024;
        shown = format!("{}.{} {unit}", tenths / 10, tenths % 10);
    }
    shown
}

/// `1 session`, `2 sessions`.
pub(super) fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// How long something took or has lasted, in at most two units.
pub(super) fn span(millis: u64) -> String {
    let seconds = millis / 1_000;
    match seconds {
        0 => format!("{millis}ms"),
        1..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// Text that others wrote, without what a terminal would obey: control characters but line breaks
/// and tabs become `\u{fffd}`.
pub(super) fn clean(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' => c,
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(shown).collect()
}

/// A time in UTC as RFC 3339 has it, to the second.
pub(super) fn time(at: clawnode_proto::Timestamp) -> String {
    let seconds = at.0 / 1_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use clawnode_proto::Timestamp;

    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_102_444_800, "2100-01-01T00:00:00Z"),
        ] {
            assert_eq!(time(Timestamp(seconds * 1_000)), text);
        }
    }

    #[test]
    fn sizes_and_spans_are_as_people_say_them() {
        for (bytes, text) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_536, "1.5 KiB"),
            (5 << 30, "5.0 GiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        for (millis, text) in [
            (12, "12ms"),
            (59_999, "59s"),
            (61_000, "1m1s"),
            (7_260_000, "2h1m"),
            (90_000_000, "1d1h"),
        ] {
            assert_eq!(span(millis), text);
        }
    }

    #[test]
    fn a_terminal_is_not_given_orders() {
        assert_eq!(clean("a\u{1b}[31mb\r\n\tc"), "a\u{fffd}[31mb\u{fffd}\n\tc");
    }
}
