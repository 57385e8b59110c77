//! The main README: the first minutes, models, and looking inside a node.

use super::scene::{Change, Scene, Step};

const README: &str = "README.md";
/// What most scenes start in.
const FOLDER: &str = "empty";

/// A chat, and clients.
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
        Step::new("printf 'hello\\nand again\\n'", "", "shows 'You said: and again'"),
        Step::new("TOKEN=", "serve", "shows 'You said: hello'; shows 'data: [DONE]'; ANSWER=$SAID"),
        Step::new("from pathlib import Path", "", "shows 'You said: hello'"),
        Step::new(
            "curl -N http://127.0.0.1:3100/v1/sessions/",
            "CURSOR=$(sed -n 's/^id: //p' \"$ANSWER\" | head -n 1)",
            "shows 'event: done'",
        )
        .but(&[Change {
            written: "default:web:site:ada",
            run: "default:openai:default:ada",
            why: "the session that the scene has; the other is made over a WebSocket",
        }]),
    ],
};

/// Models of others: none answers here, so it is seen that each is chosen.
pub const MODELS: Scene = Scene {
    readme: README,
    folder: FOLDER,
    steps: &[Step::new(
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
    ])],
};

/// What operators look at, and how they stop everything.
pub const INSIDE: Scene = Scene {
    readme: README,
    folder: FOLDER,
    steps: &[
        Step::new(
            "clawnode sessions list",
            "serve; printf 'hello\\n' | clawnode chat --session default:cli:local:ada >/dev/null",
            "shows 'default:cli:local:ada'; shows 'sound'; shows 'paused'; shows 'config.valid'
             clawnode agents resume default >/dev/null",
        )
        .but(&[SESSION]),
        Step::new(
            "clawnode panic ",
            "",
            "shows 'everything is stopped'; shows 'everything continues'",
        ),
        Step::new(
            "clawnode status ",
            "",
            "shows 'demo/echo'; shows 'gateway,worker'; shows 'node_joined'; shows 'no inputs are parked'",
        )
        .but(&[
            Change { written: "tree [NODE]", run: "tree", why: "the brackets are no part of it" },
            Change {
                written: "clawnode events --follow",
                run: "head -n 1 < <(clawnode events --follow)",
                why: "it follows for ever; one event is waited for",
            },
            Change {
                written: "clawnode top ",
                run: "echo q | script -qec 'clawnode top' /dev/null ",
                why: "it draws on a terminal",
            },
        ]),
        Step::new("clawnode journal replay", "stop", "shows 'the same'; shows 'wrote `a.backup`'")
            .but(&[
                SESSION,
                Change { written: "backup FILE", run: "backup a.backup", why: "a placeholder" },
            ]),
    ],
};

const SESSION: Change =
    Change { written: "SESSION", run: "default:cli:local:ada", why: "a placeholder" };
