//! The recalled lines that a model is shown, read from its request as they are written there.

use clawnode_proto::{
    llm::{Message, Role},
    recall::{Recalled, RecalledPoint},
};

/// One recalled line that a model is shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShownLine {
    pub(super) label: &'static str,
    /// The id of its point; none of a passage.
    id: String,
    text: String,
}

/// All points of a recall, as they are shown.
pub(super) fn all_points(recalled: &Recalled) -> impl Iterator<Item = &RecalledPoint> {
    recalled.standing.iter().chain(&recalled.points)
}

/// What the journal has, as lines.
pub(super) fn journaled_lines(recalled: &Recalled) -> Vec<ShownLine> {
    let line = |label, point: &RecalledPoint| {
        let (id, text) = (point.point.to_string(), on_one_line(&point.text));
        ShownLine { label, id, text }
    };
    let standing = recalled.standing.iter().map(|point| line("rule", point));
    let points = recalled.points.iter().map(|point| line("fact", point));
    let passages = recalled.passages.iter().map(|passage| {
        let text = on_one_line(&passage.text);
        ShownLine { label: "passage", id: String::new(), text }
    });
    standing.chain(points).chain(passages).collect()
}

/// A label has one line.
fn on_one_line(text: &str) -> String {
    text.trim().replace(char::is_whitespace, " ")
}

/// The labelled lines in what a user is said to have said. No text of this world has a character that is replaced.
pub(super) fn shown_lines(messages: &[Message]) -> Vec<ShownLine> {
    let texts = messages.iter().filter(|message| message.role == Role::User);
    let lines = texts.filter_map(|message| message.content.inline()).flat_map(str::lines);
    lines.filter_map(shown_line).collect()
}

fn shown_line(line: &str) -> Option<ShownLine> {
    let label = ["rule", "fact", "passage"].into_iter().find(|label| {
        line.strip_prefix('<').is_some_and(|rest| rest.starts_with(&format!("{label} ")))
    })?;
    let (head, rest) = line.split_once('>')?;
    let text = rest.strip_suffix(&format!("</{label}>"))?.to_owned();
    let id = head.split_once(" id=\"").and_then(|(_, rest)| rest.split_once('"'));
    let id = id.map(|(id, _)| id.to_owned()).unwrap_or_default();
    Some(ShownLine { label, id, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labelled_lines_are_read_as_they_are_written() {
        let text = "Intro.\n\n<standing>\n<rule id=\"aa\" said_by=\"person\">Always b</rule>\n</standing>\n\n\
                    <recalled>\n<fact id=\"cc\" of=\"all\" said_by=\"agent\" on=\"1970-01-01\">d e</fact>\n\
                    <passage said_by=\"person\" on=\"1970-01-01\">#1 f</passage>\n</recalled>";
        let messages = [Message::text(Role::User, text), Message::text(Role::User, "#2 fact x")];
        let line = |label, id: &str, text: &str| ShownLine {
            label,
            id: id.to_owned(),
            text: text.to_owned(),
        };
        let expected = [
            line("rule", "aa", "Always b"),
            line("fact", "cc", "d e"),
            line("passage", "", "#1 f"),
        ];
        assert_eq!(shown_lines(&messages), expected);
    }
}
