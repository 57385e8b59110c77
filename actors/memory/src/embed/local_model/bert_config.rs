//! Reads the `config.json` of a model of the kind BERT.

use clawnode_proto::limits::EMBED_DIMENSIONS;
use serde::Deserialize;

/// A beginning, an end, and one token of a text between them.
const POSITIONS_LEAST: usize = 3;
/// Four times as many as the largest models have. Each has a table with a number for each two tokens.
const HEADS_MOST: usize = 64;
/// How many times `hidden_size` a layer may be wide: twice as many as usual. A token has as many numbers in it.
const WIDE_MOST: usize = 8;

/// What shape the numbers of a model have.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct BertConfig {
    pub(super) vocab_size: usize,
    /// Numbers of a vector.
    pub(super) hidden_size: usize,
    pub(super) num_hidden_layers: usize,
    pub(super) num_attention_heads: usize,
    pub(super) intermediate_size: usize,
    /// Tokens of a text, its beginning and its end included.
    pub(super) max_position_embeddings: usize,
    pub(super) type_vocab_size: usize,
    #[serde(default = "usual_epsilon")]
    pub(super) layer_norm_eps: f64,
}

/// What the file says of the way to compute.
#[derive(Deserialize)]
struct BertKind {
    model_type: Option<String>,
    #[serde(default = "usual_activation")]
    hidden_act: String,
    #[serde(default = "usual_positions")]
    position_embedding_type: String,
}

fn usual_epsilon() -> f64 {
    1e-12
}

fn usual_activation() -> String {
    "gelu".to_owned()
}

fn usual_positions() -> String {
    "absolute".to_owned()
}

// === impl BertConfig ===

impl BertConfig {
    /// Reads the file; says what is wrong with it.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let kind: BertKind = serde_json::from_slice(bytes)
            .map_err(|failure| format!("it is no `config.json` of a model: {failure}"))?;
        for (name, found, usable) in [
            ("model_type", kind.model_type.as_deref().unwrap_or("absent"), "bert"),
            ("hidden_act", kind.hidden_act.as_str(), "gelu"),
            ("position_embedding_type", kind.position_embedding_type.as_str(), "absolute"),
        ] {
            if found != usable {
                // It is shown, and may be anything.
                let found = found.chars().take(40).collect::<String>();
                return Err(format!(
                    "its `{name}` is `{}`, and only `{usable}` can be used; choose a sentence encoder of the kind BERT, \
                     such as `all-MiniLM-L6-v2`",
                    found.escape_debug()
                ));
            }
        }
        let config: Self = serde_json::from_slice(bytes).map_err(|failure| {
            format!("it does not describe a model of the kind BERT: {failure}")
        })?;
        config.checked()
    }

    fn checked(self) -> Result<Self, String> {
        let (size, heads) = (self.hidden_size, self.num_attention_heads);
        if !(1..=EMBED_DIMENSIONS).contains(&size) {
            return Err(format!(
                "its vectors have {size} numbers; 1 to {EMBED_DIMENSIONS} can be used"
            ));
        }
        if heads == 0 || !size.is_multiple_of(heads) {
            return Err(format!(
                "`hidden_size` {size} is no multiple of `num_attention_heads` {heads}; copy the file again"
            ));
        }
        // They say how much memory a pass takes, and the size of the files bounds neither.
        for (name, found, most) in [
            ("num_attention_heads", heads, HEADS_MOST),
            ("intermediate_size", self.intermediate_size, WIDE_MOST * size),
        ] {
            if found > most {
                return Err(format!(
                    "its `{name}` is {found}, and {most} is the most for its `hidden_size`; choose another model"
                ));
            }
        }
        for (name, found, least) in [
            ("intermediate_size", self.intermediate_size, 1),
            ("num_hidden_layers", self.num_hidden_layers, 1),
            ("max_position_embeddings", self.max_position_embeddings, POSITIONS_LEAST),
            ("type_vocab_size", self.type_vocab_size, 1),
        ] {
            if found < least {
                return Err(format!(
                    "its `{name}` is {found}, and {least} is the least; copy the file again"
                ));
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn config() -> Value {
        json!({
            "architectures": ["BertModel"], "model_type": "bert", "hidden_act": "gelu", "vocab_size": 30_522,
            "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1_536,
            "max_position_embeddings": 512, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
        })
    }

    #[test]
    fn other_models_are_refused_by_what_they_are() {
        let config_of = |name: &str, value: Value| {
            let mut config = config();
            config[name] = value;
            BertConfig::read(config.to_string().as_bytes())
        };
        let read = config_of("layer_norm_eps", json!(1e-5)).unwrap();
        assert_eq!((read.hidden_size, read.num_hidden_layers), (384, 6));
        for (name, value, says) in [
            ("model_type", json!("roberta"), "`model_type` is `roberta`, and only `bert`"),
            ("model_type", Value::Null, "`model_type` is `absent`"),
            ("hidden_act", json!("gelu_new"), "`hidden_act` is `gelu_new`"),
            (
                "position_embedding_type",
                json!("relative_key"),
                "`relative_key`, and only `absolute`",
            ),
            ("hidden_size", json!("384"), "does not describe a model of the kind BERT"),
            ("hidden_size", json!(9_000), "9000 numbers"),
            ("hidden_size", json!(0), "0 numbers"),
            ("num_attention_heads", json!(0), "`num_attention_heads` 0"),
            ("num_attention_heads", json!(7), "no multiple of `num_attention_heads` 7"),
            ("num_attention_heads", json!(96), "`num_attention_heads` is 96, and 64 is the most"),
            (
                "intermediate_size",
                json!(3_073),
                "`intermediate_size` is 3073, and 3072 is the most",
            ),
            ("intermediate_size", json!(0), "`intermediate_size` is 0"),
            ("num_hidden_layers", json!(0), "`num_hidden_layers` is 0"),
            ("max_position_embeddings", json!(2), "3 is the least"),
            ("vocab_size", json!(-1), "does not describe"),
        ] {
            let why = config_of(name, value).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
        for bytes in [&b""[..], b"[]", b"{", b"\xff", b"version https://git-lfs"] {
            let why = BertConfig::read(bytes).unwrap_err();
            assert!(why.starts_with("it is no `config.json`"), "{why}");
        }
    }
}
