//! What a data directory says of itself: its format, and whether its index may be trusted.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::{
    OpenError,
    disk::{Disk, RealDisk, read_whole, write_whole},
    index::IndexError,
};
use crate::Clock;

/// The format of data directories that this program writes. 2: the log may hold jobs, which an
/// older program would take for damage.
const FORMAT: u32 = 2;
/// What a data directory is, in its file `format`.
#[derive(Debug, Serialize, Deserialize)]
struct Format {
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
    let write = |format: &Format| {
        let text = serde_json::to_vec(format)
            .map_err(std::io::Error::other)
            .map_err(OpenError::io("write", &path))?;
        write_whole(disk, &path, &text).map_err(OpenError::io("write", &path))
    };
    if let Some((mut format, id)) = read(disk, dir)? {
        if format.version < FORMAT {
            // Only what may stand in the log has changed.
            format.version = FORMAT;
            write(&format)?;
        }
        return Ok((format.partitions.max(1), id));
    }
    let id = ulid::Ulid::from_parts(clock.now().0, rand::random());
    let format = Format { version: FORMAT, partitions: partitions.max(1), id: id.to_string() };
    write(&format)?;
    Ok((format.partitions, id.0))
}

/// The partitions and the id of a directory; `None` if it is none.
pub(super) fn read_format(disk: &dyn Disk, dir: &Path) -> Result<Option<(u16, u128)>, OpenError> {
    Ok(read(disk, dir)?.map(|(format, id)| (format.partitions.max(1), id)))
}

fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<(Format, u128)>, OpenError> {
    let path = dir.join("format");
    let text = read_whole(disk, &path).map_err(OpenError::io("read", &path))?;
    let Some(text) = text else { return Ok(None) };
    let bad = |detail: String| OpenError::NotADataDirectory {
        dir: dir.to_owned(),
        detail: format!("its file `format` is not readable: {detail}"),
    };
    let format: Format = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
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

    /// An index is whole if it was let go in order, or if its process died but the machine did
    /// not: sled's writes are in order, but not synced.
    pub(super) fn is_trusted(&self) -> bool {
        let state = read_whole(&RealDisk, &self.state).ok().flatten().unwrap_or_default();
        state == b"clean" || (!state.is_empty() && state == open_mark())
    }

    /// From here on the index is as good as this machine's uptime.
    pub(super) fn set_open(&self) -> Result<(), OpenError> {
        write_whole(&RealDisk, &self.state, &open_mark())
            .map_err(OpenError::io("write", &self.state))
    }

    /// The index was closed: it is synced, and good for ever.
    pub(super) fn set_clean(&self) {
        let synced =
            sync_tree(&self.index).and_then(|()| write_whole(&RealDisk, &self.state, b"clean"));
        if let Err(error) = synced {
            warn!(%error, "the index could not be synced; a restart of the machine rebuilds it");
        }
    }

    /// The index must be built anew at the next start.
    pub(super) fn distrust(&self) {
        if let Err(error) = write_whole(&RealDisk, &self.state, b"failed") {
            warn!(%error, "cannot mark the index as failed; delete the folder `index`");
        }
    }

    /// Puts an index aside that cannot be used; the one before goes.
    pub(super) fn set_aside(&self) -> Result<(), OpenError> {
        let aside = self.index.with_extension("old");
        if aside.exists() {
            std::fs::remove_dir_all(&aside).map_err(OpenError::io("remove", &aside))?;
        }
        if self.index.exists() {
            std::fs::rename(&self.index, &aside).map_err(OpenError::io("rename", &self.index))?;
        }
        Ok(())
    }

    pub(super) fn failed(&self, error: &IndexError) -> OpenError {
        self.distrust();
        OpenError::Index { dir: self.index.clone(), detail: error.to_string() }
    }
}

/// What the state says while a process of this boot of the machine has the index.
fn open_mark() -> Vec<u8> {
    match std::fs::read("/proc/sys/kernel/random/boot_id") {
        Ok(boot) => [b"open ", boot.trim_ascii()].concat(),
        // Not Linux: only a clean close is trusted.
        Err(_) => Vec::new(),
    }
}

fn sync_tree(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_tree(&entry.path())?;
        } else {
            std::fs::File::open(entry.path())?.sync_all()?;
        }
    }
    RealDisk.sync_dir(dir)
}

/// Where the segments are.
pub(super) fn log_dir(dir: &Path) -> PathBuf {
    dir.join("log")
}
