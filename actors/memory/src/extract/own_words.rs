//! The sentences of a message that are its person's own words.

use std::iter::Peekable;

use clawnode_proto::limits::LEARNED_CHARS;

/// Takes the place of a quote or of code.
pub(super) const HOLE: char = '\u{fffc}';
/// What begins and ends a quote.
const QUOTES: [(char, char); 8] = [
    ('"', '"'),
    ('\u{201c}', '\u{201d}'),
    ('\u{201e}', '\u{201c}'),
    ('\u{2018}', '\u{2019}'),
    ('\u{ab}', '\u{bb}'),
    ('\u{bb}', '\u{ab}'),
    ('\'', '\''),
    ('`', '`'),
];
/// What marks a line as one that its person did not write, or that is no sentence.
const FOREIGN_LINES: [&str; 6] = [">", "|", "#", "    ", "\t", "$ "];
/// What may precede a colon before a person's own words.
const LEADS: [&str; 8] = [
    "about me",
    "fyi",
    "note",
    "please note",
    "please remember",
    "ps",
    "remember",
    "remember this",
];
/// An instruction that may go on after a colon.
const FROM_NOW_ON: &str = "from now on";
/// Words whose dot ends no sentence.
const SHORTENED: [&str; 8] = ["dr", "jr", "mr", "mrs", "ms", "prof", "sr", "st"];
/// Signs of code or of markup.
const CODE_SIGNS: [char; 9] = ['{', '}', '[', ']', '=', '<', '\\', '|', '~'];

/// A word of a sentence.
#[derive(Clone, Debug)]
pub(super) struct OwnWord {
    /// As it was written.
    pub(super) text: String,
    /// In lower case.
    pub(super) plain: String,
    /// A comma follows.
    pub(super) pauses: bool,
}

/// A sentence of a message.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnSentence {
    pub(super) words: Vec<OwnWord>,
    /// It is a question.
    pub(super) asks: bool,
}

/// The sentences at the beginning of a text, without what is quoted, code, or given after a colon. One that is cut off
/// is left out.
pub(super) fn sentences(text: &str) -> Vec<OwnSentence> {
    let is_cut = text.chars().nth(LEARNED_CHARS).is_some();
    let read: String = text.chars().take(LEARNED_CHARS).collect();
    let own = without_quotes(&without_code(&read));
    let mut found = Vec::new();
    for line in own.lines() {
        if FOREIGN_LINES.iter().any(|mark| line.starts_with(mark)) {
            continue;
        }
        let (line, gives) = before_colon(without_mark(line));
        split(&line, &mut found);
        if gives {
            // What follows is what the message is about.
            return found;
        }
    }
    if is_cut {
        found.pop();
    }
    found
}

/// The text with a hole for each block of code. One without an end goes to the end.
fn without_code(text: &str) -> String {
    let mut own = String::new();
    for (index, part) in text.split("```").enumerate() {
        if index % 2 == 0 {
            own.push_str(part);
        } else {
            own.push(HOLE);
            own.push('\n');
        }
    }
    own
}

/// The text with a hole for each quote, up to the first tag of markup. A quote without an end goes to the end.
fn without_quotes(text: &str) -> String {
    let mut own = String::new();
    let mut chars = text.chars().peekable();
    let mut before = ' ';
    while let Some(char) = chars.next() {
        let next = chars.peek().copied().unwrap_or(' ');
        if char == '<' && (next.is_alphabetic() || next == '/' || next == '!') {
            break;
        }
        let is_apostrophe = before.is_alphanumeric() && matches!(char, '\'' | '\u{2019}');
        let quote = QUOTES.iter().find(|(begin, _)| *begin == char);
        if let Some((_, end)) = quote.filter(|_| !is_apostrophe) {
            skip_to(&mut chars, *end);
            own.push(HOLE);
            before = HOLE;
        } else {
            own.push(if char == '\u{2019}' { '\'' } else { char });
            before = char;
        }
    }
    own
}

/// Goes on behind the end of a quote. An apostrophe in a word does not end one.
fn skip_to(chars: &mut Peekable<impl Iterator<Item = char>>, end: char) {
    while let Some(char) = chars.next() {
        let is_in_word = chars.peek().is_some_and(|next| next.is_alphanumeric());
        if char == end && !(is_in_word && matches!(end, '\'' | '\u{2019}')) {
            return;
        }
    }
}

/// The line without what makes it an entry of a list.
fn without_mark(line: &str) -> &str {
    let line = line.trim();
    let bare = line.trim_start_matches(['-', '*', '+', '\u{2022}', '\u{2013}']);
    let number = bare.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
    let is_numbered = number.len() < bare.trim_start().len();
    match number.strip_prefix(['.', ')']).filter(|_| is_numbered) {
        Some(rest) => rest.trim(),
        None => bare.trim(),
    }
}

/// What of a line is its person's, and whether the lines after it are what the message is about.
fn before_colon(line: &str) -> (String, bool) {
    let ends = |(_, rest): &(&str, &str)| rest.chars().next().is_none_or(char::is_whitespace);
    let mut colons = line.match_indices(':').filter_map(|(at, _)| {
        let (before, rest) = line.split_at_checked(at)?;
        Some((before, rest.strip_prefix(':')?))
    });
    let Some((before, rest)) = colons.find(ends) else { return (line.to_owned(), false) };
    let lead = before.trim().to_lowercase();
    if lead == FROM_NOW_ON {
        return (format!("{before}, {rest}"), false);
    }
    if LEADS.iter().any(|known| lead == *known || lead.ends_with(&format!(" {known}"))) {
        return (rest.trim().to_owned(), false);
    }
    (before.to_owned(), rest.trim().is_empty())
}

/// Adds the sentences of a line.
fn split(line: &str, found: &mut Vec<OwnSentence>) {
    let mut now = String::new();
    let mut chars = line.chars().peekable();
    while let Some(char) = chars.next() {
        let ends = match char {
            '!' | '?' | ';' | '\u{2026}' | '\u{3002}' | '\u{ff01}' | '\u{ff1f}' => true,
            '.' => chars.peek().is_none_or(|next| !next.is_alphanumeric()) && !is_shortened(&now),
            _ => false,
        };
        if !ends {
            now.push(char);
            continue;
        }
        let mut asks = is_question(char);
        while let Some(more) = chars.next_if(|next| matches!(next, '.' | '!' | '?')) {
            asks |= is_question(more);
        }
        found.extend(sentence(&now, asks));
        now.clear();
    }
    found.extend(sentence(&now, false));
}

const fn is_question(char: char) -> bool {
    matches!(char, '?' | '\u{ff1f}')
}

/// Whether a dot belongs to the last word here: `Dr.`, `J.`
fn is_shortened(text: &str) -> bool {
    let last = text.split_whitespace().next_back().unwrap_or_default();
    let mut letters = last.chars();
    let first = letters.next().is_some_and(|first| first.is_uppercase() && first != 'I');
    let is_initial = first && letters.next().is_none();
    is_initial || SHORTENED.contains(&last.to_lowercase().as_str())
}

fn sentence(text: &str, asks: bool) -> Option<OwnSentence> {
    if text.contains(CODE_SIGNS) {
        return None;
    }
    let words: Vec<OwnWord> = text.split_whitespace().filter_map(word).collect();
    (!words.is_empty()).then_some(OwnSentence { words, asks })
}

fn word(text: &str) -> Option<OwnWord> {
    let marks = |c: char| !c.is_alphanumeric() && !matches!(c, HOLE | '\'' | '+' | '#' | '%' | '@');
    let bare = text.trim_matches(marks);
    let pauses = text.trim_end_matches(['*', '_', ')']).ends_with(',');
    (!bare.is_empty()).then(|| OwnWord {
        text: bare.to_owned(),
        plain: bare.to_lowercase(),
        pauses,
    })
}
