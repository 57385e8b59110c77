//! Which crate may know what: `proto <- cluster <- actors <- nodes`.

use super::{
    Check, Findings,
    scan::{has_word, without_comment},
};

/// The product's crates, lowest first; each may name those before it.
const CRATES: [&str; 4] = ["proto", "cluster", "actors", "nodes"];

/// Who may name what besides. `ractor` in `nodes` is the type of an error of `actors`' doors.
const ONLY: [(&str, &[&str]); 15] = [
    ("bollard", &["actors"]),
    ("async-nats", &["cluster"]),
    ("sled", &["cluster"]),
    ("ractor", &["actors", "nodes"]),
    ("axum", &["nodes"]),
    ("clap", &["nodes"]),
    ("hyper", &["nodes"]),
    ("tokio-tungstenite", &["nodes"]),
    ("sse-stream", &["actors"]),
    ("wasmtime", &["actors"]),
    ("russh", &["actors"]),
    ("landlock", &["actors"]),
    ("seccompiler", &["actors"]),
    ("close_fds", &["nodes"]),
    ("tokio", &["cluster", "actors", "nodes"]),
];

pub(super) const MANIFESTS_KEEP_THE_EDGES: Check = Check {
    name: "manifests keep the edges between crates",
    run: |tree| {
        let mut it = Findings::default();
        for (at, own) in CRATES.iter().enumerate() {
            let path = format!("{own}/Cargo.toml");
            let Some(file) = tree.get(&path) else { continue };
            let mut shipped = false;
            for (number, line) in file.numbered() {
                if line.starts_with('[') {
                    shipped = line == "[dependencies]";
                }
                if !shipped {
                    continue;
                }
                it.scanned += 1;
                let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
                let above = CRATES.iter().skip(at).any(|one| name == format!("clawnode-{one}"));
                let reserved = ONLY.iter().any(|(only, by)| *only == name && !by.contains(own));
                if above || reserved {
                    it.found.push(format!("{path}:{number}: `{own}` may not know `{name}`"));
                }
            }
        }
        it
    },
    bad: &[("proto/Cargo.toml", "[dependencies]\nasync-nats.workspace = true\n")],
};

pub(super) const SOURCES_KEEP_THE_EDGES: Check = Check {
    name: "sources keep the edges between crates",
    run: |tree| {
        let mut it = Findings::default();
        for file in tree.ending("rs").filter(|file| file.is_product()) {
            it.scanned += 1;
            let own = file.path.split('/').next().unwrap_or_default();
            for (number, line) in file.code() {
                let line = without_comment(line);
                for (name, by) in ONLY.iter().filter(|(_, by)| !by.contains(&own)) {
                    let path = format!("{}::", name.replace('-', "_"));
                    if line.contains(&path) && has_word(line, path.trim_end_matches(':')) {
                        let who = by.join(", ");
                        it.found.push(format!(
                            "{}:{number}: `{name}` is named; only {who} may",
                            file.path
                        ));
                    }
                }
            }
        }
        it
    },
    bad: &[("actors/src/a.rs", "//! A.\nuse async_nats::Client;\n")],
};
