//! Many processes over NATS, in pages about operations and in the README of `docker`.

use super::{
    first::{FOLDER, NODES},
    scene::{Change, Scene, Step},
};

/// A NATS server, two workers, a gateway, and sessions that move there.
pub const CLUSTER: Scene = Scene {
    readme: "docs/operations/cluster.md",
    folder: FOLDER,
    steps: &[
        NODES,
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
    readme: "docs/operations/security.md",
    folder: FOLDER,
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

/// Two workers with names, and a gateway, before one is drained.
const NAMED: &str = r#"
NATS=nats://127.0.0.1:4222
"$REPOSITORY/.tools/nats/bin/nats-server" -js -sd nats-data >"$HOME/nats.log" 2>&1 &
for worker in worker-1 worker-2; do
    CLAWNODE_NODE__NAME=$worker clawnode --role worker --nats $NATS --data-dir ./$worker \
        >>"$HOME/node.log" 2>&1 &
done
clawnode --role gateway --nats $NATS >>"$HOME/node.log" 2>&1 &
await clawnode status
both() { clawnode nodes >nodes && grep -q worker-1 nodes && grep -q worker-2 nodes; }
await both
"#;

/// A worker that is drained.
pub const UPGRADE: Scene = Scene {
    readme: "docs/operations/upgrade.md",
    folder: FOLDER,
    steps: &[
        Step::new(
            "clawnode nodes ",
            NAMED,
            "shows '`worker-1` takes no more sessions'
             shows '`worker-1` has handed everything over and has ended'",
        ),
        Step::new("clawnode node uncordon", "", "shows '`worker-2` takes sessions again'"),
    ],
};

/// The page about running clawnode: keys for three servers, and the service, which takes systemd.
pub const RUNNING: Scene = Scene {
    readme: "docker/README.md",
    folder: FOLDER,
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
