//! `file_read`.

use std::io::{Read, Seek, SeekFrom};

use clawnode_tool::workspace_path::WorkspacePath;
use clawnode_tool::{append::append, egress::whole_characters};

use super::{WorkspaceError, agent_directory::AgentDirectory};

/// Bytes that one call reads (256 KiB): what is kept of a result in place.
pub(super) const READ_BYTES: u64 = 256 << 10;
/// How far a zero byte is looked for.
const SNIFFED: usize = 8 << 10;

/// A part of a file, followed by what a reader needs to continue.
pub(super) fn read(
    place: &AgentDirectory,
    path: &WorkspacePath,
    offset: u64,
    limit: u64,
) -> Result<String, WorkspaceError> {
    let failed = |error| WorkspaceError::of(path.given(), error);
    let (mut file, bytes) = place.open_file(path)?;
    if offset > bytes || offset == bytes && bytes > 0 {
        let path = path.given().to_owned();
        return Err(WorkspaceError::Beyond { path, bytes, offset });
    }
    file.seek(SeekFrom::Start(offset)).map_err(failed)?;
    let mut part = Vec::new();
    file.take(limit.min(READ_BYTES)).read_to_end(&mut part).map_err(failed)?;
    if part.iter().take(SNIFFED).any(|byte| *byte == 0) {
        return Err(WorkspaceError::Binary { path: path.given().to_owned(), bytes });
    }
    let read = part.len() as u64;
    let is_last = offset + read >= bytes;
    // The rest of a character at the end comes with the next part, unless it never ends.
    let whole = if is_last { part.as_slice() } else { whole_characters(&part) };
    let whole = if whole.is_empty() { part.as_slice() } else { whole };
    let end = offset + whole.len() as u64;
    let text = String::from_utf8_lossy(whole);
    let mut text = match text {
        std::borrow::Cow::Borrowed(text) => text.to_owned(),
        std::borrow::Cow::Owned(text) => {
            format!("{text}\n[some bytes are not valid UTF-8; they are shown as \u{fffd}]")
        }
    };
    if offset > 0 || !is_last {
        let rest = if is_last { String::new() } else { format!("; go on at offset {end}") };
        append(&mut text, format_args!("\n[bytes {offset} to {end} of {bytes}{rest}]"));
    }
    Ok(text)
}
