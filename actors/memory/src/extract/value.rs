//! What follows the beginning of a fact: how far it goes, and whether it is a value.

use super::{
    own_words::{HOLE, OwnWord},
    patterns::{DIETS, FactKind},
    word_lists::{ENDS, JOINS, NEGATIONS, NO_ENTRY, NO_NAME, NO_VALUE, PARTICLES, TRAILING},
};

/// The longest value, in characters.
const LONGEST_CHARS: usize = 120;
/// The longest entry of a list after a comma, in words.
const ENTRY_WORDS: usize = 3;
/// Articles, which say nothing of a value.
const ARTICLES: [&str; 12] =
    ["a", "an", "the", "der", "die", "das", "ein", "eine", "el", "la", "un", "une"];
/// Words that may be in the middle of a name of several words.
const LINKS: [&str; 5] = ["and", "et", "for", "und", "y"];

/// The words of these that are the value of a fact.
pub(super) fn value(words: &[OwnWord], kind: FactKind) -> Option<&[OwnWord]> {
    let value = words.get(..end(words, kind))?;
    let value = without_trailing(value);
    let bare = without_article(value, kind);
    let first = bare.first()?;
    let chars: usize = value.iter().map(|word| word.text.chars().count() + 1).sum();
    let is_spoiled =
        |word: &OwnWord| is_in(NEGATIONS, word) || word.text.contains(HOLE) || is_link_alone(word);
    let is_value = chars <= LONGEST_CHARS
        && value.len() <= most_words(kind)
        && !is_in(NO_VALUE, first)
        && !value.iter().any(is_spoiled);
    (is_value && fits(value, bare, kind)).then_some(value)
}

/// Whether a word begins with a capital letter.
pub(super) fn is_capital(word: &OwnWord) -> bool {
    word.text.chars().next().is_some_and(char::is_uppercase)
}

/// Whether a list has a word.
pub(super) fn is_in(list: &[&str], word: &OwnWord) -> bool {
    list.contains(&word.plain.as_str())
}

const fn most_words(kind: FactKind) -> usize {
    match kind {
        FactKind::Name | FactKind::ProperName => 4,
        FactKind::Phrase | FactKind::Noun => 7,
        FactKind::List => 14,
        FactKind::Diet => 2,
    }
}

fn fits(value: &[OwnWord], bare: &[OwnWord], kind: FactKind) -> bool {
    match kind {
        FactKind::Name => is_name(bare),
        FactKind::ProperName => bare.first().is_some_and(is_capital) && is_name(bare),
        FactKind::Noun => bare.len() < value.len(),
        FactKind::Diet => matches!(bare, [diet] if is_in(&DIETS, diet)),
        FactKind::Phrase | FactKind::List => true,
    }
}

/// How many words there are before the first that does not belong to the value.
fn end(words: &[OwnWord], kind: FactKind) -> usize {
    for (index, word) in words.iter().enumerate() {
        let rest = words.get(index + 1..).unwrap_or_default();
        let before = index.checked_sub(1).and_then(|before| words.get(before));
        if ends_before(before, word, rest, kind) {
            return index;
        }
        if word.pauses && (kind != FactKind::List || !is_entry(rest)) {
            return index + 1;
        }
    }
    words.len()
}

fn ends_before(before: Option<&OwnWord>, word: &OwnWord, rest: &[OwnWord], kind: FactKind) -> bool {
    if let [the, way, ..] = rest
        && [word, the, way].map(|word| word.plain.as_str()) == ["by", "the", "way"]
    {
        return true;
    }
    if !is_in(ENDS, word) && !is_in(&JOINS, word) {
        return false;
    }
    let Some(next) = rest.first() else { return true };
    match kind {
        FactKind::List => is_in(ENDS, word) || is_in(NO_ENTRY, next),
        FactKind::Phrase | FactKind::Noun => {
            let is_linked = is_in(&LINKS, word) && before.is_some_and(is_capital);
            !(is_linked && is_capital(next) && !is_in(NO_ENTRY, next))
        }
        FactKind::Name | FactKind::ProperName | FactKind::Diet => true,
    }
}

/// Whether what follows a comma goes on with a list.
fn is_entry(rest: &[OwnWord]) -> bool {
    let is_over = |word: &OwnWord| word.pauses || is_in(&JOINS, word);
    let length = rest.iter().position(is_over).unwrap_or(rest.len());
    let begins = rest.first().filter(|first| !is_in(NO_ENTRY, first) && !is_in(ENDS, first));
    // Also `eggs, and milk`.
    begins.is_some() && length <= ENTRY_WORDS
}

fn without_trailing(mut value: &[OwnWord]) -> &[OwnWord] {
    while let [rest @ .., last] = value
        && (is_in(TRAILING, last) || is_link_alone(last))
    {
        value = rest;
    }
    value
}

/// A sign without letters: a dash goes on with something else.
fn is_link_alone(word: &OwnWord) -> bool {
    !word.text.chars().any(char::is_alphanumeric)
}

fn without_article(value: &[OwnWord], kind: FactKind) -> &[OwnWord] {
    match value {
        [article, rest @ ..] if kind != FactKind::Name && is_in(&ARTICLES, article) => rest,
        _ => value,
    }
}

/// Whether these words are a name: all with capital letters, or one or two in a message without any.
fn is_name(words: &[OwnWord]) -> bool {
    let Some(first) = words.first() else { return false };
    let is_part = |c: char| c.is_alphabetic() || matches!(c, '\'' | '-' | '.' | '\u{b7}');
    let is_letters = |word: &OwnWord| word.text.chars().all(is_part);
    let is_usual = |word: &OwnWord| is_in(NO_NAME, word) || is_in(NO_VALUE, word);
    if is_in(NO_NAME, first) || !words.iter().all(is_letters) {
        return false;
    }
    if is_capital(first) {
        return words.iter().skip(1).all(|word| is_capital(word) || is_in(&PARTICLES, word));
    }
    words.len() <= 2 && !words.iter().any(|word| is_capital(word) || is_usual(word))
}
