//! The skills of this node: where they are, and what is wrong with them.

use std::path::{Path, PathBuf};

use clawnode_executors::{ACTIVATE_SKILL, DISCOVER_SKILLS};
use clawnode_proto::{ToolName, skill::CREATE_SKILL};
use clawnode_tool::skill::{
    AgentSkills, BundleState, FoundSkills, SkillFolders, read_folders, watched,
};
use tracing::warn;

use crate::config::{Config, LoadedConfig, load::absolute};

/// The folder beside the configuration file, unless others are named.
const FOLDER: &str = "skills";
/// Problems that are logged at once.
const LOGGED: usize = 20;

/// Where this node looks for skills. The usual folder need not be there.
pub fn folders(loaded: &LoadedConfig) -> Vec<PathBuf> {
    let named = &loaded.config.skills.folders;
    if !named.is_empty() {
        return named.iter().map(|folder| absolute(folder)).collect();
    }
    usual(loaded).filter(|folder| folder.is_dir()).into_iter().collect()
}

fn usual(loaded: &LoadedConfig) -> Option<PathBuf> {
    let file = loaded.own_file()?;
    Some(absolute(file.parent()?).join(FOLDER))
}

/// The same, and where new skills are written: the first of these folders, which is made if it is not there.
pub fn places(loaded: &LoadedConfig) -> SkillFolders {
    let named = loaded.config.skills.folders.first().map(|folder| absolute(folder));
    SkillFolders { read: folders(loaded), write: named.or_else(|| usual(loaded)) }
}

/// The skills of this node.
pub fn found(loaded: &LoadedConfig) -> FoundSkills {
    read_folders(&folders(loaded))
}

/// The same, with a word in the log about each that is left out.
pub fn read(loaded: &LoadedConfig) -> FoundSkills {
    let found = found(loaded);
    for fault in found.faults.iter().take(LOGGED) {
        warn!(path = %fault.path.display(), why = fault.what, "a skill is left out");
    }
    found
}

/// The tools of an agent with such skills: one to read them, and one to find those that its prompt does not name. An
/// agent that may write skills has both, so that it finds a new one at once. `own`: the tools that it was given.
pub fn tools(skills: &AgentSkills, own: &[ToolName]) -> impl Iterator<Item = ToolName> + use<> {
    let writes = own.iter().any(|name| name.as_str() == CREATE_SKILL);
    let activate = (writes || !skills.is_empty()).then_some(ACTIVATE_SKILL);
    let discover = (writes || skills.unnamed > 0).then_some(DISCOVER_SKILLS);
    activate.into_iter().chain(discover).filter_map(|name| name.parse().ok())
}

/// What changes when skills do; also what is not there yet.
pub fn files(loaded: &LoadedConfig) -> Vec<PathBuf> {
    let usual = loaded.config.skills.folders.is_empty().then(|| usual(loaded)).flatten();
    usual.into_iter().chain(folders(loaded)).flat_map(|folder| watched(&folder)).collect()
}

/// What is probably not meant, for people.
pub fn warnings(loaded: &LoadedConfig, found: &FoundSkills) -> Vec<String> {
    let faults = found.faults.iter();
    let faults =
        faults.map(|fault| format!("skill `{}` is left out: {}", fault.path.display(), fault.what));
    let missing = missing(&loaded.config, found);
    let open = folders(loaded).into_iter().filter_map(|folder| open_to_agents(loaded, &folder));
    let changed = found.skills.iter().filter_map(|skill| {
        let name = &skill.head.name;
        BundleState::of(skill).filter(|state| state.is_changed).map(|_| {
            format!("the files of the skill `{name}` have changed since its bundle was installed")
        })
    });
    faults.chain(missing).chain(open).chain(changed).collect()
}

/// Skills that agents name and no folder has.
fn missing(config: &Config, found: &FoundSkills) -> Vec<String> {
    let is_pattern = |name: &str| name.contains(['*', '?']);
    let is_there = |name: &str| found.skills.iter().any(|skill| skill.head.name == name);
    let agents = config.agents.iter();
    let named =
        agents.flat_map(|(agent, options)| options.skills.iter().map(move |name| (agent, name)));
    named
        .filter(|(_, name)| !is_pattern(name) && !is_there(name))
        .map(|(agent, name)| format!("agent `{agent}` has the skill `{name}`, which no folder has"))
        .collect()
}

/// What an agent writes there instructs agents from then on.
fn open_to_agents(loaded: &LoadedConfig, folder: &Path) -> Option<String> {
    let root = absolute(&loaded.config.workspace.as_ref()?.root);
    let (folder, root) = (folder.canonicalize().ok()?, root.canonicalize().ok()?);
    folder.starts_with(&root).then(|| {
        let folder = folder.display();
        format!(
            "the skills in `{folder}` are in the workspace: agents can write instructions there"
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::{Env, Sources, load};

    fn skill(folder: &Path, name: &str) {
        fs::create_dir_all(folder.join(name)).unwrap();
        let text = format!("---\nname: {name}\ndescription: d\n---\nx");
        fs::write(folder.join(name).join("SKILL.md"), text).unwrap();
    }

    fn loaded(home: &Path, text: &str) -> LoadedConfig {
        let file = home.join("config.toml");
        fs::write(&file, text).unwrap();
        let env = Env::from([("HOME", home.to_str().unwrap())]);
        load(&Sources { env, file: Some(file), flags: Vec::new() }).unwrap()
    }

    #[test]
    fn the_folder_beside_the_file_counts_unless_others_are_named() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let names = |loaded: &LoadedConfig| {
            let found = found(loaded);
            found.skills.iter().map(|skill| skill.head.name.clone()).collect::<Vec<_>>()
        };
        let none = loaded(home, "");
        assert_eq!((folders(&none), files(&none)), (Vec::new(), vec![home.join("skills")]));
        skill(&home.join("skills"), "usual");
        skill(&home.join("more"), "other");
        assert_eq!(names(&none), ["usual"]);
        let chosen = loaded(home, "[skills]\nfolders = [\"more\"]\n");
        assert_eq!(names(&chosen), ["other"], "relative to the file");
        assert!(files(&chosen).iter().all(|file| file.starts_with(home.join("more"))));
        let both = loaded(home, "[skills]\nfolders = [\"skills\", \"more\", \"absent\"]\n");
        assert_eq!(names(&both), ["other", "usual"]);
    }

    #[test]
    fn what_is_probably_not_meant_is_told() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        skill(&home.join("files/skills"), "good");
        fs::create_dir_all(home.join("files/skills/bad")).unwrap();
        fs::write(home.join("files/skills/bad/SKILL.md"), "x").unwrap();
        let loaded = loaded(
            home,
            "[skills]\nfolders = [\"files/skills\"]\n[workspace]\nroot = \"files\"\n\
             [agents.default]\nskills = [\"good\", \"gone\", \"g*\"]\n",
        );
        let [bad, gone, open] = warnings(&loaded, &found(&loaded)).try_into().unwrap();
        assert!(bad.contains("bad/SKILL.md") && bad.contains("does not begin"), "{bad}");
        assert!(gone.contains("`gone`, which no folder has"), "{gone}");
        assert!(open.contains("in the workspace"), "{open}");
    }
}
