//! What runs, and in what sandbox: the one description that both engines use.
//!
//! A [`SandboxPolicy`] describes a sandbox, and a [`SandboxCommand`] describes the program in it. They have
//! no fields for other things that an engine could do (other mounts, devices, capabilities, the
//! host's namespaces, another user, privileges), so no tool, argument or configuration can ask for
//! them.

use std::{fmt, num::NonZeroU32, path::PathBuf, str::FromStr, time::Duration};

use clawnode_proto::tool::{ToolFailure, ToolOutcome};
use clawnode_tool::RunSink;
use serde::{Deserialize, Serialize};

use super::resource_limits::SandboxLimits;

/// Bytes of one argument: what Linux takes, less its end.
const ARGUMENT_BYTES: usize = (128 << 10) - 1;
/// Bytes of all arguments of a command (1 MiB): half of Linux's limit at the usual stack size.
const ARGUMENTS_BYTES: usize = 1 << 20;
/// Bytes of an image's name.
const IMAGE_BYTES: usize = 255;
/// Where a command leaves the files to keep of its run; an environment variable names the place.
pub(super) const ARTIFACTS: &str = "/artifacts";
/// The environment variable that names it.
pub(super) const ARTIFACTS_VARIABLE: &str = "CLAWNODE_ARTIFACTS";
/// The variable that identifies the call for a command: the same for each run of one call.
pub const IDEMPOTENCY_KEY: &str = "CLAWNODE_IDEMPOTENCY_KEY";
/// What describes its walls to what becomes a command, which takes it away.
pub(super) const WALLS: &str = "CLAWNODE_WALLS";
/// What marks the processes of one run where nothing isolates them.
pub(super) const RUN: &str = "CLAWNODE_RUN";
/// The user that owns nothing.
const NOBODY: u32 = 65_534;

/// The limits of a sandbox, for any command in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SandboxPolicy {
    /// What it sees as its file system; a sandbox without an image sees parts of the host's.
    pub image: Option<Image>,
    /// What it may use.
    pub limits: SandboxLimits,
    /// The networks that it may reach.
    pub network: Network,
    /// The files of the agent that it works for, at `/workspace`.
    pub workspace: Option<AgentFiles>,
    pub user: User,
}

/// One command.
#[derive(Clone, PartialEq, Eq)]
pub struct SandboxCommand {
    /// What is run, with its arguments. No shell looks at it.
    pub argv: Argv,
    /// What it reads.
    pub stdin: Vec<u8>,
    /// The same for each run of one call; the command gets it in its environment.
    pub idempotency_key: String,
    /// The longest that it may take.
    pub timeout: Duration,
    /// Takes what it says.
    pub sink: RunSink,
}

/// The networks that a sandbox may reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// No host, not even this one.
    #[default]
    None,
    /// All that a network of the engine's own reaches: the Internet, and the host's addresses. It
    /// does not go through `[egress]`.
    Bridge,
}

/// A program and its arguments: not empty, within what Linux takes, without a zero byte.
#[derive(Clone, PartialEq, Eq)]
pub struct Argv(Vec<String>);

/// The name of an image: `debian:bookworm-slim`, `registry.example/team/tool@sha256:…`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Image(String);

/// An agent's directory, made by this crate from the workspace's root and the agent's name alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AgentFiles {
    pub(super) directory: PathBuf,
    pub(super) is_read_only: bool,
}

/// A user that is not root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct User {
    uid: NonZeroU32,
    gid: NonZeroU32,
}

/// What cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Nothing to run.
    #[error("there is no command to run")]
    NoCommand,
    /// No program can be given that.
    #[error("argument {0} has a zero byte in it, which no program can be given")]
    ZeroByte(usize),
    /// More than the system takes.
    #[error(
        "argument {at} has {bytes} bytes; one may have at most {ARGUMENT_BYTES}, all at most {ARGUMENTS_BYTES}: pass large values on standard input"
    )]
    TooLong { at: usize, bytes: usize },
    /// Not the name of an image.
    #[error("`{0}` is not the name of an image such as `debian:bookworm-slim`")]
    Image(String),
}

// === impl Argv ===

impl Argv {
    /// A program and its arguments.
    pub fn new(items: Vec<String>) -> Result<Self, SpecError> {
        if items.first().is_none_or(String::is_empty) {
            return Err(SpecError::NoCommand);
        }
        let mut all = 0;
        for (at, item) in items.iter().enumerate() {
            let bytes = item.len();
            all += bytes + 1;
            if item.contains('\0') {
                return Err(SpecError::ZeroByte(at));
            }
            if bytes > ARGUMENT_BYTES || all > ARGUMENTS_BYTES {
                return Err(SpecError::TooLong { at, bytes });
            }
        }
        Ok(Self(items))
    }

    /// What is run, and with what.
    pub fn items(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Debug for Argv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments are content of a conversation, which is in no log.
        write!(f, "Argv({} items)", self.0.len())
    }
}

// === impl SandboxCommand ===

impl SandboxCommand {
    /// Its environment, besides what its sandbox has.
    pub(super) fn environment(&self) -> [(&'static str, &str); 3] {
        [("HOME", "/tmp"), ("LANG", "C.UTF-8"), (IDEMPOTENCY_KEY, &self.idempotency_key)]
    }
}

impl fmt::Debug for SandboxCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxCommand")
            .field("argv", &self.argv)
            .field("stdin", &self.stdin.len())
            .field("idempotency_key", &self.idempotency_key)
            .field("timeout", &self.timeout)
            .field("sink", &self.sink)
            .finish()
    }
}

// === impl Image ===

impl Image {
    /// Debian, small.
    pub(super) fn debian() -> Self {
        Self("debian:bookworm-slim".to_owned())
    }

    /// Python, small.
    pub(super) fn python() -> Self {
        Self("python:3.12-slim".to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Image {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':' | '@');
        // It becomes part of the engine's paths: no part of it may lead elsewhere.
        let part = |part: &str| {
            part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.chars().all(known)
        };
        if text.len() > IMAGE_BYTES || !text.split('/').all(part) {
            return Err(SpecError::Image(text.chars().take(60).collect()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for Image {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<Image> for String {
    fn from(image: Image) -> Self {
        image.0
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl User ===

impl User {
    /// The user that owns nothing.
    pub const fn nobody() -> Self {
        match NonZeroU32::new(NOBODY) {
            Some(id) => Self { uid: id, gid: id },
            None => Self { uid: NonZeroU32::MIN, gid: NonZeroU32::MIN },
        }
    }

    /// The owner of an agent's files; the user that owns nothing if that is root.
    pub fn owner(uid: u32, gid: u32) -> Self {
        match (NonZeroU32::new(uid), NonZeroU32::new(gid)) {
            (Some(uid), Some(gid)) => Self { uid, gid },
            _ => Self::nobody(),
        }
    }

    /// The user's number.
    pub const fn uid(self) -> u32 {
        self.uid.get()
    }

    /// Its group's number.
    pub const fn gid(self) -> u32 {
        self.gid.get()
    }
}

// === impl SpecError ===

impl From<SpecError> for ToolOutcome {
    fn from(error: SpecError) -> Self {
        Self::failed(ToolFailure::Invalid, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_what_a_program_can_be_given() {
        let argv = |items: &[&str]| Argv::new(items.iter().map(|&item| item.to_owned()).collect());
        assert_eq!(argv(&["a", "", "-x"]).unwrap().items(), ["a", "", "-x"]);
        assert_eq!(argv(&[]), Err(SpecError::NoCommand));
        assert_eq!(argv(&["", "a"]), Err(SpecError::NoCommand));
        assert_eq!(argv(&["a", "b\0c"]), Err(SpecError::ZeroByte(1)));
        let long = "a".repeat(ARGUMENT_BYTES + 1);
        assert!(matches!(argv(&["a", &long]), Err(SpecError::TooLong { at: 1, .. })));
        let many = vec!["a".repeat(ARGUMENT_BYTES); 9];
        assert!(matches!(Argv::new(many), Err(SpecError::TooLong { at: 8, .. })));
        assert!(!format!("{:?}", argv(&["secret"]).unwrap()).contains("secret"));
    }

    #[test]
    fn an_image_is_a_name_and_leads_nowhere_else() {
        for good in ["busybox", "debian:bookworm-slim", "a.example:5000/b/c:1@sha256:0f", "x_y-z"] {
            assert_eq!(good.parse::<Image>().unwrap().as_str(), good);
        }
        for bad in [
            "", "/a", "a/", "a//b", "a/../b", "..", "a b", "a?x=1", "a#b", "a%2e", "-v", "a\n",
            "é", "a/./b", "$(x)", "a\\b",
        ] {
            assert!(bad.parse::<Image>().is_err(), "{bad}");
        }
        assert!("a".repeat(256).parse::<Image>().is_err());
    }

    #[test]
    fn nobody_is_root() {
        for (uid, gid) in [(0, 0), (0, 7), (7, 0)] {
            assert_eq!(User::owner(uid, gid), User::nobody());
        }
        assert_eq!((User::owner(7, 8).uid(), User::owner(7, 8).gid()), (7, 8));
        assert_eq!(User::nobody().uid(), 65_534);
    }
}
