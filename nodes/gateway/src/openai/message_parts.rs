//! The content of a message: text, or parts of text, pictures, files and sound.

use clawnode_proto::ErrorBody;
use serde_json::Value;

use super::{
    super::{
        attachments::{self, AttachmentError},
        backend::AttachmentSource,
        error::OpenAiError,
        params::parse,
    },
    tools::short,
};

/// Characters of an unknown type that are repeated.
const TYPE_CHARS: usize = 40;
/// Between texts that are apart.
pub(in super::super) const BETWEEN: &str = "\n\n";

/// What a message says.
#[derive(Debug, Default, PartialEq)]
pub(in super::super) struct MessageContent {
    pub(in super::super) text: String,
    pub(in super::super) attachments: Vec<PlacedAttachment>,
}

/// Something to attach.
#[derive(Debug, PartialEq)]
pub(in super::super) struct PlacedAttachment {
    /// How many bytes of the text are before it; absent if there are none.
    pub(in super::super) at: Option<u64>,
    pub(in super::super) source: AttachmentSource,
}

// === impl MessageContent ===

impl MessageContent {
    /// Reads the `content` of a message.
    pub(super) fn read(path: &str, value: Option<&Value>) -> Result<Self, OpenAiError> {
        let mut content = Self::default();
        match value {
            Some(Value::String(text)) => content.text.clone_from(text),
            Some(Value::Array(parts)) => {
                parts.iter().try_for_each(|part| content.part(path, part))?;
            }
            _ => {
                let message = format!("`{path}` is neither text nor a list of parts");
                return Err(OpenAiError::invalid(path, message));
            }
        }
        let counted = attachments::check_count(content.attachments.len());
        counted.map_err(|error| about(path, error))?;
        Ok(content)
    }

    fn part(&mut self, path: &str, part: &Value) -> Result<(), OpenAiError> {
        let kind = part.get("type").and_then(Value::as_str).unwrap_or("untyped");
        let field = |within: &str, name: &str| {
            let value = part.get(within).and_then(|inner| inner.get(name));
            value.and_then(Value::as_str)
        };
        let missing = |name: &str| {
            OpenAiError::invalid(path, format!("a part of type `{kind}` has no `{name}`"))
        };
        if let "text" | "image_url" | "input_audio" | "file" = kind {
            // `cache_control` is a hint that changes no reply: prompts are cached anyway.
            check_fields(path, part, &["type", kind, "cache_control"])?;
        }
        let source = match kind {
            "text" => {
                let text = part.get("text").and_then(Value::as_str);
                self.go_on(text.ok_or_else(|| missing("text"))?);
                return Ok(());
            }
            "image_url" => {
                let url = field("image_url", "url").ok_or_else(|| missing("image_url.url"))?;
                let detail = part.get("image_url").and_then(|value| value.get("detail"));
                check_detail(path, "image_url.detail", detail)?;
                attached(path, attachments::at_url(None, url))?
            }
            "input_audio" => {
                let data = field("input_audio", "data");
                let data = data.ok_or_else(|| missing("input_audio.data"))?;
                let content = attachments::content(None, data);
                attached(path, content.map(AttachmentSource::Content))?
            }
            "file" => match (field("file", "file_id"), field("file", "file_data")) {
                (Some(file), _) => {
                    let file = parse("file_id", file).map_err(|error| about(path, error))?;
                    AttachmentSource::File(file)
                }
                (None, Some(data)) => {
                    attached(path, attachments::at_url(field("file", "filename"), data))?
                }
                (None, None) => return Err(missing("file.file_data")),
            },
            kind => {
                let kind: String = kind.chars().take(TYPE_CHARS).collect();
                let message = format!("content parts of type `{kind}` are not offered");
                return Err(OpenAiError::unsupported(path, message));
            }
        };
        self.attach(source);
        Ok(())
    }

    /// Says more of the same text. The texts before and after an attachment do not run into each other.
    fn go_on(&mut self, text: &str) {
        let place = self.place();
        let last = self.attachments.last().filter(|_| place.is_some());
        let is_after_attachment = last.is_some_and(|last| last.at == place);
        let is_apart = text.is_empty()
            || text.starts_with(char::is_whitespace)
            || self.text.ends_with(char::is_whitespace);
        if is_after_attachment && !is_apart {
            self.text.push_str(BETWEEN);
        }
        self.text.push_str(text);
    }

    /// Says a text that is apart from the one before.
    pub(in super::super) fn say(&mut self, text: &str) {
        if !(self.text.is_empty() || text.is_empty()) {
            self.text.push_str(BETWEEN);
        }
        self.text.push_str(text);
    }

    /// Attaches something after what was said so far.
    pub(in super::super) fn attach(&mut self, source: AttachmentSource) {
        self.attachments.push(PlacedAttachment { at: self.place(), source });
    }

    /// Says what the next message says, too.
    pub(super) fn append(&mut self, next: Self) {
        self.say(&next.text);
        let start = self.text.len().saturating_sub(next.text.len()) as u64;
        self.attachments.extend(next.attachments.into_iter().map(|one| {
            let at = start.saturating_add(one.at.unwrap_or(0));
            PlacedAttachment { at: (at > 0).then_some(at), source: one.source }
        }));
    }

    /// The place after all of its text.
    fn place(&self) -> Option<u64> {
        (!self.text.is_empty()).then_some(self.text.len() as u64)
    }
}

fn attached(
    path: &str,
    read: Result<AttachmentSource, AttachmentError>,
) -> Result<AttachmentSource, OpenAiError> {
    read.map_err(|error| about(path, error.of(&format!("a part of `{path}`"))))
}

/// Refuses fields that are not read. One that is null says nothing.
pub(super) fn check_fields(path: &str, object: &Value, read: &[&str]) -> Result<(), OpenAiError> {
    let fields = object.as_object().into_iter().flatten();
    let mut said = fields.filter(|(_, value)| !value.is_null());
    let Some((name, _)) = said.find(|(name, _)| !read.contains(&name.as_str())) else {
        return Ok(());
    };
    let path = format!("{path}.{}", short(name));
    let what = format!("`{path}` is not used here; leave it out");
    Err(OpenAiError::unsupported(path, what))
}

/// Refuses to choose how closely a model looks at a picture.
pub(super) fn check_detail(
    path: &str,
    name: &str,
    detail: Option<&Value>,
) -> Result<(), OpenAiError> {
    if detail.is_none_or(|detail| detail.is_null() || detail == "auto") {
        return Ok(());
    }
    let message = format!("`{name}`: it is not passed on; leave it out or send `auto`");
    Err(OpenAiError::unsupported(path, message))
}

/// An error that is about a parameter.
pub(super) fn about(path: &str, error: ErrorBody) -> OpenAiError {
    OpenAiError::from(error).about(path)
}

#[cfg(test)]
mod tests {
    use clawnode_proto::ErrorCode;
    use serde_json::json;

    use super::*;

    const PNG: &str = "data:image/png;base64,iVBORw0KGgo=";
    const PDF: &str = "data:application/pdf;base64,JVBERi0xLjc=";

    fn read(parts: &Value) -> Result<MessageContent, OpenAiError> {
        MessageContent::read("messages[0].content", Some(parts))
    }

    fn image(url: &str) -> Value {
        json!({"type": "image_url", "image_url": {"url": url}})
    }

    #[test]
    fn parts_are_text_and_attachments() {
        let detailed = json!({"type": "image_url", "image_url": {"url": PNG, "detail": "auto"}});
        assert_eq!(read(&json!([detailed])).unwrap().attachments.len(), 1);
        let content = read(&json!([
            {"type": "text", "text": "what "},
            image(PNG),
            {"type": "file", "file": {"file_data": PDF, "filename": "x.pdf"}},
            {"type": "input_audio", "input_audio": {"data": "SUQzBAA=", "format": "mp3"}},
            {"type": "file", "file": {"file_id": "file_00000000000000000000000001"}},
            image("https://example.com/a.png"),
            {"type": "file", "file": {"file_data": "https://example.com/b", "filename": "b.pdf"}},
            {"type": "text", "text": "is it?"},
        ]))
        .unwrap();
        assert_eq!(content.text, "what is it?");
        assert_eq!(content.attachments.len(), 6);
        assert!(format!("{:?}", content.attachments[1]).contains("x.pdf"));
        let places: Vec<_> = content.attachments.iter().map(|one| one.at).collect();
        assert_eq!(places, [Some(5); 6]);
        let remote = |at: usize| match &content.attachments[at].source {
            AttachmentSource::Remote(file) => (file.url.as_str(), file.name.as_deref()),
            other => panic!("{other:?}"),
        };
        assert_eq!(remote(4), ("https://example.com/a.png", None));
        assert_eq!(remote(5), ("https://example.com/b", Some("b.pdf")));
    }

    #[test]
    fn attachments_keep_their_places_between_texts() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let placed = |parts: Value| {
            let content = read(&parts).unwrap();
            let places = content.attachments.iter().map(|one| one.at).collect::<Vec<_>>();
            (content.text, places)
        };
        let asked = placed(json!([
            text("Before:"),
            image(PNG),
            text("After:"),
            image(PNG),
            text("what changed?"),
        ]));
        let said = "Before:\n\nAfter:\n\nwhat changed?".to_owned();
        assert_eq!(asked, (said, vec![Some(7), Some(15)]));
        // Bytes count, and before all text there is no place.
        let asked = placed(json!([image(PNG), text("é"), image(PNG), text(""), text("\nb")]));
        assert_eq!(asked, ("é\nb".to_owned(), vec![None, Some(2)]));
        let asked = placed(json!([image(PNG), text("a"), text("b"), image(PNG)]));
        assert_eq!(asked, ("ab".to_owned(), vec![None, Some(2)]), "one text in two parts");
    }

    #[test]
    fn a_field_that_is_not_read_is_refused_by_name() {
        let part = json!({"type": "text", "text": "x", "citations": [1], "cache_control": {}});
        let error = read(&json!([part])).unwrap_err();
        assert_eq!(error.body.code, ErrorCode::Unsupported);
        assert_eq!(error.param.as_deref(), Some("messages[0].content.citations"));
        let part = json!({"type": "text", "text": "x", "citations": null});
        assert_eq!(read(&json!([part])).unwrap().text, "x");
    }

    #[test]
    fn a_part_that_makes_no_sense_is_refused_by_name() {
        let (invalid, unsupported) = (ErrorCode::InvalidParams, ErrorCode::Unsupported);
        for (part, code, says) in [
            (image("data:image/png;base64,!!!"), invalid, "not base64"),
            (image("data:image/png;base64,aGVsbG8="), invalid, "PNG"),
            (image("nonsense"), invalid, "data URL"),
            (image("http://example.com/a.png"), unsupported, "`https`"),
            (json!({"type": "image_url"}), invalid, "image_url.url"),
            (json!({"type": "file", "file": {}}), invalid, "file.file_data"),
            (json!({"type": "file", "file": {"file_id": "x"}}), invalid, "file_id"),
            (json!({"type": "input_audio"}), invalid, "input_audio.data"),
            (json!({"type": "video"}), unsupported, "`video`"),
            (json!({"type": "text"}), invalid, "text"),
            (
                json!({"type": "image_url", "image_url": {"url": PNG, "detail": "high"}}),
                unsupported,
                "`image_url.detail`: it is not passed on; leave it out or send `auto`",
            ),
            (
                json!({"type": "image_url", "image_url": {"url": PNG, "detail": 1}}),
                unsupported,
                "send `auto`",
            ),
        ] {
            let error = read(&json!([part])).unwrap_err();
            assert_eq!(
                (error.body.code, error.param.as_deref()),
                (code, Some("messages[0].content"))
            );
            assert!(error.body.message.contains(says), "{}", error.body.message);
        }
        let many = read(&json!(vec![image(PNG); 9])).unwrap_err();
        assert!(many.body.message.contains("the limit is 8"), "{}", many.body.message);
    }
}
