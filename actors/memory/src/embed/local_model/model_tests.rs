//! A model of two layers with numbers that follow from a seed, compared with loops that compute one number after the other.

use std::{collections::BTreeMap, fs, io, path::Path};

use clawnode_proto::ErrorChain;
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{LocalModel, bert::Bert, bert_config::BertConfig, model::TEXT_TOKENS};
use crate::embed::{TextEmbedder as _, word_pieces::tests::tokenizer};

const SIZE: usize = 32;
const HEADS: usize = 4;
const HEAD: usize = 8;
const WIDE: usize = 64;
const LAYERS: usize = 2;
const POSITIONS: usize = 24;
const TOKENS: [&str; 12] =
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "car", "##s", "is", "red", "tea", "a", "vehicle"];

/// A table of numbers with its shape.
type Table = (Vec<usize>, Vec<f32>);

/// A model that is small enough to compute by hand.
#[derive(Clone, Debug)]
pub(super) struct TinyModel {
    config: Value,
    tokenizer: Value,
    tables: BTreeMap<String, Table>,
    /// How its numbers are written.
    dtype: &'static str,
}

impl Default for TinyModel {
    fn default() -> Self {
        Self::with_positions(POSITIONS)
    }
}

impl TinyModel {
    fn with_positions(positions: usize) -> Self {
        let mut seed = 0x9e37_79b9_7f4a_7c15;
        let mut tables = BTreeMap::new();
        let mut add = |name: String, shape: &[usize]| {
            // Weights of norms are about 1.
            let least = if name.contains("Norm.weight") { 0.5 } else { -0.5 };
            let numbers = (0..shape.iter().product()).map(|_| least + fraction(&mut seed));
            tables.insert(name, (shape.to_vec(), numbers.collect()));
        };
        for (name, rows) in [("word", TOKENS.len()), ("position", positions), ("token_type", 2)] {
            add(format!("embeddings.{name}_embeddings.weight"), &[rows, SIZE]);
        }
        let mut norms = vec!["embeddings.LayerNorm".to_owned()];
        for layer in (0..LAYERS).map(|number| format!("encoder.layer.{number}")) {
            for (name, from, to) in [
                ("attention.self.query", SIZE, SIZE),
                ("attention.self.key", SIZE, SIZE),
                ("attention.self.value", SIZE, SIZE),
                ("attention.output.dense", SIZE, SIZE),
                ("intermediate.dense", SIZE, WIDE),
                ("output.dense", WIDE, SIZE),
            ] {
                add(format!("{layer}.{name}.weight"), &[to, from]);
                add(format!("{layer}.{name}.bias"), &[to]);
            }
            norms.push(format!("{layer}.attention.output.LayerNorm"));
            norms.push(format!("{layer}.output.LayerNorm"));
        }
        for name in norms {
            add(format!("{name}.weight"), &[SIZE]);
            add(format!("{name}.bias"), &[SIZE]);
        }
        let config = json!({
            "architectures": ["BertModel"], "model_type": "bert", "hidden_act": "gelu", "vocab_size": TOKENS.len(),
            "hidden_size": SIZE, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": WIDE,
            "max_position_embeddings": positions, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
        });
        Self { config, tokenizer: tokenizer(&TOKENS), tables, dtype: "F32" }
    }

    /// The file of its tables, as safetensors.
    fn weights(&self) -> Vec<u8> {
        let (mut header, mut data) = (BTreeMap::new(), Vec::new());
        for (name, (shape, numbers)) in &self.tables {
            let from = data.len();
            for number in numbers {
                let bytes = number.to_le_bytes();
                // The upper half of a number is what BF16 keeps.
                let kept = if self.dtype == "BF16" { &bytes[2..] } else { &bytes[..] };
                data.extend_from_slice(kept);
            }
            let entry =
                json!({ "dtype": self.dtype, "shape": shape, "data_offsets": [from, data.len()] });
            header.insert(name.clone(), entry);
        }
        let header = json!(header).to_string();
        let length = u64::try_from(header.len()).unwrap_or_default().to_le_bytes();
        [&length[..], header.as_bytes(), data.as_slice()].concat()
    }

    /// A folder with its files.
    pub(super) fn folder(&self) -> io::Result<TempDir> {
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("config.json"), self.config.to_string())?;
        fs::write(folder.path().join("tokenizer.json"), self.tokenizer.to_string())?;
        fs::write(folder.path().join("model.safetensors"), self.weights())?;
        Ok(folder)
    }

    /// The numbers of this token are so large that none follows from them.
    fn is_beyond_numbers(&mut self, token: &str) {
        let row = TOKENS.iter().position(|known| *known == token).unwrap();
        let (_, numbers) = self.tables.get_mut("embeddings.word_embeddings.weight").unwrap();
        numbers[row * SIZE..(row + 1) * SIZE].fill(f32::MAX);
    }

    fn open(&self) -> LocalModel {
        LocalModel::open(self.folder().unwrap().path()).unwrap()
    }

    fn numbers(&self, name: &str) -> Vec<f64> {
        self.tables[name].1.iter().copied().map(f64::from).collect()
    }

    /// The vector of these tokens.
    fn by_hand(&self, tokens: &[usize]) -> Vec<f64> {
        let table = |name: &str| self.numbers(&format!("embeddings.{name}_embeddings.weight"));
        let (words, positions, kinds) = (table("word"), table("position"), table("token_type"));
        let begin = tokens.iter().enumerate().map(|(place, token)| {
            let sum =
                |at: usize| words[token * SIZE + at] + positions[place * SIZE + at] + kinds[at];
            (0..SIZE).map(sum).collect()
        });
        let mut hidden = self.norm("embeddings.LayerNorm", &begin.collect::<Vec<_>>());
        for layer in (0..LAYERS).map(|number| format!("encoder.layer.{number}")) {
            let seen = self.seen(&layer, &hidden);
            let seen = self.linear(&format!("{layer}.attention.output.dense"), &seen);
            let attended =
                self.norm(&format!("{layer}.attention.output.LayerNorm"), &sum(&seen, &hidden));
            let mut wide = self.linear(&format!("{layer}.intermediate.dense"), &attended);
            for number in wide.iter_mut().flatten() {
                *number = *number * 0.5 * (1.0 + erf(*number / 2.0_f64.sqrt()));
            }
            let narrow = self.linear(&format!("{layer}.output.dense"), &wide);
            hidden = self.norm(&format!("{layer}.output.LayerNorm"), &sum(&narrow, &attended));
        }
        let mean: Vec<f64> = (0..SIZE)
            .map(|at| hidden.iter().map(|row| row[at]).sum::<f64>() / count(tokens.len()))
            .collect();
        let length = mean.iter().map(|number| number * number).sum::<f64>().sqrt();
        mean.iter().map(|number| number / length).collect()
    }

    /// What each token sees of all tokens.
    fn seen(&self, layer: &str, hidden: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let made = |part: &str| self.linear(&format!("{layer}.attention.self.{part}"), hidden);
        let (query, key, value) = (made("query"), made("key"), made("value"));
        let mut seen = vec![vec![0.0; SIZE]; hidden.len()];
        for (token, row) in seen.iter_mut().enumerate() {
            for head in 0..HEADS {
                let part = head * HEAD..(head + 1) * HEAD;
                let score = |other: usize| {
                    let product: f64 =
                        part.clone().map(|at| query[token][at] * key[other][at]).sum();
                    (product / count(HEAD).sqrt()).exp()
                };
                let scores: Vec<f64> = (0..hidden.len()).map(score).collect();
                let total: f64 = scores.iter().sum();
                for at in part.clone() {
                    row[at] =
                        scores.iter().zip(&value).map(|(score, v)| score / total * v[at]).sum();
                }
            }
        }
        seen
    }

    fn linear(&self, name: &str, rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let weight = self.numbers(&format!("{name}.weight"));
        let bias = self.numbers(&format!("{name}.bias"));
        let one = |row: &Vec<f64>| {
            let weights = weight.chunks_exact(row.len()).zip(&bias);
            weights.map(|(weights, bias)| dot(weights, row) + bias).collect()
        };
        rows.iter().map(one).collect()
    }

    fn norm(&self, name: &str, rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let weight = self.numbers(&format!("{name}.weight"));
        let bias = self.numbers(&format!("{name}.bias"));
        let one = |row: &Vec<f64>| {
            let mean = row.iter().sum::<f64>() / count(row.len());
            let away: Vec<f64> = row.iter().map(|number| number - mean).collect();
            let deviation = (dot(&away, &away) / count(row.len()) + 1e-12).sqrt();
            let numbers = away.iter().zip(weight.iter().zip(&bias));
            numbers.map(|(number, (weight, bias))| number / deviation * weight + bias).collect()
        };
        rows.iter().map(one).collect()
    }
}

/// The next number from 0 to 1 (xorshift).
fn fraction(seed: &mut u64) -> f32 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    f32::from(u16::try_from(*seed >> 48).unwrap_or_default()) / 65_535.0
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

fn sum(one: &[Vec<f64>], other: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let row = |(one, other): (&Vec<f64>, &Vec<f64>)| {
        one.iter().zip(other).map(|(one, other)| one + other).collect()
    };
    one.iter().zip(other).map(row).collect()
}

/// The error function, by its series; from 4 on it is 1 but for less than 2 of 10^8.
fn erf(number: f64) -> f64 {
    if number.abs() >= 4.0 {
        return number.signum();
    }
    let (mut term, mut sum) = (number, number);
    for at in 1..120 {
        term *= -number * number / f64::from(at);
        sum += term / f64::from(2 * at + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

/// How far the vectors are from each other in any number.
fn distance(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len());
    one.iter().zip(other).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max)
}

async fn vectors(model: &LocalModel, texts: &[&str]) -> Vec<Vec<f32>> {
    model.embed(texts.iter().map(|text| (*text).to_owned()).collect()).await.unwrap()
}

async fn vector(model: &LocalModel, text: &str) -> Vec<f32> {
    vectors(model, &[text]).await.remove(0)
}

fn assert_near(found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((f64::from(*found) - expected).abs() < 1e-4, "{found} {expected}");
    }
}

#[test]
fn the_error_function_of_these_tests_is_right() {
    for (number, expected) in [(0.0, 0.0), (0.5, 0.520_499_877_8), (-2.0, -0.995_322_265_0)] {
        assert!((erf(number) - expected).abs() < 1e-9, "{number}");
    }
    assert!((erf(3.99) - 1.0).abs() < 1e-7);
}

#[tokio::test]
async fn vectors_are_those_that_loops_compute() {
    let tiny = TinyModel::default();
    let model = tiny.open();
    assert_eq!((model.dimensions(), model.tokens()), (SIZE, TOKENS.len()));
    // Not one text alone: they go through the model together, with padding.
    let texts = ["The cars: is RED", "tea", "a zebra is a vehicle", "car tea", "tea car"];
    let made = vectors(&model, &texts).await;
    for (found, tokens) in made.iter().zip([
        // A colon is a word without a token of its own, as a zebra is.
        vec![2, 4, 5, 6, 1, 7, 8, 3],
        vec![2, 9, 3],
        vec![2, 10, 1, 7, 10, 11, 3],
        vec![2, 5, 9, 3],
        vec![2, 9, 5, 3],
    ]) {
        assert_near(found, &tiny.by_hand(&tokens));
        let length: f32 = found.iter().map(|number| number * number).sum();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
    }
    assert!(distance(&made[3], &made[4]) > 0.01, "where a token is has a part in it");
}

#[tokio::test]
async fn the_texts_beside_a_text_do_not_change_its_vector() {
    let model = TinyModel::default().open();
    let long = "the red car is a vehicle and the red tea is a car ".trim();
    let texts = [long, "tea", "", "a red car", "tea"];
    let together = vectors(&model, &texts).await;
    for (text, found) in texts.iter().zip(&together) {
        let alone = vector(&model, text).await;
        assert!(distance(found, &alone) < 1e-5, "{text:?} {found:?} {alone:?}");
    }
    assert_eq!(together[2], vec![0.0; SIZE], "no text is near nothing");
    assert!(distance(&together[0], &together[1]) > 0.01);
    // More than go through the model at once, in any order of their lengths.
    let many: Vec<String> = (0..96).map(|at| "car ".repeat(1 + at * 7 % 20)).collect();
    let made = model.embed(many.clone()).await.unwrap();
    for (text, found) in many.iter().zip(&made).step_by(11) {
        assert!(distance(found, &vector(&model, text).await) < 1e-5, "{text:?}");
    }
}

/// The store gives a batch its vectors together, and comes to no later text as long as it fails.
#[tokio::test]
async fn a_text_without_a_direction_costs_no_other_text_its_vector() {
    let mut tiny = TinyModel::default();
    tiny.is_beyond_numbers("tea");
    let model = tiny.open();
    let made = vectors(&model, &["a red car", "tea", "the tea is red", "a car"]).await;
    assert_eq!(made[1..3], vec![vec![0.0; SIZE]; 2], "they are near nothing");
    for (found, tokens) in [(&made[0], vec![2, 10, 8, 5, 3]), (&made[3], vec![2, 10, 5, 3])] {
        assert_near(found, &tiny.by_hand(&tokens));
    }
    assert_eq!(
        vector(&model, "tea").await,
        vec![0.0; SIZE],
        "also alone, so that its turn comes once"
    );
    let all = model.embed(vec!["tea".to_owned(), "tea tea".to_owned()]).await.unwrap_err();
    assert!(all.to_string().contains("no direction"), "{all}");
}

#[tokio::test]
async fn a_text_is_cut_to_what_the_model_or_its_limit_takes() {
    for positions in [POSITIONS, TEXT_TOKENS + 90] {
        let tiny = TinyModel::with_positions(positions);
        let model = tiny.open();
        let words = positions.min(TEXT_TOKENS) - 2;
        let whole = vector(&model, &"car ".repeat(words)).await;
        for longer in [words + 1, words + 70, 20_000] {
            assert_eq!(vector(&model, &"car ".repeat(longer)).await, whole, "{longer}");
        }
        let shorter = vector(&model, &"car ".repeat(words - 1)).await;
        assert!(distance(&shorter, &whole) > 1e-6, "{positions}");
        if positions == POSITIONS {
            let tokens = [vec![2], vec![5; words], vec![3]].concat();
            assert_near(&whole, &tiny.by_hand(&tokens));
        }
    }
}

#[tokio::test]
async fn numbers_and_names_have_the_forms_that_such_files_have() {
    let mut tiny = TinyModel::default();
    // What BF16 leaves of them.
    for number in tiny.tables.values_mut().flat_map(|(_, numbers)| numbers) {
        *number = f32::from_bits(number.to_bits() & 0xffff_0000);
    }
    let plain = vector(&tiny.open(), "a red car").await;
    let short = TinyModel { dtype: "BF16", ..tiny.clone() };
    assert_eq!(vector(&short.open(), "a red car").await, plain);
    let mut named = tiny;
    let named_tables =
        named.tables.into_iter().map(|(name, table)| (format!("bert.{name}"), table));
    named.tables = named_tables.collect();
    // What the vectors need no part of.
    named.tables.insert("bert.pooler.dense.bias".to_owned(), (vec![1], vec![0.5]));
    assert_eq!(vector(&named.open(), "a red car").await, plain);
}

#[test]
fn a_model_is_named_after_what_is_in_its_files() {
    let names =
        [TinyModel::default(), TinyModel::default()].map(|tiny| tiny.open().model().to_owned());
    assert_eq!(names[0], names[1], "not after its folder");
    assert!(names[0].starts_with("local/"), "{}", names[0]);
    let mut other = TinyModel::default();
    other.config["layer_norm_eps"] = json!(1e-5);
    assert_ne!(other.open().model(), names[0]);
}

/// What is wrong with a folder.
fn refusal(folder: &Path) -> String {
    ErrorChain(&LocalModel::open(folder).unwrap_err()).to_string()
}

#[test]
fn a_file_that_is_missing_or_of_another_kind_is_named() {
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        let folder = TinyModel::default().folder().unwrap();
        let path = folder.path().join(file);
        fs::remove_file(&path).unwrap();
        let why = refusal(folder.path());
        assert!(why.contains(&path.display().to_string()) && why.contains("No such file"), "{why}");
        fs::create_dir(&path).unwrap();
        let why = refusal(folder.path());
        assert!(why.contains(file) && why.contains("it is no file"), "{why}");
        fs::remove_dir(&path).unwrap();
        // What a clone without large files leaves in the place of each.
        fs::write(&path, "version https://git-lfs.github.com/spec/v1").unwrap();
        let why = refusal(folder.path());
        assert!(why.contains(&path.display().to_string()), "{why}");
    }
    let folder = TinyModel::default().folder().unwrap();
    let path = folder.path().join("model.safetensors");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let why = refusal(folder.path());
    assert!(why.contains("model.safetensors") && why.contains("copy the file again"), "{why}");
}

#[test]
fn files_that_do_not_fit_each_other_are_refused() {
    let with_config = |name: &str, value: usize| {
        let mut tiny = TinyModel::default();
        tiny.config[name] = json!(value);
        refusal(tiny.folder().unwrap().path())
    };
    for (name, value, says) in [
        ("hidden_size", 16, "has the shape [12, 32], and `config.json` beside it says [12, 16]"),
        ("vocab_size", 13, "says [13, 32]; both files have to be of one model"),
        ("vocab_size", 11, "it has a token 11, and `config.json` beside it says that there are 11"),
        ("num_hidden_layers", 3, "it has no `encoder.layer.2.attention.self.query.weight`"),
        ("intermediate_size", 63, "`encoder.layer.0.intermediate.dense.weight`"),
        ("max_position_embeddings", 512, "`embeddings.position_embeddings.weight`"),
    ] {
        let why = with_config(name, value);
        assert!(why.contains(says), "{why}");
    }
    let mut tiny =
        TinyModel { tokenizer: tokenizer(&["[UNK]", "[CLS]", "a"]), ..TinyModel::default() };
    let why = refusal(tiny.folder().unwrap().path());
    assert!(why.contains("tokenizer.json") && why.contains("no token `[SEP]`"), "{why}");
    tiny = TinyModel::default();
    let (_, numbers) = tiny.tables.get_mut("encoder.layer.1.output.dense.bias").unwrap();
    numbers[3] = f32::NAN;
    let why = refusal(tiny.folder().unwrap().path());
    assert!(
        why.contains("`encoder.layer.1.output.dense.bias` has a value that is not a number"),
        "{why}"
    );
    tiny = TinyModel::default();
    tiny.is_beyond_numbers("[CLS]");
    let why = refusal(tiny.folder().unwrap().path());
    assert!(why.contains("model.safetensors") && why.contains("no direction"), "{why}");
    tiny = TinyModel { dtype: "I32", ..TinyModel::default() };
    let why = refusal(tiny.folder().unwrap().path());
    assert!(why.contains("`F32`, `F16` and `BF16` can be used"), "{why}");
}

proptest! {
    #[test]
    fn any_file_of_weights_is_read_or_refused(place in 0_usize..6_000, byte in any::<u8>(), cut in 0_usize..90_000) {
        let tiny = TinyModel::default();
        let config = BertConfig::read(tiny.config.to_string().as_bytes()).unwrap();
        let mut bytes = tiny.weights();
        drop(Bert::read(config, bytes.get(..cut).unwrap_or(&bytes)));
        if let Some(changed) = bytes.get_mut(place) {
            *changed = byte;
        }
        if let Ok(bert) = Bert::read(config, &bytes) {
            prop_assert_eq!(bert.sums(&[vec![2, 5, 3]]).unwrap().len(), 1);
        }
    }
}
