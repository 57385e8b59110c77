//! `file_write`: a whole file, or nothing.

use std::{
    io::{self, Write},
    os::unix::fs::fchown,
};

use cap_std::fs::{Dir, File, MetadataExt, OpenOptions, Permissions, PermissionsExt};
use clawnode_proto::{CallId, Digest};
use clawnode_tool::workspace_path::WorkspacePath;
use tokio_util::sync::CancellationToken;

use super::{
    WorkspaceError,
    agent_directory::{AgentDirectory, FileOwner, kind},
};

/// Bytes that one call writes (1 MiB).
pub(super) const WRITE_BYTES: usize = 1 << 20;
/// The part of the mode that a replaced file keeps: who may read, write and run it. The new file
/// may belong to another user than the old one, and would run as that user with the other bits.
const KEPT_MODE: u32 = 0o777;
/// The mode of a new file, independent of the process's umask.
const NEW_MODE: u32 = 0o644;
/// What a file is called until it is whole.
pub(super) const TEMPORARY: &str = ".clawnode-write-";

/// A file that is not yet what it will be; dropping it removes it.
struct Unfinished<'a> {
    dir: &'a Dir,
    name: String,
    file: File,
    done: bool,
}

/// Writes `content` beside the file that is there, and puts it in its place. Twice is like once.
pub(super) fn write(
    place: &AgentDirectory,
    path: &WorkspacePath,
    content: &str,
    call: CallId,
    cancelled: &CancellationToken,
) -> Result<String, WorkspaceError> {
    if content.len() > WRITE_BYTES {
        return Err(WorkspaceError::TooLong { bytes: content.len(), most: WRITE_BYTES });
    }
    let failed = |error| WorkspaceError::of(path.given(), error);
    #[cfg(feature = "test-util")]
    if let Some(text_paths) = place.text_paths() {
        text_paths.write(path.given(), content.as_bytes()).map_err(failed)?;
        return Ok(String::new());
    }
    let Some((parent, name)) = path.split() else {
        let path = path.given().to_owned();
        return Err(WorkspaceError::Kind { path, is: "a directory", wanted: "a file" });
    };
    let dir = place.make_dir(parent, path.given())?;
    let mode = mode(&dir, name, path.given())?;
    let mut unfinished = Unfinished::create(&dir, call).map_err(failed)?;
    unfinished.fill(content.as_bytes(), mode, place.owner()).map_err(failed)?;
    if cancelled.is_cancelled() {
        return Err(WorkspaceError::Cancelled);
    }
    let is_new = unfinished.finish(name).map_err(failed)?;
    Ok(format!(
        "{} `{}`: {} bytes, BLAKE3 {}",
        if is_new { "created" } else { "replaced" },
        path.given(),
        content.len(),
        Digest::of(content.as_bytes())
    ))
}

/// The mode of the file to be: that of the file that is there, as far as it is kept.
fn mode(dir: &Dir, name: &str, given: &str) -> Result<u32, WorkspaceError> {
    match dir.symlink_metadata(name) {
        Ok(metadata) if metadata.is_file() => Ok(metadata.mode() & KEPT_MODE),
        // A link would be replaced, not followed: neither is what a writer means.
        Ok(metadata) => Err(WorkspaceError::Kind {
            path: given.to_owned(),
            is: kind(metadata.file_type()),
            wanted: "a file",
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(NEW_MODE),
        Err(error) => Err(WorkspaceError::of(given, error)),
    }
}

impl<'a> Unfinished<'a> {
    fn create(dir: &'a Dir, call: CallId) -> io::Result<Self> {
        // Two runs of one call may meet: each has its own.
        let name = format!("{TEMPORARY}{call}-{:016x}", rand::random::<u64>());
        let file = dir.open_with(&name, OpenOptions::new().write(true).create_new(true))?;
        Ok(Self { dir, name, file, done: false })
    }

    fn fill(&mut self, content: &[u8], mode: u32, owner: Option<FileOwner>) -> io::Result<()> {
        self.file.write_all(content)?;
        if let Some(FileOwner { uid, gid }) = owner {
            fchown(&self.file, Some(uid), Some(gid))?;
        }
        self.file.set_permissions(Permissions::from_mode(mode))?;
        self.file.sync_all()
    }

    /// Puts it in its place; whether nothing was there before.
    fn finish(mut self, name: &str) -> io::Result<bool> {
        let is_new = !self.dir.try_exists(name).unwrap_or(true);
        self.dir.rename(&self.name, self.dir, name)?;
        self.done = true;
        Ok(is_new)
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.done
            && let Err(error) = self.dir.remove_file(&self.name)
        {
            tracing::warn!(%error, "an unfinished file stays behind");
        }
    }
}
