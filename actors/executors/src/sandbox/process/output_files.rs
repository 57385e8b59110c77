//! How files that a command leaves get out of its sandbox.
//!
//! They are in a file system in memory that ends with the sandbox. So a shell in the sandbox runs the
//! command and then writes them, as a tar archive, into one file of this host that is mounted there:
//! it cannot grow beyond what one file of a command may, and it is read through the handle that it was
//! made with. The command may write into it too; whatever is in it, is read as any archive.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek},
    os::unix::fs::{OpenOptionsExt, fchown},
    path::{Path, PathBuf},
    time::Duration,
};

use clawnode_proto::limits::ARTIFACTS_BYTES;
use clawnode_tool::archive::artifacts::{self, ArchivedFiles};
use tracing::debug;

use crate::sandbox::spec::User;

/// Where the file is in the sandbox.
pub(super) const OUTLET: &str = "/artifacts.tar";
/// What the shell is and what it needs, of a path that must be shown.
const PROGRAMS: (&str, [&str; 3]) = ("/usr", ["/usr/bin/sh", "/usr/bin/tar", "/usr/bin/prlimit"]);
/// What the name of such a file begins with; an id of its own follows.
const PREFIX: &str = "clawnode-";
/// What it ends with.
const SUFFIX: &str = ".tar";
/// After how long an outlet is abandoned: longer than any command may run.
const LEFT: Duration = Duration::from_hours(2);
/// What an archive has beside the files in it (1 MiB).
const TAR_BYTES: usize = 1 << 20;
/// Runs the command that follows, as a program and never as a word of the shell, with its own
/// standard error and its own way to end on SIGTERM; then hands out the files that it left. The
/// shell's own report of how it ended must not be seen: the parentheses keep it off the command's
/// errors.
const SCRIPT: &str = "trap : TERM; exec 3>&2 2>/dev/null; \
    (exec /usr/bin/prlimit --core=0 -- \"$@\" 2>&3 3>&-); code=$?; \
    /usr/bin/tar -c -f /artifacts.tar -C /artifacts . 3>&-; exit $code";

/// A file of this host that a sandbox writes into; gone when it is dropped.
#[derive(Debug)]
pub(super) struct Outlet {
    file: File,
    path: PathBuf,
}

/// Whether a sandbox that sees these paths has what it takes.
pub(super) fn is_possible(shown: &[PathBuf]) -> bool {
    let (path, programs) = PROGRAMS;
    shown.iter().any(|other| other == Path::new(path))
        && programs.iter().all(|program| Path::new(program).is_file())
}

/// What runs a command so that its files are handed out; the command follows.
pub(super) const fn wrapper() -> [&'static str; 4] {
    [PROGRAMS.1[0], "-c", SCRIPT, "sh"]
}

/// Removes what processes that were killed have left here.
pub(super) fn sweep() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let ours = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX));
        let is_ours = ours.is_some_and(|id| id.parse::<ulid::Ulid>().is_ok());
        let age = entry.metadata().ok().and_then(|about| about.modified().ok()?.elapsed().ok());
        if is_ours
            && age.is_some_and(|age| age > LEFT)
            && let Err(error) = fs::remove_file(entry.path())
        {
            debug!(%error, "a file that a sandbox wrote into stays");
        }
    }
}

// === impl Outlet ===

impl Outlet {
    /// A new one, for a command of `user` if this process can give it to that.
    pub(super) fn make(user: User, is_root: bool) -> io::Result<Self> {
        let name = format!("{PREFIX}{}{SUFFIX}", ulid::Ulid::generate());
        let path = std::env::temp_dir().join(name);
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        let made = Self { file, path };
        if is_root {
            fchown(&made.file, Some(user.uid()), Some(user.gid()))?;
        }
        Ok(made)
    }

    /// Where it is on this host.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What was handed out, once nothing writes into it any more.
    pub(super) fn read(mut self) -> ArchivedFiles {
        let most = ARTIFACTS_BYTES + TAR_BYTES;
        let mut tar = Vec::new();
        let read = self.file.rewind().and_then(|()| {
            // One more byte shows whether there are more.
            self.file.by_ref().take(most as u64 + 1).read_to_end(&mut tar)
        });
        if let Err(error) = read {
            return ArchivedFiles {
                left_out: vec![format!("all: {error}")],
                ..ArchivedFiles::default()
            };
        }
        let is_cut = tar.len() > most;
        tar.truncate(most);
        artifacts::read(&tar.into(), is_cut)
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            debug!(%error, "a file that a sandbox wrote into is left behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::FileTimes, time::SystemTime};

    use super::*;

    #[test]
    fn what_the_dead_have_left_is_removed_and_nothing_else() {
        let old = Outlet::make(User::nobody(), false).unwrap();
        let new = Outlet::make(User::nobody(), false).unwrap();
        let other = tempfile::Builder::new().prefix(PREFIX).suffix(SUFFIX).tempfile().unwrap();
        for file in [&old.file, other.as_file()] {
            let long_ago = SystemTime::UNIX_EPOCH + LEFT;
            file.set_times(FileTimes::new().set_modified(long_ago)).unwrap();
        }
        sweep();
        assert!(!old.path.exists() && new.path.exists() && other.path().exists());
    }
}
