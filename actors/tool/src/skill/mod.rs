//! Skills: instructions for certain tasks, which an agent's model reads when it needs them.
//!
//! A skill is a folder with a file `SKILL.md` in the open Agent Skills format (<https://agentskills.io>): YAML
//! [`frontmatter`](format) says its name and what it is for, and text follows. [`skill_folder`] reads folders of them. What is
//! wrong with one of them keeps it out and no other. [`agent_skills`] has those of one agent, with the catalogue in its system
//! prompt, and [`triggers`] says which of them a message calls for. [`shelf`] is what a process has of them, for the tools that hand them
//! out. [`create_skill`] is what an agent wants to write, and [`skill_writing`] writes it. [`bundle`] packs a skill into one file that
//! is signed by a key of [`bundle_keys`], and [`installation`] puts it into a folder.
//!
//! A folder may also have a file `pipeline.yaml`: steps that people run as a plan ([`pipeline`]).
//!
//! A skill is text that an operator put there, or that a person approved. It gives an agent no tool and no right.

mod agent_skills;
mod bundle;
mod bundle_keys;
mod create_skill;
mod format;
mod installation;
mod pipeline;
mod pipeline_actions;
mod shelf;
mod skill_folder;
mod skill_writing;
mod triggers;
mod yaml_tree;

pub use agent_skills::AgentSkills;
pub use bundle::{BundleError, VerifiedBundle, pack, verify};
pub use bundle_keys::{BundleKey, BundleSigner};
pub use create_skill::{SkillDraft, SkillOrigin};
pub use format::SkillHead;
pub use installation::{BundleRecord, BundleState, Installed};
pub use pipeline::{PIPELINE_FILE, Pipeline, PipelineInput};
pub use shelf::SkillShelf;
pub use skill_folder::{FoundSkills, Skill, SkillFault, read_folders, read_skill, watched};
pub use skill_writing::SkillFolders;
pub use yaml_tree::YamlFault;
