//! What a model says beside text and tool calls, as it arrives: whole, in its place and within bounds.

use clawnode_proto::{
    block::{Block, Blocks},
    limits::{REPLY_BLOCKS, REPLY_BLOCKS_BYTES},
};

/// The field of a reply that `OpenRouter` wants back as it is, with the signatures of thoughts.
pub(super) const REASONING_DETAILS: &str = "reasoning_details";
/// An opaque list of thoughts that is plain text: it goes back while its turn runs. No wire has a field of that name.
pub(super) const PLAIN_DETAILS: &str = "reasoning_details.plain";

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
    /// Something else that the provider wants back as it is, with the text or tool call that follows.
    Opaque {
        /// The name of its field on the provider's wire.
        field: String,
        /// The provider's JSON.
        data: String,
    },
}

/// Whether a later turn may need it.
pub(crate) fn outlives_its_turn(block: &Block) -> bool {
    let is_of_turn = matches!(block, Block::Opaque { field, .. } if field == PLAIN_DETAILS);
    block.outlives_its_turn() && !is_of_turn
}

/// How many bytes of these go back, at most. No wire sends a thought back that has no signature. Where a server lists
/// thoughts, the list goes back in the place of those with an empty signature.
pub(crate) fn bytes_sent_back(blocks: &Blocks) -> u64 {
    let (mut bytes, mut wanted, mut listed) = (0_u64, 0_u64, 0_u64);
    for block in &blocks.list {
        let (sum, more) = match block {
            Block::Text { .. } | Block::ToolUse {} | Block::Thinking { signature: None, .. } => {
                continue;
            }
            Block::Thinking { text, signature: Some(signature) } if signature.bytes() == 0 => {
                (&mut wanted, text.bytes())
            }
            Block::Thinking { text, signature: Some(signature) } => {
                (&mut bytes, text.bytes().saturating_add(signature.bytes()))
            }
            Block::Opaque { field, data }
                if [REASONING_DETAILS, PLAIN_DETAILS].contains(&field.as_str()) =>
            {
                (&mut listed, data.bytes())
            }
            Block::RedactedThinking { data } | Block::Opaque { data, .. } => {
                (&mut bytes, data.bytes())
            }
        };
        *sum = sum.saturating_add(more);
    }
    bytes.saturating_add(wanted.max(listed))
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
    use super::*;

    fn thought(text: &str, signature: Option<&str>) -> Item {
        Item::Thinking { text: text.to_owned(), signature: signature.map(str::to_owned) }
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
