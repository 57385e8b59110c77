//! `file_write`: a whole file, or nothing.

use std::io::{self, Write};

use cap_std::fs::{Dir, File, OpenOptions, Permissions};
use clawnode_proto::{CallId, Digest};
use tokio_util::sync::CancellationToken;

use super::{
    WorkspaceError,
    path::WorkspacePath,
    place::{Place, kind},
};

/// Bytes that one call writes (1 MiB).
pub(super) const WRITE_BYTES: usize = 1 << 20;
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
    place: &Place,
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
    let before = permissions(&dir, name, path.given())?;
    let mut unfinished = Unfinished::create(&dir, call).map_err(failed)?;
    unfinished.fill(content.as_bytes(), before).map_err(failed)?;
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

/// The permissions of the file that is there; none if there is none.
fn permissions(dir: &Dir, name: &str, given: &str) -> Result<Option<Permissions>, WorkspaceError> {
    match dir.symlink_metadata(name) {
        Ok(metadata) if metadata.is_file() => Ok(Some(metadata.permissions())),
        // A link would be replaced, not followed: neither is what a writer means.
        Ok(metadata) => Err(WorkspaceError::Kind {
            path: given.to_owned(),
            is: kind(metadata.file_type()),
            wanted: "a file",
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
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

    fn fill(&mut self, content: &[u8], permissions: Option<Permissions>) -> io::Result<()> {
        self.file.write_all(content)?;
        if let Some(permissions) = permissions {
            self.file.set_permissions(permissions)?;
        }
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
