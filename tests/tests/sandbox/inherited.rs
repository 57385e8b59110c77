//! What a process of this host has open is not handed on to what it starts for agents and operators.
//!
//! Method: this process opens a secret so that programs which it starts inherit it, as a shell's
//! redirection or a supervisor does, and looks at what there is in the programs.

use std::{
    fs::{self, File},
    io::{Seek, Write},
    os::fd::AsRawFd,
    process::{Command, Stdio},
};

use clawnode_executors::sandbox::SandboxBug;
use clawnode_tests::process::{Home, Node, TestBackend, binary};
use rustix::io::{FdFlags, fcntl_setfd};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Outcome, call, processes, told};

const SECRET: &str = "a secret of the host\n";
/// Standard input, output and errors; the fourth is the folder that `ls` itself lists.
const STANDARD: &str = "0\n1\n2\n3\n";

/// A file that is inherited by whatever this process starts.
fn inherited() -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(SECRET.as_bytes()).unwrap();
    fcntl_setfd(&file, FdFlags::empty()).unwrap();
    file
}

/// The twin: a program that is just started has it.
fn is_inherited(mut file: &File) -> bool {
    file.rewind().unwrap();
    let mut cat = Command::new("/bin/cat");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let said = cat.arg(path).stdin(Stdio::null()).output().unwrap();
    said.stdout == SECRET.as_bytes()
}

#[tokio::test]
async fn a_sandboxed_command_has_its_standard_streams_alone() {
    let file = inherited();
    assert!(is_inherited(&file));
    for landlock in ["required", "off"] {
        let options = json!({ "process": { "landlock": landlock } });
        let toolbox = processes(options, SandboxBug::None, None);
        let sh = async |line: &str| {
            let arguments = json!({ "command": line });
            told(call(&toolbox, "run_command", arguments, CancellationToken::new()).await)
        };
        assert_eq!(sh("ls /proc/self/fd").await, (None, STANDARD.to_owned()), "{landlock}");
        let (failure, text) = sh(&format!("cat <&{}", file.as_raw_fd())).await;
        assert!(failure.is_some() && !text.contains(SECRET), "{landlock}: {text}");
    }
}

/// Of MCP servers and hooks, which are started behind the same keeper.
#[test]
fn a_kept_program_has_its_standard_streams_alone() {
    let file = inherited();
    assert!(is_inherited(&file));
    let node = std::process::id().to_string();
    let mut keeper = Command::new(binary().unwrap());
    keeper.args(["mcp-keeper", &node, "", "/bin/ls", "/proc/self/fd"]).stdin(Stdio::null());
    let said = keeper.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), STANDARD);
}

/// So what a node starts by any other way has not got it either.
#[tokio::test]
async fn a_node_hands_on_nothing_that_it_was_started_with() -> Outcome {
    let file = inherited();
    let home = Home::new(TestBackend::Local)?;
    let node = Node::up(&home).await?;
    let open = format!("/proc/{}/fd", node.pid());
    let mut checked = 0;
    for entry in fs::read_dir(&open).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if name.parse::<i32>().unwrap() < 3 {
            continue;
        }
        let about = format!("/proc/{}/fdinfo/{name}", node.pid());
        // It may have been closed meanwhile.
        let Ok(about) = fs::read_to_string(about) else { continue };
        let flags = about.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
        let flags = u32::from_str_radix(flags.trim(), 8).unwrap();
        assert!(flags & rustix::fs::OFlags::CLOEXEC.bits() != 0, "{name} of {open}: {about}");
        checked += usize::from(name == file.as_raw_fd().to_string());
    }
    assert_eq!(checked, 1, "what the test opened was seen");
    node.stop().await
}
