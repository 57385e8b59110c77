//! The guides of approvals and jobs: calls that wait for a person, and what jobs leave behind.

use super::{
    first::FOLDER,
    scene::{Change, Scene, Step},
};

/// A node whose agent writes files when a person says so.
const ASKS: &str = r#"
mkdir -p "$HOME/.config/clawnode" "$HOME/files"
cat >"$HOME/.config/clawnode/config.toml" <<END
[agents.default]
tools = ["file_write"]

[workspace]
root = "$HOME/files"
END
serve
printf '%s\n' '/tool file_write {"path":"a.txt","content":"b"}' | clawnode chat >chat 2>&1 & CHAT=$!
asked() { clawnode approvals list --json | jq -er '.approvals[0].action.call' >call; }
await asked
CALL=$(cat call)
"#;

/// A node whose agent runs commands, and a job that has printed something, and left a file.
const JOB: &str = r#"
mkdir -p "$HOME/.config/clawnode"
cat >"$HOME/.config/clawnode/config.toml" <<END
[agents.default]
tools = ["run_command"]

[[agents.default.rules]]
tool = "run_command"
verdict = "allow"

[sandbox]
run_in = "process"
END
serve
WHAT='{"command":"echo done > $CLAWNODE_ARTIFACTS/report.html; echo an error"}'
printf '/tool run_command %s\n' "$WHAT" | clawnode chat >/dev/null
JOB=$(clawnode jobs list --json | jq -r '.jobs[] | select(.tool == "run_command").job')
"#;

/// A call waits, and the page decides about it.
pub const APPROVALS: Scene = Scene {
    readme: "docs/guide/approvals.md",
    folder: FOLDER,
    steps: &[Step::new(
        "clawnode approvals list",
        ASKS,
        "shows file_write; wait \"$CHAT\"; [ \"$(cat \"$HOME/files/default/a.txt\")\" = b ]",
    )
    .but(&[Change { written: "CALL", run: "\"$CALL\"", why: "a placeholder" }])],
};

/// A command has run, and the page shows its output and its artifact.
pub const JOBS: Scene = Scene {
    readme: "docs/guide/jobs.md",
    folder: FOLDER,
    steps: &[Step::new(
        "clawnode jobs list",
        JOB,
        "shows 'an error'; shows 'written to `report.html`'; [ \"$(cat report.html)\" = done ]",
    )
    .but(&[Change { written: "JOB", run: "\"$JOB\"", why: "a placeholder" }])],
};
