//! The state files of a data directory: its format, and whether its index may be trusted.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use clawnode_cluster::Clock;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::{
    OpenError,
    disk::{Disk, RealDisk, read_whole, write_whole},
    index::IndexError,
};

/// The format of data directories that this program writes. 2: the log may hold jobs, which an
/// older program would take for damage.
const FORMAT: u32 = 2;
/// Why a folder without that file is no data directory. The folder may not be there at all.
pub(super) const NO_FORMAT: &str = "no node has stored anything there, for it has no file `format`";

/// The content of the file `format`.
#[derive(Debug, Serialize, Deserialize)]
struct DirectoryFormat {
    #[serde(rename = "format")]
    version: u32,
    #[serde(default)]
    partitions: u16,
    #[serde(default)]
    id: String,
}

/// Whether the folder of the index may be trusted, in the file `index.state`.
#[derive(Debug)]
pub(super) struct IndexState {
    state: PathBuf,
    pub(super) index: PathBuf,
}

/// The partitions and the id of a directory, made if it is new.
pub(super) fn format_of(
    disk: &dyn Disk,
    dir: &Path,
    partitions: u16,
    clock: &dyn Clock,
) -> Result<(u16, u128), OpenError> {
    let path = dir.join("format");
    let write = |format: &DirectoryFormat| {
        let text = serde_json::to_vec(format)
            .map_err(io::Error::other)
            .map_err(OpenError::io("write", &path))?;
        write_whole(disk, &path, &text).map_err(OpenError::io("write", &path))
    };
    if let Some((mut format, id)) = read(disk, dir)? {
        if format.version < FORMAT {
            // Only the allowed content of the log has changed.
            format.version = FORMAT;
            write(&format)?;
        }
        return Ok((format.partitions.max(1), id));
    }
    let id = ulid::Ulid::from_parts(clock.now().0, rand::random());
    let format =
        DirectoryFormat { version: FORMAT, partitions: partitions.max(1), id: id.to_string() };
    write(&format)?;
    Ok((format.partitions, id.0))
}

/// The partitions and the id of a directory; `None` if it is not a data directory.
pub(super) fn read_format(disk: &dyn Disk, dir: &Path) -> Result<Option<(u16, u128)>, OpenError> {
    Ok(read(disk, dir)?.map(|(format, id)| (format.partitions.max(1), id)))
}

fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<(DirectoryFormat, u128)>, OpenError> {
    let path = dir.join("format");
    let text = read_whole(disk, &path).map_err(OpenError::io("read", &path))?;
    let Some(text) = text else { return Ok(None) };
    let bad = |detail: String| OpenError::NotADataDirectory {
        dir: dir.to_owned(),
        detail: format!("its file `format` is not readable: {detail}"),
    };
    let format: DirectoryFormat =
        serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
    if format.version > FORMAT {
        let (dir, found) = (dir.to_owned(), format.version);
        return Err(OpenError::TooNew { dir, found, supported: FORMAT });
    }
    let id = ulid::Ulid::from_string(&format.id).map_err(|error| bad(error.to_string()))?;
    Ok(Some((format, id.0)))
}

// === the index's state ===

impl IndexState {
    pub(super) fn new(dir: &Path) -> Self {
        Self { state: dir.join("index.state"), index: dir.join("index") }
    }

    /// An index is whole if it was closed in order, or if its process died but the machine did not:
    /// sled's writes are in order, but not synced.
    pub(super) fn is_trusted(&self) -> bool {
        let state = read_whole(&RealDisk, &self.state).ok().flatten().unwrap_or_default();
        state == b"clean" || (!state.is_empty() && state == open_mark())
    }

    /// From here on the index is valid only until the machine restarts.
    pub(super) fn set_open(&self) -> Result<(), OpenError> {
        write_whole(&RealDisk, &self.state, &open_mark())
            .map_err(OpenError::io("write", &self.state))
    }

    /// The index was closed: it is synced, and stays valid.
    pub(super) fn set_clean(&self) {
        let synced =
            sync_tree(&self.index).and_then(|()| write_whole(&RealDisk, &self.state, b"clean"));
        if let Err(error) = synced {
            warn!(%error, "the index could not be synced; a restart of the machine rebuilds it");
        }
    }

    /// The index must be built again at the next start.
    pub(super) fn distrust(&self) {
        if let Err(error) = write_whole(&RealDisk, &self.state, b"failed") {
            warn!(%error, "cannot mark the index as failed; delete the folder `index`");
        }
    }

    /// Puts an index aside that cannot be used; an older one put aside is removed.
    pub(super) fn set_aside(&self) -> Result<(), OpenError> {
        let aside = self.index.with_extension("old");
        if aside.exists() {
            fs::remove_dir_all(&aside).map_err(OpenError::io("remove", &aside))?;
        }
        if self.index.exists() {
            fs::rename(&self.index, &aside).map_err(OpenError::io("rename", &self.index))?;
        }
        Ok(())
    }

    /// Frees space on a full disk by removing indexes, which can be built again: first the index
    /// that was put aside, and then, if that is not enough, the one in use. Says whether there is
    /// room now.
    pub(super) fn make_room(&self, has_room: impl Fn() -> bool) -> Result<bool, OpenError> {
        let remove = |path: &Path| match fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(OpenError::io("remove", path)(error))
            }
            _ => Ok(()),
        };
        if !has_room() {
            remove(&self.index.with_extension("old"))?;
        }
        if !has_room() {
            remove(&self.index)?;
        }
        Ok(has_room())
    }

    pub(super) fn failed(&self, error: &IndexError) -> OpenError {
        self.distrust();
        OpenError::Index { dir: self.index.clone(), detail: error.to_string() }
    }
}

/// The content of the state while a process of this boot of the machine has the index.
fn open_mark() -> Vec<u8> {
    // Without one, only a clean close is trusted.
    boot_id().map(|boot| format!("open {boot}").into_bytes()).unwrap_or_default()
}

/// Which boot of the machine this is; unknown if it is not Linux.
pub(super) fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

fn sync_tree(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_tree(&entry.path())?;
        } else {
            fs::File::open(entry.path())?.sync_all()?;
        }
    }
    RealDisk.sync_dir(dir)
}

/// Makes a data directory with its parents, with durable names, and keeps others out of it.
pub(super) fn prepare(dir: &Path) -> Result<(), OpenError> {
    let is_absent = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let made = dir.ancestors().take_while(is_absent).count();
    let created = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    created.map_err(OpenError::io("create", dir))?;
    // The directory's own name also if it was there: the process that made it may have died.
    for path in dir.ancestors().take(made.max(1)) {
        let parent = path
            .parent()
            .map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
        let Some(parent) = parent else { break };
        match RealDisk.sync_dir(parent) {
            // A parent that this process may not read belongs to others, and nothing was made in
            // it.
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => {
                return Err(OpenError::unsynced(parent)(error));
            }
            _ => {}
        }
    }
    keep_private(dir);
    Ok(())
}

/// Keeps the group and others out of a data directory that exists: journals, blobs and keys are in
/// it. A directory of another owner stays as it is; files that are made in it are private by the
/// umask.
pub fn keep_private(dir: &Path) {
    let Ok(about) = fs::metadata(dir) else { return };
    let mode = about.permissions().mode();
    // The six lowest bits are the rights of the group and others.
    if mode.trailing_zeros() >= 6 {
        return;
    }
    let shown = dir.display();
    match fs::set_permissions(dir, Permissions::from_mode(mode & 0o7700)) {
        Ok(()) => warn!(dir = %shown, "other users could read the data directory; now they cannot"),
        Err(error) => warn!(dir = %shown, %error, "other users can read the data directory"),
    }
}

/// Where the segments are.
pub(super) fn log_dir(dir: &Path) -> PathBuf {
    dir.join("log")
}
