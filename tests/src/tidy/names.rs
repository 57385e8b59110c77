//! Names of types: each means one thing in its crate, and in all crates of the product.

use std::collections::BTreeMap;

use super::{
    Check, File, Findings,
    scan::{has_word, without_comment},
};

/// A private part of the type beside it; an idiom that every file may use.
const IDIOM: &str = "Inner";
/// What begins the definition of a type.
const KEYWORDS: [&str; 4] = ["struct", "enum", "trait", "type"];

pub(super) const TYPES_HAVE_NAMES_OF_THEIR_OWN: Check = Check {
    name: "a type's name is used once in its crate",
    run: |tree| {
        let mut findings = Findings::default();
        let mut seen: BTreeMap<(&str, &str), String> = BTreeMap::new();
        let files =
            tree.ending("rs").filter(|file| file.is_product() && !file.path.ends_with("/tests.rs"));
        for file in files {
            let Some((folder, _)) = file.path.split_once("/src/") else { continue };
            for (number, line) in file.code() {
                let Some(name) = defined(without_comment(line)) else { continue };
                findings.scanned += 1;
                let place = format!("{}:{number}", file.path);
                if name == IDIOM {
                    continue;
                }
                if let Some(first) = seen.get(&(folder, name)) {
                    findings.found.push(format!("{place}: `{name}` is also in {first}"));
                } else {
                    seen.insert((folder, name), place);
                }
            }
        }
        findings
    },
    bad: &[
        ("actors/src/a.rs", "//! A.\nstruct Entry {\n"),
        ("actors/src/b.rs", "//! B.\npub(super) enum Entry {\n"),
    ],
};

pub(super) const TYPES_MEAN_ONE_THING: Check = Check {
    name: "a type's name is used once in the crates of the product",
    run: |tree| {
        let mut findings = Findings::default();
        let mut seen: BTreeMap<&str, (&str, String)> = BTreeMap::new();
        let is_for_tests = |file: &File| {
            let in_crate = TEST_CRATES.iter().any(|folder| file.path.starts_with(folder));
            in_crate || tree.is_for_tests(file)
        };
        for file in tree.ending("rs").filter(|file| file.is_product() && !is_for_tests(file)) {
            let Some((folder, _)) = file.path.split_once("/src/") else { continue };
            for (number, line) in file.code() {
                let Some(name) = defined(without_comment(line)) else { continue };
                findings.scanned += 1;
                if name == IDIOM {
                    continue;
                }
                let place = format!("{}:{number}", file.path);
                match seen.get(name) {
                    Some((other, first)) if *other != folder => {
                        findings.found.push(format!("{place}: `{name}` is also in {first}"));
                    }
                    // Another check finds what is twice in one crate.
                    Some(_) => {}
                    None => {
                        seen.insert(name, (folder, place));
                    }
                }
            }
        }
        findings
    },
    bad: &[
        ("actors/src/a.rs", "//! A.\nstruct Entry {\n"),
        ("nodes/src/b.rs", "//! B.\npub enum Entry {\n"),
    ],
};

/// Crates that only tests use.
const TEST_CRATES: [&str; 2] = ["actors/simulator/", "cluster/sim/"];

/// The name of the type that this line begins to define, outside every block.
fn defined(line: &str) -> Option<&str> {
    let mut rest = line;
    if let Some(public) = rest.strip_prefix("pub") {
        rest = match public.strip_prefix('(') {
            Some(scope) => scope.split_once(')')?.1,
            None => public,
        };
        rest = rest.trim_start();
    }
    let (keyword, after) = rest.split_once(' ')?;
    if !KEYWORDS.contains(&keyword) {
        return None;
    }
    after.split(|character: char| !character.is_alphanumeric() && character != '_').next()
}

/// Parts of names that speak of money.
const MONEY: [&str; 3] = ["usd", "price", "cost"];

pub(super) const MONEY_IS_WHOLE_NUMBERS: Check = Check {
    name: "no amount of money is a floating-point number",
    run: |tree| {
        let mut findings = Findings::default();
        for file in tree.ending("rs").filter(|file| file.is_product()) {
            for (number, line) in file.code() {
                let line = without_comment(line);
                let Some((name, kind)) = named_with_type(line) else { continue };
                findings.scanned += 1;
                let is_money = name.split('_').any(|part| MONEY.contains(&part));
                if is_money && ["f32", "f64"].iter().any(|float| has_word(kind, float)) {
                    findings.found.push(format!("{}:{number}: `{name}` is a float", file.path));
                }
            }
        }
        findings
    },
    bad: &[
        ("actors/src/a.rs", "//! A.\nstruct Limit {\n    pub(super) limit_usd: Option<f64>,\n}\n"),
        ("actors/src/b.rs", "//! B.\nfn add(price: f32) {}\n"),
    ],
};

/// The first name in a line that is followed by its type: a field, a parameter or a variable; and that type.
fn named_with_type(line: &str) -> Option<(&str, &str)> {
    let (before, kind) = line.match_indices(": ").find_map(|(at, colon)| {
        let (before, rest) = line.split_at(at);
        (!before.ends_with(':')).then_some((before, rest.strip_prefix(colon)?))
    })?;
    let name = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (!name.is_empty()).then_some((name, kind))
}
