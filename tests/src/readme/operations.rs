//! The pages for those who run clawnode, but those about many processes.

use super::{
    first::FOLDER,
    scene::{Change, Scene, Step},
};

/// A node, and a session with one turn.
const TALKED: &str =
    "serve; printf 'hello\\n' | clawnode chat --session default:cli:local:ada >/dev/null";

const SESSION: Change =
    Change { written: "SESSION", run: "default:cli:local:ada", why: "a placeholder" };

/// What operators look at.
pub const OBSERVE: Scene = Scene {
    readme: "docs/operations/observe.md",
    folder: FOLDER,
    steps: &[
        Step::new(
            "clawnode sessions list",
            TALKED,
            "shows 'default:cli:local:ada'; shows 'sound'; shows 'paused'; shows 'config.valid'
             clawnode agents resume default >/dev/null",
        )
        .but(&[SESSION]),
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
        Step::new("clawnode providers ", "", "shows demo"),
        Step::new(
            "clawnode usage ",
            // Counts may be seconds old.
            "await sh -c 'clawnode usage | grep CALLS'",
            "shows CALLS; shows default; shows output_tokens; shows as counted",
        ),
        Step::new("clawnode agents profile ", "", "shows '100.0% of'; shows success_rate"),
        Step::new("clawnode journal replay", "stop", "shows 'identical'").but(&[SESSION]),
    ],
};

/// Each other page.
pub const OPERATIONS: [Scene; 6] = [
    Scene {
        readme: "docs/operations/panic.md",
        folder: FOLDER,
        steps: &[
            Step::new(
                "clawnode panic ",
                "serve",
                "shows 'everything is stopped'; shows 'everything continues'",
            ),
            Step::new("clawnode agents pause", "", "shows paused"),
        ],
    },
    Scene {
        readme: "docs/operations/budgets.md",
        folder: FOLDER,
        steps: &[
            Step::new("clawnode budget list", TALKED, "shows '$5.00 per day'; shows 'operator at'"),
            Step::new(
                "clawnode budget explain",
                "clawnode budget set cluster --usd-per-day 5.00 >/dev/null",
                "shows 'can be made now'",
            )
            .but(&[SESSION]),
            Step::left(
                "clawnode budget reconcile",
                "it takes a node that has died; the unit tests of `node/accounts` close what one had",
            ),
        ],
    },
    Scene {
        readme: "docs/operations/doctor.md",
        folder: FOLDER,
        steps: &[
            Step::new("clawnode doctor  ", "serve", "shows config.valid"),
            Step::new("clawnode doctor --json", "", ""),
        ],
    },
    Scene {
        readme: "docs/operations/backup.md",
        folder: FOLDER,
        steps: &[
            Step::new(
                "clawnode backup",
                "serve; printf 'hello\\n' | clawnode chat --session default:cli:local:ada >/dev/null; stop",
                "shows 'wrote `clawnode.backup`'; shows 'restored from `clawnode.backup`'",
            ),
            Step::new("clawnode sessions export", "serve", "[ -s session.json ]").but(&[SESSION]),
        ],
    },
    Scene {
        readme: "docs/operations/data.md",
        folder: FOLDER,
        steps: &[
            Step::new("ls -l", TALKED, "shows token; shows sound"),
            Step::new("clawnode journal repair", "stop", "shows 'nothing is damaged'"),
        ],
    },
    Scene {
        readme: "docs/operations/crashes.md",
        folder: FOLDER,
        steps: &[
            Step::new("clawnode journal verify", TALKED, "shows sound"),
            Step::left(
                "cargo build -p clawnode --features test-util",
                "it takes minutes; the step `chaos` of `cargo xtest` runs that program",
            ),
        ],
    },
];

/// A page that takes a cluster whose streams were destroyed.
pub const STOLEN: Scene = Scene {
    readme: "docs/stolen-credentials.md",
    folder: FOLDER,
    steps: &[
        Step::left("clawnode cluster mirror", DESTROYED),
        Step::left("clawnode cluster restore", DESTROYED),
    ],
};

/// Where both are tried.
const DESTROYED: &str =
    "the test `bus_security` destroys streams of a real server, and brings them back so";
