//! What models reply that look for facts, and what is to be recorded of that: it is known here beforehand.

use clawnode_proto::{Attempt, CallId, llm::StopReason, memory::MemoryTrust};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::plan;
use crate::recall::told::{FACT, LESSON};

/// Ratings that a model may write. Two of them are of no use, one has no lesson, and the others have.
pub(super) const RATINGS: u32 = 8;
/// Characters of a fact that is too long.
const LONG: usize = 400;
/// Facts that a model may find in one turn.
const FACTS_MOST: usize = 5;

/// A text that a memory is to have, and whose it is.
pub(super) type LearnedText = (String, MemoryTrust);

/// What a model says in a call that no person sees.
#[derive(Debug)]
pub(crate) struct SilentReply {
    pub(crate) text: String,
    pub(crate) stop: StopReason,
    /// What is to be recorded of it; nothing if it is of no use.
    pub(super) expected: Option<Vec<LearnedText>>,
}

/// A fact as the model writes it, and what is to be recorded of it.
struct RepliedFact {
    written: Value,
    expected: Option<LearnedText>,
}

// === impl SilentReply ===

impl SilentReply {
    /// Of a model that rates a turn. `is_cut` is whether it has not written all of it, `kind` what it writes.
    pub(crate) fn rating(call: CallId, attempt: Attempt, kind: u32, is_cut: bool) -> Self {
        let lesson = |part: u32| format!("{LESSON}{part} of {call}.{attempt}");
        let rated = |rating: u32, lessons: &[String]| {
            let expected = lessons.iter().map(|text| (text.clone(), MemoryTrust::Agent)).collect();
            (json!({ "rating": rating, "lessons": lessons }).to_string(), Some(expected))
        };
        let (text, expected) = match kind {
            0 => ("It went well.".to_owned(), None),
            1 => (rated(9, &[]).0, None),
            2 => rated(1, &[]),
            3 => rated(5, &[lesson(0)]),
            _ => rated(3, &[lesson(0), lesson(1)]),
        };
        Self::ending(text, expected, is_cut)
    }

    /// Of a model that was shown this and looks for facts. It follows from the attempt alone.
    pub(super) fn facts(call: CallId, attempt: Attempt, shown: &str) -> Self {
        let low = u64::try_from(call.as_u128() & u128::from(u64::MAX)).unwrap_or_default();
        let mut rng = ChaCha8Rng::seed_from_u64(low ^ u64::from(attempt.0).rotate_left(40));
        let own = |number: usize| format!("{FACT}{number} of {call}.{attempt}");
        let all = written(shown, own);
        let whole = reply(&all);
        let (text, expected) = match rng.random_range(0..16) {
            0 => (String::new(), None),
            1 => ("There is nothing to note.".to_owned(), None),
            2 => (r#"{"facts":[{"quote":"We keep it.","fact":"x"}]}"#.to_owned(), None),
            3 => (whole.0.replace(r#""semantic""#, r#""procedural""#), None),
            4 => reply(&[]),
            5 => reply(
                &(0..FACTS_MOST + 2).map(|number| said_by_model(own(number))).collect::<Vec<_>>(),
            ),
            6 => {
                let half = whole.0.len() / 2;
                (whole.0.chars().take(half).collect(), None)
            }
            _ => whole,
        };
        Self::ending(text, expected, rng.random_bool(0.1))
    }

    fn ending(text: String, expected: Option<Vec<LearnedText>>, is_cut: bool) -> Self {
        let stop = if is_cut { StopReason::MaxTokens } else { StopReason::EndTurn };
        Self { text, stop, expected: expected.filter(|_| !is_cut) }
    }
}

/// The text of these facts, and what is to be recorded of them.
fn reply(facts: &[RepliedFact]) -> (String, Option<Vec<LearnedText>>) {
    let written: Vec<&Value> = facts.iter().map(|fact| &fact.written).collect();
    let expected = facts.iter().filter_map(|fact| fact.expected.clone()).take(FACTS_MOST);
    (json!({ "facts": written }).to_string(), Some(expected.collect()))
}

fn fact(quote: &str, fact: &str, predicate: &str, object: &str) -> Value {
    let layer = "semantic";
    json!({ "quote": quote, "fact": fact, "layer": layer, "predicate": predicate, "object": object })
}

/// A fact without a quote.
fn said_by_model(own: String) -> RepliedFact {
    RepliedFact { written: fact("", &own, "", ""), expected: Some((own, MemoryTrust::Agent)) }
}

/// Facts of all kinds, for what a person said.
fn written(shown: &str, own: impl Fn(usize) -> String) -> Vec<RepliedFact> {
    let mut facts = Vec::new();
    let mut adds = |quote: &str, text: &str, object: &str, expected: Option<LearnedText>| {
        facts.push(RepliedFact { written: fact(quote, text, "keeps", object), expected });
    };
    let by_model = |text: &str| Some((text.to_owned(), MemoryTrust::Agent));
    if let Some(thing) = between(shown, "We keep ", " at home.") {
        let quote = plan::stated(thing);
        adds(&quote, &own(0), thing, Some((quote.clone(), MemoryTrust::Person)));
        // The value is not the person's.
        adds(&quote, &own(1), "bees", by_model(&own(1)));
        // Not the whole sentence.
        adds(quote.trim_start_matches("We "), &own(2), "", by_model(&own(2)));
    }
    if let Some(thing) = between(shown, "Do we keep ", " at home?") {
        adds(&plan::asked(thing), &own(3), thing, by_model(&own(3)));
    }
    adds("We keep nothing at home.", &own(4), "nothing", by_model(&own(4)));
    // A pattern has found this one.
    let known = between(shown, "Hello. ", " What does ").filter(|said| said.contains("Qz"));
    if let Some(said) = known {
        adds(said, &own(5), "", None);
    }
    adds("", "Their password is hunter2.", "", None);
    adds("", &format!("{} {}", own(6), "x".repeat(LONG)), "", None);
    facts
}

/// What is between these texts, where the second one follows the first.
fn between<'a>(shown: &'a str, before: &str, after: &str) -> Option<&'a str> {
    shown.split(before).skip(1).find_map(|rest| rest.split_once(after)).map(|(inside, _)| inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_quotes_what_was_said() {
        let shown = r#"{"by":"person","text":"\#1 \nHello. My dog is called Qzabc. What does x say?\nWe keep K0n1 at home. Do we keep K0m1 at home?"}"#;
        let all = written(shown, |number| format!("f{number}"));
        let expected: Vec<LearnedText> =
            all.iter().filter_map(|fact| fact.expected.clone()).collect();
        let model = |number: u32| (format!("f{number}"), MemoryTrust::Agent);
        let stated = ("We keep K0n1 at home.".to_owned(), MemoryTrust::Person);
        assert_eq!(expected, [stated, model(1), model(2), model(3), model(4)]);
        let quotes: Vec<&str> =
            all.iter().filter_map(|fact| fact.written["quote"].as_str()).collect();
        assert!(quotes.contains(&"My dog is called Qzabc."), "{quotes:?}");
        assert!(quotes.contains(&"Do we keep K0m1 at home?"), "{quotes:?}");
    }
}
