//! The skills of a process, agent by agent, as its configuration has them now.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use clawnode_proto::AgentName;

use super::AgentSkills;

/// Shared by what reads the folders and the tools that hand skills out. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct SkillShelf(Arc<RwLock<BTreeMap<AgentName, Arc<AgentSkills>>>>);

impl SkillShelf {
    /// The skills of an agent; none if it is not known.
    pub fn of(&self, agent: &AgentName) -> Arc<AgentSkills> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.get(agent).cloned().unwrap_or_default()
    }

    /// Replaces all of them.
    pub fn replace(&self, all: impl IntoIterator<Item = (AgentName, Arc<AgentSkills>)>) {
        let all = all.into_iter().collect();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = all;
    }
}
