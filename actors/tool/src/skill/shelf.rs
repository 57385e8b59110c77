//! The skills of a process, agent by agent, as its configuration has them now.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use clawnode_proto::AgentName;

use super::{AgentSkills, Skill, SkillDraft, SkillFolders, SkillOrigin};

/// Shared by what reads the folders and the tools that hand skills out. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct SkillShelf(Arc<ShelfState>);

#[derive(Debug, Default)]
struct ShelfState {
    agents: RwLock<BTreeMap<AgentName, Arc<AgentSkills>>>,
    folders: RwLock<SkillFolders>,
    /// Held while a skill is written: two calls never look and write at the same time.
    writing: Mutex<()>,
}

impl SkillShelf {
    /// The skills of an agent; none if it is not known.
    pub fn of(&self, agent: &AgentName) -> Arc<AgentSkills> {
        let all = self.0.agents.read().unwrap_or_else(PoisonError::into_inner);
        all.get(agent).cloned().unwrap_or_default()
    }

    /// Replaces all of them.
    pub fn replace(&self, all: impl IntoIterator<Item = (AgentName, Arc<AgentSkills>)>) {
        let all = all.into_iter().collect();
        *self.0.agents.write().unwrap_or_else(PoisonError::into_inner) = all;
    }

    /// Says where skills are, and where new ones are written.
    pub fn keep_in(&self, folders: SkillFolders) {
        *self.0.folders.write().unwrap_or_else(PoisonError::into_inner) = folders;
    }

    /// Writes a skill, which agents have at once. It waits for the disk. The same call again writes nothing.
    ///
    /// # Errors
    /// Why it is not written, for the model.
    pub fn create(&self, draft: &SkillDraft, origin: &SkillOrigin) -> Result<Arc<Skill>, String> {
        let text = draft.render(origin)?;
        let _writing = self.0.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // A copy: what reads the configuration again does not wait for a disk.
        let folders = self.0.folders.read().unwrap_or_else(PoisonError::into_inner).clone();
        let skill = Arc::new(folders.create(&draft.name, &text, draft.replaces)?);
        let mut agents = self.0.agents.write().unwrap_or_else(PoisonError::into_inner);
        for skills in agents.values_mut() {
            *skills = Arc::new(skills.with(&skill));
        }
        Ok(skill)
    }
}
