//! A small disk: a file system in memory, which can be filled and has room again.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{ChaosError, daemon::tool};

/// How much it holds: more than the room (256 MiB) below which a node alone takes nothing new.
const SIZE: &str = "size=400m";
/// What it is called among the mounts, so that [`sweep`] finds it.
const MARK: &str = "clawnode-chaos";
/// What fills it.
const FILLER: &str = "filler";
/// Bytes written at once.
const CHUNK: usize = 1 << 20;

/// A mounted disk; gone when dropped.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
}

// === impl Disk ===

impl Disk {
    /// Mounts one at `path`.
    pub fn mount(path: &Path) -> Result<Self, ChaosError> {
        let what = format!("make `{}`", path.display());
        fs::create_dir_all(path).map_err(ChaosError::io(what))?;
        let source = format!("{MARK}-{}", std::process::id());
        run("mount", &["-t", "tmpfs", "-o", SIZE, &source, &path.display().to_string()])?;
        Ok(Self { path: path.to_owned() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fills it to the last byte.
    pub fn fill(&self) -> Result<(), ChaosError> {
        use std::io::Write as _;
        let file = fs::File::create(self.path.join(FILLER));
        let mut file = file.map_err(ChaosError::io("make a file that fills the disk"))?;
        let mut chunk = vec![0; CHUNK];
        while !chunk.is_empty() {
            match file.write(&chunk) {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                    chunk.truncate(chunk.len() / 2);
                }
                Err(error) => return Err(ChaosError::io("fill the disk")(error)),
            }
        }
        Ok(())
    }

    /// Gives the room back.
    pub fn free(&self) -> Result<(), ChaosError> {
        fs::remove_file(self.path.join(FILLER)).map_err(ChaosError::io("give the disk room"))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(&self.path);
    }
}

/// Why no disk can be mounted here; `None` if one can.
pub fn no_disk(folder: &Path) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("mounting a disk needs root".to_owned());
    }
    let probe = Disk::mount(&folder.join("probe"));
    probe.err().map(|error| format!("no disk can be mounted here: {error}"))
}

/// Unmounts disks of runs whose process is gone.
pub fn sweep() {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    for line in mounts.lines() {
        let mut words = line.split_whitespace();
        let (Some(source), Some(path)) = (words.next(), words.next()) else { continue };
        let owner = source.strip_prefix(MARK).and_then(|rest| rest.strip_prefix('-'));
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            unmount(Path::new(path));
        }
    }
}

fn unmount(path: &Path) {
    // Lazily: a process that still has files open there is being killed.
    if let Err(error) = run("umount", &["-l", &path.display().to_string()]) {
        tracing::warn!(%error, "a disk was left behind");
    }
}

fn run(name: &str, args: &[&str]) -> Result<(), ChaosError> {
    let path = tool(name).ok_or_else(|| ChaosError::Missing(format!("`{name}` is missing")))?;
    let done = Command::new(path).args(args).stdin(Stdio::null()).output();
    let done = done.map_err(ChaosError::io(format!("run `{name}`")))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Err(ChaosError::Missing(format!("`{name} {}`: {said}", args.join(" "))))
}
