//! Words in lines: wrapped at the terminal's width, in their styles.

use unicode_width::UnicodeWidthChar;

/// A style of words; styles are added.
pub(super) const BOLD: u16 = 1;
pub(super) const ITALIC: u16 = 2;
pub(super) const CODE: u16 = 4;
pub(super) const LINK: u16 = 8;
pub(super) const DIM: u16 = 16;
pub(super) const STRUCK: u16 = 32;
pub(super) const HEAD: u16 = 64;
pub(super) const KEYWORD: u16 = 128;
pub(super) const STRING: u16 = 256;
pub(super) const REMOVED: u16 = 512;
/// Added lines look like strings: green.
pub(super) const ADDED: u16 = STRING;

/// Fewest columns that lines are wrapped at.
const LEAST: usize = 8;

/// Lines on their way out.
#[derive(Debug)]
pub(super) struct Flow {
    color: bool,
    width: usize,
    out: String,
    column: usize,
    /// The style that the terminal is in.
    style: u16,
    /// What a wrapped line goes on with, and how wide that is.
    further: (String, usize),
    /// A word that is not whole yet.
    word: Vec<(char, u16)>,
    wide: usize,
    /// Spaces before it.
    gap: usize,
    /// The last character that was put.
    last: Option<char>,
}

// === impl Flow ===

impl Flow {
    pub(super) fn new(color: bool, width: usize) -> Self {
        Self {
            color,
            width: width.max(LEAST),
            out: String::new(),
            column: 0,
            style: 0,
            further: (String::new(), 0),
            word: Vec::new(),
            wide: 0,
            gap: 0,
            last: None,
        }
    }

    pub(super) fn width(&mut self, width: usize) {
        self.width = width.max(LEAST);
    }

    /// Columns of a line.
    pub(super) const fn columns(&self) -> usize {
        self.width
    }

    /// What is to be printed since the last time.
    pub(super) fn printed(&mut self) -> String {
        std::mem::take(&mut self.out)
    }

    /// The character before what comes next.
    pub(super) const fn last(&self) -> Option<char> {
        self.last
    }

    pub(super) fn begin_line(&mut self, first: &str, further: &str) {
        let wide = |text: &str| text.chars().map(|c| c.width().unwrap_or(0)).sum();
        let (first, further) =
            if wide(first) + LEAST / 2 > self.width { ("", "") } else { (first, further) };
        self.further = (further.to_owned(), wide(further));
        self.last = None;
        if !first.is_empty() {
            self.set(DIM);
            self.out.push_str(first);
            self.column = wide(first);
        }
    }

    /// A character of words.
    pub(super) fn put(&mut self, c: char, style: u16) {
        self.last = Some(c);
        if c == ' ' || c == '\t' {
            self.end_word();
            // A line that was wrapped here does not begin with spaces.
            self.gap += 1;
            return;
        }
        let wide = c.width().unwrap_or(0);
        // A sign that is as wide as two is a word: those scripts have no spaces.
        if wide > 1 {
            self.end_word();
        }
        if self.wide + wide > self.width.saturating_sub(self.further.1) {
            self.end_word();
        }
        self.word.push((c, style));
        self.wide += wide;
        if wide > 1 {
            self.end_word();
        }
    }

    fn end_word(&mut self) {
        if self.word.is_empty() {
            return;
        }
        let fits = self.column + self.gap + self.wide <= self.width;
        if !fits && self.column > self.further.1 {
            self.set(0);
            self.out.push('\n');
            if self.further.1 > 0 {
                self.set(DIM);
                self.out.push_str(&self.further.0);
            }
            self.column = self.further.1;
        } else if fits {
            let style = self.word.first().map_or(0, |(_, style)| *style & self.style);
            if self.gap > 0 {
                self.set(style);
            }
            self.out.extend(std::iter::repeat_n(' ', self.gap));
            self.column += self.gap;
        }
        self.gap = 0;
        for (c, style) in std::mem::take(&mut self.word) {
            self.set(style);
            self.out.push(c);
        }
        self.column += std::mem::take(&mut self.wide);
    }

    /// A character of code: as it is, wherever the terminal wraps it.
    pub(super) fn raw(&mut self, c: char, style: u16) {
        self.set(style);
        self.out.push(c);
        self.column += c.width().unwrap_or(0);
    }

    pub(super) fn end_line(&mut self) {
        self.end_word();
        self.gap = 0;
        self.set(0);
        self.out.push('\n');
        self.column = 0;
        self.last = None;
        self.further = (String::new(), 0);
    }

    pub(super) fn blank_line(&mut self) {
        self.out.push('\n');
    }

    pub(super) fn rule(&mut self, sign: char) {
        self.set(DIM);
        self.out.extend(std::iter::repeat_n(sign, self.width.min(40)));
        self.column = 1;
        self.end_line();
    }

    /// Turns the terminal to a style.
    fn set(&mut self, style: u16) {
        if !self.color || style == self.style {
            return;
        }
        self.style = style;
        self.out.push_str("\u{1b}[0");
        for (flag, code) in [
            (BOLD, ";1"),
            (DIM, ";2"),
            (ITALIC, ";3"),
            (LINK, ";4"),
            (STRUCK, ";9"),
            (CODE, ";33"),
            (HEAD, ";36"),
            (KEYWORD, ";35"),
            (STRING, ";32"),
            (REMOVED, ";31"),
        ] {
            if style & flag != 0 {
                self.out.push_str(code);
            }
        }
        self.out.push('m');
    }
}
