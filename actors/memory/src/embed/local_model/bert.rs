//! The numbers of a BERT, and what it makes of tokens.

use std::{collections::HashMap, iter::repeat_n};

use candle_core::{DType, Device, Error, Result as Computed, Tensor, safetensors::load_buffer};
use candle_nn::{LayerNorm, Linear, Module as _, ops::softmax_last_dim};

use super::bert_config::BertConfig;

/// What the vectors of tokens are called; those who saved the model with something on top have `bert.` before each name.
const WORDS: &str = "embeddings.word_embeddings.weight";
const PREFIXES: [&str; 2] = ["", "bert."];
/// Added to the score of a token that is padding: after the softmax it has exactly no part in a text.
const UNSEEN: f32 = -1e9;

/// A model of the kind BERT.
pub(super) struct Bert {
    config: BertConfig,
    words: Tensor,
    /// Of the position of a token, and of the first of two texts, which each text is.
    positions: Tensor,
    norm: LayerNorm,
    layers: Vec<BertLayer>,
}

struct BertLayer {
    query: Linear,
    key: Linear,
    value: Linear,
    attended: Linear,
    attended_norm: LayerNorm,
    wide: Linear,
    narrow: Linear,
    norm: LayerNorm,
}

/// The tables of a file, until the model takes them.
struct BertWeights {
    tensors: HashMap<String, Tensor>,
    prefix: &'static str,
}

// === impl Bert ===

impl Bert {
    /// Reads `model.safetensors`; says what is wrong with the file.
    pub(super) fn read(config: BertConfig, bytes: &[u8]) -> Result<Self, String> {
        let mut weights = BertWeights::read(bytes)?;
        let size = config.hidden_size;
        let words = weights.take(WORDS, &[config.vocab_size, size])?;
        let positions = weights.take(
            "embeddings.position_embeddings.weight",
            &[config.max_position_embeddings, size],
        )?;
        let kinds = weights
            .take("embeddings.token_type_embeddings.weight", &[config.type_vocab_size, size])?;
        let positions = kinds.narrow(0, 0, 1).and_then(|first| positions.broadcast_add(&first));
        let norm = weights.norm("embeddings.LayerNorm", &config)?;
        let layers = (0..config.num_hidden_layers)
            .map(|number| BertLayer::read(&config, number, &mut weights))
            .collect::<Result<_, String>>()?;
        let positions = positions.map_err(|failure| first_line(&failure))?;
        Ok(Self { config, words, positions, norm, layers })
    }

    pub(super) fn config(&self) -> &BertConfig {
        &self.config
    }

    /// The sum of the vectors of a text's tokens, for each of these texts.
    pub(super) fn sums(&self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, String> {
        self.computed(texts).map_err(|failure| first_line(&failure))
    }

    fn computed(&self, texts: &[Vec<u32>]) -> Computed<Vec<Vec<f32>>> {
        let longest = texts.iter().map(Vec::len).max().unwrap_or_default();
        let (mut tokens, mut counts, mut unseen) = (Vec::new(), Vec::new(), Vec::new());
        for text in texts {
            let padding = longest - text.len();
            tokens.extend(text.iter().copied().chain(repeat_n(0, padding)));
            counts.extend(repeat_n(1.0_f32, text.len()).chain(repeat_n(0.0, padding)));
            unseen.extend(repeat_n(0.0_f32, text.len()).chain(repeat_n(UNSEEN, padding)));
        }
        let (count, device) = (texts.len(), Device::Cpu);
        let tokens = Tensor::from_vec(tokens, count * longest, &device)?;
        let counts = Tensor::from_vec(counts, (count, longest, 1), &device)?;
        let unseen = Tensor::from_vec(unseen, (count, 1, 1, longest), &device)?;
        let words = self.words.index_select(&tokens, 0)?;
        let words = words.reshape((count, longest, self.config.hidden_size))?;
        let positions = self.positions.narrow(0, 0, longest)?;
        let mut hidden = self.norm.forward(&words.broadcast_add(&positions)?)?;
        for layer in &self.layers {
            hidden = layer.forward(&hidden, &unseen, self.config.num_attention_heads)?;
        }
        hidden.broadcast_mul(&counts)?.sum(1)?.to_vec2()
    }
}

// === impl BertLayer ===

impl BertLayer {
    fn read(config: &BertConfig, number: usize, weights: &mut BertWeights) -> Result<Self, String> {
        let (size, wide) = (config.hidden_size, config.intermediate_size);
        let name = |part: &str| format!("encoder.layer.{number}.{part}");
        Ok(Self {
            query: weights.linear(&name("attention.self.query"), size, size)?,
            key: weights.linear(&name("attention.self.key"), size, size)?,
            value: weights.linear(&name("attention.self.value"), size, size)?,
            attended: weights.linear(&name("attention.output.dense"), size, size)?,
            attended_norm: weights.norm(&name("attention.output.LayerNorm"), config)?,
            wide: weights.linear(&name("intermediate.dense"), size, wide)?,
            narrow: weights.linear(&name("output.dense"), wide, size)?,
            norm: weights.norm(&name("output.LayerNorm"), config)?,
        })
    }

    fn forward(&self, hidden: &Tensor, unseen: &Tensor, heads: usize) -> Computed<Tensor> {
        let (texts, tokens, size) = hidden.dims3()?;
        let head = size / heads;
        let split = |made: Tensor| {
            made.reshape((texts, tokens, heads, head))?.transpose(1, 2)?.contiguous()
        };
        let query = split(self.query.forward(hidden)?)?;
        let key = split(self.key.forward(hidden)?)?;
        let value = split(self.value.forward(hidden)?)?;
        let scale = f64::from(u32::try_from(head).unwrap_or(u32::MAX)).sqrt().recip();
        let scores = (query.matmul(&key.t()?)? * scale)?.broadcast_add(unseen)?;
        let seen = softmax_last_dim(&scores)?.matmul(&value)?;
        let seen = seen.transpose(1, 2)?.contiguous()?.reshape((texts, tokens, size))?;
        let attended = self.attended_norm.forward(&(self.attended.forward(&seen)? + hidden)?)?;
        let wide = self.wide.forward(&attended)?.gelu_erf()?;
        self.norm.forward(&(self.narrow.forward(&wide)? + &attended)?)
    }
}

// === impl BertWeights ===

impl BertWeights {
    fn read(bytes: &[u8]) -> Result<Self, String> {
        let tensors = load_buffer(bytes, &Device::Cpu).map_err(|failure| {
            format!(
                "it is no safetensors file, or it is damaged ({}); copy the file again",
                first_line(&failure)
            )
        })?;
        let known = |prefix: &&str| tensors.contains_key(&format!("{prefix}{WORDS}"));
        let prefix = PREFIXES.into_iter().find(known).unwrap_or_default();
        Ok(Self { tensors, prefix })
    }

    fn linear(&mut self, name: &str, from: usize, to: usize) -> Result<Linear, String> {
        let weight = self.take(&format!("{name}.weight"), &[to, from])?;
        Ok(Linear::new(weight, Some(self.take(&format!("{name}.bias"), &[to])?)))
    }

    fn norm(&mut self, name: &str, config: &BertConfig) -> Result<LayerNorm, String> {
        let weight = self.take(&format!("{name}.weight"), &[config.hidden_size])?;
        let bias = self.take(&format!("{name}.bias"), &[config.hidden_size])?;
        Ok(LayerNorm::new(weight, bias, config.layer_norm_eps))
    }

    /// The numbers with this name, if they have this shape.
    fn take(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, String> {
        let name = format!("{}{name}", self.prefix);
        let Some(tensor) = self.tensors.remove(&name) else {
            return Err(format!(
                "it has no `{name}`; a model of the kind BERT has, with as many layers as `config.json` says"
            ));
        };
        if tensor.dims() != shape {
            return Err(format!(
                "its `{name}` has the shape {:?}, and `config.json` beside it says {shape:?}; both files have to be of \
                 one model",
                tensor.dims()
            ));
        }
        if !matches!(tensor.dtype(), DType::F32 | DType::F16 | DType::BF16) {
            return Err(format!(
                "the numbers of `{name}` are {}; `F32`, `F16` and `BF16` can be used",
                tensor.dtype().as_str()
            ));
        }
        let failed = |failure: Error| first_line(&failure);
        let tensor = tensor.to_dtype(DType::F32).map_err(failed)?;
        let numbers =
            tensor.flatten_all().and_then(|flat| flat.to_vec1::<f32>()).map_err(failed)?;
        if numbers.iter().all(|number| number.is_finite()) {
            Ok(tensor)
        } else {
            Err(format!("its `{name}` has a value that is not a number; copy the file again"))
        }
    }
}

/// What went wrong, without the lines of the program where it did.
fn first_line(failure: &Error) -> String {
    failure.to_string().lines().next().unwrap_or_default().to_owned()
}
