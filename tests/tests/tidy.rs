//! The house rules, over the whole repository.
#![expect(clippy::unwrap_used, reason = "helpers of tests: their panic is the test's failure")]

use std::{collections::BTreeSet, path::Path, process::Command};

use clawnode_tests::tidy::{CHECKS, Tree};

#[test]
fn the_repository_keeps_the_house_rules() {
    let tree = Tree::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap();
    let mut failures = Vec::new();
    for check in CHECKS {
        let findings = (check.run)(&tree);
        if findings.scanned == 0 {
            failures.push(format!("{}: looked at nothing", check.name));
        }
        if !findings.found.is_empty() {
            let found = findings.found.join("\n  ");
            failures.push(format!("{}:\n  {found}", check.name));
        }
    }
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n\n"));
}

/// A check that finds nothing in its own bad sample would find nothing anywhere.
#[test]
fn every_check_finds_its_bad_sample() {
    for check in CHECKS {
        let findings = (check.run)(&Tree::of(check.bad));
        assert!(!findings.found.is_empty(), "{}: the sample passed", check.name);
    }
}

#[test]
fn names_of_checks_are_used_once() {
    let mut names: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), CHECKS.len());
}

/// The step with the WebAssembly engine and SSH compiles what these bring, and what is ours; not all
/// that everything is built on once more, which would take minutes. Nor do commands that build no tests.
#[test]
fn the_two_sets_of_features_share_what_is_compiled() {
    const ALL: &str = "normal,build,dev";
    const LIBRARIES: &str = "normal,build";
    const WITH_WASM: &str = "test-util,wasm,ssh,qdrant";
    let with = dependencies(WITH_WASM, ALL);
    for (features, edges) in [("test-util", ALL), (WITH_WASM, LIBRARIES)] {
        let found = dependencies(features, edges);
        let again: Vec<&String> = found.difference(&with).collect();
        assert!(found.len() > 100, "the dependencies are found: {found:?}");
        assert!(
            again.is_empty(),
            "compiled twice ({edges}), so name their features in tests/Cargo.toml: {again:?}"
        );
    }
}

/// Each crate that is not ours, with its features, as a command with these features has it.
fn dependencies(features: &str, edges: &str) -> BTreeSet<String> {
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "--offline", "--workspace", "--features", features]);
    tree.args(["--edges", edges, "--format", "{p} {f}", "--prefix", "none"]);
    let tree = tree.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).output().unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let text = String::from_utf8(tree.stdout).unwrap();
    // Ours have a path behind the version.
    let foreign = text.lines().filter(|line| !line.contains(" (/"));
    foreign.map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}
