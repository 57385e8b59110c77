//! A data directory whose sessions were moved elsewhere has a mark, so that no node continues with
//! a second copy of them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{
    OpenError,
    directory::{NO_FORMAT, read_format},
    disk::{Disk, RealDisk, read_whole, write_whole},
    lock::DirLock,
};

/// The file with the mark.
const FILE: &str = "moved.json";

/// Where the sessions of a directory went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Where to, for people; no secret.
    pub to: String,
    /// Whether all of them are there.
    pub complete: bool,
}

/// The mark in `dir`; `None` if its sessions are here.
pub fn moved(dir: &Path) -> Result<Option<Moved>, OpenError> {
    let path = file(dir);
    let text = read_whole(&RealDisk, &path).map_err(OpenError::io("read", &path))?;
    // A mark that cannot be read was written all the same.
    let unreadable =
        |error: serde_json::Error| Moved { to: format!("? ({error})"), complete: false };
    Ok(text.map(|text| serde_json::from_slice(&text).unwrap_or_else(unreadable)))
}

/// Records durably in `dir`, which is open for reading, where its sessions go. From then on no node
/// starts on it.
pub fn set_moved(dir: &Path, moved: &Moved) -> Result<(), OpenError> {
    let path = file(dir);
    let text = serde_json::to_vec(moved)
        .map_err(std::io::Error::other)
        .map_err(OpenError::io("write", &path))?;
    write_whole(&RealDisk, &path, &text).map_err(OpenError::io("write", &path))
}

/// Lets nodes start on `dir` again; says where its sessions went.
pub fn take_back(dir: &Path) -> Result<Option<Moved>, OpenError> {
    let Some(was) = moved(dir)? else { return Ok(None) };
    // A process that is moving entities holds this lock.
    let _lock = DirLock::exclusive(dir)?;
    let path = file(dir);
    std::fs::remove_file(&path).map_err(OpenError::io("remove", &path))?;
    RealDisk.sync_dir(dir).map_err(OpenError::io("sync", dir))?;
    Ok(Some(was))
}

/// The id of the data directory `dir`.
pub fn identity(dir: &Path) -> Result<u128, OpenError> {
    let found = read_format(&RealDisk, dir)?.ok_or_else(|| OpenError::NotADataDirectory {
        dir: dir.to_owned(),
        detail: NO_FORMAT.to_owned(),
    })?;
    Ok(found.1)
}

/// Refuses a directory whose sessions are elsewhere.
pub(super) fn refuse_moved(dir: &Path) -> Result<(), OpenError> {
    match moved(dir)? {
        None => Ok(()),
        Some(Moved { to, complete }) => Err(OpenError::Moved { dir: dir.to_owned(), to, complete }),
    }
}

fn file(dir: &Path) -> PathBuf {
    dir.join(FILE)
}
