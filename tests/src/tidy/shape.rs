//! How files look.

use std::collections::BTreeMap;

use super::{Check, File, Findings, Tree, scan::without_comment};

/// Lines of a file without its tests.
const LINES: usize = 500;
/// Files that were longer when the rule was made, and how long they may be at most.
const LONG: [(&str, usize); 1] = [("actors/kernel/src/machine/mod.rs", 510)];

pub(super) const FILES_ARE_SHORT: Check = Check {
    name: "files are at most 500 lines long without their tests",
    run: |tree| {
        let limits = BTreeMap::from(LONG);
        let mut findings = Findings::default();
        for file in tree.ending("rs").filter(|file| !file.is_test()) {
            findings.scanned += 1;
            let lines = file.code().count();
            let limit = limits.get(file.path.as_str()).copied().unwrap_or(LINES);
            if lines > limit {
                findings.found.push(format!("{}: {lines} lines; at most {limit}", file.path));
            }
        }
        findings
    },
    bad: &[("proto/src/long.rs", LONG_FILE)],
};

/// More lines than a file may have.
const LONG_FILE: &str = {
    const NEW_LINES: [u8; LINES + 1] = [b'\n'; LINES + 1];
    match std::str::from_utf8(&NEW_LINES) {
        Ok(text) => text,
        Err(_) => "",
    }
};

pub(super) const FILES_SAY_WHAT_THEY_ARE: Check = Check {
    name: "every file begins with `//!`",
    run: |tree| {
        let mut findings = Findings::default();
        for file in tree.ending("rs") {
            findings.scanned += 1;
            if !file.text.starts_with("//! ") {
                findings.found.push(format!("{}:1: does not say what the file is for", file.path));
            }
        }
        findings
    },
    bad: &[("proto/src/silent.rs", "use std::fmt;\n")],
};

/// `mod.rs` files that held code when the rule was made, and how many functions at most.
const CODE: [(&str, usize); 4] = [
    ("actors/kernel/src/driver/mod.rs", 1),
    ("actors/kernel/src/machine/mod.rs", 23),
    ("nodes/src/cli/doctor/mod.rs", 5),
    ("tests/src/conformance/mod.rs", 3),
];

pub(super) const MOD_FILES_HOLD_NO_CODE: Check = Check {
    name: "`mod.rs` holds documents, traits, `mod` lines and re-exports",
    run: |tree| {
        let limits = BTreeMap::from(CODE);
        let mut findings = Findings::default();
        for file in tree.ending("rs").filter(|file| file.path.ends_with("/mod.rs")) {
            findings.scanned += 1;
            let bodies = bodies(file);
            let limit = limits.get(file.path.as_str()).copied().unwrap_or(0);
            if bodies.len() > limit {
                findings.found.push(format!("{}: functions at lines {bodies:?}", file.path));
            }
        }
        findings
    },
    bad: &[("proto/src/a/mod.rs", "//! A.\nfn one(\n    a: u8,\n) -> u8 {\n    a\n}\n")],
};

pub(super) const ACTORS_HAVE_THE_SAME_FILES: Check = Check {
    name: "an actor is in `actor.rs`, beside its `mod.rs`, `handle.rs` and `state.rs`",
    run: |tree| {
        let mut findings = Findings::default();
        for file in tree.ending("rs").filter(|file| file.is_product()) {
            // One that only tests have has no state to recover.
            if is_for_tests(tree, file)
                || !file.code().any(|(_, line)| without_comment(line).contains(" Actor for "))
            {
                continue;
            }
            findings.scanned += 1;
            let Some(folder) = file.path.strip_suffix("/actor.rs") else {
                findings.found.push(format!("{}: an actor in another file", file.path));
                continue;
            };
            let is_missing = |name: &&&str| tree.get(&format!("{folder}/{name}")).is_none();
            let missing = ["mod.rs", "handle.rs", "state.rs"].iter().filter(is_missing);
            findings
                .found
                .extend(missing.map(|name| format!("{}: no `{name}` beside it", file.path)));
        }
        findings
    },
    bad: &[("actors/src/a/actor.rs", "//! A.\nimpl Actor for A {}\n")],
};

/// Whether the `mod.rs` beside it compiles it for tests alone.
fn is_for_tests(tree: &Tree, file: &File) -> bool {
    let Some((folder, name)) = file.path.strip_suffix(".rs").and_then(|path| path.rsplit_once('/'))
    else {
        return false;
    };
    let gated = format!("#[cfg(feature = \"test-util\")]\nmod {name};\n");
    tree.get(&format!("{folder}/mod.rs")).is_some_and(|parent| parent.text.contains(&gated))
}

/// The lines on which functions with a body begin.
fn bodies(file: &File) -> Vec<usize> {
    let (mut found, mut open) = (Vec::new(), None);
    for (number, line) in file.code() {
        let line = without_comment(line).trim();
        if line.starts_with("fn ") || line.contains(" fn ") && line.contains('(') {
            open = Some(number);
        }
        match open {
            Some(begin) if line.ends_with('{') || line.ends_with('}') => {
                found.push(begin);
                open = None;
            }
            Some(_) if line.ends_with(';') => open = None,
            _ => {}
        }
    }
    found
}

pub(super) const EVERY_FILE_IS_REACHED: Check = Check {
    name: "every source file is named by a `mod` line",
    run: |tree| {
        let mut findings = Findings::default();
        for file in tree.ending("rs").filter(|file| file.path.contains("/src/")) {
            let Some((folder, name)) = file.path.rsplit_once('/') else { continue };
            let root = ["lib.rs", "main.rs"].contains(&name) || folder.ends_with("/bin");
            if root {
                continue;
            }
            findings.scanned += 1;
            let (parent, module) = if name == "mod.rs" {
                let Some(split) = folder.rsplit_once('/') else { continue };
                split
            } else {
                (folder, name.trim_end_matches(".rs"))
            };
            if !declares(tree, parent, module) {
                findings.found.push(format!("{}: no `mod {module};` in `{parent}`", file.path));
            }
        }
        findings
    },
    bad: &[("proto/src/lib.rs", "//! A.\nmod b;\n"), ("proto/src/a.rs", "//! A.\n")],
};

fn declares(tree: &Tree, folder: &str, module: &str) -> bool {
    let line = format!("mod {module};");
    ["mod.rs", "lib.rs", "main.rs"]
        .iter()
        .filter_map(|name| tree.get(&format!("{folder}/{name}")))
        .any(|file| file.text.lines().any(|other| other.trim().ends_with(&line)))
}

pub(super) const TESTS_OF_PROGRAMS_ARE_RUN: Check = Check {
    name: "no program has tests while its manifest says `test = false`",
    run: |tree| {
        let mut findings = Findings::default();
        for file in tree.ending("toml").filter(|file| file.path.ends_with("Cargo.toml")) {
            let folder = file.path.trim_end_matches("Cargo.toml");
            for program in file.text.split("[[bin]]").skip(1) {
                let program = program.split("\n[").next().unwrap_or_default();
                let name = program.lines().find_map(|line| line.strip_prefix("name = "));
                let Some(name) = name.filter(|_| program.contains("test = false")) else {
                    continue;
                };
                findings.scanned += 1;
                let source = format!("{folder}src/bin/{}.rs", name.trim_matches('"'));
                let has_tests = |file: &File| file.text.contains("#[cfg(test)]");
                if tree.get(&source).is_some_and(has_tests) {
                    findings.found.push(format!("{source}: its tests are not run"));
                }
            }
        }
        findings
    },
    bad: &[
        ("a/Cargo.toml", "[[bin]]\nname = \"b\"\ntest = false\n\n[dependencies]\n"),
        ("a/src/bin/b.rs", "//! B.\n#[cfg(test)]\nmod tests {}\n"),
    ],
};

pub(super) const OPTIONS_ARE_DOCUMENTED: Check = Check {
    name: "every field of an `Options` struct says what it means",
    run: |tree| {
        let mut findings = Findings::default();
        for file in tree.ending("rs").filter(|file| file.is_product()) {
            let (mut inside, mut documented) = (false, false);
            for (number, line) in file.code() {
                let line = line.trim();
                if line.starts_with("pub struct ") && line.contains("Options ") {
                    inside = line.ends_with('{');
                } else if line == "}" {
                    inside = false;
                } else if inside && line.starts_with("pub ") {
                    findings.scanned += 1;
                    if !documented {
                        findings.found.push(format!("{}:{number}: {line}", file.path));
                    }
                }
                documented = line.starts_with("///") || documented && line.starts_with("#[");
            }
        }
        findings
    },
    bad: &[("nodes/src/a.rs", "/// A.\npub struct AOptions {\n    pub b: u8,\n}\n")],
};
