//! Many processes over NATS, in the main README and in that of `docker`, and what takes longer than a
//! test may.

use super::scene::{Change, Scene, Step};

const README: &str = "README.md";

/// A NATS server, two workers, a gateway, and sessions that move there.
pub const CLUSTER: Scene = Scene {
    readme: README,
    folder: "empty",
    steps: &[
        Step::new("pip install --target", "", ""),
        Step::new(
            "clawnode chat --data-dir ./gateway",
            "await clawnode status --data-dir ./gateway; printf 'hello\\n' >hello; STDIN=hello",
            "shows 'You said: hello'",
        ),
        Step::new(
            "clawnode import --from",
            "printf 'hello\\n' | USER=grace clawnode up --chat --listen 127.0.0.1:3200 2>/dev/null",
            "shows '1 session'",
        ),
    ],
};

/// A cluster with keys.
pub const KEYS: Scene = Scene {
    readme: README,
    folder: "empty",
    steps: &[Step::new(
        "clawnode cluster init",
        "ip addr add 10.0.0.1/24 dev lo
         SERVER=$HOME/.local/share/clawnode/cluster/servers/n1
         nats() { (cd \"$SERVER\" && exec \"$REPOSITORY/.tools/nats/bin/nats-server\" -c nats.conf); }",
        "shows 'within an hour'; shows worker-1; shows 'revoked `worker-1`'",
    )
    .but(&[
        Change {
            written: "# then start the server in the folder it names",
            run: "\nnats >\"$HOME/nats.log\" 2>&1 &\nawait clawnode cluster users",
            why: "the comment is a task",
        },
        Change {
            written: "CLAWNODE_JOIN=TOKEN clawnode --role worker",
            run: "clawnode cluster join-token --role worker --json | jq -r .token >token
                  CLAWNODE_JOIN=$(cat token) clawnode --role worker --data-dir worker \
                      >>\"$HOME/node.log\" 2>&1 &\nawait grep -q 'node serves' \"$HOME/node.log\"",
            why: "the token is a placeholder, and the node serves for ever",
        },
    ])],
};

/// The page about running clawnode: keys for three servers, and the service, which takes systemd.
pub const RUNNING: Scene = Scene {
    readme: "docker/README.md",
    folder: "empty",
    steps: &[
        Step::left(
            "systemctl enable --now clawnode",
            "tests have no systemd; those of packages install the package and talk as its user",
        ),
        Step::new(
            "clawnode cluster init",
            "",
            "shows 'clawnode cluster join-token --role worker'
             ls \"$HOME\"/.local/share/clawnode/cluster/servers/n[123]/nats.conf",
        ),
    ],
};

/// Blocks that do not run.
pub const UNPLAYED: Scene = Scene {
    readme: README,
    folder: "empty",
    steps: &[
        Step::left(
            "cargo build --profile dist",
            "it takes minutes; the tests of packages and of the compose file make each from the program \
             that they have, install it and talk to it",
        ),
        Step::left(
            "cargo build -p clawnode --features test-util",
            "it takes minutes; the step `chaos` of `cargo xtest` runs that program",
        ),
    ],
};
