//! Reads a `tokenizer.json` of the kind that BERT and static models have, and says which tokens a text has.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use super::bert_text::BertText;

/// Tokens of a vocabulary.
pub(super) const TOKENS_MOST: usize = 1 << 20;
/// Characters of a word that a vocabulary may ask for. Longer words have no tokens.
const WORD_CHARS: usize = 256;

/// A vocabulary of pieces of words: the longest piece that a word begins with is a token, and so on with its rest.
pub(super) struct WordPieces {
    text: BertText,
    vocabulary: HashMap<String, usize>,
    /// The token of words that have no pieces.
    unknown: Option<usize>,
    /// What pieces begin with that do not begin a word.
    prefix: String,
    /// Characters of a word at most.
    most_chars: usize,
}

/// The parts of the file that decide. What else it has adds tokens around a text, shortens it, or is for decoding.
#[derive(Deserialize)]
struct TokenizerFile {
    normalizer: Option<Value>,
    pre_tokenizer: Option<Value>,
    model: Option<Value>,
}

#[derive(Deserialize)]
struct PieceModel {
    vocab: HashMap<String, usize>,
    #[serde(default = "unknown_token")]
    unk_token: String,
    #[serde(default = "further_prefix")]
    continuing_subword_prefix: String,
    #[serde(default = "word_chars")]
    max_input_chars_per_word: usize,
}

fn unknown_token() -> String {
    "[UNK]".to_owned()
}

fn further_prefix() -> String {
    "##".to_owned()
}

fn word_chars() -> usize {
    100
}

// === impl WordPieces ===

impl WordPieces {
    /// Reads the file; says what is wrong with it.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let file: TokenizerFile = serde_json::from_slice(bytes)
            .map_err(|failure| format!("it is no `tokenizer.json`: {failure}"))?;
        let normalizer = of_kind(file.normalizer, "normalizer", "BertNormalizer")?;
        of_kind(file.pre_tokenizer, "pre_tokenizer", "BertPreTokenizer")?;
        let model = of_kind(file.model, "model", "WordPiece")?;
        let text: BertText = serde_json::from_value(normalizer)
            .map_err(|failure| format!("its `normalizer` cannot be read: {failure}"))?;
        let model: PieceModel = serde_json::from_value(model)
            .map_err(|failure| format!("its `model` cannot be read: {failure}"))?;
        let PieceModel { vocab, unk_token, continuing_subword_prefix, max_input_chars_per_word } =
            model;
        if vocab.is_empty() || vocab.len() > TOKENS_MOST {
            return Err(format!("it has {} tokens; 1 to {TOKENS_MOST} can be used", vocab.len()));
        }
        if !(1..=WORD_CHARS).contains(&max_input_chars_per_word) {
            return Err(format!(
                "its words have up to {max_input_chars_per_word} characters; 1 to {WORD_CHARS} can be used"
            ));
        }
        Ok(Self {
            text,
            unknown: vocab.get(&unk_token).copied(),
            vocabulary: vocab,
            prefix: continuing_subword_prefix,
            most_chars: max_input_chars_per_word,
        })
    }

    /// How many tokens it knows.
    pub(super) fn count(&self) -> usize {
        self.vocabulary.len()
    }

    /// The largest number of a token.
    pub(super) fn largest(&self) -> usize {
        self.vocabulary.values().copied().max().unwrap_or_default()
    }

    /// The tokens of a text, in order. A word without pieces has none: model2vec leaves the token for unknown words out,
    /// too. What looks like a special token in a text is a text.
    pub(super) fn tokens(&self, text: &str) -> Vec<usize> {
        let mut tokens = Vec::new();
        for word in self.text.words(text) {
            self.push_pieces(&word, &mut tokens);
        }
        tokens.retain(|token| Some(*token) != self.unknown);
        tokens
    }

    /// The first tokens of a text, at most so many, as models read them that know of unknown words: each has its token.
    #[cfg(feature = "embed-local")]
    pub(super) fn first_tokens(&self, text: &str, most: usize) -> Vec<usize> {
        let mut tokens = Vec::new();
        for word in self.text.words(text) {
            if tokens.len() >= most {
                break;
            }
            let before = tokens.len();
            self.push_pieces(&word, &mut tokens);
            if tokens.len() == before {
                tokens.extend(self.unknown);
            }
        }
        tokens.truncate(most);
        tokens
    }

    /// The number of a token, such as `[CLS]`.
    #[cfg(feature = "embed-local")]
    pub(super) fn token(&self, name: &str) -> Option<usize> {
        self.vocabulary.get(name).copied()
    }

    fn push_pieces(&self, word: &str, tokens: &mut Vec<usize>) {
        if word.chars().count() > self.most_chars {
            return;
        }
        let (before, mut rest, mut prefix) = (tokens.len(), word, "");
        while !rest.is_empty() {
            let Some((token, length)) = self.longest(prefix, rest) else {
                tokens.truncate(before);
                return;
            };
            tokens.push(token);
            rest = rest.get(length..).unwrap_or_default();
            prefix = &self.prefix;
        }
    }

    /// The longest piece that `rest` begins with, and how many bytes of it that is.
    fn longest(&self, prefix: &str, rest: &str) -> Option<(usize, usize)> {
        let mut piece = format!("{prefix}{rest}");
        while piece.len() > prefix.len() {
            if let Some(token) = self.vocabulary.get(&piece) {
                return Some((*token, piece.len() - prefix.len()));
            }
            piece.pop();
        }
        None
    }
}

/// A part of the file, if it is of the one kind that can be used.
fn of_kind(part: Option<Value>, name: &str, kind: &str) -> Result<Value, String> {
    let part = part.unwrap_or_default();
    let found = part.get("type").and_then(Value::as_str);
    if found == Some(kind) {
        return Ok(part);
    }
    let found = match found {
        // It is shown, and may be anything.
        Some(found) => format!("`{}`", found.chars().take(40).collect::<String>().escape_debug()),
        None => "none".to_owned(),
    };
    Err(format!(
        "its `{name}` is {found}, and only `{kind}` can be used; choose a model with a tokenizer of BERT"
    ))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// A file with these tokens, numbered in their order.
    pub(in crate::embed) fn tokenizer(tokens: &[&str]) -> Value {
        let vocab: HashMap<&str, usize> =
            tokens.iter().enumerate().map(|(number, token)| (*token, number)).collect();
        json!({
            "version": "1.0",
            "truncation": null,
            "added_tokens": [{ "id": 0, "content": "[UNK]", "special": true }],
            "normalizer": { "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                            "strip_accents": null, "lowercase": true },
            "pre_tokenizer": { "type": "BertPreTokenizer" },
            "post_processor": null,
            "model": { "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                       "max_input_chars_per_word": 100, "vocab": vocab },
        })
    }

    fn read(file: &Value) -> Result<WordPieces, String> {
        WordPieces::read(file.to_string().as_bytes())
    }

    #[test]
    fn words_are_cut_into_the_longest_pieces() {
        let tokens = ["[UNK]", "un", "##aff", "##able", "unaffected", "##a", ",", "a", "##ffable"];
        let pieces = read(&tokenizer(&tokens)).unwrap();
        let long = ["a".repeat(100), "a".repeat(101)];
        for (text, expected) in [
            ("unaffable", vec![1, 2, 3]),
            ("Unaffected, unaffable", vec![4, 6, 1, 2, 3]),
            // The longest piece first, although the rest has none then.
            ("unaffablex", vec![]),
            ("a x a", vec![7, 7]),
            ("[UNK] a", vec![7]),
            ("aa", vec![7, 5]),
            (long[0].as_str(), [vec![7], vec![5; 99]].concat()),
            (long[1].as_str(), vec![]),
            ("", vec![]),
        ] {
            assert_eq!(pieces.tokens(text), expected, "{text}");
        }
        assert_eq!((pieces.count(), pieces.largest()), (9, 8));
    }

    #[test]
    fn other_tokenizers_are_refused_by_their_name() {
        let with = |part: &str, value: Value| {
            let mut file = tokenizer(&["[UNK]", "a"]);
            file[part] = value;
            read(&file).err().unwrap()
        };
        for (part, value, says) in [
            ("model", json!({ "type": "Unigram", "vocab": [] }), "`model` is `Unigram`"),
            ("model", json!({ "type": "BPE" }), "`model` is `BPE`"),
            ("model", Value::Null, "`model` is none"),
            ("normalizer", json!({ "type": "Sequence" }), "`normalizer` is `Sequence`"),
            ("pre_tokenizer", json!({ "type": "Metaspace" }), "is `Metaspace`"),
            ("model", json!({ "type": "WordPiece" }), "missing field `vocab`"),
            ("model", json!({ "type": "WordPiece", "vocab": {} }), "0 tokens"),
            ("model", json!({ "type": "WordPiece", "vocab": { "a": -1 } }), "cannot be read"),
            (
                "model",
                json!({ "type": "WordPiece", "vocab": { "a": 0 }, "max_input_chars_per_word": 999 }),
                "999 characters",
            ),
        ] {
            let why = with(part, value);
            assert!(why.contains(says), "{why}");
        }
        for bytes in [&b""[..], b"[]", b"{", b"\xff\xfe", b"version https://git-lfs"] {
            let why = WordPieces::read(bytes).err().unwrap();
            assert!(why.starts_with("it is no `tokenizer.json`"), "{why}");
        }
    }

    proptest! {
        #[test]
        fn any_file_is_read_or_refused(
            cut in 0_usize..900, place in 0_usize..900, byte in any::<u8>(), text in ".{0,60}",
        ) {
            let mut bytes = tokenizer(&["[UNK]", "a", "##b", "é"]).to_string().into_bytes();
            if let Some(changed) = bytes.get_mut(place) {
                *changed = byte;
            }
            bytes.truncate(bytes.len().saturating_sub(cut / 300));
            if let Ok(pieces) = WordPieces::read(&bytes) {
                let largest = pieces.largest();
                prop_assert!(pieces.tokens(&text).iter().all(|token| *token <= largest));
            }
        }

        #[test]
        fn the_pieces_of_a_word_are_the_word(word in "[ab]{1,12}") {
            let tokens = ["[UNK]", "a", "b", "ab", "##a", "##b", "##ba"];
            let pieces = read(&tokenizer(&tokens)).unwrap();
            let found: Vec<&str> =
                pieces.tokens(&word).iter().map(|token| tokens[*token].trim_start_matches('#')).collect();
            prop_assert_eq!(found.concat(), word);
        }
    }
}
