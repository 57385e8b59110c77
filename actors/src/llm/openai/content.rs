//! The content of a message on `OpenAI`'s wire, and the markers up to which a provider caches it.

use std::borrow::Cow;

use clawnode_proto::media::{MediaKind, MediaType};
use serde::Serialize;

use crate::llm::{PlainMedia, PlainMessage, ordered_parts::HeardPart};

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum OpenAiContent<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<ContentPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ContentPart<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheMarker>,
    },
    ImageUrl {
        image_url: ImageUrl,
    },
    InputAudio {
        input_audio: InputAudio,
    },
    File {
        file: FileData,
    },
}

/// Up to where a provider is to keep what a request begins with, for the shortest time, as Anthropic has it.
#[derive(Clone, Copy, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum CacheMarker {
    Ephemeral,
}

#[derive(Serialize)]
pub(super) struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
pub(super) struct InputAudio {
    data: String,
    format: &'static str,
}

#[derive(Serialize)]
pub(super) struct FileData {
    filename: String,
    file_data: String,
}

// === impl OpenAiContent ===

impl OpenAiContent<'_> {
    /// Makes a text a part, also where no marker follows, so that a message looks the same in each request.
    pub(super) fn split(&mut self) {
        match self {
            // Providers refuse a blank part.
            Self::Text(text) if !text.trim().is_empty() => {
                let text = std::mem::take(text);
                *self = Self::Parts(vec![ContentPart::text(text)]);
            }
            Self::Text(_) | Self::Parts(_) => {}
        }
    }

    /// Marks its last part of text; no other part takes a marker.
    pub(super) fn mark(&mut self) {
        let Self::Parts(parts) = self else { return };
        let marker = parts.iter_mut().rev().find_map(|part| match part {
            ContentPart::Text { cache_control, .. } => Some(cache_control),
            _ => None,
        });
        if let Some(marker) = marker {
            *marker = Some(CacheMarker::Ephemeral);
        }
    }
}

// === impl ContentPart ===

impl<'a> ContentPart<'a> {
    const fn text(text: Cow<'a, str>) -> Self {
        Self::Text { text, cache_control: None }
    }

    fn heard(part: HeardPart<'a>) -> Self {
        match part {
            HeardPart::Text(text) => Self::text(Cow::Borrowed(text)),
            HeardPart::Media(media) => Self::of(media),
        }
    }

    fn of(media: &PlainMedia) -> Self {
        match media.media_type().kind() {
            MediaKind::Image => Self::ImageUrl { image_url: ImageUrl { url: media.data_url() } },
            MediaKind::Document => {
                let (filename, file_data) = (media.file_name(), media.data_url());
                Self::File { file: FileData { filename, file_data } }
            }
            MediaKind::Audio => {
                let format = if media.media_type() == MediaType::Wav { "wav" } else { "mp3" };
                Self::InputAudio { input_audio: InputAudio { data: media.base64(), format } }
            }
        }
    }
}

/// The parts of a user's message that has attachments, or follows replies that have some: a tool's
/// message takes text alone. `wire_id` gives the id that the request has for a tool call.
pub(super) fn content_parts<'a>(
    message: &'a PlainMessage,
    wire_id: impl Fn(&'a str) -> Cow<'a, str>,
) -> Vec<ContentPart<'a>> {
    let mut parts = Vec::new();
    for reply in message.tool_replies.iter().filter(|reply| !reply.media.is_empty()) {
        let text = Cow::Owned(format!("(from the tool call `{}`)", wire_id(reply.id.as_str())));
        parts.push(ContentPart::text(text));
        parts.extend(reply.media.iter().map(ContentPart::of));
    }
    if !(parts.is_empty() && message.media.is_empty()) {
        parts.extend(message.heard().into_iter().map(ContentPart::heard));
    }
    parts
}
