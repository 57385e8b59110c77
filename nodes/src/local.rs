//! What a node and its commands share on one machine: the two files by which commands find it,
//! `node.json` (where it is) and `token` (mode 0600), and a text that is never shown. The node writes
//! the files, commands read them.

use std::{
    fmt,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use clawnode_proto::ProcessId;
use rand::TryRngCore;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The file with the node's address.
const NODE_FILE: &str = "node.json";
/// The socket file for commands on the same machine.
pub const SOCKET_FILE: &str = "gateway.sock";
/// The file with the token.
pub const TOKEN_FILE: &str = "token";
/// Bytes of chance in a token: 256 bits.
const TOKEN_BYTES: usize = 32;
/// Longest token that is read; more is not a token but a wrong file.
const TOKEN_MOST: usize = 4_096;

/// The text that replaces a secret.
pub const REDACTED: &str = "[redacted]";

/// A text that is never shown; only [`Secret::expose`] gives it.
#[derive(Clone)]
pub struct Secret(SecretString);

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

// === impl Secret ===

impl Secret {
    /// Keeps `text` from being shown.
    pub fn new(text: String) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.expose() == other.expose()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(REDACTED)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
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
            Err(error) => return Err(local(path, &error)),
        };
        match serde_json::from_slice(&text) {
            Ok(file) => Ok(Some(file)),
            Err(error) => Err(local(path, &error)),
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

// === the token ===

/// The token of the node on `data_dir`, if it has one.
pub fn read_token(path: &Path) -> Result<Option<Secret>, LocalFileError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(local(path.to_owned(), &error)),
    };
    let token = text.trim();
    let fits = !token.is_empty()
        && token.len() <= TOKEN_MOST
        && token.bytes().all(|byte| byte.is_ascii_graphic());
    if fits {
        Ok(Some(Secret::new(token.to_owned())))
    } else {
        Err(local(path.to_owned(), &"it is not a token: one line of visible ASCII"))
    }
}

/// The token of `data_dir`; made at first, readable by its owner only.
pub fn ensure_token(data_dir: &Path) -> Result<Secret, LocalFileError> {
    let path = data_dir.join(TOKEN_FILE);
    if let Some(token) = read_token(&path)? {
        return Ok(token);
    }
    let mut bytes = [0; TOKEN_BYTES];
    rand::rngs::OsRng.try_fill_bytes(&mut bytes).map_err(|error| local(path.clone(), &error))?;
    // A hash of chance is chance, and it has a hexadecimal form.
    let text = blake3::hash(&bytes).to_hex().to_string();
    // `create_new`: of two nodes that start at once, one makes the token and the other fails.
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).and_then(
        |mut file| {
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()
        },
    );
    match made {
        Ok(()) => Ok(Secret::new(text)),
        Err(error) => Err(local(path, &error)),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn local(path: PathBuf, why: &dyn std::fmt::Display) -> LocalFileError {
    LocalFileError { path, detail: why.to_string() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_made_once_and_only_its_owner_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(TOKEN_FILE);
        assert!(read_token(&path).unwrap().is_none());
        let made = ensure_token(dir.path()).unwrap();
        assert_eq!(made.expose().len(), 2 * TOKEN_BYTES);
        assert_eq!(ensure_token(dir.path()).unwrap(), made);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, "two\nlines").unwrap();
        assert!(matches!(read_token(&path), Err(LocalFileError { .. })));
    }

    #[test]
    fn a_secret_is_never_shown() {
        let secret = Secret::new("sk-hunter2".to_owned());
        let shown = format!("{secret:?} {}", serde_json::to_string(&secret).unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
        assert_eq!(secret.expose(), "sk-hunter2");
    }

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
