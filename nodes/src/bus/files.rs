//! Files that only their owner reads, written in one step.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

use crate::failure::{Exit, Failure};

/// Makes a directory that only its owner may enter; one that exists stays as it is.
pub(super) fn directory(path: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| refused(path, &error))
}

/// Writes a file that only its owner reads: all of it or nothing.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let temporary = path.with_extension(format!("new-{}", std::process::id()));
    let written = (|| {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        // The name is durable once its directory is.
        fs::File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    })();
    if written.is_err() {
        // Nothing is lost with it; the error below says what was.
        drop(fs::remove_file(&temporary));
    }
    written.map_err(|error| refused(path, &error))
}

/// Reads a file; `None` if there is none.
pub(super) fn read(path: &Path) -> Result<Option<String>, Failure> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound) => Ok(None),
        Err(error) => Err(refused(path, &error)),
    }
}

fn refused(path: &Path, error: &io::Error) -> Failure {
    let message = format!("cannot use `{}`: {error}", path.display());
    Failure::new(Exit::Failed, "file_unusable", message)
        .hint("correct its owner and permissions, or name another directory")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_the_owner_reads_what_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a");
        directory(&inner).unwrap();
        let path = inner.join("b.json");
        assert_eq!(read(&path).unwrap(), None);
        for text in ["one", "two"] {
            write(&path, text).unwrap();
            assert_eq!(read(&path).unwrap().as_deref(), Some(text));
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&inner), mode(&path)), (0o700, 0o600));
        assert_eq!(fs::read_dir(&inner).unwrap().count(), 1, "nothing is left behind");
    }
}
