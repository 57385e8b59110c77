//! Lines of Markdown, as they come.

use super::{
    super::terminal_style::TerminalStyle,
    code::Colors,
    flow::{self, Flow},
    span, table,
};

/// Characters of a line's beginning, or of a row of a table, that are waited for.
const HELD: usize = 8_192;
/// Rows of a table that are waited for.
const ROWS: usize = 500;
/// Columns by which a list may be indented.
const INDENT: usize = 12;

/// Markdown on its way to a terminal.
#[derive(Debug)]
pub(in crate::cli::chat) struct Markdown {
    look: TerminalStyle,
    flow: Flow,
    at: LinePosition,
    /// What of the line is not printed yet.
    held: Vec<char>,
    /// Rows of a table that may go on.
    table: Vec<String>,
    /// The fence that ends the code.
    fence: Option<(char, usize)>,
    /// The colours of the code, if its language is known and colours may be used.
    colors: Option<Colors>,
    /// Whether the line before was blank, or there was none.
    blank: bool,
}

/// Where in a line it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinePosition {
    /// Where it is not clear yet what the line is.
    Start,
    /// In words, of this style.
    Words(u16),
    /// In a line of code.
    Code,
}

/// What a line is.
#[derive(Debug, PartialEq, Eq)]
enum MarkdownBlock {
    Blank,
    Words,
    Heading(usize),
    /// Indent, mark, and characters of it in the source.
    Item(usize, String, usize),
    Quote(usize),
    Rule,
    Row,
    /// Sign, how many, and the name of a language.
    Fence(char, usize, String),
}

// === impl Markdown ===

impl Markdown {
    /// For a terminal of so many columns.
    pub(in crate::cli::chat) fn new(look: TerminalStyle, width: usize) -> Self {
        let flow = Flow::new(look.color, width);
        let (held, table) = (Vec::new(), Vec::new());
        Self {
            look,
            flow,
            at: LinePosition::Start,
            held,
            table,
            fence: None,
            colors: None,
            blank: true,
        }
    }

    /// The window has another size.
    pub(in crate::cli::chat) fn resize(&mut self, width: usize) {
        self.flow.width(width);
    }

    /// More of the text; what to print.
    pub(in crate::cli::chat) fn push(&mut self, text: &str) -> String {
        for c in text.chars() {
            self.take(c);
        }
        self.flow.printed()
    }

    /// The end of the text; what is left to print, up to a line's end.
    pub(in crate::cli::chat) fn finish(&mut self) -> String {
        if !self.held.is_empty() || self.at != LinePosition::Start {
            self.take('\n');
        }
        self.end_table();
        (self.fence, self.colors) = (None, None);
        self.flow.printed()
    }

    fn take(&mut self, c: char) {
        match (self.at, c) {
            (LinePosition::Start, '\n') => {
                let block = match self.fence {
                    Some((sign, many)) => {
                        self.code_line(sign, many);
                        return;
                    }
                    None => block(&self.held, true).unwrap_or(MarkdownBlock::Words),
                };
                self.begin(&block);
                if self.at != LinePosition::Start {
                    self.take('\n');
                }
            }
            (LinePosition::Start, c) => {
                self.held.push(c);
                if let Some((sign, _)) = self.fence {
                    let could_end = self.held.iter().all(|held| *held == sign || *held == ' ');
                    let most = if self.colors.is_some() { HELD } else { 80 };
                    if (!could_end && self.colors.is_none()) || self.held.len() > most {
                        self.at = LinePosition::Code;
                        self.code_held();
                    }
                } else if let Some(block) = block(&self.held, self.held.len() > HELD) {
                    self.begin(&block);
                }
            }
            (LinePosition::Words(style), '\n') => {
                self.words(style, true);
                self.flow.end_line();
                self.at = LinePosition::Start;
            }
            (LinePosition::Words(style), c) => {
                self.held.push(c);
                self.words(style, false);
            }
            (LinePosition::Code, '\n') => {
                self.flow.end_line();
                self.at = LinePosition::Start;
            }
            (LinePosition::Code, c) => self.flow.raw(c, flow::CODE),
        }
    }

    /// A line whose kind is clear begins.
    fn begin(&mut self, block: &MarkdownBlock) {
        if *block != MarkdownBlock::Row {
            self.end_table();
        }
        if *block != MarkdownBlock::Blank {
            self.blank = false;
        }
        match block {
            MarkdownBlock::Blank => {
                self.held.clear();
                if !std::mem::replace(&mut self.blank, true) {
                    self.flow.blank_line();
                }
            }
            MarkdownBlock::Words => self.line("", "", 0, 0),
            MarkdownBlock::Heading(level) => self.line("", "", level + 1, flow::BOLD | flow::HEAD),
            MarkdownBlock::Item(indent, mark, taken) => {
                let indent = " ".repeat((*indent).min(INDENT));
                let mark = if mark == "•" && !self.look.utf8 { "-" } else { mark };
                let first = format!("{indent}{mark} ");
                let further = " ".repeat(first.chars().count());
                self.line(&first, &further, *taken, 0);
            }
            MarkdownBlock::Quote(taken) => {
                let bar = if self.look.utf8 { "│ " } else { "| " };
                self.line(bar, bar, *taken, flow::DIM);
            }
            MarkdownBlock::Rule => {
                self.held.clear();
                self.flow.rule(if self.look.utf8 { '─' } else { '-' });
            }
            MarkdownBlock::Row => {
                self.table.push(self.held.drain(..).collect());
                if self.table.len() >= ROWS {
                    self.end_table();
                }
            }
            MarkdownBlock::Fence(sign, many, language) => {
                self.held.clear();
                self.colors = Colors::of(language).filter(|_| self.look.color);
                self.fence = Some((*sign, *many));
            }
        }
    }

    /// A line of words begins: with `first`, and `further` where it is wrapped.
    fn line(&mut self, first: &str, further: &str, taken: usize, style: u16) {
        self.held.drain(..taken.min(self.held.len()));
        self.flow.begin_line(first, further);
        self.at = LinePosition::Words(style);
        self.words(style, false);
    }

    fn words(&mut self, style: u16, whole: bool) {
        let before = self.flow.last();
        let (runs, taken) = span::read(&self.held, before, style, whole, self.look.color);
        self.held.drain(..taken);
        for (c, style) in runs {
            self.flow.put(c, style);
        }
    }

    /// A whole line within code: its end, or a line that begins like it.
    fn code_line(&mut self, sign: char, many: usize) {
        let signs = self.held.iter().filter(|held| **held == sign).count();
        let ends = signs >= many && self.held.iter().all(|held| *held == sign || *held == ' ');
        if ends {
            self.held.clear();
            (self.fence, self.colors) = (None, None);
            return;
        }
        self.code_held();
        self.flow.end_line();
    }

    fn code_held(&mut self) {
        if !self.held.is_empty() {
            self.flow.begin_line("  ", "");
        }
        let held = std::mem::take(&mut self.held);
        let colored = match &mut self.colors {
            Some(colors) => colors.line(&held),
            None => held.into_iter().map(|c| (c, flow::CODE)).collect(),
        };
        for (c, style) in colored {
            self.flow.raw(c, style);
        }
    }

    fn end_table(&mut self) {
        let rows = std::mem::take(&mut self.table);
        if !rows.is_empty() {
            table::print(&rows, self.look, &mut self.flow);
        }
    }
}

/// What a line is that begins so; `None` if that is not clear yet.
fn block(line: &[char], whole: bool) -> Option<MarkdownBlock> {
    let indent =
        line.iter().take_while(|character| **character == ' ' || **character == '\t').count();
    let rest = line.get(indent..).unwrap_or_default();
    let Some(&first) = rest.first() else { return whole.then_some(MarkdownBlock::Blank) };
    let run = rest.iter().take_while(|character| **character == first).count();
    let (all, next) = (run == rest.len(), rest.get(run));
    let space = next == Some(&' ');
    let not_yet = |block: MarkdownBlock| if all && !whole { None } else { Some(block) };
    match first {
        '#' if run <= 6 && (space || all) => {
            not_yet(MarkdownBlock::Heading(if all { run.saturating_sub(1) } else { run } + indent))
        }
        '`' | '~' if run >= 3 => {
            let name: String = rest.iter().skip(run).collect();
            if first == '`' && name.contains('`') {
                return Some(MarkdownBlock::Words);
            }
            whole.then(|| MarkdownBlock::Fence(first, run, name.trim().to_owned()))
        }
        '-' | '*' | '_'
            if rest.iter().all(|character| *character == first || *character == ' ') =>
        {
            let signs = rest.iter().filter(|character| **character == first).count();
            match (signs, whole) {
                (3.., true) => Some(MarkdownBlock::Rule),
                (_, true) if run == 1 && first != '_' => {
                    Some(MarkdownBlock::Item(indent, "-".to_owned(), line.len()))
                }
                (_, true) => Some(MarkdownBlock::Words),
                (_, false) => None,
            }
        }
        '-' | '*' | '+' if run == 1 && space => {
            Some(MarkdownBlock::Item(indent, "•".to_owned(), indent + 2))
        }
        '`' | '~' | '+' => not_yet(MarkdownBlock::Words),
        '>' => {
            let space = rest.get(1) == Some(&' ');
            if rest.len() == 1 && !whole {
                None
            } else {
                Some(MarkdownBlock::Quote(indent + 1 + usize::from(space)))
            }
        }
        '|' => whole.then_some(MarkdownBlock::Row),
        '0'..='9' => ordered(rest, indent, whole),
        _ => Some(MarkdownBlock::Words),
    }
}

fn ordered(rest: &[char], indent: usize, whole: bool) -> Option<MarkdownBlock> {
    let digits = rest.iter().take_while(|character| character.is_ascii_digit()).count();
    if digits > 9 {
        return Some(MarkdownBlock::Words);
    }
    match (rest.get(digits), rest.get(digits + 1)) {
        (Some('.' | ')'), Some(' ')) => {
            let mark: String = rest.iter().take(digits + 1).collect();
            Some(MarkdownBlock::Item(indent, mark, indent + digits + 2))
        }
        (None | Some('.' | ')'), None) if !whole => None,
        _ => Some(MarkdownBlock::Words),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use unicode_width::UnicodeWidthStr;

    use super::*;

    const PLAIN: TerminalStyle = TerminalStyle { color: false, utf8: true };

    fn shown(text: &str, look: TerminalStyle, width: usize) -> String {
        let mut markdown = Markdown::new(look, width);
        let first = markdown.push(text);
        first + &markdown.finish()
    }

    #[test]
    fn a_page_is_as_people_read_it() {
        let text = "# A *page*\n\nSome **bold and `code`** words that are longer than a line, see \
                    [the book](https://example.org/b).\n\n\n- one\n  - two is a point that is long \
                    enough\n- three\n\n1. first\n2) second\n\n> said by\n\n---\n```rust\nfn main() \
                    {\n\n    let a_b = \"**x**\";\n}\n```\n2 * 3 * 4 and snake_case_name, \\*kept\\* ~~old~~\n";
        insta::assert_snapshot!(shown(text, PLAIN, 34));
        insta::assert_snapshot!(
            shown(text, TerminalStyle { color: true, utf8: true }, 34).replace('\u{1b}', "^")
        );
    }

    #[test]
    fn a_table_is_as_wide_as_it_needs_to_be() {
        let text = "| name | what it does | n |\n|:--|---|--:|\n| `a` | prints **all** of the things \
                    that there are | 1 |\n| b\\|c | 日本 | 200 |\nafter\n";
        insta::assert_snapshot!(shown(text, PLAIN, 80));
        insta::assert_snapshot!(shown(text, PLAIN, 30));
        insta::assert_snapshot!(shown(text, TerminalStyle { color: false, utf8: false }, 12));
        assert_eq!(shown("| no table\nx", PLAIN, 40), "| no table\nx\n");
    }

    #[test]
    fn what_is_not_closed_is_text() {
        for text in ["a **b", "a `b", "[a](b", "* ", "**", "a_b_c", "5 * 3", "![", "#x", "1.", "``"]
        {
            let out = shown(text, PLAIN, 40);
            let letters =
                |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
            assert_eq!(letters(&out), letters(text), "{text}: {out}");
        }
        assert_eq!(shown("a **b", PLAIN, 40), "a **b\n");
    }

    #[test]
    fn words_come_as_soon_as_they_are_whole() {
        let mut markdown = Markdown::new(PLAIN, 40);
        assert_eq!(markdown.push("Hello wor"), "Hello");
        assert_eq!(markdown.push("ld, "), " world,");
        assert_eq!(markdown.push("日本"), " 日本");
        assert_eq!(markdown.finish(), "\n");
    }

    fn source() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            "[a-z]{1,8}",
            Just("日本".to_owned()),
            "[*_`~#>|\\[\\]()!-]{1,3}",
            Just(" ".to_owned()),
            Just("\n".to_owned()),
            Just("```\n".to_owned()),
            Just("```rs\n".to_owned()),
            Just("\"let x\" // ".to_owned()),
            Just("| a | b |\n|---|---|\n".to_owned()),
            Just("- ".to_owned()),
        ];
        proptest::collection::vec(part, 0..60).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn however_it_is_cut_it_is_the_same(text in source(), size in 1usize..9, width in 10usize..60) {
            let whole = shown(&text, PLAIN, width);
            let chars: Vec<char> = text.chars().collect();
            for look in [PLAIN, TerminalStyle { color: true, utf8: true }] {
                let mut markdown = Markdown::new(look, width);
                let mut parts: String = chars
                    .chunks(size)
                    .map(|chunk| markdown.push(&chunk.iter().collect::<String>()))
                    .collect();
                parts.push_str(&markdown.finish());
                prop_assert_eq!(parts, shown(&text, look, width));
            }
            let letters = |text: &str| {
                let mut all: Vec<char> = text.chars().filter(|c| c.is_alphabetic()).collect();
                all.sort_unstable();
                all
            };
            // The words after a fence name a language.
            if !text.contains("```") && !text.contains("~~~") {
                prop_assert_eq!(letters(&whole), letters(&text));
                for line in whole.lines() {
                    prop_assert!(line.width() <= width, "{line:?}");
                }
            }
            prop_assert!(whole.is_empty() || whole.ends_with('\n'));
        }
    }
}
