//! What a command may use of its host, all its processes together.

use std::{fs, path::PathBuf, process::Command, process::Stdio, sync::Arc};

use clawnode_executors::{
    SandboxOptions,
    sandbox::{Commands, GroupLimits, Processes, SandboxBug},
};
use clawnode_proto::tool::ToolFailure;
use clawnode_tests::{process::binary, wait::until};
use clawnode_tool::{Executor, Toolbox};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Outcome, call, processes, steps, told};

/// Names a control group that the tests may divide, where the host delegates none by itself.
const GROUP: &str = "CLAWNODE_TEST_CGROUP";

async fn sh(toolbox: &Toolbox, line: &str) -> (Option<ToolFailure>, String) {
    let arguments = json!({ "command": line });
    told(call(toolbox, "run_command", arguments, CancellationToken::new()).await)
}

async fn python(toolbox: &Toolbox, code: &str) -> (Option<ToolFailure>, String) {
    let arguments = json!({ "code": code });
    told(call(toolbox, "run_python", arguments, CancellationToken::new()).await)
}

#[tokio::test]
async fn files_in_memory_have_a_size() {
    for landlock in ["if_present", "off"] {
        let options = json!({ "process": { "landlock": landlock, "tmp": "16m" } });
        let toolbox = processes(options, SandboxBug::None, None);
        // Files of less than the greatest size, so that only the sum can stop them.
        for place in ["/tmp", "/dev/shm"] {
            let line = format!(
                "for i in 1 2 3; do head -c 7000000 /dev/zero >{place}/$i 2>/dev/null || echo full; \
                 done; cat {place}/* | wc -c"
            );
            let (failure, text) = sh(&toolbox, &line).await;
            let written =
                text.strip_prefix("full\n").and_then(|text| text.trim().parse::<u64>().ok());
            assert!(
                failure.is_none() && written.is_some_and(|bytes| bytes <= 16 << 20),
                "{place}: {text}"
            );
        }
        for place in ["/", "/dev", "/proc", "/usr", "/dev/pts"] {
            let (failure, text) = sh(&toolbox, &format!("echo x >{place}/x")).await;
            assert_eq!(failure, Some(ToolFailure::Failed), "{landlock} {place}: {text}");
        }
        let (failure, text) =
            sh(&toolbox, "echo x >/dev/null && head -c 1 /dev/zero | wc -c").await;
        assert_eq!((failure, text.as_str()), (None, "1\n"), "{landlock}");
    }
}

/// When the host's memory ends, what runs for agents goes before the node.
#[tokio::test]
async fn commands_and_servers_are_the_first_to_go() {
    let toolbox = processes(json!({}), SandboxBug::None, None);
    assert_eq!(sh(&toolbox, "cat /proc/self/oom_score_adj").await, (None, "1000\n".to_owned()));
    let node = std::process::id().to_string();
    let mut keeper = Command::new(binary().unwrap());
    let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    // The keeper has its own score again once it has started the program, which may run before that.
    let line = "cat /proc/self/oom_score_adj\n\
                for i in $(seq 500); do\n\
                said=$(cat /proc/$PPID/oom_score_adj); [ \"$said\" = \"$0\" ] && break; sleep 0.01\n\
                done\n\
                echo \"$said\"";
    keeper.args(["mcp-keeper", &node, "", "/bin/sh", "-c", line, own.trim()]).stdin(Stdio::null());
    let said = keeper.output().unwrap();
    // Its keeper stays: it ends what is left.
    assert_eq!(String::from_utf8_lossy(&said.stdout), format!("1000\n{own}"));
}

/// Commands in control groups, and what holds there; or why there are none on this host.
fn grouped(mut options: Value) -> (Result<GroupLimits, String>, Toolbox) {
    if let Some(group) = std::env::var_os(GROUP) {
        options["process"]["cgroup"] = json!(PathBuf::from(group));
    }
    options["run_in"] = json!("process");
    let options: SandboxOptions = serde_json::from_value(options).unwrap();
    let processes = Processes::new(options.process.clone()).walled_by(steps()).in_groups();
    let held = processes.limits_of(std::process::id());
    let commands = Commands::in_processes(&options, processes, None);
    (held, Toolbox::new([Arc::new(commands) as Arc<dyn Executor>]).unwrap())
}

/// Of single processes, which hold everywhere, and of all together where the host has groups for us.
#[tokio::test]
async fn all_that_a_command_keeps_and_does_is_limited_where_groups_are_delegated() -> Outcome {
    let (held, toolbox) =
        grouped(json!({ "process": { "memory": "192m", "tmp": "128m", "pids": 24, "cpus": 0.5 } }));
    assert_eq!(sh(&toolbox, "echo in").await, (None, "in\n".to_owned()));
    let held = match held {
        Ok(held) => held,
        Err(why) => {
            // What is said where nothing holds, by `doctor` too.
            assert!(why.contains("control group"), "{why}");
            let skipped = format!("limits of groups not tried, set {GROUP}: {why}\n");
            drop(std::io::Write::write_all(&mut std::io::stderr(), skipped.as_bytes()));
            return Ok(());
        }
    };
    let out_of_memory = "out of memory: it was killed (137) when it wanted more than 192MiB";
    for code in [
        // Shared, which no limit of a process counts.
        "import mmap\nm = mmap.mmap(-1, 400 << 20)\nfor at in range(0, 400 << 20, 4096): m[at] = 1",
        // Each of them within what one process may have.
        "import os, signal\nfor _ in range(4):\n    if os.fork() == 0:\n        x = b'a' * (80 << 20)\n        \
         signal.pause()\nos.wait()",
        // Files in memory count.
        "for name in ('/tmp/a', '/dev/shm/a'):\n    with open(name, 'wb') as f:\n        \
         for _ in range(110): f.write(bytes(1 << 20))",
    ] {
        let (failure, text) = python(&toolbox, code).await;
        assert_eq!(failure, Some(ToolFailure::Crashed), "{code}: {text}");
        assert!(text.contains(out_of_memory), "{code}: {text}");
    }
    // Processes: with those that hold the command, fewer than it may have.
    let line = "for i in $(seq 40); do sleep 5 & done; jobs -p | wc -l";
    let (failure, text) = sh(&toolbox, line).await;
    let begun = text.lines().find_map(|line| line.trim().parse::<u32>().ok());
    assert!(failure.is_some() || begun.is_some_and(|count| count < 24), "{text}");
    if held.cpu {
        let code = "import time\nbegun = time.monotonic()\nwhile time.process_time() < 1: pass\n\
                    print(time.monotonic() - begun > 1.5)";
        assert_eq!(python(&toolbox, code).await, (None, "True\n".to_owned()));
    }
    // Nothing stays, once the last process has ended.
    let left = || {
        let entries = fs::read_dir(&held.group).unwrap().flatten();
        entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"run-")).count()
    };
    until("the groups of commands to go", async || {
        // The next command removes what was still ending.
        sh(&toolbox, "true").await;
        Ok((left() <= 1).then_some(()))
    })
    .await
}
