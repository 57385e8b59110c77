//! Names of variables: each says what it holds.

use super::{Check, Findings, scan};

/// Words that say nothing about a value. Fields may have them: some are names on the wire.
const EMPTY: [&str; 3] = ["it", "of", "on"];

pub(super) const VARIABLES_SAY_WHAT_THEY_HOLD: Check = Check {
    name: "no variable and no parameter is called `it`, `of` or `on`",
    run: |tree| {
        let mut findings = Findings::default();
        for file in tree.ending("rs") {
            let code = scan::code(&file.text);
            let tokens = tokens(&code);
            findings.scanned += tokens.len();
            let found = variables(&tokens).into_iter();
            findings.found.extend(found.map(|token| {
                format!("{}:{}: `{}`: name what it holds", file.path, token.line, token.text)
            }));
        }
        findings
    },
    bad: &[("bench/src/a.rs", "//! A.\nfn b(c: &[u8]) {\n    c.iter().any(|it| *it > 0)\n}\n")],
};

/// A word, or one sign.
#[derive(Clone, Copy, Debug)]
struct Token<'a> {
    line: usize,
    text: &'a str,
}

fn tokens(code: &str) -> Vec<Token<'_>> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    for (number, line) in (1..).zip(code.lines()) {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let end = rest.find(|c| !is_part(c)).filter(|end| *end > 0);
            let end = end.unwrap_or(if is_part(first) { rest.len() } else { first.len_utf8() });
            // The sign or the bracket of a character is no code.
            let end = if first == '\'' { end + quoted(rest) } else { end };
            let (text, after) = rest.split_at(end);
            tokens.push(Token { line: number, text });
            rest = after.trim_start();
        }
    }
    tokens
}

/// How many bytes follow the quote with which this begins, if it begins a character and no lifetime.
fn quoted(rest: &str) -> usize {
    let mut characters = rest.char_indices().skip(1);
    match (characters.next(), characters.next()) {
        (Some((_, '\\')), Some(_)) => characters.find(|(_, c)| *c == '\'').map_or(0, |(at, _)| at),
        (Some(_), Some((at, '\''))) => at,
        _ => 0,
    }
}

/// Where such words are names of values: not after a dot, not in a path, and not before the colon of a
/// field. A later parameter of a closure that has its type looks like a field, and is seen where it is used.
fn variables<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let mut found = Vec::new();
    // The open brackets, and whether they hold a list of imports.
    let mut open: Vec<(&str, bool)> = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let before = |count: usize| at.checked_sub(count).and_then(|at| tokens.get(at));
        let before = |count| before(count).map_or("", |token| token.text);
        let after = |count: usize| tokens.get(at + count).map_or("", |token| token.text);
        match token.text {
            "(" | "[" | "{" => open.push((token.text, before(1) == ":" && before(2) == ":")),
            ")" | "]" | "}" => drop(open.pop()),
            _ => {}
        }
        if !EMPTY.contains(&token.text) {
            continue;
        }
        let (bracket, is_import) = open.last().copied().unwrap_or_default();
        let is_member = before(1) == "." && before(2) != ".";
        let is_path = before(1) == ":" && before(2) == ":" || after(1) == ":" && after(2) == ":";
        let is_function = before(1) == "fn" || after(1) == "(";
        let is_bound = ["let", "mut", "ref", "|"].contains(&before(1));
        let is_field = after(1) == ":" && bracket != "(" && !is_bound;
        if !(is_member || is_path || is_import || is_function || is_field || before(1) == "'") {
            found.push(*token);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(code: &str) -> Vec<usize> {
        variables(&tokens(&scan::code(code))).into_iter().map(|token| token.line).collect()
    }

    #[test]
    fn every_way_to_name_a_value_is_seen() {
        let code = "let it = 1;\nlet mut on: u8 = 2;\nfn a(b: u8, of: u8) {}\nc.map(|(d, it)| it);\n\
                    if let Some(on) = e {}\nmatch f { G::H(of) => i, J { on, .. } => k, L { of: on } => m }\n\
                    n.all(|it: &O| format!(\"{it}\"));\nfor it in p {}\n'(';\nlet q = |r, on: S| 1 + ..on;\n";
        let expected = [1, 2, 3, 4, 4, 5, 6, 6, 6, 7, 8, 10];
        assert_eq!(lines(code), expected);
    }

    #[test]
    fn what_is_no_value_is_let_be() {
        let code = "use a::{get, on};\n/// of it\nstruct B { pub of: C, on: D }\nlet e = F { of: 1, on: g };\n\
                    e.of + h::on(i) + on::J;\nfn of() {}\nof(1);\n\"on {it}\"; 'o'; // it\n";
        assert_eq!(lines(code), [0_usize; 0]);
    }
}
