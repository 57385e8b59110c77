//! Where the pictures of a message were, said in its text (`[picture 1]`): Ollama has them beside the text. Pure.

use std::borrow::Cow;

use crate::llm::{PlainMedia, PlainMessage, ordered_parts::HeardPart};

/// The text of a user's message, whose pictures are added to `images`: the wire has them beside the text. If one
/// comes after some of the text, markers say where they are. The API has no marker: Ollama's templates replace
/// `[img]`, and its renderers, which newer models have, do not.
pub(super) fn with_markers<'a>(
    message: &'a PlainMessage,
    images: &mut Vec<String>,
) -> Cow<'a, str> {
    let heard = message.heard();
    if heard.is_sorted_by_key(|part| matches!(part, HeardPart::Text(_))) {
        images.extend(message.media.iter().map(PlainMedia::base64));
        return Cow::from(message.text.as_str());
    }
    let mut lines = Vec::with_capacity(heard.len());
    for part in heard {
        lines.push(match part {
            HeardPart::Text(text) => Cow::from(text),
            HeardPart::Media(media) => {
                images.push(media.base64());
                Cow::from(format!("[picture {}]", images.len()))
            }
        });
    }
    Cow::from(lines.join("\n"))
}
