//! Settings of the store that finds what memories and conversations say.

use std::{collections::BTreeSet, fmt, path::PathBuf};

use clawnode_proto::{AgentName, limits::MEMORY_POINTS, llm::ModelRef};
use serde::{Deserialize, Serialize};

use super::qdrant::QdrantSection;

/// The files in the folder of the model `static`, for people.
pub const STATIC_FILES: &str = "`tokenizer.json` and `model.safetensors`";
/// Those of the model `local`.
pub const LOCAL_FILES: &str = "`config.json`, `tokenizer.json` and `model.safetensors`";

/// `[memory]`: the store that finds what memories and conversations say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemorySection {
    /// Which store: `local` is in each node, with its files in `memory` of the data folder; `qdrant` is a server that all
    /// nodes share.
    pub store: MemoryStoreChoice,
    /// The agents whose conversations can be found, beside those that are reminded of theirs by `[agents.NAME.memory]`
    /// (none). They take disk in each node, about as much as their texts.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub conversations: BTreeSet<AgentName>,
    /// The model that finds things by their meaning, too: `PROVIDER/MODEL`, `static`, `local`, or `none` (none). Texts of memories and
    /// of conversations that can be found, and messages of turns with `[agents.NAME.memory]`, are sent to its provider.
    pub embeddings: EmbeddingsChoice,
    /// The folder of the model `static`, with its `tokenizer.json` and `model.safetensors`, or of `local`, which also has a
    /// `config.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embeddings_dir: Option<PathBuf>,
    /// Points that one memory has at most (2,000), at most 20,000. When it is full, those that matter least are archived; never
    /// what persons or operators said. A text of 2 MiB is the limit in any case. The same on all nodes, because the node that
    /// has a memory decides by its own. More points take more memory and time of each change.
    pub points: u32,
    /// `[memory.qdrant]`: the server of the store `qdrant`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qdrant: Option<QdrantSection>,
}

impl Default for MemorySection {
    fn default() -> Self {
        Self {
            store: MemoryStoreChoice::default(),
            conversations: BTreeSet::new(),
            embeddings: EmbeddingsChoice::default(),
            embeddings_dir: None,
            points: u32::try_from(MEMORY_POINTS).unwrap_or(u32::MAX),
            qdrant: None,
        }
    }
}

impl MemorySection {
    /// How many live points one memory has at most.
    pub fn points_most(&self) -> usize {
        usize::try_from(self.points).unwrap_or(usize::MAX)
    }
}

/// Which model finds things by their meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum EmbeddingsChoice {
    /// None: words alone decide.
    #[default]
    None,
    /// A table of the vectors of tokens in `embeddings_dir`, in the process of the node.
    Static,
    /// A sentence encoder in `embeddings_dir`, in the process of the node; in builds with `embed-local`.
    Local,
    /// A model of a provider.
    Model(ModelRef),
}

impl TryFrom<String> for EmbeddingsChoice {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "none" => Ok(Self::None),
            "static" => Ok(Self::Static),
            "local" if cfg!(feature = "embed-local") => Ok(Self::Local),
            "local" => Err("`local` is not in this build: build it with `--features embed-local`, use `static` with \
                            `embeddings_dir`, or a model of a server of your own, such as `ollama/all-minilm`"
                .to_owned()),
            _ => {
                let wrong = |why| {
                    format!("`{text}` is neither `none`, `static`, `local` nor a model, `PROVIDER/MODEL`: {why}")
                };
                text.parse().map(Self::Model).map_err(wrong)
            }
        }
    }
}

impl From<EmbeddingsChoice> for String {
    fn from(choice: EmbeddingsChoice) -> Self {
        choice.to_string()
    }
}

impl fmt::Display for EmbeddingsChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Static => f.write_str("static"),
            Self::Local => f.write_str("local"),
            Self::Model(model) => write!(f, "{model}"),
        }
    }
}

/// Which store finds things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryStoreChoice {
    /// In the process of each node.
    #[default]
    Local,
    /// On a Qdrant server.
    Qdrant,
}
