//! Everything below a directory, by handles and in order.

use std::{ffi::OsString, ops::ControlFlow};

use cap_std::fs::Dir;

use super::{WorkspaceError, write::TEMPORARY};

/// Entries that one walk looks at.
const ENTRIES: usize = 50_000;

/// What a walk comes across.
pub(super) struct WalkEntry<'a> {
    /// The directory that it is in.
    pub(super) dir: &'a Dir,
    /// Its name there.
    pub(super) name: OsString,
    /// Its path from where the walk began, fit to be shown.
    pub(super) path: String,
    pub(super) kind: FileKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    File,
    Directory,
    /// A symbolic link: it is not followed.
    Link,
    /// A pipe, a socket, a device.
    Special,
}

/// A walk, and what it could not look at.
#[derive(Debug)]
pub(super) struct Walk {
    /// Directories below the first that are entered.
    pub(super) depth: usize,
    /// Entries seen so far.
    pub(super) seen: usize,
    /// Whether there were more than it looks at.
    pub(super) is_cut: bool,
    /// Directories that could not be read.
    pub(super) unreadable: usize,
}

type Visit<'v> = dyn FnMut(&WalkEntry<'_>) -> ControlFlow<()> + 'v;

impl Walk {
    pub(super) const fn new(depth: usize) -> Self {
        Self { depth, seen: 0, is_cut: false, unreadable: 0 }
    }

    /// Visits everything below `dir`, which was asked for as `given`.
    pub(super) fn run(
        &mut self,
        dir: &Dir,
        given: &str,
        visit: &mut Visit<'_>,
    ) -> Result<(), WorkspaceError> {
        let names = self.names(dir).map_err(|error| WorkspaceError::of(given, error))?;
        // A visitor that has enough ends the walk; either way it is over.
        match self.visit(dir, names, "", 0, visit) {
            ControlFlow::Break(()) | ControlFlow::Continue(()) => Ok(()),
        }
    }

    fn names(&mut self, dir: &Dir) -> std::io::Result<Vec<(OsString, FileKind)>> {
        let mut names = Vec::new();
        for entry in dir.entries()? {
            let entry = entry?;
            if self.seen == ENTRIES {
                self.is_cut = true;
                break;
            }
            self.seen += 1;
            let name = entry.file_name();
            if name.to_string_lossy().starts_with(TEMPORARY) {
                continue;
            }
            let file_type = entry.file_type()?;
            let kind = if file_type.is_dir() {
                FileKind::Directory
            } else if file_type.is_file() {
                FileKind::File
            } else if file_type.is_symlink() {
                FileKind::Link
            } else {
                FileKind::Special
            };
            names.push((name, kind));
        }
        names.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(names)
    }

    fn visit(
        &mut self,
        dir: &Dir,
        names: Vec<(OsString, FileKind)>,
        prefix: &str,
        depth: usize,
        visit: &mut Visit<'_>,
    ) -> ControlFlow<()> {
        for (name, kind) in names {
            let path = format!("{prefix}{}", shown(&name));
            let entry = WalkEntry { dir, name, path, kind };
            visit(&entry)?;
            if kind != FileKind::Directory || depth == self.depth {
                continue;
            }
            let below = dir.open_dir(&entry.name).and_then(|below| {
                let names = self.names(&below)?;
                Ok((below, names))
            });
            match below {
                Ok((below, names)) => {
                    let prefix = format!("{}/", entry.path);
                    self.visit(&below, names, &prefix, depth + 1, visit)?;
                }
                // It went away, or it is not ours to read: the rest is worth seeing.
                Err(_) => self.unreadable += 1,
            }
        }
        ControlFlow::Continue(())
    }
}

/// A name as text in one line.
fn shown(name: &OsString) -> String {
    name.to_string_lossy().chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
