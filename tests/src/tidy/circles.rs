//! Files of a crate that name each other in a circle: none can be read, or moved, alone.
//!
//! A path is followed to the longest part of it that is a file. What a module re-exports counts as its own.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Check, File, Findings,
    paths::{place, targets},
};

/// Files that may stand in circles, by the beginnings of their paths; how many do, which may only
/// become fewer; and why.
const ALLOWED: &[(&[&str], usize, &str)] = &[
    (&["actors/src/agent/"], 3, SIBLINGS),
    (&["actors/kernel/src/driver/dispatcher/"], 4, SIBLINGS),
    (&["actors/kernel/src/driver/entity/"], 3, SIBLINGS),
    (&["actors/kernel/src/supervise/"], 3, SIBLINGS),
    (
        &["actors/src/session/turn/"],
        9,
        "a turn's state is in parts (its context, calls, approvals, clock, tools of clients, \
         models that give way, what clients see of tools, older turns), each of which is judged by the whole",
    ),
    (
        &["actors/src/session/clients/"],
        5,
        "`Sessions` is one handle whose methods are in several files; it has what lists share, and they read \
         through it",
    ),
    (
        &[
            "actors/executors/src/sandbox/options.rs",
            "actors/executors/src/sandbox/command_tools.rs",
        ],
        2,
        "a recipe is a part of the options, and judged with all of them",
    ),
    (
        &["actors/wasm/src/cache.rs", "actors/wasm/src/engine.rs"],
        2,
        "an engine has a cache of code that only an engine of its kind can load",
    ),
    (&["actors/simulator/src/"], 9, WORLD),
    (&["cluster/sim/src/"], 4, WORLD),
    (
        &["cluster/local/src/checkpoint.rs", "cluster/local/src/engine.rs"],
        2,
        "the engine of the log and its cleaning",
    ),
    (
        &["cluster/nats/src/bucket.rs", "cluster/nats/src/watch.rs"],
        2,
        "a watch reads as its bucket does",
    ),
    (
        &["nodes/src/cli/"],
        8,
        "the help and the manual show the whole command line, of which they are commands; a chat has a \
         terminal, choices and warnings, which are methods of it",
    ),
    (
        &[
            "proto/src/agent_profile.rs",
            "proto/src/agent_work.rs",
            "proto/src/api.rs",
            "proto/src/archive.rs",
            "proto/src/cursor.rs",
            "proto/src/feedback_view.rs",
            "proto/src/job_params.rs",
            "proto/src/journal_view.rs",
            "proto/src/memory_view.rs",
            "proto/src/methods.rs",
            "proto/src/node.rs",
            "proto/src/overview.rs",
            "proto/src/quarantine_view.rs",
            "proto/src/usage.rs",
            "proto/src/view.rs",
        ],
        15,
        "the one table of methods names what each takes and answers, with what that is made of; a page has a \
         cursor, and that names its method",
    ),
    (
        &["proto/src/id.rs", "proto/src/kind.rs", "proto/src/name.rs"],
        3,
        "ids are derived from names, and names are shown with ids",
    ),
];

const SIBLINGS: &str = "siblings of one actor: its handle starts it, and it gives its handle away";
const WORLD: &str = "one simulated world in parts: what happens in each is one enum";

pub(super) const FILES_STAND_IN_NO_CIRCLE: Check = Check {
    name: "files of a crate name each other in no circle, but where a reason is written down",
    run: |tree| {
        let mut findings = Findings::default();
        let files: Vec<&File> = tree.ending("rs").filter(|file| file.is_product()).collect();
        findings.scanned = files.len();
        let mut left = vec![0; ALLOWED.len()];
        for circle in circles(&edges(&files)) {
            let allows = |(paths, ..): &(&[&str], usize, &str)| {
                circle.iter().all(|file| paths.iter().any(|path| file.starts_with(path)))
            };
            match ALLOWED.iter().position(allows).and_then(|at| left.get_mut(at)) {
                Some(count) => *count += circle.len(),
                None => findings.found.push(circle.join(" ")),
            }
        }
        // A tree of samples has none of them.
        if tree.get("Cargo.toml").is_some() {
            let changed = ALLOWED.iter().zip(left).filter(|((_, count, _), left)| count != left);
            findings.found.extend(changed.map(|((paths, count, _), left)| {
                let paths = paths.join(" ");
                format!("{paths}: {left} files stand in circles, and the list says {count}")
            }));
        }
        findings
    },
    bad: &[
        ("actors/src/a.rs", "//! A.\nuse super::b::{B, c::C};\n"),
        ("actors/src/b/mod.rs", "//! B.\nfn b() -> crate::a::A {}\n"),
    ],
};

/// Which files a file names.
type Edges<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

fn edges<'a>(files: &[&'a File]) -> Edges<'a> {
    let mut modules: BTreeMap<(&str, Vec<&str>), &str> = BTreeMap::new();
    for file in files {
        modules.extend(place(file).map(|place| (place, file.path.as_str())));
    }
    let mut edges = Edges::new();
    for ((root, _), path) in &modules {
        let Some(file) = files.iter().find(|file| file.path == *path) else { continue };
        for target in targets(file) {
            let target: Vec<&str> = target.iter().map(String::as_str).collect();
            let other = (1..=target.len())
                .rev()
                .find_map(|length| modules.get(&(*root, target.get(..length)?.to_vec())));
            if let Some(other) = other.filter(|other| *other != path) {
                edges.entry(path).or_default().insert(other);
            }
        }
    }
    edges
}

/// The largest sets of files of which each leads to each other.
fn circles(edges: &Edges<'_>) -> Vec<Vec<String>> {
    let reach = |from: &str| {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut next: Vec<&str> = edges.get(from).into_iter().flatten().copied().collect();
        while let Some(file) = next.pop() {
            if seen.insert(file) {
                next.extend(edges.get(file).into_iter().flatten());
            }
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        edges.keys().map(|file| (*file, reach(file))).collect();
    let mut circles = BTreeSet::new();
    for (file, seen) in reached.iter().filter(|(file, seen)| seen.contains(*file)) {
        let back = |other: &&&str| reached.get(**other).is_some_and(|seen| seen.contains(file));
        circles.insert(seen.iter().filter(back).map(|file| (*file).to_owned()).collect::<Vec<_>>());
    }
    circles.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_circle_is_found_once() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file("x/src/a.rs", "use crate::b::B;"),
            file("x/src/b.rs", "use super::c::C;"),
            file("x/src/c/mod.rs", "use crate::{a::A, d::D};"),
            file("x/src/d.rs", "use crate::D;"),
            file("y/src/d.rs", "use crate::a::A;"),
        ];
        let found = circles(&edges(&files.iter().collect::<Vec<_>>()));
        assert_eq!(found, [["x/src/a.rs", "x/src/b.rs", "x/src/c/mod.rs"]]);
    }
}
