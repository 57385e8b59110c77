//! A Docker engine of a test's own: its own data, its own socket, gone with the test.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use crate::{process::ProcessError, wait::until};

/// Reaching it means a bug, not a slow machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// A running engine. [`Engine::stop`] ends it; dropped without, its containers may stay.
#[derive(Debug)]
pub struct Engine {
    dir: TempDir,
    daemon: Child,
}

impl Engine {
    /// Starts one; takes root and the packages `docker.io` and `docker-compose`.
    pub async fn start() -> Result<Self, ProcessError> {
        // Not below the tests' own folder: a socket's path has at most 107 bytes.
        let dir = tempfile::tempdir_in("/tmp").map_err(ProcessError::io("make a folder"))?;
        let at = |name: &str| dir.path().join(name);
        let log = std::fs::File::create(at("log")).map_err(ProcessError::io("make a log"))?;
        let errors = log.try_clone().map_err(ProcessError::io("make a log"))?;
        let daemon = Command::new("dockerd")
            .args([Path::new("--data-root"), &at("data"), Path::new("--exec-root"), &at("exec")])
            .args([Path::new("--pidfile"), &at("pid")])
            .args(["-H", &format!("unix://{}", at("socket").display())])
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
            .map_err(ProcessError::io("start dockerd; run `cargo xtest --setup` first"))?;
        let mut engine = Self { dir, daemon };
        until("a Docker engine", async || {
            if engine.docker(&["version"]).await.is_ok() {
                return Ok(Some(()));
            }
            match engine.daemon.try_wait() {
                Ok(Some(status)) => {
                    let log = std::fs::read_to_string(engine.dir.path().join("log"));
                    let log = log.unwrap_or_default();
                    Err(ProcessError::NotReady { status: status.to_string(), log })
                }
                Ok(None) | Err(_) => Ok(None),
            }
        })
        .await?;
        Ok(engine)
    }

    /// A command that speaks to this engine.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("DOCKER_HOST", format!("unix://{}", self.dir.path().join("socket").display()));
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Runs `docker` with these arguments; what it prints.
    pub async fn docker(&self, args: &[&str]) -> Result<String, ProcessError> {
        run(self.command("docker").args(args)).await
    }

    /// Makes an image of one static executable, found as `name` on its path.
    pub async fn import(&self, file: &Path, name: &str, image: &str) -> Result<(), ProcessError> {
        let root = self.dir.path().join(image.replace(':', "-"));
        let bin = root.join("usr/bin");
        std::fs::create_dir_all(&bin).map_err(ProcessError::io("make a folder"))?;
        std::fs::copy(file, bin.join(name)).map_err(ProcessError::io("copy an executable"))?;
        let archive = self.path(&format!("{}.tar", image.replace(':', "-")));
        run(Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&archive).arg(".")).await?;
        let archive = archive.to_string_lossy();
        self.docker(&["import", "-c", "ENV PATH=/usr/bin", &archive, image]).await?;
        Ok(())
    }

    /// A path in the engine's own folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Ends it, and with it what still runs in it.
    pub async fn stop(mut self) -> Result<(), ProcessError> {
        let running = self.docker(&["ps", "-q"]).await?;
        let running: Vec<&str> = running.split_whitespace().collect();
        if !running.is_empty() {
            self.docker(&[&["kill"], running.as_slice()].concat()).await?;
        }
        let pid = self.daemon.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            kill_process(pid, Signal::TERM)
                .map_err(|error| ProcessError::io("stop dockerd")(error.into()))?;
        }
        let ended = timeout(PATIENCE, self.daemon.wait()).await;
        ended
            .map_err(|_elapsed| ProcessError::Late("the end of dockerd".to_owned()))?
            .map_err(ProcessError::io("wait for dockerd"))?;
        Ok(())
    }
}

/// Runs a command to its end; what it prints. Its complaint is the error.
pub async fn run(command: &mut Command) -> Result<String, ProcessError> {
    let what = format!("run `{}`", command.as_std().get_program().display());
    let ran = timeout(PATIENCE, command.output()).await;
    let ran = ran.map_err(|_elapsed| ProcessError::Late(what.clone()))?;
    let ran = ran.map_err(ProcessError::io(what.clone()))?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&ran.stderr).into_owned();
    Err(ProcessError::Broken(format!("cannot {what}: {complaint}")))
}
