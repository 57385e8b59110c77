//! Attachments on their way to a provider: their bytes, and words about those that a wire cannot take.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use clawnode_proto::media::{Media, MediaType};
use clawnode_tool::append::append;

use super::PlainMessage;

/// An attachment with its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct PlainMedia {
    /// What is known of it.
    pub about: Media,
    /// Its bytes.
    pub content: Bytes,
}

// === impl PlainMedia ===

impl PlainMedia {
    /// The type of its content.
    pub(super) const fn media_type(&self) -> MediaType {
        self.about.media_type
    }

    pub(super) fn base64(&self) -> String {
        STANDARD.encode(&self.content)
    }

    /// The content as a URL.
    pub(super) fn data_url(&self) -> String {
        let mut url = format!("data:{};base64,", self.media_type().as_str());
        STANDARD.encode_string(&self.content, &mut url);
        url
    }

    /// Its place in this text of its message: how many bytes are before it. Without a place that the text has, it
    /// is before all of it.
    pub(super) fn place_in(&self, text: &str) -> usize {
        let at = self.about.at.and_then(|at| usize::try_from(at).ok());
        at.filter(|at| text.is_char_boundary(*at)).unwrap_or(0)
    }

    /// Its name, or one that its type gives it: some wires ask for one.
    pub(super) fn file_name(&self) -> String {
        let named = || format!("attachment.{}", self.media_type().extension());
        self.about.name.clone().unwrap_or_else(named)
    }
}

/// Without its bytes.
impl fmt::Debug for PlainMedia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PlainMedia").field(&self.about).finish()
    }
}

/// Replaces what a wire does not take by words about it.
pub(super) fn in_words(messages: &mut [PlainMessage], takes: impl Fn(&PlainMedia) -> bool + Copy) {
    for message in messages {
        let PlainMessage { text, media, tool_replies, .. } = message;
        keep(text, media, takes);
        for reply in tool_replies {
            keep(&mut reply.text, &mut reply.media, takes);
        }
    }
}

fn keep(text: &mut String, media: &mut Vec<PlainMedia>, takes: impl Fn(&PlainMedia) -> bool) {
    media.retain(|one| {
        let is_taken = takes(one);
        if !is_taken {
            if !text.is_empty() {
                text.push_str("\n\n");
            }
            append(text, format_args!("(attached: {}, which this model cannot read)", one.about));
        }
        is_taken
    });
}

#[cfg(test)]
pub(super) mod tests {
    use clawnode_proto::{Digest, llm::Role};

    use super::*;
    use crate::llm::{PlainReply, ordered_parts::HeardPart};

    pub(in crate::llm) fn media(media_type: MediaType, name: Option<&str>) -> PlainMedia {
        let content = Bytes::from_static(b"ab");
        let (blob, name) = (Digest::of(&content), name.map(str::to_owned));
        PlainMedia { about: Media { media_type, blob, bytes: 2, name, at: None }, content }
    }

    /// A picture with so many bytes of its message's text before it.
    pub(in crate::llm) fn picture_at(at: u64) -> PlainMedia {
        let mut picture = media(MediaType::Png, None);
        picture.about.at = Some(at);
        picture
    }

    #[test]
    fn a_model_is_told_what_it_is_not_shown() {
        let (png, pdf) = (media(MediaType::Png, None), media(MediaType::Pdf, Some("x.pdf")));
        let both = vec![png.clone(), pdf.clone()];
        let reply = PlainReply {
            id: "1".to_owned(),
            text: String::new(),
            is_error: false,
            media: both.clone(),
        };
        let mut messages = [PlainMessage {
            media: both,
            tool_replies: vec![reply],
            ..PlainMessage::text(Role::User, "see")
        }];
        in_words(&mut messages, |one| one.media_type() == MediaType::Png);
        let [message] = messages;
        let told = "(attached: a PDF \"x.pdf\", 2 bytes, which this model cannot read)";
        assert_eq!(message.text, format!("see\n\n{told}"));
        assert_eq!(message.media, std::slice::from_ref(&png));
        assert_eq!(message.tool_replies[0].text, told);
        assert_eq!(message.tool_replies[0].media, [png]);
        // What is left keeps its place.
        let picture = picture_at(3);
        let media = vec![picture.clone(), pdf];
        let mut messages = [PlainMessage { media, ..PlainMessage::text(Role::User, "see") }];
        in_words(&mut messages, |one| one.media_type() == MediaType::Png);
        let expected = [HeardPart::Text("see"), HeardPart::Media(&picture), HeardPart::Text(told)];
        assert_eq!(messages[0].heard(), expected);
    }
}
