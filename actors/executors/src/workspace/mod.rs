//! An agent's files: `file_read`, `file_write`, `file_list`, `file_search`.
//!
//! Each agent has one directory, `root/AGENT`, and nothing else. A model writes the paths, and
//! other tools of the same agent write the directory at the same time, symbolic links included; so
//! a path is not looked at and then used. It is parsed once at the edge (`path`), and what is done
//! with it is done on a handle of the agent's directory (`agent_directory`), where the kernel refuses to
//! resolve a name to anything outside, at the moment at which it is used.
//!
//! The handles are cap-std's: `openat2` with `RESOLVE_BENEATH` where the kernel has it, and a walk
//! of directory handles where it has not (some container runtimes, other systems), which is more
//! code than should be written here once more.
//!
//! What is written belongs to the owner of the agent's directory where the node is root: commands of
//! the agent run as that user and go on with it. A file that is replaced keeps who may read, write and
//! run it, and never the bits that make a program run as its owner.
//!
//! Only regular files are opened, and never so that opening could wait. Everything is bounded: what
//! is read, written, listed, searched, and for how long.
//!
//! Not here: deleting and renaming (a shell's work, and its risk), and a quota of disk space.

mod agent_directory;
mod error;
mod executor;
mod list;
mod options;
#[cfg(feature = "test-util")]
mod planted;
mod read;
mod search;
mod specs;
mod walk;
mod write;

pub use agent_directory::DIRECTORY_MODE;
pub use error::WorkspaceError;
pub use executor::Workspace;
pub use options::WorkspaceOptions;
#[cfg(feature = "test-util")]
pub use planted::WorkspaceBug;
pub use specs::specs;
