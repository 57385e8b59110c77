//! Where things are, and what is given back at the end.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
};

use crate::report::say;

/// The paths of one run.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// The root of the repository.
    pub(crate) root: PathBuf,
    /// What this command installs.
    pub(crate) tools: PathBuf,
    /// The folder with the built binaries.
    pub(crate) bin: PathBuf,
    /// `TMPDIR` of everything that the tests start; removed at the end.
    pub(crate) temp: PathBuf,
}

// === impl Workspace ===

impl Workspace {
    pub(crate) fn enter() -> Result<Self, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let root = root
            .canonicalize()
            .map_err(|error| format!("cannot find the workspace `{}`: {error}", root.display()))?;
        let exe = std::env::current_exe()
            .map_err(|error| format!("cannot tell where the built binaries are: {error}"))?;
        let bin = exe.parent().unwrap_or(&root).to_owned();
        let all = std::env::temp_dir().join("clawnode-xtest");
        remove_leftovers(&all);
        let temp = all.join(process::id().to_string());
        fs::create_dir_all(&temp)
            .map_err(|error| format!("cannot create `{}`: {error}", temp.display()))?;
        Ok(Self { tools: root.join(".tools"), bin, temp, root })
    }

    /// Removes what the tests left in temporary files, also when they were killed.
    pub(crate) fn clean(&self) {
        if let Err(error) = fs::remove_dir_all(&self.temp) {
            say(&format!("warning: cannot remove `{}`: {error}", self.temp.display()));
        }
    }
}

/// Folders of runs that were interrupted: their process is gone.
fn remove_leftovers(all: &Path) {
    let Ok(entries) = fs::read_dir(all) else { return };
    for entry in entries.flatten() {
        let alive = Path::new("/proc").join(entry.file_name()).exists();
        if !alive && let Err(error) = fs::remove_dir_all(entry.path()) {
            say(&format!("warning: cannot remove `{}`: {error}", entry.path().display()));
        }
    }
}
