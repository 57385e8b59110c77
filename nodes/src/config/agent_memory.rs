//! `[agents.NAME.memory]`: what the turns of an agent are reminded of.

use std::collections::BTreeSet;

use clawnode_actors::agent::{AgentMemory, FactExtraction, ReflectionMode};
use clawnode_proto::{
    id::KeyPart,
    limits::{AGENT_SHARED_MEMORIES, RECALL_POINTS},
    memory::MemoryLayer,
};
use serde::{Deserialize, Serialize};

/// `[agents.NAME.memory]`: what a turn is reminded of before its first model call (nothing, without this section).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentMemoryOptions {
    /// The kinds of points that it is shown (all): `semantic`, `procedural`, `social`, `episode`. `episode` also means
    /// passages of conversations.
    pub layers: Vec<MemoryLayer>,
    /// Points of memories that one turn is shown at most (5), at most 20; `0`: passages only.
    pub top_facts: u32,
    /// The shared memories that it reads (none), by the NAME of `shared/NAME`; at most 16.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<KeyPart>,
    /// Whether it is also shown what tools brought (`false`): pages and files may say anything.
    pub recall_untrusted: bool,
    /// How facts are found in what persons say of themselves (`patterns`), for the memory of each person; `off`: they are not.
    /// `model` also has the agent's `compact_model`, or its own model, look for them after each turn with a reply. Each costs a call.
    pub extract: FactExtraction,
    /// Whether a model looks back at each turn of 5 or more tool calls (`off`): `model` has the agent's `compact_model`, or its
    /// own model, rate the turn and write at most 3 lessons into the memory of the person. Each costs a call.
    pub reflect: ReflectionMode,
}

impl Default for AgentMemoryOptions {
    fn default() -> Self {
        let usual = AgentMemory::default();
        Self {
            layers: usual.layers.into_iter().collect(),
            top_facts: u32::try_from(usual.top_facts).unwrap_or(u32::MAX),
            shared: usual.shared,
            recall_untrusted: usual.recall_untrusted,
            extract: usual.extract,
            reflect: usual.reflect,
        }
    }
}

impl From<&AgentMemoryOptions> for AgentMemory {
    fn from(options: &AgentMemoryOptions) -> Self {
        Self {
            layers: options.layers.iter().copied().collect(),
            top_facts: usize::try_from(options.top_facts).unwrap_or(usize::MAX),
            shared: options.shared.clone(),
            recall_untrusted: options.recall_untrusted,
            extract: options.extract,
            reflect: options.reflect,
        }
    }
}

impl AgentMemoryOptions {
    /// What is wrong with them: the key in their section, what, and what to do.
    pub(super) fn fault(&self) -> Option<(&'static str, String, String)> {
        let most = usize::try_from(self.top_facts).unwrap_or(usize::MAX);
        if most > RECALL_POINTS {
            let what = format!("{most} is not in the range 0 to {RECALL_POINTS}");
            let hint = "each one costs tokens of the first call, and of all others of its turn";
            return Some(("top_facts", what, hint.to_owned()));
        }
        if self.layers.is_empty() {
            let hint = "remove the section `memory`, and nothing is recalled";
            return Some(("layers", "it is empty".to_owned(), hint.to_owned()));
        }
        let has_facts = [MemoryLayer::Semantic, MemoryLayer::Social];
        let has_facts = has_facts.iter().any(|layer| self.layers.contains(layer));
        if self.extract == FactExtraction::Model && !has_facts {
            let what =
                "facts are of the layers `semantic` and `social`, and `layers` names neither";
            return Some(("extract", what.to_owned(), "add one of them to `layers`".to_owned()));
        }
        let has_lessons = self.layers.contains(&MemoryLayer::Procedural);
        if self.reflect == ReflectionMode::Model && !has_lessons {
            let what = "lessons are of the layer `procedural`, which `layers` does not name";
            return Some(("reflect", what.to_owned(), "add it to `layers`".to_owned()));
        }
        let names: BTreeSet<&str> = self.shared.iter().map(KeyPart::as_str).collect();
        if self.shared.len() > AGENT_SHARED_MEMORIES {
            let what = format!("{} names, at most {AGENT_SHARED_MEMORIES}", self.shared.len());
            return Some(("shared", what, "join some of these memories".to_owned()));
        }
        if names.len() < self.shared.len() {
            return Some(("shared", "a name is there twice".to_owned(), "remove one".to_owned()));
        }
        names.contains("all").then(|| {
            let what = "`shared/all` is what an agent named `shared` knows".to_owned();
            ("shared", what, "name another memory".to_owned())
        })
    }
}
