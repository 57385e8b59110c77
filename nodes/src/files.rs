//! Directories and files for one user, written in one step.

use std::{
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

use tracing::warn;

/// The mode of a file that only its owner reads.
pub(crate) const PRIVATE: u32 = 0o600;
/// The mode of a directory that only its owner enters.
const PRIVATE_DIRECTORY: u32 = 0o700;

/// Makes a directory and those above it, for their owner alone. A directory that exists stays as it is.
pub(crate) fn directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(path)
}

/// Replaces the file at `path` with `text`: after a crash the file is the old or the new one, whole.
/// With an error, it is the old one.
pub(crate) fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = fs::File::open(folder.unwrap_or(Path::new(".")))?;
    // A name of its own: the rest of a killed process stops nothing.
    let temporary = path.with_extension(ulid::Ulid::generate().to_string());
    let written = (|| {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(PRIVATE).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        // The process's umask does not apply to this.
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        // The error that is returned says what was lost.
        drop(fs::remove_file(&temporary));
    } else if let Err(error) = folder.sync_all() {
        warn!(%error, file = %path.display(), "a power cut may bring the old file back");
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_stays_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/b");
        directory(&folder).unwrap();
        let path = folder.join("c.json");
        for (text, mode) in [("one", PRIVATE), ("two", 0o644)] {
            replace(&path, text, mode).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        }
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        replace(&folder, "not a file", PRIVATE).unwrap_err();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        assert_eq!(fs::read_dir(dir.path().join("a")).unwrap().count(), 1);
    }
}
