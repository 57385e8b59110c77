//! What a tool of an MCP server answers, as an outcome. Text is handed on, and so are pictures, PDFs and
//! sound that a model can be shown; what else there is is named, with its kind and size.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clawnode_kernel::job_machine::Probe;
use clawnode_proto::{
    media::Content,
    tool::{ToolFailure, ToolOutcome},
};
use clawnode_tool::{OUTPUT_BYTES, ShownMedia, append::append};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

use super::session::bounded;

/// Parts of a result that the model gets (1,000); the rest is counted.
const PARTS: usize = 1_000;
/// Characters of a name, an address or a media type.
const SHOWN: usize = 200;

/// The outcome. What a model can be shown is put into `shown`.
pub(super) fn outcome(result: &CallToolResult, shown: &ShownMedia) -> ToolOutcome {
    let mut text = String::new();
    for (at, part) in result.content.iter().enumerate() {
        if at == PARTS || text.len() > OUTPUT_BYTES {
            append(&mut text, format_args!("\n[left out: {} parts]", result.content.len() - at));
            break;
        }
        if at > 0 {
            text.push('\n');
        }
        tell(&mut text, part, shown);
    }
    // It repeats what the text says, where there is text.
    if let Some(structured) = result.structured_content.as_ref().filter(|_| text.is_empty()) {
        text = structured.to_string();
    }
    if result.is_error == Some(true) {
        ToolOutcome::failed(ToolFailure::Failed, text)
    } else {
        ToolOutcome::done(text)
    }
}

/// The answer of a tool that is a probe ([`Probe::told`]), as structured content or as its only
/// text.
pub(super) fn probe(result: &CallToolResult) -> Probe {
    if result.is_error == Some(true) {
        let said = outcome(result, &ShownMedia::default());
        let said = short(said.content.inline().unwrap_or_default());
        return Probe::Unclear(format!("its probe failed: {said}"));
    }
    let text = || match &result.content[..] {
        [ContentBlock::Text(content)] => serde_json::from_str(&content.text).ok(),
        _ => None,
    };
    let answer: Option<Value> = result.structured_content.clone().or_else(text);
    Probe::told(answer.as_ref(), || outcome(result, &ShownMedia::default()))
}

fn tell(text: &mut String, part: &ContentBlock, shown: &ShownMedia) {
    match part {
        ContentBlock::Text(content) => text.push_str(&content.text),
        ContentBlock::Image(image) => {
            let blob = Blob { what: "an image", kind: Some(&image.mime_type), data: &image.data };
            blob.tell(text, None, shown);
        }
        ContentBlock::Audio(audio) => {
            let blob = Blob { what: "a sound", kind: Some(&audio.mime_type), data: &audio.data };
            blob.tell(text, None, shown);
        }
        ContentBlock::ResourceLink(resource_link) => {
            let (name, uri) = (short(&resource_link.name), short(&resource_link.uri));
            append(text, format_args!("[a link to the resource `{name}` at `{uri}`, not read]"));
        }
        ContentBlock::Resource(resource) => match &resource.resource {
            ResourceContents::TextResourceContents { uri, text: inner, .. } => {
                append(text, format_args!("[the resource `{}`]\n{inner}", short(uri)));
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob: data, .. } => {
                let what = format!("the resource `{}`", short(uri));
                let blob = Blob { what: &what, kind: mime_type.as_deref(), data };
                blob.tell(text, Some(uri), shown);
            }
            _ => text.push_str("[a resource of an unknown kind, not shown]"),
        },
        _ => text.push_str("[a part of an unknown kind, not shown]"),
    }
}

/// What is not text.
struct Blob<'a> {
    what: &'a str,
    /// The type that its server claims.
    kind: Option<&'a str>,
    /// In base64.
    data: &'a str,
}

impl Blob<'_> {
    /// Shows it if that can be done, and names it.
    fn tell(&self, text: &mut String, name: Option<&str>, shown: &ShownMedia) {
        let padding = self.data.bytes().rev().take_while(|byte| *byte == b'=').count();
        let bytes = (self.data.len() / 4 * 3).saturating_sub(padding);
        let content = STANDARD.decode(self.data).ok();
        let content = content.and_then(|bytes| Content::new(name, bytes).ok());
        let is_shown = content.is_some_and(|content| shown.show(content));
        let (what, kind) = (self.what, short(self.kind.unwrap_or("an unknown type")));
        let fate = if is_shown { "shown" } else { "not shown" };
        append(text, format_args!("[{what}, {kind}, {bytes} bytes, {fate}]"));
    }
}

fn short(text: &str) -> String {
    bounded(text).chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(result: serde_json::Value) -> ToolOutcome {
        outcome(&serde_json::from_value(result).unwrap(), &ShownMedia::default())
    }

    #[test]
    fn what_a_model_can_be_shown_is_shown() {
        let png = "iVBORw0KGgo=";
        let image = json!({ "type": "image", "data": png, "mimeType": "image/gif" });
        let text = json!({ "type": "image", "data": "aGVsbG8=", "mimeType": "image/png" });
        let broken = json!({ "type": "audio", "data": "?", "mimeType": "audio/wav" });
        let resource =
            json!({ "type": "resource", "resource": { "uri": "a://b/c.png", "blob": png } });
        let result = json!({ "content": [image, text, broken, resource] });
        let shown = ShownMedia::kept();
        let outcome = outcome(&serde_json::from_value(result.clone()).unwrap(), &shown);
        assert_eq!(
            outcome.content.inline().unwrap(),
            "[an image, image/gif, 8 bytes, shown]\n[an image, image/png, 5 bytes, not shown]\n\
             [a sound, audio/wav, 0 bytes, not shown]\n[the resource `a://b/c.png`, an unknown type, \
             8 bytes, shown]"
        );
        let taken = shown.take();
        let names: Vec<_> =
            taken.into_iter().map(|blob| blob.stored(clawnode_proto::Digest::ZERO).name).collect();
        assert_eq!(names, [None, Some("c.png".to_owned())]);
        let unwanted = told(result);
        assert!(!unwanted.content.inline().unwrap().contains("bytes, shown]"), "text alone");
        let many = json!({ "content": vec![image; 9] });
        let outcome = super::outcome(&serde_json::from_value(many).unwrap(), &shown);
        assert!(outcome.content.inline().unwrap().ends_with("8 bytes, not shown]"), "8 at most");
        assert_eq!(shown.take().len(), 8);
    }

    #[test]
    fn text_is_handed_on_and_the_rest_is_named() {
        let image = "A".repeat(4_000);
        let outcome = told(json!({ "content": [
            { "type": "text", "text": "one" },
            { "type": "image", "data": image, "mimeType": "image/png" },
            { "type": "resource_link", "uri": "file:///etc/passwd", "name": "secrets" },
            { "type": "resource", "resource": { "uri": "a://b", "text": "two" } },
            { "type": "resource", "resource": { "uri": "a://c", "blob": "AAAA" } },
        ]}));
        assert_eq!(outcome.failure, None);
        assert_eq!(
            outcome.content.inline().unwrap(),
            "one\n[an image, image/png, 3000 bytes, not shown]\n[a link to the resource `secrets` at \
             `file:///etc/passwd`, not read]\n[the resource `a://b`]\ntwo\n[the resource `a://c`, an \
             unknown type, 3 bytes, not shown]"
        );
    }

    #[test]
    fn a_probe_says_whether_it_happened_or_says_nothing() {
        let text = |text: &str| json!({ "content": [{ "type": "text", "text": text }] });
        let asked = |result: serde_json::Value| probe(&serde_json::from_value(result).unwrap());
        assert_eq!(asked(text(r#"{"happened":false}"#)), Probe::Absent);
        let happened = asked(text(r#"{"happened":true,"result":"sent"}"#));
        assert_eq!(happened, Probe::Happened(ToolOutcome::done("sent")));
        let all = r#"{"happened":true,"at":3}"#;
        assert_eq!(asked(text(all)), Probe::Happened(ToolOutcome::done(all)));
        let structured = json!({ "content": [], "structuredContent": { "happened": false } });
        assert_eq!(asked(structured), Probe::Absent);
        // What is not said in these very words is not guessed.
        let twice = json!([{ "type": "text", "text": r#"{"happened":false}"# },
            { "type": "text", "text": "or was it?" }]);
        for unclear in [
            text("false"),
            text("not happened"),
            text(r#"{"happened":"false"}"#),
            text(r#"{"happened":null}"#),
            text("{}"),
            json!({ "content": [] }),
            json!({ "content": twice }),
            json!({ "content": [{ "type": "text", "text": r#"{"happened":false}"# }], "isError": true }),
        ] {
            let probe = asked(unclear.clone());
            assert!(matches!(probe, Probe::Unclear(_)), "{unclear}: {probe:?}");
        }
    }

    #[test]
    fn errors_are_failures_and_structure_is_json() {
        let outcome =
            told(json!({ "content": [{ "type": "text", "text": "no" }], "isError": true }));
        assert_eq!(outcome, ToolOutcome::failed(ToolFailure::Failed, "no"));
        let outcome = told(json!({ "content": [], "structuredContent": { "b": 1, "a": [2] } }));
        assert_eq!(outcome, ToolOutcome::done(r#"{"a":[2],"b":1}"#));
        let text = json!({ "type": "text", "text": "x" });
        let outcome = told(json!({ "content": vec![text; 3_000] }));
        assert!(outcome.content.inline().unwrap().ends_with("[left out: 2000 parts]"));
    }
}
