//! The tools on files, as a model calls them.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::PathBuf,
    sync::Arc,
};

use clawnode_executors::{Workspace, WorkspaceOptions};
use clawnode_proto::tool::ToolFailure;
use clawnode_tool::Executor;
use serde_json::json;
use tempfile::TempDir;

use crate::support::{call, call_as, text};

struct Disk {
    _root: TempDir,
    agent: PathBuf,
    tools: Arc<dyn Executor>,
}

fn disk() -> Disk {
    let root = tempfile::tempdir().unwrap();
    let tools = Workspace::open(&WorkspaceOptions::new(root.path().to_owned())).unwrap();
    let agent = root.path().join("main");
    fs::create_dir_all(agent.join("src/deep")).unwrap();
    Disk { _root: root, agent, tools: Arc::new(tools) }
}

#[tokio::test]
async fn a_file_is_read_in_parts_that_fit_together() {
    let disk = disk();
    let whole = "aé".repeat(200_000);
    fs::write(disk.agent.join("long.txt"), &whole).unwrap();
    let (mut read, mut offset) = (String::new(), 0);
    for _ in 0..10 {
        let arguments = json!({"path": "long.txt", "offset": offset});
        let told = call(disk.tools.clone(), "file_read", &arguments).await;
        let (part, note) = text(&told).rsplit_once('\n').unwrap();
        read.push_str(part);
        let Some(next) = note.split("go on at offset ").nth(1) else { break };
        offset = next.trim_end_matches(']').parse().unwrap();
    }
    assert!(read == whole, "{} of {} bytes", read.len(), whole.len());

    fs::write(disk.agent.join("short.txt"), "one\ntwo\n").unwrap();
    for (arguments, is) in [
        (json!({"path": "./short.txt"}), "one\ntwo\n"),
        (json!({"path": "short.txt", "limit": 3}), "one\n[bytes 0 to 3 of 8; go on at offset 3]"),
        (json!({"path": "short.txt", "offset": 4}), "two\n\n[bytes 4 to 8 of 8]"),
    ] {
        assert_eq!(text(&call(disk.tools.clone(), "file_read", &arguments).await), is);
    }
    fs::write(disk.agent.join("binary"), b"a\0b").unwrap();
    fs::write(disk.agent.join("latin"), b"gr\xfcn").unwrap();
    fs::write(disk.agent.join("empty"), b"").unwrap();
    for (arguments, why) in [
        (json!({"path": "none.txt"}), "there is no `none.txt`"),
        (json!({"path": "src"}), "`src` is a directory, not a file"),
        (json!({"path": "short.txt/x"}), "`short.txt/x` is below a file"),
        (json!({"path": "short.txt", "offset": 9}), "nothing is at offset 9"),
        (json!({"path": "binary"}), "`binary` is not text (3 bytes)"),
    ] {
        let told = call(disk.tools.clone(), "file_read", &arguments).await;
        assert!(told.failure.is_some() && text(&told).contains(why), "{told:?}");
    }
    let told = call(disk.tools.clone(), "file_read", &json!({"path": "latin"})).await;
    assert!(text(&told).starts_with("gr\u{fffd}n\n[some bytes are not valid UTF-8"), "{told:?}");
    let told = call(disk.tools.clone(), "file_read", &json!({"path": "empty"})).await;
    assert_eq!((text(&told), told.failure), ("", None));
}

#[tokio::test]
async fn a_file_is_written_whole_and_twice_is_like_once() {
    let disk = disk();
    let arguments = json!({"path": "new/dir/run.sh", "content": "echo 1\n"});
    let told = call(disk.tools.clone(), "file_write", &arguments).await;
    assert!(text(&told).starts_with("created `new/dir/run.sh`: 7 bytes, BLAKE3 "), "{told:?}");
    let path = disk.agent.join("new/dir/run.sh");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    let again = call(disk.tools.clone(), "file_write", &arguments).await;
    assert_eq!(text(&again), text(&told).replace("created", "replaced"));
    assert_eq!(fs::read_to_string(&path).unwrap(), "echo 1\n");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o750);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing stays behind");

    for (path, why) in [
        (".", "`.` is a directory, not a file"),
        ("src", "`src` is a directory, not a file"),
        ("new/dir/run.sh/x", "is below a file"),
    ] {
        let arguments = json!({"path": path, "content": ""});
        let told = call(disk.tools.clone(), "file_write", &arguments).await;
        assert!(told.failure.is_some() && text(&told).contains(why), "{told:?}");
    }
}

/// Its own commands mark a file set-user-ID; the node, which may be root, then writes that file.
#[tokio::test]
async fn what_is_written_runs_as_nobody_else() {
    let disk = disk();
    let path = disk.agent.join("run");
    for (before, after) in
        [(0o6755, 0o755), (0o4711, 0o711), (0o2770, 0o770), (0o1777, 0o777), (0o600, 0o600)]
    {
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(before)).unwrap();
        let arguments = json!({"path": "run", "content": "new"});
        let told = call(disk.tools.clone(), "file_write", &arguments).await;
        assert_eq!(told.failure, None, "{told:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, after, "{before:o}");
    }
}

#[tokio::test]
async fn what_root_writes_belongs_to_the_owner_of_the_agents_directory() {
    assert!(rustix::process::geteuid().is_root(), "only root gives files away: run this as root");
    let disk = disk();
    let owner_and_mode = |path: &str| {
        let about = fs::metadata(disk.agent.join(path)).unwrap();
        (about.uid(), about.gid(), about.mode() & 0o7777)
    };
    chown(&disk.agent, Some(12_345), Some(12_346)).unwrap();
    // Of root, as an earlier build left it.
    fs::write(disk.agent.join("old"), "").unwrap();
    fs::set_permissions(disk.agent.join("old"), fs::Permissions::from_mode(0o640)).unwrap();
    for path in ["new/dir/file", "file", "old", "src/file"] {
        let arguments = json!({"path": path, "content": "text"});
        let told = call(disk.tools.clone(), "file_write", &arguments).await;
        assert_eq!(told.failure, None, "{told:?}");
    }
    for (path, mode) in
        [("new", 0o755), ("new/dir", 0o755), ("new/dir/file", 0o644), ("file", 0o644)]
    {
        assert_eq!(owner_and_mode(path), (12_345, 12_346, mode), "{path}");
    }
    assert_eq!(owner_and_mode("old"), (12_345, 12_346, 0o640));
    assert_eq!(owner_and_mode("src/file"), (12_345, 12_346, 0o644));
    assert_eq!(
        owner_and_mode("src"),
        (0, 0, owner_and_mode("src").2),
        "what was there is whose it was"
    );
    // A directory that the node makes for an agent belongs to the owner of all of them.
    chown(disk.agent.parent().unwrap(), Some(12_347), Some(12_348)).unwrap();
    let arguments = json!({"path": "file", "content": "text"});
    let told = call_as("other", disk.tools.clone(), "file_write", &arguments).await;
    assert_eq!(told.failure, None, "{told:?}");
    for (path, mode) in [("../other", 0o755), ("../other/file", 0o644)] {
        assert_eq!(owner_and_mode(path), (12_347, 12_348, mode), "{path}");
    }
}

#[tokio::test]
async fn a_directory_is_listed_as_deep_as_asked() {
    let disk = disk();
    let told = call(disk.tools.clone(), "file_list", &json!({"path": "src/deep"})).await;
    assert_eq!(text(&told), "[empty]");
    fs::write(disk.agent.join("src/deep/b.rs"), "12345").unwrap();
    fs::write(disk.agent.join("src/a.rs"), "").unwrap();
    std::os::unix::fs::symlink("a.rs", disk.agent.join("src/link")).unwrap();
    for (arguments, is) in [
        (json!({}), "src/"),
        (json!({"path": "src"}), "a.rs  0 bytes\ndeep/\nlink  (symbolic link)"),
        (
            json!({"path": ".", "depth": 16}),
            "src/\nsrc/a.rs  0 bytes\nsrc/deep/\nsrc/deep/b.rs  5 bytes\nsrc/link  (symbolic link)",
        ),
    ] {
        assert_eq!(text(&call(disk.tools.clone(), "file_list", &arguments).await), is);
    }
    for at in 0..1_100 {
        fs::write(disk.agent.join(format!("src/deep/{at:04}")), "").unwrap();
    }
    let told = call(disk.tools.clone(), "file_list", &json!({"path": "src/deep"})).await;
    assert!(text(&told).ends_with("0999  0 bytes\n[cut: only 1000 entries are listed]"));
    let told = call(disk.tools.clone(), "file_list", &json!({"path": "src/a.rs"})).await;
    assert!(text(&told).contains("is a file, not a directory"), "{told:?}");
    let told = call_as("other", disk.tools.clone(), "file_list", &json!({})).await;
    assert_eq!(text(&told), "[empty]");
}

#[tokio::test]
async fn lines_are_found_with_where_to_read_on() {
    let disk = disk();
    fs::write(disk.agent.join("src/a.rs"), "fn one() {}\nfn Two() {}\r\n").unwrap();
    fs::write(disk.agent.join("src/deep/b.rs"), "let fn_ = 1;\n").unwrap();
    fs::write(disk.agent.join("src/binary"), b"fn\0").unwrap();
    for (arguments, is) in [
        (
            json!({"pattern": "fn "}),
            "src/a.rs:1 (offset 0): fn one() {}\nsrc/a.rs:2 (offset 12): fn Two() {}",
        ),
        (json!({"pattern": "fn ()"}), "[nothing found in 3 files]"),
        (
            json!({"pattern": "two", "ignore_case": true, "path": "src/a.rs"}),
            "src/a.rs:2 (offset 12): fn Two() {}",
        ),
        (
            json!({"pattern": r"^let\s+\w+_ =", "regex": true, "path": "src"}),
            "src/deep/b.rs:1 (offset 0): let fn_ = 1;",
        ),
    ] {
        assert_eq!(text(&call(disk.tools.clone(), "file_search", &arguments).await), is);
    }
    fs::write(disk.agent.join("many"), "x\n".repeat(300)).unwrap();
    let told = call(disk.tools.clone(), "file_search", &json!({"pattern": "x"})).await;
    assert_eq!(text(&told).lines().count(), 201);
    assert!(text(&told).contains("[stopped: 200 lines were found"));
    for bad in ["(", r"\1", "(?=a)", r"(\w{500}){500}"] {
        let arguments = json!({"pattern": bad, "regex": true});
        let told = call(disk.tools.clone(), "file_search", &arguments).await;
        assert_eq!(told.failure, Some(ToolFailure::Invalid), "{bad}: {told:?}");
    }
}

#[tokio::test]
async fn a_search_ends_in_time() {
    let root = tempfile::tempdir().unwrap();
    let mut options = WorkspaceOptions::new(root.path().to_owned());
    options.search_time = std::time::Duration::ZERO;
    fs::create_dir(root.path().join("main")).unwrap();
    fs::write(root.path().join("main/a"), "a\nb\n").unwrap();
    let tools: Arc<dyn Executor> = Arc::new(Workspace::open(&options).unwrap());
    let told = call(tools, "file_search", &json!({"pattern": "[ab]", "regex": true})).await;
    assert!(text(&told).starts_with("a:1 (offset 0): a\n[stopped: it took too long"), "{told:?}");
}

#[tokio::test]
async fn a_workspace_says_whether_it_is_there() {
    let disk = disk();
    disk.tools.health_check().await.unwrap();
    let none = WorkspaceOptions::new(disk.agent.join("none"));
    assert!(Workspace::open(&none).unwrap_err().to_string().contains("cannot be opened"));
}
