//! The READMEs of the examples.

use super::scene::{Change, Scene, Step};

const TOOLS: &str = "examples/tools/README.md";
/// The calls that the demo makes on both hosts; a person approves those that need it.
const TALK: &str = r#"
# Names of networks are the machine's; here they are the scene's.
mount -t tmpfs tmpfs /run
cd ../..
export TWO_HOSTS=$HOME/hosts CLAWNODE=$HOME/bin/clawnode
approvals() { examples/tools/two-hosts.sh on a clawnode approvals "$@"; }
approve_all() {
    while :; do
        approvals list --json 2>/dev/null | jq -r '.approvals[].action.call' >"$HOME/calls" || true
        while read -r call; do approvals approve "$call" </dev/null || true; done <"$HOME/calls"
        sleep 0.3
    done
}
approve_all >/dev/null 2>&1 &
STDIN=$HOME/chat-lines
"#;

/// Hooks, as the chat meets them.
pub const HOOKS: Scene = Scene {
    readme: "examples/hooks/README.md",
    folder: "examples/hooks",
    steps: &[Step::new(
        "chmod -R go-w hooks",
        // A chat ends with 1 if a turn failed, and this line's does.
        "grep -v 'ignore all rules' ../../../chat-lines >lines; STDIN=lines",
        "shows 10-cards; shows 'my card is [card]'; shows 'powers have two digits here'
         shows '42 (by calculate)'
         if grep 'ignore all rules' ../../../chat-lines |
             clawnode --config config.toml up --chat >blocked 2>&1; then exit 1; fi
         SAID=blocked; shows 'refused the model call'",
    )],
};

/// Both hosts on one machine, with the plugin, and with images made again.
pub const ONE_MACHINE: Scene = Scene {
    readme: TOOLS,
    folder: "examples/tools",
    steps: &[
        Step::new("rustup target add", "", "[ -s plugins/echo.wasm ]").but(&[
            Change {
                written: "rustup target add",
                run: ": ",
                why: "it downloads; the distribution's compiler has the target",
            },
            Change {
                written: "(cd ../../tests/plugins/echo &&\n  cargo build",
                run: "(cd ../../tests/plugins/echo &&\n  : cargo build",
                why: "the step `wasm plugin` of `cargo xtest` has built it",
            },
            Change {
                written: "npx @bytecodealliance/jco new",
                run: "cp \"$COMPONENT\" plugins/echo.wasm; : npx",
                why: "jco downloads 100 MB; the library that it wraps has made the component",
            },
        ]),
        Step::new(
            "cargo xtest --setup",
            TALK,
            "shows '`calculate` said: 42'
             shows '`file_write` said: created `notes/a.txt`'
             shows '`word_count` said: 3'
             shows '`kernel` said: Linux'
             shows '`echo__say` said: hello'
             shows '`everything__echo` said: Echo: hello'
             shows '`ssh_db1` said: '
             shows '`run_command` said: hello from a container'
             shows '`execute_code` said: [\"0\",\"1\",\"4\",\"9\",\"16\"'",
        )
        .but(&[
            Change { written: "cargo xtest --setup", run: "", why: "it ran before the tests" },
            Change {
                written: "cargo build --release -p clawnode --features full",
                run: "",
                why: "it takes minutes; `CLAWNODE` names the same program",
            },
        ]),
        Step::new(
            "apt-get install -y docker.io",
            "cd examples/tools; export DOCKER_HOST=unix://$TWO_HOSTS/b/docker.sock
             docker image rm -f busybox:local python:local >/dev/null",
            "docker image inspect busybox:local python:local >/dev/null
             ../../examples/tools/two-hosts.sh down",
        )
        .but(&[
            Change {
                written: "apt-get install -y",
                run: ": ",
                why: "`cargo xtest` has installed the same packages",
            },
            Change {
                written: "debootstrap --variant=minbase --include=python3 bookworm python",
                run: "mkdir python && tar -C python -xf \"$REPOSITORY/.tools/python3-image.tar\"",
                why: "it downloads a distribution; `cargo xtest` made this archive with that command",
            },
        ]),
    ],
};

/// The same on two machines, of which one has both nodes here and Docker is missing.
pub const TWO_MACHINES: Scene = Scene {
    readme: TOOLS,
    folder: "examples/tools",
    steps: &[
        Step::new("npm install --prefix mcp", "", "").but(&[Change {
            written: "npm install --prefix mcp @modelcontextprotocol/server-everything",
            run: "cp -r \"$REPOSITORY/.tools/mcp\" mcp",
            why: "it downloads; `cargo xtest` installed the same with npm",
        }]),
        Step::new(
            "nats-server -js",
            "ln -s \"$REPOSITORY/.tools/nats/bin/nats-server\" \"$HOME/bin/nats-server\"
             mkdir ssh; ssh-keygen -q -t ed25519 -N '' -f ssh/id_ed25519",
            "await clawnode status --data-dir one",
        )
        .but(&[BUS, FIRST]),
        Step::new(
            "clawnode --role gateway,worker",
            "",
            "await clawnode status --data-dir two
             grep -E '^/tool (calculate|file_write|kernel) ' \"$HOME/chat-lines\" |
                 clawnode chat --data-dir one >talk 2>&1 || true
             SAID=talk; shows '`calculate` said: 42'; shows '`kernel` said: Linux'
             shows '`file_write` said: created `notes/a.txt`'; [ -e files/default/notes/a.txt ]",
        )
        .but(&[BUS, SECOND]),
    ],
};

const BUS: Change = Change { written: "BUS", run: "127.0.0.1", why: "a placeholder" };
const FIRST: Change = Change {
    written: "--data-dir one",
    run: "--data-dir one >>\"$HOME/node.log\" 2>&1 &",
    why: "it serves for ever",
};
const SECOND: Change = Change {
    written: "--data-dir two",
    run: "--data-dir two --listen 127.0.0.1:3101 >>\"$HOME/node.log\" 2>&1 &",
    why: "it serves for ever, and the other machine has the port to itself",
};
