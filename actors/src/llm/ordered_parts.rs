//! The parts of a message in the order in which they were said, or written.

use clawnode_proto::tool::ToolUse;

use super::{Item, PlainBlock, PlainMedia, PlainMessage};

/// A part of a message, with what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    Text(&'a str),
    ToolUse(&'a ToolUse),
    Item(&'a Item),
}

/// A part of a user's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeardPart<'a> {
    Text(&'a str),
    Media(&'a PlainMedia),
}

// === impl PlainMessage ===

impl PlainMessage {
    /// Its parts in the order in which they were said; without blocks, its text and then its tool
    /// calls. Nothing follows the last text or tool call, because most providers do not take that.
    pub(super) fn parts(&self) -> Vec<Part<'_>> {
        let mut parts = self.all_parts();
        while parts.pop_if(|part| matches!(part, Part::Item(_))).is_some() {}
        parts
    }

    /// The same with what follows the last text or tool call.
    pub(super) fn all_parts(&self) -> Vec<Part<'_>> {
        self.ordered().unwrap_or_else(|| {
            let text = (!self.text.is_empty()).then_some(Part::Text(&self.text));
            text.into_iter().chain(self.tool_uses.iter().map(Part::ToolUse)).collect()
        })
    }

    /// The text of a user's message, and its attachments in their places. Those without a place are before all of
    /// the text: models do best with pictures before the question about them.
    pub(super) fn heard(&self) -> Vec<HeardPart<'_>> {
        let media = self.media.iter();
        let mut placed: Vec<_> = media.map(|one| (one.place_in(&self.text), one)).collect();
        placed.sort_by_key(|(at, _)| *at);
        let mut parts = Vec::with_capacity(placed.len().saturating_mul(2).saturating_add(1));
        let mut from = 0;
        for (at, media) in placed {
            parts.extend(self.words(from, at));
            parts.push(HeardPart::Media(media));
            from = at;
        }
        parts.extend(self.words(from, self.text.len()));
        parts
    }

    /// The text between two places, unless it is blank: providers refuse that. The lines that kept it apart from
    /// the text on the other side of an attachment are not in it.
    fn words(&self, from: usize, to: usize) -> Option<HeardPart<'_>> {
        let mut text = self.text.get(from..to)?;
        if from > 0 {
            text = text.trim_start_matches('\n');
        }
        if to < self.text.len() {
            text = text.trim_end_matches('\n');
        }
        (!text.trim().is_empty()).then_some(HeardPart::Text(text))
    }

    /// `None` if there are no blocks, or if they are of another text or other calls.
    fn ordered(&self) -> Option<Vec<Part<'_>>> {
        let (mut rest, mut uses) = (self.text.as_str(), self.tool_uses.iter());
        let mut parts = Vec::with_capacity(self.blocks.len());
        for block in &self.blocks {
            match block {
                // A blank text was left out of the message.
                PlainBlock::Text(_) if self.text.is_empty() => {}
                PlainBlock::Text(bytes) => {
                    let (text, more) = rest.split_at_checked(*bytes)?;
                    // Providers refuse a blank text.
                    parts.extend((!text.trim().is_empty()).then_some(Part::Text(text)));
                    rest = more;
                }
                PlainBlock::ToolUse => parts.push(Part::ToolUse(uses.next()?)),
                PlainBlock::Item(item) => parts.push(Part::Item(item)),
            }
        }
        let says = parts.iter().any(|part| !matches!(part, Part::Item(_)));
        (says && rest.is_empty() && uses.next().is_none()).then_some(parts)
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{llm::Role, media::MediaType};
    use proptest::prelude::*;

    use super::*;
    use crate::llm::{
        ReplyBlocks,
        media::tests::{media, picture_at},
    };

    fn thought(text: &str, signature: Option<&str>) -> Item {
        Item::Thinking { text: text.to_owned(), signature: signature.map(str::to_owned) }
    }

    fn call(id: &str) -> ToolUse {
        ToolUse { id: id.to_owned(), name: "get".to_owned(), arguments: "{}".to_owned() }
    }

    #[test]
    fn the_order_of_a_reply_is_kept_and_nothing_is_kept_of_a_plain_one() {
        let mut plain = ReplyBlocks::default();
        plain.text(3);
        plain.tool_use();
        assert_eq!(plain.done(), []);
        let mut blocks = ReplyBlocks::default();
        blocks.item(thought("hm", Some("c2ln")));
        blocks.text(0);
        blocks.text(2);
        blocks.text(3);
        blocks.item(Item::Redacted { data: "x".to_owned() });
        blocks.tool_use();
        let said = PlainMessage {
            blocks: blocks.done(),
            tool_uses: vec![call("1")],
            ..PlainMessage::text(Role::Assistant, "héllo".trim_end_matches('o'))
        };
        let (first, second) =
            (thought("hm", Some("c2ln")), Item::Redacted { data: "x".to_owned() });
        assert_eq!(
            said.parts(),
            [
                Part::Item(&first),
                Part::Text("héll"),
                Part::Item(&second),
                Part::ToolUse(&said.tool_uses[0]),
            ]
        );
    }

    #[test]
    fn blocks_of_other_words_or_calls_are_not_sent() {
        let item = PlainBlock::Item(thought("hm", Some("c2ln")));
        let good = [item.clone(), PlainBlock::Text(2), PlainBlock::ToolUse];
        let (text, uses) = ("hi", vec![call("1")]);
        let message = |blocks: &[PlainBlock], text: &str, uses: &[ToolUse]| PlainMessage {
            blocks: blocks.to_vec(),
            tool_uses: uses.to_vec(),
            ..PlainMessage::text(Role::Assistant, text)
        };
        let has_item =
            |said: PlainMessage| said.parts().iter().any(|part| matches!(part, Part::Item(_)));
        assert!(has_item(message(&good, text, &uses)));
        assert!(has_item(message(&good, "", &uses)), "a blank text was left out");
        assert!(!has_item(message(&good, "hit", &uses)));
        assert!(!has_item(message(&good, "h", &uses)));
        assert!(!has_item(message(&good, "é", &[])), "no such call");
        assert!(!has_item(message(&good[..2], text, &uses)), "one call more");
        assert!(!has_item(message(&[PlainBlock::Text(2), item], text, &[])), "nothing follows");
    }

    /// A message with attachments in these places, named by their numbers.
    fn attached(text: &str, places: &[Option<u64>]) -> PlainMessage {
        let mut message = PlainMessage::text(Role::User, text);
        for (nth, at) in places.iter().enumerate() {
            let mut one = media(MediaType::Png, Some(&nth.to_string()));
            one.about.at = *at;
            message.media.push(one);
        }
        message
    }

    #[test]
    fn what_is_attached_is_between_the_texts_that_it_was_between() {
        let text = "Before:\n\nAfter:\n\nwhat changed?";
        let (first, second) = (picture_at(7), picture_at(15));
        let media = vec![first.clone(), second.clone()];
        let message = PlainMessage { media, ..PlainMessage::text(Role::User, text) };
        assert_eq!(
            message.heard(),
            [
                HeardPart::Text("Before:"),
                HeardPart::Media(&first),
                HeardPart::Text("After:"),
                HeardPart::Media(&second),
                HeardPart::Text("what changed?"),
            ]
        );
        // In the middle of a character, after the end, and no place at all.
        let message = attached("\nsé", &[Some(3), Some(5), None, Some(u64::MAX)]);
        let media = message.media.iter().map(HeardPart::Media);
        let expected: Vec<_> = media.chain([HeardPart::Text("\nsé")]).collect();
        assert_eq!(message.heard(), expected, "the text is as it was");
        assert_eq!(attached("", &[]).heard(), []);
    }

    proptest! {
        #[test]
        fn each_attachment_and_each_word_is_sent_once_and_in_its_place(
            text in "[aé \n]{0,12}",
            places in prop::collection::vec(prop::option::of(0_u64..20), 0..6),
        ) {
            let message = attached(&text, &places);
            let plain = |text: &str| text.split_whitespace().collect::<String>();
            let (mut before, mut sent, mut last) = (String::new(), Vec::new(), 0);
            let mut was_text = false;
            for part in message.heard() {
                match part {
                    HeardPart::Text(words) => {
                        prop_assert!(!was_text && !words.trim().is_empty());
                        prop_assert!(text.contains(words));
                        before.push_str(words);
                    }
                    HeardPart::Media(media) => {
                        let at = media.place_in(&text);
                        prop_assert!(last <= at && text.is_char_boundary(at));
                        prop_assert_eq!(plain(&before), plain(text.get(..at).unwrap()));
                        last = at;
                        sent.push(media.about.name.clone().unwrap());
                    }
                }
                was_text = matches!(part, HeardPart::Text(_));
            }
            prop_assert_eq!(plain(&before), plain(&text));
            let nth = |name: &String| name.parse::<usize>().unwrap();
            let at = |name: &String| message.media[nth(name)].place_in(&text);
            prop_assert!(sent.is_sorted_by_key(|name| (at(name), nth(name))), "{:?}", sent);
            prop_assert_eq!(sent.len(), places.len());
        }
    }
}
