//! Parameters of functions: every value has a name of its own.

use super::{Check, File, Findings, scan::without_comment};

pub(super) const NO_PARAMETER_IS_A_TUPLE: Check = Check {
    name: "no parameter of a function is a tuple",
    run: |tree| {
        let mut findings = Findings::default();
        let is_test = |file: &File| file.is_test() || file.path.ends_with("/tests.rs");
        for file in tree.ending("rs").filter(|file| file.is_product() && !is_test(file)) {
            let lines: Vec<&str> = file.code().map(|(_, line)| without_comment(line)).collect();
            let code = lines.join("\n");
            for (number, parameter) in parameters(&code) {
                findings.scanned += 1;
                if is_tuple(parameter) {
                    let words: Vec<&str> = parameter.split_whitespace().collect();
                    findings.found.push(format!(
                        "{}:{number}: `{}`: a struct with named fields, or parameters",
                        file.path,
                        words.join(" ")
                    ));
                }
            }
        }
        findings
    },
    bad: &[("actors/src/a.rs", "//! A.\nfn add<T>(\n    (one, two): (u8, T),\n) {\n}\n")],
};

/// The parameters of all functions, with the lines on which the functions begin.
fn parameters(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (at, keyword) in code.match_indices("fn ") {
        let (before, rest) = code.split_at(at);
        if before.ends_with(is_part_of_name) {
            continue;
        }
        let list = rest.strip_prefix(keyword).and_then(list);
        let number = before.lines().count().max(1) + usize::from(before.ends_with('\n'));
        found.extend(list.into_iter().flat_map(split).map(|parameter| (number, parameter)));
    }
    found
}

/// What is between the parentheses of a function, of which the text begins with its name.
fn list(function: &str) -> Option<&str> {
    let mut rest = function.trim_start_matches(is_part_of_name);
    if rest.starts_with('<') {
        rest = rest.strip_prefix('<')?.strip_prefix(enclosed(rest)?)?.strip_prefix('>')?;
    }
    if rest.starts_with('(') { enclosed(rest) } else { None }
}

fn is_part_of_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// What is between the bracket with which a text begins, and the one that closes it.
fn enclosed(text: &str) -> Option<&str> {
    let end = depths(text).skip(1).find(|(_, depth)| *depth == 0)?.0;
    text.get(1..end)
}

/// The parts of a list, without empty ones.
fn split(list: &str) -> Vec<&str> {
    let commas = depths(list).filter(|(at, depth)| *depth == 0 && begins(list, *at, ","));
    let ends = commas.map(|(at, _)| at).chain([list.len()]);
    let mut begin = 0;
    let parts = ends.map(|end| {
        let part = list.get(begin..end).unwrap_or_default().trim();
        begin = end + 1;
        part
    });
    parts.filter(|part| !part.is_empty()).collect()
}

/// Every character's place, and how many brackets are open after it.
fn depths(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let (mut depth, mut before) = (0_usize, ' ');
    text.char_indices().map(move |(at, character)| {
        match character {
            '(' | '[' | '{' | '<' => depth += 1,
            // An arrow is no bracket.
            '>' if before == '-' || before == '=' => {}
            ')' | ']' | '}' | '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        before = character;
        (at, depth)
    })
}

fn begins(text: &str, at: usize, with: &str) -> bool {
    text.get(at..).is_some_and(|rest| rest.starts_with(with))
}

/// Whether it is several values in one, by its pattern or by its type.
fn is_tuple(parameter: &str) -> bool {
    let mut outside = depths(parameter).filter(|(_, depth)| *depth == 0);
    // One without a type is `self`, or a value of a property test.
    let Some((colon, _)) = outside.find(|(at, _)| begins(parameter, *at, ": ")) else {
        return false;
    };
    let (pattern, kind) = parameter.split_at(colon);
    [pattern, kind.trim_start_matches(": ")].into_iter().any(has_parts)
}

/// Whether this pattern or type has several parts in parentheses.
fn has_parts(text: &str) -> bool {
    let text = text.trim_start_matches('&').trim_start_matches("mut ");
    text.starts_with('(') && enclosed(text).is_some_and(|inside| split(inside).len() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuples(code: &str) -> Vec<(usize, &str)> {
        parameters(code).into_iter().filter(|(_, parameter)| is_tuple(parameter)).collect()
    }

    #[test]
    fn tuples_are_found_by_pattern_and_by_type() {
        let code = "pub fn a(&self, (b, c): &(B, C), d: D) {}\n\n    fn e<F: Fn(u8) -> u8>(\n        \
                    g: F,\n        mut h: &mut (H, Vec<(I, J)>),\n    ) {}\nfn k((l, m): L) {}\n";
        let found = [(1, "(b, c): &(B, C)"), (3, "mut h: &mut (H, Vec<(I, J)>)"), (7, "(l, m): L")];
        assert_eq!(tuples(code), found);
        assert_eq!(parameters(code).len(), 6);
    }

    #[test]
    fn what_is_no_tuple_is_let_be() {
        let code = "fn a((): &(), b: &(dyn Fn(A, B) -> (C, D) + Sync), c: Vec<(E, F)>, [d, e]: [G; 2])\n\
                    fn f(Path((g, h)): Path<(G, H)>) -> (I, J) { let k = |(l, m): (L, M)| l; }\n";
        assert_eq!(tuples(code), []);
    }
}
