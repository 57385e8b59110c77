//! What the log asks of the system, as `strace` sees it.

use std::{
    collections::BTreeSet,
    fs::Permissions,
    io::{BufRead, BufReader, Write as _},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use clawnode_local::{LocalBug, open};

use crate::support::{Home, NONE, Result, append, input, options};

/// Tells a re-executed test binary which directory it is to work on.
const CHILD_DIR: &str = "CLAWNODE_TEST_DIR";
/// Tells it to have the planted bug.
const CHILD_PLANTED: &str = "CLAWNODE_TEST_PLANTED";

/// Runs as a child under `strace`, or with a parent that kills it.
#[tokio::test]
async fn child_holds_the_directory() -> Result {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return Ok(()) };
    let mut options = options();
    options.planted = std::env::var_os(CHILD_PLANTED).map(|_| LocalBug::AnswerBeforeSync);
    let (store, _control) = open(Path::new(&dir), options)?;
    let mut last = NONE;
    let say = |text: &str| std::io::stderr().write_all(format!("{text}\n").as_bytes());
    for n in 0..20 {
        last = append(&store, "child", last, &format!("answered {n}")).await?;
        store.inbox.put(&input("child", &format!("input {n}"))?).await?;
        say(&format!("answered {n}"))?;
    }
    say("ready")?;
    // A parent that keeps this pipe open kills this process in a moment.
    std::io::stdin().read_line(&mut String::new())?;
    store.health.close().await;
    Ok(())
}

#[test]
fn every_answer_follows_a_sync() -> Result {
    let home = Home::new()?;
    let trace = trace(home.path(), false)?;
    let unsynced = unsynced_answers(&trace)?;
    assert_eq!(unsynced, Vec::<String>::new(), "LOC-1");
    Ok(())
}

#[test]
fn an_answer_before_the_sync_is_found_by_its_system_calls() -> Result {
    let home = Home::new()?;
    let trace = trace(home.path(), true)?;
    assert!(!unsynced_answers(&trace)?.is_empty(), "LOC-1: the planted bug went unseen");
    Ok(())
}

#[test]
fn the_names_of_made_directories_are_synced_before_anything_is_answered() -> Result {
    let home = Home::new()?;
    let dir = home.path().join("made").join("data");
    let trace = trace(&dir, false)?;
    let mut unsynced = BTreeSet::new();
    let mut made = 0;
    for line in trace.lines().take_while(|line| !line.contains("\"answered ")) {
        if line.contains("mkdir") && line.ends_with("= 0") {
            let path = Path::new(line.split('"').nth(1).ok_or("a path")?);
            // The index may be built again at any time.
            if !path.starts_with(dir.join("index")) {
                unsynced.insert(path.parent().ok_or("a parent")?.to_owned());
                made += 1;
            }
        } else if line.contains("fsync(") {
            let path = line.split(['<', '>']).nth(1).ok_or("a path")?;
            unsynced.remove(Path::new(path));
        }
    }
    assert_eq!((made, unsynced), (4, BTreeSet::new()), "made, data, log and blobs:\n{trace}");
    assert_eq!(dir.metadata()?.permissions().mode() & 0o777, 0o700);
    Ok(())
}

#[tokio::test]
async fn a_directory_that_others_may_look_into_is_made_private() -> Result {
    let home = Home::new()?;
    for mode in [0o755, 0o2775] {
        std::fs::set_permissions(home.path(), Permissions::from_mode(mode))?;
        let (store, _control) = home.open()?;
        home.close(store).await;
        let found = home.path().metadata()?.permissions().mode() & 0o777;
        assert_eq!(found, 0o700, "{mode:o}");
    }
    Ok(())
}

/// The system calls of a child's work.
fn trace(dir: &Path, planted: bool) -> Result<String> {
    let out = tempfile::NamedTempFile::new()?;
    let mut command = Command::new("strace");
    command
        .args(["-f", "-y", "-qq", "-e", "trace=fdatasync,fsync,write,pwrite64,mkdir,mkdirat", "-o"])
        .arg(out.path())
        .arg(std::env::current_exe()?)
        .args(["--exact", "system_calls::child_holds_the_directory", "--nocapture"])
        .env(CHILD_DIR, dir)
        .stdin(Stdio::null());
    if planted {
        command.env(CHILD_PLANTED, "yes");
    }
    let ran = command.output().map_err(|error| format!("`strace` is needed here: {error}"))?;
    if !ran.status.success() {
        return Err(String::from_utf8_lossy(&ran.stderr).into_owned().into());
    }
    Ok(std::fs::read_to_string(out.path())?)
}

/// Answers that were given while a write to the log was not synced.
fn unsynced_answers(trace: &str) -> Result<Vec<String>> {
    let (mut written, mut answers, mut syncs) = (false, 0, 0);
    let mut unsynced = Vec::new();
    for line in trace.lines() {
        let is_sync = line.contains("fdatasync");
        if line.contains("pwrite64(") && line.contains(".seg>") {
            written = true;
        } else if is_sync && line.trim_end().ends_with("= 0") {
            written = false;
            syncs += 1;
        } else if line.contains("\"answered ") {
            answers += 1;
            if written {
                unsynced.push(line.to_owned());
            }
        }
    }
    if answers != 20 || syncs < 20 {
        return Err(format!("{answers} answers and {syncs} syncs in this trace:\n{trace}").into());
    }
    Ok(unsynced)
}

pub(crate) fn spawn_child(test: &str, dir: &Path) -> Result<Child> {
    let child = Command::new(std::env::current_exe()?)
        .args(["--exact", test, "--nocapture"])
        .env(CHILD_DIR, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    Ok(child)
}

/// What a child says before `last`.
pub(crate) fn lines_until(child: &mut Child, last: &str) -> Result<Vec<String>> {
    let stderr = child.stderr.take().ok_or("its stderr")?;
    let mut lines = Vec::new();
    for line in BufReader::new(stderr).lines() {
        let line = line?;
        if line == last {
            return Ok(lines);
        }
        lines.push(line);
    }
    Err(format!("the child ended after {lines:?}").into())
}
