//! The second wall of processes: Landlock, behind a first wall with a hole in it.

use std::{
    fs,
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::PermissionsExt,
            net::{SocketAddr, UnixListener},
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::Command,
};

use clawnode_executors::{
    SandboxOptions,
    sandbox::{Processes, SandboxBug, Steps},
};
use clawnode_proto::tool::ToolFailure;
use clawnode_tool::Toolbox;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{call, processes, steps, told};

/// A user that owns no processes.
const NOBODY: u32 = 65_534;

async fn python(toolbox: &Toolbox, code: &str) -> (Option<ToolFailure>, String) {
    let arguments = json!({ "code": code });
    told(call(toolbox, "run_python", arguments, CancellationToken::new()).await)
}

async fn sh(toolbox: &Toolbox, line: &str) -> (Option<ToolFailure>, String) {
    let arguments = json!({ "command": line });
    told(call(toolbox, "run_command", arguments, CancellationToken::new()).await)
}

/// Processes with this hole in their first wall, with the second and without it.
fn both(planted: SandboxBug) -> [(bool, Toolbox); 2] {
    [("required", true), ("off", false)].map(|(landlock, walled)| {
        let options = json!({ "process": { "landlock": landlock } });
        (walled, processes(options, planted, None))
    })
}

fn open(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// What this kernel says of itself.
fn kernel() -> i32 {
    let code = "import ctypes; print(ctypes.CDLL(None).syscall(444, None, 0, 1))";
    let said = Command::new("/usr/bin/python3").args(["-c", code]).output().unwrap();
    String::from_utf8(said.stdout).unwrap().trim().parse().unwrap()
}

fn made(process: &Value, steps: Steps) -> Processes {
    let options: SandboxOptions = serde_json::from_value(json!({ "process": process })).unwrap();
    Processes::new(options.process).walled_by(steps)
}

#[tokio::test]
async fn the_probe_says_what_the_host_has() {
    let processes = made(&json!({}), steps());
    processes.health_check().await.unwrap();
    let found = processes.second_wall().map(|wall| wall.to_string());
    let wanted = match kernel() {
        6.. => Ok("ABI 6: files, signals and abstract sockets"),
        3..=5 => Ok("ABI 3: files"),
        _ => Err("this kernel has no Landlock that protects files"),
    };
    assert_eq!(found.as_deref().map_err(String::as_str), wanted);
    assert!(kernel() >= 6, "the other tests of this file need Linux 6.12 with Landlock");
    let off = made(&json!({ "landlock": "off" }), steps());
    off.health_check().await.unwrap();
    assert!(off.second_wall().unwrap_err().contains("\"off\""));
}

/// What puts it up is missing, is another program, or is not this host's to run.
#[tokio::test]
async fn a_wall_that_cannot_be_had_is_done_without_or_refused_as_it_was_said() {
    for binary in ["/nowhere/clawnode", "/usr/bin/false", "/etc/passwd"] {
        let steps = || Steps { binary: binary.into(), command: "sandboxed-exec".into() };
        let processes = made(&json!({}), steps());
        processes.health_check().await.unwrap();
        assert!(processes.second_wall().is_err(), "{binary}");
        let required = made(&json!({ "landlock": "required" }), steps());
        let why = required.health_check().await.unwrap_err().to_string();
        let wanted = "sandbox_unavailable: `sandbox.process.landlock` is \"required\", and it does";
        assert!(why.starts_with(wanted), "{binary}: {why}");
    }
    // Landlock is not taken for isolation: without the first wall nothing is run.
    let alone = made(&json!({ "bwrap": "/nowhere/bwrap" }), steps());
    let why = alone.health_check().await.unwrap_err().to_string();
    assert!(why.starts_with("sandbox_unavailable: processes cannot be isolated"), "{why}");
    assert!(
        why.contains("/nowhere/bwrap") && why.contains("Landlock alone limits neither"),
        "{why}"
    );
}

#[tokio::test]
async fn what_a_command_is_shown_works_behind_both_walls() {
    let root = tempfile::tempdir_in("/tmp").unwrap();
    let files = root.path().join("main");
    fs::create_dir_all(&files).unwrap();
    open(root.path(), 0o755);
    std::os::unix::fs::chown(&files, Some(1_000), Some(1_000)).unwrap();
    let with = |access: &str| {
        let process = json!({ "landlock": "required" });
        let options = json!({ "workspace": access, "process": process });
        processes(options, SandboxBug::None, Some(root.path()))
    };
    let toolbox = with("read_write");
    for (line, words) in [
        ("mkdir -p a/b && echo one >a/b/f && mv a/b/f g && cat g && rm -r a", "one\n"),
        ("echo '#!/bin/sh\necho ran' >run && chmod +x run && ./run && rm run", "ran\n"),
        (
            "echo t >/tmp/t && cat /tmp/t && ln /tmp/t /tmp/u && : >/tmp/t && wc -c </tmp/u",
            "t\n0\n",
        ),
        ("echo gone >/dev/null; head -c 2 /dev/zero | wc -c; cat </dev/null", "2\n"),
        ("grep -c . /proc/self/status >/tmp/n && [ -s /tmp/n ] && echo proc", "proc\n"),
        ("sleep 60 & kill $! && echo killed", "killed\n"),
        // What it inherits of the program that shut it in is a path and no more.
        (
            "cat /proc/self/fd/3 2>/dev/null || /proc/self/fd/3 --version 2>/dev/null || echo no",
            "no\n",
        ),
    ] {
        let (failure, text) = sh(&toolbox, line).await;
        assert_eq!((failure, text.as_str()), (None, words), "{line}");
    }
    let code = "import multiprocessing, socket\n\
                a, b = socket.socketpair()\n\
                a.send(b'hi')\n\
                with multiprocessing.Pool(2) as pool:\n    print(b.recv(9), pool.map(abs, [-1, 2]))";
    let (failure, text) = python(&toolbox, code).await;
    assert_eq!((failure, text.as_str()), (None, "b'hi' [1, 2]\n"));
    fs::write(files.join("kept"), "kept\n").unwrap();
    let (_, text) = sh(&with("read_only"), "cat kept; echo x >kept || echo refused").await;
    assert!(text.starts_with("kept\nrefused\n"), "{text}");
    // A program that is not there ends as it does in a shell.
    let tools =
        json!({ "gone": { "description": "d", "command": ["no-such-program"], "env": "process" } });
    let gone = processes(json!({ "tools": tools }), SandboxBug::None, None);
    let (failure, text) = told(call(&gone, "gone", json!({}), CancellationToken::new()).await);
    assert_eq!(failure, Some(ToolFailure::Failed));
    assert!(text.contains("cannot run `no-such-program`") && text.contains("127"), "{text}");
}

/// The twins: the first wall alone, with this hole, lets it happen.
#[tokio::test]
async fn files_that_are_mounted_by_mistake_can_be_neither_read_nor_written() {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    open(dir.path(), 0o777);
    let secret = dir.path().join("secret");
    fs::write(&secret, "a secret\n").unwrap();
    open(&secret, 0o666);
    // Not that of the host, which a command is shown anyway: it is the same file wherever it is.
    fs::copy("/usr/bin/true", dir.path().join("true")).unwrap();
    let at = |path: &Path| PathBuf::from("/host").join(path.strip_prefix("/").unwrap());
    let (dir, inside) = (dir.path(), at(&secret));
    let (inside, folder) = (inside.display(), at(dir));
    let folder = folder.display();
    for (walled, toolbox) in both(SandboxBug::HostFiles) {
        let (failure, text) = sh(&toolbox, &format!("cat {inside}")).await;
        assert_eq!(text.contains("a secret"), !walled, "{text}");
        assert_eq!(failure.is_some(), walled, "{text}");
        for line in [
            format!("echo x >{folder}/new"),
            format!("mkdir {folder}/new"),
            format!("echo x >/tmp/x && mv /tmp/x {folder}/new"),
            format!("ln -s /etc {folder}/new"),
        ] {
            let (failure, text) = sh(&toolbox, &line).await;
            let new = dir.join("new");
            let is_there = new.symlink_metadata().is_ok();
            assert_eq!(is_there, !walled, "{line}: {text}");
            assert_eq!(failure.is_some(), walled, "{line}: {text}");
            if is_there {
                fs::remove_file(&new).or_else(|_| fs::remove_dir(&new)).unwrap();
            }
        }
        for line in [format!("ls {folder}"), format!("{folder}/true"), format!(": >{inside}")] {
            let (failure, text) = sh(&toolbox, &line).await;
            assert_eq!(failure.is_some(), walled, "{line}: {text}");
        }
        assert_eq!(fs::read(&secret).unwrap().is_empty(), !walled);
    }
}

#[tokio::test]
async fn abstract_sockets_that_are_shared_by_mistake_are_not_reached() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = format!("clawnode-test-{:x}", super::ulid());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let listens = UnixListener::bind_addr(&address).unwrap();
    let port = tcp.local_addr().unwrap().port();
    let told_by = |code: &str| {
        format!(
            "import socket\ntry:\n    {code}\n    print('through')\n\
             except PermissionError:\n    print('refused')"
        )
    };
    let hidden = format!("socket.socket(socket.AF_UNIX).connect('\\0{name}')");
    for (walled, toolbox) in both(SandboxBug::HostNetwork) {
        let (_, text) = python(&toolbox, &told_by(&hidden)).await;
        assert_eq!(text, if walled { "refused\n" } else { "through\n" });
        // This is why Landlock alone is no isolation.
        let connect = format!("socket.create_connection(('127.0.0.1', {port}), 10)");
        let (_, text) = python(&toolbox, &told_by(&connect)).await;
        assert_eq!(text, "through\n");
    }
    drop((tcp, listens));
}

/// Behind both walls a command's own programs still reach each other, as in a container.
#[tokio::test]
async fn a_command_has_a_localhost_of_its_own() {
    let outside = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = outside.local_addr().unwrap().port();
    let code = format!(
        "import socket\n\
         own = socket.create_server(('127.0.0.1', 0))\n\
         socket.create_connection(own.getsockname(), 10).send(b'hi')\n\
         print(own.accept()[0].recv(9))\n\
         try:\n    socket.create_connection(('127.0.0.1', {port}), 10)\n\
         except ConnectionRefusedError:\n    print('alone')"
    );
    let walled =
        processes(json!({ "process": { "landlock": "required" } }), SandboxBug::None, None);
    let (failure, text) = python(&walled, &code).await;
    assert_eq!((failure, text.as_str()), (None, "b'hi'\nalone\n"));
}

#[tokio::test]
async fn processes_that_are_seen_by_mistake_are_not_signalled() {
    for (walled, toolbox) in both(SandboxBug::SharedPids) {
        let mut victim = Command::new("sleep").arg("1000").uid(NOBODY).gid(NOBODY).spawn().unwrap();
        let line = format!("kill -9 {}", victim.id());
        let (failure, text) = sh(&toolbox, &line).await;
        assert_eq!(failure.is_some(), walled, "{text}");
        let before = victim.try_wait().unwrap();
        assert!(!walled || before.is_none(), "it is still there: {before:?}");
        victim.kill().unwrap();
        let ended = victim.wait().unwrap();
        assert!(!ended.success());
    }
}
