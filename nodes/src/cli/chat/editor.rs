//! The line that a person types: its text, the cursor, and what a key does to them. Pure.

use std::sync::Arc;

use clawnode_proto::{limits, visible::is_hidden};
use unicode_width::UnicodeWidthChar;

use super::keys::{Key, Paste};
use crate::cli::output::count;

/// A paste of more lines than this, or...
const FOLD_LINES: usize = 8;
/// ...of more characters, is in the line as one sign that says how long it is.
const FOLD_CHARS: usize = 800;
/// What begins and ends a text of several lines.
const FENCE: &str = "\"\"\"";

/// A part of the text: a character, or all of a long paste.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TextPiece {
    Char(char),
    Paste(Arc<str>),
}

/// The line that is typed.
#[derive(Debug, Default)]
pub(super) struct Editor {
    pieces: Vec<TextPiece>,
    /// Before which piece the cursor is.
    cursor: usize,
    /// What was deleted last, for Ctrl-Y.
    deleted: Vec<TextPiece>,
    /// Texts sent before, the oldest first.
    history: Vec<String>,
    /// Which of them is shown, and what was typed before it was.
    shown: Option<(usize, Vec<TextPiece>)>,
}

/// What a key comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Typed {
    /// The line is another, or the same.
    Line,
    /// It is said, whole.
    Said(String),
    /// To be told to the person; the line stays.
    Told(String),
    /// Candidates for the word before the cursor.
    Choices(Vec<String>),
    /// Clear the screen.
    Clear,
    /// Ctrl-C at a line, which is empty now; or at an empty one.
    Interrupt { was_empty: bool },
    /// Ctrl-D at an empty line.
    Close,
    /// Ctrl-Z.
    Suspend,
}

/// The text as rows of a screen.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rows {
    pub rows: Vec<String>,
    /// Row and column of the cursor.
    pub cursor: (usize, usize),
}

// === impl Editor ===

impl Editor {
    /// An empty line, after these.
    pub(super) fn new(history: Vec<String>) -> Self {
        Self { history, ..Self::default() }
    }

    /// The whole text.
    pub(super) fn text(&self) -> String {
        text_of(&self.pieces)
    }

    /// Replaces the text.
    pub(super) fn set(&mut self, text: &str) {
        self.pieces = pieces_of(text);
        self.cursor = self.pieces.len();
    }

    /// Remembers what was said.
    pub(super) fn remember(&mut self, text: &str) {
        if self.history.last().is_none_or(|last| last != text) {
            self.history.push(text.to_owned());
        }
    }

    /// Takes a key; `complete` has what a word at the beginning of the line may be.
    pub(super) fn take(&mut self, key: Key, complete: impl Fn(&str) -> Vec<String>) -> Typed {
        let before = self.pieces.len();
        match key {
            Key::Char(c) => self.insert([TextPiece::Char(c)]),
            Key::NewLine => self.insert([TextPiece::Char('\n')]),
            Key::Paste(paste) => return self.paste(paste),
            Key::Enter => return self.enter(),
            Key::Tab => return self.complete(&complete),
            Key::Backspace => self.remove(self.left(), self.cursor),
            Key::Left => self.cursor = self.left(),
            Key::Right => self.cursor = self.right(),
            Key::WordLeft => self.cursor = self.word_left(),
            Key::WordRight => self.cursor = self.word_right(),
            Key::Home => self.cursor = self.line_start(),
            Key::End => self.cursor = self.line_end(),
            Key::DeleteWord => self.delete(self.word_left(), self.cursor),
            Key::DeleteToStart => self.delete(self.line_start(), self.cursor),
            Key::DeleteToEnd => self.delete(self.cursor, self.line_end()),
            Key::Yank => self.insert(self.deleted.clone()),
            Key::Up => self.up(),
            Key::Down => self.down(),
            Key::Clear => return Typed::Clear,
            Key::Suspend => return Typed::Suspend,
            Key::Interrupt => {
                self.pieces.clear();
                self.cursor = 0;
                self.shown = None;
                return Typed::Interrupt { was_empty: before == 0 };
            }
            Key::Close if self.pieces.is_empty() => return Typed::Close,
            Key::Delete | Key::Close => self.remove(self.cursor, self.right()),
            Key::Other => {}
        }
        Typed::Line
    }

    fn insert(&mut self, new: impl IntoIterator<Item = TextPiece>) {
        let old = self.pieces.len();
        let at = self.cursor.min(old);
        self.pieces.splice(at..at, new);
        self.cursor = at + self.pieces.len() - old;
    }

    fn remove(&mut self, from: usize, to: usize) {
        self.pieces.drain(from..to);
        self.cursor = from;
    }

    fn delete(&mut self, from: usize, to: usize) {
        if from < to {
            self.deleted = self.pieces.drain(from..to).collect();
            self.cursor = from;
        }
    }

    fn paste(&mut self, Paste { text, foreign, cut }: Paste) -> Typed {
        if cut || self.text().len() + text.len() > limits::MESSAGE_BYTES {
            let most = limits::MESSAGE_BYTES >> 20;
            return Typed::Told(format!(
                "the paste was refused: a message may have at most {most} MiB; send it in parts, \
                 or give the file's name to an agent that can read it"
            ));
        }
        self.insert(pieces_of(&text));
        if foreign > 0 {
            let bytes = count(foreign as u64, "byte");
            return Typed::Told(format!(
                "{bytes} of the paste are not UTF-8; \u{fffd} replaces them"
            ));
        }
        Typed::Line
    }

    fn enter(&mut self) -> Typed {
        let text = self.text();
        let said = text.trim();
        let open = said.starts_with(FENCE) && !(said.len() >= 6 && said.ends_with(FENCE));
        if open {
            self.insert([TextPiece::Char('\n')]);
            return Typed::Line;
        }
        // Typed: a paste that ends so is a text as it is.
        let slash = |piece: &&TextPiece| **piece == TextPiece::Char('\\');
        let slashes = self.pieces.iter().rev().take_while(slash).count();
        if self.cursor == self.pieces.len() && slashes % 2 == 1 {
            self.pieces.pop();
            self.cursor = self.pieces.len();
            self.insert([TextPiece::Char('\n')]);
            return Typed::Line;
        }
        if said.len() > limits::MESSAGE_BYTES {
            let most = limits::MESSAGE_BYTES >> 20;
            return Typed::Told(format!(
                "the message was not sent: it is over {most} MiB; send it in parts"
            ));
        }
        let whole = said.strip_prefix(FENCE).and_then(|text| text.strip_suffix(FENCE));
        // Spaces at the beginning say that it is no command.
        let text = whole
            .map_or_else(|| text.trim_end().to_owned(), |text| text.trim_matches('\n').to_owned());
        self.pieces.clear();
        self.cursor = 0;
        self.shown = None;
        Typed::Said(text)
    }

    fn complete(&mut self, complete: &impl Fn(&str) -> Vec<String>) -> Typed {
        let before = text_of(self.pieces.get(..self.cursor).unwrap_or_default());
        if before.contains('\n') {
            return Typed::Line;
        }
        let choices = complete(&before);
        let common = common(&choices);
        if common.len() > before.len() && common.starts_with(&before) {
            let rest = self.pieces.split_off(self.cursor);
            self.pieces = pieces_of(&common);
            if choices.len() == 1 && rest.is_empty() {
                self.pieces.push(TextPiece::Char(' '));
            }
            self.cursor = self.pieces.len();
            self.pieces.extend(rest);
            return Typed::Line;
        }
        if choices.len() > 1 { Typed::Choices(choices) } else { Typed::Line }
    }

    /// Back through the texts before, from the first line.
    fn up(&mut self) {
        let start = self.line_start();
        if start > 0 {
            let column = self.cursor - start;
            self.cursor = start - 1;
            self.cursor = (self.line_start() + column).min(start - 1);
            return;
        }
        let at = self.shown.as_ref().map_or(self.history.len(), |(at, _)| *at);
        if at > 0 {
            let typed = self.shown.take().map_or_else(|| self.pieces.clone(), |(_, typed)| typed);
            let text = self.history.get(at - 1).cloned().unwrap_or_default();
            self.set(&text);
            self.shown = Some((at - 1, typed));
        }
    }

    /// Forth again, from the last line.
    fn down(&mut self) {
        let end = self.line_end();
        if end < self.pieces.len() {
            let column = self.cursor - self.line_start();
            self.cursor = end + 1;
            self.cursor = (end + 1 + column).min(self.line_end());
            return;
        }
        let Some((at, typed)) = self.shown.take() else { return };
        if let Some(text) = self.history.get(at + 1).cloned() {
            self.set(&text);
            self.shown = Some((at + 1, typed));
        } else {
            self.pieces = typed;
            self.cursor = self.pieces.len();
        }
    }

    fn is_mark(&self, at: usize) -> bool {
        // What belongs to the character before it: accents, and what emoji are joined by.
        let joiner = |at: usize| self.pieces.get(at) == Some(&TextPiece::Char('\u{200d}'));
        match self.pieces.get(at) {
            Some(TextPiece::Char(c)) => {
                (*c != '\n' && c.width() == Some(0)) || (at > 0 && joiner(at - 1))
            }
            _ => false,
        }
    }

    /// Whether a hidden character is one that emoji are spelled with, after one of them.
    fn is_joiner(&self, at: usize) -> bool {
        let spells = matches!(
            self.pieces.get(at),
            Some(TextPiece::Char('\u{200d}' | '\u{fe0e}' | '\u{fe0f}'))
        );
        let before = at.checked_sub(1).and_then(|at| self.pieces.get(at));
        spells && matches!(before, Some(TextPiece::Char(c)) if !c.is_ascii() && !is_hidden(*c))
    }

    fn left(&self) -> usize {
        let mut at = self.cursor.saturating_sub(1);
        while at > 0 && self.is_mark(at) {
            at -= 1;
        }
        at
    }

    fn right(&self) -> usize {
        let mut at = (self.cursor + 1).min(self.pieces.len());
        while at < self.pieces.len() && self.is_mark(at) {
            at += 1;
        }
        at
    }

    fn is_word(&self, at: usize) -> bool {
        match self.pieces.get(at) {
            Some(TextPiece::Char(c)) => c.is_alphanumeric() || *c == '_',
            Some(TextPiece::Paste(_)) => true,
            None => false,
        }
    }

    fn word_left(&self) -> usize {
        let mut at = self.cursor;
        while at > 0 && !self.is_word(at - 1) {
            at -= 1;
        }
        while at > 0 && self.is_word(at - 1) {
            at -= 1;
        }
        at
    }

    fn word_right(&self) -> usize {
        let mut at = self.cursor;
        while at < self.pieces.len() && !self.is_word(at) {
            at += 1;
        }
        while at < self.pieces.len() && self.is_word(at) {
            at += 1;
        }
        at
    }

    fn line_start(&self) -> usize {
        let before = self.pieces.get(..self.cursor).unwrap_or_default();
        before.iter().rposition(|piece| *piece == TextPiece::Char('\n')).map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        let after = self.pieces.get(self.cursor..).unwrap_or_default();
        let end = after.iter().position(|piece| *piece == TextPiece::Char('\n'));
        end.map_or(self.pieces.len(), |at| self.cursor + at)
    }

    /// The text as rows of at most `width` columns.
    pub(super) fn rows(&self, width: usize) -> Rows {
        const PROMPT: &str = "> ";
        const FURTHER: &str = "  ";
        let width = width.max(PROMPT.len() + 2);
        let (mut rows, mut row, mut column) = (Vec::new(), PROMPT.to_owned(), PROMPT.len());
        let mut cursor = (0, column);
        for (at, piece) in self.pieces.iter().enumerate() {
            if at == self.cursor {
                cursor = (rows.len(), column);
            }
            let shown = match piece {
                TextPiece::Char('\n') => {
                    rows.push(std::mem::replace(&mut row, FURTHER.to_owned()));
                    column = FURTHER.len();
                    continue;
                }
                TextPiece::Char('\t') => "  ".to_owned(),
                TextPiece::Char(c) if is_hidden(*c) && !self.is_joiner(at) => {
                    c.escape_default().to_string()
                }
                TextPiece::Char(c) if self.is_mark(at) => {
                    row.push(*c);
                    continue;
                }
                TextPiece::Char(c) => c.to_string(),
                TextPiece::Paste(text) => label(text),
            };
            for c in shown.chars() {
                let wide = c.width().unwrap_or(0);
                if column + wide > width {
                    rows.push(std::mem::replace(&mut row, FURTHER.to_owned()));
                    column = FURTHER.len();
                    if at == self.cursor && shown.chars().count() == 1 {
                        cursor = (rows.len(), column);
                    }
                }
                row.push(c);
                column += wide;
            }
        }
        if self.cursor >= self.pieces.len() {
            cursor = (rows.len(), column);
        }
        rows.push(row);
        Rows { rows, cursor }
    }
}

/// The sign for a long paste.
fn label(text: &str) -> String {
    let lines = text.lines().count() as u64;
    let chars = grouped(text.chars().count());
    format!("[pasted {}, {chars} characters]", count(lines, "line"))
}

/// `5990` as `5,990`.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn pieces_of(text: &str) -> Vec<TextPiece> {
    let long = text.lines().nth(FOLD_LINES).is_some() || text.chars().nth(FOLD_CHARS).is_some();
    if long {
        return vec![TextPiece::Paste(text.into())];
    }
    text.chars().map(TextPiece::Char).collect()
}

fn text_of(pieces: &[TextPiece]) -> String {
    let mut text = String::new();
    for piece in pieces {
        match piece {
            TextPiece::Char(c) => text.push(*c),
            TextPiece::Paste(paste) => text.push_str(paste),
        }
    }
    text
}

/// What all of them begin with.
fn common(choices: &[String]) -> String {
    let Some((first, others)) = choices.split_first() else { return String::new() };
    let same = |at: usize, c: char| others.iter().all(|other| other.chars().nth(at) == Some(c));
    first.chars().enumerate().take_while(|(at, c)| same(*at, *c)).map(|(_, c)| c).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn none(_: &str) -> Vec<String> {
        Vec::new()
    }

    fn typed(editor: &mut Editor, text: &str) {
        for c in text.chars() {
            assert_eq!(editor.take(Key::Char(c), none), Typed::Line);
        }
    }

    fn paste(text: &str) -> Key {
        Key::Paste(Paste { text: text.to_owned(), foreign: 0, cut: false })
    }

    #[test]
    fn text_is_typed_changed_and_said() {
        let mut editor = Editor::default();
        typed(&mut editor, "hello wrld");
        for key in [Key::Left, Key::Left, Key::Left, Key::Char('o')] {
            assert_eq!(editor.take(key, none), Typed::Line);
        }
        assert_eq!(editor.text(), "hello world");
        let _typed = editor.take(Key::DeleteToStart, none);
        let _typed = editor.take(Key::End, none);
        let _typed = editor.take(Key::Yank, none);
        assert_eq!(editor.take(Key::Enter, none), Typed::Said("rldhello wo".to_owned()));
        assert_eq!(editor.text(), "");
        assert_eq!(editor.take(Key::Close, none), Typed::Close);
    }

    #[test]
    fn a_long_paste_is_one_sign_and_is_said_whole() {
        let mut editor = Editor::default();
        let text = format!("{}THE-END", "x".repeat(5_990));
        let _typed = editor.take(paste(&text), none);
        typed(&mut editor, " why?");
        let shown = editor.rows(60);
        assert_eq!(shown.rows, ["> [pasted 1 line, 5,997 characters] why?"]);
        assert_eq!(editor.take(Key::Enter, none), Typed::Said(format!("{text} why?")));
        let _typed = editor.take(paste(&text), none);
        let _typed = editor.take(Key::Backspace, none);
        assert_eq!(editor.text(), "", "a sign goes as a whole");
    }

    #[test]
    fn a_paste_that_no_message_may_have_is_refused_and_the_line_stays() {
        let mut editor = Editor::default();
        typed(&mut editor, "it");
        let big = "x".repeat(limits::MESSAGE_BYTES);
        assert!(matches!(editor.take(paste(&big), none), Typed::Told(_)));
        assert_eq!(editor.text(), "it");
        let mut editor = Editor::default();
        assert_eq!(editor.take(paste(&big), none), Typed::Line);
        assert_eq!(editor.take(Key::Enter, none), Typed::Said(big));
    }

    #[test]
    fn several_lines_are_typed_in_each_way() {
        let mut editor = Editor::default();
        typed(&mut editor, "a\\");
        assert_eq!(editor.take(Key::Enter, none), Typed::Line);
        typed(&mut editor, "b");
        let _typed = editor.take(Key::NewLine, none);
        typed(&mut editor, "c");
        assert_eq!(editor.rows(20).rows, ["> a", "  b", "  c"]);
        assert_eq!(editor.take(Key::Enter, none), Typed::Said("a\nb\nc".to_owned()));
        typed(&mut editor, "\"\"\"one");
        assert_eq!(editor.take(Key::Enter, none), Typed::Line);
        typed(&mut editor, "two\"\"\"");
        assert_eq!(editor.take(Key::Enter, none), Typed::Said("one\ntwo".to_owned()));
        typed(&mut editor, "c:\\\\");
        assert_eq!(editor.take(Key::Enter, none), Typed::Said("c:\\\\".to_owned()));
    }

    #[test]
    fn what_was_said_before_comes_back() {
        let mut editor = Editor::new(vec!["one".to_owned(), "two".to_owned()]);
        typed(&mut editor, "thr");
        for (key, text) in [
            (Key::Up, "two"),
            (Key::Up, "one"),
            (Key::Up, "one"),
            (Key::Down, "two"),
            (Key::Down, "thr"),
            (Key::Down, "thr"),
        ] {
            let _typed = editor.take(key, none);
            assert_eq!(editor.text(), text);
        }
    }

    #[test]
    fn a_word_is_completed_as_far_as_it_is_clear() {
        let known = |word: &str| {
            let all = ["/resume", "/retry", "/new"];
            all.iter().filter(|name| name.starts_with(word)).map(ToString::to_string).collect()
        };
        let mut editor = Editor::default();
        typed(&mut editor, "/n");
        let _typed = editor.take(Key::Tab, known);
        assert_eq!(editor.text(), "/new ");
        let mut editor = Editor::default();
        typed(&mut editor, "/r");
        let _typed = editor.take(Key::Tab, known);
        assert_eq!(editor.text(), "/re");
        let choices = vec!["/resume".to_owned(), "/retry".to_owned()];
        assert_eq!(editor.take(Key::Tab, known), Typed::Choices(choices));
    }

    #[test]
    fn an_emoji_of_several_signs_is_one_step() {
        let mut editor = Editor::default();
        typed(&mut editor, "a👩\u{200d}💻e\u{301}");
        let _typed = editor.take(Key::Left, none);
        let _typed = editor.take(Key::Backspace, none);
        assert_eq!(editor.text(), "ae\u{301}");
        assert_eq!(editor.rows(20).cursor, (0, 3));
    }

    proptest! {
        #[test]
        fn rows_are_never_too_wide(text in "[a-z日本\n\t\u{1b}é]{0,200}", width in 4usize..60) {
            let mut editor = Editor::default();
            for c in text.chars() {
                let _typed = editor.take(Key::Char(c), none);
            }
            let shown = editor.rows(width);
            for row in &shown.rows {
                let wide: usize = row.chars().map(|c| c.width().unwrap_or(0)).sum();
                prop_assert!(wide <= width, "{row:?}");
            }
            prop_assert!(shown.cursor.0 < shown.rows.len());
        }
    }
}
