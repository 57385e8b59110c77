//! A YAML document as a tree that knows the line of each value. Anchors, aliases and tags are refused, because a short
//! text can mean a very long one by them, and values are nested up to a limit.

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};
use serde_json::{Map, Number, Value};

/// Lists and mappings in each other.
const DEPTH: usize = 12;
/// Fields of one mapping.
const FIELDS: usize = 256;

/// What is wrong with a document, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct YamlFault {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
}

/// A value and the line on which it begins, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct YamlNode {
    pub(super) line: usize,
    pub(super) content: YamlContent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum YamlContent {
    /// A text, a number, a truth value or nothing: only a plain one may be anything but a text.
    Scalar {
        text: String,
        is_plain: bool,
    },
    List(Vec<YamlNode>),
    Fields(Vec<YamlField>),
}

/// A field of a mapping. Each name is there once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct YamlField {
    pub(super) name: String,
    /// The line of the name.
    pub(super) line: usize,
    pub(super) value: YamlNode,
}

/// The events of a document.
struct TreeReader<'a> {
    events: Parser<'a, StrInput<'a>>,
    /// The line of the last event.
    line: usize,
}

/// The only document of a text.
pub(super) fn read(text: &str) -> Result<YamlNode, YamlFault> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = TreeReader { events: Parser::new_from_str(text), line: 1 };
    let root = loop {
        match reader.next()? {
            Event::StreamStart | Event::DocumentStart(_) | Event::Nothing => {}
            event => break reader.node(event, 0)?,
        }
    };
    loop {
        match reader.next()? {
            Event::DocumentEnd | Event::Nothing => {}
            Event::StreamEnd => return Ok(root),
            _ => return Err(reader.fault("a second document begins; only one is read")),
        }
    }
}

// === impl YamlNode ===

impl YamlNode {
    /// The error that something is wrong with this value.
    pub(super) fn fault(&self, what: String) -> YamlFault {
        YamlFault { line: self.line, what }
    }

    /// The value as JSON.
    pub(super) fn json(&self) -> Value {
        match &self.content {
            YamlContent::Scalar { text, is_plain: true } => plain(text),
            YamlContent::Scalar { text, is_plain: false } => Value::String(text.clone()),
            YamlContent::List(values) => Value::Array(values.iter().map(Self::json).collect()),
            YamlContent::Fields(fields) => {
                let fields = fields.iter().map(|field| (field.name.clone(), field.value.json()));
                Value::Object(fields.collect::<Map<_, _>>())
            }
        }
    }

    /// The text of a scalar as it was written, which is nothing for `~` and `null`.
    pub(super) fn scalar(&self) -> Option<&str> {
        match &self.content {
            YamlContent::Scalar { is_plain: true, .. } if self.json().is_null() => None,
            YamlContent::Scalar { text, .. } => Some(text),
            YamlContent::List(_) | YamlContent::Fields(_) => None,
        }
    }
}

/// What a plain scalar means. Numbers are those of JSON: `007` is a text. So is a whole number of more digits than are
/// kept, such as a long identifier.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" => Value::Null,
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        text => match serde_json::from_str::<Number>(text) {
            Ok(number) if !number.is_f64() || text.contains(['.', 'e', 'E']) => {
                Value::Number(number)
            }
            Ok(_) | Err(_) => Value::String(text.to_owned()),
        },
    }
}

// === impl TreeReader ===

impl<'a> TreeReader<'a> {
    fn fault(&self, what: &str) -> YamlFault {
        YamlFault { line: self.line, what: what.to_owned() }
    }

    fn next(&mut self) -> Result<Event<'a>, YamlFault> {
        match self.events.next_event() {
            Some(Ok((event, span))) => {
                self.line = span.start.line().max(1);
                Ok(event)
            }
            Some(Err(error)) => {
                let what = format!(
                    "this is not YAML: {}; put text with `: ` or `#` in quotes",
                    error.info()
                );
                Err(YamlFault { line: error.marker().line().max(1), what })
            }
            None => Err(self.fault("the document ends too early")),
        }
    }

    /// The value that begins with an event, inside so many others.
    fn node(&mut self, event: Event<'a>, depth: usize) -> Result<YamlNode, YamlFault> {
        let line = self.line;
        if depth > DEPTH {
            return Err(self.fault("values are nested too deep"));
        }
        let content = match event {
            Event::Scalar(text, style, 0, None) => {
                let is_plain = style == ScalarStyle::Plain;
                YamlContent::Scalar { text: text.into_owned(), is_plain }
            }
            Event::SequenceStart(0, None) => YamlContent::List(self.list(depth)?),
            Event::MappingStart(0, None) => YamlContent::Fields(self.fields(depth)?),
            Event::Alias(_)
            | Event::Scalar(..)
            | Event::SequenceStart(..)
            | Event::MappingStart(..) => {
                return Err(self.fault("an anchor, an alias or a tag is not allowed here"));
            }
            _ => return Err(self.fault("there is no value")),
        };
        Ok(YamlNode { line, content })
    }

    /// The values of a list that has begun.
    fn list(&mut self, depth: usize) -> Result<Vec<YamlNode>, YamlFault> {
        let mut values = Vec::new();
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(values),
                event => values.push(self.node(event, depth + 1)?),
            }
        }
    }

    /// The fields of a mapping that has begun.
    fn fields(&mut self, depth: usize) -> Result<Vec<YamlField>, YamlFault> {
        let mut fields: Vec<YamlField> = Vec::new();
        loop {
            let name = match self.next()? {
                Event::MappingEnd => return Ok(fields),
                Event::Scalar(name, _, 0, None) => name.into_owned(),
                _ => {
                    return Err(self.fault(
                        "the name of a field is not a text; put a text that begins with `{` in quotes",
                    ));
                }
            };
            let line = self.line;
            if fields.iter().any(|other| other.name == name) {
                return Err(self.fault("a field with this name is there twice"));
            }
            if fields.len() >= FIELDS {
                return Err(self.fault("there are too many fields"));
            }
            let event = self.next()?;
            let value = self.node(event, depth + 1)?;
            fields.push(YamlField { name, line, value });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn values_have_types_and_lines() {
        let text = "a: 1\nb: [x, 'true', true, ~, 1.5, 007, \"2\"]\nc:\n  d: |\n    one\n    two\n  e:\nf: [-7, 1e2, 12345678901234567890123]\n";
        let root = read(text).unwrap();
        let wanted = json!({
            "a": 1,
            "b": ["x", "true", true, null, 1.5, "007", "2"],
            "c": {"d": "one\ntwo\n", "e": null},
            "f": [-7, 100.0, "12345678901234567890123"],
        });
        assert_eq!(root.json(), wanted);
        let YamlContent::Fields(fields) = &root.content else { panic!("{root:?}") };
        assert_eq!(fields.iter().map(|field| field.line).collect::<Vec<_>>(), [1, 2, 3, 8]);
        assert_eq!(fields[0].value.scalar(), Some("1"));
        assert_eq!(fields[1].value.scalar(), None);
    }

    #[test]
    fn what_is_refused_has_a_line() {
        let deep = format!("a: {}{}", "[".repeat(50), "]".repeat(50));
        let blocks = "- ".repeat(10_000);
        for (text, line, why) in [
            ("", 1, "no value"),
            ("a: 1\na: 2", 2, "twice"),
            ("a: &x 1\nb: *x", 1, "anchor"),
            ("a: 1\nb: !!str 2", 2, "tag"),
            ("a: {{inputs.x}}", 1, "in quotes"),
            ("a: 1\nb: \"x", 2, "not YAML"),
            (deep.as_str(), 1, "nested too deep"),
            (blocks.as_str(), 1, "nested too deep"),
            ("a: 1\n---\nb: 2", 2, "second document"),
        ] {
            let fault = read(text).unwrap_err();
            assert!(fault.what.contains(why), "{text:.40}: {fault}");
            assert!(fault.line >= line, "{text:.40}: {fault}");
        }
        // The parser reads ahead in brackets, and refuses what is far too deep itself.
        read(&"[".repeat(50_000)).unwrap_err();
    }

    proptest! {
        /// No text ends the process, and each error has a line of the text, or the line after it.
        #[test]
        fn any_text_is_read_or_refused(text in "[a-c:{}\\[\\], \n\"'&*!|>#~-]{0,60}") {
            if let Err(fault) = read(&text) {
                prop_assert!((1..=text.lines().count() + 1).contains(&fault.line), "{}", fault);
            }
        }
    }
}
