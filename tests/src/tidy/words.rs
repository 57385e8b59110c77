//! Words that a reader has to guess at, and how many are left in comments, in texts of the program and
//! in documents. The list only gets shorter.

use super::{Check, File, Findings, scan};

/// Words and phrases, and how often each is left. Write what they mean instead: name who acts, and use
/// the terms of the glossary in ARCHITECTURE.md.
const LEFT: &[(&str, usize)] = &[
    ("anew", 0),
    ("are told", 0),
    ("buried", 0),
    // The name of an order on the wire.
    ("bury", 1),
    ("came of", 0),
    ("comes of", 0),
    ("door", 0),
    ("doors", 0),
    ("funeral", 0),
    ("ground", 0),
    ("grounds", 0),
    ("heir", 0),
    ("heirs", 0),
    ("is told", 0),
    // What models are shown of a call whose end is unknown. Journals have digests of that text.
    ("nobody", 1),
    ("of what", 0),
    ("somebody", 0),
    ("stands", 0),
    ("was told", 0),
    ("whoever", 0),
];

/// They are listed here, and the pages of the reference repeat the texts of the code.
const SKIPPED: [&str; 2] = ["tests/src/tidy/words.rs", "docs/reference/"];

/// What else than Rust people read. JSON repeats the texts of the code, too.
const OTHERS: [&str; 5] = ["html", "md", "toml", "txt", "wit"];

pub(super) const THEY_BECOME_FEWER: Check = Check {
    name: "words that readers have to guess at become fewer, and the list says how many are left",
    run: |tree| {
        let is_read = |file: &&File| !SKIPPED.iter().any(|skipped| file.path.starts_with(skipped));
        let code = tree.ending("rs").filter(is_read).map(|file| scan::prose(&file.text));
        let others = OTHERS.iter().flat_map(|ending| tree.ending(ending)).filter(is_read);
        let texts: Vec<String> = code.chain(others.map(|file| file.text.clone())).collect();
        let words: Vec<Vec<&str>> = texts.iter().map(|text| words(text)).collect();
        let mut findings = Findings::default();
        for (phrase, left) in LEFT {
            let phrase_words: Vec<&str> = phrase.split(' ').collect();
            let is_it = |found: &&[&str]| {
                found.iter().zip(&phrase_words).all(|(a, b)| a.eq_ignore_ascii_case(b))
            };
            let count = |words: &Vec<&str>| words.windows(phrase_words.len()).filter(is_it).count();
            let found: usize = words.iter().map(count).sum();
            findings.scanned += words.len();
            if found > *left {
                let what = format!("`{phrase}`: {found}, and {left} were left; use plain words");
                findings.found.push(what);
            } else if found < *left {
                findings
                    .found
                    .push(format!("`{phrase}`: {found} are left; write that into the list"));
            }
        }
        findings
    },
    bad: &[("proto/src/a.rs", "//! A funeral.\n")],
};

fn words(text: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.split(|c| !is_part(c)).filter(|word| !word.is_empty()).collect()
}
