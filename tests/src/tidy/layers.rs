//! Which module of a crate may name which other: those before it in its list of layers.

use super::{Check, File, Findings, Tree, paths::targets, scan::without_comment};

/// A folder, and its modules in layers, lowest first. A module names those of its own layer and of those before
/// it. One that has no place here is above all others; those that only tests compile need none.
type LayerList = (&'static str, &'static [&'static str]);

const LAYERS: &[LayerList] = &[
    ("actors/guard/src", &["policy", "runaway", "kill_switch"]),
    (
        "actors/kernel/src",
        &[
            // What an entity is, and what every part may use.
            "kind archive dead_letters idempotency missing_capability recent shrink supervise",
            "core fold_error entity journal_reader",
            "entities",
            // Decide without I/O.
            "job_io job_machine machine",
            "partition",
            "driver",
        ],
    ),
    ("actors/executors/src", &["workspace", "sandbox", "ssh", "builtin", "mcp", "plugin"]),
    ("actors/src", &["llm", "hook", "agent", "session", "runner", "usage"]),
    ("actors/src/session", &["texts", "turn", "clients", "effect"]),
    (
        "actors/src/session/turn",
        &[
            "state_parts",
            // The state has parts of each of these, and each decides by the whole state.
            "begin clock context effect hooks kept_turns memory model_call state tools",
            "fold plan steer",
            "ending",
            "prepare",
            "compaction tool_jobs",
            "reflection",
            "recorded",
            "explain_context kind",
        ],
    ),
    (
        "actors/tool/src",
        &[
            // What a tool is, and what is known of it.
            "append archive arguments egress executor hidden_data_directory provider_health seccomp shown_media skill \
             spec stopped_run template workspace_path",
            "schema orphaned_processes",
            "executors toolbox",
            "callbacks",
        ],
    ),
    ("actors/memory/src", &["extract", "embed", "points", "store", "runner serve"]),
    ("actors/budget/src", &["account", "holder", "runner"]),
    (
        "actors/simulator/src",
        &[
            "models places schemas violation",
            // Judges that look from outside.
            "book failure any_machine judge client_tools sizes",
            // The world, with what befalls it.
            "budgets chaos clients give jobs kinds pause plan process recall scale settle silent templates tools",
            "circuits counters memories operator ops people probation questions reflections report runaways slots \
             steps summaries trace",
            "effects journals known ledger thoughts purges hooks lanes sessions",
        ],
    ),
    (
        "cluster/src",
        &[
            "error clock peek storage blobs bucket bus feed inbox jobs journal queue timers",
            "placement",
            "outcome",
            "membership",
            "shed",
        ],
    ),
    (
        "cluster/local/src",
        &[
            // Files and bytes.
            "bytes_at disk options bus queue reply watch",
            "index directory record in_flight",
            "log deliveries staged reader recovery",
            // The engine that writes.
            "lifetime lock deletion_cleaning shared",
            "checkpoint engine read_threads repair moved_data_mark",
            // The traits of storage.
            "blobs bucket inbox jobs journal timers",
            "commit open",
        ],
    ),
    (
        "cluster/nats/src",
        &[
            "disconnects foreign_messages rfc3339 signals",
            "api ack bus health spec stream topology",
            "bucket watch blobs journal pull inbox jobs timers",
            // The way to the servers.
            "auth cluster_creation connect connect_error mirror options restore_from_mirror",
        ],
    ),
    (
        "nodes/gateway/src",
        &[
            "auth connections docs error multipart options outbox session_ref write_timeout",
            // What requests say, and what answers them.
            "frame given_params metrics origin tls params backend lane attachments",
            // The gateway, and what its routes share.
            "connection gateway guard jobs openai rest route rpc slow_client_stream",
            "anthropic session_events execute session_files local_socket openapi connect_page ws openai_files \
             session_messages",
            "routes",
            "serve",
        ],
    ),
    (
        "nodes/src",
        &[
            "files",
            "secret",
            "node_file",
            "api_token",
            "start_error",
            "log_file",
            "host",
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
    (
        "nodes/src/node",
        &[
            // What a node is made of: each is one part, or decides without the others.
            "backup_and_restore client_tools copy_entity current_models event_feed expired_sessions_and_files \
             gateway_options node_and_partition_views node_change_events node_requests out_of_service plugins \
             process_load remote_files runaways session_filter skills storage tree unknown_action usage_counting",
            "base cluster_spend count_tokens_answer drain_orders feed_and_tree partition_follower policy_check probes \
             scheduler",
            "embedder model_answers",
            "budget_holder embeddings health panic process_state",
            "job_archive agent_tools executions hooks mcp_servers overview tool_executors version_check",
            // Answers of methods, and what they share.
            "accounts agents_and_models backend session_deletion memories reload",
            "agent_answers agent_pause answers approval_answers cluster_answers kinds session_answers usage_answers",
            "offline",
            "import",
        ],
    ),
    (
        "nodes/src/cli",
        &[
            // What all commands share.
            "flags hidden_characters id_prefix entity_tables output signals turn verify command_context history \
             job_tables session_list reconnection",
            "budget_changes budget_flags",
            "agent_profile backup budget cluster config doctor feedback hooks import journal ledger mcp memory_forget \
             memory_put memory_search model_route node nodes panic parked partitions providers session_context \
             skill_bundles skills tools usage",
            "agents approvals chat events execute jobs memory models quarantine sessions status tree",
            "top up",
            // The whole command line, which help and manual show.
            "args help man_pages clap_command",
            "run",
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
        for list in LAYERS {
            let (root, layers) = list;
            // A name that nothing has would hold nothing to its layer. Samples have few files.
            if tree.get("Cargo.toml").is_some() {
                let names = layers.iter().flat_map(|layer| layer.split_whitespace());
                let gone = names.filter(|name| module_file(tree, root, name).is_none());
                findings.found.extend(gone.map(|name| format!("{root}: no module `{name}`")));
            }
            let inside = |file: &&File| file.path.starts_with(&format!("{root}/"));
            for file in tree.ending("rs").filter(inside).filter(|file| !tree.is_for_tests(file)) {
                findings.scanned += 1;
                let Some(module) = module(root, file) else { continue };
                let own = layer(layers, module).unwrap_or(layers.len());
                findings.found.extend(above(tree, list, own, file));
            }
        }
        findings
    },
    bad: &[
        ("actors/src/llm/a.rs", "//! A.\nuse crate::{\n    units::B,\n    session::{C, D},\n};\n"),
        ("actors/src/session/turn/a.rs", "//! A.\nuse super::super::effect::run;\n"),
        ("actors/src/score.rs", "//! A module without a place.\n"),
        ("actors/src/usage/a.rs", "//! A.\nuse crate::score::Score;\n"),
    ],
};

/// What a file of this layer names that is in a layer above it.
fn above(tree: &Tree, list: &LayerList, own: usize, file: &File) -> Vec<String> {
    let (root, layers) = list;
    let place = |name: &str| layer(layers, name).or_else(|| top(tree, list, name));
    let names = named(root, file).into_iter();
    let higher = names.filter(|name| place(name).is_some_and(|other| other > own));
    let found = |name: String| {
        format!(
            "{}: names `{name}`, which is above; tests/src/tidy/layers.rs has places",
            file.path
        )
    };
    higher.map(found).collect()
}

/// The layer of a module that has no place: above all others. Absent if there is no such module, or if only tests
/// compile it.
fn top(tree: &Tree, list: &LayerList, name: &str) -> Option<usize> {
    let (root, layers) = list;
    let module = module_file(tree, root, name)?;
    (!tree.is_for_tests(module)).then_some(layers.len())
}

/// The file of a module of a folder.
fn module_file<'a>(tree: &'a Tree, root: &str, name: &str) -> Option<&'a File> {
    let paths = [format!("{root}/{name}.rs"), format!("{root}/{name}/mod.rs")];
    paths.iter().find_map(|path| tree.get(path))
}

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

/// The module of `root` that a file belongs to.
fn module<'a>(root: &str, file: &'a File) -> Option<&'a str> {
    let rest = file.path.strip_prefix(root)?.strip_prefix('/')?;
    let module = rest.split('/').next()?.trim_end_matches(".rs");
    (!["mod", "lib", "main", "bin"].contains(&module)).then_some(module)
}

/// The layer that a module is in.
fn layer(layers: &[&str], module: &str) -> Option<usize> {
    layers.iter().position(|layer| layer.split_whitespace().any(|name| name == module))
}

/// The modules of `root` that a file names.
fn named(root: &str, file: &File) -> Vec<String> {
    let inner = root.split_once("/src").map_or("", |(_, inner)| inner);
    let inner: Vec<&str> = inner.split('/').filter(|part| !part.is_empty()).collect();
    let below = |target: &Vec<String>| {
        let (folder, rest) = target.split_at_checked(inner.len())?;
        folder.iter().eq(&inner).then(|| rest.first().cloned()).flatten()
    };
    targets(file).iter().filter_map(below).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_named_from_the_root_and_from_beside() {
        let text = "use crate::a::b; use crate::{c::{d, e}, session::turn::x}; use super::super::clients::y;";
        let path = "actors/src/session/turn/state.rs".to_owned();
        let file = File { path, text: text.to_owned() };
        assert_eq!(named("actors/src", &file), ["a", "c", "c", "session", "session"]);
        assert_eq!(named("actors/src/session", &file), ["turn", "clients"]);
    }

    #[test]
    fn a_module_is_in_one_layer() {
        for (root, layers) in LAYERS {
            let mut names: Vec<&str> =
                layers.iter().flat_map(|layer| layer.split_whitespace()).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{root}");
        }
    }
}
