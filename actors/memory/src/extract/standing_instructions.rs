//! Instructions that hold from now on: what `proto::memory::is_standing` shows in every turn.

use clawnode_proto::{
    memory::{MemoryLayer, MemoryTrust, is_standing},
    memory_point::PointContent,
};

use super::{
    own_words::{HOLE, OwnWord},
    patterns::IMPORTANCE_FACT,
};

/// The longest instruction, in characters. Ten of them have room in a turn.
const LONGEST_CHARS: usize = 300;
/// How certain it is that a person meant it so, in percent.
const CONFIDENCE: u8 = 80;
/// What may come between the beginning and what is to be done.
const BETWEEN: [&str; 9] =
    ["please", "always", "never", "you", "should", "must", "will", "only", "do"];
/// What a person tells an agent to do, or not to do. Without such a word, "never mind" would hold for ever.
const ACTIONS: &[&str] = &[
    "abbreviate",
    "add",
    "address",
    "answer",
    "apologize",
    "ask",
    "assume",
    "avoid",
    "be",
    "begin",
    "book",
    "bring",
    "call",
    "change",
    "check",
    "cite",
    "commit",
    "confirm",
    "contact",
    "convert",
    "create",
    "delete",
    "describe",
    "don't",
    "email",
    "end",
    "explain",
    "finish",
    "follow",
    "forget",
    "format",
    "forward",
    "give",
    "greet",
    "ignore",
    "include",
    "invite",
    "keep",
    "leave",
    "let",
    "limit",
    "list",
    "mail",
    "make",
    "mention",
    "merge",
    "not",
    "offer",
    "order",
    "pay",
    "prefer",
    "print",
    "provide",
    "push",
    "put",
    "read",
    "recommend",
    "refer",
    "remind",
    "remove",
    "repeat",
    "reply",
    "respond",
    "return",
    "run",
    "say",
    "schedule",
    "send",
    "share",
    "show",
    "sign",
    "skip",
    "sort",
    "speak",
    "spell",
    "start",
    "stick",
    "stop",
    "suggest",
    "summarise",
    "summarize",
    "take",
    "talk",
    "tell",
    "test",
    "translate",
    "treat",
    "trust",
    "try",
    "turn",
    "use",
    "wait",
    "warn",
    "wrap",
    "write",
];
/// What may begin a condition of an instruction: "from now on, when I ask, ...".
const CONDITIONS: [&str; 4] = ["if", "when", "whenever", "unless"];

/// The instruction that a sentence is.
pub(super) fn standing(words: &[OwnWord]) -> Option<PointContent> {
    let rest = match words {
        [first, rest @ ..] if matches!(first.plain.as_str(), "always" | "never") => rest,
        [first, second, third, rest @ ..]
            if [first, second, third].map(|word| word.plain.as_str()) == ["from", "now", "on"] =>
        {
            rest
        }
        _ => return None,
    };
    let is_for_later = |word: &OwnWord| CONDITIONS.contains(&word.plain.as_str());
    let mut asked = rest.iter().skip_while(|word| BETWEEN.contains(&word.plain.as_str()));
    let action = asked.next()?;
    let is_action = ACTIONS.contains(&action.plain.as_str());
    // `always be`, `never say`: what?
    let is_whole = asked.next().is_some();
    if !(is_action && is_whole || is_for_later(action) && rest.len() > 4) {
        return None;
    }
    let text = sentence(words);
    let is_short = text.chars().count() <= LONGEST_CHARS;
    let (layer, trust) = (MemoryLayer::Procedural, MemoryTrust::Person);
    (is_short && !text.contains(HOLE) && is_standing(layer, trust, &text)).then_some(PointContent {
        layer,
        text,
        subject: None,
        predicate: None,
        object: None,
        confidence: CONFIDENCE,
        importance: IMPORTANCE_FACT,
        trust,
    })
}

/// These words as a sentence.
pub(super) fn sentence(words: &[OwnWord]) -> String {
    let mut text = String::new();
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            text.push(' ');
        }
        text.push_str(&word.text);
        if word.pauses && index + 1 < words.len() {
            text.push(',');
        }
    }
    let mut chars = text.chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    let mut text: String = first.chain(chars).collect();
    text.push('.');
    text
}
