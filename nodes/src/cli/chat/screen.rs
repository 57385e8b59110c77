//! The content of the terminal: text, which scrolls away, and below it a few rows that change: the
//! line that is typed, a question, or a sign of progress.
//!
//! Text that has scrolled is never touched again. The rows that change are drawn again from their
//! own beginning, so that other output cannot garble them.

use std::time::Duration;

use unicode_width::UnicodeWidthStr;

use super::{
    markdown::Markdown,
    terminal_style::{TerminalStyle, TextRole},
    tty::TerminalSize,
};
use crate::{
    cli::output::{Output, clean, clean_more, wrapped},
    failure::Failure,
};

/// The terminal as the chat sees it.
#[derive(Debug)]
pub(super) struct ChatScreen {
    out: Output,
    pub look: TerminalStyle,
    columns: usize,
    rows: usize,
    /// The rows that change, and row and column of the cursor in them.
    live: Vec<Row>,
    cursor: (usize, usize),
    /// In which of them the terminal's cursor is; none of them is drawn without it.
    drawn: Option<usize>,
    /// A reply that is being written.
    reply: Option<Markdown>,
    /// A part of it is at the end of the last line.
    midline: bool,
}

/// A row, and how wide it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    text: String,
    wide: usize,
}

// === impl ChatScreen ===

impl ChatScreen {
    pub(super) fn new(out: Output, look: TerminalStyle, size: TerminalSize) -> Self {
        let TerminalSize { columns, rows } = size;
        Self {
            out,
            look,
            columns,
            rows,
            live: Vec::new(),
            cursor: (0, 0),
            drawn: None,
            reply: None,
            midline: false,
        }
    }

    /// Columns that rows may have: the last one stays free, where terminals differ.
    pub(super) const fn width(&self) -> usize {
        self.columns.saturating_sub(1)
    }

    /// The window has another size.
    pub(super) fn resize(&mut self, size: TerminalSize) -> Result<(), Failure> {
        let TerminalSize { columns, rows } = size;
        // The terminal has wrapped the rows that are drawn: so many are above the cursor now.
        let up = self.above(columns);
        self.columns = columns;
        self.rows = rows;
        if let Some(reply) = &mut self.reply {
            reply.resize(columns.saturating_sub(1));
        }
        if self.drawn.is_some() {
            self.drawn = None;
            self.out.write(&format!("{}\u{1b}[J", back(up)))?;
            self.draw()?;
        }
        Ok(())
    }

    /// How many rows of a terminal of this width are above the cursor.
    fn above(&self, columns: usize) -> usize {
        let Some(at) = self.drawn else { return 0 };
        let taken = |wide: usize| wide.saturating_sub(1) / columns.max(1);
        let before: usize = self.live.iter().take(at).map(|row| 1 + taken(row.wide)).sum();
        before + self.cursor.1 / columns.max(1)
    }

    fn erased(&mut self) -> String {
        let up = self.above(self.columns);
        if self.drawn.take().is_some() { format!("{}\u{1b}[J", back(up)) } else { String::new() }
    }

    fn draw(&mut self) -> Result<(), Failure> {
        if self.live.is_empty() || self.midline {
            return Ok(());
        }
        let erased = self.erased();
        // If it is higher than the terminal, the part around the cursor.
        let room = self.rows.saturating_sub(1).max(1);
        let first = (self.cursor.0 + 1).saturating_sub(room);
        let shown: Vec<&Row> = self.live.iter().skip(first).take(room).collect();
        let at = self.cursor.0 - first;
        let texts: Vec<&str> = shown.iter().map(|row| row.text.as_str()).collect();
        let up = shown.len().saturating_sub(1).saturating_sub(at);
        let mut text = format!("{erased}{}", texts.join("\n"));
        text.push_str(&back(up));
        if self.cursor.1 > 0 {
            text = format!("{text}\u{1b}[{}C", self.cursor.1);
        }
        if first > 0 {
            self.live.drain(..first);
            self.cursor.0 = at;
        }
        self.drawn = Some(at);
        self.out.write(&text)
    }

    /// Draws rows below all else, with the cursor in them. Their text is styled already.
    pub(super) fn live(
        &mut self,
        rows: Vec<(String, usize)>,
        row: usize,
        column: usize,
    ) -> Result<(), Failure> {
        let erased = self.erased();
        self.live = rows.into_iter().map(|(text, wide)| Row { text, wide }).collect();
        self.cursor = (row, column);
        if !erased.is_empty() {
            self.out.write(&erased)?;
        }
        self.draw()
    }

    /// One row, cut where the line ends.
    pub(super) fn status(&mut self, text: &str, role: TextRole) -> Result<(), Failure> {
        let text = cut(text, self.width());
        let wide = text.width();
        let row = vec![(self.look.paint(role, &text), wide)];
        if self.drawn.is_some() && self.live.first().is_some_and(|first| first.text == row[0].0) {
            return Ok(());
        }
        self.live(row, 0, wide)
    }

    /// Removes the rows that change.
    pub(super) fn clear(&mut self) -> Result<(), Failure> {
        let erased = self.erased();
        self.live.clear();
        if erased.is_empty() { Ok(()) } else { self.out.write(&erased) }
    }

    /// The rows that change stay, as what was said.
    pub(super) fn keep(&mut self) -> Result<(), Failure> {
        if let Some(at) = self.drawn.take() {
            let down = self.live.len().saturating_sub(at + 1);
            let down = if down > 0 { format!("\u{1b}[{down}B") } else { String::new() };
            self.out.write(&format!("{down}\r\n"))?;
        }
        self.live.clear();
        Ok(())
    }

    /// Empties the window.
    pub(super) fn wipe(&mut self) -> Result<(), Failure> {
        self.drawn = None;
        self.out.write("\u{1b}[2J\u{1b}[H")?;
        self.draw()
    }

    /// Prints lines above the rows that change. Their text is styled and clean.
    pub(super) fn print(&mut self, text: &str) -> Result<(), Failure> {
        self.end_reply()?;
        let erased = self.erased();
        self.out.write(&format!("{erased}{text}\n"))?;
        self.draw()
    }

    /// Prints words that others may have written.
    pub(super) fn say(&mut self, role: TextRole, text: &str) -> Result<(), Failure> {
        let clean = clean(text);
        let lines = clean.lines().flat_map(|line| wrapped(line, self.width()));
        let lines: Vec<String> = lines.map(|line| self.look.paint(role, &line)).collect();
        self.print(&lines.join("\n"))
    }

    /// More of a reply.
    pub(super) fn reply(&mut self, text: &str) -> Result<(), Failure> {
        let width = self.columns.saturating_sub(1);
        let look = self.look;
        let reply = self.reply.get_or_insert_with(|| Markdown::new(look, width));
        let shown = reply.push(&clean_more(text));
        self.put(&shown)
    }

    fn put(&mut self, shown: &str) -> Result<(), Failure> {
        if shown.is_empty() {
            return Ok(());
        }
        let erased = self.erased();
        self.out.write(&format!("{erased}{shown}"))?;
        self.midline = !shown.ends_with('\n');
        self.draw()
    }

    /// Ends the reply's line.
    pub(super) fn end_reply(&mut self) -> Result<(), Failure> {
        if let Some(mut reply) = self.reply.take() {
            let rest = reply.finish();
            self.put(&rest)?;
        }
        Ok(())
    }

    /// Whether something may be drawn below the reply.
    pub(super) const fn is_free(&self) -> bool {
        !self.midline
    }

    /// What turns while one waits.
    pub(super) fn spin(&mut self, what: &str, since: Duration, tokens: u64) -> Result<(), Failure> {
        let step = usize::try_from(since.as_millis() / 100).unwrap_or(0);
        let dot = self.look.dot();
        let mut text = format!("{} {what}{dot}{} s", self.look.spinner(step), since.as_secs());
        if tokens > 0 {
            text = format!("{text}{dot}{tokens} tokens");
        }
        self.status(&format!("{text}{dot}Ctrl-C cancels"), TextRole::Aside)
    }
}

/// So many rows up, at the beginning of a row.
fn back(up: usize) -> String {
    if up > 0 { format!("\r\u{1b}[{up}A") } else { "\r".to_owned() }
}

/// As much of a line as fits.
pub(super) fn cut(text: &str, wide: usize) -> String {
    use unicode_width::UnicodeWidthChar;
    if text.width() <= wide {
        return text.to_owned();
    }
    let mut column = 0;
    let fits = |c: &char| {
        column += c.width().unwrap_or(0);
        column < wide
    };
    let mut out: String = text.chars().take_while(fits).collect();
    out.push('~');
    out
}
