//! Files that only their owner reads, written in one step.

use std::{fs, io, path::Path};

use crate::{files, start_error::StartError};

/// Makes a directory that only its owner may enter; one that exists stays as it is.
pub(super) fn directory(path: &Path) -> Result<(), StartError> {
    files::directory(path).map_err(|error| refused(path, &error))
}

/// Writes a file that only its owner reads: all of it or nothing.
pub(super) fn write(path: &Path, text: &str) -> Result<(), StartError> {
    files::replace(path, text, files::PRIVATE).map_err(|error| refused(path, &error))
}

/// Reads a file; `None` if there is none.
pub(super) fn read(path: &Path) -> Result<Option<String>, StartError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound) => Ok(None),
        Err(error) => Err(refused(path, &error)),
    }
}

fn refused(path: &Path, error: &io::Error) -> StartError {
    let message = format!("cannot use `{}`: {error}", path.display());
    StartError::failed("file_unusable", message)
        .hint("correct its owner and permissions, or name another directory")
}
