//! Which crate may name what, and which folder of a crate may name which other.

use super::{
    Check, File, Findings,
    scan::{has_word, without_comment},
};

/// A crate of the product.
struct Crate {
    folder: &'static str,
    /// What its manifest calls it, after `clawnode-`.
    name: &'static str,
    /// Which crates of the product it may name, in the same words.
    may: &'static [&'static str],
}

/// The product's crates, lowest first.
const CRATES: &[Crate] = &[
    Crate { folder: "proto", name: "proto", may: &[] },
    Crate { folder: "cluster", name: "cluster", may: &["proto"] },
    Crate { folder: "cluster/local", name: "local", may: &["proto", "cluster"] },
    Crate { folder: "cluster/nats", name: "nats", may: &["proto", "cluster"] },
    Crate { folder: "cluster/sim", name: "sim", may: &["proto", "cluster", "local"] },
    Crate { folder: "actors/wasm", name: "wasm", may: &[] },
    Crate { folder: "actors/kernel", name: "kernel", may: &["proto", "cluster"] },
    Crate { folder: "actors/budget", name: "budget", may: &["proto", "cluster", "kernel"] },
    Crate { folder: "actors/memory", name: "memory", may: &["proto", "cluster", "kernel"] },
    Crate { folder: "actors/qdrant", name: "qdrant", may: &["proto", "cluster", "memory"] },
    Crate { folder: "actors/guard", name: "guard", may: &["proto", "cluster"] },
    Crate { folder: "actors/tool", name: "tool", may: &["proto", "cluster", "kernel", "guard"] },
    Crate {
        folder: "actors/executors",
        name: "executors",
        may: &["proto", "cluster", "kernel", "guard", "tool", "wasm"],
    },
    Crate {
        folder: "actors",
        name: "actors",
        may: &["proto", "cluster", "kernel", "budget", "memory", "guard", "tool"],
    },
    // For tests.
    Crate {
        folder: "actors/simulator",
        name: "simulator",
        may: &["proto", "cluster", "sim", "kernel", "budget", "memory", "guard", "actors"],
    },
    Crate { folder: "nodes/gateway", name: "gateway", may: &["proto", "cluster"] },
    Crate {
        folder: "nodes",
        name: "nodes",
        may: &[
            "proto",
            "cluster",
            "local",
            "nats",
            "kernel",
            "budget",
            "memory",
            "qdrant",
            "guard",
            "tool",
            "executors",
            "actors",
            "gateway",
        ],
    },
];

/// Further crates that only some may name. `ractor` in `nodes` is the type of an error of `actors`.
const ONLY: &[(&str, &[&str])] = &[
    ("bollard", &["executors"]),
    ("async-nats", &["nats"]),
    ("sled", &["local"]),
    ("ractor", &["kernel", "actors", "nodes"]),
    ("axum", &["gateway"]),
    ("clap", &["nodes"]),
    ("hyper", &["gateway"]),
    ("tokio-tungstenite", &["gateway", "nodes"]),
    ("sse-stream", &["actors"]),
    ("aws-sigv4", &["actors"]),
    ("wasmtime", &["wasm"]),
    ("qdrant-client", &["qdrant"]),
    ("tonic", &["qdrant"]),
    ("candle-core", &["memory"]),
    ("candle-nn", &["memory"]),
    ("russh", &["executors"]),
    ("landlock", &["executors"]),
    ("seccompiler", &["tool"]),
    ("close_fds", &["nodes"]),
    (
        "tokio",
        &[
            "cluster",
            "local",
            "nats",
            "sim",
            "kernel",
            "budget",
            "memory",
            "qdrant",
            "guard",
            "tool",
            "executors",
            "actors",
            "gateway",
            "nodes",
        ],
    ),
];

/// The crate that a file is a source of.
fn of(file: &File) -> Option<&'static Crate> {
    let inside = |known: &&Crate| {
        let rest = file.path.strip_prefix(known.folder);
        rest.is_some_and(|rest| rest.starts_with("/src/"))
    };
    CRATES.iter().find(inside)
}

pub(super) const MANIFESTS_KEEP_THE_EDGES: Check = Check {
    name: "manifests keep the edges between crates",
    run: |tree| {
        let mut findings = Findings::default();
        for own in CRATES {
            let path = format!("{}/Cargo.toml", own.folder);
            let Some(file) = tree.get(&path) else { continue };
            let mut shipped = false;
            for (number, line) in file.numbered() {
                if line.starts_with('[') {
                    shipped = line == "[dependencies]";
                }
                if !shipped {
                    continue;
                }
                findings.scanned += 1;
                let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
                let ours = name.strip_prefix("clawnode-");
                let above = ours.is_some_and(|ours| !own.may.contains(&ours));
                let reserved =
                    ONLY.iter().any(|(only, by)| *only == name && !by.contains(&own.name));
                if above || reserved {
                    let who = own.name;
                    findings.found.push(format!("{path}:{number}: `{who}` may not know `{name}`"));
                }
            }
        }
        findings
    },
    bad: &[("proto/Cargo.toml", "[dependencies]\nasync-nats.workspace = true\n")],
};

pub(super) const SOURCES_KEEP_THE_EDGES: Check = Check {
    name: "sources keep the edges between crates",
    run: |tree| {
        let mut findings = Findings::default();
        for file in tree.ending("rs").filter(|file| file.is_product()) {
            let Some(own) = of(file) else {
                findings.found.push(format!("{}: its crate is not in the table", file.path));
                continue;
            };
            findings.scanned += 1;
            for (number, line) in file.code() {
                let line = without_comment(line);
                for (name, by) in ONLY.iter().filter(|(_, by)| !by.contains(&own.name)) {
                    let path = format!("{}::", name.replace('-', "_"));
                    if line.contains(&path) && has_word(line, path.trim_end_matches(':')) {
                        let who = by.join(", ");
                        findings.found.push(format!(
                            "{}:{number}: `{name}` is named; only {who} may",
                            file.path
                        ));
                    }
                }
            }
        }
        findings
    },
    bad: &[("actors/src/a.rs", "//! A.\nuse async_nats::Client;\n")],
};
