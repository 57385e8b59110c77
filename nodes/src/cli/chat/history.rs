//! What was said at this machine's terminal, for the arrow keys: a file of its user's own, a text a
//! line, as JSON.

use std::{
    io::{self, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use clawnode_proto::SessionKey;

use crate::files;

/// Texts that are kept.
const MOST: usize = 1_000;
/// Bytes of a text that is kept; a longer one is forgotten with its chat.
const TEXT_BYTES: usize = 16 << 10;
/// Bytes of the file that are read; what is before them is forgotten.
const FILE_BYTES: u64 = 4 << 20;

/// The file.
#[derive(Debug)]
pub(super) struct History {
    path: Option<PathBuf>,
}

/// The session of the last message that was stored, for `--continue`: a session's own time of change
/// is that of its last event, and a node that ends writes one to each.
#[derive(Debug)]
pub(super) struct Last {
    path: Option<PathBuf>,
}

// === impl Last ===

impl Last {
    /// In `folder`; without one nothing is kept.
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Self { path: folder.map(|folder| folder.join("chat_last")) }
    }

    pub(super) fn read(&self) -> Option<SessionKey> {
        std::fs::read_to_string(self.path.as_ref()?).ok()?.trim().parse().ok()
    }

    pub(super) fn write(&self, key: &SessionKey) {
        let Some(path) = &self.path else { return };
        let written = make_folder(path).and_then(|()| replace(path, &format!("{key}\n")));
        if let Err(error) = written {
            tracing::debug!(%error, "cannot save the last conversation");
        }
    }
}

// === impl History ===

impl History {
    /// In `folder`; without one nothing is kept.
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Self { path: folder.map(|folder| folder.join("chat_history")) }
    }

    /// The texts, the oldest first. What cannot be read is not there.
    pub(super) fn read(&self) -> Vec<String> {
        let Some(path) = &self.path else { return Vec::new() };
        let text = match read_end(path) {
            Ok(text) => text,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::debug!(%error, "cannot read the chat's history");
                }
                return Vec::new();
            }
        };
        let all: Vec<String> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if all.len() <= MOST {
            return all;
        }
        let kept = all.get(all.len() - MOST / 2..).unwrap_or_default().to_vec();
        let lines: String = kept.iter().map(|kept| line(kept)).collect();
        if let Err(error) = replace(path, &lines) {
            tracing::debug!(%error, "cannot shorten the chat's history");
        }
        kept
    }

    /// Adds a text. One that begins with a space is not kept, as shells have it.
    pub(super) fn add(&self, text: &str) {
        let Some(path) = &self.path else { return };
        if text.len() > TEXT_BYTES || text.starts_with(' ') {
            return;
        }
        if let Err(error) = append(path, text) {
            tracing::debug!(%error, "cannot write the chat's history");
        }
    }
}

fn read_end(path: &Path) -> io::Result<String> {
    use std::io::Seek;
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(io::SeekFrom::Start(length.saturating_sub(FILE_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn line(text: &str) -> String {
    format!("{}\n", serde_json::Value::from(text))
}

fn append(path: &Path, text: &str) -> io::Result<()> {
    make_folder(path)?;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.append(true).create(true).mode(files::PRIVATE).open(path)?;
    // It may have been made readable by others.
    file.set_permissions(std::fs::Permissions::from_mode(files::PRIVATE))?;
    file.write_all(line(text).as_bytes())
}

fn make_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), files::directory)
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    files::replace(path, text, files::PRIVATE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_kept_for_their_user_alone_and_not_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("state");
        let history = History::new(Some(folder.clone()));
        assert_eq!(history.read(), Vec::<String>::new());
        history.add("one\ntwo \u{1b}");
        history.add(" secret");
        history.add(&"x".repeat(TEXT_BYTES + 1));
        assert_eq!(history.read(), ["one\ntwo \u{1b}"]);
        let mode = std::fs::metadata(folder.join("chat_history")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for n in 0..=MOST {
            history.add(&n.to_string());
        }
        assert_eq!(history.read().len(), MOST / 2);
        assert_eq!(history.read().last().unwrap(), &MOST.to_string());
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        let last = Last::new(Some(folder));
        assert_eq!(last.read(), None);
        let key: SessionKey = "default:cli:local:ada".parse().unwrap();
        last.write(&key);
        assert_eq!(last.read(), Some(key));
    }
}
