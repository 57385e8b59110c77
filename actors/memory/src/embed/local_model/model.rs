//! A model of three files: texts are cut into tokens, go through the encoder a few at a time, and have vectors of length 1.

use std::{fmt, path::Path, sync::Arc};

use async_trait::async_trait;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{JoinError, spawn_blocking},
};
use tracing::warn;

use super::{bert::Bert, bert_config::BertConfig};
use crate::embed::{
    embedder::{EmbedFault, TextEmbedder},
    model_files::{
        ModelFileError, TOKENIZER, TOKENIZER_BYTES, WEIGHTS, WEIGHTS_BYTES, name, read, unfit,
    },
    word_pieces::WordPieces,
};

/// The file that says what shape the model has.
const CONFIG: &str = "config.json";
const CONFIG_BYTES: u64 = 1 << 20;
/// What the name of a model begins with.
const NAME: &str = "local/";
/// How vectors are made of the files. Another way has other vectors.
const FORM: &[u8] = b"bert, mean of 512 tokens, 1";
/// Tokens of a text that are read, its beginning and its end included, if the model takes as many: some 380 words. Attention
/// takes the square of them.
pub(super) const TEXT_TOKENS: usize = 512;
/// Tokens that go through the model at once, with padding: as many short texts, or one of the longest.
pub(super) const PASS_TOKENS: usize = 512;
/// What goes through the model at the same time: a batch goes pass by pass, and leaves a place for a query, which a turn waits for.
const PASSES: usize = 2;
/// Calls that are served or wait. More than the queries that are made at once, and the batch of the store.
pub(super) const CALLS: usize = 32;
/// What is wrong with vectors that cannot be compared.
const NO_DIRECTION: &str = "its numbers have no direction; copy the files of the model again";
/// What texts begin and end with.
const BEGIN: &str = "[CLS]";
const END: &str = "[SEP]";

/// A sentence encoder. Its clones are one model.
#[derive(Clone)]
pub struct LocalModel {
    parts: Arc<LocalParts>,
    calls: Arc<Semaphore>,
    passes: Arc<Semaphore>,
    name: String,
}

struct LocalParts {
    pieces: WordPieces,
    bert: Bert,
    begin: u32,
    end: u32,
}

/// The tokens of a text, and where its vector belongs.
#[derive(Debug)]
struct EncodedText {
    place: usize,
    tokens: Vec<u32>,
}

/// Where a vector belongs, and the vector, if its text has one.
type PlacedVector = (usize, Option<Vec<f32>>);

// === impl LocalModel ===

impl fmt::Debug for LocalModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalModel").field("name", &self.name).finish_non_exhaustive()
    }
}

impl LocalModel {
    /// Reads `config.json`, `tokenizer.json` and `model.safetensors` of this folder; blocks. The model is named after what is in
    /// them, so processes with the same files have the same model, wherever their folders are.
    pub fn open(folder: &Path) -> Result<Self, ModelFileError> {
        let path = folder.join(CONFIG);
        let shape = read(&path, CONFIG_BYTES)?;
        let config = BertConfig::read(&shape).map_err(|what| unfit(&path, what))?;
        let path = folder.join(TOKENIZER);
        let tokenizer = read(&path, TOKENIZER_BYTES)?;
        let pieces = WordPieces::read(&tokenizer).map_err(|what| unfit(&path, what))?;
        if pieces.largest() >= config.vocab_size {
            let what = format!(
                "it has a token {}, and `{CONFIG}` beside it says that there are {}; both files have to be of one model",
                pieces.largest(),
                config.vocab_size
            );
            return Err(unfit(&path, what));
        }
        let special = |name: &str| {
            let token = pieces.token(name).and_then(|token| u32::try_from(token).ok());
            let what =
                || format!("it has no token `{name}`; choose a model with a tokenizer of BERT");
            token.ok_or_else(|| unfit(&path, what()))
        };
        let (begin, end) = (special(BEGIN)?, special(END)?);
        let path = folder.join(WEIGHTS);
        let bytes = read(&path, WEIGHTS_BYTES)?;
        let name = name(NAME, &[FORM, &shape, &tokenizer, &bytes]);
        let bert = Bert::read(config, &bytes).map_err(|what| unfit(&path, what))?;
        let parts = LocalParts { pieces, bert, begin, end };
        parts.try_longest().map_err(|what| unfit(&path, what))?;
        Ok(Self {
            parts: Arc::new(parts),
            calls: Arc::new(Semaphore::new(CALLS)),
            passes: Arc::new(Semaphore::new(PASSES)),
            name,
        })
    }

    /// Numbers of a vector.
    pub fn dimensions(&self) -> usize {
        self.parts.bert.config().hidden_size
    }

    /// How many tokens it knows.
    pub fn tokens(&self) -> usize {
        self.parts.pieces.count()
    }

    async fn pass(&self, texts: Vec<EncodedText>) -> Result<Vec<PlacedVector>, EmbedFault> {
        let (parts, place) = (Arc::clone(&self.parts), Arc::clone(&self.passes));
        let place: OwnedSemaphorePermit =
            place.acquire_owned().await.map_err(|closed| EmbedFault::Failed(closed.to_string()))?;
        let run = move || {
            // Also if nothing waits for the vectors any more: a pass that has begun takes the processor.
            let _place = place;
            parts.vectors(texts)
        };
        spawn_blocking(run).await.map_err(|failure| ended(&failure))?
    }
}

#[async_trait]
impl TextEmbedder for LocalModel {
    fn model(&self) -> &str {
        &self.name
    }

    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbedFault> {
        let Ok(_call) = self.calls.try_acquire() else {
            return Err(EmbedFault::Failed(format!("{CALLS} calls wait for it already")));
        };
        let mut vectors = vec![vec![0.0; self.dimensions()]; texts.len()];
        let parts = Arc::clone(&self.parts);
        let passes = spawn_blocking(move || passes(parts.encoded(&texts)))
            .await
            .map_err(|failure| ended(&failure))?;
        let (mut usable, mut lost) = (0_usize, 0_usize);
        for texts in passes {
            for (place, made) in self.pass(texts).await? {
                match (vectors.get_mut(place), made) {
                    (Some(vector), Some(made)) => {
                        *vector = made;
                        usable += 1;
                    }
                    // Its vector stays 0, which is near nothing: the texts after it must not wait for it.
                    _ => lost += 1,
                }
            }
        }
        // One text alone says nothing of the model, which has made a vector when it was read.
        if usable == 0 && lost > 1 {
            return Err(EmbedFault::Failed(NO_DIRECTION.to_owned()));
        }
        if lost > 0 {
            warn!(
                model = self.name,
                texts = lost,
                "texts without a direction are found by words alone"
            );
        }
        Ok(vectors)
    }
}

fn ended(failure: &JoinError) -> EmbedFault {
    EmbedFault::Failed(failure.to_string())
}

/// What goes through the model together: texts of about one length, because all are padded to that of the longest.
fn passes(mut texts: Vec<EncodedText>) -> Vec<Vec<EncodedText>> {
    texts.sort_by_key(|text| text.tokens.len());
    let mut passes: Vec<Vec<EncodedText>> = Vec::new();
    for text in texts {
        match passes.last_mut() {
            Some(pass) if (pass.len() + 1) * text.tokens.len() <= PASS_TOKENS => pass.push(text),
            _ => passes.push(vec![text]),
        }
    }
    passes
}

// === impl LocalParts ===

impl LocalParts {
    /// Tokens of a text that are read, its beginning and its end included.
    fn most_tokens(&self) -> usize {
        self.bert.config().max_position_embeddings.min(TEXT_TOKENS)
    }

    /// Makes the largest pass: what goes wrong with it shows when a node starts, and not while it serves.
    fn try_longest(&self) -> Result<(), String> {
        let sums = self.bert.sums(&[vec![self.begin; self.most_tokens()]])?;
        let is_usable = sums.iter().flatten().all(|number| number.is_finite());
        if is_usable { Ok(()) } else { Err(NO_DIRECTION.to_owned()) }
    }

    /// The texts that have tokens. The vector of the others is 0, which is near nothing.
    fn encoded(&self, texts: &[String]) -> Vec<EncodedText> {
        let most = self.most_tokens();
        let mut encoded = Vec::new();
        for (place, text) in texts.iter().enumerate() {
            // Two of them are the beginning and the end.
            let words = self.pieces.first_tokens(text, most.saturating_sub(2));
            if words.is_empty() {
                continue;
            }
            let words = words.into_iter().filter_map(|token| u32::try_from(token).ok());
            let tokens = [self.begin].into_iter().chain(words).chain([self.end]).collect();
            encoded.push(EncodedText { place, tokens });
        }
        encoded
    }

    /// The vectors of these texts with their places; none for a text whose numbers have no direction.
    fn vectors(&self, texts: Vec<EncodedText>) -> Result<Vec<PlacedVector>, EmbedFault> {
        let (places, tokens): (Vec<usize>, Vec<Vec<u32>>) =
            texts.into_iter().map(|text| (text.place, text.tokens)).unzip();
        let sums = self.bert.sums(&tokens).map_err(EmbedFault::Failed)?;
        Ok(places.into_iter().zip(sums.into_iter().map(of_length_one)).collect())
    }
}

/// The vector in this direction; none if it has no direction.
fn of_length_one(mut sum: Vec<f32>) -> Option<Vec<f32>> {
    // As long as the mean makes it, because the length is made 1.
    let length = sum.iter().map(|number| number * number).sum::<f32>().sqrt();
    if !length.is_finite() || length <= 0.0 {
        return None;
    }
    for number in &mut sum {
        *number /= length;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embed::local_model::model_tests::TinyModel;

    fn cut(lengths: &[usize]) -> Vec<Vec<usize>> {
        let texts = lengths.iter().enumerate();
        let texts = texts.map(|(place, length)| EncodedText { place, tokens: vec![1; *length] });
        let passes = passes(texts.collect());
        passes.iter().map(|pass| pass.iter().map(|text| text.place).collect()).collect()
    }

    #[test]
    fn a_pass_has_a_bound_and_texts_of_about_one_length() {
        assert_eq!(cut(&[]), Vec::<Vec<usize>>::new());
        assert_eq!(cut(&[300, 4, 256, 3]), [vec![3, 1], vec![2], vec![0]]);
        // Two of 256 fill it.
        assert_eq!(cut(&[256, 256, 256]), [vec![0, 1], vec![2]]);
        assert_eq!(cut(&[512, 512]), [[0], [1]]);
        let short = cut(&[16; 96]);
        assert_eq!(short.iter().map(Vec::len).collect::<Vec<_>>(), [32, 32, 32]);
    }

    #[tokio::test]
    async fn calls_wait_for_a_pass_and_too_many_are_refused() {
        let model = LocalModel::open(TinyModel::default().folder().unwrap().path()).unwrap();
        let running = model.passes.acquire_many(2).await.unwrap();
        let waits = model.embed(vec!["tea".to_owned()]);
        tokio::pin!(waits);
        assert!(futures_util::poll!(&mut waits).is_pending());
        let rest = u32::try_from(CALLS - 1).unwrap();
        let others = model.calls.try_acquire_many(rest).unwrap();
        let refused = model.embed(vec!["tea".to_owned()]).await.unwrap_err();
        assert!(
            matches!(&refused, EmbedFault::Failed(why) if why.contains("32 calls")),
            "{refused}"
        );
        drop((running, others));
        assert_eq!(waits.await.unwrap().len(), 1);
        assert_eq!(model.embed(vec!["tea".to_owned()]).await.unwrap().len(), 1);
    }
}
