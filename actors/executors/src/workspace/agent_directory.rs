//! One agent's directory, as a handle.
//!
//! Every path is resolved by the handle, at the moment at which it is used. A link that is made in
//! between can lead to another file of the workspace, but not out of it.

use std::{io, os::unix::fs::fchown, path::Path};

use cap_std::{
    ambient_authority,
    fs::{
        Dir, File, FileType, FileTypeExt, Metadata, MetadataExt, OpenOptions, OpenOptionsExt,
        Permissions, PermissionsExt,
    },
};
use clawnode_proto::AgentName;
use clawnode_tool::workspace_path::WorkspacePath;
use rustix::fs::OFlags;

use super::{WorkspaceError, WorkspaceOptions};

/// The mode of a new directory, independent of the process's umask: the node's own files are its
/// secret, those of agents are not, and their commands may run as another user.
pub const DIRECTORY_MODE: u32 = 0o755;

/// The directory that has all agents' directories.
#[derive(Debug)]
pub(super) struct Root {
    dir: Dir,
    hard_links: bool,
    #[cfg(feature = "test-util")]
    text_paths: Option<super::planted::TextPaths>,
}

/// The directory of one agent.
#[derive(Debug)]
pub(super) struct AgentDirectory {
    dir: Dir,
    hard_links: bool,
    owner: Option<FileOwner>,
    #[cfg(feature = "test-util")]
    text_paths: Option<super::planted::TextPaths>,
}

/// The user and group that files are given to.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileOwner {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

// === impl FileOwner ===

impl FileOwner {
    /// Whose this directory is, where this process can give files away: what root writes for an
    /// agent is the agent's, whose commands run as the owner of its directory.
    fn of(dir: &Dir) -> io::Result<Option<Self>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let about = dir.dir_metadata()?;
        Ok(Some(Self { uid: about.uid(), gid: about.gid() }))
    }
}

// === impl Root ===

impl Root {
    pub(super) fn open(options: &WorkspaceOptions) -> Result<Self, WorkspaceError> {
        let dir = Dir::open_ambient_dir(&options.root, ambient_authority());
        Ok(Self {
            dir: dir.map_err(WorkspaceError::Root)?,
            hard_links: options.hard_links,
            #[cfg(feature = "test-util")]
            text_paths: None,
        })
    }

    #[cfg(feature = "test-util")]
    pub(super) fn plant(&mut self, options: &WorkspaceOptions, planted: super::WorkspaceBug) {
        let root = options.root.clone();
        self.text_paths = Some(super::planted::TextPaths { root, planted });
    }

    /// Whether it is still there.
    pub(super) fn check(&self) -> Result<(), WorkspaceError> {
        self.dir.entries().map(drop).map_err(WorkspaceError::Root)
    }

    /// The directory of this agent; made if it is not there yet.
    pub(super) fn place(&self, agent: &AgentName) -> Result<AgentDirectory, WorkspaceError> {
        let name = agent.as_str();
        // Names of agents may have dots in them, and two of those are not names of files.
        if matches!(name, "." | "..") {
            return Err(WorkspaceError::Agent(name.to_owned()));
        }
        match self.dir.create_dir(name) {
            Ok(()) => FileOwner::of(&self.dir)
                .and_then(|owner| give(&self.dir, Path::new(name), owner))
                .map_err(WorkspaceError::Root)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(WorkspaceError::Root(error)),
        }
        // A link in place of the directory would make two agents one.
        let is = self.dir.symlink_metadata(name).map_err(WorkspaceError::Root)?.file_type();
        if !is.is_dir() {
            let error = io::Error::from(io::ErrorKind::NotADirectory);
            return Err(WorkspaceError::Root(error));
        }
        let dir = self.dir.open_dir(name).map_err(WorkspaceError::Root)?;
        Ok(AgentDirectory {
            owner: FileOwner::of(&dir).map_err(WorkspaceError::Root)?,
            dir,
            hard_links: self.hard_links,
            #[cfg(feature = "test-util")]
            text_paths: self.text_paths.as_ref().map(|text_paths| super::planted::TextPaths {
                root: text_paths.root.join(name),
                planted: text_paths.planted,
            }),
        })
    }
}

// === impl AgentDirectory ===

impl AgentDirectory {
    /// Opens a regular file to be read, without ever waiting for one.
    pub(super) fn open_file(&self, path: &WorkspacePath) -> Result<(File, u64), WorkspaceError> {
        #[cfg(feature = "test-util")]
        if let Some(text_paths) = &self.text_paths {
            let failed = |error| WorkspaceError::of(path.given(), error);
            let file = File::from_std(text_paths.open(path.given()).map_err(failed)?);
            let bytes = file.metadata().map_err(failed)?.len();
            return Ok((file, bytes));
        }
        self.open_in(&self.dir, path.as_path(), path.given())
    }

    /// The same, of a path relative to `dir`, which is a directory of this place.
    pub(super) fn open_in(
        &self,
        dir: &Dir,
        path: &Path,
        given: &str,
    ) -> Result<(File, u64), WorkspaceError> {
        let failed = |error| WorkspaceError::of(given, error);
        // Looked at first, because opening a device can have effects ...
        self.judge(&dir.metadata(path).map_err(failed)?, given)?;
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = i32::try_from(flags.bits()).unwrap_or_default();
        let mut options = OpenOptions::new();
        let file = dir.open_with(path, options.read(true).custom_flags(flags)).map_err(failed)?;
        // ... and once more what was opened, because it may be another one by now.
        let metadata = file.metadata().map_err(failed)?;
        self.judge(&metadata, given)?;
        Ok((file, metadata.len()))
    }

    fn judge(&self, metadata: &Metadata, given: &str) -> Result<(), WorkspaceError> {
        let path = given.to_owned();
        if !metadata.is_file() {
            let is = kind(metadata.file_type());
            return Err(WorkspaceError::Kind { path, is, wanted: "a file" });
        }
        if metadata.nlink() > 1 && !self.hard_links {
            return Err(WorkspaceError::Linked(path));
        }
        Ok(())
    }

    /// Opens a directory.
    pub(super) fn open_dir(&self, path: &WorkspacePath) -> Result<Dir, WorkspaceError> {
        let failed = |error| WorkspaceError::of(path.given(), error);
        #[cfg(feature = "test-util")]
        if let Some(text_paths) = &self.text_paths {
            let resolved = text_paths.resolve(path.given()).map_err(failed)?;
            return Dir::open_ambient_dir(resolved, ambient_authority()).map_err(failed);
        }
        let metadata = self.dir.metadata(path.as_path()).map_err(failed)?;
        if !metadata.is_dir() {
            return Err(WorkspaceError::Kind {
                path: path.given().to_owned(),
                is: kind(metadata.file_type()),
                wanted: "a directory",
            });
        }
        self.dir.open_dir(path.as_path()).map_err(failed)
    }

    /// Whether it is a directory.
    pub(super) fn is_dir(&self, path: &WorkspacePath) -> Result<bool, WorkspaceError> {
        let failed = |error| WorkspaceError::of(path.given(), error);
        #[cfg(feature = "test-util")]
        if let Some(text_paths) = &self.text_paths {
            return text_paths.resolve(path.given()).map(|path| path.is_dir()).map_err(failed);
        }
        Ok(self.dir.metadata(path.as_path()).map_err(failed)?.is_dir())
    }

    /// Opens the directory that a file is to be written in, and makes it if it is not there.
    pub(super) fn make_dir(&self, parent: &Path, given: &str) -> Result<Dir, WorkspaceError> {
        let failed = |error| WorkspaceError::of(given, error);
        if parent.as_os_str().is_empty() {
            return self.dir.try_clone().map_err(failed);
        }
        let mut above: Vec<&Path> =
            parent.ancestors().filter(|parent| !parent.as_os_str().is_empty()).collect();
        above.reverse();
        for path in above {
            match self.dir.create_dir(path) {
                Ok(()) => give(&self.dir, path, self.owner).map_err(failed)?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
            }
        }
        self.dir.open_dir(parent).map_err(failed)
    }

    /// The user and group that new files are given to.
    pub(super) const fn owner(&self) -> Option<FileOwner> {
        self.owner
    }

    #[cfg(feature = "test-util")]
    pub(super) const fn text_paths(&self) -> Option<&super::planted::TextPaths> {
        self.text_paths.as_ref()
    }
}

/// Gives a directory that was just made to this owner.
fn give(dir: &Dir, path: &Path, owner: Option<FileOwner>) -> io::Result<()> {
    // By a handle, and only if it is a directory: another process may have put something else
    // there.
    let flags = i32::try_from(OFlags::DIRECTORY.bits()).unwrap_or_default();
    let made = dir.open_with(path, OpenOptions::new().read(true).custom_flags(flags))?;
    if let Some(FileOwner { uid, gid }) = owner {
        fchown(&made, Some(uid), Some(gid))?;
    }
    made.set_permissions(Permissions::from_mode(DIRECTORY_MODE))
}

/// What something is, in words.
pub(super) fn kind(file_type: FileType) -> &'static str {
    if file_type.is_dir() {
        "a directory"
    } else if file_type.is_file() {
        "a file"
    } else if file_type.is_symlink() {
        "a symbolic link"
    } else if file_type.is_fifo() {
        "a pipe"
    } else if file_type.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}
