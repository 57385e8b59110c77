//! Runs a scene: in a copy of the documents, with namespaces of its own.

use std::{
    fs,
    io::{Write as _, stderr},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tempfile::TempDir;
use tokio::{process::Command, time::timeout};

use super::{page::chat_lines, scene::Scene};
use crate::process::{ProcessError, binary};

/// Reaching it means a bug, not a slow machine.
const PATIENCE: Duration = Duration::from_secs(110);
/// What a scene sees of the repository.
const COPIED: [&str; 4] = ["README.md", "examples", "docker", "tests/plugins/echo"];
/// Where programs of the machine are, those of its administrator included.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Characters of each log that are shown of a scene that fails.
const SHOWN: usize = 24_000;

/// Runs a scene to its end; takes root. Of one that fails, standard error has what it printed.
pub async fn play(scene: &Scene) -> Result<(), ProcessError> {
    play_with(scene, &[]).await
}

/// The same, with more variables.
pub async fn play_with(scene: &Scene, vars: &[(&str, &Path)]) -> Result<(), ProcessError> {
    let root = root()?;
    let readme = root.join(scene.readme);
    let text = fs::read_to_string(&readme).map_err(ProcessError::io("read a README"))?;
    let script = scene.script(&text).map_err(ProcessError::Broken)?;
    let home = copy(&root)?;
    let at = |name: &str| home.path().join(name);
    let said = chat_lines(&text).join("\n") + "\n";
    fs::write(at("chat-lines"), said).map_err(ProcessError::io("write chat lines"))?;
    fs::write(at("script"), script).map_err(ProcessError::io("write a script"))?;
    let log = fs::File::create(at("log")).map_err(ProcessError::io("make a log"))?;
    let errors = log.try_clone().map_err(ProcessError::io("make a log"))?;
    let mut command = Command::new("unshare");
    command.args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash"]);
    command.arg(at("script")).current_dir(at("copy").join(scene.folder)).env_clear();
    // That of the tests first: what `cargo xtest` has installed for Python fits the Python it found.
    let tests = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{tests}:{PATH}", at("bin").display());
    let own = [("HOME", home.path()), ("TMPDIR", home.path()), ("REPOSITORY", &root)];
    for (name, value) in own.iter().chain(vars) {
        command.env(name, value);
    }
    command.env("PATH", path).envs([("USER", "ada"), ("TERM", "dumb"), ("LANG", "C.UTF-8")]);
    // What a README fetches from registries, `cargo xtest` has fetched.
    command.env("PIP_NO_INDEX", "1").env("PIP_FIND_LINKS", root.join(".tools/wheels"));
    command.env("PYTHONPATH", root.join(".tools/python"));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .kill_on_drop(true)
        .spawn()
        .map_err(ProcessError::io("start `unshare`"))?;
    let ended = timeout(PATIENCE, child.wait()).await;
    let ended = match ended {
        Ok(Ok(status)) if status.success() => return Ok(()),
        Ok(Ok(status)) => status.to_string(),
        Ok(Err(error)) => error.to_string(),
        Err(_elapsed) => "no end in time".to_owned(),
    };
    for name in ["log", "node.log"] {
        // Readable there, unlike in an error.
        let text = fs::read(at(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let skipped = text.chars().count().saturating_sub(SHOWN);
        let text: String = text.chars().skip(skipped).collect();
        writeln!(stderr(), "--- {name}\n{text}").map_err(ProcessError::io("show a log"))?;
    }
    Err(ProcessError::Broken(format!("what `{}` says does not work: {ended}", scene.readme)))
}

pub(super) fn root() -> Result<PathBuf, ProcessError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.canonicalize().map_err(ProcessError::io("find the repository"))
}

/// A home with the program on its path and a copy of the documents.
fn copy(root: &Path) -> Result<TempDir, ProcessError> {
    let broken = ProcessError::io("copy the documents");
    let home = tempfile::tempdir().map_err(ProcessError::io("make a home"))?;
    let made = || {
        let (bin, copy) = (home.path().join("bin"), home.path().join("copy"));
        fs::create_dir_all(&bin)?;
        fs::create_dir_all(copy.join("empty"))?;
        symlink(root.join(".tools"), copy.join(".tools"))?;
        for name in COPIED {
            copy_all(&root.join(name), &copy.join(name))?;
        }
        std::io::Result::Ok(bin)
    };
    let bin = made().map_err(broken)?;
    symlink(binary()?, bin.join("clawnode")).map_err(ProcessError::io("link the program"))?;
    Ok(home)
}

/// Copies a file with its mode, or a folder.
fn copy_all(from: &Path, to: &Path) -> std::io::Result<()> {
    if !from.is_dir() {
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        return fs::copy(from, to).map(drop);
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy_all(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}
