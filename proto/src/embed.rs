//! Embeddings: texts as vectors of numbers, which lie near each other if the texts mean the like.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::llm::ModelRef;

/// Texts for which vectors are wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EmbedTexts {
    /// The model, as the client names it: `PROVIDER/MODEL`, or only the part after the slash.
    pub model: String,
    /// The texts, at most [`crate::limits::EMBED_BATCH`].
    pub texts: Vec<String>,
    /// How many numbers each vector shall have; absent leaves it to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dimensions: Option<u32>,
}

/// The vectors of texts, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Embedded {
    /// The model that made them.
    pub model: ModelRef,
    /// As many as there were texts, all of the same length.
    pub vectors: Vec<Vector>,
    /// Tokens that the model read; 0 if its provider does not count them.
    pub input_tokens: u64,
}

/// The numbers of one vector, each in 4 bytes (IEEE 754, least significant byte first).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Vector(#[cfg_attr(feature = "schema", schemars(with = "Vec<u8>"))] ByteBuf);

// === impl Vector ===

impl Vector {
    /// A vector of these.
    pub fn new(numbers: &[f32]) -> Self {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        Self(bytes.into())
    }

    /// Its numbers.
    pub fn numbers(&self) -> impl Iterator<Item = f32> {
        let (numbers, _rest) = self.0.as_chunks();
        numbers.iter().map(|bytes| f32::from_le_bytes(*bytes))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len() / size_of::<f32>()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of the numbers.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_as_they_were_given() {
        let numbers = [0.0, -1.5, f32::MIN_POSITIVE, 0.1];
        let vector = Vector::new(&numbers);
        assert_eq!(vector.numbers().collect::<Vec<_>>(), numbers);
        assert_eq!((vector.len(), vector.as_bytes().len()), (4, 16));
        assert!(Vector::new(&[]).is_empty());
    }
}
