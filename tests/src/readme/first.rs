//! The main README: the first minutes. The pages under `docs` have scenes of their own.

use super::scene::{Change, Scene, Step};

const README: &str = "README.md";
/// What most scenes start in.
pub(super) const FOLDER: &str = "empty";
/// Models of others: none answers here, so it is seen that each is chosen.
pub(super) const MODEL: Step = Step::new(
    "ANTHROPIC_API_KEY=",
    "",
    "shows 'model anthropic/'; shows 'model openai/some-model'; shows 'model ollama/llama3.2'",
)
.but(&[
    Change { written: "API_KEY=…", run: "API_KEY=placeholder", why: "a placeholder" },
    Change {
        written: "some-model",
        run: "some-model --chat",
        why: "without a chat it would serve for ever",
    },
    Change {
        written: "llama3.2",
        run: "llama3.2 --chat",
        why: "without a chat it would serve for ever",
    },
]);
/// A line of a script.
pub(super) const SCRIPTED: Step =
    Step::new("printf 'hello\\nand again\\n'", "", "shows 'You said: and again'");
/// A client that is one command.
pub(super) const CURL: Step =
    Step::new("TOKEN=", "serve", "shows 'You said: hello'; shows 'data: [DONE]'");
/// A client in Python.
pub(super) const PYTHON: Step =
    Step::new("from pathlib import Path", "", "shows 'You said: hello'");
/// A NATS server, two workers and a gateway.
pub(super) const NODES: Step = Step::new("pip install --target", "", "");

/// A chat, clients and models.
pub const FIRST: Scene = Scene {
    readme: README,
    folder: FOLDER,
    steps: &[
        Step::new(
            "cargo run --release -- up --chat",
            "printf 'hello\\n' >hello; STDIN=hello",
            "shows 'You said: hello'",
        )
        .but(&[
            Change {
                written: "cargo run --release --",
                run: "clawnode",
                why: "the build takes minutes; the same program is built before the tests",
            },
            Change { written: "cargo xtest", run: ": ", why: "this test is a part of it" },
        ]),
        SCRIPTED,
        MODEL,
        CURL,
        PYTHON,
    ],
};

/// A call that a person approves, as another terminal does here.
pub const APPROVED: Scene = Scene {
    readme: README,
    folder: FOLDER,
    steps: &[Step::new(
        "cat > tools.toml",
        r#"
printf '%s\n' '/tool file_write {"path":"notes.txt","content":"milk"}' >lines
approve_all() {
    while :; do
        clawnode approvals list --json 2>/dev/null | jq -r '.approvals[].action.call' >calls || true
        while read -r call; do clawnode approvals approve "$call" </dev/null || true; done <calls
        sleep 0.3
    done
}
approve_all >/dev/null 2>&1 &
STDIN=lines"#,
        "shows 'waits for you: file_write'; [ \"$(cat agents/default/notes.txt)\" = milk ]",
    )],
};

/// Many processes.
pub const HOSTS: Scene = Scene {
    readme: README,
    folder: FOLDER,
    steps: &[Step {
        then: "await clawnode status --data-dir ./gateway
               printf 'hello\\n' | clawnode chat --data-dir ./gateway >talk 2>&1
               SAID=talk; shows 'You said: hello'",
        ..NODES
    }],
};
