//! A model in the process of the node: a vector for each token, and a text has the mean of those of its tokens.
//!
//! Such models are distilled from larger ones (model2vec, `potion`). One of 16 MB takes 0.05 ms for a passage, and
//! nothing leaves the process.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;

use super::{
    embedder::{EmbedFault, TextEmbedder},
    vector_table::VectorTable,
    word_pieces::WordPieces,
};

/// The file that says how a text is cut into tokens.
const TOKENIZER: &str = "tokenizer.json";
/// The file with the vectors.
const TABLE: &str = "model.safetensors";
/// Bytes of each of them.
const TOKENIZER_BYTES: u64 = 32 << 20;
const TABLE_BYTES: u64 = 512 << 20;
/// What the name of a model begins with.
const NAME: &str = "static/";
/// Digits of a digest in the name of a model.
const NAME_DIGITS: usize = 16;
/// How vectors are made of the files. Another way has other vectors.
const FORM: &[u8] = b"mean of word pieces, 1";

/// A model of two files. Its clones are one model.
#[derive(Clone)]
pub struct StaticModel {
    parts: Arc<StaticParts>,
    name: String,
}

struct StaticParts {
    pieces: WordPieces,
    table: VectorTable,
}

/// Why the files of a model cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StaticModelError {
    /// A file cannot be read.
    #[error("cannot read `{}`, a file of the static model", path.display())]
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

// === impl StaticModel ===

impl fmt::Debug for StaticModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaticModel").field("name", &self.name).finish_non_exhaustive()
    }
}

impl StaticModel {
    /// Reads `tokenizer.json` and `model.safetensors` of this folder; blocks. The model is named after what is in them, so
    /// processes with the same files have the same model, wherever their folders are.
    pub fn open(folder: &Path) -> Result<Self, StaticModelError> {
        let path = folder.join(TOKENIZER);
        let tokenizer = read(&path, TOKENIZER_BYTES)?;
        let pieces = WordPieces::read(&tokenizer).map_err(|what| unfit(&path, what))?;
        let path = folder.join(TABLE);
        let bytes = read(&path, TABLE_BYTES)?;
        let name = name(&tokenizer, &bytes);
        let table = VectorTable::read(bytes).map_err(|what| unfit(&path, what))?;
        if pieces.largest() >= table.rows() {
            let what = format!(
                "it has vectors of {} tokens, and `{TOKENIZER}` beside it has a token {}; both files have to be of \
                 one model",
                table.rows(),
                pieces.largest()
            );
            return Err(unfit(&path, what));
        }
        Ok(Self { parts: Arc::new(StaticParts { pieces, table }), name })
    }

    /// Numbers of a vector.
    pub fn dimensions(&self) -> usize {
        self.parts.table.dimensions()
    }

    /// How many tokens it knows.
    pub fn tokens(&self) -> usize {
        self.parts.pieces.count()
    }

    /// The vector of a text, of length 1. If the model knows no token of it, all numbers are 0, which is near nothing.
    pub fn vector(&self, text: &str) -> Vec<f32> {
        let StaticParts { pieces, table } = self.parts.as_ref();
        let mut sum = vec![0.0_f32; table.dimensions()];
        for token in pieces.tokens(text) {
            for (sum, number) in sum.iter_mut().zip(table.row(token)) {
                *sum += number;
            }
        }
        // As long as the mean makes it, because the length is made 1.
        let length = sum.iter().map(|number| number * number).sum::<f32>().sqrt();
        if length.is_finite() && length > 0.0 {
            for number in &mut sum {
                *number /= length;
            }
            sum
        } else {
            vec![0.0; table.dimensions()]
        }
    }
}

#[async_trait]
impl TextEmbedder for StaticModel {
    fn model(&self) -> &str {
        &self.name
    }

    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbedFault> {
        let model = self.clone();
        let make = move || texts.iter().map(|text| model.vector(text)).collect::<Vec<_>>();
        let vectors = tokio::task::spawn_blocking(make).await;
        vectors.map_err(|failure| EmbedFault::Failed(failure.to_string()))
    }
}

fn name(tokenizer: &[u8], table: &[u8]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in [FORM, tokenizer, table] {
        hasher.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
        hasher.update(part);
    }
    let digest: String = hasher.finalize().to_hex().chars().take(NAME_DIGITS).collect();
    format!("{NAME}{digest}")
}

fn unfit(path: &Path, what: String) -> StaticModelError {
    StaticModelError::Unfit { path: path.to_owned(), what }
}

/// Reads a file that may have so many bytes. What is no file, such as a pipe, could be read for ever.
fn read(path: &Path, most: u64) -> Result<Vec<u8>, StaticModelError> {
    let failed = |source| StaticModelError::Io { path: path.to_owned(), source };
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

#[cfg(test)]
mod tests {
    use clawnode_proto::ErrorChain;
    use tempfile::TempDir;

    use super::*;
    use crate::embed::{vector_table::tests::table, word_pieces::tests::tokenizer};

    const TOKENS: [&str; 5] = ["[UNK]", "car", "vehicle", "tea", "##s"];
    const ROWS: [&[f32]; 5] = [&[9.0, 9.0], &[3.0, 0.0], &[2.0, 0.5], &[0.0, 4.0], &[1.0, 0.0]];

    /// A folder with these files.
    fn folder(tokenizer: &[u8], table: &[u8]) -> io::Result<TempDir> {
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join(TOKENIZER), tokenizer)?;
        fs::write(folder.path().join(TABLE), table)?;
        Ok(folder)
    }

    fn toy() -> io::Result<TempDir> {
        folder(tokenizer(&TOKENS).to_string().as_bytes(), &table(&ROWS))
    }

    fn cosine(one: &[f32], other: &[f32]) -> f32 {
        one.iter().zip(other).map(|(one, other)| one * other).sum()
    }

    #[tokio::test]
    async fn a_text_has_the_mean_of_its_tokens() {
        let folder = toy().unwrap();
        let model = StaticModel::open(folder.path()).unwrap();
        assert_eq!((model.dimensions(), model.tokens()), (2, 5));
        // (3, 0) + (0, 4), of length 5; what is not known has no part in it.
        let texts = ["Car & TEA".to_owned(), "unknown".to_owned(), String::new()];
        let made = model.embed(texts.to_vec()).await.unwrap();
        assert_eq!(made, [vec![0.6, 0.8], vec![0.0, 0.0], vec![0.0, 0.0]]);
        let near = cosine(&model.vector("cars"), &model.vector("my vehicle"));
        let far = cosine(&model.vector("cars"), &model.vector("tea"));
        assert!(near > 0.9 && far < 0.1, "{near} {far}");
    }

    #[test]
    fn a_model_is_named_after_what_is_in_its_files() {
        let names = [toy().unwrap(), toy().unwrap()]
            .map(|folder| StaticModel::open(folder.path()).unwrap().model().to_owned());
        assert_eq!(names[0], names[1], "not after its folder");
        assert!(names[0].starts_with("static/"), "{}", names[0]);
        let mut rows = ROWS;
        rows[4] = &[1.0, 0.5];
        let other = folder(tokenizer(&TOKENS).to_string().as_bytes(), &table(&rows)).unwrap();
        assert_ne!(StaticModel::open(other.path()).unwrap().model(), names[0]);
    }

    #[test]
    fn files_that_do_not_fit_are_refused() {
        let (tokens, rows) = (tokenizer(&TOKENS).to_string(), table(&ROWS));
        for (tokens, rows, says) in [
            (tokens.as_bytes(), table(&ROWS[..4]), "a token 4; both files have to be of one model"),
            (tokens.as_bytes(), b"version https://git-lfs.github.com/spec/v1".to_vec(), "header"),
            (&b"{}"[..], rows.clone(), "`normalizer` is none"),
        ] {
            let folder = folder(tokens, &rows).unwrap();
            let why = StaticModel::open(folder.path()).unwrap_err();
            let why = ErrorChain(&why).to_string();
            assert!(
                why.contains(says) && (why.contains(".safetensors") || why.contains(".json")),
                "{why}"
            );
        }
        let folder = toy().unwrap();
        fs::remove_file(folder.path().join(TABLE)).unwrap();
        let why = StaticModel::open(folder.path()).unwrap_err();
        let why = ErrorChain(&why).to_string();
        assert!(why.contains("model.safetensors") && why.contains("No such file"), "{why}");
        fs::create_dir(folder.path().join(TABLE)).unwrap();
        let why = StaticModel::open(folder.path()).unwrap_err().to_string();
        assert!(why.contains("it is no file"), "{why}");
    }
}
