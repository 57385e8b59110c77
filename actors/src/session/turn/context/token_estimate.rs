//! How large requests seem to be in tokens, by their bytes. Pure; `measured_tokens` has what providers say of it.

use clawnode_proto::{
    limits::TOOL_RESULT_CHARS,
    llm::Message,
    media::{Media, MediaKind},
    response::ResponseSchema,
    tool::ToolSpec,
};

use crate::llm::bytes_sent_back;

/// Bytes of text that make about one token. English prose has about four; erring low drops a turn
/// too early, erring high makes the provider refuse.
pub(super) const BYTES_PER_TOKEN: u64 = 3;
/// Tokens that a message costs beside its text.
pub(super) const MESSAGE_TOKENS: u64 = 8;
/// Tokens of a picture, whatever its size: what vendors count for one that they scaled down.
const IMAGE_TOKENS: u64 = 1_600;
/// Bytes of a document that make about one token: a page has some 2,000 tokens, and 200 kB if it is
/// scanned. One of text alone has fewer bytes and is held too small.
const DOCUMENT_BYTES_PER_TOKEN: u64 = 100;
/// Bytes of sound that make about one token: 10 tokens a second, and 10 to 30 kB.
const AUDIO_BYTES_PER_TOKEN: u64 = 1_000;

/// The part before the messages, with a system prompt of so many bytes.
pub(in crate::session::turn) fn fixed_tokens(
    system: u64,
    tools: &[ToolSpec],
    schema: Option<&ResponseSchema>,
) -> u64 {
    let offered = |tool: &ToolSpec| (tool.description.len() + tool.input_schema.len()) as u64;
    let schema = schema.map_or(0, |schema| schema.schema.len() as u64);
    (system + schema + tools.iter().map(offered).sum::<u64>()) / BYTES_PER_TOKEN
}

/// About as many tokens as messages have.
pub(in crate::session::turn) fn tokens(messages: &[Message]) -> u64 {
    let tools = |one: &Message| {
        let uses = one
            .tool_uses
            .iter()
            .map(|tool_use| (tool_use.name.len() + tool_use.arguments.len()) as u64);
        let most = TOOL_RESULT_CHARS as u64;
        uses.chain(one.tool_replies.iter().map(|reply| reply.content.bytes().min(most)))
            .sum::<u64>()
    };
    let media = |one: &Message| {
        let given = one.tool_replies.iter().flat_map(|reply| &reply.media);
        one.attachments.iter().chain(given).map(media_tokens).sum::<u64>()
    };
    let beside = |one: &Message| one.blocks.as_ref().map_or(0, bytes_sent_back);
    let size = |one: &Message| {
        (one.content.bytes() + tools(one) + beside(one)) / BYTES_PER_TOKEN + media(one)
    };
    messages.iter().map(|one| size(one) + MESSAGE_TOKENS).sum()
}

/// About as many tokens as an attachment costs.
fn media_tokens(media: &Media) -> u64 {
    match media.media_type.kind() {
        MediaKind::Image => IMAGE_TOKENS,
        MediaKind::Document => media.bytes / DOCUMENT_BYTES_PER_TOKEN,
        MediaKind::Audio => media.bytes / AUDIO_BYTES_PER_TOKEN,
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        Digest,
        block::{Block, Blocks},
        llm::{Role, Text},
        media::MediaType,
    };

    use super::*;

    #[test]
    fn a_thought_counts_once_and_only_if_it_goes_back() {
        let thought = |signature: Option<&str>| Block::Thinking {
            text: "t".repeat(300).into(),
            signature: signature.map(Text::from),
        };
        let opaque =
            |field: &str| Block::Opaque { field: field.to_owned(), data: "d".repeat(330).into() };
        for (list, bytes) in [
            (vec![thought(None)], 0),
            (vec![thought(Some(""))], 300),
            (vec![thought(Some("sig"))], 303),
            (vec![thought(None), opaque("reasoning_details.plain")], 330),
            (vec![thought(Some("")), opaque("reasoning_details")], 330),
            (vec![thought(Some("sig")), opaque("extra_content")], 633),
        ] {
            let blocks = Some(Blocks { model: "p/m".parse().unwrap(), list });
            let message = Message { blocks, ..Message::text(Role::Assistant, "") };
            assert_eq!(tokens(&[message]), bytes / BYTES_PER_TOKEN + MESSAGE_TOKENS, "{bytes}");
        }
    }

    #[test]
    fn a_picture_costs_the_same_whatever_its_size() {
        for bytes in [1, 5_000_000] {
            let blob = Digest::of(&[1]);
            let media = Media { media_type: MediaType::Png, blob, bytes, name: None, at: None };
            assert_eq!(media_tokens(&media), IMAGE_TOKENS);
        }
    }
}
