//! The parts of a message in the order in which they were said.

use clawnode_proto::tool::ToolUse;

use super::{Item, PlainBlock, PlainMessage};

/// A part of a message, with what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    Text(&'a str),
    ToolUse(&'a ToolUse),
    Item(&'a Item),
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
    use clawnode_proto::llm::Role;

    use super::*;
    use crate::llm::ReplyBlocks;

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
}
