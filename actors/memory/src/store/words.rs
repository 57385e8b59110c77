//! The words of a text as an index has them: small letters, English stems, no words that every text has; pairs of
//! characters where a script has no spaces between words.

use super::stem::stem;

/// Bytes of a word that count; what follows them is rarely a word.
const WORD_BYTES: usize = 64;

/// Words that say nothing of a text's subject, as they are after small letters and without apostrophes. In order.
const STOP: &[&str] = &[
    "a", "about", "after", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be",
    "been", "before", "being", "but", "by", "can", "could", "did", "do", "does", "doing", "done",
    "dont", "for", "from", "get", "got", "had", "has", "have", "having", "he", "her", "hers",
    "him", "his", "how", "i", "id", "if", "ill", "im", "in", "into", "is", "it", "its", "ive",
    "just", "me", "might", "more", "most", "my", "no", "not", "of", "on", "or", "our", "ours",
    "over", "s", "shall", "she", "should", "so", "some", "such", "t", "than", "that", "thats",
    "the", "their", "theirs", "them", "then", "there", "these", "they", "this", "those", "to",
    "too", "up", "us", "very", "was", "we", "were", "what", "when", "where", "which", "while",
    "who", "whom", "whose", "why", "will", "with", "would", "you", "your", "yours",
];

/// The words of `text`, in order and as often as they occur.
pub fn words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    each(text, &mut |word| found.push(word.to_owned()));
    found
}

/// The words of `text` as numbers, for an index. Two words have one number about once in 2^64.
pub(super) fn numbers(text: &str, into: &mut Vec<u64>) {
    each(text, &mut |word| into.push(number(word)));
}

/// The number of a word: FNV-1a, which stays the same in every build.
fn number(word: &str) -> u64 {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    word.bytes().fold(0xcbf2_9ce4_8422_2325, add)
}

fn each(text: &str, give: &mut dyn FnMut(&str)) {
    let (mut word, mut run) = (String::new(), Vec::new());
    for character in text.chars() {
        if is_unspaced(character) {
            end_word(&mut word, give);
            run.push(character);
            continue;
        }
        end_run(&mut run, give);
        if character.is_alphanumeric() || is_mark(character) {
            word.extend(character.to_lowercase());
        } else if !is_apostrophe(character) {
            end_word(&mut word, give);
        } else if !word.is_empty() {
            word.push('\'');
        }
    }
    end_run(&mut run, give);
    end_word(&mut word, give);
}

/// Gives a word that has ended, if it says something.
fn end_word(word: &mut String, give: &mut dyn FnMut(&str)) {
    if word.is_empty() {
        return;
    }
    // `Ada's` is found by `Ada`, `don't` by `dont`.
    let whole = word.trim_end_matches('\'');
    let whole = whole.strip_suffix("'s").unwrap_or(whole);
    let plain: String = whole.chars().filter(|character| *character != '\'').collect();
    word.clear();
    if STOP.binary_search(&plain.as_str()).is_err() && !plain.is_empty() {
        let end = plain.floor_char_boundary(WORD_BYTES);
        give(&stem(plain.get(..end).unwrap_or_default()));
    }
}

/// Gives the pairs of a run of characters that has ended; a single character is given alone.
fn end_run(run: &mut Vec<char>, give: &mut dyn FnMut(&str)) {
    if let [single] = run.as_slice() {
        give(single.encode_utf8(&mut [0; 4]));
    }
    for pair in run.windows(2) {
        give(&pair.iter().collect::<String>());
    }
    run.clear();
}

fn is_apostrophe(character: char) -> bool {
    matches!(character, '\'' | '\u{2019}' | '\u{02bc}')
}

/// Signs that belong to the letter before them, and that are not letters themselves.
fn is_mark(character: char) -> bool {
    matches!(
        character,
        '\u{0300}'..='\u{036f}'
            | '\u{064b}'..='\u{065f}'
            | '\u{093c}' | '\u{094d}' | '\u{09bc}' | '\u{09cd}' | '\u{0a3c}' | '\u{0a4d}' | '\u{0acd}'
            | '\u{0b4d}' | '\u{0bcd}' | '\u{0c4d}' | '\u{0ccd}' | '\u{0d4d}'
    )
}

/// Whether the script has no spaces between words, or none that divide them as English does: Thai, Lao, Burmese,
/// Khmer, Chinese, Japanese, Korean.
fn is_unspaced(character: char) -> bool {
    matches!(
        character,
        '\u{0e01}'..='\u{0e3a}' | '\u{0e40}'..='\u{0e4e}'
            | '\u{0e81}'..='\u{0ece}'
            | '\u{1000}'..='\u{1049}'
            | '\u{1780}'..='\u{17d3}'
            | '\u{3005}'..='\u{3007}' | '\u{3041}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}'
            | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
            | '\u{ac00}'..='\u{d7a3}'
            | '\u{f900}'..='\u{faff}'
            | '\u{20000}'..='\u{323af}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_stems_without_words_that_every_text_has() {
        assert_eq!(words("What are Ada's dogs called?"), ["ada", "dog", "call"]);
        assert_eq!(
            words("I don’t like E-mail_2 (at 10:30)!"),
            ["lik", "e", "mail", "2", "10", "30"]
        );
        assert_eq!(words("the of and"), Vec::<String>::new());
        assert_eq!(words("ÉTÉ Straße"), ["été", "straße"]);
        let long = words(&"é".repeat(100));
        assert_eq!(long, ["é".repeat(32)], "cut between characters");
    }

    #[test]
    fn scripts_without_spaces_become_pairs() {
        assert_eq!(words("我住在柏林"), ["我住", "住在", "在柏", "柏林"]);
        assert_eq!(words("in 柏林!"), ["柏林"]);
        assert_eq!(words("猫"), ["猫"]);
        assert_eq!(words("แมวดำ"), ["แม", "มว", "วด", "ดำ"]);
        assert_eq!(words("नमस्ते"), ["नमस्ते"], "signs stay with their letters");
    }

    #[test]
    fn the_words_that_are_left_out_are_in_order() {
        assert!(STOP.is_sorted(), "they are looked up by halves");
    }

    #[test]
    fn numbers_are_of_the_words() {
        let mut both = Vec::new();
        numbers("dogs", &mut both);
        numbers("dog cat", &mut both);
        assert_eq!(both[0], both[1]);
        assert_ne!(both[0], both[2]);
    }
}
