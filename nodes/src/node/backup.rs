//! Keeping a data directory as one file, and bringing it back: a tar of what is truth.
//!
//! The index and the lock are left out, because they are made anew.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use crate::{
    cli::offline::BackupView,
    client::TOKEN_FILE,
    failure::{Exit, Failure},
};

/// What is kept, beside the directory's root; all else is made anew.
const KEPT: &[&str] = &["format", "log", "blobs", "moved.json", TOKEN_FILE];

/// Writes `dir` to `file`, which must not exist; `sessions` is for the report.
pub fn write(dir: &Path, file: &Path, sessions: u64) -> Result<BackupView, Failure> {
    if file.exists() {
        return Err(failed(file, &"it exists already").hint("name a file that does not exist"));
    }
    let temporary = part(file);
    let out = File::create_new(&temporary).map_err(|error| failed(&temporary, &error))?;
    let mut tar = tar::Builder::new(out);
    for name in KEPT {
        let path = dir.join(name);
        let added = match fs::metadata(&path) {
            Ok(about) if about.is_dir() => tar.append_dir_all(name, &path),
            Ok(_) => tar.append_path_with_name(&path, name),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        added.map_err(|error| failed(&path, &error))?;
    }
    let done = tar.into_inner().and_then(|out| {
        out.sync_all()?;
        out.metadata()
    });
    let bytes = done.map_err(|error| failed(&temporary, &error))?.len();
    fs::rename(&temporary, file).map_err(|error| failed(file, &error))?;
    Ok(BackupView { file: file.display().to_string(), bytes, sessions })
}

/// Fills `dir`, which must be empty or absent, from `file`.
pub fn read(file: &Path, dir: &Path) -> Result<u64, Failure> {
    let occupied = match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(failed(dir, &error)),
    };
    if occupied {
        return Err(failed(dir, &"it is not empty")
            .hint("name an empty directory with `--data-dir`; nothing is overwritten"));
    }
    let input = File::open(file).map_err(|error| failed(file, &error))?;
    let bytes = input.metadata().map_err(|error| failed(file, &error))?.len();
    let temporary = part(dir);
    fs::create_dir_all(&temporary).map_err(|error| failed(&temporary, &error))?;
    let unpacked = unpack(input, &temporary);
    if let Err(error) = unpacked {
        if let Err(error) = fs::remove_dir_all(&temporary) {
            tracing::warn!(%error, "an unfinished restore was left behind");
        }
        return Err(failed(file, &error).hint("is it a file that `clawnode backup` wrote?"));
    }
    if dir.exists() {
        fs::remove_dir(dir).map_err(|error| failed(dir, &error))?;
    }
    fs::rename(&temporary, dir).map_err(|error| failed(dir, &error))?;
    Ok(bytes)
}

fn unpack(input: File, into: &Path) -> io::Result<()> {
    let mut tar = tar::Archive::new(input);
    for entry in tar.entries()? {
        let mut entry = entry?;
        let known = entry.path()?.components().next().is_some_and(|first| {
            KEPT.iter().any(|kept| first.as_os_str() == std::ffi::OsStr::new(kept))
        });
        if !known {
            return Err(io::Error::other("it holds something that is no part of a backup"));
        }
        entry.unpack_in(into)?;
    }
    if into.join("format").exists() { Ok(()) } else { Err(io::Error::other("it has no `format`")) }
}

fn part(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    path.with_file_name(name)
}

fn failed(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Failed, "backup_failed", format!("`{}`: {why}", path.display()))
}
