//! Skills: instructions for certain tasks, which an agent's model reads when it needs them.
//!
//! A skill is a folder with a file `SKILL.md` in the open Agent Skills format (<https://agentskills.io>): YAML
//! [`frontmatter`](format) says its name and what it is for, and text follows. [`folder`] reads folders of them. What is
//! wrong with one of them keeps it out and no other. [`agent`] has those of one agent, with the catalogue in its system
//! prompt, and [`triggers`] says which of them a message calls for. [`shelf`] is what a process has of them, for the tools that hand them
//! out. [`create_skill`] is what an agent wants to write, and [`writing`] writes it. [`bundle`] packs a skill into one file that
//! is signed by a key of [`keys`], and [`installation`] puts it into a folder.
//!
//! A folder may also have a file `pipeline.yaml`: steps that people run as a plan ([`pipeline`]).
//!
//! A skill is text that an operator put there, or that a person approved. It gives an agent no tool and no right.

mod actions;
mod agent;
mod bundle;
mod create_skill;
mod folder;
mod format;
mod installation;
mod keys;
mod pipeline;
mod shelf;
mod triggers;
mod writing;
mod yaml_tree;

pub use agent::AgentSkills;
pub use bundle::{BundleError, VerifiedBundle, pack, verify};
pub use create_skill::{SkillDraft, SkillOrigin};
pub use folder::{FoundSkills, Skill, SkillFault, read_folders, read_skill, watched};
pub use format::SkillHead;
pub use installation::{BundleRecord, BundleState, Installed};
pub use keys::{BundleKey, BundleSigner};
pub use pipeline::{PIPELINE_FILE, Pipeline, PipelineInput};
pub use shelf::SkillShelf;
pub use writing::SkillFolders;
pub use yaml_tree::YamlFault;
