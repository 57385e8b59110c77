//! The guides but those of approvals, jobs and tools.

use super::{
    first::{CURL, FOLDER, MODEL, PYTHON, SCRIPTED},
    scene::{Change, Scene, Step},
};

/// An agent with a tool, before its node starts.
pub(super) const CALCULATES: &str = r#"
mkdir -p "$HOME/.config/clawnode"
cat >"$HOME/.config/clawnode/config.toml" <<END
[agents.default]
tools = ["calculate"]
step_limit = 1
END
serve
"#;

/// Each guide, by its page.
pub const GUIDES: [Scene; 15] = [
    Scene {
        readme: "docs/guide/attachments.md",
        folder: FOLDER,
        steps: &[
            Step::new("TOKEN=", "serve", "shows 'a PNG picture'"),
            Step::left("file = client", "the test of clients does it with both of OpenAI's"),
        ],
    },
    Scene { readme: "docs/guide/chat.md", folder: FOLDER, steps: &[SCRIPTED] },
    Scene {
        readme: "docs/guide/clients.md",
        folder: FOLDER,
        steps: &[
            CURL,
            PYTHON,
            Step::new("import anthropic", "", "shows 'You said: good morning'"),
            Step::new("import json", "", "shows 'saw it'"),
            Step::new(
                "clawnode sessions list --stateless",
                "",
                "shows 'default:openai:default:ada'",
            ),
            Step::left(
                "clawnode up --listen 0.0.0.0:3100",
                "it takes a certificate; tests of the gateway make one and talk over TLS",
            ),
        ],
    },
    Scene {
        readme: "docs/guide/responses.md",
        folder: FOLDER,
        steps: &[
            Step::new("TOKEN=", "serve", "shows '\"object\":\"response\"'"),
            Step::new("from pathlib", "", "shows 'and again'"),
        ],
    },
    Scene {
        readme: "docs/guide/connections.md",
        folder: FOLDER,
        steps: &[
            CURL,
            Step::new("curl -N http://127.0.0.1:3100/v1/sessions/", "", "shows 'event: done'"),
        ],
    },
    Scene {
        readme: "docs/guide/models.md",
        folder: FOLDER,
        steps: &[
            MODEL,
            Step::new(
                "clawnode models route",
                "",
                "shows 'no `routes`'; shows '150000 tokens, image'",
            ),
            Step::new("clawnode models list", "serve", "shows 'demo/echo'; shows 'works'"),
            Step::new("clawnode config check", "", "shows 'demo'; shows 'default'"),
        ],
    },
    Scene {
        readme: "docs/guide/context.md",
        folder: FOLDER,
        steps: &[Step::new(
            "clawnode sessions context",
            "serve; printf 'hello\\nand on\\n' | clawnode chat --session default:cli:local:ada >/dev/null",
            "shows 'running turn 2'; shows 'user: hello'; shows 'only here'",
        )],
    },
    Scene {
        readme: "docs/guide/skills.md",
        folder: FOLDER,
        steps: &[
            Step::new("mkdir -p skills", "", "shows 'release-notes'; shows 'valid: '"),
            Step::new("printf '%s\\n' '/tool activate_skill", "", "shows 'Leave refactorings out'"),
            Step::new(
                "mkdir -p packed/release-notes",
                "",
                "shows 'keep it secret'; shows 'is packed into'; test -s release-notes.skill",
            ),
        ],
    },
    Scene {
        readme: "docs/guide/memories.md",
        folder: FOLDER,
        steps: &[
            Step::new(
                "clawnode memory put default/all 'Tea is at four.' --subject",
                "serve",
                "shows superseded; shows 'Tea is at five.'; shows shared/handbook; shows '1 added'",
            ),
            Step::new("clawnode memory put default/all 'Coffee", "", "shows 'Coffee is at six.'"),
            Step::new(
                "clawnode memory put default/all 'The key",
                "",
                "shows 'that journal has no text that was forgotten'; shows '`default/all` is deleted, with 2 live points'",
            ),
        ],
    },
    Scene {
        readme: "docs/guide/budgets.md",
        folder: FOLDER,
        steps: &[Step::new(
            "clawnode config show",
            "",
            "shows budgets.patience; shows 'budget none'",
        )
        .but(&[Change {
            written: "up --no-budget",
            run: "up --no-budget --chat",
            why: "without a chat it would serve for ever",
        }])],
    },
    Scene {
        readme: "docs/guide/configuration.md",
        folder: FOLDER,
        steps: &[Step::new(
            "clawnode config show",
            "",
            "shows gateway.listen; shows 'settings are valid'",
        )],
    },
    Scene {
        readme: "docs/guide/command-line.md",
        folder: FOLDER,
        steps: &[
            Step::new(
                "clawnode sessions list --json",
                "serve; printf 'hello\\n' | clawnode chat --session default:cli:local:ada >/dev/null",
                "shows '\"default:cli:local:ada\"'; shows NODE",
            ),
            Step::new("clawnode completions", "", "[ -s clawnode.bash ]; [ -s man/clawnode.1 ]"),
        ],
    },
    Scene {
        readme: "docs/guide/plans.md",
        folder: FOLDER,
        steps: &[
            Step::new("cat > plan.json", CALCULATES, "shows SUCCEEDED; shows 42"),
            Step::new("cat > pipeline.yaml", "", "shows SUCCEEDED; shows 43"),
        ],
    },
    Scene {
        readme: "docs/guide/install.md",
        folder: FOLDER,
        steps: &[
            Step::left(
                "cargo build --profile dist",
                "it takes minutes; the tests of packages and of the compose file make each from the \
                 program that they have, install it and talk to it",
            ),
            Step::left("cargo build --release -p clawnode --features full", BUILD),
        ],
    },
    Scene {
        readme: "docs/guide/structured-replies.md",
        folder: FOLDER,
        steps: &[Step::new("TOKEN=", "serve", "shows 'schema_failed'")],
    },
];

/// Why a build with all features is left.
pub(super) const BUILD: &str =
    "it takes minutes; the steps of `cargo xtest` with WebAssembly build the same features";

/// A turn that has used up its steps.
const USED_UP: &str = r#"
printf '%s\n' '/tool calculate {"expression":"6*7"}' |
    clawnode chat --session default:cli:local:ada >chat 2>&1 & CHAT=$!
"#;

/// What all tools share.
pub const SHARED: Scene = Scene {
    readme: "docs/guide/tools/README.md",
    folder: FOLDER,
    steps: &[
        Step::new(
            "clawnode tools list",
            CALCULATES,
            "shows READ_ONLY; shows demo; shows 'any worker can run this'",
        ),
        Step::new(
            "clawnode sessions continue SESSION",
            USED_UP,
            "wait \"$CHAT\"; SAID=chat; shows '`calculate` said: 42'",
        )
        .but(&[Change {
            written: "clawnode sessions continue SESSION",
            run: "await clawnode sessions continue default:cli:local:ada",
            why: "a placeholder, and the turn takes a moment to use up its steps",
        }]),
    ],
};
