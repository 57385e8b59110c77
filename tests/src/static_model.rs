//! Models of embeddings that are files, small enough for a test to know their vectors.

use std::{fs, io, path::Path};

use serde_json::{Map, Value, json};

/// Writes a static model with these tokens and their vectors of two numbers into a folder, which is made.
pub fn write(folder: &Path, tokens: &[(&str, [f32; 2])]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let numbered = tokens.iter().enumerate();
    let vocab: Map<String, Value> =
        numbered.map(|(number, (token, _))| ((*token).to_owned(), number.into())).collect();
    let tokenizer = json!({
        "normalizer": { "type": "BertNormalizer", "lowercase": true },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "model": { "type": "WordPiece", "unk_token": "[UNK]", "vocab": vocab },
    });
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string())?;
    let numbers: Vec<u8> = tokens
        .iter()
        .flat_map(|(_, vector)| vector)
        .flat_map(|number| number.to_le_bytes())
        .collect();
    let shape = [tokens.len(), 2];
    let table = json!({ "dtype": "F32", "shape": shape, "data_offsets": [0, numbers.len()] });
    let header = json!({ "embeddings": table }).to_string();
    let length = u64::try_from(header.len()).map_err(io::Error::other)?.to_le_bytes();
    fs::write(
        folder.join("model.safetensors"),
        [&length[..], header.as_bytes(), numbers.as_slice()].concat(),
    )
}
