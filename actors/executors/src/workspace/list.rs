//! `file_list`.

use std::ops::ControlFlow;

use clawnode_tool::workspace_path::WorkspacePath;

use super::{
    WorkspaceError,
    agent_directory::AgentDirectory,
    walk::{FileKind, Walk},
};

/// Entries that one call lists.
const LISTED: usize = 1_000;
/// How deep one call may look.
pub(super) const DEPTH: usize = 16;

/// What is in a directory, a line each; `depth` 1 is the directory alone.
pub(super) fn list(
    place: &AgentDirectory,
    path: &WorkspacePath,
    depth: usize,
) -> Result<String, WorkspaceError> {
    let dir = place.open_dir(path)?;
    let (mut lines, mut more) = (Vec::new(), false);
    let mut walk = Walk::new(depth.clamp(1, DEPTH) - 1);
    walk.run(&dir, path.given(), &mut |entry| {
        if lines.len() == LISTED {
            more = true;
            return ControlFlow::Break(());
        }
        lines.push(match entry.kind {
            FileKind::Directory => format!("{}/", entry.path),
            FileKind::Link => format!("{}  (symbolic link)", entry.path),
            FileKind::Special => format!("{}  (not a regular file)", entry.path),
            FileKind::File => match entry.dir.symlink_metadata(&entry.name) {
                Ok(metadata) => format!("{}  {} bytes", entry.path, metadata.len()),
                Err(_gone) => entry.path.clone(),
            },
        });
        ControlFlow::Continue(())
    })?;
    if lines.is_empty() {
        lines.push("[empty]".to_owned());
    }
    if more || walk.is_cut {
        lines.push(format!("[cut: only {} entries are listed]", lines.len()));
    }
    if walk.unreadable > 0 {
        lines.push(format!("[{} directories could not be read]", walk.unreadable));
    }
    Ok(lines.join("\n"))
}
