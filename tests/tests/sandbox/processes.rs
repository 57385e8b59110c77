//! Commands as processes of this host.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    sync::Arc,
    time::Instant,
};

use clawnode_executors::{
    SandboxOptions, Workspace, WorkspaceOptions,
    sandbox::{Processes, SandboxBug},
};
use clawnode_proto::tool::ToolFailure;
use clawnode_tests::wait::until;
use clawnode_tool::{Executor, Toolbox};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Outcome, call, processes, told};

async fn sh(toolbox: &Toolbox, line: &str) -> (Option<ToolFailure>, String) {
    let arguments = json!({ "command": line });
    told(call(toolbox, "run_command", arguments, CancellationToken::new()).await)
}

/// Whether a process of this host has a command line with this in it.
fn runs(is_it: impl Fn(&str) -> bool) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).into_owned()).any(|line| is_it(&line))
}

#[tokio::test]
async fn a_process_is_alone_and_ends_in_words() {
    // What the host has and a command must not see.
    let secret = tempfile::NamedTempFile::new_in("/tmp").unwrap();
    let secret = secret.path().display();
    let toolbox = processes(json!({}), SandboxBug::None, None);
    for (line, failure, words) in [
        ("echo a; echo b >&2".to_owned(), None, "a\n[stderr]\nb\n"),
        ("exit 4".to_owned(), Some(ToolFailure::Failed), "[exit code 4]"),
        ("kill -9 $$".to_owned(), Some(ToolFailure::Failed), "[exit code 137]"),
        ("printf '\\377'".to_owned(), None, "\u{fffd}\n[some bytes of stdout were not UTF-8"),
        ("id -u; pwd".to_owned(), None, "65534\n/tmp\n"),
        (
            "env | grep -c .; echo $CLAWNODE_IDEMPOTENCY_KEY | cut -c1-4".to_owned(),
            None,
            "5\njob_\n",
        ),
        (format!("ls {secret}"), Some(ToolFailure::Failed), "[stderr]\nls: cannot access"),
        (
            "ls /root /home /etc/passwd /var".to_owned(),
            Some(ToolFailure::Failed),
            "[stderr]\nls: cannot access",
        ),
        (
            "echo x >/usr/x".to_owned(),
            Some(ToolFailure::Failed),
            "[stderr]\nsh: 1: cannot create /usr/x",
        ),
        ("echo x >/x".to_owned(), Some(ToolFailure::Failed), "[stderr]\nsh: 1: cannot create /x"),
        // Of the shell itself: who else would run beside it is not there yet, or not any more.
        ("set -- /proc/[0-9]*; echo $#".to_owned(), None, "2\n"),
        ("cat /proc/net/dev | grep -c :".to_owned(), None, "1\n"),
        (
            "grep -E 'Cap(Eff|Bnd)|NoNew' /proc/self/status | tr -d '\\t\\n'".to_owned(),
            None,
            "CapEff:0000000000000000CapBnd:0000000000000000NoNewPrivs:1",
        ),
        ("unshare -Ur true".to_owned(), Some(ToolFailure::Failed), "[stderr]\nunshare: "),
        (
            "dd if=/dev/zero of=/tmp/f bs=1M count=100".to_owned(),
            Some(ToolFailure::Failed),
            "[stderr]",
        ),
        ("sleep 100 & echo begun".to_owned(), None, "begun\n"),
    ] {
        let (failed, text) = sh(&toolbox, &line).await;
        assert_eq!(failed, failure, "{line}: {text}");
        assert!(text.starts_with(words), "{line}: {text}");
    }
    let (failure, text) = sh(&toolbox, "head -c 3000000 /dev/zero | tr '\\0' a").await;
    assert_eq!(failure, None);
    assert!(text.len() < 1_001_000 && text.contains("of 3000000 bytes of stdout]"));
    let code = json!({ "code": "x = 'a' * (900 << 20)\nprint(len(x))" });
    let (failure, text) = told(call(&toolbox, "run_python", code, CancellationToken::new()).await);
    assert_eq!(failure, Some(ToolFailure::Failed), "{text}");
    assert!(text.contains("MemoryError"), "{text}");
    let code = json!({ "code": "import sys\nprint(6 * 7, sys.stdin.read() == '')" });
    let (failure, text) = told(call(&toolbox, "run_python", code, CancellationToken::new()).await);
    assert_eq!((failure, text.as_str()), (None, "42 True\n"));
}

#[tokio::test]
async fn a_process_changes_the_files_of_its_agent_alone() {
    let root = tempfile::tempdir_in("/tmp").unwrap();
    let files = root.path().join("main");
    fs::create_dir_all(&files).unwrap();
    fs::create_dir(root.path().join("other")).unwrap();
    // The tests are root, which sandboxes never are: the files belong to another user.
    let open = |path: &Path| {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    open(root.path());
    std::os::unix::fs::chown(&files, Some(1_000), Some(1_000)).unwrap();
    for (access, failure, words) in [
        ("read_write", None, "/workspace\nnew\n"),
        ("read_only", Some(ToolFailure::Failed), "/workspace\n[stderr]\n"),
        ("none", None, "/tmp\nnew\n"),
    ] {
        let toolbox =
            processes(json!({ "workspace": access }), SandboxBug::None, Some(root.path()));
        let (failed, text) =
            sh(&toolbox, "pwd; echo new >n && cat n; ls ../other 2>/dev/null; [ -e n ]").await;
        assert_eq!(failed, failure, "{access}: {text}");
        assert!(text.starts_with(words), "{access}: {text}");
        let written = fs::remove_file(files.join("n")).is_ok();
        assert_eq!(written, access == "read_write", "{access}");
    }
}

/// The node is root here, whose files a command could not change.
#[tokio::test]
async fn a_command_goes_on_with_what_file_write_made_and_no_mark_on_it_stays() {
    let root = tempfile::tempdir_in("/tmp").unwrap();
    let files = root.path().join("main");
    fs::create_dir_all(&files).unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(&files, Some(1_000), Some(1_000)).unwrap();
    let commands =
        processes(json!({ "workspace": "read_write" }), SandboxBug::None, Some(root.path()));
    let workspace = Workspace::open(&WorkspaceOptions::new(root.path().to_owned())).unwrap();
    let workspace = Toolbox::new([Arc::new(workspace) as Arc<dyn Executor>]).unwrap();
    let write = async |path: &str| {
        let arguments = json!({ "path": path, "content": "#!/bin/sh\necho one\n" });
        let told = told(call(&workspace, "file_write", arguments, CancellationToken::new()).await);
        assert_eq!(told.0, None, "{}", told.1);
    };
    write("new/script").await;
    let line = "echo echo two >>new/script && touch new/other && sh new/script; stat -c %u new";
    assert_eq!(sh(&commands, line).await, (None, "one\ntwo\n1000\n".to_owned()));
    // What the command marks does not run as the node, which writes it.
    let (failure, text) =
        sh(&commands, ": >program && chmod 6755 program && stat -c %a program").await;
    assert_eq!((failure, text.as_str()), (None, "6755\n"));
    write("program").await;
    let about = fs::metadata(files.join("program")).unwrap();
    assert_eq!((about.mode() & 0o7777, about.uid()), (0o755, 1_000));
    // Within, such marks and devices are worth nothing anyway.
    let (failure, text) = sh(&commands, "grep ' /workspace ' /proc/self/mountinfo").await;
    assert!(failure.is_none() && text.contains("nosuid,nodev"), "{text}");
}

/// L10: everybody on the host can read the line of a sandbox, and so can what runs in it.
#[tokio::test]
async fn the_line_of_a_sandbox_tells_nothing_of_its_host() {
    let root = tempfile::tempdir_in("/tmp").unwrap();
    let files = root.path().join("main");
    fs::create_dir_all(&files).unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(&files, Some(1_000), Some(1_000)).unwrap();
    let host = root.path().to_str().unwrap();
    for landlock in ["required", "off"] {
        let options = json!({ "workspace": "read_write", "process": { "landlock": landlock } });
        let toolbox = processes(options, SandboxBug::None, Some(root.path()));
        let line = "tr '\\0' ' ' </proc/1/cmdline; echo; env; pwd";
        let (failure, text) = sh(&toolbox, line).await;
        assert_eq!(failure, None, "{landlock}: {text}");
        assert!(text.starts_with("bwrap --args "), "{landlock}: {text}");
        assert!(text.ends_with("/workspace\n"), "the options hold: {landlock}: {text}");
        for secret in [host, "--bind", "--setenv", "CLAWNODE_WALLS", "\"files\""] {
            assert!(!text.contains(secret), "{landlock}: {secret}: {text}");
        }
    }
}

/// F-18: what ignores SIGTERM, and what detaches itself, dies with its command.
async fn hides(toolbox: &Toolbox, mark: &str, cancel: bool) -> (Option<ToolFailure>, String) {
    let line = format!(
        "trap '' TERM INT HUP; echo working; \
         (setsid sh -c 'trap \"\" TERM HUP; sleep {mark}; :' >/dev/null 2>&1 &); \
         while :; do sleep 1; done"
    );
    let cancelled = CancellationToken::new();
    // Long enough to begin on a busy machine.
    let timeout = if cancel { 60 } else { 3 };
    let arguments = json!({ "command": line, "timeout_s": timeout });
    let running = call(toolbox, "run_command", arguments, cancelled.clone());
    let grandchild = format!("sh\0-c\0trap \"\" TERM HUP; sleep {mark}");
    let stop = async {
        let begun = || runs(|line| line.starts_with(&grandchild));
        until("the grandchild", async || Ok(begun().then_some(()))).await?;
        if cancel {
            cancelled.cancel();
        }
        Ok::<(), clawnode_tests::process::ProcessError>(())
    };
    let (outcome, stopped) = tokio::join!(running, stop);
    stopped.unwrap();
    told(outcome)
}

#[tokio::test]
async fn f_18_a_process_is_killed_with_all_it_has_begun() -> Outcome {
    for (isolation, mark) in [("bubblewrap", 91_001), ("none", 91_002)] {
        let options = json!({ "process": { "isolation": isolation } });
        let toolbox = processes(options, SandboxBug::None, None);
        for (cancel, failure) in [(false, ToolFailure::TimedOut), (true, ToolFailure::Cancelled)] {
            let mark = format!("{mark}{}", u8::from(cancel));
            let (failed, text) = hides(&toolbox, &mark, cancel).await;
            assert_eq!(failed, Some(failure), "{isolation}: {text}");
            assert!(text.starts_with("working\n["), "partial output: {text}");
            until("the grandchild's end", async || {
                Ok((!runs(|line| line.contains(&mark))).then_some(()))
            })
            .await?;
        }
    }
    // One that would end if it is asked to may do so.
    let toolbox = processes(json!({}), SandboxBug::None, None);
    let line = "trap 'echo bye; exit 0' TERM; echo working; while :; do sleep 0.1; done";
    let arguments = json!({ "command": line, "timeout_s": 3 });
    let (failure, text) =
        told(call(&toolbox, "run_command", arguments, CancellationToken::new()).await);
    assert_eq!(failure, Some(ToolFailure::TimedOut));
    assert!(text.starts_with("working\nbye\n["), "{text}");
    Ok(())
}

/// The twin: without a namespace of processes a grandchild lives on.
#[tokio::test]
async fn f_18_a_planted_bug_is_found() -> Outcome {
    let toolbox = processes(json!({}), SandboxBug::SharedPids, None);
    let mark = "910030";
    drop(hides(&toolbox, mark, false).await);
    assert!(runs(|line| line.contains(mark)), "the bug is seen");
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let id = process.file_name().to_str().and_then(|name| name.parse().ok());
        if String::from_utf8_lossy(&line).contains(mark)
            && let Some(id) = id.and_then(rustix::process::Pid::from_raw)
        {
            rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
        }
    }
    until("its end", async || Ok((!runs(|line| line.contains(mark))).then_some(()))).await
}

async fn refusal(process: Value) -> String {
    let options: SandboxOptions = serde_json::from_value(json!({ "process": process })).unwrap();
    let health = Processes::new(options.process).health_check().await;
    health.map_or_else(|error| error.to_string(), |()| "well".to_owned())
}

#[tokio::test]
async fn without_isolation_nothing_is_run_unless_it_is_said() {
    let begun = Instant::now();
    assert_eq!(refusal(json!({})).await, "well");
    let missing = json!({ "bwrap": "/nowhere/bwrap" });
    let why = refusal(missing.clone()).await;
    assert!(why.starts_with("sandbox_unavailable: processes cannot be isolated"), "{why}");
    assert!(why.contains("/nowhere/bwrap") && why.contains("install bubblewrap"), "{why}");
    // One that is there and does not work.
    let why = refusal(json!({ "bwrap": "/bin/false" })).await;
    assert!(why.starts_with("sandbox_unavailable"), "{why}");
    assert_eq!(refusal(json!({ "isolation": "none", "bwrap": "/nowhere" })).await, "well");
    // A call does not run on the host either.
    let toolbox = processes(json!({ "process": missing }), SandboxBug::None, None);
    let mark = tempfile::tempdir().unwrap();
    let file = mark.path().join("ran");
    let (failure, text) = sh(&toolbox, &format!("echo x >{}", file.display())).await;
    assert!(failure.is_some() && !file.exists(), "{text}");
    assert!(begun.elapsed().as_secs() < 60);
}
