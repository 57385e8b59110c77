//! Facts in the sentences of a message.

use clawnode_proto::{
    limits::LEARNED_POINTS,
    memory::{MemoryLayer, MemoryTrust},
    memory_point::PointContent,
};

use super::{
    own_words::{OwnSentence, OwnWord, sentences},
    patterns::{
        ATTRIBUTES, FactKind, FactPattern, IMPORTANCE_ALLERGY, IMPORTANCE_FACT, LIKED, PATTERNS,
        RELATIONS, SEVERAL, SUBJECT,
    },
    standing_instructions::{sentence, standing},
    value::{is_in, value},
    word_lists::{BEGINS_AGAIN, DOUBTS, GIVES_WORK, GREETINGS, JOINS, LEADS, MATERIAL},
};

/// How certain it is that a person meant it so, in percent.
const CONFIDENCE: u8 = 90;
/// Words before a fact that are skipped one after the other, `also, by the way, ...`, and those of a greeting.
const LEADS_MOST: usize = 4;
/// Words between `my` and `is`.
const ATTRIBUTE_WORDS: usize = 4;

/// What `my X is` says of a person.
struct Attribute {
    predicate: Option<String>,
    kind: FactKind,
    layer: MemoryLayer,
}

/// What a person says of themselves in a message, and what is to be done from now on: at most [`LEARNED_POINTS`] points.
pub fn facts(text: &str) -> Vec<PointContent> {
    let mut found = Vec::new();
    for OwnSentence { words, asks } in sentences(text) {
        let words = without_leads(&words);
        let said = if asks { Vec::new() } else { said(words) };
        if said.is_empty() && is_of_a_text(words) {
            return Vec::new();
        }
        found.extend(said);
    }
    found.retain(|content| content.check().is_ok());
    found.truncate(LEARNED_POINTS);
    found
}

/// Whether the message is about a text, a play or a case that is supposed.
pub(super) fn is_of_a_text(words: &[OwnWord]) -> bool {
    let begins = |phrase: &&str| after(words, phrase).is_some();
    GIVES_WORK.iter().any(begins) || words.iter().any(|word| is_in(MATERIAL, word))
}

/// What one sentence says.
fn said(words: &[OwnWord]) -> Vec<PointContent> {
    if let Some(instruction) = standing(words) {
        return vec![instruction];
    }
    if words.iter().any(|word| is_in(DOUBTS, word)) {
        return Vec::new();
    }
    let (mut found, mut rest) = (Vec::new(), words);
    // What follows something else may be said of someone else.
    while let (clause, after) = clause(rest)
        && let Some(fact) = fact(clause)
    {
        found.push(fact);
        rest = after;
    }
    found
}

/// The words up to the beginning of another fact, and those from there on.
fn clause(words: &[OwnWord]) -> (&[OwnWord], &[OwnWord]) {
    for (index, word) in words.iter().enumerate().skip(1) {
        let Some((before, rest)) = words.split_at_checked(index) else { break };
        if !is_in(&BEGINS_AGAIN, word) {
            continue;
        }
        match before {
            [.., last] if last.pauses => return (before, rest),
            [clause @ .., join] if is_in(&JOINS, join) => return (clause, rest),
            _ => {}
        }
    }
    (words, &[])
}

fn fact(clause: &[OwnWord]) -> Option<PointContent> {
    PATTERNS.iter().find_map(|pattern| fact_of(clause, pattern)).or_else(|| attribute(clause))
}

fn fact_of(clause: &[OwnWord], pattern: &FactPattern) -> Option<PointContent> {
    let rest = after(clause, pattern.begins)?;
    let object = value(rest, pattern.kind)?;
    let is_home = pattern.predicate == Some("lives in");
    // `in a house`: that is no place.
    if is_home && object.first().is_some_and(|first| is_in(&["a", "an", "my", "our"], first)) {
        return None;
    }
    let content = content(clause, rest, object, pattern.predicate, MemoryLayer::Semantic);
    let is_allergy = pattern.begins.contains("aller") || pattern.begins.contains("al\u{e9}rgi");
    let importance = if is_allergy { IMPORTANCE_ALLERGY } else { IMPORTANCE_FACT };
    Some(PointContent { importance, ..content })
}

/// `my X is Y`, for some X.
fn attribute(clause: &[OwnWord]) -> Option<PointContent> {
    let [my, rest @ ..] = clause else { return None };
    let is_verb = |word: &OwnWord| matches!(word.plain.as_str(), "is" | "are");
    let at = rest.iter().take(ATTRIBUTE_WORDS + 1).position(is_verb)?;
    let (about, rest) = rest.split_at_checked(at)?;
    if my.plain != "my" || about.iter().any(|word| word.pauses) {
        return None;
    }
    let Attribute { predicate, kind, layer } = named(about)?;
    let rest = rest.get(1..)?;
    let is_called = |first: &OwnWord| {
        let is_when = predicate.as_deref() == Some("birthday") && is_in(&["on", "in"], first);
        is_when || layer == MemoryLayer::Social && is_in(&["called", "named"], first)
    };
    let rest = match rest {
        [first, rest @ ..] if is_called(first) => rest,
        _ => rest,
    };
    let object = value(rest, kind)?;
    let content = content(clause, rest, object, predicate.as_deref(), layer);
    let is_fit = has_form(predicate.as_deref(), content.object.as_deref().unwrap_or_default());
    is_fit.then_some(content)
}

/// What these words between `my` and `is` are about.
fn named(about: &[OwnWord]) -> Option<Attribute> {
    let words: Vec<&str> = about.iter().map(|word| word.plain.as_str()).collect();
    let whole = words.join(" ");
    let (semantic, social) = (MemoryLayer::Semantic, MemoryLayer::Social);
    if let Some((_, known)) = ATTRIBUTES.iter().find(|(name, _)| *name == whole) {
        let kind = match *known {
            "job" => FactKind::Noun,
            "employer" | "city" | "country" | "hometown" | "nationality" | "native language" => {
                FactKind::ProperName
            }
            name if name.ends_with("name") => FactKind::Name,
            _ => FactKind::Phrase,
        };
        return Some(Attribute { predicate: Some((*known).to_owned()), kind, layer: semantic });
    }
    if let [liked, what @ ..] = words.as_slice()
        && LIKED.contains(liked)
        && !what.is_empty()
    {
        let liked = if *liked == "favourite" { "favorite" } else { liked };
        let predicate = Some(format!("{liked} {}", what.join(" ")));
        return Some(Attribute { predicate, kind: FactKind::Phrase, layer: semantic });
    }
    let whom = whole.strip_suffix("'s name").unwrap_or(&whole);
    let kind = FactKind::ProperName;
    if let Some((_, known)) = RELATIONS.iter().find(|(name, _)| *name == whom) {
        return Some(Attribute { predicate: Some((*known).to_owned()), kind, layer: social });
    }
    SEVERAL.contains(&whom).then_some(Attribute { predicate: None, kind, layer: social })
}

/// Whether a value has the form that its predicate asks for.
fn has_form(predicate: Option<&str>, object: &str) -> bool {
    match predicate {
        Some("email") => object.contains('@'),
        Some("pronouns") => object.contains('/'),
        Some("birthday" | "height" | "phone number" | "shoe size") => {
            object.chars().any(|c| c.is_ascii_digit())
        }
        _ => true,
    }
}

/// The point of a clause. `rest`: its words from the object on.
fn content(
    clause: &[OwnWord],
    rest: &[OwnWord],
    object: &[OwnWord],
    predicate: Option<&str>,
    layer: MemoryLayer,
) -> PointContent {
    let words = clause.len().saturating_sub(rest.len()).saturating_add(object.len());
    let object: Vec<String> = object
        .iter()
        .enumerate()
        .map(|(index, word)| {
            let goes_on = word.pauses && index + 1 < object.len();
            format!("{}{}", word.text, if goes_on { "," } else { "" })
        })
        .collect();
    PointContent {
        layer,
        text: sentence(clause.get(..words).unwrap_or(clause)),
        subject: Some(SUBJECT.to_owned()),
        predicate: predicate.map(str::to_owned),
        object: Some(object.join(" ")),
        confidence: CONFIDENCE,
        importance: IMPORTANCE_FACT,
        trust: MemoryTrust::Person,
    }
}

/// The words after those of a phrase, if they begin with it and there are more.
fn after<'a>(words: &'a [OwnWord], phrase: &str) -> Option<&'a [OwnWord]> {
    let mut rest = words;
    for wanted in phrase.split(' ') {
        let (first, more) = rest.split_first()?;
        if first.plain != wanted {
            return None;
        }
        rest = more;
    }
    (!rest.is_empty()).then_some(rest)
}

/// The words without a greeting, and without what only leads to what is said.
pub(super) fn without_leads(words: &[OwnWord]) -> &[OwnWord] {
    let mut words = without_greeting(words);
    for _ in 0..LEADS_MOST {
        let rest = LEADS.iter().filter_map(|lead| after(words, lead)).min_by_key(|rest| rest.len());
        let Some(rest) = rest else { break };
        words = rest;
    }
    words
}

fn without_greeting(words: &[OwnWord]) -> &[OwnWord] {
    let Some((first, rest)) = words.split_first() else { return words };
    if !is_in(&GREETINGS, first) {
        return words;
    }
    let comma = words.iter().take(LEADS_MOST).position(|word| word.pauses);
    let whom = comma.and_then(|at| words.get(at + 1..)).unwrap_or(rest);
    match whom {
        [first, rest @ ..] if is_in(&["there", "again", "everyone"], first) => rest,
        _ => whom,
    }
}
