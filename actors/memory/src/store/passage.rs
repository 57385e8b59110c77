//! Cuts what was said in a conversation into passages: message by message, 120 words each.

use clawnode_proto::{EntityId, Timestamp, memory::MemoryTrust};

use super::document::{DOCUMENT_CHARS, Document, DocumentId, DocumentKind};

/// Words of a passage at most. Longer ones say too many things to be found by one of them.
pub const PASSAGE_WORDS: usize = 120;
/// What a passage is worth by itself: as much as any other.
const IMPORTANCE: u8 = 5;

/// One message of a conversation, of the person or of the agent.
#[derive(Clone, Copy, Debug)]
pub struct ConversationMessage<'a> {
    /// The number of its event in the session's journal.
    pub event: u64,
    /// Who said it, by name, if that is known.
    pub speaker: Option<&'a str>,
    /// How far it is to be trusted.
    pub trust: MemoryTrust,
    pub at: Timestamp,
    /// What was said.
    pub text: &'a str,
}

/// The passages of messages of one session, in order. The first message has this position, and each further one the next,
/// so that messages are neighbours, however many passages they have. Messages without words have none.
pub fn passages(
    session: EntityId,
    first_position: u64,
    messages: &[ConversationMessage<'_>],
) -> Vec<Document> {
    let parts = messages.iter().map(|message| (message, cut(message.text)));
    let parts = (first_position..).zip(parts.filter(|(_, parts)| !parts.is_empty()));
    let document = |position, message: &ConversationMessage<'_>, part, text: &str| Document {
        id: DocumentId { entity: session, event: message.event, part },
        kind: DocumentKind::Passage,
        text: text.to_owned(),
        speaker: message.speaker.map(str::to_owned),
        position: Some(position),
        at: message.at,
        importance: IMPORTANCE,
        trust: message.trust,
        embedding: None,
    };
    let documents = parts.map(|(position, (message, parts))| {
        let numbered = (0_u32..).zip(parts);
        numbered.map(move |(part, text)| document(position, message, part, text))
    });
    documents.flatten().collect()
}

/// Parts of `text` of at most [`PASSAGE_WORDS`] words and [`DOCUMENT_CHARS`] characters, as they are in it. A word that is
/// longer than a passage is cut.
pub fn cut(text: &str) -> Vec<&str> {
    let (mut parts, mut rest) = (Vec::new(), text.trim());
    while !rest.is_empty() {
        let (part, after) = rest.split_at_checked(end(rest)).unwrap_or((rest, ""));
        parts.push(part.trim_end());
        rest = after.trim_start();
    }
    parts
}

/// Where the first part of a text ends that begins with a word.
fn end(text: &str) -> usize {
    let (mut words, mut after_space, mut last_word) = (0, true, None);
    for (count, (at, character)) in text.char_indices().enumerate() {
        if count == DOCUMENT_CHARS {
            return last_word.unwrap_or(at);
        }
        if character.is_whitespace() {
            if !after_space {
                last_word = Some(at);
            }
            after_space = true;
            continue;
        }
        if after_space {
            words += 1;
            if words > PASSAGE_WORDS {
                return at;
            }
        }
        after_space = false;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use clawnode_proto::id::Kind;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_long_message_becomes_parts_of_a_hundred_and_twenty_words() {
        let text: Vec<String> = (0..250).map(|word| format!("w{word}")).collect();
        let text = text.join(" ");
        let parts = cut(&text);
        let lengths: Vec<usize> =
            parts.iter().map(|part| part.split_whitespace().count()).collect();
        assert_eq!(lengths, [120, 120, 10]);
        assert!(parts[1].starts_with("w120 ") && parts[1].ends_with(" w239"));
    }

    #[test]
    fn a_text_without_spaces_is_cut_between_characters() {
        let parts: Vec<usize> =
            cut(&"柏".repeat(2_500)).iter().map(|part| part.chars().count()).collect();
        assert_eq!(parts, [1_000, 1_000, 500]);
        let parts = cut(&format!("word {}", "x".repeat(1_200)))
            .iter()
            .map(|part| part.len())
            .collect::<Vec<_>>();
        assert_eq!(parts, [4, 1_000, 200]);
    }

    #[test]
    fn passages_of_messages_follow_each_other() {
        let session = EntityId::derive(Kind::SESSION, "a:b:c:d");
        let long = "word ".repeat(130);
        let said = |event, speaker, trust, text| ConversationMessage {
            event,
            speaker,
            trust,
            at: Timestamp(event),
            text,
        };
        let found = passages(
            session,
            7,
            &[
                said(3, Some("Ada"), MemoryTrust::Person, &long),
                said(4, None, MemoryTrust::Agent, " \n "),
                said(5, None, MemoryTrust::Agent, "Noted."),
            ],
        );
        let places: Vec<(u64, u32, Option<u64>)> = found
            .iter()
            .map(|passage| (passage.id.event, passage.id.part, passage.position))
            .collect();
        assert_eq!(places, [(3, 0, Some(7)), (3, 1, Some(7)), (5, 0, Some(8))]);
        assert_eq!(found[1].speaker.as_deref(), Some("Ada"));
        assert_eq!((found[1].trust, found[2].trust), (MemoryTrust::Person, MemoryTrust::Agent));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn no_word_is_lost_and_no_part_is_too_long(text in "([a-zé]{0,9}[ \n]{0,2}){0,300}") {
            let parts = cut(&text);
            for part in &parts {
                prop_assert!(part.chars().count() <= DOCUMENT_CHARS);
                prop_assert!((1..=PASSAGE_WORDS).contains(&part.split_whitespace().count()));
            }
            let letters = |text: &str| text.split_whitespace().collect::<String>();
            prop_assert_eq!(letters(&parts.concat()), letters(&text));
        }
    }
}
