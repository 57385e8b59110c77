//! The house rules, over the whole repository.

use std::path::Path;

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
