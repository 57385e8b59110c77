//! Which module of a crate may name which other: those before it in its layer list.

use super::{Check, File, Findings, scan::without_comment};

/// Folders whose modules stand on each other, lowest first: each names those before it, and no other.
/// Modules that a list leaves out are not held to an order.
const LAYERS: &[(&str, &[&str])] = &[
    ("actors/guard/src", &["policy", "runaway", "kill_switch"]),
    ("actors/kernel/src", &["kind", "core", "entities", "machine", "partition", "driver"]),
    ("actors/executors/src", &["workspace", "sandbox", "ssh", "builtin", "mcp", "plugin"]),
    ("actors/src", &["llm", "hook", "agent", "session", "runner", "usage"]),
    ("actors/src/session", &["turn", "texts", "clients", "effect"]),
    ("cluster/src", &["error", "journal", "inbox", "placement", "outcome", "membership", "shed"]),
    (
        "nodes/src",
        &[
            "files",
            "local",
            "start_error",
            "log_file",
            "config",
            "telemetry",
            "client",
            "watchdog",
            "bus",
            "node",
            "failure",
            "offline_commands",
            "app",
            "cli",
        ],
    ),
];

/// Folders that decide and do nothing else: what they may not name outside their tests.
const PURE: &[(&str, &[&str])] = &[
    ("actors/src/session/turn/", &["clawnode_cluster", "tokio", "tracing", "rand", "reqwest"]),
    ("actors/guard/src/policy/", &["clawnode_cluster", "tokio", "tracing", "rand"]),
    ("actors/guard/src/runaway/", &["clawnode_cluster", "tokio", "tracing", "rand"]),
    ("proto/src/", &["tokio", "tracing"]),
];

pub(super) const MODULES_KEEP_THEIR_LAYERS: Check = Check {
    name: "modules name only those below them",
    run: |tree| {
        let mut findings = Findings::default();
        for (root, layers) in LAYERS {
            let inside = |file: &&File| file.path.starts_with(&format!("{root}/"));
            // A name that nothing has would hold nothing to its layer. Samples have few files.
            if tree.get("Cargo.toml").is_some() {
                let is_there = |name: &&&str| {
                    let paths = [format!("{root}/{name}.rs"), format!("{root}/{name}/mod.rs")];
                    paths.iter().any(|path| tree.get(path).is_some())
                };
                let gone = layers.iter().filter(|name| !is_there(name));
                findings.found.extend(gone.map(|name| format!("{root}: no module `{name}`")));
            }
            for file in tree.ending("rs").filter(inside) {
                findings.scanned += 1;
                let Some(own) = layer(root, layers, file) else { continue };
                for name in named(root, file) {
                    let other = layers.iter().position(|layer| *layer == name);
                    if other.is_some_and(|other| other > own) {
                        findings
                            .found
                            .push(format!("{}: names `{name}`, which is above", file.path));
                    }
                }
            }
        }
        findings
    },
    bad: &[
        ("actors/src/llm/a.rs", "//! A.\nuse crate::{\n    units::B,\n    session::{C, D},\n};\n"),
        ("actors/src/session/turn/a.rs", "//! A.\nuse crate::session::effect::run;\n"),
    ],
};

pub(super) const PURE_MODULES_STAY_PURE: Check = Check {
    name: "modules that only decide name no runtime and no store",
    run: |tree| {
        let mut findings = Findings::default();
        for (root, forbidden) in PURE {
            for file in tree.ending("rs").filter(|file| file.path.starts_with(root)) {
                findings.scanned += 1;
                for (number, line) in file.code() {
                    let line = without_comment(line);
                    for name in forbidden.iter().filter(|name| line.contains(&format!("{name}::")))
                    {
                        findings.found.push(format!("{}:{number}: `{name}` is named", file.path));
                    }
                }
            }
        }
        findings
    },
    bad: &[("actors/src/session/turn/a.rs", "//! A.\nuse tokio::sync::mpsc;\n")],
};

/// The layer of the module of `root` that a file belongs to.
fn layer(root: &str, layers: &[&str], file: &File) -> Option<usize> {
    let rest = file.path.strip_prefix(root)?.strip_prefix('/')?;
    let module = rest.split('/').next()?.trim_end_matches(".rs");
    layers.iter().position(|layer| *layer == module)
}

/// The modules of `root` that a file names, by paths from the root of its crate.
fn named(root: &str, file: &File) -> Vec<String> {
    let lines: Vec<&str> = file.code().map(|(_, line)| without_comment(line).trim()).collect();
    let code = lines.join(" ");
    let inner = root.split_once("/src").map_or("", |(_, inner)| inner);
    let path = format!("crate{}::", inner.replace('/', "::"));
    code.match_indices(&path).flat_map(|(at, _)| heads(&code, at + path.len())).collect()
}

/// The first names of the path at `at`: for `a::b` it is `a`, for `{a::b, c}` they are `a` and `c`.
fn heads(code: &str, at: usize) -> Vec<String> {
    let rest = code.get(at..).unwrap_or_default();
    let word = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let Some(group) = rest.strip_prefix('{') else { return vec![word(rest)] };
    let (mut depth, mut names, mut begins) = (0_usize, Vec::new(), 0);
    for (index, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => {
                names.push(word(group.get(begins..index).unwrap_or_default()));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.push(word(group.get(begins..index).unwrap_or_default()));
                begins = index + 1;
            }
            _ => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heads_of_a_path_and_of_a_group_are_found() {
        let code = "use crate::a::b; use crate::{c::{d, e}, f, g::h}; crate::session::turn::x";
        let all = |path: &str| -> Vec<String> {
            code.match_indices(path).flat_map(|(at, _)| heads(code, at + path.len())).collect()
        };
        assert_eq!(all("crate::"), ["a", "c", "f", "g", "session"]);
        assert_eq!(all("crate::session::"), ["turn"]);
    }
}
