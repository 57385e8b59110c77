//! One process per data directory.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read, Seek, Write},
    path::Path,
    time::Duration,
};

use super::OpenError;

/// The file whose lock says that a directory is in use.
const FILE: &str = "lock";
/// How long to try for a lock: that of a killed process goes only when it has been reaped.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often to try.
const EVERY: Duration = Duration::from_millis(25);

/// The right to a directory; gone when dropped.
#[derive(Debug)]
pub(super) struct DirLock {
    _file: File,
}

impl DirLock {
    /// Takes the directory for this process alone.
    pub(super) fn exclusive(dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join(FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(OpenError::io("open", &path))?;
        take(dir, &mut file, File::try_lock)?;
        let holder = format!("process {}", std::process::id());
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(holder.as_bytes()));
        match written {
            // Others then see "another process"; the lock holds without its id.
            Err(error) if error.kind() != std::io::ErrorKind::StorageFull => {
                return Err(OpenError::io("write", &path)(error));
            }
            _ => {}
        }
        Ok(Self { _file: file })
    }

    /// Keeps writing processes away while this one reads; changes nothing.
    pub(super) fn shared(dir: &Path) -> Result<Option<Self>, OpenError> {
        let path = dir.join(FILE);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            // A node never opened it, or it is a copy without its lock: no process can hold it.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(OpenError::io("open", &path)(error)),
        };
        take(dir, &mut file, File::try_lock_shared)?;
        Ok(Some(Self { _file: file }))
    }
}

fn take(
    dir: &Path,
    file: &mut File,
    try_lock: fn(&File) -> Result<(), TryLockError>,
) -> Result<(), OpenError> {
    let tries = PATIENCE.as_millis() / EVERY.as_millis();
    for _ in 0..tries {
        match try_lock(file) {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(EVERY),
            Err(TryLockError::Error(error)) => {
                return Err(OpenError::io("lock", dir.join(FILE))(error));
            }
        }
    }
    let mut holder = String::new();
    if file.read_to_string(&mut holder).is_err() || holder.is_empty() {
        "another process".clone_into(&mut holder);
    }
    Err(OpenError::Held { dir: dir.to_owned(), holder })
}
