//! What a model says beside text and tool calls: as it arrives, within bounds, and as it goes back.

use clawnode_proto::{
    limits::{REPLY_BLOCKS, REPLY_BLOCKS_BYTES},
    tool::ToolUse,
};

use super::PlainMessage;

/// Something that a model said beside text and tool calls, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A thought.
    Thinking {
        /// The thought.
        text: String,
        /// The provider's signature. Empty if the provider wants the thought back without one.
        /// `None` if the thought is not sent back.
        signature: Option<String>,
    },
    /// A thought that only the provider can read.
    Redacted {
        /// The provider's bytes, as text.
        data: String,
    },
    /// Something else that the provider wants back as it is, with the tool call that follows.
    Opaque {
        /// The name of its field on the provider's wire.
        field: String,
        /// The provider's JSON.
        data: String,
    },
}

/// A part of a message, in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlainBlock {
    /// So many bytes more of the text.
    Text(usize),
    /// The next tool call.
    ToolUse,
    /// Something beside them.
    Item(Item),
}

/// The blocks of a reply while it arrives, within bounds.
#[derive(Debug, Default)]
pub struct ReplyBlocks {
    list: Vec<PlainBlock>,
    items: usize,
    bytes: usize,
    is_cut: bool,
}

/// A part of a message, with what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    Text(&'a str),
    ToolUse(&'a ToolUse),
    Item(&'a Item),
}

// === impl ReplyBlocks ===

impl ReplyBlocks {
    /// So many bytes more of the text.
    pub fn text(&mut self, bytes: usize) {
        match self.list.last_mut() {
            Some(PlainBlock::Text(last)) => *last += bytes,
            _ if bytes == 0 => {}
            _ => self.list.push(PlainBlock::Text(bytes)),
        }
    }

    /// One more tool call.
    pub fn tool_use(&mut self) {
        self.list.push(PlainBlock::ToolUse);
    }

    /// Something beside them, as far as there is room.
    pub fn item(&mut self, mut item: Item) {
        if self.items == REPLY_BLOCKS {
            self.is_cut = true;
            return;
        }
        let room = REPLY_BLOCKS_BYTES - self.bytes;
        if item.bytes() > room {
            self.is_cut = true;
            match &mut item {
                Item::Thinking { text, signature } => {
                    *signature = None;
                    text.truncate(text.floor_char_boundary(room));
                }
                Item::Redacted { .. } | Item::Opaque { .. } => return,
            }
        }
        self.items += 1;
        self.bytes += item.bytes();
        self.list.push(PlainBlock::Item(item));
    }

    /// All of them, in order; none if there is nothing beside text and tool calls.
    ///
    /// LLM-2: if anything was cut, nothing goes back, because it would not go back exactly.
    pub fn done(mut self) -> Vec<PlainBlock> {
        if self.is_cut {
            self.list.retain_mut(|block| match block {
                PlainBlock::Item(Item::Thinking { signature, .. }) => {
                    *signature = None;
                    true
                }
                PlainBlock::Item(Item::Redacted { .. } | Item::Opaque { .. }) => false,
                PlainBlock::Text(_) | PlainBlock::ToolUse => true,
            });
        }
        let is_item = |block: &PlainBlock| matches!(block, PlainBlock::Item(_));
        if self.list.iter().any(is_item) { self.list } else { Vec::new() }
    }
}

// === impl Item ===

impl Item {
    fn bytes(&self) -> usize {
        match self {
            Self::Thinking { text, signature } => {
                text.len() + signature.as_ref().map_or(0, String::len)
            }
            Self::Redacted { data } | Self::Opaque { data, .. } => data.len(),
        }
    }
}

// === impl PlainMessage ===

impl PlainMessage {
    /// Its parts in the order in which they were said; without blocks, its text and then its tool
    /// calls. Nothing follows the last text or tool call, because no provider takes that.
    pub(super) fn parts(&self) -> Vec<Part<'_>> {
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
        while parts.pop_if(|part| matches!(part, Part::Item(_))).is_some() {}
        (!parts.is_empty() && rest.is_empty() && uses.next().is_none()).then_some(parts)
    }
}

/// Appends as much of `more` as keeps `text` at most one byte beyond what a reply may have: enough to
/// see that it has too much.
pub(super) fn push_bounded(text: &mut String, more: &str) {
    let room = (REPLY_BLOCKS_BYTES + 1).saturating_sub(text.len());
    // Rounded up, so that there is one byte too many also within a character.
    let kept = more.ceil_char_boundary(room);
    text.push_str(more.get(..kept).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use clawnode_proto::llm::Role;

    use super::*;

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
        let of = |blocks: &[PlainBlock], text: &str, uses: &[ToolUse]| PlainMessage {
            blocks: blocks.to_vec(),
            tool_uses: uses.to_vec(),
            ..PlainMessage::text(Role::Assistant, text)
        };
        let has_item =
            |said: PlainMessage| said.parts().iter().any(|part| matches!(part, Part::Item(_)));
        assert!(has_item(of(&good, text, &uses)));
        assert!(has_item(of(&good, "", &uses)), "a blank text was left out");
        assert!(!has_item(of(&good, "hit", &uses)));
        assert!(!has_item(of(&good, "h", &uses)));
        assert!(!has_item(of(&good, "é", &[])), "no such call");
        assert!(!has_item(of(&good[..2], text, &uses)), "one call more");
        assert!(!has_item(of(&[PlainBlock::Text(2), item], text, &[])), "nothing follows");
    }

    #[test]
    fn what_was_cut_does_not_go_back() {
        let mut blocks = ReplyBlocks::default();
        blocks.item(thought("whole", Some("c2ln")));
        blocks.item(Item::Redacted { data: "x".to_owned() });
        blocks.item(thought(&"é".repeat(REPLY_BLOCKS_BYTES), Some("c2ln")));
        blocks.item(Item::Redacted { data: "x".repeat(9) });
        let list = blocks.done();
        let [PlainBlock::Item(whole), PlainBlock::Item(Item::Thinking { text, signature: None })] =
            &list[..]
        else {
            panic!("{}", list.len())
        };
        assert_eq!(whole, &thought("whole", None));
        assert!(text.len() > REPLY_BLOCKS_BYTES - 20 && text.len() <= REPLY_BLOCKS_BYTES);
        let mut many = ReplyBlocks::default();
        (0..=REPLY_BLOCKS).for_each(|_| many.item(thought("a", Some("c2ln"))));
        let list = many.done();
        assert_eq!(list.len(), REPLY_BLOCKS);
        assert_eq!(list[0], PlainBlock::Item(thought("a", None)));
    }

    #[test]
    fn one_byte_too_many_is_seen() {
        let mut text = String::new();
        push_bounded(&mut text, &"é".repeat(REPLY_BLOCKS_BYTES));
        push_bounded(&mut text, "more");
        assert!((1..=4).contains(&(text.len() - REPLY_BLOCKS_BYTES)), "{}", text.len());
    }
}
