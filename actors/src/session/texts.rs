//! Long texts, which live in the blob store: one blob for each text of each session, so that
//! deleting one session takes nothing from another.

use std::time::Duration;

use bytes::Bytes;
use clawnode_cluster::{Backoff, Storage, StoreError};
use clawnode_proto::{
    Digest, EntityId,
    block::{Block, Blocks},
    limits::{REPLY_BLOCKS_INLINE, TOOL_RESULT_CHARS, TOOL_RESULT_INLINE},
    llm::{ModelRef, Text, TextBlob},
    media::Content,
    tool::ToolOutcome,
};
use tracing::warn;

use crate::llm::{Item, PlainBlock};

/// The first and the longest wait before a store that failed is tried again.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Refusals of a store after which a text is given up.
const REFUSALS_MAX: u32 = 3;

/// Long text goes to the blob store before an event refers to it. A store that is out of reach or
/// full is waited for, because what is said was paid for or has happened; one that refuses it is
/// not: then there is the part of `inline` bytes that fits in the event, and why there is no more.
pub(crate) async fn stored_text(
    storage: &Storage,
    entity: EntityId,
    text: String,
    inline: usize,
) -> (Text, Option<String>) {
    if text.len() <= inline {
        return (Text::from(text), None);
    }
    let bytes = text.len() as u64;
    match stored_blob(storage, packed(entity, text.clone())).await {
        Ok(digest) => (Text::Blob { digest, bytes }, None),
        Err(failure) => {
            let why = format!("a text of {bytes} bytes is not stored: {failure}");
            (Text::from(beginning(text, inline)), Some(why))
        }
    }
}

/// As much of a tool's result as a model is shown.
pub(crate) fn shown_result(text: String) -> String {
    match text.char_indices().nth(TOOL_RESULT_CHARS) {
        Some((at, _)) => {
            let left_out = text.chars().count() - TOOL_RESULT_CHARS;
            let begins = text.get(..at).unwrap_or_default();
            format!("{begins}\n\n({left_out} more characters are left out)")
        }
        None => text,
    }
}

/// Content in the blob store. A store that is out of reach or full is waited for.
pub(crate) async fn stored_blob(storage: &Storage, content: Bytes) -> Result<Digest, StoreError> {
    let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
    let mut refusals = 0;
    loop {
        match storage.blobs.put(content.clone()).await {
            Err(failure @ StoreError::Refused { .. }) if refusals >= REFUSALS_MAX => {
                return Err(failure);
            }
            Err(failure) => {
                refusals += u32::from(matches!(failure, StoreError::Refused { .. }));
                warn!(%failure, "content cannot be stored; trying again");
                let wait = backoff.next(&mut rand::rng());
                tokio::time::sleep(wait).await;
            }
            stored => return stored,
        }
    }
}

/// What a model said beside text and tool calls, with what is long in the blob store; none if there is
/// nothing. The second is why a part of it is not stored.
pub(crate) async fn stored_blocks(
    storage: &Storage,
    entity: EntityId,
    model: ModelRef,
    plain: Vec<PlainBlock>,
) -> (Option<Blocks>, Option<String>) {
    let (mut room, mut refused) = (REPLY_BLOCKS_INLINE, None);
    let mut stored = async |text: String| {
        let (text, why) = stored_text(storage, entity, text, room).await;
        room -= text.inline().map_or(0, str::len).min(room);
        refused = refused.take().or(why);
        text
    };
    let mut list = Vec::with_capacity(plain.len());
    for block in plain {
        list.push(match block {
            PlainBlock::Text(bytes) => Block::Text { bytes: bytes as u64 },
            PlainBlock::ToolUse => Block::ToolUse {},
            PlainBlock::Item(Item::Thinking { text, signature }) => Block::Thinking {
                text: stored(text).await,
                signature: match signature {
                    Some(signature) => Some(stored(signature).await),
                    None => None,
                },
            },
            PlainBlock::Item(Item::Redacted { data }) => {
                Block::RedactedThinking { data: stored(data).await }
            }
            PlainBlock::Item(Item::Opaque { field, data }) => {
                Block::Opaque { field, data: stored(data).await }
            }
        });
    }
    let blocks = (!list.is_empty()).then_some(Blocks { model, list });
    (blocks, refused)
}

/// The result of a tool, with its text in the blob store if it is long. A part that the store refuses
/// is left out, and the result says so: the tool has run all the same.
pub(crate) async fn stored_outcome(
    storage: &Storage,
    entity: EntityId,
    outcome: ToolOutcome,
) -> ToolOutcome {
    let ToolOutcome { content: Text::Inline { text }, failure, media } = outcome else {
        return outcome;
    };
    let (mut content, refused) = stored_text(storage, entity, text, TOOL_RESULT_INLINE).await;
    if let (Some(why), Text::Inline { text }) = (refused, &mut content) {
        for part in ["\n(the rest is left out: ", &why, ")"] {
            text.push_str(part);
        }
    }
    ToolOutcome { content, failure, media }
}

/// The same with what its run showed to the model. Content that the store refuses is left out, and the
/// text says so.
pub(crate) async fn stored_with_media(
    storage: &Storage,
    entity: EntityId,
    outcome: ToolOutcome,
    shown: Vec<Content>,
) -> ToolOutcome {
    let mut outcome = stored_outcome(storage, entity, outcome).await;
    for content in shown {
        match stored_blob(storage, packed_content(entity, content.bytes())).await {
            Ok(blob) => outcome.media.push(content.stored(blob)),
            Err(failure) => {
                warn!(%failure, "what a tool shows is not stored");
                if let Text::Inline { text } = &mut outcome.content {
                    text.push_str(
                        "\n[one of the attachments is not shown: it could not be stored]",
                    );
                }
            }
        }
    }
    outcome
}

/// As much of a text as an event may hold.
fn beginning(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    text
}

/// A long text as its blob holds it: followed by whose it is, so that no two sessions share a
/// blob, and deleting one takes nothing from the other.
pub(crate) fn packed(session: EntityId, text: String) -> Bytes {
    let mut bytes = text.into_bytes();
    bytes.extend(session.as_u128().to_be_bytes());
    Bytes::from(bytes)
}

/// The blob that has, or is to have, a text of this session, and its content.
pub(crate) fn packed_text(session: EntityId, text: &str) -> (TextBlob, Bytes) {
    let content = packed(session, text.to_owned());
    let (digest, bytes) = (Digest::of(&content), text.len() as u64);
    (TextBlob { digest, bytes }, content)
}

/// The content of an attachment as its blob holds it: followed by whose it is, as a text is.
pub(crate) fn packed_content(session: EntityId, content: &[u8]) -> Bytes {
    [content, &session.as_u128().to_be_bytes()].concat().into()
}

/// The content of `length` bytes that a blob begins with.
pub(crate) fn content_of(blob: &Bytes, length: u64) -> Bytes {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    blob.slice(..length.min(blob.len()))
}

/// The text of `length` bytes that a blob begins with.
pub(crate) fn unpacked(blob: &[u8], length: u64) -> String {
    let text = usize::try_from(length).ok().and_then(|length| blob.get(..length));
    String::from_utf8_lossy(text.unwrap_or(blob)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_of_two_sessions_are_two_blobs() {
        let text = "nächtlich".to_owned();
        let one = packed(EntityId::from_u128(1), text.clone());
        let other = packed(EntityId::from_u128(2), text.clone());
        assert_ne!(one, other);
        assert_eq!(one, packed(EntityId::from_u128(1), text.clone()), "a repeat finds its blob");
        assert_eq!(unpacked(&one, text.len() as u64), text);
        // Blobs from before this build hold the text alone.
        assert_eq!(unpacked(text.as_bytes(), text.len() as u64), text);
    }
}
