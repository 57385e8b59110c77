//! The token of a node's API: the file `token` in its data directory (mode 0600). The node makes it, and commands on the same
//! machine read it.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rand::TryRngCore;

use crate::{
    node_file::{LocalFileError, is_absent},
    secret::Secret,
};

/// The file with the token.
pub const TOKEN_FILE: &str = "token";
/// Bytes of chance in a token: 256 bits.
const TOKEN_BYTES: usize = 32;
/// Longest token that is read; more is not a token but a wrong file.
const TOKEN_MOST: usize = 4_096;

/// The token of the node on `data_dir`, if it has one.
pub fn read_token(path: &Path) -> Result<Option<Secret>, LocalFileError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(LocalFileError::new(path.to_owned(), &error)),
    };
    let token = text.trim();
    let fits = !token.is_empty()
        && token.len() <= TOKEN_MOST
        && token.bytes().all(|byte| byte.is_ascii_graphic());
    if fits {
        Ok(Some(Secret::new(token.to_owned())))
    } else {
        Err(LocalFileError::new(path.to_owned(), &"it is not a token: one line of visible ASCII"))
    }
}

/// The token of `data_dir`; made at first, readable by its owner only.
pub fn ensure_token(data_dir: &Path) -> Result<Secret, LocalFileError> {
    let path = data_dir.join(TOKEN_FILE);
    if let Some(token) = read_token(&path)? {
        return Ok(token);
    }
    let mut bytes = [0; TOKEN_BYTES];
    rand::rngs::OsRng
        .try_fill_bytes(&mut bytes)
        .map_err(|error| LocalFileError::new(path.clone(), &error))?;
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
        Err(error) => Err(LocalFileError::new(path, &error)),
    }
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
}
