//! What is written where, and what is not written at all.

use std::collections::BTreeMap;

use super::{Check, Findings, scan::without_comment};

/// Where subjects are spelled.
const SUBJECTS: &str = "proto/src/subject.rs";
/// The tokens that follow the prefix in a subject.
const TOKENS: [&str; 11] =
    ["in", "j", "tmr", "due", "kv", "blob", "tok", "hb", "rpc", "usage", "ev"];

pub(super) const SUBJECTS_HAVE_ONE_SPELLING: Check = Check {
    name: "subjects are spelled only in `proto/src/subject.rs`",
    run: |tree| {
        let mut findings = Findings::default();
        let files = tree.ending("rs").filter(|file| file.is_product() && file.path != SUBJECTS);
        for file in files {
            findings.scanned += 1;
            for (number, line) in file.code() {
                let line = without_comment(line);
                let spelled = TOKENS.iter().any(|token| {
                    line.contains(&format!("\"cn.{token}."))
                        || line.contains(&format!("}}.{token}."))
                });
                if spelled {
                    findings.found.push(format!("{}:{number}: {}", file.path, line.trim()));
                }
            }
        }
        findings
    },
    bad: &[("actors/src/a.rs", "//! A.\nlet a = format!(\"{prefix}.hb.{process}\");\n")],
};

/// Where variables of the environment are spelled: those that clawnode reads, and those that it
/// sets for commands of agents.
const VARIABLES: [&str; 2] = ["nodes/src/config/", "actors/executors/src/sandbox/spec.rs"];

pub(super) const VARIABLES_HAVE_ONE_SPELLING: Check = Check {
    name: "our environment variables are spelled only in the configuration",
    run: |tree| {
        let mut findings = Findings::default();
        for file in tree.ending("rs").filter(|file| file.is_product()) {
            if VARIABLES.iter().any(|place| file.path.starts_with(place)) {
                continue;
            }
            findings.scanned += 1;
            for (number, line) in file.code() {
                if without_comment(line).contains("\"CLAWNODE_") && !line.contains("_TEST_") {
                    findings.found.push(format!("{}:{number}: {}", file.path, line.trim()));
                }
            }
        }
        findings
    },
    bad: &[("nodes/src/a.rs", "//! A.\nlet a = env(\"CLAWNODE_TOKEN\");\n")],
};

/// Files of tests that may wait for time, and how often: helpers that look again until a state is
/// there, the scripted model and the counter of effects, which say how long they take, and the
/// moments of faults.
const SLEEPERS: [(&str, usize); 11] = [
    ("tests/src/effects.rs", 2),
    ("tests/src/chaos/wait.rs", 1),
    ("tests/src/wait.rs", 1),
    ("tests/src/conformance/support.rs", 1),
    ("tests/src/model/play.rs", 1),
    ("tests/src/nats/cluster.rs", 2),
    ("tests/src/nats/secured.rs", 1),
    ("tests/src/process/client.rs", 1),
    ("tests/tests/nats_storage.rs", 1),
    ("tests/src/nats/server.rs", 1),
    ("tests/tests/nats_pins/peer.rs", 1),
];

pub(super) const TESTS_DO_NOT_SLEEP: Check = Check {
    name: "tests wait for a state, not for time",
    run: |tree| {
        let limits = BTreeMap::from(SLEEPERS);
        let mut findings = Findings::default();
        for file in tree.ending("rs").filter(|file| !file.path.starts_with("tests/src/tidy/")) {
            let mut found = Vec::new();
            for (number, line) in file.tests() {
                findings.scanned += 1;
                if without_comment(line).contains("sleep(") {
                    found.push(format!("{}:{number}: {}", file.path, line.trim()));
                }
            }
            let limit = limits.get(file.path.as_str()).copied().unwrap_or(0);
            if found.len() > limit {
                findings.found.extend(found);
            }
        }
        findings
    },
    bad: &[("tests/tests/a.rs", "//! A.\nasync fn a() {\n    sleep(SECOND).await;\n}\n")],
};

/// Marks of unfinished work; taken apart so that this file is not one of them.
const MARKS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

pub(super) const WORK_LEFT_NAMES_ITS_ISSUE: Check = Check {
    name: "what is left to do names its issue",
    run: |tree| {
        let mut findings = Findings::default();
        for file in &tree.files {
            findings.scanned += 1;
            for (number, line) in file.numbered() {
                let open = MARKS.iter().any(|mark| {
                    line.split(mark).skip(1).any(|after| !after.trim_start().starts_with("(#"))
                });
                if open {
                    findings.found.push(format!("{}:{number}: {}", file.path, line.trim()));
                }
            }
        }
        findings
    },
    bad: &[("proto/src/a.rs", concat!("//! A.\n// TO", "DO: later\n"))],
};

/// Places that exist on one machine only.
const PLACES: [&str; 5] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/home/", "user"),
    concat!("index.", "crates.io"),
    concat!("pypi.", "org"),
];

pub(super) const NO_MACHINE_IS_NAMED: Check = Check {
    name: "no path or host of one machine is written down",
    run: |tree| {
        let mut findings = Findings::default();
        for file in &tree.files {
            findings.scanned += 1;
            for (number, line) in file.numbered() {
                if PLACES.iter().any(|place| line.contains(place)) {
                    findings.found.push(format!("{}:{number}: {}", file.path, line.trim()));
                }
            }
        }
        findings
    },
    bad: &[("README.md", concat!("# A\n\ncd /wo", "rk/a\n"))],
};
