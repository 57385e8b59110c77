//! A model in the process of the node: a vector for each token, and a text has the mean of those of its tokens.
//!
//! Such models are distilled from larger ones (model2vec, `potion`). One of 16 MB takes 0.05 ms for a passage, and
//! nothing leaves the process.

use std::{fmt, path::Path, sync::Arc};

use async_trait::async_trait;

use super::{
    embedder::{EmbedFault, TextEmbedder},
    model_files::{
        ModelFileError, TOKENIZER, TOKENIZER_BYTES, WEIGHTS, WEIGHTS_BYTES, name, read, unfit,
    },
    vector_table::VectorTable,
    word_pieces::WordPieces,
};

/// What the name of a model begins with.
const NAME: &str = "static/";
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

// === impl StaticModel ===

impl fmt::Debug for StaticModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaticModel").field("name", &self.name).finish_non_exhaustive()
    }
}

impl StaticModel {
    /// Reads `tokenizer.json` and `model.safetensors` of this folder; blocks. The model is named after what is in them, so
    /// processes with the same files have the same model, wherever their folders are.
    pub fn open(folder: &Path) -> Result<Self, ModelFileError> {
        let path = folder.join(TOKENIZER);
        let tokenizer = read(&path, TOKENIZER_BYTES)?;
        let pieces = WordPieces::read(&tokenizer).map_err(|what| unfit(&path, what))?;
        let path = folder.join(WEIGHTS);
        let bytes = read(&path, WEIGHTS_BYTES)?;
        let name = name(NAME, &[FORM, &tokenizer, &bytes]);
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

#[cfg(test)]
mod tests {
    use std::{fs, io};

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
        fs::write(folder.path().join(WEIGHTS), table)?;
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
        fs::remove_file(folder.path().join(WEIGHTS)).unwrap();
        let why = StaticModel::open(folder.path()).unwrap_err();
        let why = ErrorChain(&why).to_string();
        assert!(why.contains("model.safetensors") && why.contains("No such file"), "{why}");
        fs::create_dir(folder.path().join(WEIGHTS)).unwrap();
        let why = StaticModel::open(folder.path()).unwrap_err().to_string();
        assert!(why.contains("it is no file"), "{why}");
    }
}
