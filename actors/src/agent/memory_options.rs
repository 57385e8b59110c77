//! What an agent may be reminded of.

use std::collections::BTreeSet;

use clawnode_proto::{id::KeyPart, memory::MemoryLayer};
use serde::{Deserialize, Serialize};

/// Which memories an agent reads, and how much of them. An agent without this recalls nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentMemory {
    /// The kinds of points that it is shown (all). `episode` also means passages of conversations.
    pub layers: BTreeSet<MemoryLayer>,
    /// Points of one turn at most (5).
    pub top_facts: usize,
    /// The shared memories that it reads (none).
    pub shared: Vec<KeyPart>,
    /// Whether it is also shown what tools brought (no): pages and files may say anything.
    pub recall_untrusted: bool,
    /// How facts are found in what persons say (by patterns).
    pub extract: FactExtraction,
    /// Whether a model looks back at turns with many tool calls (no), and writes lessons into the person's memory.
    pub reflect: ReflectionMode,
}

/// How facts are found in the messages of persons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FactExtraction {
    /// By patterns of words, without a model.
    #[default]
    Patterns,
    /// By patterns, and by a model once the turn has ended. Each turn with a reply costs a call.
    Model,
    /// They are not looked for.
    Off,
}

/// Whether turns are looked back at without being asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReflectionMode {
    /// By a model.
    Model,
    /// Only if a person asks for it.
    #[default]
    Off,
}

impl Default for AgentMemory {
    fn default() -> Self {
        let layers = [
            MemoryLayer::Semantic,
            MemoryLayer::Procedural,
            MemoryLayer::Social,
            MemoryLayer::Episode,
        ];
        Self {
            layers: layers.into(),
            top_facts: 5,
            shared: Vec::new(),
            recall_untrusted: false,
            extract: FactExtraction::Patterns,
            reflect: ReflectionMode::Off,
        }
    }
}
