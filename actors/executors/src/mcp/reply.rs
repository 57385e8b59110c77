//! What a tool of an MCP server answers, as an outcome. Only text is handed on; what else there is
//! is named, with its kind and size, and never looked into.

use clawnode_kernel::jobs::Probe;
use clawnode_proto::tool::{ToolFailure, ToolOutcome};
use clawnode_tool::{OUTPUT_BYTES, append::append};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

use super::session::bounded;

/// Parts of a result that the model gets (1,000); the rest is counted.
const PARTS: usize = 1_000;
/// Characters of a name, an address or a media type.
const SHOWN: usize = 200;

/// The outcome.
pub(super) fn outcome(result: &CallToolResult) -> ToolOutcome {
    let mut text = String::new();
    for (at, part) in result.content.iter().enumerate() {
        if at == PARTS || text.len() > OUTPUT_BYTES {
            append(&mut text, format_args!("\n[left out: {} parts]", result.content.len() - at));
            break;
        }
        if at > 0 {
            text.push('\n');
        }
        tell(&mut text, part);
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
        let said = outcome(result);
        let said = short(said.content.inline().unwrap_or_default());
        return Probe::Unclear(format!("its probe failed: {said}"));
    }
    let text = || match &result.content[..] {
        [ContentBlock::Text(it)] => serde_json::from_str(&it.text).ok(),
        _ => None,
    };
    let answer: Option<Value> = result.structured_content.clone().or_else(text);
    Probe::told(answer.as_ref(), || outcome(result))
}

fn tell(text: &mut String, part: &ContentBlock) {
    match part {
        ContentBlock::Text(it) => text.push_str(&it.text),
        ContentBlock::Image(it) => blob(text, "an image", Some(&it.mime_type), it.data.len()),
        ContentBlock::Audio(it) => blob(text, "a sound", Some(&it.mime_type), it.data.len()),
        ContentBlock::ResourceLink(it) => {
            let (name, uri) = (short(&it.name), short(&it.uri));
            append(text, format_args!("[a link to the resource `{name}` at `{uri}`, not read]"));
        }
        ContentBlock::Resource(it) => match &it.resource {
            ResourceContents::TextResourceContents { uri, text: inner, .. } => {
                append(text, format_args!("[the resource `{}`]\n{inner}", short(uri)));
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob: data, .. } => {
                let what = format!("the resource `{}`", short(uri));
                blob(text, &what, mime_type.as_deref(), data.len());
            }
            _ => text.push_str("[a resource of an unknown kind, not shown]"),
        },
        _ => text.push_str("[a part of an unknown kind, not shown]"),
    }
}

/// Names what is not text. `base64` is the length of how it came.
fn blob(text: &mut String, what: &str, kind: Option<&str>, base64: usize) {
    let kind = short(kind.unwrap_or("an unknown type"));
    append(text, format_args!("[{what}, {kind}, {} bytes, not shown]", base64 / 4 * 3));
}

fn short(text: &str) -> String {
    bounded(text).chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(result: serde_json::Value) -> ToolOutcome {
        outcome(&serde_json::from_value(result).unwrap())
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
