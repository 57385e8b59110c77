//! The skills of a process, agent by agent, as its configuration has them now.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
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
    written: AtomicU64,
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

    /// How many skills this process has written. If it has changed since folders were read, what was read of them may
    /// lack one.
    pub fn written(&self) -> u64 {
        self.0.written.load(Ordering::SeqCst)
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
        self.0.written.fetch_add(1, Ordering::SeqCst);
        let mut agents = self.0.agents.write().unwrap_or_else(PoisonError::into_inner);
        for skills in agents.values_mut() {
            *skills = Arc::new(skills.with(&skill));
        }
        Ok(skill)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skill_that_is_written_is_counted_and_a_refused_one_is_not() {
        let home = tempfile::tempdir().unwrap();
        let (shelf, agent) = (SkillShelf::default(), "main".parse::<AgentName>().unwrap());
        let skills = AgentSkills::chosen(&[], &["*".to_owned()]);
        shelf.replace([(agent.clone(), Arc::new(skills))]);
        let write = Some(home.path().join("skills"));
        shelf.keep_in(SkillFolders { read: Vec::new(), write });
        let draft = |name: &str| SkillDraft {
            name: name.to_owned(),
            description: "Ships.".to_owned(),
            text: "Go.".to_owned(),
            entries: vec![1],
            replaces: None,
        };
        shelf.create(&draft("../ship"), &SkillOrigin::default()).unwrap_err();
        assert_eq!(shelf.written(), 0);
        let skill = shelf.create(&draft("ship"), &SkillOrigin::default()).unwrap();
        assert_eq!((shelf.written(), shelf.of(&agent).get("ship")), (1, Some(&skill)));
    }
}
