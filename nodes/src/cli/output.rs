//! The only place that prints. Standard output is data, standard error is talk.
#![expect(clippy::print_stderr, reason = "this is the place that prints")]

use std::io::{self, IsTerminal, Write};

use clawnode_proto::usage::Day;
use comfy_table::{Attribute, Cell, ColumnConstraint, ContentArrangement, Table, Width, presets};
use rustix::termios::tcgetwinsize;
use serde::Serialize;
use serde_json::json;
use unicode_width::UnicodeWidthStr;

use super::hidden_characters::seen_json;
pub(super) use super::hidden_characters::{clean, clean_more, exact};
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
    /// How many characters a row of standard output holds, where that is a terminal.
    columns: Option<u16>,
}

/// Characters that the last column of a table needs to be wrapped in a readable way.
const LAST_COLUMN_MIN: u16 = 16;
/// Spaces between two columns.
const PADDING: u16 = 2;

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
        let terminal = io::stdout().is_terminal();
        let columns = tcgetwinsize(io::stdout()).ok().map(|size| size.ws_col);
        let columns = columns.filter(|&columns| terminal && columns > 0);
        Self { json, wide, color: wanted && terminal, columns }
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
            let text = serde_json::to_string_pretty(document).map_err(|error| {
                Failure::new(Exit::Failed, "internal", format!("cannot write JSON: {error}"))
            })?;
            seen_json(&text)
        } else {
            human(document)
        };
        self.line(text.trim_end())
    }

    /// Prints one line of JSON.
    pub(super) fn json_line<T: Serialize>(self, document: &T) -> Result<(), Failure> {
        match serde_json::to_string(document) {
            Ok(text) => self.line(&seen_json(&text)),
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
        if !io::stdout().is_terminal() {
            return self.write(text);
        }
        self.write(&clean_more(text))
    }

    /// Asks the person for a line.
    #[expect(
        clippy::unused_self,
        reason = "printing needs an `Output`, so that it is seen who prints"
    )]
    pub(super) fn prompt(self) {
        eprint!("> ");
    }

    /// Tells the person something that is not data; a terminal is not given orders by it.
    #[expect(
        clippy::unused_self,
        reason = "printing needs an `Output`, so that it is seen who prints"
    )]
    pub(super) fn talk(self, text: &str) {
        eprintln!("{}", clean(text));
    }

    /// Tells the person something about progress; programs read it as a line of JSON.
    pub(super) fn aside(self, text: &str) {
        if self.json {
            let note = json!({ "event": "note", "message": text });
            eprintln!("{}", seen_json(&note.to_string()));
        } else if self.color && io::stderr().is_terminal() {
            eprintln!("\u{1b}[2m{}\u{1b}[0m", clean(text));
        } else {
            self.talk(text);
        }
    }

    /// Prints an error, in the form that was asked for.
    pub(super) fn failure(self, failure: &Failure) {
        if self.json {
            eprintln!("{}", seen_json(&json!({ "error": failure }).to_string()));
            return;
        }
        eprintln!("error: {}", clean(&failure.message));
        if let Some(hint) = &failure.hint {
            eprintln!("hint: {}", clean(hint));
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

    /// A table. Where it is wider than the terminal, its last column is wrapped at words; elsewhere
    /// each row is one line, as programs read it.
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
            column.set_padding((0, PADDING));
        }
        table.add_rows(rows.into_iter().map(|row| row.into_iter().map(|text| exact(&text))));
        if let Some(columns) = self.columns {
            wrap_last_column(&mut table, columns);
        }
        let lines: Vec<String> =
            table.to_string().lines().map(|line| line.trim_end().to_owned()).collect();
        lines.join("\n")
    }

    /// The same. A terminal that has no room for all columns is shown the `main` ones; `-o wide` shows all.
    pub(super) fn table_of(self, head: &[&str], rows: Vec<Vec<String>>, main: &[&str]) -> String {
        let widest = |at: usize, title: &str| {
            let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.width());
            cells.fold(title.width(), usize::max) + usize::from(PADDING)
        };
        let others = head.iter().enumerate().take(head.len().saturating_sub(1));
        let taken: usize = others.map(|(at, &title)| widest(at, title)).sum();
        let wants = taken + usize::from(LAST_COLUMN_MIN + PADDING);
        let is_narrow = self.columns.is_some_and(|columns| usize::from(columns) < wants);
        if self.wide || !is_narrow {
            return self.table(head, rows);
        }
        let is_kept = |at: usize| head.get(at).is_some_and(|title| main.contains(title));
        let kept = |row: Vec<String>| -> Vec<String> {
            let cells = row.into_iter().enumerate().filter(|(at, _)| is_kept(*at));
            cells.map(|(_, cell)| cell).collect()
        };
        let titles: Vec<&str> = head.iter().copied().filter(|title| main.contains(title)).collect();
        self.table(&titles, rows.into_iter().map(kept))
    }

    /// Text for people: wrapped at words where it is wider than the terminal.
    pub(super) fn paragraph(self, text: &str) -> String {
        let Some(columns) = self.columns else { return text.to_owned() };
        let lines = text.lines().flat_map(|line| wrapped(line, columns.into()));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Wraps the last column of a table that is wider than `columns` characters. Without room for it the
/// table stays as it is, and the terminal breaks its lines.
fn wrap_last_column(table: &mut Table, columns: u16) {
    let widths = table.column_max_content_widths();
    let Some((last, others)) = widths.split_last() else { return };
    let taken =
        others.iter().fold(0u16, |sum, width| sum.saturating_add(*width).saturating_add(PADDING));
    let room = columns.saturating_sub(taken).saturating_sub(PADDING);
    if *last <= room || room < LAST_COLUMN_MIN {
        return;
    }
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_constraint(if index == others.len() {
            ColumnConstraint::Absolute(Width::Fixed(room + PADDING))
        } else {
            ColumnConstraint::ContentWidth
        });
    }
}

/// A line in lines of at most so many columns, broken at its spaces. A word that is too long is left
/// to the terminal.
pub(super) fn wrapped(line: &str, wide: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split_inclusive(' ') {
        let last = lines.last_mut().filter(|line| {
            line.trim().is_empty() || line.width() + word.trim_end().width() <= wide
        });
        match last {
            Some(last) => last.push_str(word),
            None => lines.push(word.to_owned()),
        }
    }
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
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

/// `1 session`, `2 sessions`, `2 entities`.
pub(super) fn count(number: u64, what: &str) -> String {
    match what.strip_suffix("ity") {
        _ if number == 1 => format!("{number} {what}"),
        Some(stem) => format!("{number} {stem}ities"),
        None => format!("{number} {what}s"),
    }
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

/// Text that others wrote in a cell of a table: in one line, cut with `…`.
pub(super) fn cut(text: &str, most: usize) -> String {
    let whole = exact(text);
    match whole.char_indices().nth(most) {
        None => whole,
        Some((at, _)) => format!("{}…", whole.get(..at).unwrap_or_default()),
    }
}

/// The same, at most so many characters, and how many more there are.
pub(super) fn brief(text: &str, most: usize) -> String {
    let whole = exact(text);
    match whole.char_indices().nth(most) {
        None => whole,
        Some((at, _)) => {
            let more = whole.chars().count() - most;
            let begin = whole.get(..at).unwrap_or_default();
            format!("{begin}… {}", count(more as u64, "more character"))
        }
    }
}

/// A time in UTC as RFC 3339 has it, to the second.
pub(super) fn time(at: clawnode_proto::Timestamp) -> String {
    let of_day = at.0 / 1_000 % 86_400;
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{}T{hour:02}:{minute:02}:{second:02}Z", Day::of(at))
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
    fn a_table_is_wrapped_in_its_last_column_alone() {
        let row = || vec!["ent_0123456789".into(), "waits for a person to approve it".into()];
        let table = |columns| {
            let output = Output { json: false, wide: false, color: false, columns };
            output.table(&["id", "reason"], [row(), row()])
        };
        let one_line = "ID              REASON\n\
                        ent_0123456789  waits for a person to approve it\n\
                        ent_0123456789  waits for a person to approve it";
        assert_eq!(table(None), one_line);
        assert_eq!(table(Some(80)), one_line);
        assert_eq!(
            table(Some(40)),
            "ID              REASON\n\
             ent_0123456789  waits for a person to\n                approve it\n\
             ent_0123456789  waits for a person to\n                approve it"
        );
        // Too narrow for both: nothing is gained by columns of a few characters.
        assert_eq!(table(Some(20)), one_line);
    }

    #[test]
    fn a_narrow_terminal_is_shown_the_main_columns_and_wrapped_text() {
        let output = |columns, wide| Output { json: false, wide, color: false, columns };
        let table = |columns, wide| {
            let row = ["point_0123456789", "2026-01-01T00:00:00Z", "Tea is at four."];
            let row = row.map(str::to_owned).to_vec();
            output(columns, wide).table_of(
                &["point", "learned", "text"],
                vec![row],
                &["point", "text"],
            )
        };
        let all = "POINT             LEARNED               TEXT\n\
                   point_0123456789  2026-01-01T00:00:00Z  Tea is at four.";
        for (columns, wide) in [(None, false), (Some(80), false), (Some(40), true)] {
            assert_eq!(table(columns, wide), all);
        }
        assert_eq!(
            table(Some(40), false),
            "POINT             TEXT\npoint_0123456789  Tea is at four."
        );
        let text = "a text for people\nof two lines";
        assert_eq!(output(None, false).paragraph(text), text);
        assert_eq!(output(Some(10), false).paragraph(text), "a text for\npeople\nof two\nlines");
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
    fn what_is_left_out_is_counted() {
        assert_eq!(brief("abc", 3), "abc");
        assert_eq!(brief("abcd", 3), "abc… 1 more character");
        assert_eq!(brief("{\n\n\n \"evil\"}", 6), "{\\n\\n\\… 9 more characters");
    }
}
