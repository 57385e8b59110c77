//! Small readers of text.

/// A line without its comment; good enough for code that rustfmt wrote.
pub(super) fn without_comment(line: &str) -> &str {
    match line.find("//") {
        Some(at) if !line.get(..at).unwrap_or_default().ends_with(':') => {
            line.get(..at).unwrap_or_default()
        }
        _ => line,
    }
}

/// Whether `word` is in `line` as a whole word.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    let part = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        let after = line.get(at + word.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

/// The comments and the texts of Rust code, each on a line.
pub(super) fn prose(code: &str) -> String {
    let mut found = String::new();
    for part in parts(code) {
        found.push_str(part.prose);
        found.push('\n');
    }
    // What a text has for the end of a line, or a sign, is no part of a word.
    found.replace("\\n", " ").replace("\\t", " ")
}

/// Rust code without comments, and with empty texts. Its lines have the same numbers.
pub(super) fn code(code: &str) -> String {
    let mut found = String::new();
    for Part { code, prose, is_comment } in parts(code) {
        found.push_str(code);
        if is_comment {
            found.push('\n');
        } else {
            found.extend(prose.chars().filter(|character| *character == '\n'));
        }
    }
    found
}

/// Code, and the comment or the inside of the text that follows.
struct Part<'a> {
    code: &'a str,
    prose: &'a str,
    is_comment: bool,
}

fn parts(code: &str) -> Vec<Part<'_>> {
    let (mut parts, mut left) = (Vec::new(), code);
    // The next delimiter: of a comment, of a text, or of a character, which may be a quote.
    while let Some(at) = left.find(['/', '"', '\'']) {
        let (before, rest) = left.split_at(at);
        let hashes = before.len() - before.trim_end_matches('#').len();
        let is_raw = before.trim_end_matches('#').ends_with('r');
        let is_comment = rest.starts_with("//");
        let (code, prose, after) = if is_comment {
            let (comment, after) = rest.split_once('\n').unwrap_or((rest, ""));
            (before, comment, after)
        } else if let Some(text) = rest.strip_prefix('"') {
            let end = if is_raw { format!("\"{}", "#".repeat(hashes)) } else { "\"".to_owned() };
            let is_end = |at: &usize| {
                let before = text.get(..*at).unwrap_or_default();
                let slashes = before.len() - before.trim_end_matches('\\').len();
                is_raw || slashes.is_multiple_of(2)
            };
            let at = text.match_indices(&end).map(|(at, _)| at).find(is_end);
            let (text, after) = text.split_at(at.unwrap_or(text.len()));
            (before, text, after.strip_prefix(&end).unwrap_or(after))
        } else {
            let is_quote = ["'\"'", "'\\''", "'/'"].iter().find(|quote| rest.starts_with(**quote));
            let (code, after) = left.split_at(at + is_quote.map_or(1, |quote| quote.len()));
            (code, "", after)
        };
        parts.push(Part { code, prose, is_comment });
        left = after;
    }
    parts.push(Part { code: left, prose: "", is_comment: false });
    parts
}

/// The names of invariants in a text: `I1` to `I9`, and words such as `SES-1`.
pub(super) fn invariants(text: &str) -> Vec<String> {
    let mut names: Vec<String> = text
        .split(|character: char| !(character.is_ascii_alphanumeric() || character == '-'))
        .filter(|word| is_invariant(word))
        .map(str::to_owned)
        .collect();
    names.sort();
    names.dedup();
    names
}

fn is_invariant(word: &str) -> bool {
    if let Some(number) = word.strip_prefix('I') {
        return number.len() == 1 && number.bytes().all(|byte| (b'1'..=b'9').contains(&byte));
    }
    let Some((family, number)) = word.split_once('-') else { return false };
    (3..=5).contains(&family.len())
        && family.bytes().all(|byte| byte.is_ascii_uppercase())
        && !NOT_OURS.contains(&family)
        && !number.is_empty()
        && number.len() < 3
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Families of names that only look like invariants.
const NOT_OURS: [&str; 4] = ["UTF", "SHA", "RFC", "ISO"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_end_a_line_but_addresses_do_not() {
        assert_eq!(without_comment("let a = 1; // why"), "let a = 1; ");
        assert_eq!(without_comment("let a = \"http://b\";"), "let a = \"http://b\";");
    }

    #[test]
    fn a_word_stands_alone() {
        assert!(has_word("use sled::Db;", "sled"));
        assert!(!has_word("assembled::x", "sled") && !has_word("sleds", "sled"));
    }

    #[test]
    fn prose_is_comments_and_texts() {
        let code = "//! One.\nlet a = b'\"'; // two\nlet c: &'d str = \"thr\\\"ee // \\n four\"; five\n\
                    r#\"six \"seven\"#; 'x'; 8 / 9; /// ten";
        let words: Vec<String> = prose(code).split_whitespace().map(str::to_owned).collect();
        let expected =
            ["//!", "One.", "//", "two", "thr\\\"ee", "//", "four", "six", "\"seven", "///", "ten"];
        assert_eq!(words, expected);
    }

    #[test]
    fn code_has_no_prose_and_the_same_lines() {
        let given = "a; // b\nc(\"d\n// e\", r#\"f\"#, '\"', 7 / 8);\n/// g\nh";
        assert_eq!(code(given), "a; \nc(\n, r#, '\"', 7 / 8);\n\nh");
    }

    #[test]
    fn invariants_have_short_upper_case_names() {
        let text = "I1, (SES-1); `GATE-12` UTF-8 AI2 I12 x-1 LLM-1: SES-1";
        assert_eq!(invariants(text), ["GATE-12", "I1", "LLM-1", "SES-1"]);
    }
}
