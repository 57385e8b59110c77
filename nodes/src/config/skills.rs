//! Settings of skills: where they are, and which ones an agent has.

use std::path::PathBuf;

use clawnode_proto::{
    ToolName,
    limits::SKILLS,
    memory::{FORGET, RECALL, REMEMBER},
};
use serde::{Deserialize, Serialize};

use super::{AgentSection, context::ContextFault, tools::ToolSelection};

/// Folders of skills of one node: each is looked at every few seconds.
pub(super) const SKILL_FOLDERS: usize = 16;

/// `[skills]`: instructions that agents read when they need them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SkillsSection {
    /// The folders of skills, each NAME/SKILL.md (`skills`, beside the configuration file). Of two skills of one name,
    /// the one in the first folder counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub folders: Vec<PathBuf>,
}

impl AgentSection {
    /// What its tools of memories lack.
    pub(super) fn memory_tools_fault(&self) -> Option<ContextFault> {
        let names = self.tools.iter().filter_map(ToolSelection::name);
        let mut names = names.map(ToolName::as_str);
        let tool = names.find(|name| matches!(*name, REMEMBER | RECALL | FORGET));
        let tool = tool.filter(|_| self.memory.is_none())?;
        let what = format!("`{tool}` needs a memory, and the agent has none");
        let hint = "add a section `[agents.NAME.memory]`, which may be empty, or remove the tool";
        Some(("tools", what, hint.to_owned()))
    }

    /// What is wrong with the names of its skills.
    pub(super) fn skills_fault(&self) -> Option<ContextFault> {
        (self.skills.len() > SKILLS).then(|| {
            let what = format!("{} names or patterns, at most {SKILLS}", self.skills.len());
            ("skills", what, "use patterns such as `deploy-*`".to_owned())
        })
    }
}
