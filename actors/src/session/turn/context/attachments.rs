//! Which attachments one request holds. Pure.

use clawnode_proto::{
    limits::ATTACHMENTS_SENT_BYTES,
    llm::{Message, Role},
    media::Media,
};

/// Bytes that are left out at a time, so that not each new picture changes what requests begin with.
const BLOCK_BYTES: u64 = ATTACHMENTS_SENT_BYTES / 4;

/// How a build chose them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session::turn) enum AttachmentRule {
    /// The oldest ones go, in blocks.
    Blocks,
    /// All that fit stay, the newest first, as earlier builds had it.
    Newest,
}

/// Whether one request may hold all attachments of these messages.
pub(super) fn all_fit(messages: &[Message]) -> bool {
    let bytes = messages.iter().flat_map(attached).map(|media| media.bytes);
    bytes.fold(0, u64::saturating_add) <= ATTACHMENTS_SENT_BYTES
}

/// What messages become within the attachments that one request may hold; a sentence takes the place of each older one.
/// How many go depends on how many there are alone, so those of the next request are the same until a whole block more
/// has to go.
pub(super) fn within_one_request(messages: Vec<Message>) -> Vec<Vec<Message>> {
    let all: u64 = messages.iter().flat_map(attached).map(|media| media.bytes).sum();
    let excess = all.saturating_sub(ATTACHMENTS_SENT_BYTES);
    let mut going = excess.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(excess);
    let is_kept = |media: &Media| {
        let is_kept = going == 0;
        going = going.saturating_sub(media.bytes);
        is_kept
    };
    only(messages.into_iter(), is_kept)
}

/// The same by the rule of earlier builds, for replays of their requests.
pub(super) fn newest_that_fit(messages: Vec<Message>) -> Vec<Vec<Message>> {
    let mut room = ATTACHMENTS_SENT_BYTES;
    let is_kept = |media: &Media| {
        let left = room.checked_sub(media.bytes);
        room = left.unwrap_or(room);
        left.is_some()
    };
    let mut kept = only(messages.into_iter().rev(), is_kept);
    kept.reverse();
    kept
}

/// Each message with the attachments that are kept, and words about the others.
fn only(
    messages: impl Iterator<Item = Message>,
    mut is_kept: impl FnMut(&Media) -> bool,
) -> Vec<Vec<Message>> {
    let mut kept = Vec::new();
    for mut message in messages {
        let mut left_out = Vec::new();
        let mut fits = |media: &Media| {
            let is_kept = is_kept(media);
            if !is_kept {
                left_out.push(format!("({media}, is not shown here any more)"));
            }
            is_kept
        };
        message.attachments.retain(&mut fits);
        message.tool_replies.iter_mut().for_each(|reply| reply.media.retain(&mut fits));
        let words = (!left_out.is_empty()).then(|| Message::text(Role::User, left_out.join("\n")));
        kept.push(std::iter::once(message).chain(words).collect());
    }
    kept
}

/// All that is attached to a message.
fn attached(message: &Message) -> impl Iterator<Item = &Media> {
    let given = message.tool_replies.iter().flat_map(|reply| &reply.media);
    message.attachments.iter().chain(given)
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        Digest,
        media::{MediaType, Size},
        tool::ToolReply,
    };

    use super::*;

    fn picture(n: u8, bytes: u64) -> Media {
        let (media_type, blob) = (MediaType::Png, Digest::of(&[n]));
        Media { media_type, blob, bytes, name: Some(format!("{n}.png")), at: None }
    }

    fn with(attachments: Vec<Media>) -> Message {
        Message { attachments, ..Message::text(Role::User, "see") }
    }

    /// The pictures of a request, by their number.
    fn shown(messages: &[Message]) -> Vec<String> {
        messages.iter().flat_map(attached).filter_map(|media| media.name.clone()).collect()
    }

    #[test]
    fn earlier_builds_held_the_newest_attachments_and_words_about_the_others() {
        let most = ATTACHMENTS_SENT_BYTES;
        let tool = |media| {
            let (id, content) = ("1".to_owned(), "ok".into());
            let reply = ToolReply { id, content, is_error: false, media };
            Message { tool_replies: vec![reply], ..Message::text(Role::User, "") }
        };
        let given = vec![
            with(vec![picture(1, most / 2), picture(2, 1)]),
            tool(vec![picture(3, most / 4)]),
            with(vec![picture(4, most / 2), picture(5, 2)]),
        ];
        let gone =
            format!("(a PNG picture \"1.png\", {}, is not shown here any more)", Size(most / 2));
        let words = Message::text(Role::User, gone);
        let expected = vec![
            with(vec![picture(2, 1)]),
            words.clone(),
            tool(vec![picture(3, most / 4)]),
            with(vec![picture(4, most / 2), picture(5, 2)]),
        ];
        assert_eq!(newest_that_fit(given.clone()).concat(), expected);
        assert_eq!(
            within_one_request(given.clone()).concat(),
            expected,
            "the block is the first picture"
        );
        assert!(!all_fit(&given) && all_fit(&given[1..]));
        for rule in [newest_that_fit, within_one_request] {
            assert_eq!(rule(given[1..].to_vec()).concat(), given[1..], "these fit");
        }
    }

    #[test]
    fn a_picture_more_changes_what_requests_begin_with_once_in_a_block() {
        // Pictures of a tenth: ten fit, and a block has two and a half.
        let one = ATTACHMENTS_SENT_BYTES / 10;
        let all: Vec<Message> = (0..40).map(|n| with(vec![picture(n, one)])).collect();
        let mut changes = Vec::new();
        let mut before = Vec::new();
        for count in 1..=all.len() {
            let request = within_one_request(all[..count].to_vec()).concat();
            let bytes: u64 = request.iter().flat_map(attached).map(|media| media.bytes).sum();
            assert!(bytes <= ATTACHMENTS_SENT_BYTES && (count < 8 || bytes >= 7 * one));
            let pictures = shown(&request);
            assert_eq!(pictures.last(), Some(&format!("{}.png", count - 1)), "the newest stays");
            if !request.starts_with(&before) {
                changes.push(count);
            }
            before = request;
        }
        assert_eq!(changes, [11, 13, 16, 18, 21, 23, 26, 28, 31, 33, 36, 38]);
    }
}
