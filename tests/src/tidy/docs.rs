//! What documents say, and whether the code agrees.

use std::collections::BTreeSet;

use super::{
    Check, File, Findings, Tree,
    scan::{has_word, invariants},
};

/// Where invariants are written down.
const ARCHITECTURE: &str = "ARCHITECTURE.md";
/// The most lines that it may have, so that a new reader gets through it.
const ARCHITECTURE_LINES: usize = 400;

pub(super) const ARCHITECTURE_IS_SHORT: Check = Check {
    name: "ARCHITECTURE.md is short",
    run: |tree| {
        let mut findings = Findings::default();
        if let Some(file) = tree.get(ARCHITECTURE) {
            findings.scanned += 1;
            let lines = file.text.lines().count();
            if lines > ARCHITECTURE_LINES {
                let text = "move details to docs/internals";
                findings.found.push(format!("{ARCHITECTURE}: {lines} lines; {text}"));
            }
        }
        findings
    },
    bad: &[(ARCHITECTURE, TOO_LONG)],
};

/// More lines than the document may have.
const TOO_LONG: &str = {
    const NEW_LINES: [u8; ARCHITECTURE_LINES + 1] = [b'\n'; ARCHITECTURE_LINES + 1];
    match std::str::from_utf8(&NEW_LINES) {
        Ok(text) => text,
        Err(_) => "",
    }
};

pub(super) const ONE_TITLE_EACH: Check = Check {
    name: "a document has one title, first of all",
    run: |tree| {
        let mut findings = Findings::default();
        for file in tree.ending("md") {
            findings.scanned += 1;
            let titles = prose(file).filter(|(_, line)| line.starts_with("# ")).count();
            if titles != 1 || !file.text.starts_with("# ") {
                findings.found.push(format!("{}: {titles} titles", file.path));
            }
        }
        findings
    },
    bad: &[("A.md", "# A\n\n# B\n")],
};

pub(super) const LINKS_LEAD_SOMEWHERE: Check = Check {
    name: "links between files lead somewhere",
    run: |tree| {
        let mut findings = Findings::default();
        for file in tree.ending("md") {
            for (number, target, path) in links(file) {
                findings.scanned += 1;
                if !is_there(tree, &path) {
                    findings.found.push(format!("{}:{number}: `{target}`", file.path));
                }
            }
        }
        findings
    },
    bad: &[("A.md", "# A\n\n[b](b.md)\n"), ("a/B.md", "# B\n\n[c](../c.md)\n")],
};

/// Where readers look for a page.
const INDEX: &str = "docs/README.md";

pub(super) const THE_INDEX_HAS_EVERY_PAGE: Check = Check {
    name: "docs/README.md links every page of docs",
    run: |tree| {
        let known: BTreeSet<String> =
            tree.get(INDEX).into_iter().flat_map(links).map(|(_, _, path)| path).collect();
        let mut findings = Findings::default();
        for file in tree.ending("md") {
            if file.path.starts_with("docs/") && file.path != INDEX {
                findings.scanned += 1;
                if !known.contains(&file.path) {
                    findings.found.push(format!("{}: {INDEX} has no link to it", file.path));
                }
            }
        }
        findings
    },
    bad: &[(INDEX, "# Index\n\n[a](a.md)\n"), ("docs/a.md", "# A\n"), ("docs/b/c.md", "# C\n")],
};

/// The links of a document to files, each with its line, as it is written and from the root of the repository.
fn links(file: &File) -> impl Iterator<Item = (usize, &str, String)> {
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    prose(file).flat_map(move |(number, line)| {
        line.split("](").skip(1).filter_map(move |link| {
            let target = link.split([')', '#']).next().unwrap_or_default();
            let is_file = !target.is_empty() && !target.contains("://") && target != "LICENSE";
            is_file.then(|| (number, target, linked(folder, target)))
        })
    })
}

/// Whether this is a file, or a folder with files.
fn is_there(tree: &Tree, path: &str) -> bool {
    let is_in = |file: &File| {
        path.is_empty()
            || file
                .path
                .strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    tree.files.iter().any(is_in)
}

/// What a link in this folder leads to, from the root of the repository.
fn linked(folder: &str, target: &str) -> String {
    let mut path: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(path.pop()),
            part => path.push(part),
        }
    }
    path.join("/")
}

pub(super) const INVARIANTS_ARE_WRITTEN_DOWN: Check = Check {
    name: "every invariant that the code names is in ARCHITECTURE.md",
    run: |tree| {
        let written = written(tree);
        let mut findings = Findings::default();
        for file in tree.ending("rs").filter(|file| file.is_product()) {
            for (number, line) in file.code() {
                for name in invariants(line) {
                    findings.scanned += 1;
                    if !written.contains(&name) {
                        findings.found.push(format!("{}:{number}: `{name}`", file.path));
                    }
                }
            }
        }
        findings
    },
    bad: &[("proto/src/a.rs", "//! ABC-1: a rule.\n")],
};

/// Invariants that no test names yet. I7 holds by construction: no event carries a frame.
const UNTESTED: [&str; 1] = ["I7"];

pub(super) const INVARIANTS_ARE_TESTED: Check = Check {
    name: "every invariant in ARCHITECTURE.md is named by the code and by a test",
    run: |tree| {
        let mut findings = Findings::default();
        for name in written(tree) {
            findings.scanned += 1;
            let lower = format!("{}_", name.to_lowercase().replace('-', "_"));
            let in_code = |(_, line): (usize, &str)| has_word(line, &name);
            let in_test = |(_, line): (usize, &str)| {
                has_word(line, &name) || line.contains("fn ") && line.contains(&lower)
            };
            let rust =
                || tree.ending("rs").filter(|file| !file.path.starts_with("tests/src/tidy/"));
            if !rust().filter(|file| file.is_product()).any(|file| file.code().any(in_code)) {
                findings.found.push(format!("`{name}`: no code names it"));
            }
            let tested = rust().any(|file| file.tests().any(in_test)) || is_simulated(tree, &name);
            if !tested && !UNTESTED.contains(&name.as_str()) {
                findings.found.push(format!("`{name}`: no test names it"));
            }
        }
        findings
    },
    bad: &[("ARCHITECTURE.md", "# A\n\n## Invariants\n\nABC-1: a rule.\n")],
};

/// The simulator checks invariants after every step; what it names is tested by its seeds.
fn is_simulated(tree: &Tree, name: &str) -> bool {
    tree.ending("rs")
        .filter(|file| file.path.starts_with("actors/simulator/src/"))
        .any(|file| file.code().any(|(_, line)| line.contains('"') && has_word(line, name)))
}

/// The names in the chapter on invariants.
fn written(tree: &Tree) -> BTreeSet<String> {
    let Some(file) = tree.get(ARCHITECTURE) else { return BTreeSet::new() };
    let mut inside = false;
    let mut names = BTreeSet::new();
    for line in file.text.lines() {
        if line.starts_with("## ") {
            inside = line.contains("Invariants");
        }
        if inside {
            names.extend(invariants(line));
        }
    }
    names
}

/// The lines of a document that are not in a block of code.
fn prose(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    file.numbered().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_names_a_file_or_a_folder_whole() {
        let pages = [("docs/a/page.md", "# Page\n"), ("docs/a/other.rs", "//! Other.\n")];
        for (link, leads) in [
            ("docs/a/page.md", true),
            ("docs/a/page.md#part", true),
            ("./docs/../docs/a/page.md", true),
            ("docs/a", true),
            ("docs/a/", true),
            ("docs/a/page.m", false),
            ("docs/a/page", false),
            ("docs/a/p", false),
            ("doc", false),
            ("docs/a/page.md/more", false),
        ] {
            let text = format!("# Start\n\nSee [a page]({link}).\n");
            let mut tree = Tree::of(&pages);
            tree.files.push(File { path: "START.md".to_owned(), text });
            let findings = (LINKS_LEAD_SOMEWHERE.run)(&tree);
            assert_eq!(findings.found.is_empty(), leads, "{link}: {findings:?}");
        }
    }
}
