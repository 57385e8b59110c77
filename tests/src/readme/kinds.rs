//! The pages of tools, one a kind: what each configures, and a call of it by the demo.

use super::{
    first::FOLDER,
    guide::BUILD,
    scene::{Change, Scene, Step},
};

/// What the configuration of a page is written with.
const CONFIGURE: &str = "cat > ";
/// What a page calls its tool with.
const CALL: &str = "printf '%s\\n' '/tool ";

/// The page of a kind.
const fn kind(readme: &'static str, steps: &'static [Step]) -> Scene {
    Scene { readme, folder: FOLDER, steps }
}

/// As written: the configuration, and a call.
const WRITES: Step = Step::new(CONFIGURE, "", "");

/// Pages whose tools need no more than this machine.
pub const KINDS: [Scene; 9] = [
    kind(
        "docs/guide/tools/builtin.md",
        &[WRITES, Step::new(CALL, "", "shows 'Europe/Berlin'; shows '`calculate` said: 42'")],
    ),
    kind(
        "docs/guide/tools/ledger.md",
        &[
            WRITES,
            Step::new(
                CALL,
                "",
                "shows 'written as entry 1'; shows '#1 finding: The tests need a database.'; \
                 shows '1 of 1 entries'",
            ),
        ],
    ),
    kind(
        "docs/guide/tools/files.md",
        &[WRITES, Step::new(CALL, "", "shows '`file_list` said'; [ -d agents/default ]")],
    ),
    // The scene's network reaches nothing.
    kind(
        "docs/guide/tools/http.md",
        &[WRITES, Step::new(CALL, "", "shows '`example.org` cannot be looked up'")],
    ),
    kind(
        "docs/guide/tools/commands.md",
        &[WRITES, Step::new(CALL, "", "shows '`run_command` said: Linux'")],
    ),
    kind(
        "docs/guide/tools/command-tools.md",
        &[WRITES, Step::new(CALL, "", "shows '`word_count` said: 3'")],
    ),
    kind(
        "docs/guide/tools/code.md",
        &[WRITES, Step::new(CALL, "", "shows '`execute_code` said: [\"0\",\"1\",\"2\"'")],
    ),
    kind(
        "docs/guide/tools/hooks.md",
        &[
            Step::new("mkdir -p hooks", "", "shows 10-numbers"),
            Step::new(CALL, "", "shows 'this number is too large'"),
        ],
    ),
    kind(
        "docs/guide/tools/mcp.md",
        &[
            Step::new(CONFIGURE, "", "shows ' healthy'").but(&[
                Change {
                    written: "cat > mcp.toml <<'END'",
                    run: "cat > mcp.toml <<END",
                    why: "the next change has a variable",
                },
                Change {
                    written: "command = \"npx\"",
                    run: "command = \"$REPOSITORY/.tools/mcp/node_modules/.bin/mcp-server-filesystem\"",
                    why: "npx downloads; `cargo xtest` installed the same with npm",
                },
                Change {
                    written: "\"-y\", \"@modelcontextprotocol/server-filesystem\", ",
                    run: "",
                    why: "arguments of npx",
                },
            ]),
            Step::new(CALL, "", "shows '`files__list_allowed_directories` said'"),
            Step::new("clawnode mcp show files", "", "shows files__read_text_file"),
        ],
    ),
];

/// Pages whose tools take a build with every feature, and more than this machine.
pub const FEATURES: [Scene; 2] = [
    kind("docs/guide/tools/ssh.md", &[Step::left("cargo build --release", BUILD)]),
    kind("docs/guide/tools/plugins.md", &[Step::left("cargo build --release", BUILD)]),
];
