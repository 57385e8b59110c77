//! Bugs planted into the workspace, for its tests to find. Compiled for tests only.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Which bug is planted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkspaceBug {
    #[default]
    None,
    /// Paths are joined to the agent's directory as they are given.
    JoinOnly,
    /// Paths are checked as text after links were followed, and used afterwards.
    CheckThenUse,
}

/// Paths as text, where there should be handles.
#[derive(Clone, Debug)]
pub(super) struct TextPaths {
    pub(super) root: PathBuf,
    pub(super) planted: WorkspaceBug,
}

impl TextPaths {
    pub(super) fn resolve(&self, path: &str) -> io::Result<PathBuf> {
        let joined = self.root.join(path);
        if self.planted == WorkspaceBug::JoinOnly {
            return Ok(joined);
        }
        let real = joined.canonicalize().or_else(|_| {
            let parent = joined.parent().unwrap_or(Path::new("/")).canonicalize()?;
            Ok::<_, io::Error>(parent.join(joined.file_name().unwrap_or_default()))
        })?;
        if real.starts_with(self.root.canonicalize()?) {
            Ok(joined)
        } else {
            Err(io::Error::other("outside"))
        }
    }

    pub(super) fn open(&self, path: &str) -> io::Result<fs::File> {
        fs::File::open(self.resolve(path)?)
    }

    pub(super) fn write(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        fs::write(self.resolve(path)?, bytes)
    }
}
