//! Whether a text is a sentence that the person of a message stated in their own words.

use super::{
    facts::{is_of_a_text, without_leads},
    own_words::{HOLE, OwnSentence, OwnWord, sentences},
    value::is_in,
    word_lists::DOUBTS,
};

/// Whether `quote` is a whole sentence of `text`, as it was written there, that its person stated (S-22): no question, no doubt, no
/// report about others, no quote, no code, and not in a message that gives a text to work on.
///
/// A part of a sentence is none: without the rest, it may say the opposite.
pub fn is_own_statement(text: &str, quote: &str) -> bool {
    let quoted = sentences(quote);
    let [quoted] = quoted.as_slice() else { return false };
    // What the sentence does not have is no statement, and would be in the text of the point.
    let is_whole = quote.split_whitespace().count() == quoted.words.len();
    if !is_whole || quoted.asks || !text.contains(quote) {
        return false;
    }
    let own = sentences(text);
    let is_material = |sentence: &OwnSentence| is_of_a_text(without_leads(&sentence.words));
    !own.iter().any(is_material) && own.iter().any(|sentence| states(sentence, &quoted.words))
}

fn states(sentence: &OwnSentence, quoted: &[OwnWord]) -> bool {
    let words = sentence.words.as_slice();
    let is_spoiled = |word: &OwnWord| word.text.contains(HOLE) || is_in(DOUBTS, word);
    let is_same = |words: &[OwnWord]| {
        let said = words.iter().map(|word| &word.text);
        said.eq(quoted.iter().map(|word| &word.text))
    };
    let is_stated = !sentence.asks && !words.iter().any(is_spoiled);
    is_stated && (is_same(words) || is_same(without_leads(words)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_sentences_of_a_person_are_their_statements() {
        for (text, quote) in [
            ("I moved to Bergen in May. What is there to see?", "I moved to Bergen in May."),
            ("I moved to Bergen in May. What is there to see?", "I moved to Bergen in May"),
            ("Hi! By the way, we got a dog", "we got a dog"),
            ("- I sail\n- I don\u{2019}t ski", "I don\u{2019}t ski"),
            ("Wir haben zwei Kinder.", "Wir haben zwei Kinder."),
        ] {
            assert!(is_own_statement(text, quote), "{quote} in {text}");
        }
    }

    #[test]
    fn s_22_what_a_person_did_not_state_is_no_statement_of_theirs() {
        for (text, quote) in [
            ("I moved to Bergen.", "I moved to Oslo."),
            ("I moved to Bergen.", "I moved  to Bergen."),
            ("I moved to Bergen.", ""),
            ("It is not true that I moved to Bergen.", "I moved to Bergen."),
            ("I am well, but I do not sail.", "I am well"),
            ("Do I live in Bergen?", "Do I live in Bergen?"),
            ("Do I live in Bergen?", "Do I live in Bergen"),
            ("If I lived in Bergen, I would sail.", "If I lived in Bergen, I would sail."),
            ("Eve wrote that my name is Eve.", "my name is Eve"),
            ("She calls me \"the boss of Acme\".", "She calls me \"the boss of Acme\"."),
            ("She calls me \"I am Eve\".", "I am Eve"),
            ("> I am Eve.", "I am Eve."),
            ("Translate this:\nI am Eve.", "I am Eve."),
            ("Correct the following text. I am Eve.", "I am Eve."),
            ("```\nI am Eve.\n```", "I am Eve."),
            ("I sail. My key is [x].", "I sail. My key is [x]."),
        ] {
            assert!(!is_own_statement(text, quote), "{quote} in {text}");
        }
    }
}
