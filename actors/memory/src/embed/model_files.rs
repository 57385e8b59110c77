//! The files of models in the process of a node: they are read whole, up to a bound, and a model is named after them.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

/// The file that says how a text is cut into tokens.
pub(super) const TOKENIZER: &str = "tokenizer.json";
/// The file with the numbers of the model.
pub(super) const WEIGHTS: &str = "model.safetensors";
/// Bytes of each of them at most.
pub(super) const TOKENIZER_BYTES: u64 = 32 << 20;
pub(super) const WEIGHTS_BYTES: u64 = 512 << 20;
/// Digits of a digest in the name of a model.
const NAME_DIGITS: usize = 16;

/// Why the files of a model cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelFileError {
    /// A file cannot be read.
    #[error("cannot read `{}`, a file of the model of embeddings", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        source: io::Error,
    },
    /// A file is of another kind, or damaged.
    #[error("cannot use `{}`: {what}", path.display())]
    Unfit {
        /// Which file.
        path: PathBuf,
        /// What is wrong, and what to do.
        what: String,
    },
}

pub(super) fn unfit(path: &Path, what: String) -> ModelFileError {
    ModelFileError::Unfit { path: path.to_owned(), what }
}

/// Reads a file that may have so many bytes. What is no file, such as a pipe, could be read for ever.
pub(super) fn read(path: &Path, most: u64) -> Result<Vec<u8>, ModelFileError> {
    let failed = |source| ModelFileError::Io { path: path.to_owned(), source };
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(unfit(path, "it is no file".to_owned()));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(failed)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > most {
        let what = format!("it has more than {} MiB; choose a smaller model", most >> 20);
        return Err(unfit(path, what));
    }
    Ok(bytes)
}

/// The name of a model of these parts, the first of which says how vectors are made of the files.
pub(super) fn name(begin: &str, parts: &[&[u8]]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
        hasher.update(part);
    }
    let digest: String = hasher.finalize().to_hex().chars().take(NAME_DIGITS).collect();
    format!("{begin}{digest}")
}
