//! The text of a `SKILL.md`: YAML between two lines `---`, then instructions.
//!
//! The YAML is read event by event: what it may hold is so little that no document of it is ever built. Anchors and
//! aliases are refused, because a short text can mean a very long one by them.

use saphyr_parser::{Event, Parser, StrInput};

/// The line before and after the frontmatter.
const FENCE: &str = "---";
/// Bytes of a frontmatter: eight descriptions of the greatest length.
const HEAD_BYTES: usize = 8 << 10;
/// Characters of a name, of a description and of `compatibility`, as the format has them.
const NAME_CHARS: usize = 64;
const DESCRIPTION_CHARS: usize = 1_024;
const COMPATIBILITY_CHARS: usize = 500;
/// Pairs of `metadata`.
const PAIRS: usize = 64;
/// Triggers of one skill, and characters of one.
const TRIGGERS: usize = 16;
const TRIGGER_CHARS: usize = 100;
/// The pair of `metadata` that has them.
const TRIGGERS_KEY: &str = "triggers";

/// What the frontmatter of a skill says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillHead {
    /// Its name, which its folder has, too.
    pub name: String,
    /// What it is for, and when to use it.
    pub description: String,
    /// Under which license it is.
    pub license: Option<String>,
    /// What it needs around it, in words.
    pub compatibility: Option<String>,
    /// Further pairs, in their order. Lists are written with commas.
    pub metadata: Vec<(String, String)>,
    /// The tools that its author would allow. clawnode shows them and decides by the agent's rules.
    pub allowed_tools: Vec<String>,
    /// What a message says that calls for it, in lower case: `metadata.triggers`.
    pub triggers: Vec<String>,
}

/// A value of a frontmatter.
enum YamlValue {
    Text(String),
    List(Vec<String>),
    Pairs(Vec<(String, YamlValue)>),
}

/// The events of the YAML.
struct YamlReader<'a> {
    events: Parser<'a, StrInput<'a>>,
}

/// The frontmatter and the instructions of a `SKILL.md`.
pub(super) fn parse(text: &str) -> Result<(SkillHead, String), String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (yaml, body) = split(text)?;
    if yaml.len() > HEAD_BYTES {
        return Err(format!("the frontmatter has more than {HEAD_BYTES} bytes"));
    }
    let head = head(YamlReader { events: Parser::new_from_str(yaml) }.document()?)?;
    let body = body.trim();
    if body.is_empty() {
        return Err("no instructions follow the frontmatter".to_owned());
    }
    Ok((head, body.to_owned()))
}

/// What is between the two lines, and what follows.
fn split(text: &str) -> Result<(&str, &str), String> {
    let is_fence = |line: &str| line.trim_end() == FENCE;
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    if !is_fence(first) {
        return Err(format!("it does not begin with a line `{FENCE}`"));
    }
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        let after = at + line.len();
        if is_fence(line) {
            return Ok((rest.get(..at).unwrap_or_default(), rest.get(after..).unwrap_or_default()));
        }
        at = after;
    }
    Err(format!("no second line `{FENCE}` ends the frontmatter"))
}

/// The pairs as what the format says they are. Pairs that it does not know are for other programs.
fn head(pairs: Vec<(String, YamlValue)>) -> Result<SkillHead, String> {
    let mut head = SkillHead::default();
    for (key, value) in pairs {
        match (key.as_str(), value) {
            ("name", value) => head.name = text(&key, value)?,
            ("description", value) => head.description = text(&key, value)?,
            ("license", value) => head.license = some(text(&key, value)?),
            ("compatibility", value) => head.compatibility = some(text(&key, value)?),
            ("allowed-tools", YamlValue::Text(names)) => {
                head.allowed_tools = names.split_whitespace().map(str::to_owned).collect();
            }
            ("allowed-tools", YamlValue::List(names)) => head.allowed_tools = names,
            ("metadata", YamlValue::Pairs(pairs)) => {
                for (key, value) in pairs {
                    head.pair(key, value)?;
                }
            }
            ("metadata", YamlValue::Text(text)) if text.is_empty() => {}
            ("metadata" | "allowed-tools", _) => return Err(format!("`{key}` is of another type")),
            _ => {}
        }
    }
    head.check()?;
    Ok(head)
}

fn text(key: &str, value: YamlValue) -> Result<String, String> {
    match value {
        YamlValue::Text(text) => Ok(text.trim().to_owned()),
        YamlValue::List(_) | YamlValue::Pairs(_) => Err(format!("`{key}` is not text")),
    }
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

// === impl SkillHead ===

impl SkillHead {
    /// Takes a pair of `metadata`.
    fn pair(&mut self, key: String, value: YamlValue) -> Result<(), String> {
        let values: Vec<String> = match value {
            YamlValue::Text(text) if key == TRIGGERS_KEY => {
                text.split(',').map(str::to_owned).collect()
            }
            YamlValue::Text(text) => vec![text],
            YamlValue::List(values) => values,
            YamlValue::Pairs(_) => {
                return Err(format!("`metadata.{key}` is neither text nor a list"));
            }
        };
        if key == TRIGGERS_KEY {
            let triggers = values.iter().map(|trigger| trigger.trim().to_lowercase());
            self.triggers = triggers.filter(|trigger| !trigger.is_empty()).collect();
        }
        self.metadata.push((key, values.join(", ")));
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        name_fault(&self.name).map_or(Ok(()), Err)?;
        let long = |text: &str, most: usize| text.chars().count() > most;
        if self.description.is_empty() {
            return Err(
                "`description` is missing: say what the skill does and when to use it".to_owned()
            );
        }
        if long(&self.description, DESCRIPTION_CHARS) {
            return Err(format!("`description` has more than {DESCRIPTION_CHARS} characters"));
        }
        if self.compatibility.as_deref().is_some_and(|text| long(text, COMPATIBILITY_CHARS)) {
            return Err(format!("`compatibility` has more than {COMPATIBILITY_CHARS} characters"));
        }
        if self.metadata.len() > PAIRS {
            return Err(format!("`metadata` has more than {PAIRS} pairs"));
        }
        if self.triggers.len() > TRIGGERS {
            return Err(format!("`metadata.triggers` has more than {TRIGGERS} entries"));
        }
        if self.triggers.iter().any(|trigger| long(trigger, TRIGGER_CHARS)) {
            return Err(format!("a trigger has more than {TRIGGER_CHARS} characters"));
        }
        // An operator reads these in a terminal, and a model in its prompt.
        if self.description.chars().any(|c| c.is_control() && !c.is_whitespace()) {
            return Err("`description` has control characters in it".to_owned());
        }
        Ok(())
    }
}

/// What is wrong with the name of a skill.
pub(super) fn name_fault(name: &str) -> Option<String> {
    let is_part = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    if name.is_empty() {
        Some("`name` is missing: write the name of the skill's folder".to_owned())
    } else if name.len() > NAME_CHARS {
        Some(format!("`name` has more than {NAME_CHARS} characters"))
    } else if !name.split('-').all(is_part) {
        Some("`name` may have a to z, 0 to 9, and single hyphens between them".to_owned())
    } else {
        None
    }
}

// === impl YamlReader ===

impl<'a> YamlReader<'a> {
    fn next(&mut self) -> Result<Event<'a>, String> {
        match self.events.next_event() {
            Some(Ok((event, _))) => Ok(event),
            Some(Err(error)) => Err(format!(
                "the frontmatter is not YAML: {error}; put text with `: ` or `#` in quotes"
            )),
            None => Err("the frontmatter ends too early".to_owned()),
        }
    }

    /// The pairs of the only document.
    fn document(&mut self) -> Result<Vec<(String, YamlValue)>, String> {
        loop {
            match self.next()? {
                Event::StreamStart | Event::DocumentStart(_) | Event::Nothing => {}
                Event::MappingStart(0, _) => break,
                _ => return Err("the frontmatter is not a list of `key: value`".to_owned()),
            }
        }
        let pairs = self.pairs(0)?;
        loop {
            match self.next()? {
                Event::DocumentEnd | Event::Nothing => {}
                Event::StreamEnd => return Ok(pairs),
                _ => return Err("the frontmatter has a second document".to_owned()),
            }
        }
    }

    /// The pairs of a mapping that has begun, inside so many others.
    fn pairs(&mut self, depth: u32) -> Result<Vec<(String, YamlValue)>, String> {
        let mut pairs: Vec<(String, YamlValue)> = Vec::new();
        loop {
            let key = match self.next()? {
                Event::MappingEnd => return Ok(pairs),
                Event::Scalar(key, _, 0, _) => key.into_owned(),
                _ => return Err("a key of the frontmatter is not text".to_owned()),
            };
            if pairs.iter().any(|(other, _)| *other == key) {
                return Err(format!("`{key}` is there twice"));
            }
            let value = match self.next()? {
                Event::Scalar(text, style, 0, _) => YamlValue::Text(scalar(&text, style)),
                Event::SequenceStart(0, _) => YamlValue::List(self.list(&key)?),
                Event::MappingStart(0, _) if depth == 0 => YamlValue::Pairs(self.pairs(depth + 1)?),
                Event::MappingStart(0, _) => return Err(format!("`{key}` is nested too deep")),
                Event::Alias(_)
                | Event::Scalar(..)
                | Event::SequenceStart(..)
                | Event::MappingStart(..) => {
                    return Err(format!(
                        "`{key}` has an anchor or an alias, which skills may not have"
                    ));
                }
                _ => return Err(format!("`{key}` has no value")),
            };
            pairs.push((key, value));
        }
    }

    /// The texts of a list that has begun.
    fn list(&mut self, key: &str) -> Result<Vec<String>, String> {
        let mut list = Vec::new();
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(list),
                Event::Scalar(text, style, 0, _) => list.push(scalar(&text, style)),
                _ => return Err(format!("`{key}` has an entry that is not text")),
            }
        }
    }
}

/// A text, or nothing where YAML means nothing.
fn scalar(text: &str, style: saphyr_parser::ScalarStyle) -> String {
    let is_nothing = style == saphyr_parser::ScalarStyle::Plain && matches!(text, "~" | "null");
    if is_nothing { String::new() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<SkillHead, String> {
        parse(&format!("---\n{yaml}\n---\nDo it.")).map(|(head, _)| head)
    }

    #[test]
    fn a_skill_is_its_frontmatter_and_its_text() {
        let text = "\u{feff}---\r\nname: pdf-forms\r\ndescription: >\r\n  Fills forms.\r\n  Use it for PDFs.\r\n\
                    license: Apache-2.0\r\ncompatibility: needs qpdf\r\nmetadata:\r\n  author: ada\r\n  version: \"1.0\"\r\n  \
                    triggers: Fill the form, PDF\r\nallowed-tools: Bash(qpdf:*) Read\r\nmodel: other\r\n--- \r\n\r\n# Forms\r\n---\r\nmore\r\n";
        let (head, body) = parse(text).unwrap();
        assert_eq!(head.name, "pdf-forms");
        assert_eq!(head.description, "Fills forms. Use it for PDFs.");
        assert_eq!(head.license.as_deref(), Some("Apache-2.0"));
        assert_eq!(head.compatibility.as_deref(), Some("needs qpdf"));
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let triggers = pair("triggers", "Fill the form,  PDF");
        assert_eq!(head.metadata[..2], [pair("author", "ada"), pair("version", "1.0")]);
        assert_eq!(head.metadata[2], triggers);
        assert_eq!(head.allowed_tools, ["Bash(qpdf:*)", "Read"]);
        assert_eq!(head.triggers, ["fill the form", "pdf"]);
        assert_eq!(body, "# Forms\r\n---\r\nmore");
        let listed = "name: a\ndescription: b\nmetadata:\n  triggers: [One, 'two, three']";
        assert_eq!(read(listed).unwrap().triggers, ["one", "two, three"]);
    }

    #[test]
    fn what_the_format_forbids_is_named() {
        let long = |key: &str, count: usize| format!("{key}: {}", "x".repeat(count));
        let named = |name: &str| format!("name: {name}\ndescription: b");
        let good = "name: a\ndescription: b\n";
        assert!(read(&named(&"a".repeat(64))).is_ok());
        for (yaml, why) in [
            ("description: b".to_owned(), "`name` is missing"),
            (named(&"a".repeat(65)), "more than 64"),
            (named("Upper"), "a to z"),
            (named("../etc"), "a to z"),
            (named("a/b"), "a to z"),
            (named("-a"), "a to z"),
            (named("a--b"), "a to z"),
            (named("ä"), "a to z"),
            ("name: a".to_owned(), "`description` is missing"),
            ("name: a\ndescription: ~".to_owned(), "`description` is missing"),
            (format!("name: a\n{}", long("description", 1_025)), "more than 1024"),
            (format!("name: a\n{}", long("description", 9_000)), "more than 8192 bytes"),
            (format!("{good}{}", long("compatibility", 501)), "more than 500"),
            (format!("{good}name: c"), "twice"),
            (format!("{good}metadata: 7x\n"), "`metadata` is of another type"),
            (format!("{good}metadata:\n  a:\n    b: c"), "nested too deep"),
            (format!("{good}metadata:\n  triggers: [{}]", "a,".repeat(17)), "more than 16"),
            (format!("{good}license: [a]"), "`license` is not text"),
            ("- a".to_owned(), "not a list of `key: value`"),
            ("name: a\ndescription: Use: it".to_owned(), "not YAML"),
            ("name: \"a".to_owned(), "not YAML"),
            ("name: a\ndescription: \"b\\u0007\"".to_owned(), "control characters"),
        ] {
            let error = read(&yaml).unwrap_err();
            assert!(error.contains(why), "{yaml}: {error}");
        }
        for (text, why) in [
            ("", "does not begin"),
            ("# no", "does not begin"),
            ("---\nname: a\n", "no second line"),
            ("---\nname: a\ndescription: b\n---\n \n", "no instructions"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    /// A few bytes that mean gigabytes, and a depth that would use up a stack.
    #[test]
    fn what_would_cost_too_much_is_refused_at_once() {
        let bomb = "a: &a [x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nname: a\ndescription: b";
        assert!(read(bomb).unwrap_err().contains("anchor"));
        assert!(read("name: a\ndescription: *x").is_err());
        let deep = format!("name: a\ndescription: b\nmetadata: {}", "[".repeat(4_000));
        assert!(read(&deep).is_err());
        let deep = format!("name: a\ndescription: b\nmetadata: {}", "{a: ".repeat(1_500));
        assert!(read(&deep).is_err());
    }
}
