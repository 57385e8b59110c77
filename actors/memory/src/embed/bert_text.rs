//! Texts as the tokenizers of BERT prepare them: what `BertNormalizer` and `BertPreTokenizer` of a `tokenizer.json` do.

use icu_normalizer::DecomposingNormalizerBorrowed;
use icu_properties::{CodePointMapData, props::GeneralCategory};
use serde::Deserialize;

/// The settings of `BertNormalizer`.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct BertText {
    #[serde(default = "is_set")]
    clean_text: bool,
    #[serde(default = "is_set")]
    handle_chinese_chars: bool,
    /// Absent: as `lowercase`.
    #[serde(default)]
    strip_accents: Option<bool>,
    #[serde(default = "is_set")]
    lowercase: bool,
}

fn is_set() -> bool {
    true
}

// === impl BertText ===

impl BertText {
    /// The words of a text. Each punctuation mark, and with `handle_chinese_chars` each Chinese character, is a word.
    pub(super) fn words(self, text: &str) -> Vec<String> {
        let mut plain = String::with_capacity(text.len());
        for letter in text.chars() {
            self.push(letter, &mut plain);
        }
        if self.strip_accents.unwrap_or(self.lowercase) {
            plain = without_accents(&plain);
        }
        if self.lowercase {
            plain = plain.chars().flat_map(char::to_lowercase).collect();
        }
        split(&plain)
    }

    fn push(self, letter: char, plain: &mut String) {
        if self.clean_text && is_left_out(letter) {
            return;
        }
        if self.clean_text && letter.is_whitespace() {
            plain.push(' ');
        } else if self.handle_chinese_chars && is_chinese(letter) {
            plain.extend([' ', letter, ' ']);
        } else {
            plain.push(letter);
        }
    }
}

fn without_accents(text: &str) -> String {
    let decomposed = DecomposingNormalizerBorrowed::new_nfd().normalize(text);
    let is_letter = |letter: &char| category(*letter) != GeneralCategory::NonspacingMark;
    decomposed.chars().filter(is_letter).collect()
}

fn split(plain: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    for letter in plain.chars() {
        let is_mark = is_punctuation(letter);
        if is_mark || letter.is_whitespace() {
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            if is_mark {
                words.push(letter.to_string());
            }
        } else {
            word.push(letter);
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

fn category(letter: char) -> GeneralCategory {
    CodePointMapData::<GeneralCategory>::new().get(letter)
}

fn is_left_out(letter: char) -> bool {
    if matches!(letter, '\t' | '\n' | '\r') {
        return false;
    }
    let is_control = matches!(
        category(letter),
        GeneralCategory::Control | GeneralCategory::Format | GeneralCategory::PrivateUse
    );
    is_control || letter == char::REPLACEMENT_CHARACTER
}

fn is_punctuation(letter: char) -> bool {
    // Also what Unicode calls symbols, such as `$` and `^`.
    if letter.is_ascii() {
        return letter.is_ascii_punctuation();
    }
    matches!(
        category(letter),
        GeneralCategory::ConnectorPunctuation
            | GeneralCategory::DashPunctuation
            | GeneralCategory::OpenPunctuation
            | GeneralCategory::ClosePunctuation
            | GeneralCategory::InitialPunctuation
            | GeneralCategory::FinalPunctuation
            | GeneralCategory::OtherPunctuation
    )
}

/// The blocks of Chinese characters. Japanese kana and Korean letters are not among them.
fn is_chinese(letter: char) -> bool {
    matches!(
        letter,
        '\u{4e00}'..='\u{9fff}'
            | '\u{3400}'..='\u{4dbf}'
            | '\u{20000}'..='\u{2a6df}'
            | '\u{2a700}'..='\u{2b73f}'
            | '\u{2b740}'..='\u{2b81f}'
            | '\u{2b820}'..='\u{2ceaf}'
            | '\u{f900}'..='\u{faff}'
            | '\u{2f800}'..='\u{2fa1f}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(settings: &str, text: &str) -> Vec<String> {
        serde_json::from_str::<BertText>(settings).unwrap().words(text)
    }

    #[test]
    fn texts_are_split_as_bert_does() {
        for (text, expected) in [
            ("Héllo, WORLD!", vec!["hello", ",", "world", "!"]),
            ("it's $5^2", vec!["it", "'", "s", "$", "5", "^", "2"]),
            ("a\tb\u{a0}c\r\nd", vec!["a", "b", "c", "d"]),
            ("soft\u{ad}hyphen \u{0}nul\u{fffd}", vec!["softhyphen", "nul"]),
            ("我在Berlin", vec!["我", "在", "berlin"]),
            ("«Ça va» – où?", vec!["«", "ca", "va", "»", "–", "ou", "?"]),
            ("e\u{301}te\u{301}", vec!["ete"]),
            ("İstanbul", vec!["istanbul"]),
            (" \n ", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(words("{}", text), expected, "{text:?}");
        }
    }

    #[test]
    fn settings_change_what_is_left_of_a_text() {
        let cased = r#"{ "lowercase": false }"#;
        assert_eq!(words(cased, "Été"), ["Été"], "accents go with the case");
        let bare = r#"{ "lowercase": false, "strip_accents": true }"#;
        assert_eq!(words(bare, "Été"), ["Ete"]);
        let accents = r#"{ "strip_accents": false, "handle_chinese_chars": false }"#;
        assert_eq!(words(accents, "Été 我在"), ["été", "我在"]);
        let raw = r#"{ "clean_text": false }"#;
        assert_eq!(words(raw, "a\u{ad}b"), ["a\u{ad}b"]);
    }
}
