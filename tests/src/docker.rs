//! A Docker engine of a test's own: its own data, its own socket, gone with the test.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, Signal, kill_process},
};
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use crate::{process::ProcessError, wait::until};

/// Reaching it means a bug, not a slow machine.
const PATIENCE: Duration = Duration::from_mins(2);
/// How long the tests before this one may have an engine.
const TURN: Duration = Duration::from_mins(10);
/// Two engines would pull each other's default bridge down. In the directory for temporary files.
const LOCK: &str = "clawnode-tests-docker.lock";
/// The addresses of the networks that engines make: a bridge with one of them is a test's, and goes.
const NETWORKS: &str = "10.213.0.0/16";
/// What static busybox is installed as, and the image that is made of it.
const BUSYBOX: &str = "/bin/busybox";

/// A running engine, the only one of the tests at its time. [`Engine::stop`] ends it; dropped
/// without, it is asked to.
#[derive(Debug)]
pub struct Engine {
    daemon: Child,
    dir: TempDir,
    _turn: File,
}

impl Engine {
    /// Starts one; takes root and the packages `docker.io` and `docker-compose`.
    pub async fn start() -> Result<Self, ProcessError> {
        let turn = turn().await?;
        remove_bridges();
        // Not below the tests' own folder: a socket's path has at most 107 bytes.
        let dir = tempfile::tempdir_in("/tmp").map_err(ProcessError::io("make a folder"))?;
        let daemon = Self::daemon(dir.path())?;
        let mut engine = Self { daemon, dir, _turn: turn };
        engine.ready().await?;
        Ok(engine)
    }

    fn daemon(dir: &Path) -> Result<Child, ProcessError> {
        let at = |name: &str| dir.join(name);
        let log = File::options().create(true).append(true).open(at("log"));
        let log = log.map_err(ProcessError::io("make a log"))?;
        let errors = log.try_clone().map_err(ProcessError::io("make a log"))?;
        Command::new("dockerd")
            .args([Path::new("--data-root"), &at("data"), Path::new("--exec-root"), &at("exec")])
            .args([Path::new("--pidfile"), &at("pid")])
            .args(["-H", &format!("unix://{}", at("socket").display())])
            .args(["--default-address-pool", &format!("base={NETWORKS},size=24")])
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
            .map_err(ProcessError::io("start dockerd; run `cargo xtest --setup` first"))
    }

    async fn ready(&mut self) -> Result<(), ProcessError> {
        until("a Docker engine", async || {
            if self.docker(&["version"]).await.is_ok() {
                return Ok(Some(()));
            }
            match self.daemon.try_wait() {
                Ok(Some(status)) => {
                    let log = std::fs::read_to_string(self.dir.path().join("log"));
                    let log = log.unwrap_or_default();
                    Err(ProcessError::NotReady { status: status.to_string(), log })
                }
                Ok(None) | Err(_) => Ok(None),
            }
        })
        .await
    }

    /// Ends what holds the containers of a daemon that was killed, and their first processes.
    fn kill_containers(&self) {
        let own = self.path("exec").to_string_lossy().into_owned();
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        for process in all.map(|entry| entry.path()) {
            let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line);
            if !line.contains("containerd-shim") || !line.contains(&own) {
                continue;
            }
            let tasks = std::fs::read_dir(process.join("task")).into_iter().flatten().flatten();
            let children =
                tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
            let children: Vec<String> = children.collect();
            let own = process.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let ids = children.iter().flat_map(|children| children.split_whitespace()).chain([own]);
            for id in ids.filter_map(|id| id.parse().ok()).filter_map(Pid::from_raw) {
                // Who is gone is where it should be.
                kill_process(id, Signal::KILL).unwrap_or_default();
            }
        }
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.path("socket")
    }

    /// `kill -9` of the daemon alone; its containers keep running.
    pub async fn kill(&mut self) -> Result<(), ProcessError> {
        self.daemon.kill().await.map_err(ProcessError::io("kill dockerd"))
    }

    /// Starts it again on the data of the last one, as after a crash of the machine: none of its
    /// processes is running.
    pub async fn start_again(&mut self) -> Result<(), ProcessError> {
        self.kill_containers();
        // It does not start while a process has the process ids of the last one, zombies included.
        for name in ["pid", "exec/containerd/containerd.pid"] {
            std::fs::remove_file(self.path(name)).map_err(ProcessError::io("remove a pid file"))?;
        }
        self.daemon = Self::daemon(self.dir.path())?;
        self.ready().await
    }

    /// Makes the image `busybox:test`, with all programs of busybox.
    pub async fn import_busybox(&self) -> Result<(), ProcessError> {
        let root = self.path("busybox-root");
        let bin = root.join("bin");
        for folder in [&bin, &root.join("etc"), &root.join("data")] {
            std::fs::create_dir_all(folder).map_err(ProcessError::io("make a folder"))?;
        }
        std::fs::copy(BUSYBOX, bin.join("busybox"))
            .map_err(ProcessError::io("copy busybox; run `cargo xtest --setup` first"))?;
        let programs = run(Command::new(BUSYBOX).arg("--list")).await?;
        for program in programs.split_whitespace().filter(|program| *program != "busybox") {
            std::os::unix::fs::symlink("busybox", bin.join(program))
                .map_err(ProcessError::io("link busybox"))?;
        }
        let secret = root.join("etc/shadow");
        std::fs::write(&secret, "root:secret").map_err(ProcessError::io("write a file"))?;
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&secret, private).map_err(ProcessError::io("hide a file"))?;
        let archive = self.path("busybox.tar");
        run(Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&archive).arg(".")).await?;
        let archive = archive.to_string_lossy();
        let changes = ["-c", "ENV PATH=/bin", "-c", "VOLUME /data"];
        self.docker(&[&["import"], &changes[..], &[&archive, "busybox:test"]].concat()).await?;
        Ok(())
    }

    /// Makes the image `python:test` from files that `cargo xtest` has prepared.
    pub async fn import_python(&self) -> Result<(), ProcessError> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
        let archive = root.join(".tools/python3-image.tar");
        if !archive.is_file() {
            let what = "there is no `.tools/python3-image.tar`; run `cargo xtest --setup` first";
            return Err(ProcessError::Broken(what.to_owned()));
        }
        self.docker(&["import", &archive.to_string_lossy(), "python:test"]).await.map(drop)
    }

    /// The names of all containers, in any state.
    pub async fn containers(&self) -> Result<Vec<String>, ProcessError> {
        let listed = self.docker(&["ps", "-a", "--format", "{{.Names}}"]).await?;
        Ok(listed.split_whitespace().map(str::to_owned).collect())
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
        remove_bridges();
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(id) = self.daemon.id() {
            // It ends its containers, and unmounts what it has mounted.
            let id = id.to_string();
            let end = format!("kill -TERM {id} && timeout 30 tail --pid={id} -f /dev/null");
            drop(std::process::Command::new("sh").args(["-c", &end]).status());
        } else {
            self.kill_containers();
        }
        remove_bridges();
    }
}

/// Removes the bridges of engines that have ended, whose networks would otherwise fill the machine:
/// a daemon leaves them for its next start. It takes the turn, so no engine is running.
fn remove_bridges() {
    let shown = std::process::Command::new("ip")
        .args(["-o", "-4", "address", "show", "to", NETWORKS])
        .output()
        .map(|ran| String::from_utf8_lossy(&ran.stdout).into_owned());
    for line in shown.unwrap_or_default().lines() {
        let name = line.split_whitespace().nth(1).unwrap_or_default();
        if name.starts_with("br-") {
            // One that is gone already is as it should be.
            drop(std::process::Command::new("ip").args(["link", "delete", name]).output());
        }
    }
}

/// Waits for the tests that have an engine.
async fn turn() -> Result<File, ProcessError> {
    let file =
        File::create(std::env::temp_dir().join(LOCK)).map_err(ProcessError::io("make a lock"))?;
    let locked = tokio::task::spawn_blocking(move || {
        flock(&file, FlockOperation::LockExclusive).map(|()| file)
    });
    let locked = timeout(TURN, locked).await;
    let locked = locked.map_err(|_elapsed| ProcessError::Late("a turn with Docker".to_owned()))?;
    let locked = locked.map_err(|error| ProcessError::Broken(error.to_string()))?;
    locked.map_err(|error| ProcessError::io("take a lock")(error.into()))
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
