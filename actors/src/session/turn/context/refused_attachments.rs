//! Attachments of a request that its provider refused: later requests have a sentence in their place. Pure.

use clawnode_proto::{
    llm::{FailureClass, Message, ModelFailure, Role},
    media::Media,
};

/// Whether a provider refused a turn's last request for what it says. An attachment may have been the reason, and
/// each later request that has it would be refused as well.
pub(super) fn is_about_attachments(failure: &ModelFailure) -> bool {
    failure.class == FailureClass::Rejected && !failure.keeps_attachments
}

/// A message, and in words what was attached to it.
pub(super) fn attachments_in_words(mut message: Message) -> Vec<Message> {
    let mut media = std::mem::take(&mut message.attachments);
    media
        .extend(message.tool_replies.iter_mut().flat_map(|reply| std::mem::take(&mut reply.media)));
    let told = |media: &Media| format!("({media}, is not shown again: the request was refused)");
    let words: Vec<String> = media.iter().map(told).collect();
    let words = (!words.is_empty()).then(|| Message::text(Role::User, words.join("\n")));
    std::iter::once(message).chain(words).collect()
}
