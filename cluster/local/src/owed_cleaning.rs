//! A note that removed records are to leave the disk: the process may end before it has cleaned its log.

use std::{io, path::Path};

use tracing::debug;

use super::disk::{RealDisk, write_whole};

/// The file is there while a cleaning is owed.
const FILE: &str = "cleaning";

/// Whether a cleaning is owed in this directory.
pub(super) fn is_owed(dir: &Path) -> bool {
    dir.join(FILE).exists()
}

/// Notes durably that one is.
pub(super) fn owe(dir: &Path) -> io::Result<()> {
    if is_owed(dir) { Ok(()) } else { write_whole(&RealDisk, &dir.join(FILE), b"") }
}

/// The log is clean. If the note stays, the next start cleans once more.
pub(super) fn settle(dir: &Path) {
    if is_owed(dir)
        && let Err(error) = std::fs::remove_file(dir.join(FILE))
    {
        debug!(%error, "the note of a cleaning stays");
    }
}
