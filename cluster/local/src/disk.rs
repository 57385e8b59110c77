//! The disk as the log needs it; tests replace it with one that can lose power.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Files and directories whose changes are durable only once they are synced.
pub(super) trait Disk: Send + Sync + fmt::Debug {
    /// Makes an empty file, and replaces one of that name.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file that exists.
    fn open(&self, path: &Path, writable: bool) -> io::Result<Arc<dyn DiskFile>>;
    /// The names in a directory; empty if it does not exist.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Renames a file, and replaces one of the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes a directory with its parents.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Bytes that can still be written.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
}

/// An open file.
pub(super) trait DiskFile: Send + Sync + fmt::Debug {
    /// Writes all of `bytes` at `offset`.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Fills `into` from `offset` on.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
    /// How long it is.
    fn len(&self) -> io::Result<u64>;
    /// Shortens it to `len` bytes.
    fn truncate(&self, len: u64) -> io::Result<()>;
    /// Makes its bytes durable (`fdatasync`).
    fn sync(&self) -> io::Result<()>;
}

/// The disk of the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct RealDisk;

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        Ok(Arc::new(file))
    }

    fn open(&self, path: &Path, writable: bool) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(OpenOptions::new().read(true).write(writable).open(path)?))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            // A name that is not UTF-8 is not a file of ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

impl DiskFile for File {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(into, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Writes a whole file so that after a power cut either the old or the new content is there.
pub(super) fn write_whole(disk: &dyn Disk, path: &Path, content: &[u8]) -> io::Result<()> {
    let (dir, tmp) = beside(path);
    let file = disk.create(&tmp)?;
    file.write_at(0, content)?;
    file.sync()?;
    disk.rename(&tmp, path)?;
    disk.sync_dir(&dir)
}

/// Reads a whole file, or `None` if it does not exist.
pub(super) fn read_whole(disk: &dyn Disk, path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open(path, false) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let len = usize::try_from(file.len()?).map_err(io::Error::other)?;
    let mut content = vec![0; len];
    file.read_at(0, &mut content)?;
    Ok(Some(content))
}

/// A file's directory, and the name it has there until it is whole.
fn beside(path: &Path) -> (PathBuf, PathBuf) {
    let dir = path.parent().map(Path::to_path_buf).unwrap_or_default();
    let mut name = path.file_name().map(ToOwned::to_owned).unwrap_or_default();
    name.push(".tmp");
    let tmp = dir.join(name);
    (dir, tmp)
}
