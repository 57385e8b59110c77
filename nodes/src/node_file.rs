//! Where a node is: the file `node.json` in its data directory. The node writes it, commands on the same machine read it.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use clawnode_proto::ProcessId;
use serde::{Deserialize, Serialize};

/// The file with the node's address.
const NODE_FILE: &str = "node.json";
/// The socket file for commands on the same machine.
pub const SOCKET_FILE: &str = "gateway.sock";

/// A file that leads to the node cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use `{}`: {detail}", path.display())]
pub struct LocalFileError {
    pub path: PathBuf,
    pub detail: String,
}

/// Where a node is, as it says itself once it serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFile {
    /// Its address: `http://127.0.0.1:3100`.
    pub url: String,
    /// The socket file on which it hears commands of this machine besides, if it has one.
    #[serde(default)]
    pub socket: Option<PathBuf>,
    /// Its process at the operating system.
    pub pid: u32,
    /// Its process id in the cluster.
    pub process: ProcessId,
}

// === impl NodeFile ===

impl NodeFile {
    /// Says in `data_dir` where the node is; replaces what an earlier one said, in one step.
    pub fn write(&self, data_dir: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        let temporary = data_dir.join(format!("{NODE_FILE}.{}", self.pid));
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(&text)?;
        drop(file);
        fs::rename(temporary, data_dir.join(NODE_FILE))
    }

    /// What the last node on `data_dir` said; it may be gone.
    pub fn read(data_dir: &Path) -> Result<Option<Self>, LocalFileError> {
        let path = data_dir.join(NODE_FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(LocalFileError::new(path, &error)),
        };
        match serde_json::from_slice(&text) {
            Ok(file) => Ok(Some(file)),
            Err(error) => Err(LocalFileError::new(path, &error)),
        }
    }

    /// Takes it back when the node stops, unless another node has said something since.
    pub fn remove(&self, data_dir: &Path) -> io::Result<()> {
        match Self::read(data_dir) {
            Ok(Some(there)) if there.process == self.process => {
                fs::remove_file(data_dir.join(NODE_FILE))
            }
            _ => Ok(()),
        }
    }
}

// === impl LocalFileError ===

impl LocalFileError {
    pub(crate) fn new(path: PathBuf, why: &dyn std::fmt::Display) -> Self {
        Self { path, detail: why.to_string() }
    }
}

pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_takes_back_only_its_own_word() {
        let dir = tempfile::tempdir().unwrap();
        let file = |process| NodeFile {
            socket: None,
            url: "http://127.0.0.1:1".to_owned(),
            pid: 1,
            process: ProcessId::from_u128(process),
        };
        assert_eq!(NodeFile::read(dir.path()).unwrap(), None);
        file(1).write(dir.path()).unwrap();
        file(2).write(dir.path()).unwrap();
        file(1).remove(dir.path()).unwrap();
        assert_eq!(NodeFile::read(dir.path()).unwrap(), Some(file(2)));
        file(2).remove(dir.path()).unwrap();
        assert_eq!(NodeFile::read(dir.path()).unwrap(), None);
    }
}
