//! Settings of skills: where they are, and which ones an agent has.

use std::{collections::BTreeMap, path::PathBuf};

use clawnode_proto::{
    ToolName,
    ledger::LEDGER_APPEND,
    limits::SKILLS,
    memory::{FORGET, RECALL, REMEMBER},
    skill::CREATE_SKILL,
};
use clawnode_tool::skill::BundleKey;
use serde::{Deserialize, Serialize};

use super::{AgentSection, context::ContextFault, tools::ToolSelection};

/// Folders of skills of one node: each is looked at every few seconds.
const SKILL_FOLDERS: usize = 16;
/// Keys that bundles may be signed with: each is tried.
const TRUSTED_KEYS: usize = 16;

/// `[skills]`: instructions that agents read when they need them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SkillsSection {
    /// The folders of skills, each NAME/SKILL.md (`skills`, beside the configuration file). Of two skills of one name,
    /// the one in the first folder counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub folders: Vec<PathBuf>,
    /// The public keys of those whose bundles may be installed (Ed25519, in base64), by names of your choice.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub trusted_keys: BTreeMap<String, String>,
}

impl SkillsSection {
    /// The keys that bundles may be signed with.
    pub fn keys(&self) -> BTreeMap<String, BundleKey> {
        let keys = self.trusted_keys.iter();
        keys.filter_map(|(name, key)| Some((name.clone(), key.parse().ok()?))).collect()
    }

    /// What is wrong with it.
    pub(super) fn fault(&self) -> Option<ContextFault> {
        let count = self.folders.len();
        if count > SKILL_FOLDERS {
            let what = format!("{count} folders, at most {SKILL_FOLDERS}");
            return Some(("folders", what, "put several skills into one folder".to_owned()));
        }
        let count = self.trusted_keys.len();
        if count > TRUSTED_KEYS {
            let what = format!("{count} keys, at most {TRUSTED_KEYS}");
            return Some(("trusted_keys", what, "remove those that sign no bundles".to_owned()));
        }
        let mut faults = self.trusted_keys.iter().filter_map(|(name, key)| {
            let why = key.parse::<BundleKey>().err()?;
            Some(format!("the key `{name}`: {why}"))
        });
        let hint = "copy the line that `clawnode skills key` shows".to_owned();
        faults.next().map(|what| ("trusted_keys", what, hint))
    }
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

    /// What is wrong with the names of its skills, or missing for the tool that writes them.
    pub(super) fn skills_fault(&self) -> Option<ContextFault> {
        let has = |tool: &str| {
            let mut names = self.tools.iter().filter_map(ToolSelection::name);
            names.any(|name| name.as_str() == tool)
        };
        if has(CREATE_SKILL) && !has(LEDGER_APPEND) {
            let what = format!("`{CREATE_SKILL}` writes skills from entries of the work ledger");
            return Some(("tools", what, format!("add `{LEDGER_APPEND}`, or remove the tool")));
        }
        (self.skills.len() > SKILLS).then(|| {
            let what = format!("{} names or patterns, at most {SKILLS}", self.skills.len());
            ("skills", what, "use patterns such as `deploy-*`".to_owned())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_what_is_none_is_named() {
        let good = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=".to_owned();
        let section = |key: &str| SkillsSection {
            trusted_keys: BTreeMap::from([("team".to_owned(), key.to_owned())]),
            ..SkillsSection::default()
        };
        assert_eq!(section(&good).fault(), None);
        assert_eq!(section(&good).keys()["team"].to_string(), good);
        let (key, what, _) = section("AAAA").fault().unwrap();
        assert_eq!(key, "trusted_keys");
        assert!(what.contains("`team`"), "{what}");
        let names = (0..=TRUSTED_KEYS).map(|number| (format!("k{number}"), good.clone()));
        let many = SkillsSection { trusted_keys: names.collect(), ..SkillsSection::default() };
        assert!(many.fault().unwrap().1.contains("at most 16"));
    }

    #[test]
    fn an_agent_that_writes_skills_has_a_ledger() {
        let agent = |tools: &str| toml::from_str::<AgentSection>(tools).unwrap().skills_fault();
        let (key, what, _) = agent("tools = [\"create_skill\"]").unwrap();
        assert!(key == "tools" && what.contains("work ledger"), "{what}");
        assert_eq!(agent("tools = [\"create_skill\", \"ledger_append\"]"), None);
        assert_eq!(agent("tools = [\"calculate\"]"), None);
    }
}
